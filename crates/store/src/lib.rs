//! The event log and claims over SQLite.
