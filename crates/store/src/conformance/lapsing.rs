//! Who is alive (R7, R13).

use super::world::*;
use crate::api::*;
use crate::error::AppendError;
use std::time::Duration;
use tenure_core::event::body::Phase;
use tenure_core::id::Incarnation;

const TICK: Duration = Duration::from_secs(1);

pub async fn a_node_that_crashed_is_dead_at_once(w: World) {
    let (session, node, _, _, _) = w.running().await;
    let observer = w.join().await;
    assert_eq!(w.store.reap(&observer).await.unwrap(), []);
    w.backend.crash(&node);
    assert_eq!(
        w.store.reap(&observer).await.unwrap(),
        std::slice::from_ref(&node)
    );
    assert_eq!(w.store.reap(&observer).await.unwrap(), []);
    assert!(matches!(
        w.state(&session).await,
        SessionState::Claimable { .. }
    ));
    assert_eq!(w.store.renew(&node).await.unwrap(), Renewal::Dead);
    assert_eq!(
        w.acquire(&session, &observer).await.tenure.taken_from,
        Some(node)
    );
}

pub async fn a_silent_node_is_dead_only_after_a_watched_lease(w: World) {
    let (session, silent, _, _, _) = w.running().await;
    let observer = w.join().await;
    // Its lease is over, but this observer has seen nothing of that yet.
    for _ in 0..7 {
        w.backend.advance(TICK);
        w.store.renew(&observer).await.unwrap();
    }
    assert_eq!(w.store.reap(&observer).await.unwrap(), []);
    assert!(matches!(
        w.state(&session).await,
        SessionState::Waiting { .. }
    ));
    let mut watched = 0;
    loop {
        w.backend.advance(TICK);
        w.store.renew(&observer).await.unwrap();
        watched += 1;
        let dead = w.store.reap(&observer).await.unwrap();
        if !dead.is_empty() {
            assert_eq!(dead, [silent]);
            break;
        }
        assert!(watched < 20, "a silent node is found dead in the end");
    }
    assert!(watched >= 6, "after {watched} s");
    assert!(matches!(
        w.state(&session).await,
        SessionState::Claimable { .. }
    ));
}

pub async fn a_renewing_node_stays_alive(w: World) {
    let (node, observer) = (w.join().await, w.join().await);
    for _ in 0..30 {
        w.backend.advance(TICK);
        assert_eq!(w.store.renew(&node).await.unwrap(), Renewal::Renewed);
        w.store.renew(&observer).await.unwrap();
        assert_eq!(w.store.reap(&observer).await.unwrap(), []);
    }
    let rows = w.store.nodes().await.unwrap();
    assert!(
        rows.iter()
            .all(|row| row.lease_ms == 6_000 && row.name == "test")
    );
}

pub async fn an_observer_back_from_a_pause_starts_over(w: World) {
    let (silent, observer) = (w.join().await, w.join().await);
    assert_eq!(w.store.reap(&observer).await.unwrap(), []);
    // The whole machine slept: everybody looks silent.
    w.backend.advance(Duration::from_secs(3_600));
    assert_eq!(w.store.reap(&observer).await.unwrap(), []);
    assert_eq!(w.store.renew(&observer).await.unwrap(), Renewal::Renewed);
    for _ in 0..5 {
        w.backend.advance(TICK);
        w.store.renew(&observer).await.unwrap();
        assert_eq!(w.store.reap(&observer).await.unwrap(), []);
    }
    // The other wakes a little later, renews before it judges, and lives.
    assert_eq!(w.store.renew(&silent).await.unwrap(), Renewal::Renewed);
}

pub async fn death_is_final(w: World) {
    let node = w.join().await;
    w.store.leave(&node).await.unwrap();
    assert_eq!(w.store.renew(&node).await.unwrap(), Renewal::Dead);
    assert!(matches!(
        w.store.reap(&node).await,
        Err(NodeError::NotLive(_))
    ));
    w.store.leave(&node).await.unwrap();
    let again = NodeInfo {
        incarnation: node.clone(),
        name: "again".to_owned(),
        address: None,
        serves: tenure_core::placement::Serves::everywhere(),
        lease: LEASE,
    };
    assert_eq!(w.store.join(again).await, Err(NodeError::NotLive(node)));
    assert_eq!(w.store.nodes().await.unwrap(), []);
}

pub async fn leaving_frees_the_sessions(w: World) {
    let (session, node, _, _, _) = w.running().await;
    let mut wake = w.store.watch(&session);
    wake.mark_unchanged();
    w.store.leave(&node).await.unwrap();
    wake.changed().await.unwrap();
    let heir = w.join().await;
    assert_eq!(
        w.acquire(&session, &heir).await.tenure.taken_from,
        Some(node)
    );
}

pub async fn a_node_that_resigns_is_not_charged_and_leaves_nothing_behind(w: World) {
    let (session, node, _, _, _) = w.running().await;
    let heir = w.join().await;
    w.store.resign(&node).await.unwrap();
    let taken = w.acquire(&session, &heir).await.tenure;
    assert_eq!(taken.taken_from, Some(node.clone()));
    assert_eq!((taken.charged, taken.attempts), (false, 0));
    assert_eq!((taken.phase, taken.quiet_ms), (Phase::Active, 0));
    assert_eq!(w.store.renew(&node).await.unwrap(), Renewal::Dead);
    // Others were quicker to mark it dead, and nobody has taken its session yet.
    let (session, node, _, _, _) = w.running().await;
    w.backend.crash(&node);
    assert_eq!(
        w.store.reap(&heir).await.unwrap(),
        std::slice::from_ref(&node)
    );
    w.store.resign(&node).await.unwrap();
    assert!(!w.acquire(&session, &heir).await.tenure.charged);
    // What was taken before it could say so was charged, and stays so.
    let (session, node, _, _, _) = w.running().await;
    w.backend.crash(&node);
    w.store.reap(&heir).await.unwrap();
    let taken = w.acquire(&session, &heir).await.tenure;
    w.store.resign(&node).await.unwrap();
    assert_eq!((taken.charged, taken.attempts), (true, 1));
    let row = w.store.session(&session).await.unwrap().unwrap();
    assert_eq!(row.attempts, 1);
}

/// A lease passes in which these renew, and the first of them watches.
async fn watch_a_lease(w: &World, renewing: &[&Incarnation]) {
    for _ in 0..6 {
        w.backend.advance(TICK);
        for node in renewing {
            w.store.renew(node).await.unwrap();
        }
        w.store.reap(renewing[0]).await.unwrap();
    }
}

pub async fn what_a_silent_node_started_is_given_its_lease_and_a_second(w: World) {
    let (session, _, _, _, _) = w.running().await;
    let observer = w.join().await;
    assert_eq!(w.store.reap(&observer).await.unwrap(), []);
    watch_a_lease(&w, &[&observer]).await;
    w.backend.advance(TICK / 2);
    let dead = w.store.reap(&observer).await.unwrap();
    assert_eq!(dead.len(), 1, "its lease is over, and was watched");
    let taken = w.acquire(&session, &observer).await.tenure;
    assert!((1..=500).contains(&taken.quiet_ms), "{} ms", taken.quiet_ms);
}

pub async fn whoever_comes_waits_for_what_a_lost_owner_started(w: World) {
    let (session, _, _, execution, _) = w.running().await;
    let (observer, later) = (w.join().await, w.join().await);
    // Both see that it lives; what one has not seen counts from when it hears of the loss.
    assert_eq!(w.store.reap(&later).await.unwrap(), []);
    assert_eq!(w.store.reap(&observer).await.unwrap(), []);
    watch_a_lease(&w, &[&observer, &later]).await;
    w.backend.advance(TICK / 50);
    assert_eq!(w.store.reap(&observer).await.unwrap().len(), 1);
    let taken = w.acquire(&session, &observer).await;
    assert!(taken.tenure.quiet_ms > 0);
    // Its task is lost and adopted again by the same node; it settles and lets go; another takes it.
    let adopted = match w.store.adopt(&session, &observer).await.unwrap() {
        Acquire::Acquired(tenure) => Owner::new(&w.store, &session, tenure),
        other => panic!("{other:?}"),
    };
    let mut owner = adopted;
    assert!(owner.tenure.quiet_ms > 0, "adopted");
    owner.interrupted(&w, &execution).await;
    let fresh = w.acquire(&session, &later).await.tenure;
    assert!(fresh.quiet_ms > 0, "taken when it was free");
    assert!(fresh.quiet_ms <= taken.tenure.quiet_ms);
    w.backend.advance(TICK);
    w.store.renew(&later).await.unwrap();
    let again = w.store.adopt(&session, &later).await.unwrap();
    assert!(matches!(again, Acquire::Acquired(tenure) if tenure.quiet_ms == 0));
}

pub async fn whoever_starts_something_has_waited_for_all_who_come(w: World) {
    let (session, _, _, _, message) = w.running().await;
    let observer = w.join().await;
    assert_eq!(w.store.reap(&observer).await.unwrap(), []);
    watch_a_lease(&w, &[&observer]).await;
    w.backend.advance(TICK / 50);
    assert_eq!(w.store.reap(&observer).await.unwrap().len(), 1);
    let mut taken = w.acquire(&session, &observer).await;
    assert!(taken.tenure.quiet_ms > 0);
    let start = HookOp::EffectStart {
        message,
        call: tenure_core::id::CallId::new("c"),
        generation: 0,
    };
    taken.ops(vec![start]).await.unwrap();
    let again = w.store.adopt(&session, &observer).await.unwrap();
    assert!(
        matches!(&again, Acquire::Acquired(tenure) if tenure.quiet_ms == 0 && tenure.lost.is_empty()),
        "{again:?}"
    );
}

const HOUR_MS: i64 = 3_600_000;

/// Watched from now on, second by second, it is found dead. After how many, and by whom: whoever watched.
async fn watched_to_death(w: &World, silent: &Incarnation) -> (u32, Incarnation) {
    let observer = w.join().await;
    assert_eq!(w.store.reap(&observer).await.unwrap(), []);
    for second in 1..=20 {
        w.backend.advance(TICK);
        assert_eq!(w.store.renew(&observer).await.unwrap(), Renewal::Renewed);
        let dead = w.store.reap(&observer).await.unwrap();
        if !dead.is_empty() {
            assert_eq!(dead, std::slice::from_ref(silent));
            return (second, observer);
        }
    }
    panic!("a silent node is found dead in the end");
}

/// By the store's clock its lease would be good for another hour. What others watched on their own clocks is enough.
pub async fn a_clock_that_is_set_back_keeps_no_silent_node_alive(w: World) {
    let (session, silent, mut owner, _, message) = w.running().await;
    let claims = w.store.claims().await.unwrap();
    w.backend.set_clock(-HOUR_MS);
    // Nobody is shown a lease longer than one.
    let nodes = w.store.nodes().await.unwrap();
    assert_eq!(nodes.len(), 1);
    assert!(nodes.iter().all(|node| node.lease_ms == 6_000), "{nodes:?}");
    let shown = w.store.claims().await.unwrap();
    assert_eq!(shown[0].expires_at, claims[0].expires_at);
    let (watched, observer) = watched_to_death(&w, &silent).await;
    assert!((6..=7).contains(&watched), "after {watched} s");
    // It wakes, and learns of it whatever it tries.
    assert_eq!(w.store.renew(&silent).await.unwrap(), Renewal::Dead);
    let taken = w.acquire(&session, &observer).await.tenure;
    assert_eq!(taken.taken_from, Some(silent));
    assert!(taken.quiet_ms <= 1_000, "{} ms", taken.quiet_ms);
    let late = owner
        .append(Guard::Settling, vec![w.event(step_ended(&message))], vec![])
        .await;
    assert!(
        matches!(late, Err(AppendError::StaleClaim { .. })),
        "{late:?}"
    );
}

/// One that renews is nobody's prey, however the store's clock is set; each step costs those who watch a lease at most.
pub async fn a_clock_that_is_set_kills_no_node_that_renews(w: World) {
    let (node, observer) = (w.join().await, w.join().await);
    for second in 0..40 {
        w.backend.advance(TICK);
        if second % 4 == 0 {
            let ahead = second % 8 == 0;
            w.backend.set_clock(if ahead { HOUR_MS } else { -HOUR_MS });
        }
        assert_eq!(w.store.reap(&observer).await.unwrap(), []);
        assert_eq!(w.store.renew(&node).await.unwrap(), Renewal::Renewed);
        w.store.renew(&observer).await.unwrap();
    }
}

/// R10: what a lost owner started may live for a lease and a second, counted on the taker's own clock. A store's clock
/// that is set ends that no earlier and no later, before the takeover or after it.
pub async fn a_clock_that_is_set_moves_no_quiet_time(w: World) {
    for (before, after) in [(-HOUR_MS, 0), (HOUR_MS, 0), (0, -HOUR_MS), (0, HOUR_MS)] {
        let (session, silent, _, _, _) = w.running().await;
        let observer = w.join().await;
        assert_eq!(w.store.reap(&observer).await.unwrap(), []);
        for _ in 0..6 {
            w.backend.advance(TICK);
            w.store.renew(&observer).await.unwrap();
            w.store.reap(&observer).await.unwrap();
        }
        w.backend.advance(TICK / 4);
        w.store.renew(&observer).await.unwrap();
        let dead = w.store.reap(&observer).await.unwrap();
        assert_eq!(dead, std::slice::from_ref(&silent));
        w.backend.set_clock(before);
        let told = w.acquire(&session, &observer).await.tenure.quiet_ms;
        assert!((1..=750).contains(&told), "{told} ms, set by {before} ms");
        w.backend.set_clock(after);
        w.backend.advance(TICK / 4);
        let still = match w.store.adopt(&session, &observer).await.unwrap() {
            Acquire::Acquired(tenure) => tenure.quiet_ms,
            other => panic!("{other:?}"),
        };
        assert!((1..=500).contains(&still), "{still} ms, set by {after} ms");
        w.backend.advance(TICK);
        assert!(matches!(
            w.store.adopt(&session, &observer).await.unwrap(),
            Acquire::Acquired(tenure) if tenure.quiet_ms == 0
        ));
        w.store.leave(&observer).await.unwrap();
    }
}

pub async fn whoever_comes_waits_for_what_an_owner_says_it_leaves(w: World) {
    let (session, _, mut owner, execution, _) = w.running().await;
    // What is said later does not take back what was said before.
    let said = [3_000, 1_000].map(|ms| HookOp::Quiet { ms });
    owner.ops(said.to_vec()).await.unwrap();
    owner.interrupted(&w, &execution).await;
    let other = w.join().await;
    let taken = w.acquire(&session, &other).await.tenure;
    assert_eq!(taken.taken_from, None);
    let quiet = taken.quiet_ms;
    assert!((1_001..=3_000).contains(&quiet), "{quiet} ms");
    w.backend.advance(TICK * 4);
    w.store.renew(&other).await.unwrap();
    let again = w.store.adopt(&session, &other).await.unwrap();
    assert!(matches!(again, Acquire::Acquired(tenure) if tenure.quiet_ms == 0));
}
