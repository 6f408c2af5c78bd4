//! Where a path really leads, and opening exactly that.
//!
//! Two halves that belong together: [`resolve`] follows every link as the kernel would and gives the real path, which
//! the rules judge; the open functions then refuse to follow any link at all. A path that was checked and then swapped
//! for a link is not opened, whatever happens in between.

mod open;
mod replace;

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

pub use open::{open_dir, open_file};
pub use replace::{Replaced, replace};

use crate::tool::ToolError;

/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;

/// As long as the kernel takes.
const LONGEST_PATH: usize = 4096;

/// A path as given and as it really is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// As the model wrote it.
    pub given: String,
    /// Absolute, without links, `.` or `..`. When the last parts do not exist they are appended to the real path of
    /// the part that does.
    pub real: PathBuf,
    /// Whether it exists.
    pub exists: bool,
}

/// Why a path cannot be resolved.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// Empty, too long, or with a NUL byte.
    #[error("`{0}` is not a usable path (empty, over 4096 bytes, or with a NUL character).")]
    Unusable(String),
    /// A `..` after a part that does not exist.
    #[error("`{0}` goes up from a directory that does not exist.")]
    UpFromNothing(String),
    /// Links that lead in a circle.
    #[error("`{0}` leads through too many links.")]
    TooManyLinks(String),
    /// The system refused.
    #[error("cannot resolve `{given}`: {source}")]
    Io {
        /// As the model wrote it.
        given: String,
        /// The system's reason.
        source: io::Error,
    },
}

impl From<PathError> for ToolError {
    fn from(error: PathError) -> Self {
        match error {
            PathError::Io { given, source } => {
                Self::io(format!("Cannot resolve `{given}`"), source)
            }
            other => Self::invalid(other.to_string()),
        }
    }
}

/// Follows `given` from `base` (absolute and canonical) part by part. `..` after a link goes up from where the link
/// leads, as it does for the kernel and unlike what the text suggests.
///
/// # Errors
/// See [`PathError`]. A path that does not exist is not an error.
pub fn resolve(base: &Path, given: &str) -> Result<Resolved, PathError> {
    if given.is_empty() || given.contains('\0') || given.len() > LONGEST_PATH {
        let shown = crate::output::cut(given, 200);
        return Err(PathError::Unusable(
            crate::output::clean(shown).into_owned(),
        ));
    }
    let path = Path::new(given);
    let mut real = if path.is_absolute() {
        PathBuf::from("/")
    } else {
        base.to_owned()
    };
    let mut left: Vec<Step> = steps(path);
    let mut links = 0;
    let mut exists = true;
    while let Some(step) = left.pop() {
        let name = match step {
            Step::Up if !exists => return Err(PathError::UpFromNothing(given.to_owned())),
            Step::Up => {
                real.pop();
                continue;
            }
            Step::Root => {
                real = PathBuf::from("/");
                continue;
            }
            Step::Down(name) => name,
        };
        let next = real.join(&name);
        if !exists {
            real = next;
            continue;
        }
        match next.symlink_metadata() {
            Ok(meta) if meta.file_type().is_symlink() => {
                links += 1;
                if links > MOST_LINKS {
                    return Err(PathError::TooManyLinks(given.to_owned()));
                }
                let target = next.read_link().map_err(|source| PathError::Io {
                    given: given.to_owned(),
                    source,
                })?;
                left.extend(steps(&target));
            }
            Ok(_) => real = next,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                exists = false;
                real = next;
            }
            Err(source) => {
                return Err(PathError::Io {
                    given: given.to_owned(),
                    source,
                });
            }
        }
    }
    Ok(Resolved {
        given: given.to_owned(),
        real,
        exists,
    })
}

enum Step {
    Root,
    Up,
    Down(OsString),
}

/// The parts of a path, last first.
fn steps(path: &Path) -> Vec<Step> {
    path.components()
        .rev()
        .filter_map(|part| match part {
            Component::RootDir => Some(Step::Root),
            Component::ParentDir => Some(Step::Up),
            Component::Normal(name) => Some(Step::Down(name.to_owned())),
            Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}

/// How a path is named to the model: relative inside the workspace, absolute elsewhere.
#[must_use]
pub fn shown(workspace: &Path, real: &Path) -> String {
    match real.strip_prefix(workspace) {
        Ok(inside) if inside.as_os_str().is_empty() => ".".to_owned(),
        Ok(inside) => inside.display().to_string(),
        Err(_) => real.display().to_string(),
    }
}

/// Makes [`ToolError::NotFound`], with near names of the directory when there are any.
pub(crate) fn not_found(resolved: &Resolved) -> ToolError {
    let name = resolved
        .real
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let siblings: Vec<String> = resolved
        .real
        .parent()
        .and_then(|parent| parent.read_dir().ok())
        .into_iter()
        .flatten()
        .flatten()
        .take(2000)
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let near = crate::nearest::close(&name, siblings.iter().map(String::as_str), 3);
    let hint = match near.as_slice() {
        [] => " Use `glob` to find it.".to_owned(),
        near => format!(" Near names in that directory: {}.", near.join(", ")),
    };
    ToolError::NotFound {
        path: resolved.given.clone(),
        hint,
    }
}

/// Whether an open was refused because a part of the path is a link by now.
#[must_use]
pub fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::libc::ELOOP)
}

/// What to say when opening a checked path failed.
pub(crate) fn open_error(resolved: &Resolved, error: io::Error) -> ToolError {
    match error.kind() {
        io::ErrorKind::NotFound => not_found(resolved),
        _ if is_link(&error) => ToolError::refused(format!(
            "`{}` led to {} when it was checked and is another place now (a link was put in its way). Nothing was \
             done.",
            resolved.given,
            resolved.real.display()
        )),
        _ => ToolError::io(format!("Cannot open `{}`", resolved.given), error),
    }
}
