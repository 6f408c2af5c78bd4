//! The Bedrock ConverseStream: binary frames, text and reasoning without a start of their own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::event_frames::{event, exception};
use super::{Encoder, Frames, Plan, Planned, StreamError, Tokens};
use crate::pieces::Piece;
use crate::script::Finish;

#[derive(Debug, Default)]
pub(super) struct Bedrock {
    index: usize,
    before: String,
    after: &'static str,
    sent: usize,
}

impl Bedrock {
    fn say(&mut self, kind: &str, mut body: Value, out: &mut Frames) {
        body["p"] = json!(self.padding());
        out.binary(&event(kind, body.to_string().as_bytes()));
    }

    /// The vendor pads its events to hide how long the words in them are.
    fn padding(&mut self) -> &'static str {
        self.sent += 1;
        let letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
        &letters[..1 + self.sent * 7 % letters.len().saturating_sub(1)]
    }

    fn start_block(&mut self, start: &Value, out: &mut Frames) {
        let body = json!({"contentBlockIndex": self.index, "start": start});
        self.say("contentBlockStart", body, out);
    }

    fn delta_block(&mut self, delta: &Value, out: &mut Frames) {
        let body = json!({"contentBlockIndex": self.index, "delta": delta});
        self.say("contentBlockDelta", body, out);
    }

    fn stop_block(&mut self, out: &mut Frames) {
        self.say(
            "contentBlockStop",
            json!({"contentBlockIndex": self.index}),
            out,
        );
        self.index += 1;
    }

    fn prepare(&mut self, before: &str, after: &'static str) {
        self.before = format!(
            "{{\"contentBlockIndex\":{},\"delta\":{before}\"",
            self.index
        );
        self.after = after;
    }
}

/// The vendor's usage object; cached tokens are counted beside `inputTokens`.
pub(crate) fn usage(tokens: Tokens) -> Value {
    let input = tokens
        .input
        .saturating_sub(tokens.cache_read + tokens.cache_write);
    json!({
        "inputTokens": input, "outputTokens": tokens.output,
        "totalTokens": input + tokens.output + tokens.cache_read + tokens.cache_write,
        "cacheReadInputTokens": tokens.cache_read, "cacheWriteInputTokens": tokens.cache_write
    })
}

/// The vendor's word for a finish; null when none is sent.
pub(crate) fn stop_reason(finish: &Finish) -> Value {
    match finish {
        Finish::Stop => json!("end_turn"),
        Finish::ToolCalls => json!("tool_use"),
        Finish::Length => json!("max_tokens"),
        Finish::ContentFilter => json!("content_filtered"),
        Finish::Pause => json!("pause_turn"),
        Finish::Missing => Value::Null,
        Finish::Other(word) => json!(word),
    }
}

/// A hosted call and its result, as blocks.
fn hosted(part: &Planned) -> Option<(Value, Value, Option<Value>)> {
    let Planned::Hosted {
        id,
        name,
        input,
        result,
        failed,
    } = part
    else {
        return None;
    };
    let call = json!({"toolUseId": id, "name": name, "type": "server_tool_use"});
    let result = result.as_ref().map(|result| {
        let content = match result {
            Value::String(text) => json!([{"text": text}]),
            other => json!([{"json": other}]),
        };
        let status = if *failed { "error" } else { "success" };
        json!({"toolUseId": id, "type": format!("{name}_result"), "status": status, "content": content})
    });
    Some((call, input.clone(), result))
}

/// The whole answer of `converse`.
pub(crate) fn whole(plan: &Plan) -> Value {
    let mut content = Vec::new();
    for part in &plan.parts {
        match part {
            Planned::Text { pieces, .. } => content.push(json!({"text": pieces.whole()})),
            Planned::Reasoning {
                seal,
                redacted: true,
                ..
            } => content
                .push(json!({"reasoningContent": {"redactedContent": blob(seal.as_deref())}})),
            Planned::Reasoning { pieces, seal, .. } => content.push(json!({"reasoningContent":
                {"reasoningText": {"text": pieces.whole(), "signature": seal}}})),
            Planned::Call { id, name, pieces } => {
                let raw = pieces.whole();
                let input = serde_json::from_str(&raw).unwrap_or(Value::String(raw));
                content.push(json!({"toolUse": {"toolUseId": id, "name": name, "input": input}}));
            }
            Planned::Hosted { .. } => {
                if let Some((mut call, input, result)) = hosted(part) {
                    call["input"] = input;
                    content.push(json!({"toolUse": call}));
                    content.extend(result.map(|result| json!({"toolResult": result})));
                }
            }
        }
    }
    json!({
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": stop_reason(&plan.finish), "usage": plan.tokens.map(usage),
        "metrics": {"latencyMs": 12}
    })
}

/// Opaque state as the protocol's binary data.
fn blob(seal: Option<&str>) -> String {
    STANDARD.encode(seal.unwrap_or_default())
}

impl Encoder for Bedrock {
    fn start(&mut self, _plan: &Plan, out: &mut Frames) {
        self.say("messageStart", json!({"role": "assistant"}), out);
    }

    fn open(&mut self, part: &Planned, out: &mut Frames) {
        match part {
            Planned::Text { .. } => self.prepare("{\"text\":", "\"},\"p\":\"abc\"}"),
            Planned::Reasoning {
                seal,
                redacted: true,
                ..
            } => {
                let delta = json!({"reasoningContent": {"redactedContent": blob(seal.as_deref())}});
                self.delta_block(&delta, out);
            }
            Planned::Reasoning { .. } => {
                self.prepare("{\"reasoningContent\":{\"text\":", "\"}},\"p\":\"abc\"}");
            }
            Planned::Call { id, name, .. } => {
                self.start_block(&json!({"toolUse": {"toolUseId": id, "name": name}}), out);
                self.prepare("{\"toolUse\":{\"input\":", "\"}},\"p\":\"abc\"}");
            }
            Planned::Hosted { .. } => {
                let Some((call, input, result)) = hosted(part) else {
                    return;
                };
                self.start_block(&json!({"toolUse": call}), out);
                self.delta_block(&json!({"toolUse": {"input": input.to_string()}}), out);
                if let Some(mut result) = result {
                    self.stop_block(out);
                    let content = result["content"].take();
                    if let Some(fields) = result.as_object_mut() {
                        fields.remove("content");
                    }
                    self.start_block(&json!({"toolResult": result}), out);
                    self.delta_block(&json!({"toolResult": content}), out);
                }
            }
        }
    }

    fn delta(&mut self, piece: Piece<'_>, out: &mut Frames) {
        let body = format!("{}{}{}", self.before, piece.escaped, self.after);
        out.binary(&event("contentBlockDelta", body.as_bytes()));
    }

    fn close(&mut self, part: &Planned, out: &mut Frames) {
        if let Planned::Reasoning {
            seal: Some(seal),
            redacted: false,
            ..
        } = part
        {
            self.delta_block(&json!({"reasoningContent": {"signature": seal}}), out);
        }
        self.stop_block(out);
    }

    fn finish(&mut self, plan: &Plan, out: &mut Frames) {
        if plan.finish != Finish::Missing {
            let body = json!({"stopReason": stop_reason(&plan.finish),
                "additionalModelResponseFields": {"delta": {"stop_sequence": null}}});
            self.say("messageStop", body, out);
        }
    }

    fn terminator(&mut self, plan: &Plan, out: &mut Frames) {
        let mut body = json!({"metrics": {"latencyMs": 12}});
        if let Some(tokens) = plan.tokens {
            body["usage"] = usage(tokens);
        }
        self.say("metadata", body, out);
    }

    fn error(&mut self, _plan: &Plan, error: &StreamError<'_>, out: &mut Frames) {
        let kind = error.error_type.unwrap_or("modelStreamErrorException");
        let message = error.message.unwrap_or(
            "The system encountered an unexpected error during processing. Try your request again.",
        );
        out.binary(&exception(
            kind,
            json!({"message": message}).to_string().as_bytes(),
        ));
    }
}
