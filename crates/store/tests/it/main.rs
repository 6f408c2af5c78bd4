//! The store's integration tests.

mod smoke;
