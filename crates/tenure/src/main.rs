//! The `tenure` command line.
fn main() {}
