//! Reads a TOML file into [`RawConfig`]: every problem with its file, line and the nearest right key.

mod price;

use super::asks;
use super::raw::*;
use crate::exit::{CliError, CliResult, nearest};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use tenure_provider::Asks;
use tenure_provider::catalogue::Ability;
use toml_edit::{Document, Item, TableLike, Value};

const TOP: &[&str] = &[
    "default_model",
    "store",
    "store_password_file",
    "instructions",
    "max_steps",
    "max_cost",
    "max_tokens",
    "max_time",
    "auto_compaction",
    "max_parallel_tools",
    "lease",
    "node",
    "providers",
    "permissions",
];
const LEASE: &[&str] = &["renew_ms", "duration_ms", "margin_ms"];
const NODE: &[&str] = &[
    "name",
    "listen",
    "advertise",
    "labels",
    "roots",
    "host_label",
];
/// The protocol whose providers need no address.
const BEDROCK: &str = "bedrock-converse";
const PROVIDER: &[&str] = &[
    "protocol",
    "base_url",
    "dialect",
    "api_key_env",
    "api_key_file",
    "catalogue",
    "headers",
    "ca_file",
    "region",
    "profile",
    "access_key_id_env",
    "secret_access_key_env",
    "session_token_env",
    "first_byte_timeout_s",
    "idle_timeout_s",
    "models",
];
const MODEL: &[&str] = &[
    "context",
    "output",
    "price",
    "abilities",
    "effort",
    "hosted",
    "cache_time",
];

/// Parses `text`, which came from `path`.
///
/// # Errors
/// A usage error that lists every problem, each with `file:line`.
pub fn parse(path: &Path, text: &str) -> CliResult<RawConfig> {
    parse_as(path, text, true)
}

/// Parses the file of a project that is not trusted: what counts only with trust is named and not judged.
///
/// # Errors
/// As [`parse`].
pub fn parse_untrusted(path: &Path, text: &str) -> CliResult<RawConfig> {
    parse_as(path, text, false)
}

fn parse_as(path: &Path, text: &str, trusted: bool) -> CliResult<RawConfig> {
    let document = Document::parse(text).map_err(|e| {
        let line = e.span().map_or(1, |span| line_of(text, &span));
        CliError::usage(format!(
            "{}:{line}: this is not valid TOML: {}",
            path.display(),
            e.message().trim()
        ))
        .hint("`tenure config --example` prints a file to start from")
    })?;
    let mut walk = Walk {
        path,
        text,
        problems: Vec::new(),
        trusted,
    };
    let config = walk.top(document.as_table());
    if walk.problems.is_empty() {
        Ok(config)
    } else {
        Err(CliError::usage(walk.problems.join("\n")).hint("nothing was changed"))
    }
}

fn line_of(text: &str, span: &Range<usize>) -> usize {
    let end = span.start.min(text.len());
    text.as_bytes()[..end]
        .iter()
        .filter(|b| **b == b'\n')
        .count()
        + 1
}

struct Walk<'a> {
    path: &'a Path,
    text: &'a str,
    problems: Vec<String>,
    /// Everything counts; otherwise providers and lease times are only named.
    trusted: bool,
}

impl Walk<'_> {
    fn line(&self, span: Option<Range<usize>>) -> usize {
        span.map_or(1, |span| line_of(self.text, &span))
    }

    fn key_line(&self, table: &dyn TableLike, key: &str) -> usize {
        let span = table.key(key).and_then(toml_edit::Key::span);
        self.line(span.or_else(|| table.get(key).and_then(Item::span)))
    }

    fn problem(&mut self, line: usize, what: impl std::fmt::Display) {
        self.problems
            .push(format!("{}:{line}: {what}", self.path.display()));
    }

    fn check_keys(&mut self, table: &dyn TableLike, prefix: &str, known: &[&str]) {
        for (key, _) in table.iter() {
            if known.contains(&key) {
                continue;
            }
            let line = self.key_line(table, key);
            let advice = if prefix.starts_with("providers.") && key == "api_key" {
                "keys do not belong in this file: use `api_key_env` or `api_key_file`".to_owned()
            } else {
                match nearest(key, known.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("known keys here: {}", known.join(", ")),
                }
            };
            self.problem(line, format!("unknown key `{prefix}{key}`; {advice}"));
        }
    }

    fn top(&mut self, table: &dyn TableLike) -> RawConfig {
        self.check_keys(table, "", TOP);
        let before = self.problems.len();
        let (providers, lease) = (self.providers(table), self.lease(table));
        let node = self.node(table);
        let store_password_file = self.string(table, "", "store_password_file");
        if !self.trusted {
            self.problems.truncate(before);
        }
        RawConfig {
            default_model: self.string(table, "", "default_model"),
            store: self.string(table, "", "store"),
            instructions: self.string(table, "", "instructions"),
            max_steps: self.whole(table, "", "max_steps"),
            max_cost: self.amount(table, "max_cost", "an amount of dollars, for example 1.50"),
            max_tokens: self.amount(
                table,
                "max_tokens",
                "a number of tokens, for example 200000 or \"2M\"",
            ),
            max_time: self.amount(table, "max_time", "a time, for example \"15m\""),
            auto_compaction: self.scalar(table, "", "auto_compaction", "true or false", |v| {
                v.as_bool()
            }),
            max_parallel_tools: self.whole(table, "", "max_parallel_tools"),
            lease,
            store_password_file,
            node,
            providers,
            permissions: self.permissions(table),
        }
    }

    fn lease(&mut self, top: &dyn TableLike) -> RawLease {
        let Some(table) = self.table(top, "", "lease") else {
            return RawLease::default();
        };
        self.check_keys(table, "lease.", LEASE);
        RawLease {
            renew_ms: self.whole(table, "lease.", "renew_ms"),
            duration_ms: self.whole(table, "lease.", "duration_ms"),
            margin_ms: self.whole(table, "lease.", "margin_ms"),
        }
    }

    fn node(&mut self, top: &dyn TableLike) -> RawNode {
        let Some(table) = self.table(top, "", "node") else {
            return RawNode::default();
        };
        self.check_keys(table, "node.", NODE);
        RawNode {
            name: self.string(table, "node.", "name"),
            listen: self.string(table, "node.", "listen"),
            advertise: self.string(table, "node.", "advertise"),
            labels: self.strings(table, "node.", "labels"),
            roots: self.strings(table, "node.", "roots"),
            host_label: self.string(table, "node.", "host_label"),
        }
    }

    fn providers(&mut self, top: &dyn TableLike) -> BTreeMap<String, RawProvider> {
        let mut found = BTreeMap::new();
        let Some(table) = self.table(top, "", "providers") else {
            return found;
        };
        for (name, _) in table.iter() {
            let line = self.key_line(table, name);
            if name.is_empty() || name.contains('/') {
                self.problem(line, format!("a provider cannot be named `{name}`: the name must not be empty or hold `/`"));
                continue;
            }
            if let Some(provider) = self.table(table, "providers.", name) {
                let raw = self.provider(provider, &format!("providers.{name}."), line);
                found.insert(name.to_owned(), raw);
            }
        }
        found
    }

    fn provider(&mut self, table: &dyn TableLike, prefix: &str, line: usize) -> RawProvider {
        self.check_keys(table, prefix, PROVIDER);
        // Bedrock's address follows from its region.
        let addressed = table.get("protocol").and_then(Item::as_str) == Some(BEDROCK);
        for required in ["protocol", "base_url"] {
            if addressed && required == "base_url" {
                continue;
            }
            if table.get(required).is_none() {
                self.problem(line, format!("`{prefix}{required}` is missing"));
            }
        }
        let mut headers = BTreeMap::new();
        if let Some(given) = self.table(table, prefix, "headers") {
            for (name, _) in given.iter() {
                if let Some(value) = self.string(given, &format!("{prefix}headers."), name) {
                    headers.insert(name.to_owned(), value);
                }
            }
        }
        let mut models = BTreeMap::new();
        if let Some(given) = self.table(table, prefix, "models") {
            let prefix = format!("{prefix}models.");
            for (name, _) in given.iter() {
                let line = self.key_line(given, name);
                if let Some(model) = self.table(given, &prefix, name) {
                    models.insert(
                        name.to_owned(),
                        self.model(model, &format!("{prefix}{name}."), line),
                    );
                }
            }
        }
        RawProvider {
            line,
            protocol: self.string(table, prefix, "protocol"),
            base_url: self.string(table, prefix, "base_url"),
            dialect: self.string(table, prefix, "dialect"),
            api_key_env: self.string(table, prefix, "api_key_env"),
            api_key_file: self.string(table, prefix, "api_key_file"),
            catalogue: self.string(table, prefix, "catalogue"),
            headers,
            ca_file: self.string(table, prefix, "ca_file"),
            aws: RawAws {
                region: self.string(table, prefix, "region"),
                profile: self.string(table, prefix, "profile"),
                access_key_id_env: self.string(table, prefix, "access_key_id_env"),
                secret_access_key_env: self.string(table, prefix, "secret_access_key_env"),
                session_token_env: self.string(table, prefix, "session_token_env"),
            },
            first_byte_timeout_s: self.number(table, prefix, "first_byte_timeout_s"),
            idle_timeout_s: self.number(table, prefix, "idle_timeout_s"),
            models,
        }
    }

    fn model(&mut self, table: &dyn TableLike, prefix: &str, line: usize) -> RawModel {
        self.check_keys(table, prefix, MODEL);
        let price = self.price(table, prefix);
        let abilities = self.strings(table, prefix, "abilities");
        if let Some(At { value, line }) = &abilities {
            for word in value.iter().filter(|word| Ability::parse(word).is_none()) {
                let known = Ability::ALL.map(Ability::as_str).join(", ");
                self.problem(
                    *line,
                    format!("`{prefix}abilities` has no `{word}`; known are {known}"),
                );
            }
        }
        RawModel {
            line,
            context: self.whole(table, prefix, "context"),
            output: self.whole(table, prefix, "output"),
            price,
            abilities,
            asks: self.asks(table, prefix),
        }
    }

    fn asks(&mut self, table: &dyn TableLike, prefix: &str) -> Asks {
        let effort = self.scalar(table, prefix, "effort", "off, low, medium or high", |v| {
            asks::effort(v.as_str()?)
        });
        let tools = "an array of web_search and code_execution";
        let hosted = self.scalar(table, prefix, "hosted", tools, |v| {
            let words = v.as_array()?.iter();
            words.map(|v| asks::hosted(v.as_str()?)).collect()
        });
        let cache = self.scalar(table, prefix, "cache_time", "usual or 1h", |v| {
            asks::cache_time(v.as_str()?)
        });
        Asks {
            effort: effort.map(|at| at.value),
            hosted: hosted.map_or_else(Vec::new, |at| at.value),
            cache: cache.map_or_else(Default::default, |at| at.value),
        }
    }

    fn permissions(&mut self, top: &dyn TableLike) -> Vec<RawRule> {
        let mut rules = Vec::new();
        let Some(table) = self.table(top, "", "permissions") else {
            return rules;
        };
        for (tool, item) in table.iter() {
            match item.as_table_like() {
                Some(patterns) => {
                    let prefix = format!("permissions.{tool}.");
                    for (pattern, _) in patterns.iter() {
                        rules.extend(self.rule(patterns, &prefix, pattern, tool, Some(pattern)));
                    }
                }
                None => rules.extend(self.rule(table, "permissions.", tool, tool, None)),
            }
        }
        rules
    }

    fn rule(
        &mut self,
        table: &dyn TableLike,
        prefix: &str,
        key: &str,
        tool: &str,
        pattern: Option<&str>,
    ) -> Option<RawRule> {
        let At { value, line } = self.string(table, prefix, key)?;
        let words = [Decision::Allow, Decision::Ask, Decision::Deny];
        match words.into_iter().find(|d| d.as_str() == value) {
            Some(decision) => Some(RawRule {
                tool: tool.to_owned(),
                pattern: pattern.map(str::to_owned),
                decision,
                line,
            }),
            None => {
                self.problem(
                    line,
                    format!(
                        "`{prefix}{key}` is \"{value}\"; it must be \"allow\", \"ask\" or \"deny\""
                    ),
                );
                None
            }
        }
    }

    fn table<'t>(
        &mut self,
        table: &'t dyn TableLike,
        prefix: &str,
        key: &str,
    ) -> Option<&'t dyn TableLike> {
        let item = table.get(key)?;
        let found = item.as_table_like();
        if found.is_none() {
            let line = self.key_line(table, key);
            self.problem(
                line,
                format!("`{prefix}{key}` must be a table, not {}", kind(item)),
            );
        }
        found
    }

    /// A number or a text, as it was written: what it means is judged later.
    fn amount(&mut self, table: &dyn TableLike, key: &str, wanted: &str) -> Option<At<String>> {
        self.scalar(table, "", key, wanted, |v| match v {
            Value::String(text) => Some(text.value().clone()),
            Value::Integer(n) => Some(n.value().to_string()),
            Value::Float(n) => Some(n.value().to_string()),
            _ => None,
        })
    }

    fn string(&mut self, table: &dyn TableLike, prefix: &str, key: &str) -> Option<At<String>> {
        self.scalar(table, prefix, key, "a string", |v| {
            v.as_str().map(str::to_owned)
        })
    }

    fn strings(
        &mut self,
        table: &dyn TableLike,
        prefix: &str,
        key: &str,
    ) -> Option<At<Vec<String>>> {
        self.scalar(table, prefix, key, "an array of strings", |v| {
            let texts = v.as_array()?.iter().map(|v| v.as_str().map(str::to_owned));
            texts.collect()
        })
    }

    fn whole(&mut self, table: &dyn TableLike, prefix: &str, key: &str) -> Option<At<u64>> {
        self.scalar(table, prefix, key, "a whole number above zero", |v| {
            v.as_integer()
                .and_then(|n| u64::try_from(n).ok())
                .filter(|n| *n > 0)
        })
    }

    fn number(&mut self, table: &dyn TableLike, prefix: &str, key: &str) -> Option<At<f64>> {
        self.scalar(table, prefix, key, "a number, zero or more", |v| {
            v.as_float()
                .or_else(|| v.as_integer().map(|n| n as f64))
                .filter(|n| n.is_finite() && *n >= 0.0)
        })
    }

    fn scalar<T>(
        &mut self,
        table: &dyn TableLike,
        prefix: &str,
        key: &str,
        wanted: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Option<At<T>> {
        let item = table.get(key)?;
        let line = self.key_line(table, key);
        match item.as_value().and_then(read) {
            Some(value) => Some(At { value, line }),
            None => {
                self.problem(
                    line,
                    format!("`{prefix}{key}` must be {wanted}, not {}", kind(item)),
                );
                None
            }
        }
    }
}

fn kind(item: &Item) -> String {
    match item.as_value() {
        Some(Value::Integer(n)) => n.value().to_string(),
        Some(Value::Float(n)) => n.value().to_string(),
        Some(Value::Boolean(b)) => b.value().to_string(),
        _ => match item.type_name() {
            "array" | "integer" | "inline table" => format!("an {}", item.type_name()),
            other => format!("a {other}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> CliResult<RawConfig> {
        parse(Path::new("/c/tenure.toml"), text)
    }

    const CONTRACT: &str = r#"
default_model = "local/m1"
store = "sqlite:/var/lib/tenure/tenure.db"
[providers.local]
protocol = "openai-chat"
base_url = "http://127.0.0.1:8080/v1"
api_key_env = "LOCAL_API_KEY"
headers = { x-team = "blue" }
first_byte_timeout_s = 3.5
[providers.local.models.m1]
context = 200000
output = 32000
price = { input = 3, output = 15.0, cache_read = 0.3 }
[permissions]
bash = "allow"
[permissions.write]
"src/**" = "allow"
"*" = "ask"
"#;

    #[test]
    fn the_contract_file_reads_with_lines_and_order() {
        let config = read(CONTRACT).unwrap();
        assert_eq!(config.default_model.unwrap().line, 2);
        let local = &config.providers["local"];
        assert_eq!(
            (
                local.line,
                local.first_byte_timeout_s.as_ref().unwrap().value
            ),
            (4, 3.5)
        );
        let model = &local.models["m1"];
        assert_eq!(model.context.as_ref().unwrap().value, 200_000);
        assert_eq!(
            model
                .price
                .as_ref()
                .unwrap()
                .value
                .base
                .cache_read
                .unwrap()
                .to_string(),
            "0.3"
        );
        let rules: Vec<_> = config
            .permissions
            .iter()
            .map(|r| {
                (
                    r.tool.as_str(),
                    r.pattern.as_deref(),
                    r.decision.as_str(),
                    r.line,
                )
            })
            .collect();
        assert_eq!(
            rules,
            [
                ("bash", None, "allow", 15),
                ("write", Some("src/**"), "allow", 17),
                ("write", Some("*"), "ask", 18)
            ]
        );
    }

    #[test]
    fn an_unknown_key_names_file_line_and_the_nearest_key() {
        let error = read("default_model = \"a/b\"\ndefualt_model = \"c/d\"\n").unwrap_err();
        assert_eq!(error.kind.code(), 2);
        assert!(
            error.message.contains(
                "/c/tenure.toml:2: unknown key `defualt_model`; did you mean `default_model`?"
            ),
            "{error}"
        );
    }

    #[test]
    fn every_problem_is_reported_at_once() {
        let error = read(
            "max_steps = 0\n[providers.p]\nprotocl = \"x\"\nbase_url = 3\n[permissions]\nbash = \"maybe\"\n",
        )
        .unwrap_err();
        for expected in [
            ":1: `max_steps` must be a whole number above zero, not 0",
            ":3: unknown key `providers.p.protocl`; did you mean `protocol`?",
            ":2: `providers.p.protocol` is missing",
            ":4: `providers.p.base_url` must be a string, not 3",
            ":6: `permissions.bash` is \"maybe\"",
        ] {
            assert!(error.message.contains(expected), "{expected}\n{error}");
        }
    }

    #[test]
    fn a_key_in_the_file_is_refused_without_showing_it() {
        let error =
            read("[providers.p]\nprotocol = \"x\"\nbase_url = \"y\"\napi_key = \"sk-live-abc\"\n")
                .unwrap_err();
        assert!(error.message.contains("api_key_env"), "{error}");
        assert!(!error.to_string().contains("sk-live"), "{error}");
    }

    #[test]
    fn broken_toml_names_the_line() {
        let error = read("a = 1\nb = = 2\n").unwrap_err();
        assert!(
            error
                .message
                .starts_with("/c/tenure.toml:2: this is not valid TOML"),
            "{error}"
        );
    }
}
