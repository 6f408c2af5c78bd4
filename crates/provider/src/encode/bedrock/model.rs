//! What a model behind Converse takes, as far as its name tells: the API is one, its models differ.
//!
//! From AWS's user guide and the refusals people report, read in November 2026. A name that says nothing, such
//! as an ARN of an application's inference profile, counts as a model that takes only what all of them take.

use crate::encode::anthropic::Generation;
use serde_json::{Map, Value, json};
use tenure_core::request::Effort;

/// Who made the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Claude,
    /// Amazon Nova: its major version.
    Nova(u32),
    /// OpenAI's open models.
    GptOss,
    Other,
}

/// A model as far as its name tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Model {
    name: String,
    family: Family,
    /// Only means something for Claude.
    pub claude: Generation,
}

impl Model {
    /// Reads a model id, the id of an inference profile (`us.anthropic.…`), or an ARN that holds one.
    pub fn of(model: &str) -> Self {
        let name = model
            .rsplit('/')
            .next()
            .unwrap_or(model)
            .to_ascii_lowercase();
        let family = if name.contains("anthropic.claude") {
            Family::Claude
        } else if let Some((_, rest)) = name.split_once("amazon.nova-") {
            let major = rest.split(['-', ':']).next().and_then(|n| n.parse().ok());
            Family::Nova(major.unwrap_or(1))
        } else if name.contains("gpt-oss") {
            Family::GptOss
        } else {
            Family::Other
        };
        Self {
            claude: Generation::of(&name),
            name,
            family,
        }
    }

    fn has(&self, any: &[&str]) -> bool {
        any.iter().any(|word| self.name.contains(word))
    }

    /// Is it one of Anthropic's?
    pub fn is_claude(&self) -> bool {
        self.family == Family::Claude
    }

    fn is_nova(&self) -> bool {
        matches!(self.family, Family::Nova(_))
    }

    /// May text stand beside calls and results in one message? Others answer that "conversation blocks and
    /// tool result blocks cannot be provided in the same turn".
    pub fn mixes(&self) -> bool {
        self.is_claude() || self.is_nova()
    }

    /// Does it know whether a result is an error? Others refuse the field.
    pub fn takes_status(&self) -> bool {
        self.is_claude() || self.is_nova()
    }

    /// Can a call be forced, of any tool and of one?
    pub fn may_force(&self) -> bool {
        self.is_claude() || self.is_nova()
    }

    /// Does it take a system prompt?
    pub fn takes_system(&self) -> bool {
        !self.has(&[
            "titan-text",
            "mistral-7b",
            "mixtral-8x7b",
            "command-text",
            "command-light-text",
            "j2-",
        ])
    }

    /// Does it take cache points in messages and system? Elsewhere they are refused.
    pub fn caches(&self) -> bool {
        match self.family {
            Family::Claude => self.claude.at_least(3, 7) || self.has(&["claude-3-5-haiku"]),
            Family::Nova(_) => self.has(&["micro", "lite", "pro", "premier"]),
            _ => false,
        }
    }

    /// Does it take a cache point behind the tools, too?
    pub fn caches_tools(&self) -> bool {
        self.is_claude() && self.caches()
    }

    /// Does it keep a cache for an hour when asked to?
    pub fn caches_long(&self) -> bool {
        self.is_claude() && self.claude.at_least(4, 5)
    }

    /// Does it see pictures?
    pub fn sees(&self) -> bool {
        match self.family {
            Family::Claude => !self.has(&["claude-v2", "claude-instant", "claude-3-5-haiku"]),
            Family::Nova(_) => self.has(&["lite", "pro", "premier"]),
            _ => self.has(&["llama3-2-11b", "llama3-2-90b", "llama4", "pixtral", "-vl-"]),
        }
    }

    /// Does it read documents?
    pub fn reads_documents(&self) -> bool {
        match self.family {
            Family::Claude => self.claude.at_least(3, 0),
            Family::Nova(_) => self.has(&["lite", "pro", "premier"]),
            _ => false,
        }
    }

    /// Does it hold to a JSON schema?
    pub fn takes_schema(&self) -> bool {
        match self.family {
            Family::Claude => self.claude.takes_schema(),
            Family::GptOss => true,
            _ => false,
        }
    }

    /// The tool of Amazon's own that runs code or searches.
    pub fn system_tool(&self, tool: tenure_core::request::HostedTool) -> Option<&'static str> {
        use tenure_core::request::HostedTool;
        match (self.family, tool) {
            (Family::Nova(2..), HostedTool::CodeExecution) => Some("nova_code_interpreter"),
            (Family::Nova(2..), HostedTool::WebSearch) => Some("nova_grounding"),
            (Family::Nova(_), HostedTool::WebSearch) if self.has(&["premier"]) => {
                Some("nova_grounding")
            }
            _ => None,
        }
    }

    /// The fields beyond Converse's own that say how hard to think; `thinking` is Claude's.
    pub fn additional(&self, effort: Option<Effort>, thinking: Option<Value>) -> Option<Value> {
        let mut fields = Map::new();
        match self.family {
            Family::Claude => {
                fields.extend(thinking.map(|thinking| ("thinking".to_owned(), thinking)));
                let mut betas: Vec<&str> = self.claude.betas().into_iter().collect();
                if let Some(word) = self.claude.effort(effort) {
                    fields.insert("output_config".to_owned(), json!({"effort": word}));
                    if !self.claude.at_least(4, 6) {
                        betas.push("effort-2025-11-24");
                    }
                }
                if !betas.is_empty() {
                    fields.insert("anthropic_beta".to_owned(), json!(betas));
                }
            }
            Family::Nova(2..) => {
                let config = match effort? {
                    Effort::Off => json!({"type": "disabled"}),
                    effort => json!({"type": "enabled", "maxReasoningEffort": effort.as_str()}),
                };
                fields.insert("reasoningConfig".to_owned(), config);
            }
            Family::GptOss => {
                let word = match effort? {
                    Effort::Off => Effort::Low,
                    effort => effort,
                };
                fields.insert("reasoning_effort".to_owned(), word.as_str().into());
            }
            _ => {}
        }
        (!fields.is_empty()).then_some(Value::Object(fields))
    }

    /// Nova's hardest thinking sets the limit of its answer itself, and refuses one.
    pub fn takes_limit(&self, effort: Option<Effort>) -> bool {
        !(matches!(self.family, Family::Nova(2..)) && effort == Some(Effort::High))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::request::HostedTool;

    #[test]
    fn names_tell_who_made_a_model() {
        let claude = Model::of("eu.anthropic.claude-sonnet-4-5-20250929-v1:0");
        assert!(claude.is_claude() && claude.caches_tools() && claude.takes_schema());
        let arn = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-3-7-sonnet-20250219-v1:0";
        assert!(Model::of(arn).is_claude() && Model::of(arn).caches());
        assert!(!Model::of("anthropic.claude-3-5-sonnet-20240620-v1:0").caches());
        let nova = Model::of("us.amazon.nova-2-lite-v1:0");
        assert!(nova.caches() && !nova.caches_tools() && nova.mixes());
        assert_eq!(
            nova.system_tool(HostedTool::CodeExecution),
            Some("nova_code_interpreter")
        );
        assert_eq!(
            Model::of("amazon.nova-pro-v1:0").system_tool(HostedTool::CodeExecution),
            None
        );
        let profile = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc123";
        let unknown = Model::of(profile);
        assert!(!unknown.caches() && !unknown.sees() && !unknown.mixes() && unknown.takes_system());
    }

    #[test]
    fn each_family_is_told_in_its_own_words_how_hard_to_think() {
        let ask = |name: &str, effort| {
            let model = Model::of(name);
            let thinking = serde_json::to_value(model.claude.thinking(effort, 20_000)).unwrap();
            let thinking = Some(thinking).filter(|t| !t.is_null());
            model.additional(effort, thinking).map(|v| v.to_string())
        };
        assert_eq!(
            ask("anthropic.claude-sonnet-4-5-v1:0", Some(Effort::Low)).as_deref(),
            Some(r#"{"thinking":{"budget_tokens":4096,"type":"enabled"}}"#)
        );
        assert_eq!(
            ask("us.amazon.nova-2-lite-v1:0", Some(Effort::High)).as_deref(),
            Some(r#"{"reasoningConfig":{"maxReasoningEffort":"high","type":"enabled"}}"#)
        );
        assert_eq!(
            ask("openai.gpt-oss-120b-1:0", Some(Effort::Medium)).as_deref(),
            Some(r#"{"reasoning_effort":"medium"}"#)
        );
        assert_eq!(ask("meta.llama4-scout-v1:0", Some(Effort::High)), None);
        assert_eq!(ask("us.amazon.nova-2-lite-v1:0", None), None);
    }
}
