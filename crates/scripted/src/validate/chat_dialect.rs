//! What single servers of Chat Completions refuse that others take; and the names they go by in paths.

use serde_json::Value;

use super::Report;
use super::chat_habits::{Habits, Ids, Order};
use super::shape::{given, text_of};

/// A server of Chat Completions whose requests are checked by its own rules too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChatDialect {
    /// No server in particular: the rules all of them share.
    Any,
    /// OpenAI's own.
    Openai,
    /// Azure's deployments of OpenAI models.
    Azure,
    /// OpenRouter.
    Openrouter,
    /// Mistral.
    Mistral,
    /// DeepSeek.
    Deepseek,
    /// Groq.
    Groq,
    /// xAI.
    Xai,
    /// Cerebras.
    Cerebras,
    /// Perplexity.
    Perplexity,
    /// Moonshot.
    Moonshot,
    /// Z.ai.
    Zai,
    /// DashScope.
    Dashscope,
    /// llama.cpp.
    LlamaCpp,
    /// Ollama.
    Ollama,
    /// LM Studio.
    LmStudio,
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// Together.
    Together,
    /// Fireworks.
    Fireworks,
    /// Google's imitation.
    Google,
}

impl ChatDialect {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::Any,
        Self::Openai,
        Self::Azure,
        Self::Openrouter,
        Self::Mistral,
        Self::Deepseek,
        Self::Groq,
        Self::Xai,
        Self::Cerebras,
        Self::Perplexity,
        Self::Moonshot,
        Self::Zai,
        Self::Dashscope,
        Self::LlamaCpp,
        Self::Ollama,
        Self::LmStudio,
        Self::Vllm,
        Self::Sglang,
        Self::Together,
        Self::Fireworks,
        Self::Google,
    ];

    /// The word in paths: `/dialect/WORD/v1/chat/completions`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Openai => "openai",
            Self::Azure => "azure",
            Self::Openrouter => "openrouter",
            Self::Mistral => "mistral",
            Self::Deepseek => "deepseek",
            Self::Groq => "groq",
            Self::Xai => "xai",
            Self::Cerebras => "cerebras",
            Self::Perplexity => "perplexity",
            Self::Moonshot => "moonshot",
            Self::Zai => "zai",
            Self::Dashscope => "dashscope",
            Self::LlamaCpp => "llama.cpp",
            Self::Ollama => "ollama",
            Self::LmStudio => "lm-studio",
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::Together => "together",
            Self::Fireworks => "fireworks",
            Self::Google => "google",
        }
    }

    /// The dialect of a word, if there is one.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == word)
    }
}

/// The rules a single server adds.
pub(super) const RULES: &[&str] = &[
    "chat.dialect.field",
    "chat.dialect.message_field",
    "chat.dialect.role",
    "chat.dialect.system_place",
    "chat.dialect.order",
    "chat.dialect.first_user",
    "chat.dialect.last_role",
    "chat.dialect.id",
    "chat.dialect.tools",
    "chat.dialect.max_tools",
    "chat.dialect.tool_choice",
    "chat.dialect.tool_choice_thinking",
    "chat.dialect.format",
    "chat.dialect.format_with_tools",
    "chat.dialect.effort",
    "chat.dialect.reasoning_missing",
    "chat.dialect.image",
];

pub(super) fn check(body: &Value, dialect: ChatDialect, habits: &Habits, report: &mut Report) {
    let who = dialect.as_str();
    let Some(fields) = body.as_object() else {
        return;
    };
    for key in fields.keys() {
        let known = habits
            .fields
            .is_none_or(|list| list.contains(&key.as_str()));
        let taken = known && !habits.refused.contains(&key.as_str());
        report.check(taken, "chat.dialect.field", key, || {
            format!("{who}: unrecognized request argument supplied: {key}")
        });
    }
    check_tools(body, who, habits, report);
    check_options(body, who, habits, report);
    let Some(messages) = body.get("messages").and_then(Value::as_array) else {
        return;
    };
    for (index, message) in messages.iter().enumerate() {
        let at = format!("messages[{index}]");
        check_message(message, &at, who, habits, report);
    }
    check_order(messages, who, habits, report);
    check_reasoning(body, messages, who, habits, report);
}

fn check_tools(body: &Value, who: &str, habits: &Habits, report: &mut Report) {
    let tools = given(body, "tools").and_then(Value::as_array);
    let count = tools.map_or(0, Vec::len);
    report.check(
        habits.tools || count == 0,
        "chat.dialect.tools",
        "tools",
        || format!("{who}: tool calling is not supported"),
    );
    report.check(
        count <= habits.max_tools,
        "chat.dialect.max_tools",
        "tools",
        || format!("{who}: at most {} tools, got {count}", habits.max_tools),
    );
    let Some(choice) = given(body, "tool_choice") else {
        return;
    };
    let taken = match choice {
        Value::String(word) => habits.choices.contains(&word.as_str()),
        _ => habits.named_choice,
    };
    report.check(taken, "chat.dialect.tool_choice", "tool_choice", || {
        format!("{who}: tool_choice {choice} is not supported")
    });
    let forced = choice.is_object() || choice == "required" || choice == "any";
    report.check(
        !(forced && habits.thinking_chooses && thinks(body)),
        "chat.dialect.tool_choice_thinking",
        "tool_choice",
        || format!("{who}: tool_choice {choice} is incompatible with thinking enabled"),
    );
}

/// Thinking is on unless it is switched off, or the model's name means that.
fn thinks(body: &Value) -> bool {
    if text_of(body, "model") == "deepseek-chat" {
        return false;
    }
    body.pointer("/thinking/type") != Some(&Value::from("disabled"))
        && body.get("enable_thinking") != Some(&Value::Bool(false))
}

fn check_options(body: &Value, who: &str, habits: &Habits, report: &mut Report) {
    if let Some(format) = given(body, "response_format") {
        let kind = text_of(format, "type");
        report.check(
            habits.formats.contains(&kind),
            "chat.dialect.format",
            "response_format",
            || {
                format!(
                    "{who}: 'response_format.type' must be one of {:?}",
                    habits.formats
                )
            },
        );
        let tools = given(body, "tools").is_some();
        report.check(
            habits.format_with_tools || !tools || kind == "text",
            "chat.dialect.format_with_tools",
            "response_format",
            || format!("{who}: a response_format cannot be used together with tools"),
        );
    }
    if let Some(effort) = given(body, "reasoning_effort") {
        let taken = effort.as_str().is_some_and(|e| habits.efforts.contains(&e));
        report.check(taken, "chat.dialect.effort", "reasoning_effort", || {
            format!(
                "{who}: reasoning_effort must be one of {:?}",
                habits.efforts
            )
        });
    }
}

fn check_message(message: &Value, at: &str, who: &str, habits: &Habits, report: &mut Report) {
    let role = text_of(message, "role");
    report.check(
        habits.roles.contains(&role),
        "chat.dialect.role",
        at,
        || {
            format!(
                "{who}: unknown role {role:?}, expected one of {:?}",
                habits.roles
            )
        },
    );
    for key in message.as_object().into_iter().flat_map(|m| m.keys()) {
        let known = habits
            .message_fields
            .is_none_or(|list| list.contains(&key.as_str()));
        let taken = known && !habits.refused_in_messages.contains(&key.as_str());
        report.check(taken, "chat.dialect.message_field", at, || {
            format!("{who}: for 'role:{role}': property '{key}' is unsupported")
        });
    }
    let parts = message.get("content").and_then(Value::as_array);
    let shows = parts
        .into_iter()
        .flatten()
        .any(|part| text_of(part, "type") == "image_url");
    report.check(!shows || habits.images, "chat.dialect.image", at, || {
        format!("{who}: unknown variant `image_url`, expected `text`")
    });
    let calls = message.get("tool_calls").and_then(Value::as_array);
    let ids = calls
        .into_iter()
        .flatten()
        .map(|call| text_of(call, "id"))
        .chain((role == "tool").then(|| text_of(message, "tool_call_id")));
    for id in ids {
        let legal = match habits.ids {
            Ids::UpTo(most) => id.len() <= most,
            Ids::Nine => id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()),
        };
        report.check(legal, "chat.dialect.id", at, || {
            format!("{who}: Tool call id was {id} but must be {}", habits.ids)
        });
    }
}

fn check_order(messages: &[Value], who: &str, habits: &Habits, report: &mut Report) {
    let roles: Vec<&str> = messages.iter().map(|m| text_of(m, "role")).collect();
    let privileged = |role: &str| role == "system" || role == "developer";
    let start = roles
        .iter()
        .position(|role| !privileged(role))
        .unwrap_or(roles.len());
    if habits.system_first
        && let Some(index) = roles[start..].iter().position(|role| privileged(role))
    {
        report.add(
            "chat.dialect.system_place",
            format!("messages[{}]", start + index),
            format!("{who}: System message must be at the beginning."),
        );
    }
    let talk = &roles[start..];
    if habits.order == Order::Free {
        return;
    }
    report.check(
        talk.first().is_none_or(|role| *role == "user"),
        "chat.dialect.first_user",
        "messages",
        || format!("{who}: the conversation must begin with a user message"),
    );
    report.check(
        talk.last()
            .is_none_or(|role| *role == "user" || *role == "tool"),
        "chat.dialect.last_role",
        "messages",
        || {
            format!(
                "{who}: Expected last role User or Tool, got {:?}",
                talk.last()
            )
        },
    );
    for (index, pair) in talk.windows(2).enumerate() {
        let legal = match habits.order {
            Order::Free => true,
            Order::ToolThenAssistant => pair != ["tool", "user"],
            Order::Alternating => pair[0] != pair[1],
        };
        report.check(
            legal,
            "chat.dialect.order",
            &format!("messages[{}]", start + index + 1),
            || {
                format!(
                    "{who}: Unexpected role '{}' after role '{}'",
                    pair[1], pair[0]
                )
            },
        );
    }
}

/// With tools and thinking, what the model thought before each of its messages has to come back.
fn check_reasoning(
    body: &Value,
    messages: &[Value],
    who: &str,
    habits: &Habits,
    report: &mut Report,
) {
    if !habits.reasoning_back || !thinks(body) || given(body, "tools").is_none() {
        return;
    }
    for (index, message) in messages.iter().enumerate() {
        let missing = text_of(message, "role") == "assistant"
            && text_of(message, "reasoning_content").is_empty();
        report.check(
            !missing,
            "chat.dialect.reasoning_missing",
            &format!("messages[{index}]"),
            || format!("{who}: The `reasoning_content` in the thinking mode must be passed back to the API."),
        );
    }
}
