//! The permission rules of one layer, as the permission crate's own table.

use super::origin::Setting;
use super::raw::{Decision, RawRule};
use super::resolve::Config;
use crate::exit::{CliError, CliResult, nearest};
use crate::render::escape::safe_line;
use serde_json::{Map, Value};
use tenure_tools::ToolSet;
use tenure_tools::permission::{PermissionConfig, Rules};

/// The rules a new session starts with. With `--allow-all` nothing is asked for, but what is denied stays so.
///
/// # Errors
/// A usage error with the place of a pattern that the tools do not understand.
pub fn rules(config: &Config) -> CliResult<Rules> {
    let rules = if config.allow_all {
        let denied = config
            .permissions
            .iter()
            .filter(|r| r.value.decision == Decision::Deny);
        Rules::allow_all().narrowed_by(&checked(denied)?).0
    } else {
        Rules::from_config(&checked(&config.permissions)?)
    };
    // Under --allow-all a project's *ask* has nobody to ask; its *deny* still holds.
    let narrowing = config
        .narrowing
        .iter()
        .filter(|r| !config.allow_all || r.value.decision == Decision::Deny);
    Ok(rules.narrowed_by(&checked(narrowing)?).0)
}

/// A rule for a tool that does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmatched {
    /// It was meant to forbid or to ask: what it names is not held back.
    pub narrows: bool,
    /// What to tell the user, with the rule's place and the nearest tool.
    pub words: String,
}

/// Rules that never apply, since no tool has their name: one for each name and place.
pub fn unmatched(config: &Config) -> Vec<Unmatched> {
    let tools = ToolSet::builtin();
    let known: Vec<&str> = tools.names().chain(["outside", "*"]).collect();
    let rules = config.permissions.iter().chain(&config.narrowing);
    let mut found: Vec<Unmatched> = Vec::new();
    for rule in rules.filter(|rule| !known.contains(&rule.value.tool.as_str())) {
        let tool = safe_line(&rule.value.tool);
        let advice = match nearest(&rule.value.tool, &known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("tools: {}", known.join(", ")),
        };
        let narrows = rule.value.decision != Decision::Allow;
        found.push(Unmatched {
            narrows,
            words: format!(
                "{}: there is no tool `{tool}`, so this rule never applies; {advice}",
                rule.origin
            ),
        });
    }
    found
}

/// Each rule by itself first, so that an error knows its place.
fn checked<'a>(
    rules: impl IntoIterator<Item = &'a Setting<RawRule>> + Clone,
) -> CliResult<PermissionConfig> {
    let read = |value: Value| serde_json::from_value::<PermissionConfig>(value);
    for rule in rules.clone() {
        read(table([rule])).map_err(|e| {
            CliError::usage(format!("{}: {e}", rule.origin)).hint("correct the rule in the file")
        })?;
    }
    read(table(rules)).map_err(|e| CliError::usage(format!("the permissions cannot be used: {e}")))
}

/// The rules as the `[permissions]` table they stand for: `{tool: {pattern: mode}}`, `outside` as a bare mode.
pub fn table<'a>(rules: impl IntoIterator<Item = &'a Setting<RawRule>>) -> Value {
    let mut tools = Map::new();
    for rule in rules {
        let RawRule {
            tool,
            pattern,
            decision,
            ..
        } = &rule.value;
        let mode = Value::from(decision.as_str());
        match pattern {
            None if tool == "outside" => {
                tools.insert(tool.clone(), mode);
            }
            pattern => {
                let patterns = tools
                    .entry(tool.clone())
                    .or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(patterns) = patterns {
                    let pattern = pattern.clone().unwrap_or_else(|| "*".to_owned());
                    patterns.insert(pattern, mode);
                }
            }
        }
    }
    Value::Object(tools)
}

#[cfg(test)]
mod tests {
    use super::super::origin::Origin;
    use super::super::raw::Decision;
    use super::*;

    #[test]
    fn a_bare_mode_is_the_pattern_for_everything() {
        let rule = |tool: &str, pattern: Option<&str>, decision| {
            Setting::new(
                RawRule {
                    tool: tool.into(),
                    pattern: pattern.map(str::to_owned),
                    decision,
                    line: 1,
                },
                Origin::Default,
            )
        };
        let rules = [
            rule("bash", None, Decision::Ask),
            rule("bash", Some("git status"), Decision::Allow),
            rule("outside", None, Decision::Deny),
        ];
        assert_eq!(
            table(&rules),
            serde_json::json!({"bash": {"*": "ask", "git status": "allow"}, "outside": "deny"})
        );
    }
}
