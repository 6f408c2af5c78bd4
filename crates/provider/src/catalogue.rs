//! What is known of each model: limits, prices and abilities, and where each value comes from.
//!
//! Three layers, the first that has a value wins, value by value:
//!
//! 1. the configuration's own declaration, which belongs to its provider alone;
//! 2. the table the user last refreshed ([`models_dev`]);
//! 3. the table built into the program ([`built_in`]).
//!
//! The tables are by *vendor*. A configured provider is matched to a vendor by the host it sends to
//! ([`vendor_of`]), or by the user's word; for any other host a model of a famous name says nothing. The tables are
//! text that is searched, not parsed, until a value is wanted: an unused one costs nothing.

mod abilities;
#[cfg(feature = "client")]
pub mod download;
pub mod models_dev;
pub mod table;
mod vendor;

use crate::asks::Asks;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use table::{Entry, Table};
use tenure_core::model::{Blind, ModelLimits, ModelRef};
use tenure_core::price::Price;

pub use abilities::{Abilities, Ability};
pub use vendor::{VENDORS, vendor_of};

/// The table built into the program.
const BUILT_IN: &str = include_str!("catalogue/built_in.tsv");

/// A refreshed table is not read beyond this: it is our own file, and a real one is a tenth of it.
const REFRESHED_MAX: u64 = 16 << 20;

/// The table built into the program. `cargo xtask models` writes it.
pub fn built_in() -> Table<'static> {
    Table::new(BUILT_IN)
}

/// A model as the configuration declares it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelSettings {
    /// Context window in tokens.
    pub context: Option<u64>,
    /// Largest output in tokens.
    pub output: Option<u64>,
    /// What its tokens cost.
    pub price: Option<Price>,
    /// What it can do; what is not listed, it cannot.
    pub abilities: Option<Abilities>,
    /// What is asked of it beside the conversation.
    pub asks: Asks,
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The configuration declares it.
    Declared,
    /// The table the user refreshed.
    Refreshed,
    /// The table built into the program.
    BuiltIn,
    /// Nowhere: limits are learnt from the provider's refusals, a price is unknown (never zero).
    Unknown,
}

impl Origin {
    /// The word shown to people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Declared => "configuration",
            Self::Refreshed => "refreshed",
            Self::BuiltIn => "built-in",
            Self::Unknown => "unknown",
        }
    }
}

/// Where each value of a [`ModelInfo`] comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origins {
    /// Of the context window.
    pub context: Origin,
    /// Of the largest output.
    pub output: Origin,
    /// Of the price.
    pub price: Origin,
    /// Of the abilities.
    pub abilities: Origin,
}

/// The values in force for one model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelInfo {
    /// Limits on requests.
    pub limits: ModelLimits,
    /// Price; `None` means unknown, not free.
    pub price: Option<Price>,
    /// What it is known to be able to do; `None` means unknown.
    pub abilities: Option<Abilities>,
    /// Where they come from.
    pub origins: Origins,
    /// What is asked of it beside the conversation.
    pub asks: Asks,
}

impl ModelInfo {
    /// What a declaration alone says.
    pub(crate) fn of(declared: Option<&ModelSettings>) -> Self {
        Self::merge(declared, None, None)
    }

    fn merge(
        declared: Option<&ModelSettings>,
        refreshed: Option<&Entry>,
        built_in: Option<&Entry>,
    ) -> Self {
        let declared = declared.cloned().unwrap_or_default();
        let tables =
            |get: fn(&Entry) -> Option<u64>| (refreshed.and_then(get), built_in.and_then(get));
        let (context, context_from) = first(declared.context, tables(|e| e.context));
        let (output, output_from) = first(declared.output, tables(|e| e.output));
        let (price, price_from) = first(
            declared.price,
            (
                refreshed.and_then(|e| completed(e, built_in)),
                built_in.and_then(|e| e.price.clone()),
            ),
        );
        let (abilities, abilities_from) = first(
            // Who lists what a model can do leaves out what it cannot.
            declared.abilities.map(Abilities::complete),
            (
                refreshed.map(|e| e.abilities),
                built_in.map(|e| e.abilities),
            ),
        );
        Self {
            limits: ModelLimits { context, output },
            price,
            asks: declared.asks,
            abilities,
            origins: Origins {
                context: context_from,
                output: output_from,
                price: price_from,
                abilities: abilities_from,
            },
        }
    }

    /// The largest output to ask the provider for: what the user declared, and what the protocol needs to be told.
    /// Elsewhere the provider knows its own limit, and some count what is asked for against a rate limit.
    pub fn output_to_ask(&self, protocol: &str) -> Option<u64> {
        let needed = self.origins.output == Origin::Declared || protocol == "anthropic-messages";
        self.limits.output.filter(|_| needed)
    }

    /// What the model is known not to see.
    pub fn blind(&self) -> Blind {
        let lacks = |ability| self.abilities.is_some_and(|known| known.lacks(ability));
        Blind {
            images: lacks(Ability::Images),
            documents: lacks(Ability::Pdf),
        }
    }

    /// The most tokens an answer can have, as far as that is known.
    pub fn most_output(&self) -> Option<u64> {
        self.limits.output.or(self.limits.context)
    }
}

/// A refreshed price. The table it is from has no price of writes for an hour and none of searches: the built-in ones
/// stay, as long as the price they go with does.
fn completed(refreshed: &Entry, built_in: Option<&Entry>) -> Option<Price> {
    let mut price = refreshed.price.clone()?;
    let known = built_in.and_then(|entry| entry.price.as_ref());
    if let Some(known) = known.filter(|known| known.base.input == price.base.input) {
        let long = &mut price.base.cache_write_long;
        *long = long.or(known.base.cache_write_long);
        price.search = price.search.or(known.search);
    }
    Some(price)
}

fn first<T>(declared: Option<T>, tables: (Option<T>, Option<T>)) -> (Option<T>, Origin) {
    match (declared, tables) {
        (Some(value), _) => (Some(value), Origin::Declared),
        (None, (Some(value), _)) => (Some(value), Origin::Refreshed),
        (None, (None, Some(value))) => (Some(value), Origin::BuiltIn),
        (None, (None, None)) => (None, Origin::Unknown),
    }
}

/// All that is known of the models of the configured providers.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    models: BTreeMap<(String, String), ModelSettings>,
    vendors: BTreeMap<String, String>,
    refreshed: Option<Arc<Refreshed>>,
}

/// The refreshed table: read when a model is first looked up.
#[derive(Debug)]
struct Refreshed {
    path: PathBuf,
    text: OnceLock<Result<Option<String>, String>>,
}

impl Refreshed {
    fn text(&self) -> &Result<Option<String>, String> {
        self.text.get_or_init(|| read(&self.path))
    }
}

fn read(path: &Path) -> Result<Option<String>, String> {
    let wrong = |what: &dyn std::fmt::Display| {
        format!(
            "the refreshed table of models {} cannot be used: {what}; `tenure models --refresh` writes it anew",
            path.display()
        )
    };
    match std::fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(wrong(&e)),
        Ok(found) if found.len() > REFRESHED_MAX => return Err(wrong(&"it is too large")),
        Ok(_) => {}
    }
    let text = std::fs::read_to_string(path).map_err(|e| wrong(&e))?;
    Table::new(&text).head().map_err(|e| wrong(&e))?;
    Ok(Some(text))
}

impl Catalogue {
    /// Nothing is declared, no provider is matched to a vendor.
    pub fn new() -> Self {
        Self::default()
    }

    /// With the refreshed table in this file, if there is one.
    #[must_use]
    pub fn with_refreshed(mut self, path: PathBuf) -> Self {
        self.refreshed = Some(Arc::new(Refreshed {
            path,
            text: OnceLock::new(),
        }));
        self
    }

    /// Declares a model; a second declaration of the same model replaces the first.
    pub fn declare(&mut self, model: &ModelRef, settings: ModelSettings) {
        self.models
            .insert((model.provider.clone(), model.model.clone()), settings);
    }

    /// Says that a configured provider's models are this vendor's.
    pub fn is_vendor(&mut self, provider: &str, vendor: &str) {
        self.vendors.insert(provider.to_owned(), vendor.to_owned());
    }

    /// The vendor a provider's models are looked up under.
    pub fn vendor(&self, provider: &str) -> Option<&str> {
        self.vendors.get(provider).map(String::as_str)
    }

    /// The values in force for `model`. Total: of an undeclared model of no known vendor all of them are unknown. May
    /// read the refreshed table, the first time.
    pub fn lookup(&self, model: &ModelRef) -> ModelInfo {
        let declared = self
            .models
            .get(&(model.provider.clone(), model.model.clone()));
        let Some(vendor) = self.vendor(&model.provider) else {
            return ModelInfo::of(declared);
        };
        let refreshed = self
            .refreshed_table()
            .and_then(|table| table.find(vendor, &model.model));
        let built_in = built_in().find(vendor, &model.model);
        ModelInfo::merge(declared, refreshed.as_ref(), built_in.as_ref())
    }

    /// Does a table know the model under its provider's vendor?
    pub fn knows(&self, model: &ModelRef) -> bool {
        let Some(vendor) = self.vendor(&model.provider) else {
            return false;
        };
        let refreshed = self.refreshed_table();
        refreshed.is_some_and(|table| table.has(vendor, &model.model))
            || built_in().has(vendor, &model.model)
    }

    /// The refreshed table, if there is a good one.
    pub fn refreshed_table(&self) -> Option<Table<'_>> {
        match self.refreshed.as_ref()?.text() {
            Ok(Some(text)) => Some(Table::new(text)),
            _ => None,
        }
    }

    /// Why there is a refreshed table that cannot be used.
    pub fn problem(&self) -> Option<&str> {
        let read = self.refreshed.as_ref()?.text();
        read.as_ref().err().map(String::as_str)
    }

    /// Every declared model in order.
    pub fn models(&self) -> impl Iterator<Item = ModelRef> {
        self.models.keys().map(|(provider, model)| ModelRef {
            provider: provider.clone(),
            model: model.clone(),
        })
    }

    /// Every model the tables know of a provider's vendor, by name.
    pub fn known(&self, provider: &str) -> Vec<ModelRef> {
        let Some(vendor) = self.vendor(provider) else {
            return Vec::new();
        };
        let mut names: Vec<&str> = built_in().names(vendor).collect();
        let refreshed = self.refreshed_table();
        names.extend(refreshed.iter().flat_map(|table| table.names(vendor)));
        names.sort_unstable();
        names.dedup();
        let reference = |model: &str| ModelRef {
            provider: provider.to_owned(),
            model: model.to_owned(),
        };
        names.into_iter().map(reference).collect()
    }
}

#[cfg(test)]
mod tests;
