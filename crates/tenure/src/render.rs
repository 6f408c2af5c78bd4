//! Output for people and programs: what a terminal can do, safe text, Markdown, streaming, tables.

pub mod denials;
pub mod escape;
pub mod human;
pub mod json;
pub mod log_line;
pub mod markdown;
pub mod plain;
pub mod settled;
pub mod spans;
pub mod status;
pub mod stream;
pub mod table;
pub mod terminal;
pub mod transcript;
pub mod tty;
pub mod view;
pub mod width;
