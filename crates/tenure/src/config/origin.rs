//! Where a value of the configuration comes from.

use std::fmt;
use std::path::PathBuf;

/// Where a value comes from; later ones in this list win over earlier ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Built in.
    Default,
    /// The user's configuration file.
    File {
        /// The file.
        path: PathBuf,
        /// 1-based line.
        line: usize,
    },
    /// The project's own file.
    Project {
        /// The file.
        path: PathBuf,
        /// 1-based line.
        line: usize,
    },
    /// An environment variable.
    Env(&'static str),
    /// A flag of the command line.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Project { path, line } => write!(f, "{}:{line} (project)", path.display()),
            Self::Env(name) => write!(f, "environment {name}"),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// A value and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// Where it comes from.
    pub origin: Origin,
}

impl<T> Setting<T> {
    /// A value from `origin`.
    pub fn new(value: T, origin: Origin) -> Self {
        Self { value, origin }
    }
}
