//! What a rule applies to: a command, a path or a text; and which of two patterns is the more specific.

use std::cmp::Ordering;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use serde::{Serialize, Serializer};

use super::shell::{ShellWord, plain_words};

/// The tool whose patterns are commands.
pub(crate) const SHELL: &str = "bash";

/// A pattern that cannot be used, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// An empty pattern.
    #[error("the permission pattern for `{tool}` is empty: use \"*\" for everything")]
    Empty {
        /// The tool.
        tool: String,
    },
    /// A command pattern that is more than one plain command.
    #[error(
        "the permission pattern {pattern:?} for `{tool}` is not one plain command: write its words, quote what the \
         shell would expand, and give each command of a pipeline its own rule"
    )]
    NotPlain {
        /// The tool.
        tool: String,
        /// The pattern.
        pattern: String,
    },
    /// A star that is not the last word.
    #[error(
        "in the permission pattern {pattern:?} for `{tool}` a star may only stand alone, as the last word (\"git log \
         *\" is `git log` with any arguments)"
    )]
    Star {
        /// The tool.
        tool: String,
        /// The pattern.
        pattern: String,
    },
    /// A path pattern that is not a valid glob.
    #[error(
        "the permission pattern {pattern:?} for `{tool}` is not a valid path pattern: {reason}"
    )]
    Glob {
        /// The tool.
        tool: String,
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// A checked pattern. Equality and order are those of its source text.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    source: String,
    form: Form,
}

#[derive(Debug, Clone)]
enum Form {
    /// `*`
    Everything,
    Command {
        words: Vec<String>,
        open: bool,
    },
    Path(PathForm),
}

#[derive(Debug, Clone)]
struct PathForm {
    glob: GlobMatcher,
    /// Matched against the absolute path, not the one below the workspace.
    absolute: bool,
    /// The whole pattern is one path, without wildcards.
    exact: bool,
    /// The folders before the first wildcard.
    prefix: String,
    /// Whether more than "everything below `prefix`" is asked for.
    narrower: bool,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}
impl Eq for Pattern {}
impl PartialOrd for Pattern {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Pattern {
    fn cmp(&self, other: &Self) -> Ordering {
        self.source.cmp(&other.source)
    }
}
impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.source)
    }
}

impl Pattern {
    /// Checks and compiles a pattern of the given tool.
    pub(crate) fn parse(tool: &str, source: &str) -> Result<Self, PatternError> {
        let form = match source.trim() {
            "" => {
                return Err(PatternError::Empty {
                    tool: tool.to_owned(),
                });
            }
            "*" => Form::Everything,
            text if tool == SHELL => command_form(tool, text)?,
            text => Form::Path(path_form(tool, text)?),
        };
        Ok(Self {
            source: source.trim().to_owned(),
            form,
        })
    }

    /// The tool's catch-all.
    pub(crate) fn everything() -> Self {
        Self {
            source: "*".to_owned(),
            form: Form::Everything,
        }
    }

    pub(crate) fn is_everything(&self) -> bool {
        matches!(self.form, Form::Everything)
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// How the pattern covers a command: `None` when it does not.
    pub(crate) fn covers_command(&self, words: &[ShellWord]) -> Option<Cover> {
        match &self.form {
            Form::Everything => Some(Cover {
                named: 0,
                open: true,
                everything: true,
            }),
            Form::Command {
                words: pattern,
                open,
            } => {
                let fits = if *open {
                    words.len() >= pattern.len()
                } else {
                    words.len() == pattern.len()
                };
                let named = fits
                    && pattern
                        .iter()
                        .zip(words)
                        .all(|(a, b)| b.known() == Some(a.as_str()));
                named.then_some(Cover {
                    named: pattern.len(),
                    open: *open,
                    everything: false,
                })
            }
            Form::Path(_) => None,
        }
    }

    /// The first word of a command pattern.
    pub(crate) fn program(&self) -> Option<&str> {
        match &self.form {
            Form::Command { words, .. } => words.first().map(String::as_str),
            _ => None,
        }
    }

    /// Whether a path pattern matches. `inside` is the path below the workspace, when it is there.
    pub(crate) fn matches_path(
        &self,
        real: &Path,
        inside: Option<&Path>,
        home: Option<&Path>,
    ) -> bool {
        match &self.form {
            Form::Everything => inside.is_some(),
            Form::Path(path) if path.absolute => {
                let below_home = home
                    .and_then(|home| real.strip_prefix(home).ok())
                    .map(|rest| Path::new("~").join(rest));
                path.glob.is_match(real)
                    || below_home.is_some_and(|path_below| path.glob.is_match(path_below))
            }
            Form::Path(path) => inside.is_some_and(|inside| path.glob.is_match(inside)),
            Form::Command { .. } => false,
        }
    }

    /// Whether the pattern matches a plain text: equal to it, or its beginning when the pattern ends in `*`.
    pub(crate) fn matches_text(&self, text: &str) -> bool {
        self.is_everything()
            || self.source == text
            || self
                .source
                .strip_suffix('*')
                .is_some_and(|start| text.starts_with(start))
    }

    /// True when `self` covers strictly less than `other`, as far as their forms show it.
    pub(crate) fn narrower_than(&self, other: &Self) -> bool {
        match (&self.form, &other.form) {
            (Form::Everything, _) => false,
            (_, Form::Everything) => true,
            (
                Form::Command {
                    words: a,
                    open: a_open,
                },
                Form::Command {
                    words: b,
                    open: b_open,
                },
            ) => (a.len(), !a_open) > (b.len(), !b_open),
            (Form::Path(a), Form::Path(b)) => {
                if a.exact || b.exact {
                    return a.exact && !b.exact;
                }
                let below = Path::new(&a.prefix).starts_with(&b.prefix);
                below
                    && !b.narrower
                    && a.absolute == b.absolute
                    && (a.prefix.len() > b.prefix.len() || a.narrower)
            }
            _ => false,
        }
    }
}

/// How much of a command a pattern names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cover {
    /// How many words are spelled out.
    pub named: usize,
    /// Whether further arguments are covered by a star.
    pub open: bool,
    /// Whether the pattern is the catch-all.
    pub everything: bool,
}

fn command_form(tool: &str, text: &str) -> Result<Form, PatternError> {
    let not_plain = || PatternError::NotPlain {
        tool: tool.to_owned(),
        pattern: text.to_owned(),
    };
    let (text_words, open) = match text.strip_suffix(" *") {
        Some(before) => (before, true),
        None => (text, false),
    };
    let read = plain_words(text_words).ok_or_else(not_plain)?;
    let mut words = Vec::with_capacity(read.len());
    for word in read {
        if !word.literal && word.scripts.is_empty() && word.text.contains('*') {
            return Err(PatternError::Star {
                tool: tool.to_owned(),
                pattern: text.to_owned(),
            });
        }
        words.push(word.known().ok_or_else(not_plain)?.to_owned());
    }
    if words.is_empty() {
        Err(not_plain())
    } else {
        Ok(Form::Command { words, open })
    }
}

fn path_form(tool: &str, text: &str) -> Result<PathForm, PatternError> {
    let absolute = text.starts_with('/') || text.starts_with("~/");
    let wild = |c: char| matches!(c, '*' | '?' | '[' | '{');
    // Like an ignore file: a name without a folder matches at any depth.
    let anywhere = !text.contains('/');
    let (glob_text, body) = match text.strip_prefix("./") {
        Some(below) => (below.to_owned(), below),
        None if anywhere => (format!("**/{text}"), text),
        None => (text.to_owned(), text),
    };
    let below_all = body.strip_suffix("/**").map(str::to_owned);
    let glob = GlobBuilder::new(&glob_text)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .map_err(|error| PatternError::Glob {
            tool: tool.to_owned(),
            pattern: text.to_owned(),
            reason: error.kind().to_string(),
        })?;
    let first_wild = body.find(wild);
    let prefix = match first_wild {
        _ if anywhere => String::new(),
        None => body.to_owned(),
        Some(at) => body
            .get(..at)
            .and_then(|before| before.rsplit_once('/'))
            .map_or("", |(folders, _)| folders)
            .to_owned(),
    };
    let narrower = below_all.is_none_or(|folders| folders.contains(wild)) && body != "**";
    Ok(PathForm {
        glob: glob.compile_matcher(),
        absolute,
        exact: first_wild.is_none() && !anywhere,
        prefix,
        narrower,
    })
}
