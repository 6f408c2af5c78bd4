//! What happens once in a step: a log that has it twice is none that a runtime wrote.

use std::collections::HashSet;
use tenure_core::event::EventBody;
use tenure_core::id::MessageId;

/// What has happened in the step that is read.
#[derive(Debug, Default)]
pub(super) struct Once {
    seen: HashSet<(&'static str, MessageId, String)>,
}

impl Once {
    /// What is wrong with this event behind those before it.
    pub(super) fn problem(&mut self, body: &EventBody) -> Option<String> {
        if let EventBody::StepStarted(_) = body {
            self.seen.clear();
        }
        let (what, number) = key(body)?;
        let message = body.message()?.clone();
        let fresh = self.seen.insert((what, message, number.clone()));
        (!fresh).then(|| format!("{what} {number} of the same step came before"))
    }
}

/// What an event is of which there is one in a step.
fn key(body: &EventBody) -> Option<(&'static str, String)> {
    Some(match body {
        EventBody::AttemptStarted(e) => ("the start of attempt", e.attempt.to_string()),
        EventBody::AttemptEnded(e) => ("the end of attempt", e.attempt.to_string()),
        EventBody::FragmentStarted(e) => ("the start of part", e.part.to_string()),
        EventBody::FragmentEnded(e) => ("the end of part", e.part.to_string()),
        EventBody::ToolInputStarted(e) => ("the announcement of call", e.call.to_string()),
        EventBody::ToolCalled(e) => ("call", e.call.to_string()),
        EventBody::ToolStarted(e) => ("the start of call", e.call.to_string()),
        EventBody::ToolSucceeded(e) => ("the result of call", e.call.to_string()),
        EventBody::ToolFailed(e) => ("the result of call", e.call.to_string()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::event::body::*;
    use tenure_core::id::CallId;
    use tenure_core::model::ModelRef;

    fn step(message: &MessageId) -> EventBody {
        StepStarted {
            message: message.clone(),
            step: 1,
            model: model(),
            last: false,
        }
        .into()
    }

    fn model() -> ModelRef {
        ModelRef {
            provider: "p".into(),
            model: "m".into(),
        }
    }

    /// What may be in a step once.
    fn single(message: &MessageId) -> Vec<EventBody> {
        let (message, call) = (message.clone(), CallId::new("c"));
        vec![
            AttemptStarted {
                message: message.clone(),
                attempt: 1,
                model: model(),
                request_hash: String::new(),
                at_most: None,
            }
            .into(),
            FragmentStarted {
                message: message.clone(),
                part: 0,
                attempt: 1,
                kind: FragmentKind::Text,
            }
            .into(),
            ToolInputStarted {
                message: message.clone(),
                part: 1,
                attempt: 1,
                call: call.clone(),
                name: "t".into(),
            }
            .into(),
            ToolStarted {
                message: message.clone(),
                call: call.clone(),
                generation: 0,
            }
            .into(),
            ToolFailed {
                message,
                call,
                failure: ToolFailure::Failed,
                text: String::new(),
                cut: None,
                native: None,
            }
            .into(),
        ]
    }

    #[test]
    fn what_comes_twice_in_a_step_is_noticed_and_in_another_step_it_is_another() {
        let (one, two) = (MessageId::from_bits(1), MessageId::from_bits(2));
        for event in single(&one) {
            let mut once = Once::default();
            assert_eq!(once.problem(&step(&one)), None);
            for whole in single(&one) {
                assert_eq!(once.problem(&whole), None, "{whole:?}");
            }
            let problem = once.problem(&event);
            assert!(
                problem.is_some_and(|p| p.contains("came before")),
                "{event:?}"
            );
            assert_eq!(once.problem(&step(&two)), None);
            for whole in single(&two) {
                assert_eq!(once.problem(&whole), None, "{whole:?}");
            }
        }
    }

    #[test]
    fn a_success_behind_a_failure_is_a_second_result() {
        let message = MessageId::from_bits(1);
        let mut once = Once::default();
        for event in single(&message) {
            once.problem(&event);
        }
        let success = ToolSucceeded {
            message,
            call: CallId::new("c"),
            text: String::new(),
            title: String::new(),
            metadata: serde_json::Value::Null,
            cut: None,
            native: None,
        };
        let problem = once.problem(&success.into());
        assert_eq!(
            problem.as_deref(),
            Some("the result of call c of the same step came before")
        );
    }
}
