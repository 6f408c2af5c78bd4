//! A deploy: nodes are told to end one after another and started again, under work that does not stop.

use super::{PATIENCE, Work, all_stream, count, ends_well, fleet};
use tenure_sim::cluster::{Gaps, Ground, Overlaps};

async fn rolling_restart(ground: Ground, nodes: usize, sessions: usize) -> Gaps {
    let work = Work {
        steps: 6,
        pieces: 10,
        pause_ms: 20,
        command_s: 0.02,
    };
    let mut fleet = fleet(nodes, ground, work).await;
    let all = fleet.busy(sessions).await.unwrap();
    let watches: Vec<_> = all.iter().map(|session| fleet.watch(session)).collect();
    all_stream(&fleet, &all).await;
    let mut window = (i64::MAX, 0);
    for node in 0..nodes {
        let (at, status) = fleet.node(node).terminate(PATIENCE).unwrap();
        assert!(status.success(), "node{node} ended with {status}");
        window = (window.0.min(at), at);
        fleet.start_node(node).await.unwrap();
    }
    ends_well(&fleet, Overlaps::Forbidden).await;

    let logs = fleet.logs().await.unwrap();
    for (session, log) in &logs {
        // Steps here are shorter than the time a node has to end: none is cut, so none is asked for twice.
        assert_eq!(count(log, "attempt.started"), 7, "{session}");
        assert_eq!(count(log, "tool.started"), 6, "{session}");
        assert_eq!(count(log, "step.failed"), 0, "{session}");
        assert_eq!(count(log, "execution.succeeded"), 1, "{session}");
    }
    for watch in &watches {
        let whole = &logs[watch.session()];
        watch
            .until("end", PATIENCE, |seen| seen.len() >= whole.len())
            .await
            .unwrap();
        assert_eq!(watch.wrong(), [0; 0], "every event once, in order");
        assert_eq!(&watch.events(), whole);
    }
    let gaps = Gaps::longest_silence(logs.values().map(Vec::as_slice), window.0, window.1);
    println!("rolling restart, longest silence of each session: {gaps}");
    gaps
}

#[tokio::test(flavor = "multi_thread")]
async fn real_a_rolling_restart_loses_nothing_and_repeats_nothing_on_one_file() {
    let gaps = rolling_restart(Ground::Sqlite, 3, 12).await;
    assert!(!gaps.is_empty());
}
