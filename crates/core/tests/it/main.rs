//! Tests of the pure machines from outside: whole turns, properties, and the public fault cases they answer.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod cases;
mod checkpoint;
mod compaction;
mod history;
mod journal;
mod publisher;
mod settle;
mod turns;
mod violations;

use proptest::prelude::ProptestConfig;

/// How a property is tested: `usual` cases, or as many as `PROPTEST_CASES` asks for.
fn cases(usual: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok();
    ProptestConfig {
        cases: asked.and_then(|n| n.parse().ok()).unwrap_or(usual),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}
