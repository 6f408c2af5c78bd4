//! The OpenAI Responses stream.

use serde_json::{Value, json};

use super::{Encoder, Frames, Plan, Planned, StreamError, Tokens, responses_item};
use crate::issue::Issuer;
use crate::pieces::Piece;
use crate::script::Finish;

#[derive(Debug)]
pub(super) struct Responses {
    /// Makes item ids unique: the answer's own id without its prefix.
    stem: String,
    sequence: u64,
    /// The items done so far, repeated in the last event.
    output: Vec<Value>,
    item_id: String,
    opening: String,
    before: String,
    encrypted: bool,
}

const AFTER: &str = "\",\"sequence_number\":";

impl Responses {
    pub(super) fn new(issuer: &Issuer) -> Self {
        Self {
            stem: issuer.id(""),
            sequence: 0,
            output: Vec::new(),
            item_id: String::new(),
            opening: String::new(),
            before: String::new(),
            encrypted: false,
        }
    }

    fn emit(&mut self, kind: &str, mut data: Value, out: &mut Frames) {
        data["type"] = json!(kind);
        data["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        out.json(Some(kind), &data);
    }

    /// Where the open item is, with further fields.
    fn at(&self, mut fields: Value) -> Value {
        fields["item_id"] = json!(self.item_id);
        fields["output_index"] = json!(self.output.len());
        fields
    }

    fn add_item(&mut self, prefix: &str, mut item: Value, out: &mut Frames) {
        self.item_id = format!("{prefix}{}_{}", self.stem, self.output.len());
        item["id"] = json!(self.item_id);
        let data = json!({"output_index": self.output.len(), "item": item});
        self.emit("response.output_item.added", data, out);
    }

    fn done_item(&mut self, item: Value, out: &mut Frames) {
        let data = json!({"output_index": self.output.len(), "item": item});
        self.emit("response.output_item.done", data, out);
        self.output.push(item);
    }

    fn prepare_deltas(&mut self, kind: &str, place: &str, out: &Frames) {
        self.opening = out.opening(Some(kind));
        self.before = format!(
            "{{\"type\":\"{kind}\",\"item_id\":\"{}\",\"output_index\":{}{place},\"delta\":\"",
            self.item_id,
            self.output.len()
        );
    }

    fn close_text(&mut self, text: &str, citations: &[Value], out: &mut Frames) {
        for (index, citation) in citations.iter().enumerate() {
            let data = self
                .at(json!({"content_index": 0, "annotation_index": index, "annotation": citation}));
            self.emit("response.output_text.annotation.added", data, out);
        }
        let part =
            json!({"type": "output_text", "text": text, "annotations": citations, "logprobs": []});
        let data = self.at(json!({"content_index": 0, "text": text, "logprobs": []}));
        self.emit("response.output_text.done", data, out);
        let data = self.at(json!({"content_index": 0, "part": part}));
        self.emit("response.content_part.done", data, out);
        let item = json!({"id": self.item_id, "type": "message", "status": "completed", "role": "assistant",
                          "content": [part]});
        self.done_item(item, out);
    }

    fn close_reasoning(&mut self, text: Option<&str>, seal: Option<&str>, out: &mut Frames) {
        let mut summary = Vec::new();
        if let Some(text) = text {
            let part = json!({"type": "summary_text", "text": text});
            let data = self.at(json!({"summary_index": 0, "text": text}));
            self.emit("response.reasoning_summary_text.done", data, out);
            let data = self.at(json!({"summary_index": 0, "part": part}));
            self.emit("response.reasoning_summary_part.done", data, out);
            summary.push(part);
        }
        let mut item = json!({"id": self.item_id, "type": "reasoning", "summary": summary});
        if let Some(seal) = seal.filter(|_| self.encrypted) {
            item["encrypted_content"] = json!(seal);
        }
        self.done_item(item, out);
    }

    fn close_call(&mut self, id: &str, name: &str, arguments: &str, out: &mut Frames) {
        let data = self.at(json!({"arguments": arguments}));
        self.emit("response.function_call_arguments.done", data, out);
        let item = json!({"id": self.item_id, "type": "function_call", "status": "completed", "call_id": id,
                          "name": name, "arguments": arguments});
        self.done_item(item, out);
    }
}

/// The vendor's usage object; cached tokens are counted within `input_tokens`.
pub(crate) fn usage(tokens: Tokens) -> Value {
    json!({
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cache_read, "cache_write_tokens": tokens.cache_write},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output
    })
}

/// The vendor's status for a finish, with the reason when it is incomplete.
pub(crate) fn status(finish: &Finish) -> (&'static str, Value) {
    let incomplete = |reason: &str| ("incomplete", json!({"reason": reason}));
    match finish {
        Finish::Stop | Finish::ToolCalls | Finish::Pause | Finish::Missing => {
            ("completed", Value::Null)
        }
        Finish::Length => incomplete("max_output_tokens"),
        Finish::ContentFilter => incomplete("content_filter"),
        Finish::Other(word) => incomplete(word),
    }
}

/// The response object every frame of the form's life cycle carries.
pub(crate) fn response(plan: &Plan, status: &str, output: &[Value]) -> Value {
    json!({
        "id": plan.id, "object": "response", "created_at": plan.created, "status": status, "error": null,
        "incomplete_details": null, "model": plan.model, "output": output, "parallel_tool_calls": true,
        "previous_response_id": null, "store": plan.store, "usage": null, "metadata": {}
    })
}

/// The response object when the answer is complete.
pub(crate) fn final_response(plan: &Plan, output: &[Value]) -> Value {
    let (status, details) = status(&plan.finish);
    let mut whole = response(plan, status, output);
    whole["incomplete_details"] = details;
    if let Some(tokens) = plan.tokens {
        whole["usage"] = usage(tokens);
    }
    whole
}

/// The output items of a whole answer, as the stream's last event would carry them.
pub(crate) fn collect(plan: &Plan, issuer: &Issuer) -> Vec<Value> {
    let mut encoder = Responses::new(issuer);
    let mut scratch = Frames::new(false, false, false);
    encoder.start(plan, &mut scratch);
    for part in &plan.parts {
        encoder.open(part, &mut scratch);
        encoder.close(part, &mut scratch);
        scratch.bytes.clear();
    }
    encoder.output
}

impl Encoder for Responses {
    fn start(&mut self, plan: &Plan, out: &mut Frames) {
        self.encrypted = plan.encrypted;
        let whole = response(plan, "in_progress", &[]);
        self.emit("response.created", json!({"response": whole}), out);
        self.emit("response.in_progress", json!({"response": whole}), out);
    }

    fn open(&mut self, part: &Planned, out: &mut Frames) {
        match part {
            Planned::Text { .. } => {
                let item = json!({"type": "message", "status": "in_progress", "role": "assistant", "content": []});
                self.add_item("msg_", item, out);
                let empty =
                    json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []});
                let data = self.at(json!({"content_index": 0, "part": empty}));
                self.emit("response.content_part.added", data, out);
                self.prepare_deltas(
                    "response.output_text.delta",
                    ",\"content_index\":0,\"logprobs\":[]",
                    out,
                );
            }
            Planned::Reasoning { redacted, .. } => {
                self.add_item("rs_", json!({"type": "reasoning", "summary": []}), out);
                if !redacted {
                    let empty = json!({"type": "summary_text", "text": ""});
                    let data = self.at(json!({"summary_index": 0, "part": empty}));
                    self.emit("response.reasoning_summary_part.added", data, out);
                    self.prepare_deltas(
                        "response.reasoning_summary_text.delta",
                        ",\"summary_index\":0",
                        out,
                    );
                }
            }
            Planned::Call { id, name, .. } => {
                let item = json!({"type": "function_call", "status": "in_progress", "call_id": id, "name": name,
                                  "arguments": ""});
                self.add_item("fc_", item, out);
                self.prepare_deltas("response.function_call_arguments.delta", "", out);
            }
            Planned::Hosted {
                id, name, input, ..
            } => {
                let item = responses_item(id, name, input, None, "in_progress");
                self.item_id.clone_from(id);
                let kind = item["type"].as_str().unwrap_or_default().to_owned();
                let data = json!({"output_index": self.output.len(), "item": item});
                self.emit("response.output_item.added", data, out);
                let data = self.at(json!({}));
                self.emit(&format!("response.{kind}.in_progress"), data, out);
            }
        }
    }

    fn delta(&mut self, piece: Piece<'_>, out: &mut Frames) {
        let number = self.sequence.to_string();
        self.sequence += 1;
        out.event(
            &self.opening,
            &[&self.before, piece.escaped, AFTER, &number, "}"],
        );
    }

    fn close(&mut self, part: &Planned, out: &mut Frames) {
        match part {
            Planned::Text { pieces, citations } => self.close_text(&pieces.whole(), citations, out),
            Planned::Reasoning {
                pieces,
                seal,
                redacted,
            } => {
                let text = (!redacted).then(|| pieces.whole());
                self.close_reasoning(text.as_deref(), seal.as_deref(), out);
            }
            Planned::Call { id, name, pieces } => self.close_call(id, name, &pieces.whole(), out),
            // Without a result the item stays in progress for ever.
            Planned::Hosted {
                id,
                name,
                input,
                result: None,
                ..
            } => {
                self.output
                    .push(responses_item(id, name, input, None, "in_progress"));
            }
            Planned::Hosted {
                id,
                name,
                input,
                result: Some(result),
                failed,
            } => {
                let status = if *failed { "failed" } else { "completed" };
                let item = responses_item(id, name, input, Some(result), status);
                let kind = item["type"].as_str().unwrap_or_default().to_owned();
                let data = self.at(json!({}));
                // Only one kind of item has an event for its failure; the others say it in the item.
                if !failed || kind == "mcp_call" {
                    self.emit(&format!("response.{kind}.{status}"), data, out);
                }
                self.done_item(item, out);
            }
        }
    }

    fn finish(&mut self, _plan: &Plan, _out: &mut Frames) {}

    /// This form's end mark carries the finish and the usage.
    fn terminator(&mut self, plan: &Plan, out: &mut Frames) {
        if plan.finish == Finish::Missing {
            return;
        }
        let whole = final_response(plan, &self.output);
        let (status, _) = status(&plan.finish);
        self.emit(
            &format!("response.{status}"),
            json!({"response": whole}),
            out,
        );
    }

    fn error(&mut self, plan: &Plan, error: &StreamError<'_>, out: &mut Frames) {
        let code = error.error_type.unwrap_or("server_error");
        let message = error
            .message
            .unwrap_or("The server had an error while processing your request.");
        if error.failed {
            let mut whole = response(plan, "failed", &self.output);
            whole["error"] = json!({"code": code, "message": message});
            self.emit("response.failed", json!({"response": whole}), out);
        } else {
            let error = json!({"type": code, "code": code, "message": message, "param": null});
            self.emit(
                "error",
                json!({"error": error, "code": code, "message": message, "param": null}),
                out,
            );
        }
    }
}
