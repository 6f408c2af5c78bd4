//! The table of Chat Completions servers. Each row says in a few words where its rules come from.

use super::Dialect;
use super::facts::*;
use crate::effort;

/// The words most servers know, with no word for "off".
const WORDS: [Option<&str>; 4] = [None, Some("low"), Some("medium"), Some("high")];
/// The same with `none` for "off".
const WORDS_NONE: [Option<&str>; 4] = [Some("none"), Some("low"), Some("medium"), Some("high")];

/// What every imitation understands; the ground of the other rows.
pub(super) const COMMON: Facts = Facts {
    dialect: Dialect::Common,
    word: "common",
    hosts: &[],
    auth: Auth::Bearer,
    limit: Limit::MaxTokens,
    stream_options: true,
    // Templates of open models often raise "system message must be at the beginning".
    notes_anywhere: false,
    order: Order::Free,
    tools: true,
    // OpenAI's limit, which many repeat.
    max_tools: 128,
    choice: Choice::Named,
    free_choice_when_thinking: false,
    // OpenAI's limit on the length, Anthropic's on the letters: gateways lead to both.
    ids: Ids::Words(40),
    // Some refuse json_schema, some json_object: words are all that is common.
    format: Format::Words,
    format_with_tools: false,
    images: true,
    files: Files::None,
    think: Think::Effort(WORDS),
    // A server that streams a field reads it again; one that does not never sees it.
    replay: Replay::AsCame,
    reasoning_required: false,
    cache: Cache::Unasked,
    hosted: Hosted::None,
};

/// What OpenAI's own documents say.
const OPENAI: Facts = Facts {
    dialect: Dialect::Openai,
    word: "openai",
    hosts: &["openai.com"],
    // API reference: max_tokens is deprecated, and refused by reasoning models.
    limit: Limit::MaxCompletionTokens,
    notes_anywhere: true,
    format: Format::Schema,
    format_with_tools: true,
    // Guide "File inputs": file_data as a data URL.
    files: Files::File,
    think: Think::EffortOf(effort::words),
    // No reasoning is streamed here.
    replay: Replay::Never,
    cache: Cache::Key,
    hosted: Hosted::SearchOptions,
    ..COMMON
};

pub(super) const ROWS: &[Facts] = &[
    COMMON,
    OPENAI,
    Facts {
        dialect: Dialect::Azure,
        word: "azure",
        hosts: &[
            "openai.azure.com",
            "cognitiveservices.azure.com",
            "services.ai.azure.com",
        ],
        // Azure reference: `api-key` header; `Authorization` is for Entra tokens.
        auth: Auth::ApiKey,
        // Documents are for its Responses API only.
        files: Files::None,
        // Older api-versions refuse it as an unrecognized argument; caching works without.
        cache: Cache::Unasked,
        hosted: Hosted::None,
        ..OPENAI
    },
    Facts {
        dialect: Dialect::Openrouter,
        word: "openrouter",
        hosts: &["openrouter.ai"],
        format: Format::Schema,
        format_with_tools: true,
        files: Files::File,
        // "Reasoning tokens": reasoning.effort none … xhigh; reasoning_details are to be sent back as they came.
        think: Think::Reasoning(WORDS_NONE),
        replay: Replay::Details,
        // "Prompt caching": explicit breakpoints for Anthropic and Qwen models.
        cache: Cache::Marks,
        // "Server tools": openrouter:web_search.
        hosted: Hosted::ServerTool,
        ..COMMON
    },
    Facts {
        dialect: Dialect::Mistral,
        word: "mistral",
        hosts: &["mistral.ai"],
        // 422 "Extra inputs are not permitted"; usage comes in the last chunk anyway.
        stream_options: false,
        // 400 "Unexpected role 'user' after role 'tool'".
        order: Order::Bridged,
        choice: Choice::NamedAny,
        // 400 "Tool call id … must be a-z, A-Z, 0-9, with a length of 9".
        ids: Ids::Nine,
        format: Format::Schema,
        format_with_tools: true,
        files: Files::DocumentUrl,
        // API reference: reasoning_effort is `none` or `high`.
        think: Think::Effort([Some("none"), Some("high"), Some("high"), Some("high")]),
        replay: Replay::Chunks,
        ..COMMON
    },
    Facts {
        dialect: Dialect::Deepseek,
        word: "deepseek",
        hosts: &["deepseek.com"],
        // "JSON output": json_object only, and the prompt must ask for JSON.
        format: Format::Object,
        format_with_tools: true,
        // 400 "unknown variant `image_url`, expected `text`".
        images: false,
        // "Thinking mode": thinking.type, reasoning_effort high or max; on unless disabled.
        think: Think::Switch([None, Some("high"), Some("high"), Some("max")]),
        // 400 "Thinking mode does not support this tool_choice".
        free_choice_when_thinking: true,
        // "Thinking mode", tool calls: 400 "The `reasoning_content` in the thinking mode must be passed back".
        // The reasoner before V3.2 refused the field; its API is gone.
        replay: Replay::Field("reasoning_content"),
        reasoning_required: true,
        ..COMMON
    },
    Facts {
        dialect: Dialect::Groq,
        word: "groq",
        hosts: &["groq.com"],
        limit: Limit::MaxCompletionTokens,
        format: Format::Schema,
        // "Structured outputs": not together with streaming tools.
        format_with_tools: false,
        // "Reasoning": none/default for Qwen, low/medium/high for gpt-oss; reasoning_format is parsed by default with tools,
        // and raw is a 400 with them.
        think: Think::EffortOf(groq_effort),
        // 400 "property 'reasoning_content' is unsupported".
        replay: Replay::Field("reasoning"),
        hosted: Hosted::Compound,
        ..COMMON
    },
    Facts {
        dialect: Dialect::Xai,
        word: "xai",
        hosts: &["x.ai"],
        limit: Limit::MaxCompletionTokens,
        format: Format::Schema,
        format_with_tools: true,
        think: Think::EffortOf(effort::of_xai),
        // Live search answers 410 "Live search is deprecated": only its Responses API searches.
        hosted: Hosted::None,
        ..COMMON
    },
    Facts {
        dialect: Dialect::Together,
        word: "together",
        hosts: &["together.xyz", "together.ai"],
        format: Format::Schema,
        // "Reasoning": reasoning_effort low, medium, high; hybrid models are switched by reasoning.enabled.
        think: Think::EffortOrDisabled(WORDS),
        ..COMMON
    },
    Facts {
        dialect: Dialect::Fireworks,
        word: "fireworks",
        hosts: &["fireworks.ai"],
        format: Format::Schema,
        think: Think::EffortOf(fireworks_effort),
        ..COMMON
    },
    Facts {
        dialect: Dialect::Cerebras,
        word: "cerebras",
        hosts: &["cerebras.ai"],
        limit: Limit::MaxCompletionTokens,
        format: Format::Schema,
        // "OpenAI compatibility": text only; 400 for parallel_tool_calls, service_tier, penalties.
        images: false,
        think: Think::EffortOf(cerebras_effort),
        // 400 "property 'messages.2.assistant.reasoning_content' is unsupported".
        replay: Replay::Field("reasoning"),
        ..COMMON
    },
    Facts {
        dialect: Dialect::Perplexity,
        word: "perplexity",
        hosts: &["perplexity.ai"],
        // Usage stands in every chunk.
        stream_options: false,
        // 400 "user or tool message(s) should alternate with assistant message(s)".
        order: Order::Alternating,
        tools: false,
        format: Format::Schema,
        files: Files::FileUrl,
        think: Think::Effort([None, Some("low"), Some("medium"), Some("high")]),
        replay: Replay::Never,
        ..COMMON
    },
    Facts {
        dialect: Dialect::Moonshot,
        word: "moonshot",
        hosts: &["moonshot.ai", "moonshot.cn", "kimi.com"],
        // Its own ids are `functions.NAME:N`, and the model reads them.
        ids: Ids::Printable(64),
        format: Format::Object,
        format_with_tools: true,
        think: Think::Of(moonshot_think),
        // 400 "tool_choice 'specified' is incompatible with thinking enabled".
        free_choice_when_thinking: true,
        // 400 "thinking is enabled but reasoning_content is missing in assistant tool call message".
        replay: Replay::Field("reasoning_content"),
        reasoning_required: true,
        cache: Cache::Key,
        ..COMMON
    },
    Facts {
        dialect: Dialect::Zai,
        word: "zai",
        hosts: &["z.ai", "bigmodel.cn"],
        // API reference: tool_choice is `auto`; response_format is text or json_object.
        choice: Choice::Auto,
        format: Format::Object,
        format_with_tools: true,
        // "Thinking mode": thinking.type; preserved thinking by clear_thinking: false and unmodified reasoning_content.
        think: Think::Preserved,
        replay: Replay::Field("reasoning_content"),
        hosted: Hosted::WebSearchTool,
        ..COMMON
    },
    Facts {
        dialect: Dialect::Dashscope,
        word: "dashscope",
        hosts: &["aliyuncs.com"],
        // API reference: auto, none or one function; response_format json_object with "JSON" in the prompt.
        choice: Choice::NamedOrNone,
        // 400 "tool_choice … should not be set to required or object in thinking mode".
        free_choice_when_thinking: true,
        format: Format::Object,
        think: Think::Enable,
        replay: Replay::Field("reasoning_content"),
        hosted: Hosted::EnableSearch,
        ..COMMON
    },
    Facts {
        dialect: Dialect::Minimax,
        word: "minimax",
        hosts: &["minimax.io", "minimaxi.com"],
        // Its thinking stands in the text between <think> marks, and must stay there.
        think: Think::Unasked,
        images: false,
        choice: Choice::Auto,
        ..COMMON
    },
    Facts {
        dialect: Dialect::Google,
        word: "google",
        hosts: &["generativelanguage.googleapis.com"],
        // 400 "Unknown name … Cannot find field": nothing beyond its list.
        format: Format::Schema,
        think: Think::Effort(WORDS_NONE),
        replay: Replay::Never,
        ..COMMON
    },
    Facts {
        dialect: Dialect::Github,
        word: "github",
        hosts: &[
            "models.github.ai",
            "models.inference.ai.azure.com",
            "githubcopilot.com",
        ],
        files: Files::None,
        cache: Cache::Unasked,
        hosted: Hosted::None,
        notes_anywhere: false,
        // Copilot streams reasoning_text and reasoning_opaque, and reads both again.
        replay: Replay::AsCame,
        ..OPENAI
    },
    Facts {
        dialect: Dialect::Huggingface,
        word: "huggingface",
        hosts: &["huggingface.co"],
        format: Format::Schema,
        ..COMMON
    },
    Facts {
        dialect: Dialect::Deepinfra,
        word: "deepinfra",
        hosts: &["deepinfra.com"],
        format: Format::Object,
        think: Think::Effort(WORDS_NONE),
        ..COMMON
    },
    Facts {
        dialect: Dialect::Snowflake,
        word: "snowflake",
        hosts: &["snowflakecomputing.com"],
        // Cortex REST reference: max_completion_tokens; no other limit.
        limit: Limit::MaxCompletionTokens,
        format: Format::Schema,
        think: Think::Unasked,
        ..COMMON
    },
    Facts {
        dialect: Dialect::Vllm,
        word: "vllm",
        // Ids of Kimi models are read by the model; Mistral tokenizers cut ids themselves.
        ids: Ids::Printable(64),
        // Guided decoding holds for the whole answer, calls included.
        format: Format::Schema,
        // "Reasoning outputs": chat_template_kwargs.enable_thinking (Qwen), .thinking (DeepSeek, Kimi).
        think: Think::Template,
        ..COMMON
    },
    Facts {
        dialect: Dialect::Sglang,
        word: "sglang",
        ids: Ids::Printable(64),
        format: Format::Schema,
        think: Think::Template,
        ..COMMON
    },
    Facts {
        dialect: Dialect::LlamaCpp,
        word: "llama.cpp",
        ids: Ids::Printable(64),
        // A function by name is not an error and not obeyed either.
        choice: Choice::Words,
        // 400 "Cannot use custom grammar constraints with tools."
        format: Format::Schema,
        think: Think::Template,
        // Its templates read `reasoning_content`.
        replay: Replay::Field("reasoning_content"),
        ..COMMON
    },
    Facts {
        dialect: Dialect::Ollama,
        word: "ollama",
        hosts: &["ollama.com"],
        ids: Ids::Printable(64),
        // "OpenAI compatibility", the fields it takes: stream_options, max_tokens, response_format, tools, images in
        // base64, reasoning_effort by names of the model and aliases.
        choice: Choice::Words,
        format: Format::Schema,
        think: Think::Effort(WORDS_NONE),
        // Its messages have `reasoning`, and nothing else of that kind.
        replay: Replay::Field("reasoning"),
        ..COMMON
    },
    Facts {
        dialect: Dialect::LmStudio,
        word: "lm-studio",
        // 400 "Invalid tool_choice type: 'object'".
        choice: Choice::Words,
        // 400 "'response_format.type' must be 'json_schema' or 'text'".
        format: Format::Schema,
        ..COMMON
    },
    Facts {
        dialect: Dialect::LlamaBox,
        word: "llama-box",
        choice: Choice::Words,
        replay: Replay::Field("reasoning_content"),
        ..COMMON
    },
];

fn groq_effort(model: &str) -> [Option<&'static str>; 4] {
    if model.contains("qwen") {
        let on = Some("default");
        [Some("none"), on, on, on]
    } else {
        [Some("low"), Some("low"), Some("medium"), Some("high")]
    }
}

/// Fireworks, "Reasoning": Kimi's models take three words, GLM's `none`, `high` and `max`, gpt-oss always thinks, most
/// others can be told not to.
fn fireworks_effort(model: &str) -> [Option<&'static str>; 4] {
    if model.contains("kimi") {
        WORDS
    } else if model.contains("glm") {
        [Some("none"), Some("high"), Some("high"), Some("max")]
    } else if model.contains("gpt-oss") {
        effort::words("gpt-oss")
    } else {
        WORDS_NONE
    }
}

/// Cerebras, "Reasoning": gpt-oss refuses `none` (400 "wrong_api_format"); for GLM and Qwen it turns thinking off.
fn cerebras_effort(model: &str) -> [Option<&'static str>; 4] {
    if model.contains("gpt-oss") {
        effort::words("gpt-oss")
    } else {
        WORDS_NONE
    }
}

/// Kimi: K3 always thinks and takes `reasoning_effort` of `low`, `high`, `max`; the K2.7 code models and those named for
/// thinking always think and take no word; K2.5 and K2.6 are switched by `thinking.type`.
fn moonshot_think(model: &str) -> Think {
    if model.contains("kimi-k3") {
        Think::Effort([Some("low"), Some("low"), Some("high"), Some("max")])
    } else if model.contains("k2.7-code") || model.contains("-thinking") || model.contains("-v1") {
        Think::Unasked
    } else {
        Think::Switch([None; 4])
    }
}
