//! What came of a compaction that was asked for by hand.

use crate::exit::CliResult;
use tenure_core::event::EventBody;
use tenure_core::{CompactionId, MessageId, SessionError, SessionId};
use tenure_store::Store;

/// Events read at a time.
const PAGE: usize = 1_024;

/// What came of it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub enum Compacted {
    /// It waits, or is under way.
    #[default]
    Open,
    /// The summary is in place.
    Done,
    /// There was nothing that a summary could stand for; says why.
    Nothing(SessionError),
    /// It failed, and history is as it was.
    Failed(SessionError),
}

/// Reads it from the log, from the admission of `input` on.
///
/// # Errors
/// The log cannot be read.
pub async fn read(
    store: &dyn Store,
    session: &SessionId,
    input: &MessageId,
    admitted: u64,
) -> CliResult<Compacted> {
    let mut watch = Watch::new(input.clone());
    let mut after = admitted;
    loop {
        let page = store.read(session, Some(after), PAGE).await?;
        for event in &page.events {
            watch.event(&event.body);
            after = event.seq;
        }
        if page.events.is_empty() || Some(after) >= page.head {
            return Ok(watch.compacted);
        }
    }
}

/// Each try is a compaction of its own; only the first one names the input.
struct Watch {
    input: MessageId,
    /// The try under way.
    current: Option<CompactionId>,
    /// A try has failed, and the next one has not begun.
    between: bool,
    compacted: Compacted,
}

impl Watch {
    fn new(input: MessageId) -> Self {
        Self {
            input,
            current: None,
            between: false,
            compacted: Compacted::Open,
        }
    }

    fn event(&mut self, body: &EventBody) {
        match body {
            EventBody::InputCancelled(e) if e.input == self.input => {
                let why = format!("it was taken back by {}", e.by);
                self.compacted = Compacted::Failed(SessionError::new("cancelled", why));
            }
            EventBody::CompactionStarted(e) => {
                let again = self.between && e.input.is_none();
                self.between = false;
                if again || e.input.as_ref() == Some(&self.input) {
                    self.current = Some(e.compaction.clone());
                }
            }
            EventBody::CompactionEnded(e) if self.is_current(&e.compaction) => {
                self.current = None;
                self.compacted = Compacted::Done;
            }
            EventBody::CompactionFailed(e) if self.is_current(&e.compaction) => {
                self.current = None;
                self.between = true;
                self.compacted = match e.error.kind.as_str() {
                    "nothing_to_compact" => Compacted::Nothing(e.error.clone()),
                    _ => Compacted::Failed(e.error.clone()),
                };
            }
            // Whatever is compacted behind a step is for a reason of its own.
            EventBody::StepStarted(_) => self.between = false,
            _ => {}
        }
    }

    fn is_current(&self, compaction: &CompactionId) -> bool {
        self.current.as_ref() == Some(compaction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::ModelRef;
    use tenure_core::event::body::*;

    fn started(bits: u128, input: Option<u128>) -> EventBody {
        CompactionStarted {
            compaction: CompactionId::from_bits(bits),
            reason: CompactionReason::Manual,
            input: input.map(MessageId::from_bits),
            model: ModelRef {
                provider: "p".into(),
                model: "m".into(),
            },
            request_hash: String::new(),
            at_most: None,
        }
        .into()
    }

    fn failed(bits: u128, kind: &str) -> EventBody {
        CompactionFailed {
            compaction: CompactionId::from_bits(bits),
            error: SessionError::new(kind, "why"),
            usage: None,
            cost: None,
        }
        .into()
    }

    fn ended(bits: u128) -> EventBody {
        CompactionEnded {
            compaction: CompactionId::from_bits(bits),
            summary: String::new(),
            kept_from: 0,
            usage: None,
            cost: None,
        }
        .into()
    }

    fn watched(events: &[EventBody]) -> Compacted {
        let mut watch = Watch::new(MessageId::from_bits(1));
        events.iter().for_each(|body| watch.event(body));
        watch.compacted
    }

    #[test]
    fn only_the_compaction_that_was_asked_for_counts() {
        let why = |kind: &str| SessionError::new(kind, "why");
        assert_eq!(watched(&[]), Compacted::Open);
        assert_eq!(watched(&[started(9, None), ended(9)]), Compacted::Open);
        let tries = [
            started(2, Some(1)),
            failed(2, "overloaded"),
            started(3, None),
            ended(3),
        ];
        assert_eq!(watched(&tries[..2]), Compacted::Failed(why("overloaded")));
        assert_eq!(watched(&tries), Compacted::Done);
        let nothing = [started(2, Some(1)), failed(2, "nothing_to_compact")];
        assert_eq!(
            watched(&nothing),
            Compacted::Nothing(why("nothing_to_compact"))
        );
    }
}
