//! The three wire forms: their paths, their names for things, and their error bodies.

use serde_json::{Value, json};

use crate::validate::{self, Broken, ChatDialect};

/// A vendor's wire form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Vendor {
    /// OpenAI Chat Completions, `POST {base}/chat/completions`.
    OpenaiChat,
    /// OpenAI Responses, `POST {base}/responses`.
    OpenaiResponses,
    /// Anthropic Messages, `POST {base}/messages`.
    AnthropicMessages,
}

impl Vendor {
    /// The wire form served at a path (query excluded), if any.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        match path {
            "/v1/chat/completions" => Some(Self::OpenaiChat),
            "/v1/responses" => Some(Self::OpenaiResponses),
            "/v1/messages" => Some(Self::AnthropicMessages),
            _ => None,
        }
    }

    pub(crate) fn validate(self, body: &Value, dialect: ChatDialect) -> Vec<Broken> {
        let result = match self {
            Self::OpenaiChat => validate::openai_chat_dialect(body, dialect),
            Self::OpenaiResponses => validate::openai_responses(body),
            Self::AnthropicMessages => validate::anthropic_messages(body),
        };
        result.err().unwrap_or_default()
    }

    pub(crate) fn call_prefix(self) -> &'static str {
        match self {
            Self::AnthropicMessages => "toolu_",
            _ => "call_",
        }
    }

    /// The error type this vendor gives a status when nothing more is known.
    pub(crate) fn error_type(self, status: u16) -> &'static str {
        match (self, status) {
            (Self::AnthropicMessages, 400 | 422) => "invalid_request_error",
            (Self::AnthropicMessages, 401) => "authentication_error",
            (Self::AnthropicMessages, 402) => "billing_error",
            (Self::AnthropicMessages, 403) => "permission_error",
            (Self::AnthropicMessages, 404) => "not_found_error",
            (Self::AnthropicMessages, 413) => "request_too_large",
            (Self::AnthropicMessages, 429) => "rate_limit_error",
            (Self::AnthropicMessages, 504) => "timeout_error",
            (Self::AnthropicMessages, 529) => "overloaded_error",
            (Self::AnthropicMessages, _) => "api_error",
            (_, 429) => "requests",
            (_, 500..) => "server_error",
            _ => "invalid_request_error",
        }
    }

    fn error_code(self, status: u16) -> Value {
        match status {
            401 => json!("invalid_api_key"),
            404 => json!("model_not_found"),
            429 => json!("rate_limit_exceeded"),
            503 | 529 => json!("server_is_overloaded"),
            _ => Value::Null,
        }
    }

    fn error_message(self, status: u16) -> String {
        match (self, status) {
            (_, 400) => "The request is not valid (scripted).".into(),
            (Self::AnthropicMessages, 401) => "invalid x-api-key".into(),
            (_, 401) => {
                "Incorrect API key provided. You can find your API key in your account.".into()
            }
            (_, 404) => {
                "The requested model does not exist or you do not have access to it.".into()
            }
            (_, 429) => {
                "Rate limit reached for requests (scripted). Please try again later.".into()
            }
            (Self::AnthropicMessages, 529) => "Overloaded".into(),
            (_, 503 | 529) => "The engine is currently overloaded, please try again later".into(),
            (Self::AnthropicMessages, 500) => "Internal server error".into(),
            (_, 500) => {
                "The server had an error while processing your request. Sorry about that!".into()
            }
            (_, other) => format!("scripted answer with status {other}"),
        }
    }

    /// The error body of an HTTP answer in this vendor's form.
    pub(crate) fn error_body(
        self,
        status: u16,
        error_type: Option<&str>,
        message: Option<&str>,
    ) -> Value {
        let message = message.map_or_else(|| self.error_message(status), str::to_owned);
        let error_type = error_type.unwrap_or_else(|| self.error_type(status));
        match self {
            Self::AnthropicMessages => json!({
                "type": "error",
                "error": {"type": error_type, "message": message},
                "request_id": "req_scripted"
            }),
            _ => json!({"error": {
                "message": message, "type": error_type, "param": null, "code": self.error_code(status)
            }}),
        }
    }

    /// The 400 for a request whose rules are broken; the rules stand beside the vendor's own fields.
    pub(crate) fn refusal_body(self, dialect: ChatDialect, broken: &[Broken]) -> Value {
        let first = broken.first();
        let at = first.map_or("", |b| b.at.as_str());
        let rules: Vec<&str> = broken.iter().map(|b| b.rule).collect();
        let message = broken
            .iter()
            .map(|b| format!("{}: {} [{}]", b.at, b.message, b.rule))
            .collect::<Vec<_>>()
            .join("; ");
        let mut body = self.error_body(400, Some("invalid_request_error"), Some(&message));
        if dialect == ChatDialect::Mistral {
            body = json!({"object": "error", "message": message, "type": "invalid_request_error",
                          "param": at, "code": "3280"});
        } else if self != Self::AnthropicMessages {
            body["error"]["param"] = json!(at);
        }
        body["scripted"] = json!({"rules": rules, "broken": broken});
        body
    }

    /// The 400 for a prompt that does not fit, in this vendor's wording.
    pub(crate) fn overflow_body(self, used: u64, limit: u64) -> Value {
        match self {
            Self::AnthropicMessages => self.error_body(
                400,
                None,
                Some(&format!(
                    "prompt is too long: {used} tokens > {limit} maximum"
                )),
            ),
            Self::OpenaiChat => json!({"error": {
                "message": format!("This model's maximum context length is {limit} tokens. However, your messages \
                    resulted in {used} tokens. Please reduce the length of the messages."),
                "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"
            }}),
            Self::OpenaiResponses => json!({"error": {
                "message": "Your input exceeds the context window of this model. Please adjust your input and try \
                    again.",
                "type": "invalid_request_error", "param": "input", "code": "context_length_exceeded"
            }}),
        }
    }
}
