//! What is asked of a model beside the conversation, as the configuration wishes it.

use crate::encode::CacheTime;
use tenure_core::request::{Effort, HostedTool};

/// Wishes for one model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asks {
    /// How hard it should think, unless a prompt says it otherwise.
    pub effort: Option<Effort>,
    /// Tools its provider may run.
    pub hosted: Vec<HostedTool>,
    /// How long its provider should keep the conversation in its cache.
    pub cache: CacheTime,
}
