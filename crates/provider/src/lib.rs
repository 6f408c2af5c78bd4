//! Wire protocols of model vendors, decoded into one stream of provider events.
//!
//! Floor 1: this crate knows requests and provider events of `tenure-core`, and nothing of sessions or
//! stores. A [`Provider`] encodes a request purely and sends it once; retrying is the caller's decision.

mod catalogue;
mod provider;
mod secret;
mod settings;

pub use catalogue::{Catalogue, ModelInfo, ModelSettings, Origin};
pub use provider::{AttemptKey, Encoded, EventStream, Provider};
pub use secret::{Secret, SecretError};
pub use settings::{Protocol, ProviderSettings, SettingsError};
