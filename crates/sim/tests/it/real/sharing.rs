//! Two processes are told to run one session at once: one owns it, the other follows it.

use super::{Bed, of};
use serde_json::json;
use std::collections::BTreeSet;
use tenure_core::ModelRef;
use tenure_engine::NewSession;
use tenure_scripted::{Script, Turn};
use tenure_tools::permission::Rules;

#[tokio::test(flavor = "multi_thread")]
async fn real_two_runs_one_session() {
    let wait = json!({"command": "while [ ! -e go ]; do sleep 0.02; done; echo WENT-$(echo ON)"});
    let mut turn = Turn::call("bash", wait);
    turn.skip_if_contains = Some("WENT-ON".to_owned());
    let bed = Bed::new(
        Script::new([turn])
            .by_history()
            .fallback(Turn::text("Both are answered.")),
    )
    .await;
    let new = NewSession {
        id: None,
        directory: bed.place.workspace().display().to_string(),
        model: ModelRef {
            provider: "local".to_owned(),
            model: "m1".to_owned(),
        },
        title: None,
        limits: tenure_core::event::body::Limits::default(),
        permissions: Rules::allow_all(),
    };
    let session = bed.client().create(new).await.unwrap();
    let id = session.as_str();
    let mut first = bed.start(&["run", "--json", "--session", id, "Prompt one."]);
    let mut second = bed.start(&["run", "--json", "--session", id, "Prompt two."]);
    // Whoever owns it, both see the tool run.
    first.until_event("tool.started").await;
    second.until_event("tool.started").await;
    bed.touch("go");
    first.ends_well().await;
    second.ends_well().await;

    let events = bed.clean_log(&session).await;
    let epochs: BTreeSet<u64> = events.iter().filter_map(|event| event.epoch).collect();
    assert_eq!(epochs.len(), 1, "one owner did all of it");
    assert_eq!(of(&events, "execution.started").count(), 1);
    assert_eq!(of(&events, "input.promoted").count(), 2);
    assert_eq!(of(&events, "tool.started").count(), 1);
    assert_eq!(
        bed.model.requests().len(),
        of(&events, "attempt.started").count()
    );
    assert_eq!(bed.model.max_concurrent(), 1);
}
