//! What the rules say about one call, and what the user is asked.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::rules::Remembered;

/// The rules' answer for one call: the strictest over everything it would touch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// The call runs.
    Allow,
    /// The call is refused.
    Deny {
        /// Why, for the model and the user.
        reason: String,
    },
    /// The user decides.
    Ask {
        /// What to show.
        question: Question,
    },
}

/// What the user is shown before a call runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The tool.
    pub tool: String,
    /// Everything the call would touch that needs the answer, whole.
    pub subjects: Vec<Subject>,
    /// Why the rules ask, one sentence each.
    pub reasons: Vec<String>,
    /// What "always" would mean. Empty when only "once" makes sense.
    pub proposals: Vec<Proposal>,
    /// Rules that would have allowed the call, for someone who cannot be asked: tool and pattern.
    pub missing_rules: Vec<(String, String)>,
}

/// One thing a question is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Subject {
    /// A shell command.
    Command {
        /// The whole text.
        command: String,
        /// Where it starts.
        cwd: PathBuf,
    },
    /// A path.
    Path {
        /// As the model wrote it.
        given: String,
        /// With every link resolved.
        real: PathBuf,
        /// Whether it would be changed.
        writes: bool,
    },
    /// Anything else.
    Text {
        /// What the rules were matched against.
        text: String,
    },
}

/// An offer of "always this": exact commands and real paths only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// What would be allowed for good, in words for the user.
    pub label: String,
    /// What is remembered when the user takes it.
    pub rules: Vec<Remembered>,
}

impl Question {
    /// The subjects as text: commands whole, paths as given and, when they differ, as they really are.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for subject in &self.subjects {
            let line = match subject {
                Subject::Command { command, .. } => command.clone(),
                Subject::Path {
                    given,
                    real,
                    writes,
                } => {
                    let verb = if *writes { "write" } else { "read" };
                    if real.as_os_str() == given.as_str() {
                        format!("{verb} {given}")
                    } else {
                        format!("{verb} {given} (really {})", real.display())
                    }
                }
                Subject::Text { text } => text.clone(),
            };
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&line);
        }
        text
    }
}

/// The result of a call that would have to be asked for when nobody can be asked: what was refused, why, and which
/// rule would allow it.
#[must_use]
pub fn deny_headless(question: &Question) -> String {
    let mut text = format!(
        "Permission denied: `{}` needs an answer, and nobody can be asked here.\n",
        question.tool
    );
    let _ = writeln!(text, "{}", question.text());
    for reason in &question.reasons {
        let _ = writeln!(text, "- {reason}");
    }
    if question.missing_rules.is_empty() {
        let _ = write!(
            text,
            "No single rule covers this text. Simplify it, or let the user run it with --allow-all."
        );
        return text;
    }
    let _ = writeln!(text, "The user can allow it in their configuration:");
    let mut last = None;
    for (tool, pattern) in &question.missing_rules {
        if tool == "outside" {
            let _ = writeln!(text, "[permissions]\noutside = \"allow\"");
        } else {
            if last != Some(tool) {
                let _ = writeln!(text, "[permissions.{}]", toml_key(tool));
            }
            let _ = writeln!(text, "{} = \"allow\"", toml_string(pattern));
        }
        last = Some(tool);
    }
    let _ = write!(text, "or with --allow-all.");
    text
}

fn toml_key(key: &str) -> String {
    let bare = !key.is_empty()
        && key
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare {
        key.to_owned()
    } else {
        toml_string(key)
    }
}

fn toml_string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(c);
            }
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
