//! An interrupt while a command sleeps: acknowledged and everything dead at once, and the next prompt knows of it.

use super::{Bed, PATIENCE, of, words};
use serde_json::json;
use std::time::{Duration, Instant};
use tenure_core::SessionId;
use tenure_scripted::{Script, Times, Turn};
use tenure_store::Interrupted;

/// From the request to stop until nothing runs any more, the grace for a command that traps TERM included.
const LIMIT: Duration = Duration::from_millis(300);
/// A busy machine may miss it; not three times in a row.
const TRIES: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn real_interrupt_during_sleep() {
    stops_in_time("bash -c 'sleep 600 & sleep 600'").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn real_interrupt_during_sleep_that_traps_term() {
    stops_in_time("bash -c 'trap \"\" TERM; sleep 600 & sleep 600'").await;
}

async fn stops_in_time(command: &str) {
    let mut sleep = Turn::call("bash", json!({ "command": command }));
    sleep.when = Some("Sleep now.".to_owned());
    sleep.times = Some(Times::Forever);
    let bed = Bed::new(Script::new([sleep]).fallback(Turn::text("You stopped it."))).await;
    let mut took = Vec::new();
    let mut session = None;
    for _ in 0..TRIES {
        took.push(one_try(&bed, &mut session).await);
        if took.last().is_some_and(|took| *took <= LIMIT) {
            break;
        }
    }
    assert!(
        took.iter().any(|took| *took <= LIMIT),
        "all dead only after {took:?}"
    );

    let session = session.unwrap();
    let next = bed.start(&[
        "run",
        "--json",
        "--session",
        session.as_str(),
        "What happened?",
    ]);
    next.ends_well().await;
    let last = bed.model.requests().pop().unwrap();
    assert!(
        words(&last).contains("Tool execution interrupted"),
        "{}",
        words(&last)
    );
    let events = bed.clean_log(&session).await;
    assert_eq!(of(&events, "interrupt.requested").count(), took.len());
    assert_eq!(of(&events, "execution.interrupted").count(), took.len());
}

/// Starts the command, interrupts it through the store, and measures until nothing of it is left.
async fn one_try(bed: &Bed, session: &mut Option<SessionId>) -> Duration {
    let mut run = match &session {
        None => bed.start(&["run", "--json", "--allow-all", "Sleep now."]),
        Some(id) => bed.start(&["run", "--json", "--session", id.as_str(), "Sleep now."]),
    };
    let id = run.session().await;
    bed.until_running("sleep 600", 2).await;
    let client = bed.client();
    let began = Instant::now();
    let receipt = client.interrupt(&id, None, "a test").await.unwrap();
    let acknowledged = began.elapsed();
    bed.until_running("sleep 600", 0).await;
    let dead = began.elapsed();
    assert!(
        matches!(
            receipt,
            Interrupted::Accepted {
                after_takeover: false,
                ..
            }
        ),
        "{receipt:?}"
    );
    assert!(acknowledged < PATIENCE);
    let (code, result) = run.end().await;
    assert_eq!(
        (code, result["outcome"].as_str()),
        (130, Some("interrupted")),
        "{result}"
    );
    let claims = tenure_store::Store::claims(bed.store().as_ref())
        .await
        .unwrap();
    assert!(claims.is_empty(), "{claims:?}");
    *session = Some(id);
    dead
}

#[tokio::test(flavor = "multi_thread")]
async fn real_interrupt_command_says_what_it_did() {
    let sleep = Turn::call("bash", json!({"command": "sleep 601"}));
    let bed = Bed::new(Script::new([sleep])).await;
    let mut run = bed.start(&["run", "--json", "--allow-all", "Sleep."]);
    let session = run.session().await;
    bed.until_running("sleep 601", 1).await;
    let said = bed
        .place
        .output(&["interrupt", "--json", session.as_str()])
        .await
        .unwrap();
    assert!(said.contains("\"receipt\":\"accepted\""), "{said}");
    bed.until_running("sleep 601", 0).await;
    let (code, _) = run.end().await;
    assert_eq!(code, 130);
    let again = bed
        .place
        .output(&["interrupt", "--json", session.as_str()])
        .await
        .unwrap();
    assert!(again.contains("\"receipt\":\"idle\""), "{again}");
    bed.clean_log(&session).await;
}
