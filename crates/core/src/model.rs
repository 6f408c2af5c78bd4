//! Which model, and what is known of it.

use crate::request::Media;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A model as the user names it: `provider/model`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ModelRef {
    /// The provider's name in the configuration.
    pub provider: String,
    /// The model's name at that provider.
    pub model: String,
}

impl ModelRef {
    /// Splits `provider/model` at the first slash (model names may hold more of them).
    pub fn parse(text: &str) -> Option<Self> {
        let (provider, model) = text.split_once('/')?;
        (!provider.is_empty() && !model.is_empty()).then(|| Self {
            provider: provider.to_owned(),
            model: model.to_owned(),
        })
    }
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

/// What a model is *known* not to see. Everything else is shown to it, and its provider says if it does not take it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blind {
    /// Images.
    #[serde(default)]
    pub images: bool,
    /// Documents.
    #[serde(default)]
    pub documents: bool,
}

impl Blind {
    /// Is the model known not to see this?
    pub fn is_to(self, media: &Media) -> bool {
        if media.media_type.starts_with("image/") {
            self.images
        } else {
            self.documents
        }
    }
}

/// What a request may assume of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelLimits {
    /// Context window in tokens; `None` when unknown (then overflow is only learnt from the provider).
    pub context: Option<u64>,
    /// Largest output in tokens; `None` leaves it to the provider where the protocol allows that.
    pub output: Option<u64>,
}
