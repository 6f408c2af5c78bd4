//! Which provider answers for which model.

use std::collections::BTreeMap;
use std::sync::Arc;
use tenure_core::error::SessionError;
use tenure_core::model::ModelRef;
use tenure_core::price::Price;
use tenure_provider::{Catalogue, ModelInfo, Provider};

/// A model with everything a request needs.
#[derive(Clone)]
pub struct Model {
    /// Its reference.
    pub reference: ModelRef,
    /// Its provider.
    pub provider: Arc<dyn Provider>,
    /// Limits and price.
    pub info: ModelInfo,
}

/// The providers of this process by name, and what is known of their models.
#[derive(Clone, Default)]
pub struct Models {
    providers: BTreeMap<String, Arc<dyn Provider>>,
    catalogue: Catalogue,
}

impl Models {
    /// No provider yet.
    pub fn new(catalogue: Catalogue) -> Self {
        Self {
            providers: BTreeMap::new(),
            catalogue,
        }
    }

    /// Adds a provider under the name models are referred to by.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, provider: Arc<dyn Provider>) -> Self {
        self.providers.insert(name.into(), provider);
        self
    }

    /// What is known now of a model's price, whether or not it can be asked.
    pub fn price(&self, model: &ModelRef) -> Option<Price> {
        self.catalogue.lookup(model).price
    }

    /// May the model's provider run tools of its own, for fees beside the price of the tokens?
    pub fn has_fees(&self, model: &ModelRef) -> bool {
        !self.catalogue.lookup(model).asks.hosted.is_empty()
    }

    /// The model, if this process can ask it.
    ///
    /// # Errors
    /// `not_found`, naming the providers there are.
    pub fn resolve(&self, model: &ModelRef) -> Result<Model, SessionError> {
        let Some(provider) = self.providers.get(&model.provider) else {
            let known: Vec<&str> = self.providers.keys().map(String::as_str).collect();
            return Err(SessionError::new(
                "not_found",
                format!(
                    "This process has no provider `{}` for model {model}. Configured: {}.",
                    model.provider,
                    if known.is_empty() {
                        "none".to_owned()
                    } else {
                        known.join(", ")
                    }
                ),
            ));
        };
        Ok(Model {
            reference: model.clone(),
            provider: provider.clone(),
            info: self.catalogue.lookup(model),
        })
    }
}
