//! Tests of the pure machines from outside: whole turns, properties, and the public fault cases they answer.

mod cases;
mod checkpoint;
mod compaction;
mod history;
mod journal;
mod publisher;
mod settle;
mod turns;
mod violations;
