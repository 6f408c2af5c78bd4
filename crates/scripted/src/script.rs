//! The script format: what the model answers, turn by turn. Versioned; see `docs/scripted-model.md`.

mod fault;
mod part;
mod turn;

use std::path::Path;

use serde::Deserialize;

pub use fault::{CutHow, Fault, WireShape};
pub use part::{Input, Part, Seal};
pub use turn::{Finish, Times, Turn, Usage};

/// The version of the format this crate reads.
const VERSION: u32 = 1;

/// How the turn for a request is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Select {
    /// The first turn that has uses left and whose conditions hold. The server counts the uses.
    #[default]
    Sequence,
    /// The first turn whose conditions hold; the request's own history decides, so that restarts of client and server
    /// change nothing. Only turns that give `times` are counted.
    History,
}

/// What a scripted model answers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The version of the format; 1.
    pub version: u32,
    /// A name for people.
    #[serde(default)]
    pub name: Option<String>,
    /// How the turn for a request is found.
    #[serde(default)]
    pub select: Select,
    /// The model ids served; another one is answered with 404. Empty: any.
    #[serde(default)]
    pub models: Vec<String>,
    /// The context window in tokens, by the server's own measure ([`crate::measure`]): a request that does not fit is
    /// answered as the vendor does. Left out: no limit.
    #[serde(default)]
    pub window: Option<u64>,
    /// The turns, in order.
    #[serde(default, alias = "turn")]
    pub turns: Vec<Turn>,
    /// The turn used when no other applies. Without one such a request is answered with 400.
    #[serde(default)]
    pub fallback: Option<Turn>,
}

/// Why a script was not read.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file could not be read.
    #[error("cannot read the script {path}: {source}; check the path and its permissions")]
    Read {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The text is not TOML or JSON of the script format.
    #[error("the script is not valid: {0}; see docs/scripted-model.md for the format")]
    Parse(String),
    /// The script is for another version of the format.
    #[error(
        "the script has version {0}, this program reads version {VERSION}; set version = {VERSION}"
    )]
    Version(u32),
    /// The script contradicts itself.
    #[error("turn {turn}: {what}")]
    Turn {
        /// Which turn, by name or index.
        turn: String,
        /// What is wrong and what to do.
        what: String,
    },
}

impl Script {
    /// An in-code script of the given turns, selected in sequence.
    pub fn new(turns: impl IntoIterator<Item = Turn>) -> Self {
        Self {
            version: VERSION,
            name: None,
            select: Select::Sequence,
            models: Vec::new(),
            window: None,
            turns: turns.into_iter().collect(),
            fallback: None,
        }
    }

    /// Selects turns by the request's history instead of a count.
    #[must_use]
    pub fn by_history(mut self) -> Self {
        self.select = Select::History;
        self
    }

    /// Sets the context window in tokens, by the server's own measure.
    #[must_use]
    pub fn window(mut self, tokens: u64) -> Self {
        self.window = Some(tokens);
        self
    }

    /// Sets the turn used when no other applies.
    #[must_use]
    pub fn fallback(mut self, turn: Turn) -> Self {
        self.fallback = Some(turn);
        self
    }

    /// Reads a script from TOML, or from JSON when the text begins with `{`.
    ///
    /// # Errors
    /// The text is not of the format, is of another version, or contradicts itself.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let script: Self = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|e| ScriptError::Parse(e.to_string()))?
        } else {
            toml::from_str(text).map_err(|e| ScriptError::Parse(e.to_string()))?
        };
        script.check()?;
        Ok(script)
    }

    /// Reads a script file.
    ///
    /// # Errors
    /// As [`Script::parse`], or the file cannot be read.
    pub fn load(path: &Path) -> Result<Self, ScriptError> {
        let text = std::fs::read_to_string(path).map_err(|source| ScriptError::Read {
            path: path.display().to_string(),
            source,
        })?;
        Self::parse(&text)
    }

    /// Checks what the types cannot say; done by [`Script::parse`] and again when a server starts.
    ///
    /// # Errors
    /// Another version, or a turn that contradicts itself.
    pub fn check(&self) -> Result<(), ScriptError> {
        if self.version != VERSION {
            return Err(ScriptError::Version(self.version));
        }
        for (index, turn) in self.turns.iter().enumerate() {
            turn.check(&index.to_string())?;
        }
        if let Some(turn) = &self.fallback {
            turn.check("fallback")?;
        }
        Ok(())
    }
}
