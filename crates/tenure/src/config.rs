//! The configuration in force: one TOML file, the environment, flags, and a project's own file, in layers.
//!
//! [`raw`] turns a file into plain data with line numbers, [`project`] and [`trust`] decide how much of a
//! project's file counts, [`resolve`] lays the layers over each other and remembers where each value comes
//! from, [`show`] prints that.

pub mod asks;
pub mod node;
pub mod origin;
pub mod permissions;
pub mod project;
pub mod raw;
pub mod read;
pub mod resolve;
pub mod show;
pub mod store_url;
pub mod trust;

pub use resolve::{Config, Flags, load};
pub use store_url::StoreUrl;
