//! The engine's whole suite once more, over PostgreSQL.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

#[path = "../it/absences.rs"]
mod absences;
#[path = "../it/bounds.rs"]
mod bounds;
#[path = "../it/budgets.rs"]
mod budgets;
#[path = "../it/cases.rs"]
mod cases;
#[path = "../it/checks.rs"]
mod checks;
#[path = "../it/compaction.rs"]
mod compaction;
#[path = "../it/dialects.rs"]
mod dialects;
#[path = "../it/drain.rs"]
mod drain;
#[path = "../it/failures.rs"]
mod failures;
#[path = "../it/fakes.rs"]
mod fakes;
#[path = "../it/fencing.rs"]
mod fencing;
#[path = "../it/handing.rs"]
mod handing;
#[path = "../it/heard.rs"]
mod heard;
#[path = "../it/inbox.rs"]
mod inbox;
#[path = "../it/interrupts.rs"]
mod interrupts;
#[path = "../it/leavings.rs"]
mod leavings;
#[path = "../it/lingering.rs"]
mod lingering;
#[path = "../it/moving.rs"]
mod moving;
#[path = "../it/nodes.rs"]
mod nodes;
#[path = "../it/ordering.rs"]
mod ordering;
#[path = "../it/outliving.rs"]
mod outliving;
#[path = "../it/overflows.rs"]
mod overflows;
#[path = "../it/peer.rs"]
mod peer;
#[path = "../it/permissions.rs"]
mod permissions;
#[path = "../it/reading.rs"]
mod reading;
#[path = "../it/recovery.rs"]
mod recovery;
#[path = "../it/riding.rs"]
mod riding;
#[path = "../it/serving.rs"]
mod serving;
#[path = "../it/silence.rs"]
mod silence;
#[path = "../it/small_window.rs"]
mod small_window;
#[path = "../it/stores.rs"]
mod stores;
#[path = "../it/support.rs"]
mod support;
#[path = "../it/takeover.rs"]
mod takeover;
#[path = "../it/unseen.rs"]
mod unseen;
#[path = "../it/weather.rs"]
mod weather;

/// Measured by hand on a file; not a test of behaviour.
const LEFT_OUT: &[&str] = &["waiting"];

#[test]
fn no_module_of_the_suite_is_forgotten() {
    let modules = |source: &'static str| -> Vec<&str> {
        source
            .lines()
            .filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'))
            .filter(|name| !LEFT_OUT.contains(name))
            .collect()
    };
    assert_eq!(
        modules(include_str!("main.rs")),
        modules(include_str!("../it/main.rs"))
    );
}
