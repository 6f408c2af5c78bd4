//! Integration tests of the engine over a real store and a model in this process.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod absences;
mod bounds;
mod budgets;
mod cases;
mod checks;
mod compaction;
mod dialects;
mod drain;
mod failures;
mod fakes;
mod fencing;
mod handing;
mod heard;
mod inbox;
mod interrupts;
mod leavings;
mod lingering;
mod moving;
mod nodes;
mod ordering;
mod outliving;
mod overflows;
mod peer;
mod permissions;
mod reading;
mod recovery;
mod riding;
mod serving;
mod silence;
mod small_window;
mod stores;
mod support;
mod takeover;
mod unseen;
mod waiting;
mod weather;
