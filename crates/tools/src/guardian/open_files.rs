//! The limit on open files: raised for a program of many sessions, and for commands what it was before.
//!
//! A running session needs about five descriptors, so that the usual soft limit of 1,024 ends at two hundred of them.
//! Commands get the limit back: programs that use `select`, or close each possible descriptor, want a low one.

use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// Tells what the soft limit was before it was raised.
const BEFORE_ENV: &str = "TENURE_OPEN_FILES";
/// More is of no use here.
const ENOUGH: rlim_t = 65_536;

static BEFORE: OnceLock<rlim_t> = OnceLock::new();

/// Raises this process's soft limit on open files to its hard limit, or to 65,536 if that is less. Guardians started
/// later give their commands the limit that was there before. The limit now in force; `None` when it cannot be asked.
pub fn raise_open_files() -> Option<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let wanted = hard.min(ENOUGH);
    if soft >= wanted {
        return Some(soft);
    }
    if setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).is_err() {
        return Some(soft);
    }
    // Where another Tenure started this one, the limit was raised before.
    let _ = BEFORE.set(told().unwrap_or(soft));
    Some(wanted)
}

/// What a process started by this one needs to know to undo [`raise_open_files`] for commands: a variable of its
/// environment.
pub fn open_files_before() -> Option<(&'static str, String)> {
    let before = BEFORE.get().copied().or_else(told)?;
    Some((BEFORE_ENV, before.to_string()))
}

/// Gives this guardian, and so its command, the limit that was there before. The name of the variable that told it,
/// which the command need not see.
pub(super) fn lower_again() -> &'static str {
    if let (Some(before), Ok((_, hard))) = (told(), getrlimit(Resource::RLIMIT_NOFILE)) {
        // It was in force once, so it can be again; where not, the command has more than it needs.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, before.min(hard), hard);
    }
    BEFORE_ENV
}

fn told() -> Option<rlim_t> {
    std::env::var(BEFORE_ENV).ok()?.parse().ok()
}
