//! A prompt that is sent while a turn runs: steered by default, queued on request, and never out of sight.

use super::{Bed, of, words};
use serde_json::json;
use tenure_scripted::{Script, Turn};

#[tokio::test(flavor = "multi_thread")]
async fn real_prompt_during_turn() {
    let wait = json!({"command": "while [ ! -e go ]; do sleep 0.02; done; echo WENT-$(echo ON)"});
    let mut turn = Turn::call("bash", wait);
    turn.skip_if_contains = Some("WENT-ON".to_owned());
    let bed = Bed::new(
        Script::new([turn])
            .by_history()
            .fallback(Turn::text("Understood.")),
    )
    .await;
    let mut first = bed.start(&["run", "--json", "--allow-all", "Begin with this."]);
    let session = first.session().await;
    let id = session.as_str();
    first.until_event("tool.started").await;

    let mut queued = bed.start(&[
        "run",
        "--json",
        "--session",
        id,
        "--queue",
        "Words for later.",
    ]);
    queued.session().await;
    let mut steered = bed.start(&["run", "--json", "--session", id, "Words for now."]);
    steered.session().await;
    let shown = bed.place.output(&["show", id]).await.unwrap();
    for (words, when) in [
        ("Words for now.", "joins at the next boundary"),
        ("Words for later.", "waits for the session to be idle"),
    ] {
        assert!(
            shown.contains(words) && shown.contains(when),
            "{words} is not shown as pending:\n{shown}"
        );
    }
    bed.touch("go");
    first.ends_well().await;
    steered.ends_well().await;
    queued.ends_well().await;

    let requests = bed.model.requests();
    let with = |text: &str| {
        requests
            .iter()
            .position(|request| words(request).contains(text))
            .unwrap()
    };
    // The first request is the one whose tool waited; the steer joins the very next one, the queued prompt a later one.
    assert_eq!(with("Words for now."), 1);
    assert_eq!(with("Words for later."), 2);
    assert_eq!(requests.len(), 3);
    let events = bed.clean_log(&session).await;
    assert_eq!(of(&events, "input.promoted").count(), 3);
    let shown = bed.place.output(&["show", id]).await.unwrap();
    assert!(!shown.contains("pending"), "{shown}");
}
