//! The conformance suite over PostgreSQL.

use crate::postgres_backend::fresh;

tenure_store::conformance_tests!(fresh);
