//! The one writer thread: it drains what waits, runs it in one transaction, commits once, tells everybody.

use super::SharedState;
use super::Work;
use super::locks::{Held, Holder, HolderFile, Verdict, judge};
use super::open::{Role, connect};
use super::queue::Next;
use super::tx::Tx;
use super::wal::Wal;
use crate::hooks::Failure;
use crate::machine::{Failure as Failed, Ran};
use rusqlite::{Connection, ErrorCode};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the write lock of other processes is waited for.
const WAIT_FOR_LOCK: Duration = Duration::from_secs(60);
/// After how long a holder that does not move is looked at (R6): a lease.
const HOLDER_LEASE: Duration = Duration::from_secs(6);
/// How long the writer waits for work before it looks after the WAL.
const IDLE: Duration = Duration::from_millis(200);
/// How long it watches the line after a shared commit, for those just answered to come back.
const GATHER: Duration = Duration::from_micros(120);

/// Why a transaction came to nothing.
enum Broken {
    /// Rolled back: nothing of it is there. Worth trying one by one.
    Aborted(String),
    /// COMMIT failed below SQLite: nobody knows.
    Unknown(String),
    /// Not begun.
    NotBegun(String),
}

/// How each job of a transaction went.
enum Outcome {
    Ran(Ran),
    Failed(String),
}

pub(super) struct Writer {
    shared: Arc<SharedState>,
    conn: Option<Connection>,
    boot_id: String,
    holder: Option<HolderFile>,
    checkpointer: Option<Held>,
    wal: Wal,
    jitter: u64,
}

impl Writer {
    pub(super) fn new(shared: Arc<SharedState>, mut conn: Connection) -> Self {
        let mut wal = Wal::new(&shared.path);
        wal.attach(&mut conn);
        Self {
            boot_id: shared.clock.boot_id(),
            holder: shared.locks.holder().ok(),
            checkpointer: None,
            wal,
            jitter: u64::from(std::process::id()) << 16 | 1,
            conn: Some(conn),
            shared,
        }
    }

    /// Works until the queue is closed and empty.
    pub(super) fn run(mut self) {
        let mut last = 0;
        loop {
            self.gather(last);
            let idle = self.wal.wants_idle_checkpoint().then_some(IDLE);
            match self.shared.queue.next(idle) {
                Next::Jobs(jobs) => {
                    last = jobs.len();
                    self.batch(jobs);
                    if self.wal.wants_checkpoint_now() {
                        self.checkpoint();
                    }
                }
                Next::Idle => self.checkpoint(),
                Next::Closed => break,
            }
        }
        if self.wal.wants_idle_checkpoint() {
            self.checkpoint();
        }
    }

    /// When several were answered together they come back together: a moment's patience shares the next
    /// flush among them. With one caller at a time there is no wait at all.
    fn gather(&self, last: usize) {
        if last < 2 {
            return;
        }
        let until = Instant::now() + GATHER;
        while self.shared.queue.len() < last && Instant::now() < until {
            std::thread::yield_now();
        }
    }

    fn batch(&mut self, mut jobs: Vec<Work>) {
        match self.transaction(&mut jobs) {
            Ok(outcomes) => self.tell(jobs, outcomes),
            Err(Broken::Aborted(_)) if jobs.len() > 1 => {
                // R12: what made it fail may be one of them; the others must not pay.
                for job in jobs {
                    self.batch(vec![job]);
                }
            }
            Err(Broken::Aborted(reason) | Broken::NotBegun(reason)) => {
                let failure = Failure {
                    unknown: false,
                    reason,
                };
                jobs.iter_mut().for_each(|job| job.fail(&failure));
            }
            Err(Broken::Unknown(reason)) => {
                self.reopen();
                let failure = Failure {
                    unknown: true,
                    reason,
                };
                jobs.iter_mut().for_each(|job| job.fail(&failure));
                self.wake(&jobs);
            }
        }
    }

    /// Hooks of all, then replies, then wakes: nobody who is told of one can see another before its hook.
    fn tell(&self, mut jobs: Vec<Work>, outcomes: Vec<Outcome>) {
        for (job, outcome) in jobs.iter_mut().zip(&outcomes) {
            if matches!(outcome, Outcome::Ran(Ran::Wrote)) {
                job.committed();
            }
        }
        self.shared.gate.open();
        let early = [
            broken!(self.shared.switches, HookAfterNotify),
            broken!(self.shared.switches, FollowSubscribesLate),
        ]
        .contains(&true);
        if early {
            self.wake(&jobs);
        }
        for (job, outcome) in jobs.iter_mut().zip(&outcomes) {
            match outcome {
                Outcome::Ran(_) => job.reply(),
                Outcome::Failed(reason) => job.fail(&Failure {
                    unknown: false,
                    reason: reason.clone(),
                }),
            }
        }
        if early {
            return;
        }
        let mut woken = jobs;
        let mut wrote = outcomes
            .iter()
            .map(|o| matches!(o, Outcome::Ran(Ran::Wrote)));
        woken.retain(|_| wrote.next().unwrap_or(false));
        self.wake(&woken);
    }

    fn wake(&self, jobs: &[Work]) {
        if !jobs.is_empty() {
            self.shared
                .watchers
                .wake(jobs.iter().flat_map(|job| job.wakes()));
        }
    }

    fn transaction(&mut self, jobs: &mut [Work]) -> Result<Vec<Outcome>, Broken> {
        self.begin()?;
        let Some(conn) = &self.conn else {
            return Err(Broken::NotBegun(NO_CONNECTION.to_owned()));
        };
        let clock = &self.shared.clock;
        let boot_ms = clock.boottime_ms();
        if let Some(holder) = &self.holder {
            holder.note(boot_ms);
        }
        let tx = Tx {
            conn,
            boot_ms,
            wall_ms: clock.wall_ms(),
            boot_id: &self.boot_id,
            switches: &self.shared.switches,
        };
        let result = run_all(&tx, jobs).and_then(|outcomes| self.end(conn, outcomes));
        if let Some(holder) = &self.holder {
            holder.clear();
        }
        if result.is_err() {
            self.shared.gate.open();
            if let Some(conn) = &self.conn
                && !conn.is_autocommit()
            {
                let _ = conn.execute_batch("ROLLBACK");
            }
        }
        result
    }

    /// Commits when something was written, else rolls back: a refusal costs no flush.
    fn end(&self, conn: &Connection, outcomes: Vec<Outcome>) -> Result<Vec<Outcome>, Broken> {
        let wrote = outcomes
            .iter()
            .any(|outcome| matches!(outcome, Outcome::Ran(Ran::Wrote)));
        if !wrote {
            return match step(conn, "ROLLBACK") {
                Ok(()) => Ok(outcomes),
                Err(error) => Err(Broken::Aborted(words(&error))),
            };
        }
        self.wal.make_room();
        self.shared.gate.close();
        let fault = self.shared.take_fault();
        if fault == Some(super::Fault::CommitLost) {
            return Err(Broken::Unknown("the commit was lost (test)".to_owned()));
        }
        match step(conn, "COMMIT") {
            Ok(()) if fault == Some(super::Fault::AnswerLost) => {
                Err(Broken::Unknown("the answer was lost (test)".to_owned()))
            }
            Ok(()) => Ok(outcomes),
            // Without room the commit record was not written: the transaction is not there.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
                Err(Broken::Aborted(words(&error)))
            }
            Err(error) => Err(Broken::Unknown(words(&error))),
        }
    }

    /// Takes the write lock, waiting for other processes with jitter, not for ever.
    fn begin(&mut self) -> Result<(), Broken> {
        if self.conn.is_none() {
            self.reopen();
        }
        let started = Instant::now();
        let mut seen: Option<(Holder, Instant)> = None;
        loop {
            let Some(conn) = &self.conn else {
                return Err(Broken::NotBegun(NO_CONNECTION.to_owned()));
            };
            let error = match step(conn, "BEGIN IMMEDIATE") {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let busy = matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
            );
            if !busy {
                return Err(Broken::NotBegun(words(&error)));
            }
            let waited = started.elapsed();
            if waited > HOLDER_LEASE && !broken!(self.shared.switches, HolderNotJudged) {
                self.look_at_holder(&mut seen)?;
            }
            if waited > WAIT_FOR_LOCK {
                return Err(Broken::NotBegun(self.who_holds()));
            }
            std::thread::sleep(self.pause(waited));
        }
    }

    /// A short random pause that grows a little with the wait.
    fn pause(&mut self, waited: Duration) -> Duration {
        self.jitter ^= self.jitter << 13;
        self.jitter ^= self.jitter >> 7;
        self.jitter ^= self.jitter << 17;
        let most = if waited < Duration::from_millis(50) {
            1_000
        } else {
            4_000
        };
        Duration::from_micros(100 + self.jitter % most)
    }

    fn look_at_holder(&self, seen: &mut Option<(Holder, Instant)>) -> Result<(), Broken> {
        let Some(now) = self.holder.as_ref().and_then(HolderFile::read) else {
            *seen = None;
            return Ok(());
        };
        match seen {
            Some((holder, since)) if *holder == now => {
                // It was seen for the whole lease already when its hold began before this wait did.
                let held = self.shared.clock.boottime_ms() - now.since_ms;
                let lease = HOLDER_LEASE.as_millis() as i64;
                if held > lease && since.elapsed() > Duration::from_millis(50) {
                    *since = Instant::now();
                    match judge(&now) {
                        Verdict::Killed => tracing::warn!(
                            pid = now.pid,
                            "ended a process that held the write lock and did not move"
                        ),
                        Verdict::Tell(what) => return Err(Broken::NotBegun(what)),
                        Verdict::Wait => {}
                    }
                }
            }
            _ => *seen = Some((now, Instant::now())),
        }
        Ok(())
    }

    fn who_holds(&self) -> String {
        match self.holder.as_ref().and_then(HolderFile::read) {
            Some(holder) => format!(
                "process {} has held the write lock for a minute; if it hangs, `kill {}`",
                holder.pid, holder.pid
            ),
            None => {
                "another process has held the write lock for a minute; `fuser` on the file names it"
                    .to_owned()
            }
        }
    }

    /// A connection whose flush failed is not trusted again.
    fn reopen(&mut self) {
        self.conn = None;
        match connect(&self.shared.path, Role::Write) {
            Ok(mut conn) => {
                self.wal.attach(&mut conn);
                self.conn = Some(conn);
            }
            Err(error) => tracing::error!(%error, "the store could not be opened again"),
        }
    }

    /// Folds the WAL back, if this process is the one that does, or can become it.
    fn checkpoint(&mut self) {
        if self.checkpointer.is_none() {
            self.checkpointer = self.shared.locks.try_take("checkpoint.lock").ok().flatten();
        }
        let (Some(_), Some(conn)) = (&self.checkpointer, &self.conn) else {
            self.wal.not_ours();
            return;
        };
        self.wal.checkpoint(conn);
    }
}

const NO_CONNECTION: &str =
    "the file could not be opened again after a failure; check the disk and restart";

/// One cached statement without rows.
pub(super) fn step(conn: &Connection, sql: &str) -> rusqlite::Result<()> {
    conn.prepare_cached(sql)?.execute([]).map(|_| ())
}

/// What SQLite said, and what to do about it.
pub(super) fn words(error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "the disk is full; free some space and try again".to_owned(),
        Some(ErrorCode::SystemIoFailure) => {
            format!("{error}; check the disk and the space left on it, then try again")
        }
        Some(ErrorCode::ReadOnly) => format!("{error}; check the file's owner and mode"),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            format!("{error}; `tenure doctor` says more")
        }
        _ => error.to_string(),
    }
}

/// Runs the jobs, each within its own savepoint when there are several.
fn run_all(tx: &Tx<'_>, jobs: &mut [Work]) -> Result<Vec<Outcome>, Broken> {
    let alone = jobs.len() == 1;
    let aborted = |error: rusqlite::Error| Broken::Aborted(words(&error));
    let mut outcomes = Vec::with_capacity(jobs.len());
    for job in jobs {
        if !alone {
            step(tx.conn, "SAVEPOINT job").map_err(aborted)?;
        }
        let ran = catch_unwind(AssertUnwindSafe(|| job.run(tx)));
        let outcome = match ran {
            Ok(Ok(ran)) => Outcome::Ran(ran),
            Ok(Err(Failed::Sqlite(error))) if tx.conn.is_autocommit() => {
                return Err(aborted(error));
            }
            Ok(Err(Failed::Sqlite(error))) => Outcome::Failed(words(&error)),
            Err(_) => Outcome::Failed("an internal error; the log says where".to_owned()),
        };
        let refused = !matches!(outcome, Outcome::Ran(Ran::Wrote));
        if refused && !alone && broken!(tx.switches, RefusalHarmsBatch) {
            return Err(Broken::NotBegun(
                "a neighbour was refused (test)".to_owned(),
            ));
        }
        if !alone {
            if refused {
                step(tx.conn, "ROLLBACK TO job").map_err(aborted)?;
            }
            step(tx.conn, "RELEASE job").map_err(aborted)?;
        }
        outcomes.push(outcome);
    }
    Ok(outcomes)
}
