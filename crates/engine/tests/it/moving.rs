//! A session that moves to a place its node does not serve (R14).

use crate::fakes::*;
use crate::support::*;
use std::path::PathBuf;
use tenure_core::event::EventBody;
use tenure_core::id::SessionId;
use tenure_core::placement::Serves;
use tenure_engine::*;
use tenure_store::SessionState;

/// A node that takes any session that works below `root`.
fn at(bed: &Bed, root: &std::path::Path) -> EngineConfig {
    EngineConfig {
        scope: Scope::Any,
        serves: Serves {
            labels: Vec::new(),
            roots: vec![root.display().to_string()],
        },
        ..bed.config.clone()
    }
}

/// Another folder of the bed's.
fn there(bed: &Bed) -> PathBuf {
    let there = bed.dir.path().join("there");
    std::fs::create_dir(&there).unwrap();
    there.canonicalize().unwrap()
}

/// Begins a step on `a` and moves the session away while the model still answers with a call.
async fn moved_in_a_step(bed: &Bed, gate: &Gate, to: &std::path::Path) -> (SessionId, Admission) {
    let session = bed.session().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    bed.until(&session, "fragment.started").await;
    let client = bed.client();
    client
        .relocate(&session, to.display().to_string())
        .await
        .unwrap();
    gate.open();
    (session, admission)
}

fn bed(gate: &Gate) -> Bed {
    let rest = calls([call("a", "echo", r#"{"say":"one"}"#)]);
    Bed::new([
        Play::Gated(half("let me"), gate.clone(), vec![rest[0].clone()]),
        Play::Answer(calls([call("b", "echo", r#"{"say":"two"}"#)])),
        Play::Answer(text("done")),
    ])
    .with_tool(Echo)
}

/// The epochs under which calls began.
async fn began(bed: &Bed, session: &SessionId) -> Vec<Option<u64>> {
    let log = bed.log(session).await;
    let starts = log.iter().filter_map(|event| match &event.body {
        EventBody::ToolStarted(_) => Some(event.epoch),
        _ => None,
    });
    starts.collect()
}

#[tokio::test]
async fn a_session_that_moves_away_goes_on_where_its_place_is_served() {
    let gate = Gate::shut();
    let bed = bed(&gate);
    let there = there(&bed);
    let a = bed
        .engine_with(&bed.store, at(&bed, &bed.workspace()))
        .await;
    let b = bed.engine_with(&bed.store, at(&bed, &there)).await;
    let (session, admission) = moved_in_a_step(&bed, &gate, &there).await;
    let ended = b.outcome(&session, &admission.input, Some(admission.seq));
    assert_eq!(ended.await.unwrap(), Outcome::Succeeded);
    a.idle().await;
    b.idle().await;
    bed.assert_at_rest(&session).await;
    // The first call where it was asked for, the second where the session is now.
    assert_eq!(began(&bed, &session).await, [Some(1), Some(2)]);
    assert_eq!(bed.count(&session, "recovery.started").await, 0);
    let row = bed.store.session(&session).await.unwrap().unwrap();
    assert_eq!((row.attempts, row.epoch), (0, 2));
    assert_eq!(row.location.directory, there.display().to_string());
}

#[tokio::test]
async fn a_session_that_moves_where_nobody_serves_waits_for_a_node_and_says_so() {
    let gate = Gate::shut();
    let bed = bed(&gate);
    let there = there(&bed);
    let a = bed
        .engine_with(&bed.store, at(&bed, &bed.workspace()))
        .await;
    let (session, admission) = moved_in_a_step(&bed, &gate, &there).await;
    bed.until(&session, "attachment.replaced").await;
    let unplaceable = async || {
        let row = bed.store.session(&session).await.unwrap().unwrap();
        matches!(row.state, SessionState::Unplaceable { .. })
    };
    eventually("a session nobody can place", unplaceable).await;
    a.idle().await;
    assert_eq!(began(&bed, &session).await, [Some(1)]);
    let row = bed.store.session(&session).await.unwrap().unwrap();
    assert_eq!((row.attempts, row.epoch), (0, 2));
    let b = bed.engine_with(&bed.store, at(&bed, &there)).await;
    let ended = b.outcome(&session, &admission.input, Some(admission.seq));
    assert_eq!(ended.await.unwrap(), Outcome::Succeeded);
    b.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(began(&bed, &session).await.len(), 2);
    assert_eq!(bed.count(&session, "recovery.started").await, 0);
}

#[tokio::test]
async fn a_session_that_moves_away_with_nothing_to_do_is_released() {
    let bed = Bed::new([Play::Answer(text("done"))]);
    let there = there(&bed);
    let a = bed
        .engine_with(&bed.store, at(&bed, &bed.workspace()))
        .await;
    let session = bed.session().await;
    bed.client()
        .relocate(&session, there.display().to_string())
        .await
        .unwrap();
    bed.until(&session, "attachment.replaced").await;
    a.idle().await;
    bed.assert_at_rest(&session).await;
    let row = bed.store.session(&session).await.unwrap().unwrap();
    assert_eq!(row.state, SessionState::Idle);
}

/// The pattern of a machine that is gone: what it held is moved to where somebody serves.
#[tokio::test]
async fn a_session_whose_place_nobody_serves_any_more_is_moved_by_a_node_of_the_new_one() {
    let gate = Gate::shut();
    let bed = bed(&gate);
    let there = there(&bed);
    let old = at(&bed, &bed.workspace());
    let victim = bed.victim_with(&bed.store, old).await;
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("hi")).await;
    bed.until(&session, "fragment.started").await;
    victim.kill().await;
    let b = bed.engine_with(&bed.store, at(&bed, &there)).await;
    let unplaceable = async || {
        let row = bed.store.session(&session).await.unwrap().unwrap();
        matches!(row.state, SessionState::Unplaceable { .. })
    };
    eventually("a session nobody can place", unplaceable).await;
    // A prompt that waited before the move is no obstacle: it could be delivered nowhere else.
    let waited = bed.admit(&session, Prompt::steer("more")).await;
    bed.client()
        .relocate(&session, there.display().to_string())
        .await
        .unwrap();
    let ended = b.outcome(&session, &waited.input, Some(waited.seq));
    assert_eq!(ended.await.unwrap(), Outcome::Succeeded);
    b.idle().await;
    bed.assert_at_rest(&session).await;
    let row = bed.store.session(&session).await.unwrap().unwrap();
    assert_eq!(row.location.directory, there.display().to_string());
    assert_eq!(row.moving, None);
    let log = bed.log(&session).await;
    let place = |name: &str| log.iter().position(|e| e.body.type_name() == name).unwrap();
    let delivered = log
        .iter()
        .position(|e| matches!(&e.body, EventBody::InputPromoted(p) if p.input == waited.input));
    assert!(place("recovery.started") < place("attachment.replaced"));
    assert!(place("attachment.replaced") < delivered.unwrap());
}
