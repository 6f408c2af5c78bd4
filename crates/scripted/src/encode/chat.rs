//! The OpenAI Chat Completions stream.

use serde_json::{Value, json};

use super::{Encoder, Frames, Plan, Planned, StreamError, Tokens};
use crate::pieces::Piece;
use crate::script::Finish;

#[derive(Debug, Default)]
pub(super) struct Chat {
    calls: usize,
    /// What each chunk of this answer has before its choices.
    head: String,
    opening: String,
    before: String,
    after: &'static str,
}

const TEXT_AFTER: &str = "\"},\"logprobs\":null,\"finish_reason\":null}]}";
const CALL_AFTER: &str = "\"}}]},\"logprobs\":null,\"finish_reason\":null}]}";

impl Chat {
    fn chunk(&self, delta: &Value, finish: &Value, out: &mut Frames) {
        let choices =
            json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]);
        out.event(
            &self.opening,
            &[&self.head, ",\"choices\":", &choices.to_string(), "}"],
        );
    }
}

/// The vendor's usage object; cached tokens are counted within `prompt_tokens`.
pub(crate) fn usage(tokens: Tokens) -> Value {
    json!({
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cache_read, "cache_write_tokens": tokens.cache_write},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning}
    })
}

/// The vendor's word for a finish; null when none is sent.
pub(crate) fn finish_reason(finish: &Finish) -> Value {
    match finish {
        Finish::Stop | Finish::Pause => json!("stop"),
        Finish::ToolCalls => json!("tool_calls"),
        Finish::Length => json!("length"),
        Finish::ContentFilter => json!("content_filter"),
        Finish::Missing => Value::Null,
        Finish::Other(word) => json!(word),
    }
}

impl Encoder for Chat {
    fn start(&mut self, plan: &Plan, out: &mut Frames) {
        self.opening = out.opening(None);
        self.head = format!(
            "{{\"id\":\"{}\",\"object\":\"chat.completion.chunk\",\"created\":{},\"model\":{},\
             \"system_fingerprint\":\"fp_scripted\"",
            plan.id,
            plan.created,
            Value::from(plan.model.as_str())
        );
        self.chunk(
            &json!({"role": "assistant", "content": "", "refusal": null}),
            &Value::Null,
            out,
        );
    }

    fn open(&mut self, part: &Planned, out: &mut Frames) {
        let delta = match part {
            Planned::Text { .. } => "{\"content\":\"".to_owned(),
            Planned::Reasoning { .. } => "{\"reasoning_content\":\"".to_owned(),
            Planned::Call { id, name, .. } => {
                let index = self.calls;
                let call = json!({"index": index, "id": id, "type": "function",
                                  "function": {"name": name, "arguments": ""}});
                self.chunk(&json!({"tool_calls": [call]}), &Value::Null, out);
                self.calls += 1;
                format!("{{\"tool_calls\":[{{\"index\":{index},\"function\":{{\"arguments\":\"")
            }
            // This form has no place for a tool the provider ran.
            Planned::Hosted { .. } => return,
        };
        self.before = format!("{},\"choices\":[{{\"index\":0,\"delta\":{delta}", self.head);
        self.after = if matches!(part, Planned::Call { .. }) {
            CALL_AFTER
        } else {
            TEXT_AFTER
        };
    }

    fn delta(&mut self, piece: Piece<'_>, out: &mut Frames) {
        out.event(&self.opening, &[&self.before, piece.escaped, self.after]);
    }

    fn close(&mut self, _part: &Planned, _out: &mut Frames) {}

    fn finish(&mut self, plan: &Plan, out: &mut Frames) {
        if plan.finish != Finish::Missing {
            self.chunk(&json!({}), &finish_reason(&plan.finish), out);
        }
        if let Some(tokens) = plan.tokens.filter(|_| plan.chat_usage) {
            let usage = usage(tokens).to_string();
            out.event(
                &self.opening,
                &[&self.head, ",\"choices\":[],\"usage\":", &usage, "}"],
            );
        }
    }

    fn terminator(&mut self, _plan: &Plan, out: &mut Frames) {
        out.event(&self.opening, &["[DONE]"]);
    }

    fn error(&mut self, _plan: &Plan, error: &StreamError<'_>, out: &mut Frames) {
        let error_type = error.error_type.unwrap_or("server_error");
        let message = error
            .message
            .unwrap_or("The server is overloaded or not ready yet.");
        let data = json!({"error": {"message": message, "type": error_type, "param": null, "code": error_type}});
        out.json(None, &data);
    }
}
