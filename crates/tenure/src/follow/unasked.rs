//! Permission questions where nobody can be asked: those of the own prompt are answered with no, as a process does
//! that runs a session without a terminal; of all others it is said what is asked, and how anybody answers it.

use super::absence::may_pass;
use crate::commands::answer::listed;
use crate::exit::CliResult;
use crate::render::view::View;
use crate::waiting::{self, settled};
use std::collections::HashSet;
use tenure_core::event::EventBody;
use tenure_core::event::body::{InputKind, PermissionAnswer, PermissionAsked};
use tenure_core::{MessageId, SessionId};
use tenure_engine::{Client, EngineError};

/// Who answers: shown beside the answer.
const BY: &str = "a command without a terminal";

/// Open questions, and whose they are. A question is that of the prompt that was delivered last before it.
pub(super) struct Unasked {
    /// Nobody can be asked here.
    active: bool,
    /// The prompt that was given here, if one was.
    prompt: Option<MessageId>,
    /// Inputs that are nobody's words: what their delivery leads to is still the last prompt's.
    wordless: HashSet<MessageId>,
    /// The own prompt is the one that was delivered last.
    own: bool,
    /// Those not yet answered or told, each with whether it is the own prompt's.
    open: Vec<(PermissionAsked, bool)>,
}

impl Unasked {
    /// None yet. `active`: nobody can be asked; `prompt`: what was given here.
    pub(super) fn new(active: bool, prompt: Option<MessageId>) -> Self {
        Self {
            active,
            prompt,
            wordless: HashSet::new(),
            own: false,
            open: Vec::new(),
        }
    }

    /// Takes what is open at `after`, behind which following begins: none of it can be the own prompt's.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(super) async fn found(
        &mut self,
        client: &Client,
        session: &SessionId,
        after: Option<u64>,
    ) -> CliResult {
        let (true, Some(after)) = (self.active, after) else {
            return Ok(());
        };
        let open = waiting::open_at(client.store().as_ref(), session, after).await?;
        self.open
            .extend(open.into_iter().map(|asked| (asked, false)));
        Ok(())
    }

    /// Learns from an event.
    pub(super) fn event(&mut self, body: &EventBody) {
        if !self.active {
            return;
        }
        match body {
            EventBody::InputAdmitted(e) if !matches!(e.kind, InputKind::User { .. }) => {
                self.wordless.insert(e.input.clone());
            }
            EventBody::InputPromoted(e) if !self.wordless.remove(&e.input) => {
                self.own = self.prompt.as_ref() == Some(&e.input);
            }
            EventBody::PermissionAsked(asked) => self.open.push((asked.clone(), self.own)),
            body => {
                if let Some(over) = settled(body) {
                    self.open
                        .retain(|(asked, _)| (&asked.message, &asked.call) != over);
                }
            }
        }
    }

    /// Answers the own ones, and tells the others. To be called once all that was there is read: what was answered
    /// since is no question any more. An answer that somebody gave meanwhile was the first, and stays. False when the
    /// store was away for one of them: it is to be called again.
    ///
    /// # Errors
    /// The answer cannot be stored. The question stays, and anybody may answer it.
    pub(super) async fn settle(
        &mut self,
        client: &Client,
        session: &SessionId,
        view: &mut View,
    ) -> CliResult<bool> {
        let mut all = true;
        for (asked, own) in std::mem::take(&mut self.open) {
            if !own {
                let questions = listed(session, std::slice::from_ref(&asked), true);
                view.notice(&format!(
                    "{session} waits for an answer, and nobody can be asked here:\n{}",
                    questions.trim_end()
                ));
                continue;
            }
            let no = PermissionAnswer::No {
                note: None,
                nobody: true,
            };
            match client
                .answer(session, &asked.message, &asked.call, no, BY)
                .await
            {
                // Its call may have been settled by another's hand since.
                Ok(())
                | Err(EngineError::AlreadyAnswered { .. } | EngineError::NotAsked { .. }) => {}
                Err(error) if may_pass(&error) => {
                    self.open.push((asked, own));
                    all = false;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::CallId;
    use tenure_core::event::body::*;

    fn admitted(input: u128, kind: InputKind) -> EventBody {
        InputAdmitted {
            input: MessageId::from_bits(input),
            delivery: Delivery::Steer,
            kind,
        }
        .into()
    }

    fn promoted(input: u128) -> EventBody {
        InputPromoted {
            input: MessageId::from_bits(input),
        }
        .into()
    }

    fn asked(call: &str) -> EventBody {
        PermissionAsked {
            message: MessageId::from_bits(9),
            call: CallId::new(call),
            question: "q".into(),
            proposals: Vec::new(),
        }
        .into()
    }

    #[test]
    fn a_question_is_that_of_the_prompt_that_was_delivered_last() {
        let words = || InputKind::Synthetic {
            text: "go on".into(),
        };
        let mut unasked = Unasked::new(true, Some(MessageId::from_bits(1)));
        for body in [
            asked("of who was there before"),
            promoted(1),
            asked("own"),
            // Tenure's own words do not make it another's.
            admitted(2, words()),
            promoted(2),
            asked("own after a recovery"),
            promoted(3),
            asked("of who came later"),
        ] {
            unasked.event(&body);
        }
        let open: Vec<(&str, bool)> = unasked
            .open
            .iter()
            .map(|(asked, own)| (asked.call.as_str(), *own))
            .collect();
        assert_eq!(
            open,
            [
                ("of who was there before", false),
                ("own", true),
                ("own after a recovery", true),
                ("of who came later", false),
            ]
        );
    }

    #[test]
    fn what_was_answered_before_all_was_read_is_no_question_any_more() {
        let mut unasked = Unasked::new(true, None);
        unasked.event(&asked("a"));
        unasked.event(&asked("b"));
        unasked.event(
            &PermissionAnswered {
                message: MessageId::from_bits(9),
                call: CallId::new("a"),
                answer: PermissionAnswer::Once,
                by: "x".into(),
            }
            .into(),
        );
        let open: Vec<&str> = unasked.open.iter().map(|(q, _)| q.call.as_str()).collect();
        assert_eq!(open, ["b"]);
        // Where somebody is asked on a terminal, nothing is collected.
        let mut interactive = Unasked::new(false, None);
        interactive.event(&asked("a"));
        assert!(interactive.open.is_empty());
    }
}
