//! Bodies are checked before they are queued: size, depth, characters no backend can hold (R12).

use super::event::{Encoded, Ready};
use crate::error::AppendError;
use tenure_core::event::NewEvent;
use tenure_core::id::SessionId;

/// The largest body, in bytes.
pub(crate) const MAX_BODY: usize = 16 << 20;
/// The largest append, in bytes of bodies.
const MAX_APPEND: usize = 64 << 20;
/// The deepest nesting that can be read back.
const MAX_DEPTH: usize = 127;

/// Encodes the events of an append, or says why it cannot be stored.
pub(crate) fn encode(
    session: &SessionId,
    events: Vec<NewEvent>,
) -> Result<Vec<Encoded>, AppendError> {
    let mut total = 0;
    let mut encoded = Vec::with_capacity(events.len());
    for event in events {
        let text = event.body.encode();
        let problem = problem(&text);
        total += text.len();
        let reason = match problem {
            Some(problem) => format!("event {} ({}): {problem}", event.id, event.body.type_name()),
            None if total > MAX_APPEND => {
                format!("an append holds at most {MAX_APPEND} bytes; write it in parts")
            }
            None => {
                encoded.push(Encoded::from(Ready {
                    id: event.id,
                    created_ms: event.created_ms,
                    body: event.body,
                    text,
                }));
                continue;
            }
        };
        return Err(AppendError::Rejected {
            session: session.clone(),
            reason,
        });
    }
    Ok(encoded)
}

/// What is wrong with a body's JSON text, if anything.
pub(crate) fn problem(text: &str) -> Option<String> {
    if text.len() > MAX_BODY {
        return Some(format!(
            "{} bytes; at most {MAX_BODY} can be stored, keep the rest in a file",
            text.len()
        ));
    }
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        if in_string {
            if escaped {
                escaped = false;
                if *byte == b'u' && bytes[at..].starts_with(b"u0000") {
                    return Some("it holds a NUL character, which cannot be stored".to_owned());
                }
            } else if *byte == b'\\' {
                escaped = true;
            } else if *byte == b'"' {
                in_string = false;
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Some(format!("it is nested deeper than {MAX_DEPTH} levels"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_read_back_is_taken() {
        assert_eq!(problem(r#"{"a":"\\u0000 [[[ \" "}"#), None);
        assert!(problem(r#"{"a":"x\u0000"}"#).unwrap().contains("NUL"));
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert_eq!(problem(&deep(MAX_DEPTH)), None);
        assert!(serde_json::from_str::<serde_json::Value>(&deep(MAX_DEPTH)).is_ok());
        assert!(problem(&deep(MAX_DEPTH + 1)).unwrap().contains("nested"));
        assert!(
            problem(&"x".repeat(MAX_BODY + 1))
                .unwrap()
                .contains("bytes")
        );
    }
}
