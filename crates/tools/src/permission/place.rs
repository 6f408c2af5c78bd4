//! Where a call runs: what counts as inside, and how a path in a command is resolved.

use std::fmt;
use std::path::{Component, Path, PathBuf};

/// Resolves the links of an absolute path whose last parts may not exist yet. `None`: it cannot be known.
pub type Resolver<'a> = &'a dyn Fn(&Path) -> Option<PathBuf>;

/// The surroundings that rules are judged in.
///
/// The rules themselves do no IO. Paths of tools arrive resolved; only files that a shell command opens itself
/// (`> file`) are resolved here, by the given function. Without one they are taken as they are written, which sees
/// no links: give one whenever the command would really run.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    workspace: &'a Path,
    extra_roots: &'a [PathBuf],
    home: Option<&'a Path>,
    resolver: Option<Resolver<'a>>,
}

impl fmt::Debug for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("workspace", &self.workspace)
            .field("extra_roots", &self.extra_roots)
            .field("home", &self.home)
            .finish_non_exhaustive()
    }
}

impl<'a> Place<'a> {
    /// The canonical workspace, and nothing else inside.
    #[must_use]
    pub fn new(workspace: &'a Path) -> Self {
        Self {
            workspace,
            extra_roots: &[],
            home: None,
            resolver: None,
        }
    }

    /// Further canonical directories that count as inside.
    #[must_use]
    pub fn with_extra_roots(mut self, roots: &'a [PathBuf]) -> Self {
        self.extra_roots = roots;
        self
    }

    /// The user's home folder, for `~/…` in rules and commands.
    #[must_use]
    pub fn with_home(mut self, home: &'a Path) -> Self {
        self.home = Some(home);
        self
    }

    /// How to resolve links.
    #[must_use]
    pub fn with_resolver(mut self, resolver: Resolver<'a>) -> Self {
        self.resolver = Some(resolver);
        self
    }

    pub(crate) fn home(&self) -> Option<&'a Path> {
        self.home
    }

    /// The path below the workspace or an extra root; `None` when it is outside or not a resolved path.
    pub(crate) fn inside<'p>(&self, real: &'p Path) -> Option<&'p Path> {
        if real
            .components()
            .any(|part| matches!(part, Component::ParentDir))
        {
            return None;
        }
        std::iter::once(self.workspace)
            .chain(self.extra_roots.iter().map(PathBuf::as_path))
            .find_map(|root| real.strip_prefix(root).ok())
    }

    /// The real path of what a command calls `text` when it runs in `cwd`.
    pub(crate) fn resolve(&self, text: &str, cwd: &Path) -> PathBuf {
        let joined = match (text.strip_prefix("~/"), self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ if text.starts_with('~') => return PathBuf::from(text),
            _ => cwd.join(
                text.strip_prefix('\\')
                    .filter(|rest| rest.starts_with('~'))
                    .unwrap_or(text),
            ),
        };
        match self.resolver {
            // Unknown stays as written, with its `..`: that counts as outside.
            Some(resolve) => resolve(&joined).unwrap_or_else(|| Path::new("/../").join(joined)),
            None => lexical(&joined),
        }
    }

    /// The path a model wrote, made absolute without looking at the disk.
    pub(crate) fn as_given(&self, given: &str) -> PathBuf {
        match (given.strip_prefix("~/"), self.home) {
            (Some(rest), Some(home)) => lexical(&home.join(rest)),
            _ => lexical(&self.workspace.join(given)),
        }
    }
}

fn lexical(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir => {}
            other => clean.push(other),
        }
    }
    clean
}
