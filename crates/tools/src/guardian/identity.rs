//! Who a process is: its id alone is reused, its id with its start time and boot is not.

use std::fs;
use std::io;
use std::sync::OnceLock;

/// Where process ids mean something: the current boot and, in a container with process ids of its own, that container.
/// Two containers of one machine share a boot, and neither can see, or end, what the other runs.
///
/// # Errors
/// When the system does not tell it (not Linux, or `/proc` is not mounted).
pub fn boot_id() -> io::Result<String> {
    // No process outlives its boot.
    static KNOWN: OnceLock<String> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(known.clone());
    }
    let read = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok();
    let namespace = namespace.as_ref().and_then(|link| link.to_str());
    Ok(KNOWN.get_or_init(|| place(read.trim(), namespace)).clone())
}

/// The namespace of processes that are in no container: a number that the kernel gives it, and no other.
const OUTERMOST: &str = "pid:[4026531836]";

fn place(boot: &str, namespace: Option<&str>) -> String {
    match namespace {
        None | Some(OUTERMOST) => boot.to_owned(),
        Some(inner) => format!("{boot} {inner}"),
    }
}

/// When a process started, in clock ticks since boot; `None` when there is no such process.
#[must_use]
pub fn pid_start(pid: u32) -> Option<u64> {
    stat(pid).map(|s| s.start)
}

/// The part of `/proc/<pid>/stat` that is needed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) state: u8,
    pub(super) parent: u32,
    pub(super) start: u64,
}

pub(super) fn stat(pid: u32) -> Option<Stat> {
    parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The second field is the program's name in parentheses and may hold anything, parentheses and spaces too: fields
/// are counted from the last closing one.
fn parse(text: &[u8]) -> Option<Stat> {
    let close = text.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    let start = fields.nth(17)?.parse().ok()?;
    Some(Stat {
        state,
        parent,
        start,
    })
}

/// The ids of all processes that can be seen.
pub(super) fn all_pids() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect()
}

/// A process's command line for people, at most 200 bytes; its short name in brackets when it has none.
pub(super) fn command_line(pid: u32) -> String {
    let raw = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&raw)
        .trim_end_matches('\0')
        .replace('\0', " ");
    let line = crate::output::clean(&line.replace('\n', " ")).into_owned();
    if line.is_empty() {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        return format!("[{}]", name.trim());
    }
    crate::output::cut(&line, 200).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_that_share_a_boot_are_places_of_their_own() {
        assert_eq!(place("boot", Some(OUTERMOST)), "boot");
        assert_eq!(
            place("boot", None),
            "boot",
            "where the system does not tell"
        );
        let (one, two) = (Some("pid:[4026532178]"), Some("pid:[4026532179]"));
        assert_eq!(place("boot", one), "boot pid:[4026532178]");
        assert_ne!(place("boot", one), place("boot", two));
        assert_ne!(place("boot", one), place("other", one));
    }

    #[test]
    fn reads_a_stat_line_whose_name_has_parentheses() {
        let line = b"42 (a) b (c) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2";
        assert_eq!(
            parse(line),
            Some(Stat {
                state: b'S',
                parent: 7,
                start: 987_654
            })
        );
        assert_eq!(parse(b"42 (short"), None);
    }

    #[test]
    fn own_start_is_known_and_stable() {
        let me = std::process::id();
        assert!(pid_start(me).is_some());
        assert_eq!(pid_start(me), pid_start(me));
    }
}
