//! The database itself fails: it restarts, stands still, loses answers, or comes back without its last commits.

use super::{PATIENCE, Work, all_stream, count, ends_well, fleet};
use std::time::Duration;
use tenure_engine::Prompt;
use tenure_sim::cluster::{Fleet, Ground, Overlaps};
use tenure_testbed::pgbouncer::Pooler;
use tenure_testbed::postgres::{Cluster, Options, Stop};
use tenure_testbed::postgres_or_skip;
use tenure_testbed::proxy::CommitFault;

const STEPS: Work = Work {
    steps: 5,
    pieces: 10,
    pause_ms: 30,
    command_s: 0.1,
};

async fn on_a_server_of_its_own(sessions: usize, work: Work) -> (Cluster, Fleet) {
    let cluster = Cluster::start(&Options::disposable()).unwrap();
    let ground = Ground::postgres(cluster.database().unwrap());
    let mut fleet = fleet(2, ground, work).await;
    let sessions = fleet.busy(sessions).await.unwrap();
    all_stream(&fleet, &sessions).await;
    (cluster, fleet)
}

#[tokio::test(flavor = "multi_thread")]
async fn real_a_restart_of_the_database_loses_nothing() {
    let _server = postgres_or_skip!();
    let (cluster, fleet) = on_a_server_of_its_own(6, STEPS).await;
    for how in [Stop::Fast, Stop::Immediate] {
        cluster.restart(how).unwrap();
        let session = fleet.sessions()[0].clone();
        fleet
            .watch(&session)
            .until_events("session.created", 1, PATIENCE)
            .await
            .unwrap();
    }
    ends_well(&fleet, Overlaps::Allowed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn real_a_database_that_is_away_for_twenty_seconds_loses_nothing() {
    let _server = postgres_or_skip!();
    let (cluster, mut fleet) = on_a_server_of_its_own(4, STEPS).await;
    cluster.stop(Stop::Fast).unwrap();
    // tidy: sleep ok because the length of the absence is what is tested
    tokio::time::sleep(Duration::from_secs(20)).await;
    cluster.start_again().unwrap();
    let session = fleet.sessions()[0].clone();
    fleet
        .prompt(&session, Prompt::steer("And once more."))
        .await
        .unwrap();
    for node in 0..2 {
        let ended = fleet.node(node).running().unwrap().ended().unwrap();
        assert_eq!(ended, None, "node{node} did not wait for the database");
    }
    ends_well(&fleet, Overlaps::Allowed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn real_a_database_that_stands_still_loses_nothing() {
    let _server = postgres_or_skip!();
    let (cluster, fleet) = on_a_server_of_its_own(4, STEPS).await;
    cluster.pause().unwrap();
    // tidy: sleep ok because the length of the pause is what is tested
    tokio::time::sleep(Duration::from_secs(8)).await;
    cluster.resume().unwrap();
    ends_well(&fleet, Overlaps::Allowed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn real_commits_whose_answer_is_lost_are_neither_repeated_nor_forgotten() {
    let server = postgres_or_skip!();
    let ground = Ground::postgres(server.database().unwrap());
    let mut fleet = fleet(2, ground, STEPS).await;
    let session = fleet.busy(1).await.unwrap().remove(0);
    let watch = fleet.watch(&session);
    for (round, fault) in [
        CommitFault::AnswerLost,
        CommitFault::RequestLost,
        CommitFault::AnswerLost,
        CommitFault::Late,
    ]
    .into_iter()
    .enumerate()
    {
        watch
            .until_events("step.started", round + 1, PATIENCE)
            .await
            .unwrap();
        let owner = fleet.until_owned(&session).await.unwrap();
        let proxy = fleet.node(owner).proxy().unwrap();
        proxy.at_next_commit(fault);
        proxy.commit_met(PATIENCE).unwrap();
        if fault == CommitFault::Late {
            proxy.deliver_late().unwrap();
        }
    }
    ends_well(&fleet, Overlaps::Forbidden).await;
    let log = fleet.log(&session).await.unwrap();
    assert_eq!(count(&log, "execution.succeeded"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn real_nodes_behind_a_pooler_do_their_work() {
    let server = postgres_or_skip!();
    let Some(pooler) = Pooler::or_skip(server, 20) else {
        return;
    };
    let ground = Ground::pooled(server.database().unwrap(), pooler);
    let mut fleet = fleet(2, ground, STEPS).await;
    fleet.busy(6).await.unwrap();
    ends_well(&fleet, Overlaps::Forbidden).await;
}

/// The standby that is promoted lacks the last commits: nobody goes on as if they were there.
#[tokio::test(flavor = "multi_thread")]
async fn real_a_failover_that_lost_commits_stops_the_sessions_it_rewound() {
    let _server = postgres_or_skip!();
    // More than enough to be in the middle of it all the time.
    let endless = Work { steps: 90, ..STEPS };
    let (primary, mut fleet) = on_a_server_of_its_own(2, endless).await;
    let standby = primary.standby().unwrap();
    standby.catch_up(&primary).unwrap();
    standby.hold_back().unwrap();
    let session = fleet.sessions()[0].clone();
    let kept = fleet.log(&session).await.unwrap().len();
    let watch = fleet.watch(&session);
    watch
        .until("commits that will be lost", PATIENCE, |events| {
            events.len() > kept + 5
        })
        .await
        .unwrap();
    primary.stop(Stop::Immediate).unwrap();
    let promoted = standby.promote().unwrap();
    for node in 0..2 {
        let proxy = fleet.node(node).proxy().unwrap();
        proxy.retarget(promoted.address());
        proxy.cut();
    }
    let noticed = |fleet: &mut Fleet| {
        (0..2).any(|node| {
            let lines = fleet.node(node).said();
            lines
                .iter()
                .any(|line| line.contains("the server lost acknowledged events"))
        })
    };
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while !noticed(&mut fleet) {
        if std::time::Instant::now() > deadline {
            panic!("nobody noticed: {}", fleet.account().await);
        }
        tokio::task::yield_now().await;
    }
}
