//! Does an answer have the form that was asked for?

use serde_json::Value;
use tenure_core::error::SessionError;
use tenure_core::message::{Entry, PartKind};
use tenure_core::request::OutputSchema;
use tenure_core::session::SessionState;
use tenure_tools::schema::problems;

/// At most so many faults are told.
const TOLD: usize = 5;

/// Checks the last answer of a session against `schema`.
///
/// # Errors
/// `output_mismatch`: there is no answer, it is no JSON, or it does not fit.
pub fn check(state: &SessionState, schema: &OutputSchema) -> Result<(), SessionError> {
    let text = last_text(state);
    let wrong = |what: String| {
        Err(SessionError::new(
            "output_mismatch",
            format!("The answer does not have the form that was asked for: {what}"),
        ))
    };
    if text.trim().is_empty() {
        return wrong("there is none".to_owned());
    }
    let value: Value = match serde_json::from_str(text.trim()) {
        Ok(value) => value,
        Err(error) => return wrong(format!("it is not JSON ({error})")),
    };
    let found = problems(&schema.schema, &value);
    if found.is_empty() {
        return Ok(());
    }
    let mut told: Vec<&str> = found.iter().take(TOLD).map(String::as_str).collect();
    let more = format!("and {} more", found.len().saturating_sub(TOLD));
    if found.len() > TOLD {
        told.push(&more);
    }
    wrong(told.join("; "))
}

/// All text of the last message.
fn last_text(state: &SessionState) -> String {
    let last = state
        .entries
        .iter()
        .rev()
        .find_map(|entry| match entry.as_ref() {
            Entry::Assistant(message) => Some(message),
            _ => None,
        });
    last.into_iter()
        .flat_map(|message| &message.parts)
        .filter(|part| !part.superseded)
        .filter_map(|part| match &part.kind {
            PartKind::Text(text) => Some(text.text.as_str()),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;
    use tenure_core::message::{AssistantMessage, Part, TextPart};
    use tenure_core::{MessageId, ModelRef};

    fn answered(text: &str) -> SessionState {
        let part = Part {
            attempt: 1,
            superseded: false,
            kind: PartKind::Text(TextPart {
                text: text.into(),
                complete: true,
                native: None,
            }),
        };
        SessionState {
            entries: vec![Arc::new(Entry::Assistant(AssistantMessage {
                id: MessageId::from_bits(1),
                seq: 1,
                model: ModelRef {
                    provider: "p".into(),
                    model: "m".into(),
                },
                parts: vec![part],
                end: None,
            }))],
            ..SessionState::default()
        }
    }

    #[test]
    fn an_answer_fits_or_says_where_it_does_not() {
        let schema = OutputSchema {
            name: "a".into(),
            schema: json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}),
        };
        let judge = |text: &str| check(&answered(text), &schema).map_err(|e| e.message);
        assert_eq!(judge(" {\"n\": 1}\n"), Ok(()));
        assert!(judge("{\"m\": 1}").unwrap_err().contains('n'));
        assert!(judge("Here: {}").unwrap_err().contains("not JSON"));
        assert!(judge(" ").unwrap_err().contains("there is none"));
        assert!(check(&SessionState::default(), &schema).is_err());
    }
}
