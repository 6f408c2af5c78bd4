//! The vocabulary of the table of dialects: what can differ between two Chat Completions servers.

use super::Dialect;

/// What one server wants of a request. A row of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    pub dialect: Dialect,
    /// The word in configuration.
    pub word: &'static str,
    /// Domains it is recognised by, themselves and everything below them.
    pub hosts: &'static [&'static str],
    /// How the key travels.
    #[cfg_attr(
        not(feature = "client"),
        allow(dead_code, reason = "only a client sends keys")
    )]
    pub auth: Auth,
    /// The field that limits the output.
    pub limit: Limit,
    /// Takes `stream_options.include_usage`; others report usage unasked.
    pub stream_options: bool,
    /// Privileged messages may stand in mid-conversation.
    pub notes_anywhere: bool,
    /// Rules on the order of roles.
    pub order: Order,
    /// Knows tools at all.
    pub tools: bool,
    /// The most tools it takes.
    pub max_tools: usize,
    /// Which choices of tools it takes.
    pub choice: Choice,
    /// While the model thinks, it cannot be made to call a tool.
    pub free_choice_when_thinking: bool,
    /// Which tool call ids it takes.
    pub ids: Ids,
    /// How an answer's form is asked for.
    pub format: Format,
    /// A form may be asked for together with tools.
    pub format_with_tools: bool,
    /// Takes images as data URLs.
    pub images: bool,
    /// How documents are given.
    pub files: Files,
    /// How thinking is asked for.
    pub think: Think,
    /// How reasoning goes back.
    pub replay: Replay,
    /// With tools, an assistant message without reasoning is refused.
    pub reasoning_required: bool,
    /// How the prompt cache is steered.
    pub cache: Cache,
    /// Tools of its own.
    pub hosted: Hosted,
}

/// How the key travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Auth {
    /// `Authorization: Bearer`.
    Bearer,
    /// `api-key`.
    ApiKey,
}

/// The field that limits the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// `max_tokens`
    MaxTokens,
    /// `max_completion_tokens`
    MaxCompletionTokens,
}

/// Rules on the order of roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// None beyond calls and their results.
    Free,
    /// Only the model may speak after tool results; the user speaks first.
    Bridged,
    /// User and assistant alternate, the user first and last.
    Alternating,
}

/// Which `tool_choice` it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// `auto`, `none`, `required`, or one function by name.
    Named,
    /// `auto`, `none`, `any`, or one function by name.
    NamedAny,
    /// `auto`, `none`, `required`.
    Words,
    /// `auto`, `none`, or one function by name.
    NamedOrNone,
    /// Only `auto`.
    Auto,
}

/// Which tool call ids it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ids {
    /// Letters, digits, `_`, `-`; at most so many.
    Words(usize),
    /// Anything printable without spaces; at most so many. The model reads its own ids again.
    Printable(usize),
    /// Exactly nine letters or digits.
    Nine,
}

/// How an answer's form is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// `response_format` of type `json_schema`.
    Schema,
    /// `response_format` of type `json_object`, the schema in words.
    Object,
    /// In words alone.
    Words,
}

/// How documents are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Files {
    /// A `file` part with `filename` and `file_data` as a data URL.
    File,
    /// A `document_url` part with a data URL.
    DocumentUrl,
    /// A `file_url` part with bare base64.
    FileUrl,
    /// Not at all: words say that there was one.
    None,
}

/// How thinking is asked for. The words stand for off, low, medium, high; none leaves the field out.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Think {
    /// `reasoning_effort`
    Effort([Option<&'static str>; 4]),
    /// `reasoning_effort` where the words depend on the model.
    EffortOf(fn(&str) -> [Option<&'static str>; 4]),
    /// `reasoning: {effort}`
    Reasoning([Option<&'static str>; 4]),
    /// `reasoning_effort`, and `reasoning: {enabled: false}` for off.
    EffortOrDisabled([Option<&'static str>; 4]),
    /// `thinking: {type: enabled | disabled}`, beside it `reasoning_effort`.
    Switch([Option<&'static str>; 4]),
    /// As `Switch` without words, with `clear_thinking: false` so that earlier thinking is read again.
    Preserved,
    /// `enable_thinking`
    Enable,
    /// `chat_template_kwargs: {enable_thinking, thinking}`, beside it `reasoning_effort`.
    Template,
    /// As the model wants it, where a server's models differ.
    Of(fn(&str) -> Think),
    /// Not at all.
    Unasked,
}

/// How reasoning goes back to the model that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replay {
    /// In the field it came in.
    AsCame,
    /// In this field, whichever it came in.
    Field(&'static str),
    /// `reasoning_details` as they came; plain text in `reasoning`.
    Details,
    /// As `thinking` parts of the content.
    Chunks,
    /// Not at all.
    Never,
}

/// How the prompt cache is steered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cache {
    /// By itself.
    Unasked,
    /// `prompt_cache_key`
    Key,
    /// `cache_control` marks on content parts, for models that want them.
    Marks,
}

/// Tools the server runs itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hosted {
    /// None that can be asked for here.
    None,
    /// `web_search_options`, for its search models.
    SearchOptions,
    /// A tool of type `openrouter:web_search`.
    ServerTool,
    /// `compound_custom` for its compound models, `browser_search` and `code_interpreter` for others.
    Compound,
    /// `enable_search`
    EnableSearch,
    /// A tool of type `web_search`.
    WebSearchTool,
}
