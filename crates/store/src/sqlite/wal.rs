//! The write-ahead log's size: room made ahead of it, so that a flush is not one of metadata, and checkpoints.

use rusqlite::Connection;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Bytes of one frame: a page and its header.
const FRAME: i64 = 4096 + 24;
/// Frames from which an idle moment is used for a checkpoint: 4 MB.
const IDLE_FRAMES: i64 = 1_000;
/// Frames from which one is made without waiting for an idle moment: 32 MB.
const BUSY_FRAMES: i64 = 8_000;
/// Frames from which room is made ahead: a short run never pays for it.
const AHEAD_FROM: i64 = 48;
/// Room made at a time.
const ROOM: u64 = 1 << 20;
/// Room that is enough for the next commits.
const SPARE: i64 = 256 << 10;
/// A WAL file larger than this is cut when it has been folded back whole.
const CUT_FROM: u64 = 64 << 20;

pub(super) struct Wal {
    path: PathBuf,
    /// Frames in the WAL after the last commit.
    frames: Arc<AtomicI64>,
    /// The file's length as last seen, and how much of the log was used then.
    seen: std::cell::Cell<(u64, i64)>,
    /// Frames at the last checkpoint, or at the last look by a process that may not make one.
    done: i64,
}

impl Wal {
    pub(super) fn new(db: &Path) -> Self {
        let mut path = db.as_os_str().to_owned();
        path.push("-wal");
        Self {
            path: PathBuf::from(path),
            frames: Arc::default(),
            seen: std::cell::Cell::default(),
            done: 0,
        }
    }

    /// Learns the WAL's length from each commit of `conn`.
    pub(super) fn attach(&mut self, conn: &mut Connection) {
        let frames = Arc::clone(&self.frames);
        let hooked = conn.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, count| {
            frames.store(i64::from(count), Ordering::Relaxed);
            Ok(())
        }));
        if let Err(error) = hooked {
            tracing::warn!(%error, "the WAL's length is not known; checkpoints are left to others");
        }
    }

    fn used(&self) -> i64 {
        self.frames.load(Ordering::Relaxed)
    }

    fn since_checkpoint(&self) -> i64 {
        let used = self.used();
        // The WAL began again from its start.
        if used < self.done {
            used
        } else {
            used - self.done
        }
    }

    pub(super) fn wants_idle_checkpoint(&self) -> bool {
        self.since_checkpoint() > IDLE_FRAMES
    }

    pub(super) fn wants_checkpoint_now(&self) -> bool {
        self.since_checkpoint() > BUSY_FRAMES
    }

    /// Another process makes the checkpoints: look again after as much again.
    pub(super) fn not_ours(&mut self) {
        self.done = self.used();
    }

    /// Writes zeros beyond the file's end when little room is left there. Only under the write lock: then
    /// nobody else appends, and SQLite reads zeros as the end of the log.
    pub(super) fn make_room(&self) {
        let used = self.used();
        let (length, then) = self.seen.get();
        // A log that began again may have been cut: look again.
        let known = used >= then && room(length, used) >= SPARE;
        self.seen.set((length, used));
        if used < AHEAD_FROM || known {
            return;
        }
        let Ok(file) = OpenOptions::new().write(true).open(&self.path) else {
            return;
        };
        let Ok(length) = file.metadata().map(|meta| meta.len()) else {
            return;
        };
        let short = room(length, used) < SPARE;
        // Advice only: a full disk shows itself at the commit.
        let made = short && file.write_all_at(&vec![0; ROOM as usize], length).is_ok();
        self.seen
            .set((if made { length + ROOM } else { length }, used));
    }

    pub(super) fn checkpoint(&mut self, conn: &Connection) {
        let large = std::fs::metadata(&self.path).is_ok_and(|meta| meta.len() > CUT_FROM);
        let mode = if large {
            "PRAGMA wal_checkpoint(TRUNCATE)"
        } else {
            "PRAGMA wal_checkpoint(PASSIVE)"
        };
        let result = conn.query_row(mode, [], |row| row.get::<_, i64>(2));
        match result {
            Ok(folded) => self.done = folded.max(0),
            Err(error) => {
                tracing::debug!(%error, "a checkpoint was put off");
                self.done = self.used();
            }
        }
    }
}

/// Bytes of a WAL file beyond what is used.
fn room(length: u64, used: i64) -> i64 {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    length.saturating_sub(used.saturating_mul(FRAME) + 32)
}
