//! The demonstration's parts: a small project, its scripted model, the processes, and the checks on the log.

pub mod checks;
pub mod stage;
pub mod timeline;
