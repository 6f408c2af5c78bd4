//! Which server speaks Chat Completions: recognised by host, or named in the configuration.

mod facts;
mod table;

pub(crate) use facts::*;

use crate::settings::SettingsError;
use std::str::FromStr;

/// The habits of a Chat Completions server. What each of them means is a row of `dialect/table.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Dialect {
    /// Everything unknown: only what every imitation understands.
    #[default]
    Common,
    /// OpenAI's own: newest field names, privileged messages anywhere.
    Openai,
    /// OpenAI models on Azure.
    Azure,
    /// OpenRouter, a gateway to most others.
    Openrouter,
    /// Mistral's own: refuses fields and ids that it does not know.
    Mistral,
    /// DeepSeek's own.
    Deepseek,
    /// Groq.
    Groq,
    /// xAI.
    Xai,
    /// Together.
    Together,
    /// Fireworks.
    Fireworks,
    /// Cerebras.
    Cerebras,
    /// Perplexity: searches, and knows no tools.
    Perplexity,
    /// Moonshot (Kimi).
    Moonshot,
    /// Z.ai and Zhipu (GLM).
    Zai,
    /// Alibaba's DashScope (Qwen).
    Dashscope,
    /// MiniMax.
    Minimax,
    /// Google's imitation beside its own protocol.
    Google,
    /// GitHub Models and Copilot.
    Github,
    /// The router of Hugging Face.
    Huggingface,
    /// DeepInfra.
    Deepinfra,
    /// Snowflake Cortex.
    Snowflake,
    /// vLLM, on any host.
    Vllm,
    /// SGLang, on any host.
    Sglang,
    /// `llama-server` of llama.cpp, on any host.
    LlamaCpp,
    /// Ollama, on any host.
    Ollama,
    /// LM Studio, on any host.
    LmStudio,
    /// GPUStack's llama-box, on any host.
    LlamaBox,
}

impl Dialect {
    /// Every dialect once.
    pub fn all() -> impl Iterator<Item = Self> {
        table::ROWS.iter().map(|row| row.dialect)
    }

    /// The dialect of the endpoint at `host`; [`Dialect::Common`] when nothing is known of it.
    pub fn of_host(host: &str) -> Self {
        let host = host.to_ascii_lowercase();
        let under = |domain: &&str| {
            let rest = host.strip_suffix(*domain);
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        table::ROWS
            .iter()
            .find(|row| row.hosts.iter().any(under))
            .map_or(Self::Common, |row| row.dialect)
    }

    /// The word used in configuration.
    pub fn as_str(self) -> &'static str {
        self.facts().word
    }

    /// The row of the table.
    pub(crate) fn facts(self) -> &'static Facts {
        table::ROWS
            .iter()
            .find(|row| row.dialect == self)
            .unwrap_or(&table::COMMON)
    }
}

impl FromStr for Dialect {
    type Err = SettingsError;

    fn from_str(text: &str) -> Result<Self, SettingsError> {
        Self::all()
            .find(|dialect| dialect.as_str() == text)
            .ok_or_else(|| SettingsError::Dialect {
                given: text.to_owned(),
                known: Self::all().map(Self::as_str).collect::<Vec<_>>().join(", "),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dialect_has_one_row_and_one_word() {
        let mut words: Vec<&str> = Dialect::all().map(Dialect::as_str).collect();
        let rows = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), rows);
        for dialect in Dialect::all() {
            assert_eq!(dialect.facts().dialect, dialect);
            assert_eq!(dialect.as_str().parse::<Dialect>().unwrap(), dialect);
        }
        assert_eq!(table::ROWS.len(), Dialect::LlamaBox as usize + 1);
    }

    #[test]
    fn no_host_belongs_to_two_rows() {
        for row in table::ROWS {
            for host in row.hosts {
                assert_eq!(Dialect::of_host(host), row.dialect, "{host}");
                assert_eq!(Dialect::of_host(&format!("a.{host}")), row.dialect);
                assert_eq!(Dialect::of_host(&format!("not{host}")), Dialect::Common);
            }
        }
    }
}
