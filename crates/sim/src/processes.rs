//! Processes that carry a mark in their environment: what a fault run started, and what it left behind.

use std::fs;
use std::io;

/// The environment variable that holds the mark; children inherit it, whatever session or parent they take.
pub const MARK: &str = "TENURE_SIM_MARK";

/// A process that carries the mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marked {
    /// Its id.
    pub pid: u32,
    /// Its arguments, joined with blanks.
    pub command: String,
}

/// Every living process that carries `mark`. A zombie is not living: it holds nothing but its exit code.
///
/// # Errors
/// `/proc` cannot be listed.
pub fn marked(mark: &str) -> io::Result<Vec<Marked>> {
    let wanted = format!("{MARK}={mark}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process that ends meanwhile, or is somebody else's, cannot be read and is not ours.
        let Ok(environ) = fs::read(format!("/proc/{pid}/environ")) else {
            continue;
        };
        let carries = environ
            .split(|byte| *byte == 0)
            .any(|one| one == wanted.as_bytes());
        if carries && is_alive(pid) {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&line)
                .replace('\0', " ")
                .trim()
                .to_owned();
            found.push(Marked { pid, command });
        }
    }
    Ok(found)
}

/// Does the process exist, and is it more than a zombie?
pub fn is_alive(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The name before it may hold anything, brackets too.
    let state = stat
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.trim_start().chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// SIGKILL, to a process that may be gone already.
pub fn kill(pid: u32) {
    let Ok(pid) = i32::try_from(pid) else { return };
    // It may have ended by itself.
    let _ = nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(pid),
        nix::sys::signal::Signal::SIGKILL,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn real_marked_processes_are_found_also_in_a_session_of_their_own() {
        let mark = format!("test-{}", std::process::id());
        let mut child = Command::new("setsid")
            .args(["--wait", "sleep", "60"])
            .env(MARK, &mark)
            .spawn()
            .unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let all = loop {
            let all = marked(&mark).unwrap();
            if all.iter().any(|one| one.command == "sleep 60") {
                break all;
            }
            assert!(std::time::Instant::now() < deadline, "{all:?}");
            std::thread::yield_now();
        };
        all.iter().for_each(|one| kill(one.pid));
        child.wait().unwrap();
        while !marked(&mark).unwrap().is_empty() {
            assert!(std::time::Instant::now() < deadline);
            std::thread::yield_now();
        }
    }
}
