//! The rules of one session: layers of tables, of which the strictest answer counts, and what the user remembered.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize};

use super::config::{PermissionConfig, Table};
use super::mode::Mode;
use super::pattern::{Pattern, SHELL};
use super::verdict::Proposal;

/// Tools that are allowed inside the workspace unless configuration says otherwise.
const ALLOWED_BY_DEFAULT: &[&str] = &["read", "glob", "grep", "todo"];

/// Tools that ask unless configuration says otherwise. So does every tool that is not listed.
const ASKED_BY_DEFAULT: &[&str] = &["write", "edit", SHELL];

/// The stored form's version.
const STORED_VERSION: u32 = 1;

/// Everything that decides whether a call runs.
///
/// Serialised, this is the form a session event keeps: compact, versioned and in a fixed order, so that equal rules
/// give equal bytes. Whoever takes the session over runs under these rules, not under its own configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    pub(crate) layers: Vec<Layer>,
    pub(crate) remembered: Vec<Remembered>,
}

/// One source of rules. The strictest answer of all layers counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Layer {
    /// The user's own layer: what it does not mention is asked for. A layer that only narrows has no opinion on
    /// what it does not mention.
    pub base: bool,
    pub outside: Mode,
    pub tools: BTreeMap<String, Table>,
}

/// Something the user allowed for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Remembered {
    /// A command with exactly these words.
    Command {
        /// The words, quotes removed.
        words: Vec<String>,
    },
    /// A path, by one tool.
    Path {
        /// The tool.
        tool: String,
        /// The path with every link resolved.
        real: PathBuf,
    },
    /// Any other access of one tool.
    Text {
        /// The tool.
        tool: String,
        /// The exact text.
        pattern: String,
    },
}

/// A project's rule that was ignored because it would have widened the user's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The tool, or `outside`.
    pub tool: String,
    /// The pattern, when it is a tool's rule.
    pub pattern: Option<String>,
    /// What the project asked for.
    pub wanted: Mode,
    /// What holds instead.
    pub holds: Mode,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = match &self.pattern {
            Some(pattern) => format!("permissions.{} {pattern:?}", self.tool),
            None => format!("permissions.{}", self.tool),
        };
        write!(
            f,
            "the project's rule {rule} = \"{}\" is ignored: a project may only narrow permissions, and yours say \
             \"{}\". To allow it, put the rule into your own configuration.",
            self.wanted, self.holds
        )
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self::from_config(&PermissionConfig::default())
    }
}

impl From<&PermissionConfig> for Rules {
    fn from(config: &PermissionConfig) -> Self {
        Self::from_config(config)
    }
}

impl Rules {
    /// The user's configuration over the defaults.
    #[must_use]
    pub fn from_config(config: &PermissionConfig) -> Self {
        let mut tools = config.tools.clone();
        for (names, mode) in [
            (ALLOWED_BY_DEFAULT, Mode::Allow),
            (ASKED_BY_DEFAULT, Mode::Ask),
        ] {
            for name in names {
                tools
                    .entry((*name).to_owned())
                    .or_default()
                    .entry(Pattern::everything())
                    .or_insert(mode);
            }
        }
        let outside = config.outside.unwrap_or(Mode::Ask);
        Self {
            layers: vec![Layer {
                base: true,
                outside,
                tools,
            }],
            remembered: Vec::new(),
        }
    }

    /// No limits at all: for trusted automation (`--allow-all`).
    #[must_use]
    pub fn allow_all() -> Self {
        Self {
            layers: Vec::new(),
            remembered: Vec::new(),
        }
    }

    /// True when these rules allow everything.
    #[must_use]
    pub fn allows_everything(&self) -> bool {
        self.layers.is_empty()
    }

    /// These rules, narrowed by a project's own file. Nothing in the file can widen them: its table is a further
    /// layer, and the strictest layer wins. Rules that ask for more are returned as notices.
    #[must_use]
    pub fn narrowed_by(&self, project: &PermissionConfig) -> (Self, Vec<Notice>) {
        let mut notices = Vec::new();
        if let Some(wanted) = project.outside {
            let holds = self
                .layers
                .iter()
                .map(|layer| layer.outside)
                .max()
                .unwrap_or(Mode::Allow);
            if wanted < holds {
                notices.push(Notice {
                    tool: "outside".to_owned(),
                    pattern: None,
                    wanted,
                    holds,
                });
            }
        }
        for (tool, table) in &project.tools {
            for (pattern, wanted) in table {
                let holds = self
                    .layers
                    .iter()
                    .map(|layer| layer.mode_of(tool, pattern))
                    .max()
                    .unwrap_or(Mode::Allow);
                if *wanted < holds {
                    let pattern = Some(pattern.source().to_owned());
                    notices.push(Notice {
                        tool: tool.clone(),
                        pattern,
                        wanted: *wanted,
                        holds,
                    });
                }
            }
        }
        let mut rules = self.clone();
        if !project.is_empty() {
            rules.layers.push(Layer {
                base: false,
                outside: project.outside.unwrap_or(Mode::Allow),
                tools: project.tools.clone(),
            });
        }
        (rules, notices)
    }

    /// Adds what the user chose to allow for good. It lifts *ask*, never *deny*.
    pub fn remember(&mut self, proposal: &Proposal) {
        for rule in &proposal.rules {
            if !self.remembered.contains(rule) {
                self.remembered.push(rule.clone());
            }
        }
    }

    /// What the user chose to allow for good, oldest first.
    #[must_use]
    pub fn remembered(&self) -> &[Remembered] {
        &self.remembered
    }
}

impl Layer {
    /// The tool's mode for what no other pattern covers.
    pub(crate) fn catch_all(&self, tool: &str) -> Mode {
        let unlisted = if self.base { Mode::Ask } else { Mode::Allow };
        self.tools
            .get(tool)
            .and_then(|table| table.get(&Pattern::everything()))
            .copied()
            .unwrap_or(unlisted)
    }

    fn mode_of(&self, tool: &str, pattern: &Pattern) -> Mode {
        let own = self
            .tools
            .get(tool)
            .and_then(|table| table.get(pattern))
            .copied();
        own.unwrap_or_else(|| self.catch_all(tool))
    }

    /// The tool's patterns, without the catch-all.
    pub(crate) fn patterns(&self, tool: &str) -> impl Iterator<Item = (&Pattern, Mode)> {
        self.tools
            .get(tool)
            .into_iter()
            .flatten()
            .filter(|(pattern, _)| !pattern.is_everything())
            .map(|(pattern, mode)| (pattern, *mode))
    }

    /// True when the tool's catch-all is *allow* and no pattern is stricter.
    pub(crate) fn is_unrestricted(&self, tool: &str) -> bool {
        self.catch_all(tool) == Mode::Allow
            && self.patterns(tool).all(|(_, mode)| mode == Mode::Allow)
    }
}

/// Of the patterns that match, those no other is narrower than; of these the strictest.
pub(crate) fn decisive<'a>(matching: &[(&'a Pattern, Mode)]) -> Option<(&'a Pattern, Mode)> {
    matching
        .iter()
        .filter(|(pattern, _)| {
            !matching
                .iter()
                .any(|(other, _)| other.narrower_than(pattern))
        })
        .max_by_key(|(_, mode)| *mode)
        .copied()
}

#[derive(Serialize)]
struct StoredRef<'a> {
    v: u32,
    layers: &'a [Layer],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    remembered: &'a [Remembered],
}

#[derive(Deserialize)]
struct Stored {
    v: u32,
    layers: Vec<StoredLayer>,
    #[serde(default)]
    remembered: Vec<Remembered>,
}

#[derive(Deserialize)]
struct StoredLayer {
    base: bool,
    outside: Mode,
    tools: BTreeMap<String, BTreeMap<String, Mode>>,
}

impl Serialize for Rules {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        StoredRef {
            v: STORED_VERSION,
            layers: &self.layers,
            remembered: &self.remembered,
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Rules {
    #[expect(
        clippy::mutable_key_type,
        reason = "patterns compare by their source text alone"
    )]
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let stored = Stored::deserialize(deserializer)?;
        if stored.v != STORED_VERSION {
            return Err(D::Error::custom(format!(
                "these permission rules are of version {}, and this program reads version {STORED_VERSION}: use a \
                 newer program",
                stored.v
            )));
        }
        let mut layers = Vec::with_capacity(stored.layers.len());
        for layer in stored.layers {
            let mut tools = BTreeMap::new();
            for (tool, table) in layer.tools {
                let mut parsed = Table::new();
                for (pattern, mode) in table {
                    parsed.insert(
                        Pattern::parse(&tool, &pattern).map_err(D::Error::custom)?,
                        mode,
                    );
                }
                tools.insert(tool, parsed);
            }
            layers.push(Layer {
                base: layer.base,
                outside: layer.outside,
                tools,
            });
        }
        Ok(Self {
            layers,
            remembered: stored.remembered,
        })
    }
}
