//! A recovery is lost at each of its polls, and yet another one follows: twice is once.

use super::*;
use tenure_core::claim::continuation_id;

/// An execution that was lost in the middle of a step with an open call and text.
struct Ruin {
    session: SessionId,
    admitted: crate::Admission,
}

const LOST: Story = Story {
    name: "lost",
    answers: || {
        let mut answer = half("half a thought");
        answer.push(Ok(vec![
            call("a", "echo", r#"{"say":"one"}"#),
            call("b", "nope", "{}"),
        ]));
        vec![Play::Hang(answer)]
    },
    ..PLAIN
};

impl Lab {
    /// Runs the story by hand up to its open call, then loses the process.
    async fn ruin(&self) -> Ruin {
        let rules = tenure_tools::permission::Rules::allow_all();
        let session = self.bed.session_with(rules, 0).await;
        self.bed.model.clear();
        for play in (LOST.answers)() {
            self.bed.model.push(play);
        }
        let admitted = self.bed.admit(&session, crate::Prompt::steer("go")).await;
        let victim = self.bed.victim().await;
        victim.engine.run(&session);
        self.bed.until_nth(&session, "tool.failed", 1).await;
        // Waits with the others; it must not join recovery's own step.
        self.bed
            .admit(&session, crate::Prompt::steer("meanwhile"))
            .await;
        victim.kill().await;
        Ruin { session, admitted }
    }

    /// Acquires, recovers and drains up to the n-th poll, then loses the process. True when it was done by then.
    async fn recover_until(&self, ruin: &Ruin, n: usize) -> bool {
        let store = Arc::new(Stepping(self.bed.store.clone()));
        let engine = self.bed.engine_on(store, self.bed.config.clone()).await;
        let shared = engine.shared.clone();
        shared.mark_running(&ruin.session);
        // The lost one is known to be lost.
        shared.store.reap(&engine.incarnation()).await.unwrap();
        let done = {
            let mut owning = Box::pin(own(&shared, &ruin.session));
            let done = poll_times(owning.as_mut(), n).await;
            self.barrier(&ruin.session).await;
            done.is_some()
        };
        self.bed.store.crash_node(&engine.incarnation());
        done
    }

    async fn once(&self, n: usize) -> Result<bool, String> {
        let ruin = self.ruin().await;
        let done = self.recover_until(&ruin, n).await;
        let engine = self.bed.engine().await;
        let ended = outcome(&engine, &ruin.session, &ruin.admitted).await;
        engine.idle().await;
        let log = self.bed.log(&ruin.session).await;
        let said = |what: &str| Err(format!("{what}\n{}", checks::show(&log)));
        if ended != crate::Outcome::Succeeded {
            return said(&format!("it ended in {ended:?}"));
        }
        if !self.bed.store.claims().await.unwrap().is_empty() {
            return said("a claim stays behind");
        }
        let mut faults = checks::faults_at_rest(&log);
        faults.extend(self.bed.model.faults());
        faults.extend(continuation_faults(&ruin.session, &log));
        self.bed.model.requests.lock().unwrap().clear();
        engine.shutdown().await.unwrap();
        if faults.is_empty() {
            Ok(done)
        } else {
            said(&format!("{faults:#?}"))
        }
    }
}

/// Each lost step has one continuation with its derived id, promoted once and alone; no call is spawned twice.
fn continuation_faults(session: &SessionId, log: &[Event]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut spawned = std::collections::HashSet::new();
    for (at, event) in log.iter().enumerate() {
        match &event.body {
            EventBody::StepFailed(step) if step.error.kind == "crashed" => {
                let own = continuation_id(session, step.message.as_str());
                let written = log
                    .iter()
                    .filter(|e| matches!(&e.body, EventBody::InputAdmitted(i) if i.input == own));
                if written.count() != 1 {
                    faults.push(format!("{}: not one continuation", event.seq));
                }
                let promoted: Vec<&MessageId> = log[at..]
                    .iter()
                    .take_while(|e| !matches!(e.body, EventBody::StepStarted(_)))
                    .filter_map(|e| match &e.body {
                        EventBody::InputPromoted(p) => Some(&p.input),
                        _ => None,
                    })
                    .collect();
                if promoted != [&own] {
                    faults.push(format!("{}: {promoted:?} before the next step", event.seq));
                }
            }
            EventBody::ToolStarted(tool)
                if !spawned.insert((tool.message.clone(), tool.call.clone())) =>
            {
                faults.push(format!("{}: {} spawned twice", event.seq, tool.call));
            }
            _ => {}
        }
    }
    faults
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_lost_at_any_point_is_taken_up_and_twice_is_once() {
    let lab = Lab::new(Mutations::default()).await;
    let mut polls = 1;
    loop {
        match lab.once(polls).await {
            Ok(true) => break,
            Ok(false) => polls += 1,
            Err(what) => panic!("at poll {polls}: {what}"),
        }
        assert!(polls < 500, "it never ends");
    }
    assert!(polls > 15, "only {polls} polls");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_that_is_not_charged_is_noticed() {
    let lab = Lab::new(Mutations::only(Mutation::NoCharge)).await;
    let ruin = lab.ruin().await;
    lab.bed.model.push(Play::Hang(Vec::new()));
    lab.engine.run(&ruin.session);
    let event = lab.bed.until(&ruin.session, "recovery.started").await;
    let EventBody::RecoveryStarted(recovery) = event.body else {
        panic!("asked for it")
    };
    assert_eq!(
        recovery.attempts, 0,
        "with the rule it is 1, as the tests of recovery expect"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_takes_the_continuation_along() {
    let lab = Lab::new(Mutations::none()).await;
    let ruin = lab.ruin().await;
    lab.engine
        .shared
        .store
        .reap(&lab.engine.incarnation())
        .await
        .unwrap();
    // Recovery has spoken and nobody has heard it when the drain fails by a fault of its own.
    let mut runner = lab.take(&ruin.session).await;
    let own = runner.own_inputs().await.unwrap();
    assert_eq!(own.len(), 1);
    let fault = SessionError::new("internal", "a fault of its own");
    runner.settle_once(&Settlement::Fail(fault)).await.unwrap();
    let inbox = lab.bed.store.inbox(&ruin.session).await.unwrap();
    let left: Vec<&InputKind> = inbox.iter().map(|pending| &pending.kind).collect();
    assert!(
        matches!(left[..], [InputKind::User { .. }]),
        "a later input would wake it: {left:?}"
    );
}
