//! The owner is killed while its sessions stream: every one goes on elsewhere, soon, and nothing is lost or done twice.

use super::{Work, all_stream, ends_well, fleet};
use tenure_core::Event;
use tenure_sim::cluster::{Gaps, Ground, Overlaps};

async fn killed_owner(ground: Ground, sessions: usize) -> Gaps {
    let work = Work {
        steps: 3,
        pieces: 40,
        pause_ms: 20,
        command_s: 0.05,
    };
    let mut fleet = fleet(2, ground, work).await;
    let all = fleet.busy(sessions).await.unwrap();
    all_stream(&fleet, &all).await;
    let mut victims = Vec::new();
    for node in 0..2 {
        victims.push(fleet.owned_by(node).await.unwrap());
    }
    let victim = usize::from(victims[1].len() > victims[0].len());
    assert!(!victims[victim].is_empty(), "{victims:?}");
    let at = fleet.node(victim).kill().unwrap();
    ends_well(&fleet, Overlaps::Forbidden).await;

    let logs = fleet.logs().await.unwrap();
    let of_victim = victims[victim].iter().map(|session| &logs[session][..]);
    // A session that was over when the kill came has no next owner.
    let open = of_victim.filter(|log| log.last().is_some_and(|last| last.created_ms > at));
    let gaps = Gaps::to_next_owner(open.collect::<Vec<&[Event]>>(), at);
    println!("owner killed, to the first event elsewhere: {gaps}");
    assert!(!gaps.is_empty());
    assert_eq!(gaps.stranded, 0, "{gaps}");
    gaps
}

#[tokio::test(flavor = "multi_thread")]
async fn real_sessions_of_a_killed_node_go_on_at_once_on_one_file() {
    let gaps = killed_owner(Ground::Sqlite, 12).await;
    assert!(gaps.percentile(99) <= 2_500, "{gaps}");
}
