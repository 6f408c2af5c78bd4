//! A writer: it drains what waits, decides in memory, writes it in one flush, and tells everybody.
//!
//! It is a task of its own on a thread of its own, so that no caller's going away stops it between a commit and its
//! hooks. Appends have two, on one queue: while the server works on the batch of one, the other tells its callers,
//! gathers what they bring back, and decides it. A session is with one of them at a time.

use super::Shared;
use super::conn::{Conn, Use};
use super::failover;
use super::flight::Boarding;
use super::flush::{Batch, Broken, Draft, Won, flush};
use super::load::{Read, Wanted, load};
use super::queue::{Queue, Work};
use super::session::is_runnable;
use super::sql::params;
use super::trouble::Trouble;
use crate::hooks::Failure;
use crate::job::Asks;
use crate::machine::loaded::{Around, Changes, Loaded, Session};
use crate::machine::{Failure as Failed, Ran};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_core::id::SessionId;
use tokio_postgres::error::SqlState;

/// How often a session is tried again because others wrote it meanwhile.
const TRIES: u32 = 60;
/// From which try on a little time is left to the others.
const PATIENT: u32 = 5;
/// Between attempts to reach a server that cannot be reached.
const BACK_OFF: Duration = Duration::from_millis(250);
/// How long it waits after a shared commit for those just answered to come back: half of what that batch took, within
/// these bounds.
const GATHER: (Duration, Duration) = (Duration::from_micros(150), Duration::from_millis(2));
/// How often it looks whether they do. The system makes some 80 µs of it.
const GLANCE: Duration = Duration::from_micros(30);
/// After so many looks at which nobody came it goes on without them.
const LOOKS: u32 = 2;

/// Locks of whole tables that keep writers out, those that are waited for included: whoever comes later waits behind.
const BARRIER: &str = "SELECT c.relname::TEXT, l.pid, coalesce(nullif(a.application_name, ''), 'without a name') \
     FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace \
     LEFT JOIN pg_stat_activity a ON a.pid = l.pid WHERE n.nspname = $1 AND l.locktype = 'relation' \
     AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND l.mode IN \
     ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') \
     AND l.pid <> pg_backend_pid() ORDER BY l.granted DESC LIMIT 1";

/// Who holds the row of a session: the transaction that its latest version names. A row that several share, for reading
/// alone, names none.
const HOLDER: &str = "SELECT l.pid, coalesce(nullif(a.application_name, ''), 'without a name'), \
     to_char(a.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') FROM @.session s \
     JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = s.xmax AND l.granted \
     LEFT JOIN pg_stat_activity a ON a.pid = l.pid WHERE s.id = $1 AND l.pid <> pg_backend_pid() LIMIT 1";

/// Writers of interrupts: while one waits for a row that somebody holds, the other one goes on.
pub(super) const INTERRUPTERS: usize = 2;
/// Writers of appends.
pub(super) const APPENDERS: usize = 2;

/// What a writer works for.
pub(super) struct Role {
    pub(super) purpose: Use,
    /// Which of the queues it drains.
    pub(super) queue: fn(&Shared) -> &Queue,
    /// Its batches have hooks, which readers wait for.
    pub(super) hooks: bool,
}

/// Appends and everything that keeps their order.
pub(super) const APPENDS: Role = Role {
    purpose: Use::Write,
    queue: |shared| &shared.queue,
    hooks: true,
};

/// Interrupts: never behind a full batch.
pub(super) const INTERRUPTS: Role = Role {
    purpose: Use::Control,
    queue: |shared| &shared.control,
    hooks: false,
};

/// The jobs of one session, in order, and how each went.
struct Group {
    session: SessionId,
    jobs: Vec<Work>,
    asks: Vec<Asks>,
    outcomes: Vec<Outcome>,
    /// Memory was not enough: read it again.
    fresh: bool,
    /// Reading it failed once already.
    reread: bool,
    tries: u32,
}

enum Outcome {
    Ran(Ran),
    Failed(String),
}

impl Group {
    fn fail(mut self, failure: &Failure) {
        self.jobs.iter_mut().for_each(|job| job.fail(failure));
    }

    /// Nothing was written, and the connection is gone: it may be tried once more, on a new one.
    fn reread(mut self, trouble: &Trouble) -> Option<Self> {
        if self.reread {
            self.fail(&not_read(trouble));
            return None;
        }
        (self.reread, self.fresh) = (true, true);
        Some(self)
    }
}

fn not_read(trouble: &Trouble) -> Failure {
    Failure {
        unknown: false,
        reason: trouble.words(),
    }
}

/// A group with its session as it is remembered (true) or was just read, and what is around it.
type Seen = (Group, Session, Around, bool);

/// Gives each group what was read for it; one whose session is damaged is told so.
fn settle(read: &mut Vec<Seen>, groups: Vec<Group>, found: Vec<Read>) {
    for (group, found) in groups.into_iter().zip(found) {
        match found.session {
            Ok(session) => read.push((group, session, found.around, false)),
            Err(damaged) => group.fail(&Failure {
                unknown: false,
                reason: damaged.0,
            }),
        }
    }
}

/// A group that ran, and what is to be written of it.
struct Ready {
    group: Group,
    draft: Draft,
}

pub(super) struct Writer {
    shared: Arc<Shared>,
    role: Role,
    /// Which of its role's writers it is.
    number: usize,
    conn: Option<Conn>,
    /// The connection's name on the server.
    named: String,
    failed: Option<Instant>,
    jitter: u64,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, role: Role, number: usize) -> Self {
        Self {
            shared,
            role,
            number,
            conn: None,
            named: String::new(),
            failed: None,
            jitter: u64::from(std::process::id()) << 16 | (2 * number as u64 + 1),
        }
    }

    /// Works until the queue is closed and empty.
    pub(super) async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let queue = (self.role.queue)(&shared);
        let (mut last, mut took) = (0, Duration::ZERO);
        while queue.wait(self.number).await {
            // A test may hold the writer back, so that what it queues lands in one batch.
            if self.role.hooks {
                drop(shared.hold.lock().await);
                gather(queue, last, took);
            }
            // A helper that reaches no server leaves the work to the first, whose connection may be good.
            if self.number > 0 && self.connect().await.is_err() {
                continue;
            }
            let jobs = queue.take(self.number);
            last = jobs.len();
            let began = Instant::now();
            self.batch(jobs).await;
            took = began.elapsed();
            queue.done(self.number);
        }
    }

    fn id(&self) -> failover::Writer {
        (self.role.purpose, self.number)
    }

    /// Its events' ids are this writer's, if nobody has one of them.
    fn board(&self, done: &Ready) -> Boarding {
        let events = &done.draft.changes.events;
        let ids = events.iter().map(|written| &written.event.id);
        self.shared.flight.board(self.id(), ids)
    }

    fn queue(&self) -> &Queue {
        (self.role.queue)(&self.shared)
    }

    async fn batch(&mut self, jobs: Vec<Work>) {
        let stuck = self.queue().held();
        let (apart, groups) = group(jobs)
            .into_iter()
            .partition(|group| stuck.contains(&group.session));
        self.groups(groups).await;
        // Each by itself and not for long: what holds them holds nobody else.
        let apart: Vec<Group> = apart;
        for group in apart {
            self.groups(vec![group]).await;
        }
    }

    /// Tries until every one of them was told.
    async fn groups(&mut self, mut groups: Vec<Group>) {
        while !groups.is_empty() {
            let patient = groups.iter().any(|group| group.tries >= PATIENT);
            if patient {
                tokio::time::sleep(self.pause()).await;
            }
            groups = self.round(groups).await;
        }
    }

    /// A short random pause.
    fn pause(&mut self) -> Duration {
        self.jitter ^= self.jitter << 13;
        self.jitter ^= self.jitter >> 7;
        self.jitter ^= self.jitter << 17;
        Duration::from_micros(500 + self.jitter % 4_000)
    }

    /// One try at all of them; those to be tried again.
    async fn round(&mut self, groups: Vec<Group>) -> Vec<Group> {
        if let Err(reason) = self.connect().await {
            let failure = Failure {
                unknown: false,
                reason,
            };
            groups.into_iter().for_each(|group| group.fail(&failure));
            return Vec::new();
        }
        let read = match self.read(groups).await {
            Ok(read) => read,
            Err(again) => return again,
        };
        let alone = read.len() == 1 && read[0].0.jobs.len() == 1;
        let (mut again, mut ready) = (Vec::new(), Vec::new());
        // Until the other writer's batch is over, whatever it comes to.
        let (mut landings, mut behind) = (self.shared.flight.landings(), false);
        for (group, session, around, assumed) in read {
            match self.decide(group, session, &around, assumed) {
                Ok(mut done) => {
                    done.draft.nodes = around.nodes;
                    done.draft.shared = around.events.into_keys().collect();
                    // One id in two logs: the second must see the first.
                    let boarding = self.board(&done);
                    if boarding == Boarding::Taken {
                        ready.push(done);
                    } else {
                        behind |= boarding == Boarding::Others;
                        done.group.fresh = true;
                        again.push(done.group);
                    }
                }
                Err(group) => again.push(group),
            }
        }
        let refused = |done: &Ready| {
            let mut outcomes = done.group.outcomes.iter();
            outcomes.any(|outcome| !matches!(outcome, Outcome::Ran(Ran::Wrote)))
        };
        if !alone && ready.iter().any(refused) && broken!(self.shared.switches, RefusalHarmsBatch) {
            let failure = Failure {
                unknown: false,
                reason: "a neighbour was refused (test)".to_owned(),
            };
            ready.into_iter().for_each(|done| done.group.fail(&failure));
            self.shared.flight.land(self.id());
            return again;
        }
        again.extend(self.write(ready).await);
        if behind {
            let _ = landings.changed().await;
        }
        let (again, hopeless): (Vec<_>, Vec<_>) =
            again.into_iter().partition(|group| group.tries < TRIES);
        let failure = Failure {
            unknown: false,
            reason: "too many write this session at once; try again".to_owned(),
        };
        hopeless.into_iter().for_each(|group| group.fail(&failure));
        again
    }

    /// Takes the sessions from memory, or reads them. Errors: groups to be tried again; the others were told.
    async fn read(&mut self, groups: Vec<Group>) -> Result<Vec<Seen>, Vec<Group>> {
        let lease_ms = self.shared.lease_ms();
        let (mut read, mut wanted, mut missing) = (Vec::new(), Vec::new(), Vec::new());
        for mut group in groups {
            group.tries += 1;
            let cached = if group.fresh {
                None
            } else {
                self.shared.cache.take(&group.session)
            };
            match cached {
                Some(session) => {
                    let around = Around {
                        lease_ms,
                        ..Around::default()
                    };
                    read.push((group, session, around, true));
                }
                None => {
                    wanted.push(Wanted {
                        session: group.session.clone(),
                        asks: group.asks.clone(),
                    });
                    missing.push(group);
                }
            }
        }
        if missing.is_empty() {
            return Ok(read);
        }
        match self.load(&wanted).await {
            Ok(found) => {
                settle(&mut read, missing, found);
                Ok(read)
            }
            Err(trouble) if trouble.is_lost() => {
                self.lose(&trouble.words());
                let groups = read.into_iter().map(|(group, ..)| group).chain(missing);
                Err(groups.filter_map(|group| group.reread(&trouble)).collect())
            }
            // Reading locks no row: somebody has a whole table, and everybody would wait for it in turn.
            Err(trouble) if trouble.is(&SqlState::LOCK_NOT_AVAILABLE) => {
                let failure = Failure {
                    unknown: false,
                    reason: self.barrier().await.unwrap_or_else(|| trouble.words()),
                };
                missing.into_iter().for_each(|group| group.fail(&failure));
                Ok(read)
            }
            // R12: what the server refused may be one of them; the others must not pay.
            Err(trouble) if missing.len() > 1 && !trouble.is_for_all() => {
                let mut again = Vec::new();
                for (group, wanted) in missing.into_iter().zip(wanted) {
                    match self.load(&[wanted]).await {
                        Ok(found) => settle(&mut read, vec![group], found),
                        Err(trouble) if trouble.is_lost() => again.extend(group.reread(&trouble)),
                        Err(trouble) => group.fail(&not_read(&trouble)),
                    }
                }
                if again.is_empty() {
                    return Ok(read);
                }
                self.lose("it went while sessions were read");
                again.extend(read.into_iter().map(|(group, ..)| group));
                Err(again)
            }
            Err(trouble) => {
                let failure = not_read(&trouble);
                missing.into_iter().for_each(|group| group.fail(&failure));
                Ok(read)
            }
        }
    }

    /// Reads sessions from the server.
    async fn load(&self, wanted: &[Wanted]) -> Result<Vec<Read>, Trouble> {
        let Some(conn) = &self.conn else {
            return Err(Trouble::lost("there is no connection"));
        };
        let before_ms = self.shared.clock.boottime_ms();
        let found = load(conn, self.role.purpose, wanted).await?;
        if let Some(first) = found.first() {
            self.shared.see_lease(first.around.lease_ms - before_ms);
        }
        Ok(found)
    }

    /// Runs the jobs of a session. Errors: memory was not enough.
    fn decide(
        &self,
        mut group: Group,
        session: Session,
        around: &Around,
        assumed: bool,
    ) -> Result<Ready, Group> {
        let before = session.head.clone();
        let was_runnable = before
            .as_ref()
            .is_some_and(|head| is_runnable(&session, head));
        let (mut session, mut changes) = (session, Changes::default());
        group.outcomes.clear();
        let several = group.jobs.len() > 1;
        for job in &mut group.jobs {
            // A refused job is undone by going on with what was before it.
            let kept = several.then(|| (session.clone(), changes.clone()));
            let loaded = Loaded::new(
                &group.session,
                session,
                changes,
                around,
                &self.shared.switches,
            );
            let ran = catch_unwind(AssertUnwindSafe(|| job.run(&loaded)));
            let outcome = match ran {
                Ok(Ok(ran)) => Outcome::Ran(ran),
                Ok(Err(Failed::Sqlite(error))) => Outcome::Failed(error.to_string()),
                Err(_) => Outcome::Failed("an internal error; the log says where".to_owned()),
            };
            let wrote = matches!(outcome, Outcome::Ran(Ran::Wrote));
            if !wrote && assumed {
                group.fresh = true;
                return Err(group);
            }
            (session, changes) = match (wrote, kept) {
                (true, _) => loaded.into_parts(),
                (false, Some(kept)) => kept,
                (false, None) => (Session::default(), Changes::default()),
            };
            group.outcomes.push(outcome);
        }
        Ok(Ready {
            group,
            draft: Draft {
                before,
                was_runnable,
                session,
                changes,
                nodes: Default::default(),
                shared: Default::default(),
            },
        })
    }

    /// Writes what changed and tells everybody; those whose session moved meanwhile come back.
    async fn write(&mut self, ready: Vec<Ready>) -> Vec<Group> {
        let (mut groups, mut drafts, mut done) = (Vec::new(), Vec::new(), Vec::new());
        for one in ready {
            if one.draft.changes.head {
                groups.push(one.group);
                drafts.push(one.draft);
            } else {
                done.push(one.group);
            }
        }
        let mut again = Vec::new();
        let sessions = groups.iter().map(|group| group.session.clone());
        let flushed = self.flush(sessions.collect(), &drafts).await;
        self.shared.flight.land(self.id());
        match flushed {
            Ok(won) => {
                for (mut group, draft) in groups.into_iter().zip(drafts) {
                    let sid = draft.session.head.as_ref().map(|head| head.sid);
                    match sid.and_then(|sid| won.get(&sid)) {
                        Some(activity) => {
                            self.queue().unstick(&group.session);
                            self.remember(draft, *activity);
                            done.push(group);
                        }
                        None => {
                            group.fresh = true;
                            again.push(group);
                        }
                    }
                }
                self.tell(done);
            }
            Err(broken) => {
                self.open();
                self.tell(done);
                self.broke(broken, groups).await;
            }
        }
        again
    }

    /// Readers may see what the last flush wrote.
    fn open(&self) {
        if self.role.hooks {
            self.shared.gate.wing(self.number).open();
        }
    }

    async fn flush(&self, sessions: Vec<SessionId>, drafts: &[Draft]) -> Result<Won, Broken> {
        if drafts.is_empty() {
            return Ok(Won::new());
        }
        let Some(conn) = &self.conn else {
            return Err(Broken::NotBegun("there is no connection".to_owned()));
        };
        let trusting = broken!(self.shared.switches, NotIdempotent);
        let batch = Batch::new(conn, drafts, trusting);
        let fault = self.shared.take_fault();
        let stuck = self.queue().held();
        let hurried = sessions.iter().any(|id| stuck.contains(id));
        if self.role.hooks {
            let wing = self.shared.gate.wing(self.number);
            wing.close(sessions.into_iter());
        }
        flush(conn, self.role.purpose, &batch, fault, hurried).await
    }

    /// Keeps what was written, for the next write.
    fn remember(&self, draft: Draft, activity: i64) {
        let mut session = draft.session;
        if let Some(head) = &mut session.head {
            head.activity = activity;
            self.shared.owned.note(head, self.id());
        }
        self.shared.cache.put(session);
    }

    /// Hooks of all, then replies, then wakes: nobody who is told of one can see another before its hook.
    fn tell(&self, mut done: Vec<Group>) {
        for group in &mut done {
            for (job, outcome) in group.jobs.iter_mut().zip(&group.outcomes) {
                if matches!(outcome, Outcome::Ran(Ran::Wrote)) {
                    job.committed();
                }
            }
        }
        self.open();
        let mut wakes: Vec<SessionId> = Vec::new();
        for group in &done {
            for (job, outcome) in group.jobs.iter().zip(&group.outcomes) {
                if matches!(outcome, Outcome::Ran(Ran::Wrote)) {
                    wakes.extend(job.wakes().iter().cloned());
                }
            }
        }
        let early = [
            broken!(self.shared.switches, HookAfterNotify),
            broken!(self.shared.switches, FollowSubscribesLate),
        ]
        .contains(&true);
        if early {
            self.shared.wake(&wakes);
        }
        for group in &mut done {
            for (job, outcome) in group.jobs.iter_mut().zip(&group.outcomes) {
                match outcome {
                    Outcome::Ran(_) => job.reply(),
                    Outcome::Failed(reason) => job.fail(&Failure {
                        unknown: false,
                        reason: reason.clone(),
                    }),
                }
            }
        }
        if !early {
            self.shared.wake(&wakes);
        }
    }

    /// A flush that came to nothing, or of which nobody knows.
    async fn broke(&mut self, broken: Broken, groups: Vec<Group>) {
        let failure = match broken {
            Broken::Aborted(trouble) => {
                let jobs: usize = groups.iter().map(|group| group.jobs.len()).sum();
                let late = trouble.is(&SqlState::LOCK_NOT_AVAILABLE);
                let barrier = if late { self.barrier().await } else { None };
                if late && barrier.is_none() {
                    let held = groups.iter().map(|group| group.session.clone());
                    self.queue().stick(held);
                }
                if jobs > 1 && barrier.is_none() && !trouble.is_for_all() {
                    // R12: what made it fail may be one of them; the others must not pay.
                    for job in groups.into_iter().flat_map(|group| group.jobs) {
                        Box::pin(self.batch(vec![job])).await;
                    }
                    return;
                }
                let alone = match &groups[..] {
                    [one] if late && barrier.is_none() => Some(one.session.clone()),
                    _ => None,
                };
                let holder = match alone {
                    Some(session) => self.holder(&session).await,
                    None => None,
                };
                Failure {
                    unknown: false,
                    reason: barrier.or(holder).unwrap_or_else(|| trouble.words()),
                }
            }
            Broken::NotBegun(reason) => {
                self.lose(&reason);
                Failure {
                    unknown: false,
                    reason,
                }
            }
            Broken::Unknown(reason) => {
                self.lose(&reason);
                Failure {
                    unknown: true,
                    reason,
                }
            }
        };
        let sessions: Vec<SessionId> = groups.iter().map(|group| group.session.clone()).collect();
        self.shared.cache.forget(sessions.iter());
        groups.into_iter().for_each(|group| group.fail(&failure));
        if failure.unknown {
            self.shared.wake(&sessions);
        }
    }

    /// Who has a whole table, or stands before everybody in the line for one, in words. Then no batch gets through,
    /// and trying its sessions one by one would make each wait as long as all of them.
    async fn barrier(&self) -> Option<String> {
        let conn = self.conn.as_ref()?;
        let schema = conn.dialect().schema().trim_matches('"').to_owned();
        let found = conn.first(BARRIER, params![TEXT: schema]).await.ok()??;
        let (table, pid, name): (String, i32, String) = (found.get(0), found.get(1), found.get(2));
        Some(format!(
            "the whole table `{table}` is locked by the server's process {pid} ({name}); it has to end its \
             transaction, or `SELECT pg_terminate_backend({pid})` ends it"
        ))
    }

    /// Who holds a session's row and does not let go, in words.
    async fn holder(&self, session: &SessionId) -> Option<String> {
        let conn = self.conn.as_ref()?;
        let params = params![TEXT: session.as_str()];
        let found = conn.first(HOLDER, params).await.ok()??;
        let (pid, name): (i32, String) = (found.get(0), found.get(1));
        // Of other users' connections not everybody is told everything.
        let since: Option<String> = found.get(2);
        let since = since.map_or_else(String::new, |at| format!(" since {at} UTC"));
        Some(format!(
            "session {session} is locked by the server's process {pid} ({name}){since}; it has to end its transaction, or \
             `SELECT pg_terminate_backend({pid})` ends it"
        ))
    }

    /// A connection whose answer was lost is not trusted again.
    fn lose(&mut self, reason: &str) {
        if let Some(conn) = self.conn.take() {
            tracing::warn!(reason, "a writer's connection was lost");
            conn.cut();
        }
    }

    /// Makes sure of a connection to a server that writes.
    async fn connect(&mut self) -> Result<(), String> {
        if self.conn.as_ref().is_some_and(Conn::is_closed) {
            self.conn = None;
        }
        let name = self.shared.name();
        if let Some(conn) = &self.conn {
            if self.named == name {
                return Ok(());
            }
            // Whoever finds this process's node dead finds its connections by its name.
            if conn.rename(&name).await.is_ok() {
                self.named = name;
                return Ok(());
            }
            self.conn = None;
        }
        if let Some(failed) = self.failed {
            tokio::time::sleep(BACK_OFF.saturating_sub(failed.elapsed())).await;
        }
        match self
            .shared
            .connect_writer(self.role.purpose, self.number, &name)
            .await
        {
            Ok(conn) => {
                self.named = name;
                self.failed = None;
                self.conn = Some(conn);
                Ok(())
            }
            Err(reason) => {
                self.failed = Some(Instant::now());
                Err(reason)
            }
        }
    }
}

/// When several were answered together they come back together: a moment's patience shares the next flush among
/// them, and what a batch costs however small it is. With one caller at a time there is no wait at all. It blocks the
/// writer's own thread, on which nothing else is under way then.
fn gather(queue: &Queue, last: usize, took: Duration) {
    if last < 2 {
        return;
    }
    let until = Instant::now() + (took / 2).clamp(GATHER.0, GATHER.1);
    let ((mut come, share), mut looks) = (queue.waiting(), 0);
    while come < share && looks < LOOKS && Instant::now() < until {
        // tidy: sleep ok because the callers need the core meanwhile, and a timer of the runtime is too coarse.
        std::thread::sleep(GLANCE);
        let (now, _) = queue.waiting();
        looks = if now > come { 0 } else { looks + 1 };
        come = now;
    }
}

/// By session, each one's jobs in their order.
fn group(jobs: Vec<Work>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut places: HashMap<SessionId, usize> = HashMap::new();
    for job in jobs {
        let Some(session) = job.session().cloned() else {
            continue;
        };
        let asks = job.asks();
        let place = *places.entry(session.clone()).or_insert_with(|| {
            groups.push(Group {
                session,
                jobs: Vec::new(),
                asks: Vec::new(),
                outcomes: Vec::new(),
                fresh: false,
                reread: false,
                tries: 0,
            });
            groups.len() - 1
        });
        groups[place].fresh |= asks.fresh;
        groups[place].asks.push(asks);
        groups[place].jobs.push(job);
    }
    groups
}
