//! The claim protocol as a model, checked exhaustively: three nodes, one session, no violation in any state.
//!
//! It stands beside the rules it models. A change of a rule is a change here first: the checker says within
//! seconds what it would break, with the shortest run that shows it.
//!
//! # The state
//!
//! `state`: the head row (owner, phase, interrupt, charges, offer to a successor, the fold of the turn, the inbox),
//! one row for each node (active, draining, dead, dead by suspicion; its lease really over or not), what each
//! process believes (its fence, its fold, whether a spawn is due), one append under way for each node, whether
//! a tool's processes run on its machine, and what only an outside observer knows (`Facts`).
//!
//! Epoch, claim and write number are kept as "still equals the head row's" for each fence, since stores only
//! ever compare them for equality; so runs of any length have finitely many states. Nodes have no names: of
//! states that differ by a renaming one is kept.
//!
//! # The actions
//!
//! `nodes::Action`. People admit, interrupt, drain. Trouble: a process crashes, a task dies in it, it pauses or is
//! cut off, it is suspected rightly or wrongly, an append arrives late or its answer is lost, the database's clock is
//! set ahead or back. Time: leases end, an acceptance deadline passes, a process resumes. Nodes renew, bury the silent,
//! fence themselves, come back, leave, acquire, adopt, append, spawn, resolve. An append is one transaction, as in
//! the stores; its answer may be lost and it may land when its node has long gone on.
//!
//! # What is checked
//!
//! *Always* (`state::Violation`, one doc line each): in each transition and in each state. *In the end*: from every
//! reachable state, without further trouble and further prompts, a state can be reached in which the session is
//! idle, parked or set aside, nobody holds a claim and no process runs (P7).
//!
//! `exhaustive` runs the protocol as it is and prints the bound and the number of states; the bound is the number
//! of prompts and of troubles, of all kinds together. `nor_with_more` (ignored) takes it from the environment.
//! `broken` switches off each rule in turn and demands that the checker finds what `rules` says it prevents; a
//! rule that others cover says why it exists. `replay` walks the model at random beside a real store and compares
//! verdict, owner, epoch, phase, charges, inbox and state after each action: model and code cannot drift apart.
//!
//! # What is left out
//!
//! Several sessions, several calls in a step, compactions, attachments (R14), children (R15), the queue of inputs
//! (each counts as a steer), keys of interrupts (a repetition is no new transaction), user's release from
//! quarantine, isolation, locations. Two losses set a session aside, not three. A stopped process and one that is
//! cut off are one thing that may still spawn. Leases have no lengths: that a process stops before its lease can
//! end is an assumption, that its guardian does is a rule; so is that an observer measures a lease right: it looks several
//! times in one, and starts over when its own clock has jumped between two looks. Batches and lanes are the stores' own affair.
//!
//! # Reading a counterexample
//!
//! Two lines for each action: the action with its node and the store's verdict, then the state after it.
//! `n1'` is an earlier incarnation of node 1; `holds (stale: epoch write_no)` a fence of which these parts no
//! longer match; `(stopping)` and `(must rest)` what the outside observer knows. The last state names the
//! violation; of a session that strands, it is the last state from which nothing leads to rest.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod batch;
mod broken;
mod checker;
mod exhaustive;
mod nodes;
mod real;
mod replay;
mod rules;
#[path = "../it/sqlite_backend.rs"]
mod sqlite_backend;
mod state;
mod store;
