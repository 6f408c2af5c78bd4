// Integration tests of the tools crate.

mod permission;
