//! How many calls of a step are on their way, and how many of them wait for an answer: who drains may give the step
//! away when all do.

use tokio::sync::watch;

/// The calls that are on their way.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(in crate::runner) struct Counts {
    pub(super) running: usize,
    /// How many of them wait for an answer.
    asking: usize,
    /// No call that waits may begin any more.
    held: bool,
}

impl Counts {
    /// Holds the calls when all of them wait.
    pub(super) fn hold(&mut self) -> bool {
        let all = self.running > 0 && self.running == self.asking;
        self.held |= all;
        all
    }
}

/// How the calls of a step came to rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runner) enum Rest {
    /// None is left.
    Idle,
    /// All that are left wait for answers, and are held.
    AllAsk,
}

/// Counts a task out however it ends.
pub(super) struct Done {
    counts: watch::Sender<Counts>,
}

impl Done {
    pub(super) fn of(counts: &watch::Sender<Counts>) -> Self {
        Self {
            counts: counts.clone(),
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        self.counts.send_modify(|counts| counts.running -= 1);
    }
}

/// Counts a call among those that wait for an answer.
pub(in crate::runner) struct Asking<'a> {
    counts: &'a watch::Sender<Counts>,
}

impl<'a> Asking<'a> {
    pub(in crate::runner) fn begin(counts: &'a watch::Sender<Counts>) -> Self {
        counts.send_modify(|counts| counts.asking += 1);
        Self { counts }
    }

    /// Goes on with an answer; for ever pending when the calls are held: then another node hears it.
    pub(in crate::runner) async fn go_on(self) {
        let held = !self.counts.send_if_modified(|counts| {
            let free = !counts.held;
            // Given back by the drop below.
            counts.asking -= usize::from(free);
            free
        });
        if held {
            std::future::pending::<()>().await;
        }
        std::mem::forget(self);
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.counts.send_modify(|counts| counts.asking -= 1);
    }
}
