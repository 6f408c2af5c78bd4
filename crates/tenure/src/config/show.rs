//! Prints the configuration in force, value by value, with the place each comes from. No secret is shown.

use super::origin::{Origin, Setting};
use super::resolve::{AwsConfig, Config, KeySource, ProviderConfig};
use crate::environment::Environment;
use serde_json::json;
use std::fmt::Write;
use std::time::Duration;
use tenure_core::price::{Price, Rates};
use tenure_provider::{CacheTime, ModelSettings};

/// One line of the listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The key, as the file writes it.
    pub key: String,
    /// The value for people.
    pub value: String,
    /// Where it comes from.
    pub origin: String,
}

/// A file to start from.
pub const EXAMPLE: &str = r#"# tenure.toml

default_model = "local/m1"

# store = "sqlite:~/.local/share/tenure/tenure.db"
# or, for several machines: store = "postgres://tenure@db.example/tenure"
# store_password_file = "~/.config/tenure/store.password"    # mode 0600; or PGPASSWORD, or ~/.pgpass

[providers.local]
protocol = "openai-chat"            # or "openai-responses", "anthropic-messages", "gemini"
base_url = "http://127.0.0.1:8080/v1"
# dialect = "vllm"                  # for a server of your own: vllm, sglang, llama.cpp, ollama, lm-studio, …
api_key_env = "LOCAL_API_KEY"       # or: api_key_file = "~/.config/tenure/local.key" (mode 0600)

[providers.local.models.m1]
context = 200000
output = 32000
# price = { input = 3.0, output = 15.0, cache_read = 0.3, cache_write = 3.75 }   # US dollars per million tokens

[permissions]
# bash = "allow"
# or by pattern:
# [permissions.bash]
# "git status" = "allow"
# "*" = "ask"
"#;

/// The file with the store's password; none where no store has one.
fn password_file(config: &Config) -> Option<(String, Origin)> {
    let Some(file) = config.store_password.file() else {
        let clustered = config.store.value.path().is_none();
        return clustered.then(|| ("(none)".to_owned(), Origin::Default));
    };
    let state = if file.value.exists() {
        "there"
    } else {
        "missing"
    };
    let words = format!("{} ({state})", file.value.display());
    Some((words, file.origin.clone()))
}

/// Every value in force.
pub fn lines(config: &Config, env: &Environment) -> Vec<Line> {
    let mut out = Vec::new();
    let mut add = |key: &str, value: String, origin: &Origin| {
        out.push(Line {
            key: key.to_owned(),
            value,
            origin: origin.to_string(),
        });
    };
    match &config.default_model {
        Some(model) => add("default_model", model.value.to_string(), &model.origin),
        None => add("default_model", "(none)".into(), &Origin::Default),
    }
    add(
        "store",
        config.store.value.to_string(),
        &config.store.origin,
    );
    if let Some((words, origin)) = password_file(config) {
        add("store_password_file", words, &origin);
    }
    for (key, value, origin) in config.node.lines() {
        add(key, value, &origin);
    }
    add(
        "max_steps",
        config.max_steps.value.to_string(),
        &config.max_steps.origin,
    );
    let none = || "none".to_owned();
    let cost = config.max_cost.value.map_or_else(none, |n| n.to_string());
    add("max_cost", cost, &config.max_cost.origin);
    let tokens = config
        .max_tokens
        .value
        .map_or_else(none, |n| n.0.to_string());
    add("max_tokens", tokens, &config.max_tokens.origin);
    let time = config.max_time.value.map_or_else(none, |n| n.to_string());
    add("max_time", time, &config.max_time.origin);
    let parallel = &config.max_parallel_tools;
    add(
        "max_parallel_tools",
        parallel.value.to_string(),
        &parallel.origin,
    );
    let compaction = &config.auto_compaction;
    add(
        "auto_compaction",
        compaction.value.to_string(),
        &compaction.origin,
    );
    for (key, time) in [
        ("lease.renew_ms", &config.lease_renew),
        ("lease.duration_ms", &config.lease_duration),
        ("lease.margin_ms", &config.lease_margin),
    ] {
        add(key, time.value.as_millis().to_string(), &time.origin);
    }
    if config.instructions.is_empty() {
        add("instructions", "(none)".into(), &Origin::Default);
    }
    for words in &config.instructions {
        add("instructions", first_line(&words.value), &words.origin);
    }
    for (name, provider) in &config.providers {
        provider_lines(name, provider, env, &mut add);
    }
    if config.allow_all {
        add(
            "permissions",
            "ask counts as allow".into(),
            &Origin::Flag("--allow-all"),
        );
    }
    for (rules, note) in [
        (&config.permissions, ""),
        (&config.narrowing, " (narrows only)"),
    ] {
        for rule in rules {
            let pattern = rule
                .value
                .pattern
                .as_ref()
                .map_or(String::new(), |p| format!(".\"{p}\""));
            let key = format!("permissions.{}{pattern}", rule.value.tool);
            add(
                &key,
                format!("{}{note}", rule.value.decision.as_str()),
                &rule.origin,
            );
        }
    }
    out
}

fn aws_lines(
    key: &dyn Fn(&str) -> String,
    aws: &AwsConfig,
    env: &Environment,
    add: &mut impl FnMut(&str, String, &Origin),
) {
    for (part, value) in [("region", &aws.region), ("profile", &aws.profile)] {
        if let Some(value) = value {
            add(&key(part), value.value.clone(), &value.origin);
        }
    }
    let Some(keys) = &aws.keys else { return };
    let mut var = |part: &str, name: &str| {
        let state = if env.var(name).is_some() {
            "set"
        } else {
            "not set"
        };
        add(&key(part), format!("{name} ({state})"), &keys.origin);
    };
    var("access_key_id_env", &keys.value.id);
    var("secret_access_key_env", &keys.value.secret);
    if let Some(token) = &keys.value.token {
        var("session_token_env", token);
    }
}

fn provider_lines(
    name: &str,
    provider: &ProviderConfig,
    env: &Environment,
    add: &mut impl FnMut(&str, String, &Origin),
) {
    let key = |part: &str| format!("providers.{name}.{part}");
    add(
        &key("protocol"),
        provider.protocol.value.as_str().into(),
        &provider.protocol.origin,
    );
    let regional = provider.base_url.value.is_empty();
    let base_url = if regional {
        "(the region's own)".to_owned()
    } else {
        without_password(&provider.base_url.value)
    };
    add(&key("base_url"), base_url, &provider.base_url.origin);
    aws_lines(&key, &provider.aws, env, add);
    if let Some(dialect) = &provider.dialect {
        add(
            &key("dialect"),
            dialect.value.as_str().into(),
            &dialect.origin,
        );
    }
    match &provider.key {
        Some(Setting {
            value: KeySource::Env(var),
            origin,
        }) => {
            let state = if env.var(var).is_some() {
                "set"
            } else {
                "not set"
            };
            add(&key("api_key_env"), format!("{var} ({state})"), origin);
        }
        Some(Setting {
            value: KeySource::File(path),
            origin,
        }) => {
            let state = if path.exists() { "there" } else { "missing" };
            add(
                &key("api_key_file"),
                format!("{} ({state})", path.display()),
                origin,
            );
        }
        None => {}
    }
    if let Some(vendor) = &provider.catalogue {
        add(&key("catalogue"), vendor.value.clone(), &vendor.origin);
    }
    for (header, value) in &provider.headers {
        add(
            &key(&format!("headers.{header}")),
            "(not shown)".into(),
            &value.origin,
        );
    }
    if let Some(file) = &provider.ca_file {
        add(
            &key("ca_file"),
            file.value.display().to_string(),
            &file.origin,
        );
    }
    let times = [
        ("first_byte_timeout_s", &provider.first_byte_timeout),
        ("idle_timeout_s", &provider.idle_timeout),
    ];
    for (part, time) in times {
        if let Some(time) = time {
            add(&key(part), seconds(time.value), &time.origin);
        }
    }
    for (model, settings) in &provider.models {
        add(
            &key(&format!("models.{model}")),
            model_words(&settings.value),
            &settings.origin,
        );
    }
}

/// What is declared of a model, in words.
pub fn model_words(model: &ModelSettings) -> String {
    let mut words = Vec::new();
    match model.context {
        Some(tokens) => words.push(format!("context {tokens}")),
        None => words.push("context unknown".into()),
    }
    if let Some(tokens) = model.output {
        words.push(format!("output {tokens}"));
    }
    match &model.price {
        Some(price) => words.push(price_words(price)),
        None => words.push("price unknown".into()),
    }
    if let Some(abilities) = model.abilities {
        words.push(format!("abilities {abilities}"));
    }
    if let Some(effort) = model.asks.effort {
        words.push(format!("effort {}", effort.as_str()));
    }
    for tool in &model.asks.hosted {
        words.push(format!("hosted {}", tool.as_str()));
    }
    if model.asks.cache == CacheTime::Hour {
        words.push("cached for 1h".into());
    }
    words.join(", ")
}

/// A price in words: dollars per million tokens.
pub fn price_words(price: &Price) -> String {
    let mut text = format!("price {}/{}", price.base.input, price.base.output);
    let parts = [
        ("reasoning", price.base.reasoning),
        ("cache read", price.base.cache_read),
        ("cache write", price.base.cache_write),
        ("cache write 1h", price.base.cache_write_long),
    ];
    for (what, rate) in parts {
        if let Some(rate) = rate {
            let _ = write!(text, ", {what} {rate}");
        }
    }
    for tier in &price.tiers {
        let Rates { input, output, .. } = &tier.rates;
        let _ = write!(text, ", above {} tokens {input}/{output}", tier.above);
    }
    text
}

fn seconds(time: Duration) -> String {
    format!("{}", time.as_secs_f64())
}

fn first_line(text: &str) -> String {
    let mut lines = text.trim().lines();
    let first: String = lines.next().unwrap_or("").chars().take(60).collect();
    if lines.next().is_some() {
        format!("{first} …")
    } else {
        first
    }
}

/// A URL without the user and password in it, and without its query, where keys hide.
pub fn without_password(url: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let (scheme, rest) = url[..end].split_once("://").unwrap_or(("", &url[..end]));
    let host_end = rest.find('/').unwrap_or(rest.len());
    let host_start = rest[..host_end].rfind('@').map_or(0, |at| at + 1);
    format!("{scheme}://{}", &rest[host_start..])
}

/// The listing as a table.
pub fn text(lines: &[Line]) -> String {
    let width = |get: fn(&Line) -> &str| {
        lines
            .iter()
            .map(|l| get(l).chars().count())
            .max()
            .unwrap_or(0)
    };
    let (keys, values) = (width(|l| &l.key), width(|l| &l.value).min(60));
    lines.iter().fold(String::new(), |mut out, line| {
        let _ = writeln!(
            out,
            "{:keys$}  {:values$}  {}",
            line.key, line.value, line.origin
        );
        out
    })
}

/// The listing as JSON.
pub fn json(lines: &[Line]) -> serde_json::Value {
    let lines: Vec<_> = lines
        .iter()
        .map(|l| json!({"key": l.key, "value": l.value, "from": l.origin}))
        .collect();
    json!({"v": 1, "kind": "config", "settings": lines})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_urls_are_not_shown() {
        assert_eq!(
            without_password("https://me:pw@host:1/v1?key=x"),
            "https://host:1/v1"
        );
        assert_eq!(without_password("http://host"), "http://host");
    }

    #[test]
    fn the_example_is_valid_itself() {
        let parsed = super::super::read::parse(std::path::Path::new("example"), EXAMPLE).unwrap();
        assert_eq!(parsed.default_model.unwrap().value, "local/m1");
    }
}
