//! What is known of each model: declared limits and prices, and where the knowledge comes from.

use std::collections::BTreeMap;
use tenure_core::model::{ModelLimits, ModelRef};
use tenure_core::usage::Price;

/// A model as the configuration declares it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelSettings {
    /// Context window in tokens.
    pub context: Option<u64>,
    /// Largest output in tokens.
    pub output: Option<u64>,
    /// Price per million tokens.
    pub price: Option<Price>,
}

/// Where the values of a [`ModelInfo`] come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The configuration declares the model.
    Declared,
    /// Nothing is known of it: limits are learnt from the provider's refusals, the price is unknown (never zero).
    Unknown,
}

impl Origin {
    /// The word shown to people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Declared => "configuration",
            Self::Unknown => "unknown",
        }
    }
}

/// The values in force for one model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelInfo {
    /// Limits on requests.
    pub limits: ModelLimits,
    /// Price; `None` means unknown, not free.
    pub price: Option<Price>,
    /// Where they come from.
    pub origin: Origin,
}

impl ModelInfo {
    pub(crate) fn of(declared: Option<&ModelSettings>) -> Self {
        Self {
            limits: ModelLimits {
                context: declared.and_then(|model| model.context),
                output: declared.and_then(|model| model.output),
            },
            price: declared.and_then(|model| model.price),
            origin: if declared.is_some() {
                Origin::Declared
            } else {
                Origin::Unknown
            },
        }
    }
}

/// All declared models, by provider and model name. A declaration belongs to its provider alone: a model
/// of the same name elsewhere says nothing about it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Catalogue {
    models: BTreeMap<(String, String), ModelSettings>,
}

impl Catalogue {
    /// An empty catalogue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a model; a second declaration of the same model replaces the first.
    pub fn declare(&mut self, model: &ModelRef, settings: ModelSettings) {
        self.models
            .insert((model.provider.clone(), model.model.clone()), settings);
    }

    /// The values in force for `model`. Total: an undeclared model is [`Origin::Unknown`].
    pub fn lookup(&self, model: &ModelRef) -> ModelInfo {
        ModelInfo::of(
            self.models
                .get(&(model.provider.clone(), model.model.clone())),
        )
    }

    /// Every declared model in order.
    pub fn models(&self) -> impl Iterator<Item = ModelRef> {
        self.models.keys().map(|(provider, model)| ModelRef {
            provider: provider.clone(),
            model: model.clone(),
        })
    }
}
