//! The Gemini stream: each event is a whole response with the next parts.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use super::{Encoder, Frames, Plan, Planned, StreamError, Tokens};
use crate::pieces::Piece;
use crate::script::Finish;

const BEFORE: &str = "{\"candidates\":[{\"content\":{\"parts\":";

#[derive(Debug, Default)]
pub(super) struct Gemini {
    /// The signatures of the parts still to come.
    signatures: VecDeque<Option<String>>,
    opening: String,
    /// What stands behind the parts of each event.
    after: String,
    /// What stands behind a piece of text of the open part; none for what is not streamed in pieces.
    text_after: Option<&'static str>,
    /// What a search found, told with the finish.
    grounding: Option<Value>,
    /// A call that cannot be written as a JSON object.
    malformed: bool,
}

/// The part of a call or of something the provider ran, with its signature.
fn with_signature(mut part: Value, signature: Option<String>) -> Value {
    if let Some(signature) = signature {
        part["thoughtSignature"] = json!(signature);
    }
    part
}

/// The part of a call; `None` when its input is no JSON object, which this form has no place for.
fn call_part(id: &str, name: &str, input: &str) -> Option<Value> {
    let args: Map<String, Value> = match input.trim() {
        "" => Map::new(),
        text => serde_json::from_str(text).ok()?,
    };
    Some(json!({"functionCall": {"name": name, "args": args, "id": id}}))
}

/// What this form says of a tool the provider ran: its parts, or what is told beside them.
enum Ran {
    Parts(Vec<Value>),
    Grounding(Value),
}

fn ran(id: &str, name: &str, input: &Value, result: Option<&Value>, failed: bool) -> Ran {
    let text = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    match name {
        "code_execution" | "code_interpreter" => {
            let code = input.get("code").and_then(Value::as_str).unwrap_or("pass");
            let mut parts =
                vec![json!({"executableCode": {"code": code, "language": "PYTHON", "id": id}})];
            if let Some(result) = result {
                let outcome = if failed {
                    "OUTCOME_FAILED"
                } else {
                    "OUTCOME_OK"
                };
                parts.push(json!({"codeExecutionResult":
                    {"outcome": outcome, "output": text(result), "id": id}}));
            }
            Ran::Parts(parts)
        }
        "web_search" | "google_search" => {
            let query = input
                .get("query")
                .map_or_else(|| json!("scripted"), Clone::clone);
            let found = result
                .and_then(Value::as_array)
                .map_or(&[][..], Vec::as_slice);
            let chunks: Vec<Value> = found
                .iter()
                .map(|page| {
                    json!({"web": {"uri": page.get("url").cloned().unwrap_or_else(|| json!("https://example.org")),
                                   "title": page.get("title").cloned().unwrap_or_else(|| json!("a page"))}})
                })
                .collect();
            Ran::Grounding(json!({"webSearchQueries": [query], "groundingChunks": chunks}))
        }
        _ => {
            let kind = name.to_ascii_uppercase();
            let mut parts = vec![json!({"toolCall": {"toolType": kind, "args": input, "id": id}})];
            if let Some(result) = result {
                let response = if result.is_object() {
                    result.clone()
                } else {
                    json!({"output": result})
                };
                parts.push(
                    json!({"toolResponse": {"toolType": kind, "response": response, "id": id}}),
                );
            }
            Ran::Parts(parts)
        }
    }
}

/// The vendor's usage object: cached tokens within the prompt, thoughts beside the answer.
pub(crate) fn usage(tokens: Tokens) -> Value {
    let mut usage = json!({
        "promptTokenCount": tokens.input,
        "candidatesTokenCount": tokens.output.saturating_sub(tokens.reasoning),
        "totalTokenCount": tokens.input + tokens.output
    });
    if tokens.cache_read > 0 {
        usage["cachedContentTokenCount"] = json!(tokens.cache_read);
    }
    if tokens.reasoning > 0 {
        usage["thoughtsTokenCount"] = json!(tokens.reasoning);
    }
    usage
}

/// The vendor's word for a finish; null when none is sent.
fn finish_reason(finish: &Finish, malformed: bool) -> Value {
    match finish {
        Finish::Missing => Value::Null,
        _ if malformed => json!("MALFORMED_FUNCTION_CALL"),
        Finish::Stop | Finish::ToolCalls | Finish::Pause => json!("STOP"),
        Finish::Length => json!("MAX_TOKENS"),
        Finish::ContentFilter => json!("SAFETY"),
        Finish::Other(word) => json!(word),
    }
}

fn response(plan: &Plan, candidate: &Value, usage: Option<Value>) -> Value {
    let mut whole =
        json!({"candidates": [candidate], "modelVersion": plan.model, "responseId": plan.id});
    if let Some(usage) = usage {
        whole["usageMetadata"] = usage;
    }
    whole
}

impl Gemini {
    fn parts(&self, parts: &[Value], out: &mut Frames) {
        let parts = Value::from(parts).to_string();
        out.event(&self.opening, &[BEFORE, &parts, &self.after]);
    }
}

impl Encoder for Gemini {
    /// Nothing is said before the first part.
    fn start(&mut self, plan: &Plan, out: &mut Frames) {
        self.signatures = plan.signatures.iter().cloned().collect();
        self.opening = out.opening(None);
        self.after = format!(
            ",\"role\":\"model\"}},\"index\":0}}],\"modelVersion\":{},\"responseId\":\"{}\"}}",
            Value::from(plan.model.as_str()),
            plan.id
        );
    }

    fn open(&mut self, part: &Planned, _out: &mut Frames) {
        self.text_after = match part {
            Planned::Text { .. } => Some("\"}]"),
            Planned::Reasoning {
                redacted: false, ..
            } => Some("\",\"thought\":true}]"),
            // Arguments of a call go out whole.
            _ => None,
        };
    }

    fn delta(&mut self, piece: Piece<'_>, out: &mut Frames) {
        if let Some(after) = self.text_after {
            out.event(
                &self.opening,
                &[BEFORE, "[{\"text\":\"", piece.escaped, after, &self.after],
            );
        }
    }

    fn close(&mut self, part: &Planned, out: &mut Frames) {
        let signature = self.signatures.pop_front().flatten();
        match part {
            Planned::Text { .. } | Planned::Reasoning { .. } => {}
            Planned::Call { id, name, pieces } => match call_part(id, name, &pieces.whole()) {
                Some(part) => self.parts(&[with_signature(part, signature)], out),
                None => self.malformed = true,
            },
            Planned::Hosted {
                id,
                name,
                input,
                result,
                failed,
            } => match ran(id, name, input, result.as_ref(), *failed) {
                Ran::Parts(parts) => {
                    for part in parts {
                        self.parts(&[part], out);
                    }
                }
                Ran::Grounding(found) => self.grounding = Some(found),
            },
        }
    }

    fn finish(&mut self, _plan: &Plan, _out: &mut Frames) {}

    /// The last event carries the finish, the usage and, when no call carried it, the signature.
    fn terminator(&mut self, plan: &Plan, out: &mut Frames) {
        if plan.finish == Finish::Missing {
            return;
        }
        let candidate = last_candidate(plan, self.grounding.take(), self.malformed, None);
        out.json(None, &response(plan, &candidate, plan.tokens.map(usage)));
    }

    fn error(&mut self, _plan: &Plan, error: &StreamError<'_>, out: &mut Frames) {
        let message = error
            .message
            .unwrap_or("The model is overloaded. Please try again later.");
        let status = error.error_type.unwrap_or("UNAVAILABLE");
        let code = match status {
            "INVALID_ARGUMENT" => 400,
            "RESOURCE_EXHAUSTED" => 429,
            "INTERNAL" => 500,
            _ => 503,
        };
        out.json(
            None,
            &json!({"error": {"code": code, "message": message, "status": status}}),
        );
    }
}

/// The candidate of the last event, or of a whole answer when `parts` are given.
fn last_candidate(
    plan: &Plan,
    grounding: Option<Value>,
    malformed: bool,
    parts: Option<Vec<Value>>,
) -> Value {
    let last = with_signature(json!({"text": ""}), plan.tail_signature.clone());
    let parts = match parts {
        Some(mut parts) => {
            if plan.tail_signature.is_some() {
                parts.push(last);
            }
            parts
        }
        None => vec![last],
    };
    let mut candidate = json!({
        "content": {"parts": parts, "role": "model"},
        "finishReason": finish_reason(&plan.finish, malformed), "index": 0
    });
    if let Some(found) = grounding {
        candidate["groundingMetadata"] = found;
    }
    candidate
}

/// The whole answer as one body.
pub(crate) fn whole(plan: &Plan) -> Value {
    let (mut parts, mut grounding, mut malformed) = (Vec::new(), None, false);
    for (part, signature) in plan.parts.iter().zip(&plan.signatures) {
        match part {
            Planned::Text { pieces, .. } => parts.push(json!({"text": pieces.whole()})),
            Planned::Reasoning {
                pieces,
                redacted: false,
                ..
            } => parts.push(json!({"text": pieces.whole(), "thought": true})),
            Planned::Reasoning { .. } => {}
            Planned::Call { id, name, pieces } => match call_part(id, name, &pieces.whole()) {
                Some(part) => parts.push(with_signature(part, signature.clone())),
                None => malformed = true,
            },
            Planned::Hosted {
                id,
                name,
                input,
                result,
                failed,
            } => match ran(id, name, input, result.as_ref(), *failed) {
                Ran::Parts(more) => parts.extend(more),
                Ran::Grounding(found) => grounding = Some(found),
            },
        }
    }
    let candidate = last_candidate(plan, grounding, malformed, Some(parts));
    response(plan, &candidate, plan.tokens.map(usage))
}
