//! Permission rules: allow, ask or deny, by tool and by what a call would touch.

mod access;

pub use access::Access;
