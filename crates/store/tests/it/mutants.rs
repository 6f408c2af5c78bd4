//! Each switch that breaks a rule turns the suite red.

use crate::sqlite_backend::mutated;
use std::panic::AssertUnwindSafe;
use std::time::Duration;
use tenure_store::conformance::{Backend, CASES, World};
use tenure_store::mutation::{Mutation, Mutations};

/// The case of the suite that shows the rule, if a case of the suite does.
pub fn case_of(mutation: Mutation) -> Option<&'static str> {
    let name = mutation
        .witness()
        .strip_prefix("tenure-store conformance::")?;
    let case = CASES
        .iter()
        .find(|case| case.name.rsplit("::").next() == Some(name));
    Some(
        case.unwrap_or_else(|| panic!("there is no case {name}"))
            .name,
    )
}

/// Does the case hold under these switches? A case that hangs does not.
async fn holds(name: &str, mutations: Mutations) -> bool {
    holds_on(name, mutated(mutations)).await
}

/// Does the case hold on this backend?
pub async fn holds_on(name: &str, backend: Box<dyn Backend>) -> bool {
    let case = CASES.iter().find(|case| case.name == name);
    let run = case
        .unwrap_or_else(|| panic!("there is no case {name}"))
        .run;
    let case = tokio::spawn(AssertUnwindSafe(run(World::new(backend))).0);
    match tokio::time::timeout(Duration::from_secs(60), case).await {
        Ok(done) => done.is_ok(),
        Err(_) => false,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_broken_rule_is_noticed() {
    let shown = Mutation::ALL
        .iter()
        .filter_map(|mutation| Some((*mutation, case_of(*mutation)?)));
    let runs = shown.map(|(mutation, name)| async move {
        let passed = holds(name, Mutations::only(mutation)).await;
        passed.then(|| format!("{} passes {name}", mutation.name()))
    });
    let blind: Vec<_> = futures::future::join_all(runs)
        .await
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(blind, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_behind_the_notification_is_noticed_by_observers() {
    let broken = Mutations::only(Mutation::HookAfterNotify);
    assert!(
        !holds(
            "dropping::no_observer_sees_a_commit_before_its_hook",
            broken
        )
        .await
    );
}

/// A file's clock is its machine's own, which nobody sets: over memory the database has one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_believes_the_stores_clock_is_noticed() {
    for (mutation, case) in [
        (
            Mutation::SilenceByStoreClock,
            "lapsing::a_clock_that_is_set_back_keeps_no_silent_node_alive",
        ),
        (
            Mutation::QuietByStoreClock,
            "lapsing::a_clock_that_is_set_moves_no_quiet_time",
        ),
    ] {
        let broken = crate::memory_backend::mutated(Mutations::only(mutation));
        assert!(!holds_on(case, broken).await, "{}", mutation.name());
    }
}
