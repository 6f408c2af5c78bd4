//! The store loses a commit, or its answer, at each poll of a supervised drain; a node stops at each of them.

use super::*;
use tenure_store::Append;
use tenure_store::sqlite::Fault;

/// What goes wrong at the n-th poll.
#[derive(Debug, Clone, Copy)]
enum Wrong {
    Store(Fault),
    /// The drain budget is over.
    Shutdown,
}

impl Lab {
    /// True when everything was over within `n` polls.
    async fn go_wrong(&self, story: &Story, n: usize, wrong: Wrong) -> Result<bool, String> {
        let session = self.session(story).await;
        let before = self.bed.model.sent();
        let mut runner = self.take(&session).await;
        let (over, owned) = match wrong {
            Wrong::Store(fault) => {
                let mut supervised = Box::pin(runner.supervise());
                match poll_times(supervised.as_mut(), n).await {
                    Some(owned) => (true, owned.map(Some)),
                    None => {
                        self.bed.store.fail_next_commit(fault);
                        let owned = supervised.await;
                        // Where nothing was committed any more, the fault still waits: it hits this.
                        let nothing = Append::unfenced(session.clone(), Vec::new());
                        let _ = self.bed.store.append(nothing).await;
                        (false, owned.map(Some))
                    }
                }
            }
            Wrong::Shutdown => {
                let over = {
                    let mut drain = Box::pin(runner.drain());
                    let over = poll_times(drain.as_mut(), n).await;
                    self.barrier(&session).await;
                    over.is_some()
                };
                let claims = self.bed.store.claims().await.unwrap();
                if over || claims.is_empty() {
                    (over, Ok(Some(Owned::Ended)))
                } else {
                    (false, runner.conclude(Err(Stopped::Shutdown)).await)
                }
            }
        };
        if owned != Ok(Some(Owned::Ended)) {
            return Err(format!("it ended in {owned:?}"));
        }
        if matches!(wrong, Wrong::Shutdown) {
            // Whoever comes next goes on with it.
            self.engine.shared.unmark_running(&session);
            self.engine.run(&session);
            let rest = async || {
                let row = self.bed.store.session(&session).await.unwrap().unwrap();
                row.execution.is_none() && row.pending == 0
            };
            eventually("the end", rest).await;
            self.engine.idle().await;
            self.engine.forget(&session);
            self.bed
                .store
                .reap(&self.engine.incarnation())
                .await
                .unwrap();
            runner
                .writer
                .load(SessionState::fold(&self.bed.log(&session).await).turn);
        }
        let log = self.bed.log(&session).await;
        let started = log
            .iter()
            .filter(|e| {
                matches!(
                    e.body,
                    EventBody::AttemptStarted(_) | EventBody::CompactionStarted(_)
                )
            })
            .count();
        let sent = self.bed.model.sent() - before;
        if sent > started {
            return Err(format!("{sent} requests, {started} of them recorded"));
        }
        self.over(&session, &mut runner).await?;
        Ok(over)
    }

    async fn go_wrong_everywhere(&self, story: &Story, wrong: Wrong) {
        for n in 1..2_000 {
            match self.go_wrong(story, n, wrong).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(what) => panic!("{}, {wrong:?} at poll {n}: {what}", story.name),
            }
        }
        panic!("it never ends");
    }
}

/// The stories without a history: what was sent before would count.
fn some() -> Vec<Story> {
    let wanted = ["plain", "parallel tools", "cut behind a call", "move"];
    let mut some = stories();
    some.retain(|story| wanted.contains(&story.name));
    assert_eq!(some.len(), wanted.len());
    some
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_lost_at_any_point_stops_nothing_for_good() {
    for story in some() {
        let lab = Lab::new(Mutations::default()).await;
        lab.go_wrong_everywhere(&story, Wrong::Store(Fault::CommitLost))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_lost_at_any_point_changes_nothing() {
    for story in some() {
        let lab = Lab::new(Mutations::default()).await;
        lab.go_wrong_everywhere(&story, Wrong::Store(Fault::AnswerLost))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stops_at_any_point_leaves_what_another_can_go_on_with() {
    for story in some() {
        let lab = Lab::new(Mutations::default()).await;
        lab.go_wrong_everywhere(&story, Wrong::Shutdown).await;
    }
}
