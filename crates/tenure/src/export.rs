//! A session as JSON lines: writing it with secrets masked, and checking such a file before it is taken in.

pub mod mask;
pub mod patterns;
pub mod read;
pub mod write;
