//! Calls that were stopped and whose processes may not be gone yet. The log moves on at once; the session's next call
//! in this process begins when they are, and other nodes are told how long to wait.

use super::living::{Alive, Living};
use crate::environment::Environment;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tenure_core::id::{CallId, MessageId, SessionId};
use tenure_tools::AtWork;
use tokio_util::sync::CancellationToken;

/// A group of calls that was stopped.
#[derive(Debug, Clone)]
pub(crate) struct Stopped {
    living: Living,
    /// Boot-clock milliseconds after which it is waited for no longer: what does not end by then does not end.
    until_ms: u64,
}

impl Stopped {
    async fn gone(&self, env: &dyn Environment) {
        let left = Duration::from_millis(self.until_ms.saturating_sub(env.boot_ms()));
        if !self.living.gone(env, left).await {
            tracing::error!(
                "a stopped tool has not ended in time; the session goes on without waiting"
            );
        }
    }
}

/// Waits until nothing of the groups is at work, or none of them is waited for any longer.
pub(crate) async fn all_gone(groups: &[Stopped], env: &dyn Environment) {
    for group in groups {
        group.gone(env).await;
    }
}

/// What sessions of this process left behind when they let go of their calls.
#[derive(Debug, Clone, Default)]
pub(crate) struct Behind(Arc<Mutex<Left>>);

#[derive(Debug, Default)]
struct Left {
    groups: BTreeMap<SessionId, Vec<Stopped>>,
    /// The epoch at which this node itself told the others to wait, and until when.
    told: BTreeMap<SessionId, (u64, u64)>,
}

impl Behind {
    fn left(&self) -> MutexGuard<'_, Left> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new group of calls, behind those that were left. What was stopped is waited for no longer than `longest`.
    pub fn group(
        &self,
        env: Arc<dyn Environment>,
        session: &SessionId,
        longest: Duration,
    ) -> Group {
        let mut before = self.left().groups.remove(session).unwrap_or_default();
        before.retain(|group| group.living.some());
        Group {
            behind: self.clone(),
            env,
            session: session.clone(),
            longest,
            living: Living::default(),
            since_ms: None,
            before,
            traces: Vec::new(),
        }
    }

    /// At this epoch, others were told to wait for what is waited for here by itself.
    pub fn told(&self, env: &dyn Environment, session: &SessionId, epoch: u64, quiet: Duration) {
        let now = env.boot_ms();
        let told = &mut self.left().told;
        // Whoever takes a session after that has nothing to wait for.
        told.retain(|_, (_, until)| *until > now);
        told.insert(session.clone(), (epoch, now + quiet.as_millis() as u64));
    }

    /// Is the wait that a tenure begins with this node's own word, with nobody in between?
    pub fn was_told(&self, session: &SessionId, epoch: u64) -> bool {
        let left = self.left();
        let told = left.told.get(session);
        told.is_some_and(|(at, _)| at + 1 == epoch)
    }
}

/// What one call started, as far as it may be at work yet.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    pub message: MessageId,
    pub call: CallId,
    own: Living,
    /// Whatever else waits for it: the node, and the calls that are stopped with it.
    others: [Living; 2],
    seen_to: Arc<AtomicBool>,
}

impl Trace {
    /// For whatever runs the call: it counts as left as long as somebody keeps this.
    pub fn at_work(&self) -> AtWork {
        let others = self.others.each_ref().map(Living::begin);
        AtWork::new((self.own.begin(), others))
    }

    /// May something of it be at work?
    pub fn some(&self) -> bool {
        self.own.some()
    }

    /// Waits until nothing of it is.
    pub async fn over(&self) {
        self.own.over().await;
    }

    /// True once: whoever asks first sees to its end.
    pub fn is_for_me(&self) -> bool {
        !self.seen_to.swap(true, Ordering::AcqRel)
    }
}

/// Calls of one session that are stopped together.
pub(crate) struct Group {
    behind: Behind,
    env: Arc<dyn Environment>,
    session: SessionId,
    longest: Duration,
    living: Living,
    since_ms: Option<u64>,
    before: Vec<Stopped>,
    /// Of the calls of this group, and of those before it that left something.
    traces: Vec<Trace>,
}

impl Group {
    /// A call begins; it is at work until the guard is dropped. What it starts is at work by its trace.
    pub fn begin(&mut self, message: &MessageId, call: &CallId, node: &Living) -> (Alive, Trace) {
        let trace = Trace {
            message: message.clone(),
            call: call.clone(),
            own: Living::default(),
            others: [node.clone(), self.living.clone()],
            seen_to: Arc::default(),
        };
        self.traces.push(trace.clone());
        (self.living.begin(), trace)
    }

    /// The calls of which something may be at work.
    pub fn left(&self) -> Vec<Trace> {
        let traces = self.traces.iter();
        traces.filter(|trace| trace.some()).cloned().collect()
    }

    /// The groups before this one, for [`all_gone`].
    pub fn before(&self) -> Vec<Stopped> {
        self.before.clone()
    }

    /// Its calls are told to stop, from now on.
    pub fn is_stopped(&mut self) {
        self.since_ms.get_or_insert(self.env.boot_ms());
    }

    /// What it began is left to itself.
    pub fn forget(&mut self) {
        self.traces.clear();
        self.living = Living::default();
        self.since_ms = None;
    }

    /// The calls from here on are a new group.
    pub fn next(&mut self) {
        let stopped = self.stopped();
        self.living = Living::default();
        self.since_ms = None;
        self.before = stopped;
        self.traces.retain(Trace::some);
    }

    /// Waits until nothing of this group and those before it is at work, at most so long and while nobody calls it
    /// off.
    pub async fn gone(&self, within: Duration, off: &CancellationToken) {
        let env = self.env.as_ref();
        let groups = self.stopped();
        tokio::select! {
            biased;
            () = all_gone(&groups, env) => {}
            () = off.cancelled() => {}
            () = env.sleep(within) => {}
        }
    }

    /// How long something of this group, or of those before it, may be at work yet.
    pub fn quiet(&self) -> Option<Duration> {
        let now = self.env.boot_ms();
        let until = self.stopped().iter().map(|group| group.until_ms).max()?;
        // However late it is: it is not known to be gone.
        Some(Duration::from_millis(until.saturating_sub(now).max(1)))
    }

    /// What is at work of this group and those before it.
    fn stopped(&self) -> Vec<Stopped> {
        let since = self.since_ms.unwrap_or_else(|| self.env.boot_ms());
        let mut groups = self.before.clone();
        groups.push(Stopped {
            living: self.living.clone(),
            until_ms: since + self.longest.as_millis() as u64,
        });
        groups.retain(|group| group.living.some());
        groups
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let stopped = self.stopped();
        if stopped.is_empty() {
            return;
        }
        let mut left = self.behind.left();
        left.groups.retain(|_, groups| {
            groups.retain(|group| group.living.some());
            !groups.is_empty()
        });
        let known = left.groups.entry(self.session.clone()).or_default();
        known.extend(stopped);
    }
}
