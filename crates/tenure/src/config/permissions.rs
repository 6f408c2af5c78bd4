//! The permission rules of one layer, as the permission crate's own table.

use super::origin::Setting;
use super::raw::RawRule;
use serde_json::{Map, Value};

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
