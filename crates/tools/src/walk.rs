//! Walking a tree as search tools should: ignore files respected, no link followed, bounded.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ignore::WalkBuilder;
use tokio_util::sync::CancellationToken;

/// Most entries looked at in one call.
const MOST_VISITED: u64 = 200_000;
/// Longest time of one call.
const MOST_TIME: Duration = Duration::from_secs(20);

/// A file, link or other non-directory below the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) path: PathBuf,
    /// A regular file, not a link to one.
    pub(crate) regular: bool,
}

/// Why a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Everything was seen.
    Complete,
    /// The visitor had enough.
    Enough,
    /// Too many entries or too long.
    Bound {
        /// Entries looked at.
        visited: u64,
    },
    /// The call was cancelled.
    Cancelled,
}

impl End {
    /// A note for the result when not everything was seen.
    pub(crate) fn note(self) -> Option<String> {
        match self {
            Self::Bound { visited } => Some(format!(
                "the search stopped after {visited} entries; there may be more. Narrow it with `path`"
            )),
            _ => None,
        }
    }
}

/// All entries below a real directory that ignore files do not exclude, in no particular order, lazily. Hidden files
/// are included, `.git` is not. Errors of single entries are passed over.
pub(crate) fn entries(root: &Path) -> impl Iterator<Item = Step> + use<> {
    WalkBuilder::new(root)
        .hidden(false)
        .require_git(false)
        .follow_links(false)
        .filter_entry(|entry| entry.file_name() != ".git")
        .build()
        .map(|entry| match entry {
            Ok(entry) => match entry.file_type() {
                Some(kind) if !kind.is_dir() => Step::File(Entry {
                    regular: kind.is_file(),
                    path: entry.into_path(),
                }),
                _ => Step::Passed,
            },
            Err(_) => Step::Passed,
        })
}

/// One step of a walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Something to look at.
    File(Entry),
    /// A directory, or something that cannot be read.
    Passed,
}

/// Hands entries to `visit` until it says that it has enough, a bound is reached, or the call is cancelled.
pub(crate) fn visit(
    steps: impl Iterator<Item = Step>,
    cancel: &CancellationToken,
    mut visit: impl FnMut(Entry) -> bool,
) -> End {
    let until = Instant::now() + MOST_TIME;
    for (visited, step) in (1_u64..).zip(steps) {
        if visited > MOST_VISITED || (visited.is_multiple_of(64) && Instant::now() > until) {
            return End::Bound {
                visited: visited - 1,
            };
        }
        if cancel.is_cancelled() {
            return End::Cancelled;
        }
        if let Step::File(entry) = step
            && !visit(entry)
        {
            return End::Enough;
        }
    }
    End::Complete
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bc_s_099_a_huge_tree_is_left_as_soon_as_the_limit_is_passed() {
        let made = std::cell::Cell::new(0_u64);
        let fake = (0..2_000_000_u64).map(|n| {
            made.set(n + 1);
            Step::File(Entry {
                path: PathBuf::from(format!("/w/d{}/f{n}.rs", n / 1000)),
                regular: true,
            })
        });
        let mut kept = 0;
        let end = visit(fake, &CancellationToken::new(), |_| {
            kept += 1;
            kept < 101
        });
        assert_eq!((end, kept, made.get()), (End::Enough, 101, 101));
    }

    #[test]
    fn bc_s_099_entries_looked_at_are_bounded_when_nothing_matches() {
        let fake = std::iter::repeat_n(Step::Passed, 2_000_000);
        let end = visit(fake, &CancellationToken::new(), |_| true);
        assert_eq!(
            end,
            End::Bound {
                visited: MOST_VISITED
            }
        );
        assert!(end.note().unwrap().contains("200000"));
    }

    #[test]
    fn a_cancelled_walk_stops() {
        let cancel = CancellationToken::new();
        cancel.cancel();
        assert_eq!(
            visit(std::iter::repeat(Step::Passed), &cancel, |_| true),
            End::Cancelled
        );
    }
}
