//! The wire forms: their paths, their names for things, and their error bodies.

use serde_json::{Value, json};

use crate::validate::{self, Broken, ChatDialect, ResponsesServer};

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
    /// AWS Bedrock Converse, `POST {base}/model/{model}/converse-stream`.
    BedrockConverse,
    /// Google Gemini, `POST {base}/models/{model}:streamGenerateContent?alt=sse`.
    Gemini,
}

impl Vendor {
    /// The wire form served at a path (query excluded), if any.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        match path {
            "/v1/chat/completions" => Some(Self::OpenaiChat),
            "/v1/responses" => Some(Self::OpenaiResponses),
            "/v1/messages" => Some(Self::AnthropicMessages),
            _ if bedrock_model(path).is_some() => Some(Self::BedrockConverse),
            _ => gemini_model(path).map(|_| Self::Gemini),
        }
    }

    /// The model a request asks: named in the body, or in the path.
    pub(crate) fn model(self, path: &str, body: &Value) -> String {
        if self == Self::BedrockConverse {
            return bedrock_model(path).unwrap_or_default();
        }
        let named = match self {
            Self::Gemini => gemini_model(path),
            _ => body.get("model").and_then(Value::as_str),
        };
        named.unwrap_or_default().to_owned()
    }

    pub(crate) fn validate(self, model: &str, body: &Value, dialect: ChatDialect) -> Vec<Broken> {
        let result = match self {
            Self::BedrockConverse => validate::bedrock_converse_model(model, body),
            Self::Gemini if model.starts_with("gemini-3") => validate::gemini_3(body),
            Self::Gemini => validate::gemini(body),
            Self::OpenaiChat => validate::openai_chat_dialect(body, dialect),
            Self::OpenaiResponses => {
                let server = match dialect {
                    ChatDialect::Xai => ResponsesServer::Xai,
                    ChatDialect::Openai | ChatDialect::Azure => ResponsesServer::Openai,
                    _ => ResponsesServer::Any,
                };
                validate::openai_responses_server(body, server)
            }
            Self::AnthropicMessages => validate::anthropic_messages(body),
        };
        result.err().unwrap_or_default()
    }

    pub(crate) fn call_prefix(self) -> &'static str {
        match self {
            Self::AnthropicMessages => "toolu_",
            Self::BedrockConverse => "tooluse_",
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
            (Self::BedrockConverse, 401 | 403) => "UnrecognizedClientException",
            (Self::BedrockConverse, 402) => "ServiceQuotaExceededException",
            (Self::BedrockConverse, 404) => "ResourceNotFoundException",
            (Self::BedrockConverse, 408) => "ModelTimeoutException",
            (Self::BedrockConverse, 424) => "ModelErrorException",
            (Self::BedrockConverse, 429) => "ThrottlingException",
            (Self::BedrockConverse, 503 | 529) => "ServiceUnavailableException",
            (Self::BedrockConverse, 500..) => "InternalServerException",
            (Self::BedrockConverse, _) => "ValidationException",
            (Self::Gemini, 401) => "INVALID_ARGUMENT",
            (Self::Gemini, 403) => "PERMISSION_DENIED",
            (Self::Gemini, 404) => "NOT_FOUND",
            (Self::Gemini, 429) => "RESOURCE_EXHAUSTED",
            (Self::Gemini, 503 | 529) => "UNAVAILABLE",
            (Self::Gemini, 504) => "DEADLINE_EXCEEDED",
            (Self::Gemini, 500..) => "INTERNAL",
            (Self::Gemini, _) => "INVALID_ARGUMENT",
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
            (Self::BedrockConverse, 401 | 403) => {
                "The security token included in the request is invalid.".into()
            }
            (Self::BedrockConverse, 404) => "The provided model identifier is invalid.".into(),
            (Self::BedrockConverse, 429) => {
                "Too many requests, please wait before trying again.".into()
            }
            (Self::BedrockConverse, 500) => {
                "The system encountered an unexpected error during processing. Try your request again.".into()
            }
            (Self::BedrockConverse, 503 | 529) => {
                "Bedrock is unable to process your request.".into()
            }
            (Self::Gemini, 401) => "API key not valid. Please pass a valid API key.".into(),
            (Self::Gemini, 404) => {
                "models/MODEL is not found for API version v1beta, or is not supported for generateContent.".into()
            }
            (Self::Gemini, 429) => "Resource has been exhausted (e.g. check quota).".into(),
            (Self::Gemini, 500) => "An internal error has occurred. Please retry.".into(),
            (Self::Gemini, 503 | 529) => "The model is overloaded. Please try again later.".into(),
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
            Self::BedrockConverse => json!({"message": message}),
            Self::Gemini => {
                let code = if status == 401 { 400 } else { status };
                let mut body =
                    json!({"error": {"code": code, "message": message, "status": error_type}});
                if status == 401 {
                    body["error"]["details"] = json!([{
                        "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID",
                        "domain": "googleapis.com"
                    }]);
                }
                body
            }
            _ => json!({"error": {
                "message": message, "type": error_type, "param": null, "code": self.error_code(status)
            }}),
        }
    }

    /// The header in which this vendor names an error, and its value.
    pub(crate) fn error_header(
        self,
        status: u16,
        error_type: Option<&str>,
    ) -> Option<(&'static str, String)> {
        let kind = error_type.unwrap_or_else(|| self.error_type(status));
        (self == Self::BedrockConverse && status >= 400).then(|| {
            let place = "http://internal.amazon.com/coral/com.amazon.bedrock/";
            ("x-amzn-errortype", format!("{kind}:{place}"))
        })
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
        let error_type = self.error_type(400);
        let mut body = self.error_body(400, Some(error_type), Some(&message));
        if dialect == ChatDialect::Mistral {
            body = json!({"object": "error", "message": message, "type": "invalid_request_error",
                          "param": at, "code": "3280"});
        } else if matches!(self, Self::OpenaiChat | Self::OpenaiResponses) {
            body["error"]["param"] = json!(at);
        }
        body["scripted"] = json!({"rules": rules, "broken": broken});
        body
    }

    /// The 400 for a prompt that fits and asks for more output than there is room left, in the wording of the vendors
    /// that refuse it; the others just stop at the window's end.
    pub(crate) fn sum_body(self, input: u64, output: u64, limit: u64) -> Option<Value> {
        let message = match self {
            Self::AnthropicMessages => format!(
                "input length and `max_tokens` exceed context limit: {input} + {output} > {limit}, decrease input \
                 length or `max_tokens` and try again"
            ),
            Self::OpenaiChat => format!(
                "This model's maximum context length is {limit} tokens. However, you requested {} tokens ({input} in \
                 the messages, {output} in the completion). Please reduce the length of the messages or completion.",
                input + output
            ),
            _ => return None,
        };
        Some(self.error_body(400, None, Some(&message)))
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
            Self::BedrockConverse => self.error_body(
                400,
                None,
                Some(&format!(
                    "The model returned the following errors: prompt is too long: {used} tokens > {limit} maximum"
                )),
            ),
            Self::Gemini => self.error_body(
                400,
                None,
                Some(&format!(
                    "The input token count ({used}) exceeds the maximum number of tokens allowed ({limit})."
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

/// The model in `/model/MODEL/converse-stream`, or `/converse`, percent-decoded; behind `/v1`, too, where the base of
/// all wire forms is.
fn bedrock_model(path: &str) -> Option<String> {
    let path = path.strip_prefix("/v1").unwrap_or(path);
    let (model, method) = path.strip_prefix("/model/")?.split_once('/')?;
    if model.is_empty() || !["converse-stream", "converse"].contains(&method) {
        return None;
    }
    let mut bytes = Vec::new();
    let mut rest = model.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next()?, rest.next()?];
        let digits = std::str::from_utf8(&digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// The model in `/v1beta/models/MODEL:streamGenerateContent`, or `:generateContent`; `v1` does as well.
fn gemini_model(path: &str) -> Option<&str> {
    let rest = path
        .strip_prefix("/v1beta/models/")
        .or_else(|| path.strip_prefix("/v1/models/"))?;
    let (model, method) = rest.rsplit_once(':')?;
    let known = ["streamGenerateContent", "generateContent"].contains(&method);
    (known && !model.is_empty()).then_some(model)
}
