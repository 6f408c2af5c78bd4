//! The Anthropic Messages stream.

use serde_json::{Value, json};

use super::{Encoder, Frames, Plan, Planned, StreamError, Tokens, anthropic_result};
use crate::pieces::Piece;
use crate::script::Finish;

#[derive(Debug, Default)]
pub(super) struct Anthropic {
    index: usize,
    opening: String,
    before: String,
}

const AFTER: &str = "\"}}";

impl Anthropic {
    fn block_start(&mut self, block: &Value, out: &mut Frames) {
        let data =
            json!({"type": "content_block_start", "index": self.index, "content_block": block});
        out.json(Some("content_block_start"), &data);
        if self.index == 0 {
            out.json(Some("ping"), &json!({"type": "ping"}));
        }
    }

    fn block_delta(&self, delta: &Value, out: &mut Frames) {
        let data = json!({"type": "content_block_delta", "index": self.index, "delta": delta});
        out.json(Some("content_block_delta"), &data);
    }

    fn block_stop(&mut self, out: &mut Frames) {
        out.json(
            Some("content_block_stop"),
            &json!({"type": "content_block_stop", "index": self.index}),
        );
        self.index += 1;
    }

    fn prepare_deltas(&mut self, kind: &str, field: &str, out: &Frames) {
        self.opening = out.opening(Some("content_block_delta"));
        self.before = format!(
            "{{\"type\":\"content_block_delta\",\"index\":{},\"delta\":{{\"type\":\"{kind}\",\"{field}\":\"",
            self.index
        );
    }
}

/// The vendor's usage object; cached tokens are counted beside `input_tokens`, not within.
pub(crate) fn usage(tokens: Tokens, output: u64) -> Value {
    json!({
        "input_tokens": tokens.input.saturating_sub(tokens.cache_read + tokens.cache_write),
        "cache_creation_input_tokens": tokens.cache_write,
        "cache_read_input_tokens": tokens.cache_read,
        "output_tokens": output
    })
}

/// The vendor's word for a finish; null when none is sent.
pub(crate) fn stop_reason(finish: &Finish) -> Value {
    match finish {
        Finish::Stop => json!("end_turn"),
        Finish::ToolCalls => json!("tool_use"),
        Finish::Length => json!("max_tokens"),
        Finish::ContentFilter => json!("refusal"),
        Finish::Pause => json!("pause_turn"),
        Finish::Missing => Value::Null,
        Finish::Other(word) => json!(word),
    }
}

impl Encoder for Anthropic {
    fn start(&mut self, plan: &Plan, out: &mut Frames) {
        let mut message = json!({
            "id": plan.id, "type": "message", "role": "assistant", "model": plan.model, "content": [],
            "stop_reason": null, "stop_sequence": null
        });
        if let Some(tokens) = plan.tokens {
            message["usage"] = usage(tokens, 1);
        }
        out.json(
            Some("message_start"),
            &json!({"type": "message_start", "message": message}),
        );
    }

    fn open(&mut self, part: &Planned, out: &mut Frames) {
        match part {
            Planned::Text { .. } => {
                self.block_start(&json!({"type": "text", "text": ""}), out);
                self.prepare_deltas("text_delta", "text", out);
            }
            Planned::Reasoning {
                seal,
                redacted: true,
                ..
            } => {
                let data = seal.clone().unwrap_or_default();
                self.block_start(&json!({"type": "redacted_thinking", "data": data}), out);
            }
            Planned::Reasoning { .. } => {
                self.block_start(
                    &json!({"type": "thinking", "thinking": "", "signature": ""}),
                    out,
                );
                self.prepare_deltas("thinking_delta", "thinking", out);
            }
            Planned::Call { id, name, .. } => {
                self.block_start(
                    &json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
                    out,
                );
                self.block_delta(
                    &json!({"type": "input_json_delta", "partial_json": ""}),
                    out,
                );
                self.prepare_deltas("input_json_delta", "partial_json", out);
            }
            Planned::Hosted {
                id, name, input, ..
            } => {
                self.block_start(
                    &json!({"type": "server_tool_use", "id": id, "name": name, "input": {}}),
                    out,
                );
                self.block_delta(
                    &json!({"type": "input_json_delta", "partial_json": input.to_string()}),
                    out,
                );
            }
        }
    }

    fn delta(&mut self, piece: Piece<'_>, out: &mut Frames) {
        out.event(&self.opening, &[&self.before, piece.escaped, AFTER]);
    }

    fn close(&mut self, part: &Planned, out: &mut Frames) {
        if let Planned::Reasoning {
            seal: Some(seal),
            redacted: false,
            ..
        } = part
        {
            self.block_delta(&json!({"type": "signature_delta", "signature": seal}), out);
        }
        if let Planned::Text { citations, .. } = part {
            for citation in citations {
                let delta = json!({"type": "citations_delta", "citation": citation});
                self.block_delta(&delta, out);
            }
        }
        self.block_stop(out);
        if let Planned::Hosted {
            id,
            name,
            result: Some(result),
            failed,
            ..
        } = part
        {
            self.block_start(&anthropic_result(id, name, result, *failed), out);
            self.block_stop(out);
        }
    }

    fn finish(&mut self, plan: &Plan, out: &mut Frames) {
        let mut data = json!({
            "type": "message_delta",
            "delta": {"stop_reason": stop_reason(&plan.finish), "stop_sequence": null}
        });
        if let Some(tokens) = plan.tokens {
            data["usage"] = usage(tokens, tokens.output);
        }
        if plan.finish != Finish::Missing {
            out.json(Some("message_delta"), &data);
        }
    }

    fn terminator(&mut self, _plan: &Plan, out: &mut Frames) {
        out.json(Some("message_stop"), &json!({"type": "message_stop"}));
    }

    fn error(&mut self, _plan: &Plan, error: &StreamError<'_>, out: &mut Frames) {
        let error_type = error.error_type.unwrap_or("overloaded_error");
        let message = error.message.unwrap_or("Overloaded");
        let data = json!({"type": "error", "error": {"type": error_type, "message": message}});
        out.json(Some("error"), &data);
    }
}
