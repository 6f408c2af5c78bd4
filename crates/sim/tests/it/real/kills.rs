//! SIGKILL: a share of the kill run, and tool processes that must not outlive their owner.

use super::{Bed, of};
use serde_json::json;
use tenure_core::EventBody;
use tenure_core::event::body::ToolFailure;
use tenure_scripted::{Fault, Script, Turn};
use tenure_sim::kill;
use tenure_sim::place;
use tenure_sim::processes::{kill as end, marked};

#[tokio::test(flavor = "multi_thread")]
async fn real_kill_share() {
    let options = kill::Options {
        points: 24,
        seed: 20_260,
        ..kill::Options::default()
    };
    let points = kill::run(&options).await.unwrap();
    let table = kill::table(&points);
    assert_eq!(points.len(), 24);
    assert!(
        points.iter().all(|point| point.violations.is_empty()),
        "{table}"
    );
    let hits = points.iter().map(|point| point.hits.len()).sum::<usize>();
    assert!(hits >= 24 / 2, "too few kills hit anything\n{table}");
    for protocol in place::spoken(&place::tenure().unwrap()).unwrap() {
        let mut its = points.iter().filter(|p| p.plan.protocol == protocol);
        assert!(
            its.any(|point| !point.hits.is_empty()),
            "{protocol}\n{table}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_sigkill_leaves_no_tool_process() {
    // Grandchildren in sessions of their own, without a terminal, and twice forked.
    let command =
        "setsid sleep 311 & nohup sleep 312 >/dev/null 2>&1 & (setsid sleep 313 &) ; sleep 314";
    let turn = Turn::call("bash", json!({ "command": command }));
    let script = Script::new([turn, Turn::text("It was killed.")]);
    let bed = Bed::new(script).await;
    let mut run = bed.start(&["run", "--json", "--allow-all", "Sleep."]);
    let session = run.session().await;
    for sleep in ["sleep 311", "sleep 312", "sleep 313", "sleep 314"] {
        bed.until_running(sleep, 1).await;
    }
    run.child.start_kill().unwrap();
    for sleep in ["sleep 311", "sleep 312", "sleep 313", "sleep 314"] {
        let took = bed.until_running(sleep, 0).await;
        assert!(took.as_secs() < 3, "{sleep} lived on for {took:?}");
    }
    assert_eq!(marked(bed.place.mark()).unwrap(), [], "a guardian is left");

    bed.start(&["resume", "--json", session.as_str()])
        .ends_well()
        .await;
    let events = bed.clean_log(&session).await;
    let unknown = of(&events, "tool.failed").any(
        |body| matches!(body, EventBody::ToolFailed(e) if e.failure == ToolFailure::OutcomeUnknown),
    );
    assert!(
        unknown,
        "the call that was running is settled as of unknown outcome"
    );
    assert_eq!(
        of(&events, "tool.started").count(),
        1,
        "and it was not run again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn real_a_session_that_costs_its_owners_is_set_aside_and_can_be_released() {
    let silent = Turn::fault(Fault::Stall {
        after_events: None,
        after_parts: None,
        before_headers: false,
        keepalive_ms: None,
        for_ms: None,
    });
    let bed = Bed::new(Script::new([]).fallback(silent)).await;
    let mut run = bed.start(&["run", "--json", "--allow-all", "Do it."]);
    let session = run.session().await;
    for crash in 1..=3 {
        bed.model.wait_for(crash).await;
        // Also the process of its own that it is given after two crashes.
        for process in marked(bed.place.mark()).unwrap() {
            end(process.pid);
        }
        run.child.wait().await.unwrap();
        run = bed.start(&["run", "--json", "--session", session.as_str(), "Go on."]);
    }
    let (code, result) = run.end().await;
    assert_eq!(
        (code, result["outcome"].as_str()),
        (3, Some("quarantined")),
        "{result}"
    );
    assert_eq!(
        bed.model.requests().len(),
        3,
        "it is not sent a fourth time"
    );
    let events = bed.place.exported(&session).await.unwrap();
    assert_eq!(tenure_sim::checker::check(&events), []);
    assert_eq!(of(&events, "session.quarantined").count(), 1);
    let shown = bed.place.output(&["show", session.as_str()]).await.unwrap();
    assert!(shown.contains("tenure release"), "{shown}");
    bed.place
        .output(&["release", session.as_str()])
        .await
        .unwrap();
    let again = bed.place.output(&["show", session.as_str()]).await.unwrap();
    assert!(!again.contains("quarantined ·"), "{again}");
}
