//! A deploy: a node drains, and its sessions go on elsewhere (R11).

use crate::fakes::*;
use crate::support::*;
use std::collections::BTreeMap;
use std::time::Duration;
use tenure_core::event::EventBody;
use tenure_core::event::body::*;
use tenure_core::id::SessionId;
use tenure_core::placement::Serves;
use tenure_engine::*;
use tenure_store::SessionState;
use tenure_tools::permission::Rules;

/// A node that takes any session and waits for answers.
fn any(bed: &Bed) -> EngineConfig {
    EngineConfig {
        scope: Scope::Any,
        approvals: Approvals::Wait,
        ..bed.config.clone()
    }
}

async fn epochs(bed: &Bed, session: &SessionId) -> Vec<u64> {
    let mut epochs: Vec<u64> = (bed.log(session).await.iter())
        .filter_map(|event| event.epoch)
        .collect();
    assert!(epochs.is_sorted(), "{epochs:?}");
    epochs.dedup();
    epochs
}

/// Answers every open question of the session.
async fn answer_all(bed: &Bed, session: &SessionId, answer: PermissionAnswer) {
    for event in bed.log(session).await {
        if let EventBody::PermissionAsked(asked) = event.body {
            let client = bed.client();
            client
                .answer(session, &asked.message, &asked.call, answer.clone(), "me")
                .await
                .unwrap();
        }
    }
}

#[tokio::test]
async fn a_running_attempt_is_finished_by_the_old_owner_and_the_next_is_the_heirs() {
    let gate = Gate::shut();
    let rest = calls([call("a", "echo", r#"{"say":"one"}"#)]);
    let bed = Bed::new([
        Play::Gated(half("let me"), gate.clone(), vec![rest[0].clone()]),
        Play::Answer(text("done")),
    ])
    .with_tool(Echo);
    let a = bed.engine_with(&bed.store, any(&bed)).await;
    let session = bed.session().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    bed.until(&session, "fragment.started").await;
    let b = bed.engine_with(&bed.store, any(&bed)).await;
    let leaving = tokio::spawn({
        let a = a.clone();
        async move { a.shutdown().await }
    });
    let draining = async || bed.store.nodes().await.unwrap().iter().any(|n| n.draining);
    eventually("the mark of draining", draining).await;
    gate.open();
    leaving.await.unwrap().unwrap();
    let ended = b.outcome(&session, &admission.input, Some(admission.seq));
    assert_eq!(ended.await.unwrap(), Outcome::Succeeded);
    b.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.count(&session, "attempt.started").await, 2);
    assert_eq!(bed.count(&session, "recovery.started").await, 0);
    assert_eq!(
        (bed.model.sent(), epochs(&bed, &session).await),
        (2, vec![1, 2])
    );
    let row = bed.store.session(&session).await.unwrap().unwrap();
    assert_eq!((row.attempts, row.epoch), (0, 2));
}

#[tokio::test]
async fn a_step_that_waits_for_an_answer_is_handed_over_as_it_is() {
    let bed = Bed::new([
        Play::Answer(calls([
            call("a", "asks", r#"{"path":"a.txt"}"#),
            call("b", "asks", r#"{"path":"b.txt"}"#),
        ])),
        Play::Answer(text("done")),
    ])
    .with_tool(Asks);
    let a = bed.engine_with(&bed.store, any(&bed)).await;
    let session = bed.session_with(Rules::default(), 0).await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    bed.until_nth(&session, "permission.asked", 2).await;
    let b = bed.engine_with(&bed.store, any(&bed)).await;
    a.shutdown().await.unwrap();
    let owner = async || match bed.store.session(&session).await.unwrap().unwrap().state {
        SessionState::Owned { owner, phase, .. } => {
            owner == b.incarnation() && phase == Phase::Active
        }
        _ => false,
    };
    eventually("the heir", owner).await;
    assert_eq!(bed.count(&session, "step.failed").await, 0);
    assert_eq!(bed.count(&session, "tool.failed").await, 0);
    answer_all(&bed, &session, PermissionAnswer::Once).await;
    let ended = b.outcome(&session, &admission.input, Some(admission.seq));
    assert_eq!(ended.await.unwrap(), Outcome::Succeeded);
    b.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(
        bed.count(&session, "permission.asked").await,
        2,
        "asked once each"
    );
    assert_eq!(bed.count(&session, "tool.succeeded").await, 2);
    assert_eq!(bed.count(&session, "recovery.started").await, 0);
    assert_eq!(
        (bed.model.sent(), epochs(&bed, &session).await),
        (2, vec![1, 2])
    );
}

#[tokio::test]
async fn an_answer_that_comes_while_nobody_holds_the_session_counts() {
    let bed = Bed::new([
        Play::Answer(calls([call("a", "asks", "{}")])),
        Play::Answer(text("done")),
    ])
    .with_tool(Asks);
    let a = bed.engine_with(&bed.store, any(&bed)).await;
    let session = bed.session_with(Rules::default(), 0).await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    bed.until(&session, "permission.asked").await;
    // Nobody can succeed it: it is let go as it is, for whoever comes.
    a.shutdown().await.unwrap();
    let row = bed.store.session(&session).await.unwrap().unwrap();
    assert!(
        matches!(row.state, SessionState::Claimable { .. }),
        "{:?}",
        row.state
    );
    assert_eq!(row.epoch, 2);
    answer_all(&bed, &session, PermissionAnswer::Once).await;
    let b = bed.engine_with(&bed.store, any(&bed)).await;
    let ended = b.outcome(&session, &admission.input, Some(admission.seq));
    assert_eq!(ended.await.unwrap(), Outcome::Succeeded);
    b.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.count(&session, "permission.asked").await, 1);
    assert_eq!(bed.count(&session, "tool.succeeded").await, 1);
    assert_eq!(bed.count(&session, "recovery.started").await, 0);
}

#[tokio::test]
async fn at_the_end_of_the_budget_it_is_killed_settled_and_handed_over_uncharged() {
    let (tool, hold) = Held::new(Manner::Obeys);
    let bed = Bed::new([
        Play::Answer(calls([call("a", "hold", "{}")])),
        Play::Answer(text("done")),
    ])
    .with_tool(tool);
    let short = EngineConfig {
        drain_budget: Duration::from_millis(50),
        ..any(&bed)
    };
    let a = bed.engine_with(&bed.store, short).await;
    let session = bed.session().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    eventually("the tool", async || hold.begun() == 1).await;
    let b = bed.engine_with(&bed.store, any(&bed)).await;
    a.shutdown().await.unwrap();
    let ended = b.outcome(&session, &admission.input, Some(admission.seq));
    assert_eq!(ended.await.unwrap(), Outcome::Succeeded);
    b.idle().await;
    bed.assert_at_rest(&session).await;
    let log = bed.log(&session).await;
    let failed: Vec<String> = (log.iter())
        .filter_map(|e| match &e.body {
            EventBody::StepFailed(step) => Some(step.error.kind.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(failed, ["shutdown"]);
    assert_eq!(settlements(&log)[0].1, Some(ToolFailure::Interrupted));
    assert_eq!((hold.begun(), bed.model.sent()), (1, 2));
    assert_eq!(epochs(&bed, &session).await, [1, 2]);
    assert!(bed.asked(1).contains("was shut down in the middle"));
    let row = bed.store.session(&session).await.unwrap().unwrap();
    assert_eq!(row.attempts, 0);
}

#[tokio::test]
async fn what_is_done_is_released_and_only_who_can_take_the_rest_gets_it() {
    let gate = Gate::shut();
    let bed = Bed::new([
        Play::Gated(half("al"), gate.clone(), vec![text("most").remove(1)]),
        Play::Gated(half("x"), gate.clone(), vec![text("y").remove(1)]),
        Play::Answer(text("and more")),
    ]);
    let a = bed.engine_with(&bed.store, any(&bed)).await;
    let (done, more) = (bed.session().await, bed.session().await);
    let first = bed.admit(&done, Prompt::steer("hi")).await;
    bed.until(&done, "fragment.started").await;
    let elsewhere = EngineConfig {
        serves: Serves {
            labels: Vec::new(),
            roots: vec!["/elsewhere".to_owned()],
        },
        ..any(&bed)
    };
    // One that serves other places, one that only runs what it is asked to.
    let stranger = bed.engine_with(&bed.store, elsewhere).await;
    let clerk = bed.engine().await;
    let second = bed.admit(&more, Prompt::steer("hi")).await;
    bed.until(&more, "attempt.started").await;
    bed.admit(&more, Prompt::queue("and then?")).await;
    let leaving = tokio::spawn({
        let a = a.clone();
        async move { a.shutdown().await }
    });
    let draining = async || bed.store.nodes().await.unwrap().iter().any(|n| n.draining);
    eventually("the mark of draining", draining).await;
    gate.open();
    leaving.await.unwrap().unwrap();
    let row = bed.store.session(&done).await.unwrap().unwrap();
    assert_eq!(
        (row.state, row.last_outcome.as_deref()),
        (SessionState::Idle, Some("succeeded"))
    );
    let row = bed.store.session(&more).await.unwrap().unwrap();
    assert!(
        matches!(row.state, SessionState::Claimable { .. }),
        "{:?}",
        row.state
    );
    assert_eq!((stranger.running(), clerk.running()), (0, 0));
    let heir = bed.engine_with(&bed.store, any(&bed)).await;
    for (session, admission) in [(&done, first), (&more, second)] {
        let ended = heir.outcome(session, &admission.input, Some(admission.seq));
        assert_eq!(ended.await.unwrap(), Outcome::Succeeded);
    }
    let at_rest = async || bed.store.claims().await.unwrap().is_empty();
    eventually("rest", at_rest).await;
    bed.assert_at_rest(&more).await;
}

/// Many sessions at once: each goes to one of the others, and none of those gets all.
#[tokio::test]
async fn arrivals_are_spread_and_no_attempt_is_sent_twice() {
    const SESSIONS: usize = 24;
    let gate = Gate::shut();
    let first = || Play::Gated(half("x"), gate.clone(), vec![text("y").remove(1)]);
    let bed = Bed::new((0..SESSIONS).map(|_| first()));
    let a = bed.engine_with(&bed.store, any(&bed)).await;
    let mut sessions = BTreeMap::new();
    for _ in 0..SESSIONS {
        let session = bed.session().await;
        let admission = bed.admit(&session, Prompt::steer("hi")).await;
        bed.until(&session, "fragment.started").await;
        // Something to do after the boundary.
        bed.admit(&session, Prompt::steer("go on")).await;
        sessions.insert(session, admission);
    }
    let b = bed.engine_with(&bed.store, any(&bed)).await;
    let c = bed.engine_with(&bed.store, any(&bed)).await;
    let (mut from_b, mut from_c) = (b.results(), c.results());
    let leaving = tokio::spawn({
        let a = a.clone();
        async move { a.shutdown().await }
    });
    let draining = async || bed.store.nodes().await.unwrap().iter().any(|n| n.draining);
    eventually("the mark of draining", draining).await;
    gate.open();
    leaving.await.unwrap().unwrap();
    for (session, admission) in &sessions {
        let ended = b.outcome(session, &admission.input, Some(admission.seq));
        assert_eq!(ended.await.unwrap(), Outcome::Succeeded);
    }
    let at_rest = async || bed.store.claims().await.unwrap().is_empty();
    eventually("rest", at_rest).await;
    for session in sessions.keys() {
        bed.assert_at_rest(session).await;
        assert_eq!(bed.count(session, "attempt.started").await, 2);
        assert_eq!(bed.count(session, "recovery.started").await, 0);
        assert_eq!(epochs(&bed, session).await, [1, 2]);
    }
    assert_eq!(bed.model.sent(), 2 * SESSIONS);
    b.idle().await;
    c.idle().await;
    let mut share = [0, 0];
    while from_b.try_recv().is_ok() {
        share[0] += 1;
    }
    while from_c.try_recv().is_ok() {
        share[1] += 1;
    }
    assert!(share.iter().all(|n| *n >= SESSIONS / 3), "{share:?}");
}

#[tokio::test]
async fn an_interrupt_of_a_step_that_waits_wins_over_its_hand_over() {
    let bed = Bed::new([Play::Answer(calls([call("a", "asks", "{}")]))]).with_tool(Asks);
    let a = bed.engine_with(&bed.store, any(&bed)).await;
    let session = bed.session_with(Rules::default(), 0).await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    bed.until(&session, "permission.asked").await;
    let b = bed.engine_with(&bed.store, any(&bed)).await;
    let client = bed.client();
    let (stopped, left) = tokio::join!(client.interrupt(&session, None, "me"), a.shutdown());
    stopped.unwrap();
    left.unwrap();
    let ended = b.outcome(&session, &admission.input, Some(admission.seq));
    assert_eq!(
        ended.await.unwrap(),
        Outcome::Interrupted(InterruptReason::User)
    );
    b.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.count(&session, "tool.started").await, 0);
}
