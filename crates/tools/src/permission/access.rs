//! What a tool call would touch, in the words the permission rules judge.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One thing a call would touch.
///
/// Paths carry both spellings: `given` is what the model wrote, `real` is where it leads once every link is
/// resolved. Rules judge the real one; a question to the user shows both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Access {
    /// The content of one file, or the names in one directory.
    Read {
        /// The path as the model wrote it.
        given: String,
        /// The path with every link resolved.
        real: PathBuf,
    },
    /// Creation or change of one file.
    Write {
        /// The path as the model wrote it.
        given: String,
        /// The path with every link resolved.
        real: PathBuf,
    },
    /// A shell command.
    Command {
        /// The whole command text.
        command: String,
        /// The directory it would start in, resolved.
        cwd: PathBuf,
        /// Whether it is meant to outlive the call.
        background: bool,
    },
    /// A walk over the tree below one directory (or over one file).
    Search {
        /// The root as the model wrote it.
        given: String,
        /// The root with every link resolved.
        real: PathBuf,
    },
    /// Anything else: a tool's own name and the pattern its rules match.
    Other {
        /// The tool's name.
        tool: String,
        /// What the rules for this tool are matched against.
        pattern: String,
    },
}
