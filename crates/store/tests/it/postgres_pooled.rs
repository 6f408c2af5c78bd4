//! The conformance suite through a transaction-mode pooler: the reduced mode keeps every promise but fast suspicion.

use crate::mutants::holds_on;
use crate::postgres_backend::reached;
use futures::StreamExt;
use std::sync::Arc;
use tenure_store::conformance::CASES;
use tenure_store::mutation::Mutations;
use tenure_testbed::pgbouncer::Pooler;
use tenure_testbed::postgres::shared_or_skip;

/// How many worlds stand at once.
const AT_ONCE: usize = 4;
/// Parts of the suite that write; the others read what these wrote.
const WRITING: [&str; 6] = [
    "appending::",
    "claiming::",
    "dropping::",
    "handing::",
    "hooking::",
    "interrupting::",
];
/// A crash is found at once, which takes a presence that a pooler does not pass on.
const SUSPECTING: &str = "claiming::loading_is_charged_until_a_step_begins";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_that_writes_holds_behind_a_pooler() {
    let Some(server) = shared_or_skip() else {
        return;
    };
    let Some(pooler) = Pooler::or_skip(server, 8) else {
        return;
    };
    let pooler = Arc::new(pooler);
    let cases = CASES.iter().filter(|case| {
        let writes = WRITING.iter().any(|part| case.name.starts_with(part));
        writes && case.name != SUSPECTING
    });
    let runs = cases.map(|case| {
        let pooler = Arc::clone(&pooler);
        async move {
            let database = server.database().unwrap();
            let backend = reached(Mutations::default(), database, |url| pooler.url(url));
            let holds = holds_on(case.name, backend).await;
            (!holds).then_some(case.name)
        }
    });
    let runs = futures::stream::iter(runs).buffer_unordered(AT_ONCE);
    let failed: Vec<&str> = runs
        .filter_map(|failed| async move { failed })
        .collect()
        .await;
    assert_eq!(failed, [""; 0]);
}
