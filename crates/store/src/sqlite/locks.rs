//! Lock files beside the store: one per incarnation, one for checkpointing, and who holds the write lock.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a newcomer tries to lock its own file while others look at it.
const NODE_PATIENCE: Duration = Duration::from_millis(500);

/// The folder `<db>.nodes`.
#[derive(Debug, Clone)]
pub(super) struct LockFolder(PathBuf);

/// A lock held until it is dropped, or its process ends, however it ends.
#[derive(Debug)]
pub(super) struct Held {
    file: File,
    path: PathBuf,
}

impl Held {
    /// Is the locked file the one others find? If not, somebody removed it before it was locked.
    fn is_at_its_path(&self) -> bool {
        let identity = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
        match (self.file.metadata(), std::fs::metadata(&self.path)) {
            (Ok(ours), Ok(theirs)) => identity(ours) == identity(theirs),
            _ => false,
        }
    }

    /// Removes the file, then lets go.
    pub(super) fn remove(self) {
        let _ = std::fs::remove_file(&self.path);
        let _ = self.file.unlock();
    }
}

impl LockFolder {
    /// The folder beside `db`, made on first use with mode 0700.
    pub(super) fn beside(db: &Path) -> Self {
        let mut name = db.as_os_str().to_owned();
        name.push(".nodes");
        Self(PathBuf::from(name))
    }

    fn open(&self, name: &str) -> io::Result<File> {
        let path = self.0.join(name);
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        match options.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                use std::os::unix::fs::DirBuilderExt;
                std::fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(&self.0)?;
                options.open(&path)
            }
            other => other,
        }
    }

    /// Takes a lock if it is free.
    pub(super) fn try_take(&self, name: &str) -> io::Result<Option<Held>> {
        let file = self.open(name)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Held {
                file,
                path: self.0.join(name),
            })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Takes the lock of an incarnation of this process. Others look at it at any moment, by locking it
    /// themselves for an instant, and remove what they find free: so a refusal is tried again for a while, and
    /// a lock on a file that is no longer the one at its path is none.
    pub(super) fn take_node(&self, incarnation: &str) -> io::Result<Option<Held>> {
        let started = Instant::now();
        loop {
            if let Some(held) = self.try_take(&node_file(incarnation))?
                && held.is_at_its_path()
            {
                return Ok(Some(held));
            }
            if started.elapsed() > NODE_PATIENCE {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Is the process behind an incarnation gone? Its lock is free, or its file is missing. What cannot be
    /// told counts as alive: the lease decides.
    pub(super) fn node_is_gone(&self, incarnation: &str) -> bool {
        match File::open(self.0.join(node_file(incarnation))) {
            Ok(file) => match file.try_lock_shared() {
                Ok(()) => {
                    let _ = file.unlock();
                    true
                }
                Err(_) => false,
            },
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    /// Removes the lock file of a node if nobody holds it: with the lock held, so that a newcomer that has
    /// opened the file and not yet locked it notices, and takes another.
    pub(super) fn remove_free_node(&self, incarnation: &str) {
        let path = self.0.join(node_file(incarnation));
        let Ok(file) = File::open(&path) else { return };
        if file.try_lock().is_ok() {
            let held = Held { file, path };
            if held.is_at_its_path() {
                held.remove();
            }
        }
    }

    /// Incarnations that have a lock file.
    pub(super) fn node_files(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(&self.0) else {
            return Vec::new();
        };
        entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|name| name.strip_suffix(".lock").map(str::to_owned))
            .filter(|name| name.starts_with("inc_"))
            .collect()
    }

    /// The record of who holds the write lock.
    pub(super) fn holder(&self) -> io::Result<HolderFile> {
        Ok(HolderFile {
            file: self.open("writer")?,
            start: process_start(std::process::id()).unwrap_or(0),
        })
    }
}

/// Removes the socket a dead node left behind, if that is what is there.
pub(super) fn remove_socket(address: &str) {
    let path = Path::new(address);
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    if is_socket && path.extension().is_some_and(|ext| ext == "sock") {
        let _ = std::fs::remove_file(path);
    }
}

fn node_file(incarnation: &str) -> String {
    format!("{incarnation}.lock")
}

/// Who held the write lock when the record was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) pid: u32,
    pub(super) start: u64,
    /// Boot-time clock, milliseconds: tells one hold from the next.
    pub(super) since_ms: i64,
}

/// The shared record of the write lock's holder (R6). It is advice, never a lock.
#[derive(Debug)]
pub(super) struct HolderFile {
    file: File,
    start: u64,
}

impl HolderFile {
    /// Notes that this process holds the write lock from now on.
    pub(super) fn note(&self, since_ms: i64) {
        let mut bytes = [0_u8; 24];
        bytes[..8].copy_from_slice(&u64::from(std::process::id()).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.start.to_le_bytes());
        bytes[16..].copy_from_slice(&since_ms.to_le_bytes());
        let _ = self.file.write_all_at(&bytes, 0);
    }

    /// Notes that this process let go.
    pub(super) fn clear(&self) {
        let _ = self.file.write_all_at(&[0; 8], 0);
    }

    /// Who holds it, by the record.
    pub(super) fn read(&self) -> Option<Holder> {
        let mut bytes = [0_u8; 24];
        self.file.read_exact_at(&mut bytes, 0).ok()?;
        let number = |at: usize| {
            let mut part = [0_u8; 8];
            part.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(part)
        };
        let pid = u32::try_from(number(0)).ok().filter(|pid| *pid != 0)?;
        Some(Holder {
            pid,
            start: number(8),
            since_ms: i64::from_le_bytes(number(16).to_le_bytes()),
        })
    }
}

/// State letter and start time of a process' first thread.
fn process_stat(pid: u32) -> Option<(char, u64)> {
    stat(Path::new(&format!("/proc/{pid}/stat")))
}

/// Does any of its threads run, or wait for the disk? The one that writes is not the first.
fn is_at_work(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    let states = threads
        .flatten()
        .filter_map(|thread| stat(&thread.path().join("stat")));
    let mut states = states.map(|(state, _)| state);
    states.any(|state| !ASLEEP.contains(state))
}

/// Stopped, traced, or waiting for something other than the disk.
const ASLEEP: &str = "TtS";

/// State letter and start time from such a file.
fn stat(path: &Path) -> Option<(char, u64)> {
    let stat = std::fs::read_to_string(path).ok()?;
    // The name may hold anything, so everything is counted from the last parenthesis.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?.chars().next()?;
    // The state is field 3, the start time field 22.
    let start = fields.nth(18)?.parse().ok()?;
    Some((state, start))
}

fn process_start(pid: u32) -> Option<u64> {
    process_stat(pid).map(|(_, start)| start)
}

/// What a contender may do about a holder that keeps the write lock beyond a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It works or is gone: wait on.
    Wait,
    /// It was this user's, verified, and asleep: it has been killed.
    Killed,
    /// Somebody has to act: what to do, in words.
    Tell(String),
}

/// Judges a holder that was seen unchanged for a whole lease (R6).
pub(super) fn judge(holder: &Holder) -> Verdict {
    let pid = holder.pid;
    if pid == std::process::id() {
        // Another store of this very process: ending it ends both.
        return Verdict::Wait;
    }
    match process_stat(pid) {
        // Waiting for the disk is not standing still: that one is left alone.
        Some((state, start))
            if start == holder.start && ASLEEP.contains(state) && !is_at_work(pid) =>
        {
            kill(pid)
        }
        _ => Verdict::Wait,
    }
}

fn kill(pid: u32) -> Verdict {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    let told = |why: &str| {
        Verdict::Tell(format!(
            "process {pid} holds the write lock and does not move ({why}); end it with `kill -9 {pid}`"
        ))
    };
    let own = nix::unistd::geteuid().as_raw();
    let theirs = std::fs::metadata(format!("/proc/{pid}")).map(|meta| meta.uid());
    if theirs.ok() != Some(own) {
        return told("it belongs to another user");
    }
    let Ok(raw) = i32::try_from(pid) else {
        return told("its pid is odd");
    };
    match kill(Pid::from_raw(raw), Signal::SIGKILL) {
        Ok(()) => Verdict::Killed,
        Err(error) => told(&error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_gone_when_its_lock_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LockFolder::beside(&dir.path().join("t.db"));
        assert!(folder.node_is_gone("inc_1"));
        let held = folder.take_node("inc_1").unwrap().unwrap();
        assert!(!folder.node_is_gone("inc_1"));
        assert!(folder.take_node("inc_1").unwrap().is_none());
        assert_eq!(folder.node_files(), ["inc_1"]);
        drop(held);
        assert!(folder.node_is_gone("inc_1"));
    }

    #[test]
    fn the_holder_record_says_who_and_since_when() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LockFolder::beside(&dir.path().join("t.db"));
        let file = folder.holder().unwrap();
        assert_eq!(file.read(), None);
        file.note(-5);
        let holder = file.read().unwrap();
        assert_eq!((holder.pid, holder.since_ms), (std::process::id(), -5));
        assert_eq!(Some(holder.start), process_start(std::process::id()));
        file.clear();
        assert_eq!(file.read(), None);
    }

    #[test]
    fn a_newcomer_ends_with_a_lock_that_others_find() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LockFolder::beside(&dir.path().join("t.db"));
        // Opened, then removed by somebody who found it free, then locked: everybody else would see nothing.
        let late = folder.try_take("inc_0.lock").unwrap().unwrap();
        late.file.unlock().unwrap();
        folder.remove_free_node("inc_0");
        late.file.lock().unwrap();
        assert!(!late.is_at_its_path());
        assert!(folder.node_is_gone("inc_0"));
        let held = folder.take_node("inc_0").unwrap().unwrap();
        assert!(held.is_at_its_path() && !folder.node_is_gone("inc_0"));
        // What is held is not removed.
        folder.remove_free_node("inc_0");
        assert!(held.is_at_its_path());
        // Against somebody who sweeps all the while.
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::SeqCst) {
                    for name in folder.node_files() {
                        if folder.node_is_gone(&name) {
                            folder.remove_free_node(&name);
                        }
                    }
                }
            });
            for n in 1..=300 {
                let name = format!("inc_{n}");
                let held = folder.take_node(&name).unwrap().unwrap();
                assert!(held.is_at_its_path() && !folder.node_is_gone(&name));
                held.remove();
            }
            over.store(true, std::sync::atomic::Ordering::SeqCst);
        });
    }

    #[test]
    fn a_look_at_the_lock_does_not_keep_its_node_from_joining() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LockFolder::beside(&dir.path().join("t.db"));
        drop(folder.try_take("inc_1.lock").unwrap());
        let look = File::open(folder.0.join("inc_1.lock")).unwrap();
        look.try_lock_shared().unwrap();
        assert!(folder.try_take("inc_1.lock").unwrap().is_none());
        std::thread::scope(|scope| {
            let joins = scope.spawn(|| folder.take_node("inc_1").unwrap());
            drop(look);
            assert!(joins.join().unwrap().is_some());
        });
    }

    /// The thread that writes may wait for a slow disk for longer than a lease while the others wait for it.
    #[test]
    fn a_process_is_at_work_as_long_as_one_of_its_threads_is() {
        let pid = std::process::id();
        let seen = std::thread::spawn(move || (process_stat(pid), is_at_work(pid)));
        // This thread, and the first one with it, only wait.
        let (first, at_work) = seen.join().unwrap();
        assert!(ASLEEP.contains(first.unwrap().0), "{first:?}");
        assert!(at_work);
        let mut sleeper = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let asleep = (0..6_000).any(|_| {
            // tidy: sleep ok because it only paces the looks.
            std::thread::sleep(std::time::Duration::from_millis(10));
            !is_at_work(sleeper.id())
        });
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert!(asleep, "one that only waits");
    }

    #[test]
    fn a_store_does_not_end_its_own_process() {
        let pid = std::process::id();
        let start = process_start(pid).unwrap();
        let holder = Holder {
            pid,
            start,
            since_ms: 0,
        };
        assert_eq!(judge(&holder), Verdict::Wait);
    }
}
