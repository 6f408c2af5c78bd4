//! The OpenAI Chat Completions stream, with the habits of the server it plays.

use serde_json::{Value, json};

use super::{Encoder, Frames, Plan, Planned, StreamError, Tokens};
use crate::pieces::Piece;
use crate::script::Finish;
use crate::validate::ChatDialect;

#[derive(Debug)]
pub(super) struct Chat {
    dialect: ChatDialect,
    calls: usize,
    /// What each chunk of this answer has before its choices.
    head: String,
    opening: String,
    before: String,
    /// Between a piece and the same piece once more; empty where it comes once.
    between: &'static str,
    after: &'static str,
    /// The open part says nothing on this wire.
    silent: bool,
}

const TEXT_AFTER: &str = "\"},\"logprobs\":null,\"finish_reason\":null}]}";
const CALL_AFTER: &str = "\"}}]},\"logprobs\":null,\"finish_reason\":null}]}";

/// How a server streams reasoning: what stands before, between and after a piece.
fn reasoning(dialect: ChatDialect) -> Option<(&'static str, &'static str, &'static str)> {
    match dialect {
        ChatDialect::Openai | ChatDialect::Azure | ChatDialect::Perplexity => None,
        ChatDialect::Mistral => Some((
            "{\"content\":[{\"type\":\"thinking\",\"thinking\":[{\"type\":\"text\",\"text\":\"",
            "",
            "\"}]}]},\"finish_reason\":null}]}",
        )),
        ChatDialect::Openrouter => Some((
            "{\"reasoning\":\"",
            "\",\"reasoning_details\":[{\"type\":\"reasoning.text\",\"format\":\"anthropic-claude-v1\",\"index\":0,\"text\":\"",
            "\"}]},\"finish_reason\":null}]}",
        )),
        ChatDialect::Groq | ChatDialect::Cerebras | ChatDialect::Ollama => {
            Some(("{\"reasoning\":\"", "", TEXT_AFTER))
        }
        _ => Some(("{\"reasoning_content\":\"", "", TEXT_AFTER)),
    }
}

impl Chat {
    pub(super) fn new(dialect: ChatDialect) -> Self {
        Self {
            dialect,
            calls: 0,
            head: String::new(),
            opening: String::new(),
            before: String::new(),
            between: "",
            after: "",
            silent: false,
        }
    }

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
        match self.dialect {
            ChatDialect::Azure => {
                let filters = json!([{"prompt_index": 0, "content_filter_results": {"hate": {"filtered": false, "severity": "safe"}}}]);
                out.event(
                    &self.opening,
                    &[
                        "{\"choices\":[],\"created\":0,\"id\":\"\",\"model\":\"\",\"object\":\"\",\"prompt_filter_results\":",
                        &filters.to_string(),
                        "}",
                    ],
                );
            }
            ChatDialect::Openrouter => out.comment("OPENROUTER PROCESSING"),
            _ => {}
        }
        self.chunk(
            &json!({"role": "assistant", "content": "", "refusal": null}),
            &Value::Null,
            out,
        );
    }

    fn open(&mut self, part: &Planned, out: &mut Frames) {
        self.between = "";
        self.silent = false;
        self.after = TEXT_AFTER;
        let delta = match part {
            Planned::Text { .. } => "{\"content\":\"".to_owned(),
            Planned::Reasoning { .. } => {
                let Some((before, between, after)) = reasoning(self.dialect) else {
                    self.silent = true;
                    return;
                };
                self.between = between;
                self.after = after;
                before.to_owned()
            }
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
        if matches!(part, Planned::Call { .. }) {
            self.after = CALL_AFTER;
        }
    }

    fn delta(&mut self, piece: Piece<'_>, out: &mut Frames) {
        if self.silent {
            return;
        }
        if self.between.is_empty() {
            out.event(&self.opening, &[&self.before, piece.escaped, self.after]);
        } else {
            let text = piece.escaped;
            out.event(
                &self.opening,
                &[&self.before, text, self.between, text, self.after],
            );
        }
    }

    fn close(&mut self, part: &Planned, out: &mut Frames) {
        if self.dialect == ChatDialect::Openrouter
            && let Planned::Reasoning {
                seal: Some(seal), ..
            } = part
        {
            let details = json!([{"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0,
                                  "text": "", "signature": seal}]);
            self.chunk(
                &json!({"reasoning": null, "reasoning_details": details}),
                &Value::Null,
                out,
            );
        }
    }

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
