//! What must hold for any bytes: the same file as the one behind the tests that replay found inputs.

#[path = "../../crates/provider/tests/it/fold.rs"]
pub mod fold;
#[path = "../../crates/provider/tests/it/invariants.rs"]
pub mod invariants;
