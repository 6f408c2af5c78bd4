//! Strict validators of each vendor's request rules: what a real endpoint would answer 400 to.
//!
//! The rules are facts about the vendors; the code shares nothing with the encoders that build requests, so that a
//! mistake there cannot hide here. Every rule has a name that appears in the 400 answer and in the rule lists.

mod anthropic_hosted;
mod anthropic_media;
mod anthropic_messages;
mod anthropic_output;
mod anthropic_pairing;
mod anthropic_params;
mod bedrock;
mod bedrock_pairing;
mod bedrock_params;
mod chat_dialect;
mod chat_habits;
mod gemini;
mod gemini_pairing;
mod gemini_params;
mod media;
mod openai_chat;
mod openai_chat_params;
mod openai_responses;
mod openai_responses_params;
mod shape;

use serde_json::Value;

pub use chat_dialect::ChatDialect;
pub use openai_responses::ResponsesServer;

/// One rule a request breaks.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Broken {
    /// The rule's stable name, for example `anthropic.unanswered_tool_use`.
    pub rule: &'static str,
    /// Where in the body, as a JSON path such as `messages[2].content[0]`; empty for the body itself.
    pub at: String,
    /// What is wrong, naming the ids involved, in words close to the vendor's own.
    pub message: String,
}

/// Collects broken rules while a validator walks a request.
#[derive(Debug, Default)]
pub(crate) struct Report {
    broken: Vec<Broken>,
}

impl Report {
    pub(crate) fn add(
        &mut self,
        rule: &'static str,
        at: impl Into<String>,
        message: impl Into<String>,
    ) {
        self.broken.push(Broken {
            rule,
            at: at.into(),
            message: message.into(),
        });
    }

    /// Adds the rule when `ok` is false; returns `ok`.
    pub(crate) fn check(
        &mut self,
        ok: bool,
        rule: &'static str,
        at: &str,
        message: impl FnOnce() -> String,
    ) -> bool {
        if !ok {
            self.add(rule, at, message());
        }
        ok
    }

    fn into_result(self) -> Result<(), Vec<Broken>> {
        if self.broken.is_empty() {
            Ok(())
        } else {
            Err(self.broken)
        }
    }
}

/// Checks the body of an OpenAI Chat Completions request.
///
/// # Errors
/// Every rule the body breaks, in the order met.
pub fn openai_chat(body: &Value) -> Result<(), Vec<Broken>> {
    openai_chat_dialect(body, ChatDialect::Any)
}

/// Checks the body of a Chat Completions request as one server does: the shared rules and its own.
///
/// # Errors
/// Every rule the body breaks, in the order met.
pub fn openai_chat_dialect(body: &Value, dialect: ChatDialect) -> Result<(), Vec<Broken>> {
    let mut report = Report::default();
    let habits = chat_habits::of(dialect);
    openai_chat::check(body, &habits, &mut report);
    if dialect != ChatDialect::Any {
        chat_dialect::check(body, dialect, &habits, &mut report);
    }
    report.into_result()
}

/// Checks the body of an OpenAI Responses request: what all its servers want.
///
/// # Errors
/// Every rule the body breaks, in the order met.
pub fn openai_responses(body: &Value) -> Result<(), Vec<Broken>> {
    openai_responses_server(body, ResponsesServer::Any)
}

/// Checks the body of a Responses request as one server does.
///
/// # Errors
/// Every rule the body breaks, in the order met.
pub fn openai_responses_server(body: &Value, server: ResponsesServer) -> Result<(), Vec<Broken>> {
    let mut report = Report::default();
    openai_responses::check(body, server, &mut report);
    report.into_result()
}

/// Checks the body of an Anthropic Messages request.
///
/// # Errors
/// Every rule the body breaks, in the order met.
pub fn anthropic_messages(body: &Value) -> Result<(), Vec<Broken>> {
    let mut report = Report::default();
    anthropic_messages::check(body, &mut report);
    report.into_result()
}

/// Checks the body of a Gemini request.
///
/// # Errors
/// Every rule the body breaks, in the order met.
pub fn gemini(body: &Value) -> Result<(), Vec<Broken>> {
    let mut report = Report::default();
    gemini::check(body, &mut report);
    report.into_result()
}

/// Checks the body of a request to a model of Gemini 3, which wants signatures on calls, too.
///
/// # Errors
/// Every rule the body breaks, in the order met.
pub fn gemini_3(body: &Value) -> Result<(), Vec<Broken>> {
    let mut report = Report::default();
    gemini::check(body, &mut report);
    if let Some(contents) = body.get("contents").and_then(Value::as_array) {
        gemini_pairing::check_signatures(contents, &mut report);
    }
    report.into_result()
}

/// Checks the body of a Bedrock Converse request to a model nobody names: what holds for all of them.
///
/// # Errors
/// Every rule the body breaks, in the order met.
pub fn bedrock_converse(body: &Value) -> Result<(), Vec<Broken>> {
    bedrock_converse_model("", body)
}

/// Checks the body of a Bedrock Converse request to `model`, with the rules of its maker.
///
/// # Errors
/// Every rule the body breaks, in the order met.
pub fn bedrock_converse_model(model: &str, body: &Value) -> Result<(), Vec<Broken>> {
    let mut report = Report::default();
    bedrock::check(model, body, &mut report);
    report.into_result()
}

/// The names of all rules [`bedrock_converse_model`] can report.
pub fn bedrock_converse_rules() -> &'static [&'static str] {
    bedrock::RULES
}

/// The names of all rules [`openai_chat`] can report.
pub fn openai_chat_rules() -> &'static [&'static str] {
    openai_chat::RULES
}

/// The names of the rules [`openai_chat_dialect`] can report beside those of [`openai_chat`].
pub fn openai_chat_dialect_rules() -> &'static [&'static str] {
    chat_dialect::RULES
}

/// The names of all rules [`openai_responses`] can report.
pub fn openai_responses_rules() -> &'static [&'static str] {
    openai_responses::RULES
}

/// The names of all rules [`anthropic_messages`] can report.
pub fn anthropic_messages_rules() -> &'static [&'static str] {
    anthropic_messages::RULES
}

/// The names of all rules [`gemini`] and [`gemini_3`] can report.
pub fn gemini_rules() -> &'static [&'static str] {
    gemini::RULES
}
