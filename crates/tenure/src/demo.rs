//! The demonstration's parts: a small project, its scripted model, and the checks on the log.
