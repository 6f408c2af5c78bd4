//! The conformance suite over SQLite.

use crate::sqlite_backend::fresh;

tenure_store::conformance_tests!(fresh);
