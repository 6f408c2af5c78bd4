//! The format of models.dev's `api.json`: what a refresh downloads, made into a table's entries.
//!
//! The file is an object of providers by id; each has `models`, an object by model id with `limit` (`context`,
//! `output`), `cost` in dollars per million tokens (`input`, `output`, `reasoning`, `cache_read`, `cache_write`, and for
//! long prompts `tiers`, before that `context_over_200k`), booleans (`tool_call`, `reasoning`, `structured_output`) and
//! `modalities.input`. It grows new fields often, so unknown ones are passed over; what is read is checked, and a
//! model's price with a shape this version does not know is left out rather than guessed.

use super::abilities::{Abilities, Ability};
use super::table::{Entries, Entry};
use serde::Deserialize;
use std::collections::BTreeMap;
use tenure_core::price::{Price, Rate, Rates, Tier};

/// The public address.
pub const URL: &str = "https://models.dev/api.json";

/// No window or output is believed to be larger.
const MOST_TOKENS: f64 = 1e12;
/// The threshold of `context_over_200k`.
const LONG: u64 = 200_000;

/// Why a file is not in the format.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// Not JSON, or a part of it has another shape.
    #[error("it is not in the format of models.dev's api.json: {0}")]
    Shape(#[from] serde_json::Error),
    /// It has the shape, and nothing in it.
    #[error(
        "it is not in the format of models.dev's api.json: no provider in it has a model with limits"
    )]
    Empty,
}

/// What a file holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Read {
    /// What is known of each model.
    pub entries: Entries,
    /// Models whose price could not be understood; they are kept without one.
    pub unpriced: Vec<String>,
}

#[derive(Deserialize)]
struct Provider {
    models: BTreeMap<String, Model>,
}

#[derive(Deserialize)]
struct Model {
    #[serde(default)]
    limit: Limit,
    #[serde(default)]
    cost: Option<serde_json::Value>,
    #[serde(default)]
    tool_call: serde_json::Value,
    #[serde(default)]
    reasoning: bool,
    #[serde(default)]
    structured_output: Option<bool>,
    #[serde(default)]
    modalities: Modalities,
}

#[derive(Deserialize, Default)]
struct Limit {
    context: Option<f64>,
    output: Option<f64>,
}

#[derive(Deserialize, Default)]
struct Modalities {
    #[serde(default)]
    input: Vec<String>,
}

#[derive(Deserialize)]
struct Cost {
    #[serde(flatten)]
    base: Rated,
    #[serde(default)]
    tiers: Option<Vec<Tiered>>,
    #[serde(default)]
    context_over_200k: Option<Rated>,
}

#[derive(Deserialize)]
struct Rated {
    input: serde_json::Number,
    output: serde_json::Number,
    reasoning: Option<serde_json::Number>,
    cache_read: Option<serde_json::Number>,
    cache_write: Option<serde_json::Number>,
}

#[derive(Deserialize)]
struct Tiered {
    #[serde(flatten)]
    rates: Rated,
    tier: Threshold,
}

#[derive(Deserialize)]
struct Threshold {
    r#type: String,
    size: u64,
}

/// Reads an `api.json`.
///
/// # Errors
/// It has another shape, or nothing in it.
pub fn read(json: &[u8]) -> Result<Read, FormatError> {
    let providers: BTreeMap<String, Provider> = serde_json::from_slice(json)?;
    let mut out = Read::default();
    for (vendor, provider) in providers {
        let mut models = BTreeMap::new();
        for (name, model) in provider.models {
            let entry = entry(&model);
            if entry.price.is_none() && model.cost.is_some() {
                out.unpriced.push(format!("{vendor}/{name}"));
            }
            models.insert(name, entry);
        }
        out.entries.insert(vendor, models);
    }
    let known = |entry: &Entry| entry.context.is_some();
    if !out
        .entries
        .values()
        .any(|models| models.values().any(known))
    {
        return Err(FormatError::Empty);
    }
    Ok(out)
}

fn entry(model: &Model) -> Entry {
    let tools = match &model.tool_call {
        serde_json::Value::Object(granular) => granular.get("supported") == Some(&true.into()),
        other => other == &serde_json::Value::Bool(true),
    };
    let input = &model.modalities.input;
    let sees = |what: &str| input.iter().any(|m| m == what);
    let abilities = [
        (Ability::Tools, tools),
        (Ability::Reasoning, model.reasoning),
        (
            Ability::StructuredOutput,
            model.structured_output == Some(true),
        ),
        (Ability::Images, sees("image")),
        (Ability::Pdf, sees("pdf")),
        (Ability::Audio, sees("audio")),
    ];
    let mut abilities: Abilities = abilities
        .into_iter()
        .filter_map(|(ability, there)| there.then_some(ability))
        .collect();
    // A list of what a model takes says what it does not take. Documents are taken as pictures where those are seen.
    if !input.is_empty() && !sees("image") {
        abilities = abilities.without(Ability::Images);
        if !sees("pdf") {
            abilities = abilities.without(Ability::Pdf);
        }
    }
    Entry {
        context: tokens(model.limit.context),
        output: tokens(model.limit.output),
        abilities,
        price: model.cost.as_ref().and_then(price),
    }
}

/// Zero stands for unknown there.
fn tokens(count: Option<f64>) -> Option<u64> {
    count
        .filter(|n| n.is_finite() && *n >= 1.0 && *n <= MOST_TOKENS)
        .map(|n| n as u64)
}

fn price(cost: &serde_json::Value) -> Option<Price> {
    let cost: Cost = serde_json::from_value(cost.clone()).ok()?;
    let mut tiers = match (cost.tiers, cost.context_over_200k) {
        (Some(tiers), _) => tiers
            .into_iter()
            .map(|tiered| {
                (tiered.tier.r#type == "context").then_some(())?;
                Some(Tier {
                    above: tiered.tier.size,
                    rates: rates(&tiered.rates)?,
                })
            })
            .collect::<Option<Vec<_>>>()?,
        (None, Some(long)) => vec![Tier {
            above: LONG,
            rates: rates(&long)?,
        }],
        (None, None) => Vec::new(),
    };
    tiers.sort_by_key(|tier| tier.above);
    Some(Price {
        base: rates(&cost.base)?,
        tiers,
        search: None,
    })
}

fn rates(rated: &Rated) -> Option<Rates> {
    let rate = |number: &serde_json::Number| Rate::per_million(&number.to_string()).ok();
    // The inner `None`: there is one, and it is no price.
    let other = |number: &Option<serde_json::Number>| match number {
        None => Some(None),
        Some(number) => rate(number).map(Some),
    };
    Some(Rates {
        input: rate(&rated.input)?,
        output: rate(&rated.output)?,
        reasoning: other(&rated.reasoning)?,
        cache_read: other(&rated.cache_read)?,
        cache_write: other(&rated.cache_write)?,
        cache_write_long: None,
    })
}
