//! Wire protocols of model vendors, decoded into one stream of provider events.
//!
//! Floor 1: this crate knows requests and provider events of `tenure-core`, and nothing of sessions or
//! stores. A [`Provider`] encodes a request purely and sends it once; retrying is the caller's decision.

mod asks;
mod aws;
pub mod catalogue;
mod classify;
mod decode;
mod dialect;
mod effort;
mod encode;
#[cfg(feature = "client")]
mod http;
#[cfg(feature = "client")]
mod probe;
mod provider;
mod secret;
mod settings;
mod sse;
mod tokens;

pub use asks::Asks;
#[cfg(feature = "bedrock")]
pub use aws::sign;
pub use aws::{AWS_SECRET_ENV, AwsKeys, AwsSettings};
pub use catalogue::{Catalogue, ModelInfo, ModelSettings, Origin};
pub use classify::{classify, classify_event, output_that_fits, retry_after, window_said};
pub use decode::Decoder;
pub use dialect::Dialect;
pub use encode::{CacheTime, encode, encode_cached};
#[cfg(feature = "client")]
pub use http::HttpProvider;
#[cfg(feature = "client")]
pub use probe::{Finding, ProbeReport, probe};
pub use provider::{AttemptKey, Encoded, EventStream, Provider};
pub use secret::{Secret, SecretError};
pub use settings::{Protocol, ProviderSettings, SettingsError};
pub use tokens::Tokens;
