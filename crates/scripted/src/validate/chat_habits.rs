//! The facts about single servers of Chat Completions, as far as they refuse anything.

use std::fmt;

use super::chat_dialect::ChatDialect;

/// What one server takes and refuses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Habits {
    /// The only fields of the body it knows; `None`: it ignores what it does not know.
    pub(super) fields: Option<&'static [&'static str]>,
    /// Fields of the body it refuses.
    pub(super) refused: &'static [&'static str],
    /// The only fields of a message it knows.
    pub(super) message_fields: Option<&'static [&'static str]>,
    /// Fields of a message it refuses.
    pub(super) refused_in_messages: &'static [&'static str],
    pub(super) roles: &'static [&'static str],
    /// Part types of user messages.
    pub(super) user_parts: &'static [&'static str],
    /// Part types of assistant messages.
    pub(super) assistant_parts: &'static [&'static str],
    pub(super) system_first: bool,
    pub(super) order: Order,
    pub(super) ids: Ids,
    pub(super) tools: bool,
    /// Tool types beside `function`.
    pub(super) own_tools: &'static [&'static str],
    pub(super) max_tools: usize,
    pub(super) choices: &'static [&'static str],
    pub(super) named_choice: bool,
    pub(super) thinking_chooses: bool,
    pub(super) formats: &'static [&'static str],
    pub(super) format_with_tools: bool,
    pub(super) efforts: &'static [&'static str],
    pub(super) reasoning_back: bool,
    pub(super) images: bool,
}

/// Which role may follow which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Free,
    ToolThenAssistant,
    Alternating,
}

/// Which tool call ids it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ids {
    UpTo(usize),
    Nine,
}

impl fmt::Display for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UpTo(most) => write!(f, "at most {most} characters long"),
            Self::Nine => f.write_str("a-z, A-Z, 0-9, with a length of 9."),
        }
    }
}

const EFFORTS: &[&str] = &[
    "none", "minimal", "low", "medium", "high", "xhigh", "max", "default",
];

/// The rules all share refuse nothing here.
pub(super) const ANY: Habits = Habits {
    fields: None,
    refused: &[],
    message_fields: None,
    refused_in_messages: &[],
    roles: &["system", "developer", "user", "assistant", "tool"],
    user_parts: &["text", "image_url", "input_audio", "file"],
    // Who streams thinking parts, as Mistral's servers do, takes them again.
    assistant_parts: &["text", "refusal", "thinking"],
    system_first: false,
    order: Order::Free,
    ids: Ids::UpTo(40),
    tools: true,
    own_tools: &[],
    max_tools: 128,
    choices: &["none", "auto", "required", "any"],
    named_choice: true,
    thinking_chooses: false,
    formats: &["text", "json_object", "json_schema"],
    format_with_tools: true,
    efforts: EFFORTS,
    reasoning_back: false,
    images: true,
};

/// Most servers know these roles only.
const FOUR_ROLES: &[&str] = &["system", "user", "assistant", "tool"];
const NO_ANY: &[&str] = &["none", "auto", "required"];

const OPENAI_FIELDS: &[&str] = &[
    "model",
    "messages",
    "stream",
    "stream_options",
    "max_completion_tokens",
    "max_tokens",
    "prompt_cache_key",
    "safety_identifier",
    "temperature",
    "top_p",
    "n",
    "stop",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "user",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "reasoning_effort",
    "verbosity",
    "store",
    "metadata",
    "service_tier",
    "modalities",
    "audio",
    "prediction",
    "web_search_options",
    "prompt_cache_retention",
];

const OPENAI: Habits = Habits {
    assistant_parts: &["text", "refusal"],
    fields: Some(OPENAI_FIELDS),
    message_fields: Some(&[
        "role",
        "content",
        "name",
        "refusal",
        "audio",
        "tool_calls",
        "tool_call_id",
        "function_call",
        "annotations",
    ]),
    choices: NO_ANY,
    ..ANY
};

const MISTRAL_FIELDS: &[&str] = &[
    "model",
    "messages",
    "stream",
    "max_tokens",
    "temperature",
    "top_p",
    "n",
    "stop",
    "random_seed",
    "presence_penalty",
    "frequency_penalty",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "prediction",
    "prompt_mode",
    "safe_prompt",
    "reasoning_effort",
    "metadata",
    "guardrails",
];

const VLLM: Habits = Habits {
    user_parts: &["text", "image_url", "video_url", "audio_url", "input_audio"],
    // The templates of several model families raise this.
    system_first: true,
    ids: Ids::UpTo(64),
    choices: NO_ANY,
    efforts: &["none", "minimal", "low", "medium", "high", "xhigh", "max"],
    ..ANY
};

const GOOGLE_FIELDS: &[&str] = &[
    "model",
    "messages",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "n",
    "stop",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "logprobs",
    "top_logprobs",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "reasoning_effort",
    "modalities",
    "service_tier",
    "user",
    "extra_body",
];

/// What `dialect` takes and refuses.
pub(super) fn of(dialect: ChatDialect) -> Habits {
    ROWS.iter()
        .find(|(one, _)| *one == dialect)
        .map_or(ANY, |(_, habits)| *habits)
}

const ROWS: &[(ChatDialect, Habits)] = &[
    (ChatDialect::Openai, OPENAI),
    (
        ChatDialect::Azure,
        Habits {
            refused: &["prompt_cache_key", "web_search_options"],
            user_parts: &["text", "image_url", "input_audio"],
            ..OPENAI
        },
    ),
    (
        ChatDialect::Openrouter,
        Habits {
            own_tools: &["openrouter:web_search", "openrouter:datetime"],
            choices: NO_ANY,
            ..ANY
        },
    ),
    (
        ChatDialect::Mistral,
        Habits {
            fields: Some(MISTRAL_FIELDS),
            message_fields: Some(&[
                "role",
                "content",
                "name",
                "tool_calls",
                "tool_call_id",
                "prefix",
            ]),
            roles: FOUR_ROLES,
            user_parts: &["text", "image_url", "document_url", "input_audio", "file"],
            assistant_parts: &["text", "thinking", "reference"],
            order: Order::ToolThenAssistant,
            ids: Ids::Nine,
            efforts: &["none", "high"],
            ..ANY
        },
    ),
    (
        ChatDialect::Deepseek,
        Habits {
            roles: FOUR_ROLES,
            user_parts: &["text"],
            choices: NO_ANY,
            thinking_chooses: true,
            formats: &["text", "json_object"],
            efforts: &["low", "medium", "high", "xhigh", "max"],
            reasoning_back: true,
            images: false,
            ..ANY
        },
    ),
    (
        ChatDialect::Groq,
        Habits {
            refused: &["logprobs", "logit_bias", "top_logprobs", "prompt_cache_key"],
            refused_in_messages: &["reasoning_content", "reasoning_details"],
            user_parts: &["text", "image_url"],
            own_tools: &["browser_search", "code_interpreter", "mcp"],
            choices: NO_ANY,
            format_with_tools: false,
            efforts: &["none", "default", "low", "medium", "high"],
            ..ANY
        },
    ),
    (
        ChatDialect::Xai,
        Habits {
            refused: &["search_parameters"],
            user_parts: &["text", "image_url"],
            choices: NO_ANY,
            efforts: &["none", "low", "medium", "high"],
            ..ANY
        },
    ),
    (
        ChatDialect::Cerebras,
        Habits {
            refused: &[
                "frequency_penalty",
                "logit_bias",
                "presence_penalty",
                "service_tier",
                "prompt_cache_key",
            ],
            refused_in_messages: &["reasoning_content", "reasoning_details"],
            roles: &["system", "developer", "user", "assistant", "tool"],
            user_parts: &["text"],
            choices: NO_ANY,
            format_with_tools: false,
            efforts: &["none", "low", "medium", "high"],
            images: false,
            ..ANY
        },
    ),
    (
        ChatDialect::Perplexity,
        Habits {
            refused: &["stream_options"],
            roles: FOUR_ROLES,
            user_parts: &["text", "image_url", "file_url"],
            system_first: true,
            order: Order::Alternating,
            tools: false,
            efforts: &["minimal", "low", "medium", "high"],
            ..ANY
        },
    ),
    (
        ChatDialect::Moonshot,
        Habits {
            roles: FOUR_ROLES,
            user_parts: &["text", "image_url", "video_url"],
            ids: Ids::UpTo(64),
            choices: NO_ANY,
            thinking_chooses: true,
            formats: &["text", "json_object"],
            reasoning_back: true,
            ..ANY
        },
    ),
    (
        ChatDialect::Zai,
        Habits {
            roles: FOUR_ROLES,
            user_parts: &["text", "image_url", "video_url", "file_url"],
            own_tools: &["web_search", "retrieval"],
            choices: &["auto"],
            named_choice: false,
            formats: &["text", "json_object"],
            ..ANY
        },
    ),
    (
        ChatDialect::Dashscope,
        Habits {
            roles: FOUR_ROLES,
            user_parts: &["text", "image_url", "input_audio", "video"],
            choices: &["auto", "none"],
            thinking_chooses: true,
            formats: &["text", "json_object"],
            format_with_tools: false,
            ..ANY
        },
    ),
    (
        ChatDialect::LlamaCpp,
        Habits {
            user_parts: &["text", "image_url", "input_audio"],
            // The templates of several model families raise this.
            system_first: true,
            ids: Ids::UpTo(64),
            choices: NO_ANY,
            named_choice: false,
            format_with_tools: false,
            ..ANY
        },
    ),
    (
        ChatDialect::Ollama,
        Habits {
            roles: FOUR_ROLES,
            user_parts: &["text", "image_url"],
            ids: Ids::UpTo(64),
            named_choice: false,
            efforts: &["none", "low", "medium", "high", "max"],
            ..ANY
        },
    ),
    (
        ChatDialect::LmStudio,
        Habits {
            roles: FOUR_ROLES,
            user_parts: &["text", "image_url"],
            choices: NO_ANY,
            named_choice: false,
            formats: &["text", "json_schema"],
            ..ANY
        },
    ),
    (ChatDialect::Vllm, VLLM),
    (ChatDialect::Sglang, VLLM),
    (
        ChatDialect::Together,
        Habits {
            user_parts: &["text", "image_url", "video_url", "audio_url"],
            choices: NO_ANY,
            ..ANY
        },
    ),
    (
        ChatDialect::Fireworks,
        Habits {
            user_parts: &["text", "image_url"],
            efforts: &["none", "low", "medium", "high", "xhigh", "max"],
            ..ANY
        },
    ),
    (
        ChatDialect::Google,
        Habits {
            // "Unknown name … Cannot find field."
            fields: Some(GOOGLE_FIELDS),
            refused_in_messages: &["reasoning_content", "reasoning", "reasoning_details"],
            user_parts: &["text", "image_url", "input_audio"],
            choices: NO_ANY,
            efforts: &["none", "minimal", "low", "medium", "high"],
            ..ANY
        },
    ),
];
