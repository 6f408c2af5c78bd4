//! A safe boundary: which inputs enter the conversation, and what is told to the model beside them.

use super::Runner;
use super::compact::Compacted;
use crate::environment::{facts, off_thread};
use crate::error::DrainError;
use crate::prompt;
use crate::writer::Batch;
use std::path::PathBuf;
use tenure_core::error::SessionError;
use tenure_core::event::EventBody;
use tenure_core::event::body::*;
use tenure_core::id::MessageId;
use tenure_core::inbox::{Boundary, PendingInput, Take, take};
use tenure_core::turn::TurnState;
use tenure_core::turn::settle::{Cause, settle};
use tenure_store::{AppendError, HookOp};

/// What came of looking at the inbox.
pub(super) enum Admitted {
    /// Nothing may enter.
    Nothing,
    /// Something was taken, or has to be looked at again.
    LookAgain,
    /// A prompt may enter, and no further request may be sent: it stays where it is.
    OverBudget(SessionError),
}

impl Runner {
    /// Takes what may enter at this boundary.
    pub(super) async fn admit_from_inbox(
        &mut self,
        boundary: Boundary,
    ) -> Result<Admitted, DrainError> {
        let inbox = self.shared.store.inbox(&self.session).await?;
        match take(&inbox, boundary, self.resume.as_ref()) {
            Take::Nothing if boundary == Boundary::Recovering => {
                // It was taken back: normal life goes on.
                self.resume = None;
                Ok(Admitted::LookAgain)
            }
            Take::Nothing => Ok(Admitted::Nothing),
            Take::Prompts(inputs) => {
                if let Some(error) = self.over_budget() {
                    return Ok(Admitted::OverBudget(error));
                }
                let chosen: Vec<&PendingInput> =
                    inbox.iter().filter(|p| inputs.contains(&p.input)).collect();
                self.promote(&chosen).await?;
                Ok(Admitted::LookAgain)
            }
            Take::Control(input) => {
                if let Some(pending) = inbox.iter().find(|p| p.input == input) {
                    self.control(pending).await?;
                }
                Ok(Admitted::LookAgain)
            }
        }
    }

    /// Where nothing can be done at the session's place, a move that waits comes before all else: what else waits is
    /// done at the new place, or nowhere. False when there is none.
    pub(super) async fn move_first(&mut self) -> Result<bool, DrainError> {
        if self.has_place() {
            return Ok(false);
        }
        let inbox = self.shared.store.inbox(&self.session).await?;
        let moves = |input: &&PendingInput| matches!(input.kind, InputKind::Move { .. });
        let Some(pending) = inbox.iter().filter(|input| input.eligible).find(moves) else {
            return Ok(false);
        };
        self.control(pending).await?;
        Ok(true)
    }

    async fn promote(&mut self, inputs: &[&PendingInput]) -> Result<(), DrainError> {
        let mut events = self.execution_start();
        events.extend(self.instructions().await);
        if self.state.title.is_none()
            && let Some(title) = inputs.iter().find_map(|p| title_of(&p.kind))
        {
            events.push(
                SessionRenamed {
                    title,
                    automatic: true,
                }
                .into(),
            );
        }
        let mut ops = Vec::new();
        for pending in inputs {
            events.push(promoted(&pending.input));
            ops.push(HookOp::Promote {
                input: pending.input.clone(),
            });
        }
        match self.writer.append(Batch::start(events, ops)).await {
            Ok(_) => {
                self.alone = self.resume.take().is_some();
                // Tenure's own words do not renew the budget of retries.
                if inputs
                    .iter()
                    .any(|p| matches!(p.kind, InputKind::User { .. }))
                {
                    self.cut_in_a_row = 0;
                }
                Ok(())
            }
            // Somebody took an input back meanwhile: look again.
            Err(AppendError::InboxChanged { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// `execution.started`, unless an execution is open.
    pub(super) fn execution_start(&self) -> Vec<EventBody> {
        if self.writer.turn().execution.is_some() {
            return Vec::new();
        }
        let execution = facts(self.shared.config.env.as_ref()).execution();
        vec![ExecutionStarted { execution }.into()]
    }

    /// The baseline instructions of a new epoch, or what changed since the model was last told.
    async fn instructions(&self) -> Option<EventBody> {
        let assembled = self.assemble().await?;
        match &self.state.instructions {
            None => Some(
                InstructionsSet {
                    parts: assembled.parts,
                    digest: assembled.digest,
                }
                .into(),
            ),
            Some(known) if known.digest != assembled.digest => Some(
                InstructionsChanged {
                    text: prompt::changed(&assembled.instructions),
                    digest: assembled.digest,
                }
                .into(),
            ),
            Some(_) => None,
        }
    }

    pub(super) async fn assemble(&self) -> Option<prompt::Assembled> {
        let workspace = PathBuf::from(&self.state.settings.as_ref()?.location.directory);
        let user = self.shared.config.user_instructions.clone();
        let extra = self.shared.config.extra_instructions.clone();
        let now_ms = self.shared.config.env.now_ms();
        let read = move || prompt::assemble(&workspace, user.as_deref(), &extra, now_ms);
        off_thread(self.shared.config.env.as_ref(), read).await
    }

    async fn control(&mut self, pending: &PendingInput) -> Result<(), DrainError> {
        match &pending.kind {
            InputKind::Compaction => {
                let model = self
                    .state
                    .settings
                    .as_ref()
                    .map(|s| self.shared.models.resolve(&s.model));
                match model {
                    Some(Ok(model)) => {
                        // A manual compaction that fails says so in the log and stops nothing else.
                        let input = Some(pending.input.clone());
                        let outcome = self
                            .compact(CompactionReason::Manual, input, &model)
                            .await?;
                        if let Compacted::Failed(error) = outcome {
                            tracing::warn!(session = %self.session, %error, "compaction failed");
                        }
                        Ok(())
                    }
                    _ => self.drop_control(&pending.input).await,
                }
            }
            InputKind::Move { location } => self.replace_attachment(pending, location).await,
            InputKind::User { .. } | InputKind::Synthetic { .. } => Ok(()),
        }
    }

    async fn drop_control(&mut self, input: &MessageId) -> Result<(), DrainError> {
        let event = InputCancelled {
            input: input.clone(),
            by: "its model cannot be asked by this process".to_owned(),
        };
        self.writer
            .append(Batch::start(vec![event.into()], Vec::new()))
            .await?;
        Ok(())
    }

    /// Replaces the location at a boundary (R14): one commit raises the generation and settles what belongs
    /// to the old one.
    async fn replace_attachment(
        &mut self,
        pending: &PendingInput,
        location: &Location,
    ) -> Result<(), DrainError> {
        let generation = self.state.settings.as_ref().map_or(0, |s| s.generation);
        let start = self.execution_start();
        let turn: TurnState = self.writer.turn().clone();
        let mut events = start;
        events.push(promoted(&pending.input));
        events.extend(settle(&turn, &Cause::Replaced));
        events.push(
            AttachmentReplaced {
                location: location.clone(),
                generation: generation + 1,
                reason: "moved".to_owned(),
            }
            .into(),
        );
        let ops = vec![
            HookOp::Promote {
                input: pending.input.clone(),
            },
            HookOp::ReplaceAttachment { from: generation },
        ];
        match self.writer.append(Batch::start(events, ops)).await {
            Ok(_) | Err(AppendError::InboxChanged { .. } | AppendError::StaleAttachment { .. }) => {
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

pub(super) fn promoted(input: &MessageId) -> EventBody {
    InputPromoted {
        input: input.clone(),
    }
    .into()
}

fn title_of(kind: &InputKind) -> Option<String> {
    match kind {
        InputKind::User { text, .. } => Some(prompt::title_from(text)),
        _ => None,
    }
}
