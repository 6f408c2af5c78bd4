//! Each switch that breaks a rule turns the suite red over PostgreSQL too.

use crate::mutants::{case_of, holds_on};
use crate::postgres_backend::mutated;
use futures::StreamExt;
use tenure_store::mutation::{Mutation, Mutations};
use tenure_testbed::postgres::shared_or_skip;

/// How many worlds stand at once.
const AT_ONCE: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_broken_rule_is_noticed() {
    if shared_or_skip().is_none() {
        return;
    }
    let shown = Mutation::ALL
        .iter()
        .filter_map(|mutation| Some((*mutation, case_of(*mutation)?)));
    let runs = shown.map(|(mutation, name)| async move {
        let backend = mutated(Mutations::only(mutation))?;
        let passed = holds_on(name, backend).await;
        passed.then(|| format!("{} passes {name}", mutation.name()))
    });
    let runs = futures::stream::iter(runs).buffer_unordered(AT_ONCE);
    let blind: Vec<String> = runs.filter_map(|blind| async { blind }).collect().await;
    assert_eq!(blind, [""; 0]);
}
