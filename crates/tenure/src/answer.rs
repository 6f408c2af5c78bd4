//! Which words are the answer to one prompt, and do they have the form that was asked for?

use crate::form::Form;
use crate::render::settled::Settled;
use serde_json::Value;
use std::collections::HashSet;
use tenure_core::MessageId;
use tenure_core::error::SessionError;
use tenure_core::event::EventBody;
use tenure_core::event::body::InputKind;

/// At most so many faults are told.
const TOLD: usize = 5;

/// Watches a session from a prompt's admission on for the answer to it: the last message between its delivery and
/// that of another prompt. Others may be delivered behind it in the same execution, and their answers are theirs.
#[derive(Debug)]
pub struct Answer {
    input: MessageId,
    /// Inputs that are no prompts: nothing answers them.
    no_prompts: HashSet<MessageId>,
    settled: Settled,
    delivered: bool,
    /// The prompt that was delivered next.
    next: Option<MessageId>,
    said: Option<Said>,
}

/// A message of the model.
#[derive(Debug)]
struct Said {
    message: MessageId,
    text: String,
    /// It calls tools: the model goes on with their results, so it is no answer.
    calls: bool,
}

impl Answer {
    /// Of this prompt.
    pub fn new(input: MessageId) -> Self {
        Self {
            input,
            no_prompts: HashSet::new(),
            settled: Settled::default(),
            delivered: false,
            next: None,
            said: None,
        }
    }

    /// Learns from the next event.
    pub fn event(&mut self, body: &EventBody) {
        let settled = self.settled.event(body);
        match body {
            EventBody::InputAdmitted(admitted)
                if !matches!(admitted.kind, InputKind::User { .. }) =>
            {
                self.no_prompts.insert(admitted.input.clone());
            }
            EventBody::InputPromoted(promoted) if promoted.input == self.input => {
                self.delivered = true;
            }
            EventBody::InputPromoted(promoted)
                if self.delivered && !self.no_prompts.contains(&promoted.input) =>
            {
                self.next.get_or_insert_with(|| promoted.input.clone());
            }
            EventBody::StepStarted(step) if self.delivered && self.next.is_none() => {
                self.said = Some(Said {
                    message: step.message.clone(),
                    text: String::new(),
                    calls: false,
                });
            }
            EventBody::ToolCalled(call) if !call.executed => {
                if let Some(said) = self.said.as_mut().filter(|s| s.message == call.message) {
                    said.calls = true;
                }
            }
            _ => {}
        }
        if let Some((message, texts)) = settled
            && let Some(said) = self.said.as_mut().filter(|s| s.message == message)
        {
            said.text.extend(texts);
        }
    }

    /// The answer as it was written, and the value it stands for.
    ///
    /// # Errors
    /// `output_mismatch`: there is no answer to this prompt alone, it is no JSON, or it does not fit.
    pub fn checked(&self, form: &Form) -> Result<(&str, Value), SessionError> {
        let wrong = |what: String| {
            Err(SessionError::new(
                "output_mismatch",
                format!("The answer does not have the form that was asked for: {what}"),
            ))
        };
        let said = self.said.as_ref().filter(|said| !said.calls);
        let text = match (said, &self.next) {
            (Some(said), _) => said.text.as_str(),
            (None, Some(next)) => {
                return wrong(format!(
                    "there is none, since another prompt ({next}) joined before this one was answered"
                ));
            }
            (None, None) => "",
        };
        if text.trim().is_empty() {
            return wrong("there is none".to_owned());
        }
        let value: Value = match serde_json::from_str(text.trim()) {
            Ok(value) => value,
            Err(error) => return wrong(format!("it is not JSON ({error})")),
        };
        let found = form.problems(&value);
        if found.is_empty() {
            return Ok((text, value));
        }
        let mut told: Vec<&str> = found.iter().take(TOLD).map(String::as_str).collect();
        let more = format!("and {} more", found.len().saturating_sub(TOLD));
        if found.len() > TOLD {
            told.push(&more);
        }
        wrong(told.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tenure_core::event::body::*;
    use tenure_core::provider::Finish;
    use tenure_core::request::OutputSchema;
    use tenure_core::{CallId, ModelRef, Usage};

    fn mine() -> MessageId {
        MessageId::from_bits(1)
    }

    fn other() -> MessageId {
        MessageId::from_bits(2)
    }

    /// Plays events to the answer to `mine`.
    struct Play {
        answer: Answer,
        messages: u128,
    }

    impl Play {
        fn new() -> Self {
            Self {
                answer: Answer::new(mine()),
                messages: 100,
            }
        }

        fn play(&mut self, body: impl Into<EventBody>) {
            self.answer.event(&body.into());
        }

        fn promote(&mut self, input: MessageId) {
            self.play(InputPromoted { input });
        }

        /// A step that says `text` and, if `calls`, calls a tool.
        fn step(&mut self, text: &str, calls: bool) {
            self.messages += 1;
            let message = MessageId::from_bits(self.messages);
            self.play(StepStarted {
                message: message.clone(),
                step: 1,
                model: ModelRef {
                    provider: "p".into(),
                    model: "m".into(),
                },
                last: false,
            });
            self.play(FragmentStarted {
                message: message.clone(),
                part: 0,
                attempt: 1,
                kind: FragmentKind::Text,
            });
            self.play(FragmentChunk {
                message: message.clone(),
                part: 0,
                text: text.into(),
            });
            self.play(FragmentEnded {
                message: message.clone(),
                part: 0,
                bytes: 0,
                hash: String::new(),
                native: None,
                partial: false,
                superseded: false,
            });
            if calls {
                self.play(ToolCalled {
                    message: message.clone(),
                    part: 1,
                    attempt: 1,
                    call: CallId::new("c"),
                    name: "bash".into(),
                    input: "{}".into(),
                    executed: false,
                    native: None,
                });
            }
            self.play(StepEnded {
                message,
                finish: Finish::Stop,
                usage: Usage::default(),
                cost: None,
            });
        }

        fn judged(&self) -> Result<String, String> {
            let asked = OutputSchema {
                name: "a".into(),
                schema: json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}),
            };
            let form = Form::new(asked)?;
            let checked = self.answer.checked(&form);
            checked
                .map(|(text, _)| text.to_owned())
                .map_err(|e| e.message)
        }
    }

    fn answered(text: &str) -> Result<String, String> {
        let mut play = Play::new();
        play.promote(mine());
        play.step("I look.", true);
        play.step(text, false);
        play.judged()
    }

    #[test]
    fn an_answer_fits_or_says_where_it_does_not() {
        assert_eq!(answered(" {\"n\": 1}\n"), Ok(" {\"n\": 1}\n".to_owned()));
        assert!(answered("{\"m\": 1}").unwrap_err().contains('n'));
        assert!(answered("Here: {}").unwrap_err().contains("not JSON"));
        assert!(answered(" ").unwrap_err().contains("there is none"));
        assert!(Play::new().judged().is_err());
    }

    #[test]
    fn answers_to_other_prompts_before_and_behind_it_do_not_count() {
        let mut play = Play::new();
        play.promote(other());
        play.step("{\"n\": 1}", false);
        play.promote(mine());
        play.step("{\"n\": 2}", false);
        play.promote(MessageId::from_bits(3));
        play.step("{\"n\": 3}", false);
        assert_eq!(play.judged(), Ok("{\"n\": 2}".to_owned()));
    }

    #[test]
    fn a_prompt_that_joins_before_the_answer_leaves_none() {
        let mut play = Play::new();
        play.promote(mine());
        play.step("{\"n\": 1}", true);
        play.promote(other());
        play.step("{\"n\": 2}", false);
        let error = play.judged().unwrap_err();
        assert!(
            error.contains(other().as_str()) && error.contains("joined"),
            "{error}"
        );
    }

    #[test]
    fn words_of_tenure_and_control_inputs_are_no_prompts() {
        let mut play = Play::new();
        play.promote(mine());
        play.step("I look.", true);
        play.play(InputAdmitted {
            input: other(),
            kind: InputKind::Synthetic {
                text: "go on".into(),
            },
            delivery: Delivery::Steer,
        });
        play.promote(other());
        play.step("{\"n\": 1}", false);
        assert_eq!(play.judged(), Ok("{\"n\": 1}".to_owned()));
    }
}
