//! The PostgreSQL backend: many processes on one database, one writer task per process, group commit.

#![allow(dead_code, reason = "the backend is being built on these")]

mod conn;
mod flush;
mod load;
mod migrate;
mod place;
mod session;
mod sql;
mod tls;
mod trouble;

pub use place::{is_url, without_password};
