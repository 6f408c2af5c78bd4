//! Nodes that differ in whose models they can ask: a session is for those that can ask its own.

use crate::fakes::*;
use crate::support::*;
use std::time::Duration;
use tenure_core::event::EventBody;
use tenure_core::id::SessionId;
use tenure_core::model::ModelRef;
use tenure_core::placement::Serves;
use tenure_engine::*;
use tenure_store::SessionState;

/// A node that takes any session, and can ask the models of these providers.
fn asking(bed: &Bed, providers: &[&str]) -> EngineConfig {
    EngineConfig {
        scope: Scope::Any,
        serves: Serves::everywhere().asking(providers.iter().copied()),
        ..bed.config.clone()
    }
}

/// A node as `config` says, with the bed's model under each provider it says it can ask.
async fn node(bed: &Bed, config: EngineConfig) -> Engine {
    let mut models = Models::new(bed.catalogue.clone());
    for label in &config.serves.labels {
        if let Some(("models", provider)) = label.split_once('=') {
            models = models.with(provider, bed.model.clone());
        }
    }
    Engine::start(bed.store.clone(), models, bed.tools.clone(), config)
        .await
        .unwrap()
}

fn other() -> ModelRef {
    ModelRef {
        provider: "q".to_owned(),
        model: "m".to_owned(),
    }
}

/// The outcome as this node reads it, whoever runs the session.
async fn seen(engine: &Engine, session: &SessionId, admission: &Admission) -> Outcome {
    let outcome = engine.outcome(session, &admission.input, Some(admission.seq));
    tokio::time::timeout(Duration::from_secs(20), outcome)
        .await
        .expect("an outcome within 20 s")
        .unwrap()
}

async fn ended_well(engine: &Engine, session: &SessionId, admission: &Admission) {
    assert_eq!(seen(engine, session, admission).await, Outcome::Succeeded);
}

async fn reason(bed: &Bed, session: &SessionId) -> Option<String> {
    match bed.store.session(session).await.unwrap().unwrap().state {
        SessionState::Unplaceable { reason } => Some(reason),
        _ => None,
    }
}

#[tokio::test]
async fn a_takeover_leaves_a_session_to_nodes_that_can_ask_its_model() {
    let bed = Bed::new([Play::Hang(half("x")), Play::Answer(text("done"))]);
    let owner = bed.victim_with(&bed.store, asking(&bed, &["p"])).await;
    let lacking = node(&bed, asking(&bed, &["q"])).await;
    let session = bed.session().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    bed.until(&session, "fragment.started").await;
    owner.kill().await;
    let set_aside = async || reason(&bed, &session).await.is_some();
    eventually("a session nobody can run", set_aside).await;
    let told = reason(&bed, &session).await.unwrap();
    assert!(
        told.contains("no node serves this model (p/m)") && told.contains("provider `p`"),
        "{told}"
    );
    let buried = async || bed.store.nodes().await.unwrap().len() == 1;
    eventually("the dead node's burial", buried).await;
    // Also when it is told to look.
    let mut results = lacking.results();
    lacking.wake(&session);
    let (_, owned) = results.recv().await.unwrap();
    assert!(matches!(owned, Owned::Unplaceable { .. }), "{owned:?}");
    lacking.idle().await;
    let row = bed.store.session(&session).await.unwrap().unwrap();
    assert_eq!((row.epoch, row.last_outcome), (1, None));
    let able = node(&bed, asking(&bed, &["p", "q"])).await;
    ended_well(&able, &session, &admission).await;
    able.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.count(&session, "recovery.started").await, 1);
    let row = bed.store.session(&session).await.unwrap().unwrap();
    assert_eq!((row.attempts, row.epoch), (0, 2));
}

#[tokio::test]
async fn a_drain_hands_over_to_a_node_that_can_ask_the_model() {
    let gate = Gate::shut();
    let bed = Bed::new([
        Play::Gated(
            half("let me"),
            gate.clone(),
            calls([call("a", "echo", r#"{"say":"one"}"#)]),
        ),
        Play::Answer(text("done")),
    ])
    .with_tool(Echo);
    let leaving = node(&bed, asking(&bed, &["p"])).await;
    let session = bed.session().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    bed.until(&session, "fragment.started").await;
    let lacking = [
        node(&bed, asking(&bed, &["q"])).await,
        node(&bed, asking(&bed, &[])).await,
    ];
    let able = node(&bed, asking(&bed, &["p"])).await;
    let left = tokio::spawn({
        let leaving = leaving.clone();
        async move { leaving.shutdown().await }
    });
    let draining = async || bed.store.nodes().await.unwrap().iter().any(|n| n.draining);
    eventually("the mark of draining", draining).await;
    gate.open();
    left.await.unwrap().unwrap();
    ended_well(&able, &session, &admission).await;
    able.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.count(&session, "recovery.started").await, 0);
    let row = bed.store.session(&session).await.unwrap().unwrap();
    assert_eq!((row.attempts, row.epoch), (0, 2));
    drop(lacking);
}

/// A session in the middle of a turn of two steps, on `owner`, that is given the model of another provider.
async fn switched(bed: &Bed, owner: &Engine, gate: &Gate) -> (SessionId, Admission) {
    let session = bed.session().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    owner.run(&session);
    bed.until(&session, "fragment.started").await;
    bed.client().select_model(&session, other()).await.unwrap();
    gate.open();
    (session, admission)
}

fn two_steps(gate: &Gate) -> Bed {
    let rest = calls([call("a", "echo", r#"{"say":"one"}"#)]);
    Bed::new([
        Play::Gated(half("let me"), gate.clone(), vec![rest[0].clone()]),
        Play::Answer(text("done")),
    ])
    .with_tool(Echo)
}

#[tokio::test]
async fn a_session_given_another_model_goes_where_that_can_be_asked() {
    for scope in [Scope::Any, Scope::Asked] {
        let gate = Gate::shut();
        let bed = two_steps(&gate);
        let config = EngineConfig {
            scope: scope.clone(),
            ..asking(&bed, &["p"])
        };
        let owner = node(&bed, config).await;
        let able = node(&bed, asking(&bed, &["q"])).await;
        let (session, admission) = switched(&bed, &owner, &gate).await;
        ended_well(&able, &session, &admission).await;
        owner.idle().await;
        able.idle().await;
        bed.assert_at_rest(&session).await;
        assert_eq!(bed.count(&session, "recovery.started").await, 0);
        let row = bed.store.session(&session).await.unwrap().unwrap();
        assert_eq!((row.attempts, row.epoch), (0, 2), "{scope:?}");
    }
}

#[tokio::test]
async fn a_session_given_a_model_nobody_can_ask_waits_and_another_model_wakes_it() {
    let gate = Gate::shut();
    let bed = two_steps(&gate);
    let owner = node(&bed, asking(&bed, &["p"])).await;
    let (session, admission) = switched(&bed, &owner, &gate).await;
    let set_aside = async || reason(&bed, &session).await.is_some();
    eventually("a session nobody can run", set_aside).await;
    let told = reason(&bed, &session).await.unwrap();
    assert!(told.contains("no node serves this model (q/m)"), "{told}");
    owner.idle().await;
    assert_eq!(bed.count(&session, "execution.failed").await, 0);
    let client = bed.client();
    client
        .select_model(&session, Bed::model_ref())
        .await
        .unwrap();
    ended_well(&owner, &session, &admission).await;
    owner.idle().await;
    bed.assert_at_rest(&session).await;
}

/// Somebody waits for this very process: what it lacks is an answer, and no reason to wait for ever.
#[tokio::test]
async fn a_process_told_to_run_a_session_says_what_it_lacks_when_nobody_has_it() {
    let gate = Gate::shut();
    let bed = two_steps(&gate);
    let config = EngineConfig {
        scope: Scope::Asked,
        ..asking(&bed, &["p"])
    };
    let owner = node(&bed, config).await;
    let lacking = node(&bed, asking(&bed, &["r"])).await;
    let (session, admission) = switched(&bed, &owner, &gate).await;
    let Outcome::Failed(error) = seen(&owner, &session, &admission).await else {
        panic!("it did not fail");
    };
    assert!(
        error.message.contains("no provider `q`") && error.message.contains("q/m"),
        "{error}"
    );
    owner.idle().await;
    lacking.idle().await;
    bed.assert_at_rest(&session).await;
    let failed = |event: &tenure_core::event::Event| match &event.body {
        EventBody::ExecutionFailed(_) => event.epoch,
        _ => None,
    };
    let log = bed.log(&session).await;
    assert_eq!(log.iter().find_map(failed), Some(1));
}
