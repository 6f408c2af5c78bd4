//! What a new owner does with the phase it finds (design §6, R8, R9). Pure: the store moves the rows.

use crate::event::body::{Phase, RecoveryDecision};
use crate::id::{MessageId, SessionId};
use crate::turn::TurnState;

/// Crashes suffered alone after which a session is set aside (R8).
pub const MAX_ATTEMPTS: u32 = 3;
/// Charges from which on a session runs alone in its own process (R8).
pub const ISOLATE_FROM: u32 = 2;

/// Decides what follows a takeover. The fold is the truth, the phase only its index (R9). `charged`: this takeover was
/// one of the `attempts`. What is whole and was lost by nobody now is not set aside for what was charged before (R8).
pub fn recover(phase: Phase, turn: &TurnState, attempts: u32, charged: bool) -> RecoveryDecision {
    if phase == Phase::Cancelling {
        return RecoveryDecision::SettleOnly;
    }
    if attempts >= MAX_ATTEMPTS && (charged || !turn.at_boundary()) {
        return RecoveryDecision::Quarantine;
    }
    if turn.at_boundary() {
        RecoveryDecision::GoOn
    } else {
        RecoveryDecision::Continue
    }
}

/// The id of the continuation input for what was settled: the same however often recovery runs (R9).
pub fn continuation_id(session: &SessionId, settled: &str) -> MessageId {
    MessageId::derived(&["continuation", session.as_str(), settled])
}

/// Words for the model after its process was lost.
pub const CONTINUATION_AFTER_CRASH: &str = "The process running this session was lost and another one \
took over. Your last response may be incomplete, and a tool marked \"outcome unknown\" may or may not have \
had its effect: check before you repeat it. Continue with the task.";

/// Words for the model after its stream broke behind a complete tool call.
pub const CONTINUATION_AFTER_CUT: &str = "Your last response was cut off by a connection failure after a \
tool call. The calls that arrived were carried out and their results are above. Continue from there.";

/// Words for the model after a shutdown in mid-step.
pub const CONTINUATION_AFTER_SHUTDOWN: &str = "The node running this session was shut down in the middle \
of your last response. What was open is marked above. Continue with the task.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::CompactionId;

    #[test]
    fn recovery_follows_the_fold_and_bounds_the_attempts() {
        let safe = TurnState::default();
        let open = TurnState {
            compaction: Some(CompactionId::from_bits(1)),
            ..TurnState::default()
        };
        use RecoveryDecision as D;
        assert_eq!(recover(Phase::Safe, &safe, 0, false), D::GoOn);
        assert_eq!(recover(Phase::Active, &open, 1, true), D::Continue);
        assert_eq!(recover(Phase::Active, &open, 3, true), D::Quarantine);
        assert_eq!(recover(Phase::Safe, &safe, 3, true), D::Quarantine);
        // Adopted before the quarantine could be recorded: what took it down is still open.
        assert_eq!(recover(Phase::Active, &open, 3, false), D::Quarantine);
        // Interrupted at the limit, and taken again when there is new input: nobody was lost.
        assert_eq!(recover(Phase::Safe, &safe, 3, false), D::GoOn);
        assert_eq!(recover(Phase::Cancelling, &open, 9, true), D::SettleOnly);
        // A stale index does not decide: nothing is open, so nothing is settled.
        assert_eq!(recover(Phase::Active, &safe, 1, true), D::GoOn);
    }

    #[test]
    fn the_continuation_id_is_a_function_of_what_was_settled() {
        let session = SessionId::from_bits(7);
        assert_eq!(
            continuation_id(&session, "msg_a"),
            continuation_id(&session, "msg_a")
        );
        assert_ne!(
            continuation_id(&session, "msg_a"),
            continuation_id(&session, "msg_b")
        );
    }
}
