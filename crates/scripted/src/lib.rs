//! A scripted model served over HTTP, with strict validators of each vendor's request rules.

pub mod validate;
