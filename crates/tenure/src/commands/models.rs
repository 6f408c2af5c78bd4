//! `tenure models`: what is known of each model and from where, and refreshing the table of models.

mod refresh;

use super::{Context, notice, open, print};
use crate::args::{Global, ModelsArgs};
use crate::config::Config;
use crate::config::show::price_words;
use crate::exit::{CliError, CliResult};
use crate::providers::{catalogue, refreshed};
use crate::render::escape::safe_line;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tenure_core::ModelRef;
use tenure_core::price::{Price, Rate, Rates};
use tenure_provider::catalogue::{built_in, models_dev};
use tenure_provider::{Catalogue, ModelInfo, Origin};

/// Lists them, or refreshes the table first.
pub async fn run(cx: &Context, global: &Global, args: &ModelsArgs) -> CliResult {
    let config = open(cx, global)?;
    if let Some(url) = &args.refresh {
        let url = url.as_deref().unwrap_or(models_dev::URL);
        return refresh::run(&refreshed(&config), url, args.json).await;
    }
    list(&config, args)
}

fn list(config: &Config, args: &ModelsArgs) -> CliResult {
    if config.providers.is_empty() {
        return Err(CliError::usage("no provider is configured").hint(format!(
            "`tenure config --example` prints a file for {}",
            config.folders.config.join("tenure.toml").display()
        )));
    }
    let catalogue = catalogue(config);
    if let Some(problem) = catalogue.problem() {
        notice(problem);
    }
    let chosen = config.default_model.as_ref().map(|m| m.value.as_str());
    let mut out = String::new();
    for (name, provider) in &config.providers {
        let protocol = provider.protocol.value.as_str();
        let known = catalogue.known(name);
        let mut names: BTreeSet<String> = provider.models.keys().cloned().collect();
        let mine = chosen
            .and_then(ModelRef::parse)
            .filter(|m| &m.provider == name);
        names.extend(mine.map(|m| m.model));
        if args.all {
            names.extend(known.iter().map(|m| m.model.clone()));
        }
        for model in &names {
            let model = ModelRef {
                provider: name.clone(),
                model: model.clone(),
            };
            let info = catalogue.lookup(&model);
            let is_default = chosen == Some(&model.to_string());
            if args.json {
                let vendor = catalogue.vendor(name);
                out.push_str(&format!(
                    "{}\n",
                    line(&model, protocol, vendor, is_default, &info)
                ));
            } else {
                let mark = if is_default { "*" } else { " " };
                let facts = words(&info);
                out.push_str(&format!(
                    "{mark} {}  {protocol}, {facts}\n",
                    safe_line(&model.to_string())
                ));
            }
        }
        if !args.json {
            out.push_str(&others(name, protocol, names.len(), known.len(), args.all));
        }
    }
    let tables = config.providers.values().any(|p| p.catalogue.is_some());
    if tables && !args.json {
        out.push_str(&sources(&catalogue));
    }
    print(&out)
}

/// What is to be said of a provider's models that are not listed.
fn others(name: &str, protocol: &str, listed: usize, known: usize, all: bool) -> String {
    match (listed, known) {
        (0, 0) => format!("  {name}/…  {protocol}, no model declared: any name is sent as it is\n"),
        (_, known) if known > 0 && !all => {
            format!("  {name}/…  {protocol}, {known} models are known: `tenure models --all`\n")
        }
        _ => String::new(),
    }
}

/// Where the tables' figures come from.
fn sources(catalogue: &Catalogue) -> String {
    let tables = [
        ("refreshed", catalogue.refreshed_table()),
        ("built-in", Some(built_in())),
    ];
    let heads = tables.into_iter().filter_map(|(word, table)| {
        let head = table?.head().ok()?;
        Some(format!(
            "{word}: {}, {}\n",
            safe_line(&head.source),
            safe_line(&head.date)
        ))
    });
    heads.collect()
}

/// The values with their origins, one after the other.
fn words(info: &ModelInfo) -> String {
    let from = |origin: Origin| format!(" ({})", origin.as_str());
    let tokens = |what: &str, count: Option<u64>, origin: Origin| match count {
        Some(count) => format!("{what} {count}{}", from(origin)),
        None => format!("{what} unknown"),
    };
    let mut words = vec![tokens("context", info.limits.context, info.origins.context)];
    if info.limits.output.is_some() {
        words.push(tokens("output", info.limits.output, info.origins.output));
    }
    words.push(match &info.price {
        Some(price) => format!("{}{}", price_words(price), from(info.origins.price)),
        None => "price unknown".to_owned(),
    });
    if let Some(abilities) = info.abilities.filter(|a| a.iter().next().is_some()) {
        words.push(format!("{abilities}{}", from(info.origins.abilities)));
    }
    words.join(", ")
}

fn line(
    model: &ModelRef,
    protocol: &str,
    vendor: Option<&str>,
    is_default: bool,
    info: &ModelInfo,
) -> Value {
    let abilities = info
        .abilities
        .map(|set| set.iter().map(|a| a.as_str()).collect::<Vec<_>>());
    json!({
        "v": 1, "kind": "model",
        "model": model.to_string(), "protocol": protocol, "catalogue": vendor, "default": is_default,
        "context": info.limits.context, "output": info.limits.output,
        "price": info.price.as_ref().map(price), "abilities": abilities,
        "from": {
            "context": info.origins.context.as_str(), "output": info.origins.output.as_str(),
            "price": info.origins.price.as_str(), "abilities": info.origins.abilities.as_str(),
        },
    })
}

/// Prices in dollars per million tokens.
fn price(price: &Price) -> Value {
    let mut value = rates(&price.base);
    if !price.tiers.is_empty() {
        let tiers = price.tiers.iter().map(|tier| {
            let mut value = rates(&tier.rates);
            value["above"] = json!(tier.above);
            value
        });
        value["tiers"] = tiers.collect();
    }
    if let Some(fee) = price.search {
        // Dollars for each; the rates above are for a million tokens.
        value["web_search"] = json!(fee.pico() as f64 / 1e12);
    }
    value
}

fn rates(rates: &Rates) -> Value {
    // A rate has at most six digits behind the point: a double shows each of them.
    let number = |rate: Rate| json!(rate.pico() as f64 / 1e6);
    let mut value = json!({"input": number(rates.input), "output": number(rates.output)});
    let others = [
        ("reasoning", rates.reasoning),
        ("cache_read", rates.cache_read),
        ("cache_write", rates.cache_write),
        ("cache_write_1h", rates.cache_write_long),
    ];
    for (key, rate) in others {
        if let Some(rate) = rate {
            value[key] = number(rate);
        }
    }
    value
}
