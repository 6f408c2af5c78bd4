//! What sessions of a fleet do: steps that stream and run a command, told apart by marks in the history.
//!
//! A step is asked for until its mark is in the history, so any node can go on with it, and every command leaves one
//! line that can be counted.

use crate::task::EFFECTS;
use serde_json::json;
use tenure_scripted::{Part, Script, Turn};

/// How much there is to do, and how slowly it comes.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// Steps, each with one command, before the closing words.
    pub steps: usize,
    /// Pieces of text in each step, or of the closing words when there is no step.
    pub pieces: usize,
    /// Milliseconds before each piece.
    pub pause_ms: u64,
    /// How many seconds each command takes, for example `0.05`.
    pub command_s: f32,
}

impl Work {
    /// The model's side of it, for any number of sessions.
    pub fn script(&self) -> Script {
        let turns: Vec<Turn> = (0..self.steps).map(|step| self.turn(step)).collect();
        Script::new(turns)
            .by_history()
            .fallback(self.paced(Turn::default().and(Part::text(self.closing()))))
    }

    /// The closing words; all there is when there are no steps.
    fn closing(&self) -> String {
        if self.steps == 0 {
            self.words()
        } else {
            "All steps are done.".to_owned()
        }
    }

    fn words(&self) -> String {
        (0..self.pieces)
            .map(|piece| format!("word{piece} "))
            .collect()
    }

    fn turn(&self, step: usize) -> Turn {
        let words = self.words();
        // The mark is in the result only, never in the call.
        let command = format!(
            "echo \"{step:02}a $TENURE_GUARDIAN\" >> {EFFECTS}; sleep {}; echo STEP-{step:02}-$(echo DONE)",
            self.command_s
        );
        let turn = Turn::default()
            .and(Part::text(format!("Step {step:02}: {words}")))
            .and(Part::call("bash", json!({ "command": command })));
        self.paced(turn.skip_if_contains(format!("STEP-{step:02}-DONE")))
    }

    fn paced(&self, mut turn: Turn) -> Turn {
        turn.chunk_delay_ms = self.pause_ms;
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_has_a_mark_of_its_own() {
        let work = Work {
            steps: 3,
            pieces: 2,
            pause_ms: 1,
            command_s: 0.0,
        };
        let script = work.script();
        assert!(script.check().is_ok());
        let marks: Vec<_> = script
            .turns
            .iter()
            .filter_map(|turn| turn.skip_if_contains.clone())
            .collect();
        assert_eq!(marks, ["STEP-00-DONE", "STEP-01-DONE", "STEP-02-DONE"]);
    }
}
