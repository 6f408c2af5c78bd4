//! `tenure models`: the configured models.

use super::{Context, open, print};
use crate::args::{Global, JsonOnly};
use crate::config::show::model_words;
use crate::exit::{CliError, CliResult};
use serde_json::json;

/// Lists them.
pub fn run(cx: &Context, global: &Global, args: &JsonOnly) -> CliResult {
    let config = open(cx, global)?;
    if config.providers.is_empty() {
        return Err(CliError::usage("no provider is configured").hint(format!(
            "`tenure config --example` prints a file for {}",
            config.folders.config.join("tenure.toml").display()
        )));
    }
    let chosen = config.default_model.as_ref().map(|m| m.value.as_str());
    let mut out = String::new();
    for (name, provider) in &config.providers {
        let protocol = provider.protocol.value.as_str();
        for (model, settings) in &provider.models {
            let full = format!("{name}/{model}");
            let settings = &settings.value;
            if args.json {
                let price = settings.price;
                let line = json!({"v": 1, "model": full, "protocol": protocol, "context": settings.context,
                    "output": settings.output, "price": price, "default": chosen == Some(&full)});
                out.push_str(&format!("{line}\n"));
            } else {
                let mark = if chosen == Some(&full) { "*" } else { " " };
                out.push_str(&format!(
                    "{mark} {full}  {protocol}, {}\n",
                    model_words(settings)
                ));
            }
        }
        if provider.models.is_empty() && !args.json {
            out.push_str(&format!(
                "  {name}/…  {protocol}, no model declared: any name is sent as it is\n"
            ));
        }
    }
    print(&out)
}
