//! AWS Bedrock Converse: one body for many makers' models, alternating roles, cache points, signed reasoning.

mod blocks;
mod model;

use super::CacheTime;
use super::answer;
use super::anthropic::Thinking;
use super::media::{self, Shown};
use super::shape::{self, Json, Said, Turn, json, legal_id, visible};
use blocks::{Block, Replay, assistant, plain};
use model::Model;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use tenure_core::request::{AssistantBlock, Media, Request, ToolChoice, ToolResult};

/// The longest id of a call.
const ID_LIMIT: usize = 64;

/// Most documents of a request.
const DOCUMENTS: usize = 5;

/// What Converse takes of pictures (3.75 MB) and documents (4.5 MB).
const MEDIA: media::Limits = media::Limits {
    types: media::TYPES,
    image: 5 * 1024 * 1024,
    document: 6 * 1024 * 1024,
    side: 8000,
    side_of_many: 8000,
    many: 20,
    images: 20,
    sum: 20 * 1024 * 1024,
};

/// What stands for a turn that only keeps the roles in alternation.
const GO_ON: &str = "Continue.";
const NOTED: &str = "Noted.";

/// What Converse has no field for.
const NO_CALLS: &str = "Do not call any tool now. Answer with what you know so far.";

/// The conversation comes last: what is before it stays the same from step to step.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    additional_model_request_fields: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inference_config: Option<InferenceConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_config: Option<ToolConfig<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Json>,
    messages: Vec<Message>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InferenceConfig {
    max_tokens: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolConfig<'a> {
    tools: Vec<Offered<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Choice<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Offered<'a> {
    #[serde(rename_all = "camelCase")]
    ToolSpec {
        name: std::borrow::Cow<'a, str>,
        description: &'a str,
        input_schema: InputSchema,
    },
    SystemTool {
        name: &'static str,
    },
    CachePoint(CachePoint),
}

#[derive(Serialize)]
struct InputSchema {
    json: Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Choice<'a> {
    Any {},
    Tool { name: std::borrow::Cow<'a, str> },
}

#[derive(Serialize, Clone, Copy)]
struct CachePoint {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<&'static str>,
}

#[derive(Serialize)]
struct Message {
    role: &'static str,
    content: Vec<Json>,
}

#[derive(Serialize)]
struct Text<'a> {
    text: &'a str,
}

/// A block of a user message.
enum UserBlock<'a> {
    Result { id: String, result: &'a ToolResult },
    Text(String),
    Image(&'a Media),
    Document(&'a Media),
}

/// A message under construction.
enum Draft<'a> {
    User(Vec<UserBlock<'a>>),
    Assistant(Vec<Block>),
}

/// The body; `None` when no message is left.
pub(super) fn encode(request: &Request, output: Option<u64>, cache: CacheTime) -> Option<Vec<u8>> {
    let model = Model::of(&request.model.model);
    let limit = output.map(|output| output.max(1));
    let assumed = limit.unwrap_or_else(|| model.claude.default_output(request.effort));
    let mut thinking = model
        .is_claude()
        .then(|| model.claude.thinking(request.effort, assumed))
        .flatten();
    let turns = shape::turns(request);
    let replay = Replay {
        model: &model,
        no_thinking: matches!(thinking, Some(Thinking::Disabled | Thinking::BetweenTools)),
        hosted: request
            .hosted_tools
            .iter()
            .any(|tool| model.system_tool(*tool).is_some()),
    };
    let drafts = drafts(request, &turns, &replay)?;
    if matches!(thinking, Some(Thinking::Enabled { .. })) && loop_without_thinking(&drafts) {
        // The turn under way began without thinking; it cannot be added in its middle.
        thinking = None;
    }
    let point = model.caches().then(|| CachePoint {
        r#type: "default",
        ttl: (cache == CacheTime::Hour && model.caches_long()).then_some("1h"),
    });
    let (tools, offered) = tools(request, &turns, &model, point);
    let may_force =
        model.may_force() && (!model.is_claude() || model.claude.may_force(thinking.as_ref()));
    let words = in_words(request, &model, offered);
    // A budget has to be smaller than the limit, so the limit is said.
    let budgeted = matches!(thinking, Some(Thinking::Enabled { .. })).then_some(assumed);
    let body = Body {
        inference_config: limit
            .or(budgeted)
            .filter(|_| model.takes_limit(request.effort))
            .map(|max_tokens| InferenceConfig { max_tokens }),
        output_config: output_config(request, &model),
        tool_config: (!tools.is_empty()).then(|| ToolConfig {
            tool_choice: may_force
                .then(|| choice(&request.tool_choice, offered, &tools))
                .flatten(),
            tools,
        }),
        system: system(request, &model, point),
        messages: messages(drafts, request, &model, point, words),
        additional_model_request_fields: model.additional(
            request.effort,
            thinking.and_then(|thinking| serde_json::to_value(thinking).ok()),
        ),
    };
    serde_json::to_vec(&body).ok()
}

/// The conversation as drafts; `None` when none is left.
fn drafts<'a>(
    request: &'a Request,
    turns: &[Turn<'a>],
    replay: &Replay<'_>,
) -> Option<Vec<Draft<'a>>> {
    let shown = Shown::of(request, &MEDIA);
    let documents = newest_documents(turns, &shown, replay.model);
    let mut ids = HashMap::new();
    let mut drafts: Vec<Draft<'a>> = Vec::new();
    for turn in turns {
        match turn {
            Turn::Assistant(blocks) => {
                let content = assistant(blocks, replay, &mut ids);
                if content.is_empty() {
                    continue;
                }
                if drafts.is_empty() {
                    user(&mut drafts, [UserBlock::Text(GO_ON.to_owned())]);
                }
                match drafts.last_mut() {
                    Some(Draft::Assistant(before)) => before.extend(content),
                    _ => drafts.push(Draft::Assistant(content)),
                }
            }
            Turn::User(said) => {
                let blocks = said
                    .iter()
                    .flat_map(|said| said_blocks(said, &shown, &documents, replay.model));
                user(&mut drafts, blocks);
            }
            Turn::Results(results) => user(
                &mut drafts,
                results.iter().map(|result| UserBlock::Result {
                    id: ids
                        .get(result.id.as_str())
                        .cloned()
                        .unwrap_or_else(|| legal_id(&result.id, ID_LIMIT).into_owned()),
                    result,
                }),
            ),
        }
    }
    if matches!(drafts.last(), Some(Draft::Assistant(_))) {
        user(&mut drafts, [UserBlock::Text(GO_ON.to_owned())]);
    }
    (!drafts.is_empty()).then_some(drafts)
}

fn user<'a>(drafts: &mut Vec<Draft<'a>>, blocks: impl IntoIterator<Item = UserBlock<'a>>) {
    match drafts.last_mut() {
        Some(Draft::User(before)) => before.extend(blocks),
        _ => drafts.push(Draft::User(blocks.into_iter().collect())),
    }
}

/// The documents that are shown: the newest, as many as a request may hold.
fn newest_documents(turns: &[Turn<'_>], shown: &Shown, model: &Model) -> HashSet<*const Media> {
    let mut all: Vec<*const Media> = Vec::new();
    for turn in turns {
        let Turn::User(said) = turn else { continue };
        all.extend(said.iter().filter_map(|said| match said {
            Said::Media(one)
                if media::kind(one) == Some(media::Kind::Pdf) && shown.stand_in(one).is_none() =>
            {
                Some(std::ptr::from_ref::<Media>(one))
            }
            _ => None,
        }));
    }
    if !model.reads_documents() {
        return HashSet::new();
    }
    let from = all.len().saturating_sub(DOCUMENTS);
    all.drain(..from);
    all.into_iter().collect()
}

fn said_blocks<'a>(
    said: &Said<'a>,
    shown: &Shown,
    documents: &HashSet<*const Media>,
    model: &Model,
) -> Vec<UserBlock<'a>> {
    match said {
        Said::User(text) => vec![UserBlock::Text((*text).to_owned())],
        Said::System(text) => vec![UserBlock::Text(shape::note(text))],
        Said::Media(one) => {
            let one: &'a Media = one;
            if let Some(words) = shown.stand_in(one) {
                return vec![UserBlock::Text(words)];
            }
            match media::kind(one) {
                // A picture has no name of its own; a prompt may speak of it by that.
                Some(media::Kind::Image) if model.sees() => vec![
                    UserBlock::Text(format!("{}:", one.name)),
                    UserBlock::Image(one),
                ],
                Some(media::Kind::Pdf) if documents.contains(&std::ptr::from_ref(one)) => vec![
                    UserBlock::Text(format!("{}:", one.name)),
                    UserBlock::Document(one),
                ],
                _ => vec![UserBlock::Text(shape::media_as_text(one))],
            }
        }
    }
}

/// Is the tool loop under way one whose first assistant message does not begin with thinking? Those behind it need
/// not: many models think once in a loop.
fn loop_without_thinking(drafts: &[Draft<'_>]) -> bool {
    let mut first = None;
    let mut rest = drafts;
    while let [before @ .., Draft::Assistant(content), Draft::User(answers)] = rest
        && answers
            .iter()
            .all(|block| matches!(block, UserBlock::Result { .. }))
    {
        first = Some(content);
        rest = before;
    }
    first.is_some_and(|content| !matches!(content.first(), Some(Block::Thought(_))))
}

/// The definitions, and whether they are this request's own. A history with calls needs definitions even
/// when this request offers none (a summary).
fn tools<'a>(
    request: &'a Request,
    turns: &[Turn<'a>],
    model: &Model,
    point: Option<CachePoint>,
) -> (Vec<Offered<'a>>, bool) {
    let spec = |name: &'a str, description: &'a str, json: Value| Offered::ToolSpec {
        name: legal_id(name, ID_LIMIT),
        description,
        input_schema: InputSchema { json },
    };
    let mut tools: Vec<Offered<'a>> = request
        .tools
        .iter()
        .map(|tool| {
            let described = if visible(&tool.description) {
                &tool.description
            } else {
                &tool.name
            };
            spec(&tool.name, described, shape::schema(tool))
        })
        .collect();
    tools.extend(
        request
            .hosted_tools
            .iter()
            .filter_map(|tool| model.system_tool(*tool))
            .map(|name| Offered::SystemTool { name }),
    );
    let offered = !tools.is_empty();
    if !offered {
        let mut names = BTreeSet::new();
        for turn in turns {
            if let Turn::Assistant(blocks) = turn {
                names.extend(blocks.iter().filter_map(|block| match block {
                    AssistantBlock::ToolCall { name, .. } => Some(name.as_str()),
                    _ => None,
                }));
            }
        }
        tools.extend(names.into_iter().map(|name| {
            let schema = serde_json::json!({"type": "object", "properties": {}});
            spec(name, "Was available earlier in this conversation.", schema)
        }));
    }
    if !tools.is_empty() && model.caches_tools() {
        tools.extend(point.map(Offered::CachePoint));
    }
    (tools, offered)
}

fn choice<'a>(wanted: &'a ToolChoice, offered: bool, tools: &[Offered<'_>]) -> Option<Choice<'a>> {
    match wanted {
        ToolChoice::Required if offered => Some(Choice::Any {}),
        ToolChoice::Tool(name) if offered => {
            let name = legal_id(name, ID_LIMIT);
            tools
                .iter()
                .any(|tool| matches!(tool, Offered::ToolSpec { name: have, .. } if *have == name))
                .then_some(Choice::Tool { name })
        }
        _ => None,
    }
}

/// What goes behind the last message because no field says it.
fn in_words(request: &Request, model: &Model, offered: bool) -> Option<String> {
    let forbidden = !offered || request.tool_choice == ToolChoice::None;
    let calls = forbidden
        && (offered
            || request.messages.iter().any(|message| {
                matches!(
                    message,
                    tenure_core::request::RequestMessage::ToolResults { .. }
                )
            }));
    let schema = request
        .output_schema
        .as_ref()
        .filter(|_| !model.takes_schema())
        .map(answer::in_words);
    match (calls, schema) {
        (false, None) => None,
        (true, None) => Some(shape::note(NO_CALLS)),
        (false, Some(words)) => Some(shape::note(&words)),
        (true, Some(words)) => Some(shape::note(&format!("{NO_CALLS}\n{words}"))),
    }
}

fn output_config(request: &Request, model: &Model) -> Option<Value> {
    let schema = request
        .output_schema
        .as_ref()
        .filter(|_| model.takes_schema())?;
    Some(serde_json::json!({"textFormat": {
        "type": "json_schema",
        "structure": {"jsonSchema": {
            "name": answer::name(schema),
            "schema": answer::closed(schema).to_string(),
        }},
    }}))
}

fn mark(point: CachePoint) -> Json {
    json(&BTreeMap::from([("cachePoint", point)]))
}

fn system(request: &Request, model: &Model, point: Option<CachePoint>) -> Vec<Json> {
    if !model.takes_system() {
        return Vec::new();
    }
    let mut system: Vec<Json> = request
        .system
        .iter()
        .filter_map(|part| plain(part))
        .collect();
    if !system.is_empty() {
        system.extend(point.map(mark));
    }
    system
}

/// Writes the messages, with a cache point at the end of the last two messages of the user: the older one is
/// where the request before this one ended.
fn messages(
    mut drafts: Vec<Draft<'_>>,
    request: &Request,
    model: &Model,
    point: Option<CachePoint>,
    words: Option<String>,
) -> Vec<Message> {
    if !model.takes_system()
        && let Some(Draft::User(first)) = drafts.first_mut()
    {
        let parts = request.system.iter().filter(|part| visible(part));
        first.splice(0..0, parts.map(|part| UserBlock::Text(shape::note(part))));
    }
    let users: Vec<usize> = (0..drafts.len())
        .filter(|at| matches!(drafts[*at], Draft::User(_)))
        .collect();
    let marks: Vec<usize> = users[users.len().saturating_sub(2)..].to_vec();
    let mut names = HashSet::new();
    let mut messages = Vec::new();
    for (at, draft) in drafts.into_iter().enumerate() {
        match draft {
            Draft::Assistant(blocks) => said_by_model(blocks, model, &mut messages),
            Draft::User(blocks) => {
                let point = point.filter(|_| marks.contains(&at));
                said_by_user(blocks, model, point, &mut names, &mut messages);
            }
        }
    }
    if let (Some(words), Some(last)) = (words.as_deref().and_then(plain), messages.last_mut()) {
        // Behind the cache point: the next request does not repeat it.
        if last.role == "user" && (model.mixes() || !holds_result(last)) {
            last.content.push(words);
        } else {
            messages.push(message("assistant", json(&Text { text: NOTED })));
            messages.push(message("user", words));
        }
    }
    messages
}

fn holds_result(message: &Message) -> bool {
    message
        .content
        .iter()
        .any(|block| block.get().starts_with("{\"toolResult\""))
}

fn message(role: &'static str, block: Json) -> Message {
    Message {
        role,
        content: vec![block],
    }
}

fn said_by_model(blocks: Vec<Block>, model: &Model, messages: &mut Vec<Message>) {
    let (mut said, mut calls): (Vec<Block>, Vec<Block>) = (blocks, Vec::new());
    if !model.mixes() {
        (calls, said) = said
            .into_iter()
            .partition(|block| matches!(block, Block::Call(_)));
        // Without the calls behind it, reasoning would be the last of its message.
        while matches!(said.last(), Some(Block::Thought(_))) {
            said.pop();
        }
    }
    let both = !said.is_empty() && !calls.is_empty();
    for (part, content) in [said, calls].into_iter().enumerate() {
        if both && part == 1 {
            messages.push(message("user", json(&Text { text: GO_ON })));
        }
        if !content.is_empty() {
            messages.push(Message {
                role: "assistant",
                content: content.into_iter().map(Block::into_json).collect(),
            });
        }
    }
}

fn said_by_user(
    mut blocks: Vec<UserBlock<'_>>,
    model: &Model,
    point: Option<CachePoint>,
    names: &mut HashSet<String>,
    messages: &mut Vec<Message>,
) {
    // Results come first. Stable: a turn that the user goes on with keeps the bytes it had.
    blocks.sort_by_key(|block| !matches!(block, UserBlock::Result { .. }));
    // No cache point may follow a document directly.
    let point = point.filter(|_| !matches!(blocks.last(), Some(UserBlock::Document(_))));
    let results = blocks
        .iter()
        .take_while(|block| matches!(block, UserBlock::Result { .. }))
        .count();
    let apart = !model.mixes() && results > 0 && results < blocks.len();
    let mut content: Vec<Json> = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        if apart && at == results {
            messages.push(Message {
                role: "user",
                content: std::mem::take(&mut content),
            });
            messages.push(message("assistant", json(&Text { text: NOTED })));
        }
        content.extend(user_block(block, model, names));
    }
    content.extend(point.map(mark));
    messages.push(Message {
        role: "user",
        content,
    });
}

fn user_block(block: &UserBlock<'_>, model: &Model, names: &mut HashSet<String>) -> Option<Json> {
    match block {
        UserBlock::Text(text) => plain(text),
        UserBlock::Result { id, result } => {
            let text = if visible(&result.text) {
                result.text.as_str()
            } else {
                "(no output)"
            };
            Some(tool_result(id, text, result.is_error, model))
        }
        UserBlock::Image(one) => {
            let format = one.media_type.rsplit('/').next().unwrap_or("png");
            Some(json(&serde_json::json!({"image": {
                "format": format, "source": {"bytes": &*one.data},
            }})))
        }
        UserBlock::Document(one) => Some(json(&serde_json::json!({"document": {
            "format": "pdf",
            "name": document_name(&one.name, names),
            "source": {"bytes": &*one.data},
        }}))),
    }
}

fn tool_result(id: &str, text: &str, is_error: bool, model: &Model) -> Json {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Block<'a> {
        tool_result: Result<'a>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Result<'a> {
        tool_use_id: &'a str,
        content: [Text<'a>; 1],
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<&'static str>,
    }
    json(&Block {
        tool_result: Result {
            tool_use_id: id,
            content: [Text { text }],
            status: (is_error && model.takes_status()).then_some("error"),
        },
    })
}

/// A name as Converse takes it: letters, digits, single spaces, hyphens, brackets; each only once. Neutral
/// characters stand for all others.
fn document_name(name: &str, taken: &mut HashSet<String>) -> String {
    let mut clean = String::new();
    for c in name.chars().take(120) {
        let legal = c.is_ascii_alphanumeric() || "-()[]".contains(c);
        if legal {
            clean.push(c);
        } else if c.is_whitespace() {
            if !clean.ends_with(' ') {
                clean.push(' ');
            }
        } else {
            clean.push('-');
        }
    }
    let clean = clean.trim();
    let clean = if clean.is_empty() { "document" } else { clean };
    let mut unique = clean.to_owned();
    let mut n = 1;
    while !taken.insert(unique.clone()) {
        n += 1;
        unique = format!("{clean} ({n})");
    }
    unique
}
