//! Writes the built-in table of models from the price file of the PyPI package `litellm`: `cargo xtask models` runs it.
//!
//! Arguments: the file, the package's version, the day it was taken. The table goes to standard output.

use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::error::Error;
use tenure_core::price::{Price, Rate, Rates, Tier};
use tenure_provider::catalogue::table::{Entries, Entry, Head, write};
use tenure_provider::catalogue::{Abilities, Ability};

/// The package's word for a vendor, the prefix its model names have there, and our word.
const VENDORS: [(&str, &str, &str); 9] = [
    ("anthropic", "", "anthropic"),
    ("openai", "", "openai"),
    ("gemini", "gemini/", "google"),
    ("bedrock", "", "amazon-bedrock"),
    ("bedrock_converse", "", "amazon-bedrock"),
    ("mistral", "mistral/", "mistral"),
    ("deepseek", "deepseek/", "deepseek"),
    ("xai", "xai/", "xai"),
    ("groq", "groq/", "groq"),
];
const TOGETHER: (&str, &str, &str) = ("together_ai", "together_ai/", "togetherai");

/// The package's flags of abilities.
const ABILITIES: [(&str, Ability); 6] = [
    ("supports_function_calling", Ability::Tools),
    ("supports_reasoning", Ability::Reasoning),
    ("supports_response_schema", Ability::StructuredOutput),
    ("supports_vision", Ability::Images),
    ("supports_pdf_input", Ability::Pdf),
    ("supports_audio_input", Ability::Audio),
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(file), Some(version), Some(date)) = (args.next(), args.next(), args.next()) else {
        return Err("usage: built_in_models FILE VERSION DATE".into());
    };
    let models: BTreeMap<String, Value> = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    let mut entries = Entries::new();
    for (name, model) in &models {
        if let Some(model) = model.as_object()
            && let Some((vendor, name)) = placed(name, model)
        {
            let entry = entry(model)?;
            // What speaks, draws or only judges is no model for an agent.
            if entry.context.is_some_and(|n| n >= 8_192) && entry.abilities.iter().next().is_some()
            {
                entries
                    .entry(vendor.to_owned())
                    .or_default()
                    .insert(name, entry);
            }
        }
    }
    let head = Head {
        source: format!(
            "PyPI package litellm {version}, model_prices_and_context_window_backup.json (MIT licence)"
        ),
        date,
    };
    let note = "Written by `cargo xtask models`. Every figure is the package's; do not edit.";
    print!("{}", write(&head, &[note], &entries));
    Ok(())
}

/// Under which vendor and name a model belongs into the table, if it does: one that chats, with a price and a window.
fn placed(name: &str, model: &Map<String, Value>) -> Option<(&'static str, String)> {
    let text = |key: &str| model.get(key).and_then(Value::as_str);
    if !matches!(text("mode"), Some("chat" | "responses")) {
        return None;
    }
    let provider = text("litellm_provider")?;
    let mut vendors = VENDORS.iter().chain([&TOGETHER]);
    let (_, prefix, vendor) = vendors.find(|(word, _, _)| *word == provider)?;
    // Some names stand there with and without their prefix: those with it are what the vendor's own API takes.
    let name = match name.strip_prefix(prefix) {
        Some(name) => name,
        None if *vendor == "deepseek" => name,
        None => return None,
    };
    let priced =
        model.contains_key("input_cost_per_token") && model.contains_key("output_cost_per_token");
    let sized = model.get("max_input_tokens").is_some_and(Value::is_u64);
    // Prices of a region or of a fine-tuned copy are under names that no request bears.
    let odd = name.starts_with("bedrock/")
        || name.starts_with("ft:")
        || name.contains(char::is_whitespace);
    (priced && sized && !odd).then(|| (*vendor, name.to_owned()))
}

fn entry(model: &Map<String, Value>) -> Result<Entry, Box<dyn Error>> {
    let tokens = |key: &str| model.get(key).and_then(Value::as_u64).filter(|n| *n > 0);
    let abilities = ABILITIES
        .into_iter()
        .fold(Abilities::default(), |known, (flag, ability)| {
            match model.get(flag) {
                Some(Value::Bool(true)) => known.with(ability),
                // Only what is said counts: most flags are left out where nobody has looked.
                Some(Value::Bool(false)) => known.without(ability),
                _ => known,
            }
        });
    let mut tiers = Vec::new();
    for key in model.keys() {
        let Some(size) = key
            .strip_prefix("input_cost_per_token_above_")
            .and_then(|rest| rest.strip_suffix("k_tokens"))
        else {
            continue;
        };
        tiers.push(Tier {
            above: size.parse::<u64>()? * 1_000,
            rates: rates(model, &format!("_above_{size}k_tokens"))?,
        });
    }
    tiers.sort_by_key(|tier| tier.above);
    Ok(Entry {
        context: tokens("max_input_tokens"),
        output: tokens("max_output_tokens"),
        abilities,
        price: Some(Price {
            base: rates(model, "")?,
            tiers,
            search: search(model)?,
        }),
    })
}

/// What a web search costs where the vendor counts them in its usage, and the price does not depend on what was asked.
/// Elsewhere the figure is of no use: nobody says how many there were, or how many of them were free.
fn search(model: &Map<String, Value>) -> Result<Option<Rate>, Box<dyn Error>> {
    let counts = model.get("litellm_provider") == Some(&Value::String("anthropic".to_owned()));
    let sizes = model
        .get("search_context_cost_per_query")
        .and_then(Value::as_object);
    let Some(sizes) = sizes.filter(|_| counts) else {
        return Ok(None);
    };
    let mut fees: Vec<String> = sizes.values().map(Value::to_string).collect();
    fees.dedup();
    match fees.as_slice() {
        // A rate is of one thing, whatever is counted.
        [fee] => Ok(Some(Rate::per_token(fee)?)),
        _ => Ok(None),
    }
}

/// The prices with this suffix; one that a tier does not name is the base's.
fn rates(model: &Map<String, Value>, suffix: &str) -> Result<Rates, Box<dyn Error>> {
    let rate = |key: &str| {
        let value = model
            .get(&format!("{key}{suffix}"))
            .or_else(|| model.get(key));
        match value {
            Some(Value::Number(number)) => Rate::per_token(&number.to_string()).map(Some),
            _ => Ok(None),
        }
    };
    let needed = |key: &str| rate(key).map(Option::unwrap_or_default);
    // Zero stands there where writing costs what input costs.
    let write = |key: &str| rate(key).map(|found| found.filter(|rate| *rate != Rate::FREE));
    Ok(Rates {
        input: needed("input_cost_per_token")?,
        output: needed("output_cost_per_token")?,
        reasoning: rate("output_cost_per_reasoning_token")?,
        cache_read: rate("cache_read_input_token_cost")?,
        cache_write: write("cache_creation_input_token_cost")?,
        cache_write_long: write("cache_creation_input_token_cost_above_1hr")?,
    })
}
