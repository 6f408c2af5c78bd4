//! A configuration file as plain data: what was written and on which line, nothing decided yet.

use std::collections::BTreeMap;
use tenure_core::price::{Rates, Tier};
use tenure_provider::Asks;

/// A value and its 1-based line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At<T> {
    /// What was written.
    pub value: T,
    /// Where.
    pub line: usize,
}

/// A whole file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RawConfig {
    /// `default_model`
    pub default_model: Option<At<String>>,
    /// `store`
    pub store: Option<At<String>>,
    /// `instructions`
    pub instructions: Option<At<String>>,
    /// `max_steps`
    pub max_steps: Option<At<u64>>,
    /// `max_cost`, as it was written
    pub max_cost: Option<At<String>>,
    /// `max_tokens`, as it was written
    pub max_tokens: Option<At<String>>,
    /// `max_time`, as it was written
    pub max_time: Option<At<String>>,
    /// `auto_compaction`
    pub auto_compaction: Option<At<bool>>,
    /// `max_parallel_tools`
    pub max_parallel_tools: Option<At<u64>>,
    /// `[lease]`
    pub lease: RawLease,
    /// `store_password_file`
    pub store_password_file: Option<At<String>>,
    /// `[node]`
    pub node: RawNode,
    /// `[providers.*]`
    pub providers: BTreeMap<String, RawProvider>,
    /// `[permissions]`, in the order written.
    pub permissions: Vec<RawRule>,
}

/// `[lease]`, in milliseconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RawLease {
    /// `renew_ms`
    pub renew_ms: Option<At<u64>>,
    /// `duration_ms`
    pub duration_ms: Option<At<u64>>,
    /// `margin_ms`
    pub margin_ms: Option<At<u64>>,
}

/// `[node]`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RawNode {
    /// `name`
    pub name: Option<At<String>>,
    /// `listen`
    pub listen: Option<At<String>>,
    /// `advertise`
    pub advertise: Option<At<String>>,
    /// `labels`
    pub labels: Option<At<Vec<String>>>,
    /// `roots`
    pub roots: Option<At<Vec<String>>>,
    /// `host_label`
    pub host_label: Option<At<String>>,
}

/// One `[providers.NAME]`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RawProvider {
    /// Where its table begins.
    pub line: usize,
    /// `protocol`
    pub protocol: Option<At<String>>,
    /// `base_url`
    pub base_url: Option<At<String>>,
    /// `dialect`
    pub dialect: Option<At<String>>,
    /// `api_key_env`
    pub api_key_env: Option<At<String>>,
    /// `api_key_file`
    pub api_key_file: Option<At<String>>,
    /// `catalogue`
    pub catalogue: Option<At<String>>,
    /// `headers`
    pub headers: BTreeMap<String, At<String>>,
    /// `ca_file`
    pub ca_file: Option<At<String>>,
    /// What only AWS knows.
    pub aws: RawAws,
    /// `first_byte_timeout_s`
    pub first_byte_timeout_s: Option<At<f64>>,
    /// `idle_timeout_s`
    pub idle_timeout_s: Option<At<f64>>,
    /// `[providers.NAME.models.*]`
    pub models: BTreeMap<String, RawModel>,
}

/// The keys of a `[providers.NAME]` that only AWS knows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RawAws {
    /// `region`
    pub region: Option<At<String>>,
    /// `profile`
    pub profile: Option<At<String>>,
    /// `access_key_id_env`
    pub access_key_id_env: Option<At<String>>,
    /// `secret_access_key_env`
    pub secret_access_key_env: Option<At<String>>,
    /// `session_token_env`
    pub session_token_env: Option<At<String>>,
}

/// One `[providers.NAME.models.MODEL]`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RawModel {
    /// Where its table begins.
    pub line: usize,
    /// `context`
    pub context: Option<At<u64>>,
    /// `output`
    pub output: Option<At<u64>>,
    /// `price`
    pub price: Option<At<RawPrice>>,
    /// `abilities`
    pub abilities: Option<At<Vec<String>>>,
    /// `effort`, `hosted` and `cache_time`
    pub asks: Asks,
}

/// `price`: decimal numbers of dollars per million tokens, already read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RawPrice {
    /// The prices of an ordinary request.
    pub base: Rates,
    /// `tiers`
    pub tiers: Vec<Tier>,
}

/// One line of `[permissions]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawRule {
    /// The tool, or `*`.
    pub tool: String,
    /// What of it; none means everything.
    pub pattern: Option<String>,
    /// The word written: `allow`, `ask` or `deny`.
    pub decision: Decision,
    /// Where.
    pub line: usize,
}

/// What a permission rule says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// Go ahead.
    Allow,
    /// Ask a person; without one, no.
    Ask,
    /// No.
    Deny,
}

impl Decision {
    /// The word in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}
