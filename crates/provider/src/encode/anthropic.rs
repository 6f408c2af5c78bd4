//! Anthropic Messages: alternating roles, results first, cache marks, signed thinking as it was.

mod blocks;
mod model;

use super::CacheTime;
use super::answer;
use super::media::{self, Shown};
use super::shape::{self, Json, Said, Turn, json, legal_id, visible};
use blocks::{ID_LIMIT, Replay, assistant, container, is_paused};
pub(super) use model::{Generation, Thinking};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use tenure_core::request::{AssistantBlock, HostedTool, Media, Request, ToolChoice, ToolResult};

/// What the vendor's own endpoint takes of pictures and documents. "Vision": 8000 pixels on a side, 2000 with more than
/// 20 images, 100 images (600 where the window is larger than 200,000 tokens), 5 MiB of base64 an image; 32 MB a
/// request, of which the rest is for words.
const MEDIA: media::Limits = media::Limits {
    types: media::TYPES,
    image: 5 * 1024 * 1024,
    document: 24 * 1024 * 1024,
    side: 8000,
    side_of_many: 2000,
    many: 20,
    images: 100,
    sum: 24 * 1024 * 1024,
};

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u64,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Choice<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Text<'a>>,
    messages: Vec<Message>,
}

#[derive(Serialize)]
struct OutputConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<Format>,
}

#[derive(Serialize)]
struct Format {
    r#type: &'static str,
    schema: Value,
}

#[derive(Serialize)]
struct Choice<'a> {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
}

/// A cache mark: what is before it may be read from the cache next time.
#[derive(Serialize, Clone, Copy)]
struct Mark {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<&'static str>,
}

impl Mark {
    fn new(time: CacheTime) -> Option<Self> {
        Some(Self {
            r#type: "ephemeral",
            ttl: match time {
                CacheTime::Usual => None,
                CacheTime::Hour => Some("1h"),
            },
        })
    }
}

#[derive(Serialize)]
struct Tool<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'static str>,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_schema: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Mark>,
}

#[derive(Serialize)]
struct Message {
    role: &'static str,
    content: Vec<Json>,
}

#[derive(Serialize)]
struct Text<'a> {
    r#type: &'static str,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Mark>,
}

impl<'a> Text<'a> {
    fn plain(text: &'a str) -> Self {
        Self {
            r#type: "text",
            text,
            cache_control: None,
        }
    }
}

#[derive(Serialize)]
struct Result<'a> {
    r#type: &'static str,
    tool_use_id: &'a str,
    content: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_error: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Mark>,
}

#[derive(Serialize)]
struct Attached<'a> {
    r#type: &'static str,
    source: Source<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Mark>,
}

#[derive(Serialize)]
struct Source<'a> {
    r#type: &'static str,
    media_type: &'a str,
    data: &'a str,
}

/// A block of a user message, before it is known whether it carries a cache mark.
enum UserBlock<'a> {
    Result { id: String, result: &'a ToolResult },
    Text(String),
    Media(media::Kind, &'a Media),
}

/// A message under construction: the user's blocks, or what the model said.
enum Draft<'a> {
    User(Vec<UserBlock<'a>>),
    Assistant(Vec<Json>),
}

/// Header values that a request to `model` needs.
#[cfg_attr(
    not(feature = "client"),
    allow(dead_code, reason = "the client sends headers")
)]
pub(crate) fn betas(model: &str) -> Option<&'static str> {
    Generation::of(model).betas()
}

/// The body; `None` when no message is left.
pub(super) fn encode(request: &Request, output: Option<u64>, cache: CacheTime) -> Option<Vec<u8>> {
    let generation = Generation::of(&request.model.model);
    let max_tokens = output
        .unwrap_or_else(|| generation.default_output(request.effort))
        .max(1);
    let mut thinking = generation.thinking(request.effort, max_tokens);
    let turns = shape::turns(request);
    let replay = match thinking {
        Some(Thinking::Disabled | Thinking::BetweenTools) => Replay::Nothing,
        _ if generation.omits_thinking() => Replay::Sealed,
        _ => Replay::Whole,
    };
    let drafts = drafts(request, &turns, &generation, replay)?;
    if matches!(thinking, Some(Thinking::Enabled { .. })) && loop_without_thinking(&drafts) {
        // The turn under way began without thinking; it cannot be added in its middle.
        thinking = None;
    }
    let (tools, offered) = tools(request, cache);
    let tool_choice = (!tools.is_empty()).then(|| {
        let may_force = generation.may_force(thinking.as_ref());
        choice(&request.tool_choice, offered, may_force, &tools)
    });
    let body = Body {
        model: &request.model.model,
        max_tokens,
        stream: true,
        output_config: output_config(request, &generation),
        container: container_of(request, &turns),
        tool_choice: tool_choice.map(|(r#type, name)| Choice { r#type, name }),
        tools,
        system: system(&request.system, cache),
        messages: marked(drafts, cache),
        thinking,
    };
    let mut body = body;
    let words;
    if let Some(schema) = request
        .output_schema
        .as_ref()
        .filter(|_| !generation.takes_schema())
    {
        words = answer::in_words(schema);
        if let Some(last) = body.system.last_mut() {
            last.cache_control = None;
        }
        body.system.push(Text {
            cache_control: Mark::new(cache),
            ..Text::plain(&words)
        });
    }
    serde_json::to_vec(&body).ok()
}

fn output_config(request: &Request, generation: &Generation) -> Option<OutputConfig> {
    let config = OutputConfig {
        effort: generation.effort(request.effort),
        format: request
            .output_schema
            .as_ref()
            .filter(|_| generation.takes_schema())
            .map(|schema| Format {
                r#type: "json_schema",
                schema: answer::closed(schema),
            }),
    };
    (config.effort.is_some() || config.format.is_some()).then_some(config)
}

/// The conversation as messages; `None` when none is left.
fn drafts<'a>(
    request: &'a Request,
    turns: &[Turn<'a>],
    generation: &Generation,
    replay: Replay,
) -> Option<Vec<Draft<'a>>> {
    let shown = Shown::of(request, &MEDIA);
    let mut ids = HashMap::new();
    let mut drafts: Vec<Draft<'a>> = Vec::new();
    for (at, turn) in turns.iter().enumerate() {
        match turn {
            Turn::Assistant(blocks) => {
                let content = assistant(blocks, at + 1 == turns.len(), replay, &mut ids);
                if content.is_empty() {
                    continue;
                }
                if drafts.is_empty() {
                    user(&mut drafts, [go_on()]);
                }
                match drafts.last_mut() {
                    Some(Draft::Assistant(before)) => before.extend(content),
                    _ => drafts.push(Draft::Assistant(content)),
                }
            }
            Turn::User(said) => {
                let blocks = said
                    .iter()
                    .flat_map(|said| said_blocks(said, &shown, generation));
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
    // A paused turn is continued by sending it back as it is; anything else must end with the user.
    let paused = matches!(turns.last(), Some(Turn::Assistant(blocks)) if is_paused(blocks));
    if matches!(drafts.last(), Some(Draft::Assistant(_))) && !paused {
        user(&mut drafts, [go_on()]);
    }
    (!drafts.is_empty()).then_some(drafts)
}

fn go_on<'a>() -> UserBlock<'a> {
    UserBlock::Text("Continue.".to_owned())
}

fn said_blocks<'a>(said: &Said<'a>, shown: &Shown, generation: &Generation) -> Vec<UserBlock<'a>> {
    match said {
        Said::User(text) => vec![UserBlock::Text((*text).to_owned())],
        Said::System(text) => vec![UserBlock::Text(shape::note(text))],
        Said::Media(one) => {
            let stand_in = shown.stand_in(one);
            match (stand_in, media::kind(one)) {
                (Some(words), _) => vec![UserBlock::Text(words)],
                (None, Some(media::Kind::Image)) => vec![
                    // A picture has no name of its own; a prompt may speak of it by that.
                    UserBlock::Text(format!("{}:", one.name)),
                    UserBlock::Media(media::Kind::Image, one),
                ],
                (None, Some(media::Kind::Pdf)) if generation.reads_documents() => {
                    vec![UserBlock::Media(media::Kind::Pdf, one)]
                }
                (None, _) => vec![UserBlock::Text(shape::media_as_text(one))],
            }
        }
    }
}

fn user<'a>(drafts: &mut Vec<Draft<'a>>, blocks: impl IntoIterator<Item = UserBlock<'a>>) {
    match drafts.last_mut() {
        Some(Draft::User(before)) => before.extend(blocks),
        _ => drafts.push(Draft::User(blocks.into_iter().collect())),
    }
}

/// Is the tool loop under way one whose first assistant message does not begin with thinking? Another model made
/// it, or its thinking was never signed. The messages behind the first need not begin so: many models think once in
/// a loop, and thinking that came and went within it would cost the cache.
fn loop_without_thinking(drafts: &[Draft<'_>]) -> bool {
    #[derive(Deserialize)]
    struct Kind {
        #[serde(default)]
        r#type: String,
    }
    let kind = |json: &Json| {
        serde_json::from_str::<Kind>(json.get())
            .map(|kind| kind.r#type)
            .unwrap_or_default()
    };
    let answers = |blocks: &[UserBlock<'_>]| {
        let result = |block: &UserBlock<'_>| matches!(block, UserBlock::Result { .. });
        blocks.iter().any(result)
    };
    let mut first = None;
    let mut rest = drafts;
    while let [before @ .., Draft::Assistant(content), Draft::User(blocks)] = rest
        && answers(blocks)
    {
        first = Some(content);
        rest = before;
    }
    first.is_some_and(|content| {
        let first = content.first().map(kind).unwrap_or_default();
        first != "thinking" && first != "redacted_thinking"
    })
}

/// Which calls are allowed, in the vendor's words.
fn choice<'a>(
    wanted: &'a ToolChoice,
    offered: bool,
    may_force: bool,
    tools: &[Tool<'_>],
) -> (&'static str, Option<&'a str>) {
    match wanted {
        _ if !offered => ("none", None),
        ToolChoice::None => ("none", None),
        ToolChoice::Required if may_force => ("any", None),
        ToolChoice::Tool(name) if may_force && tools.iter().any(|tool| tool.name == name) => {
            ("tool", Some(name))
        }
        ToolChoice::Auto | ToolChoice::Required | ToolChoice::Tool(_) => ("auto", None),
    }
}

/// The definitions, and whether any is offered. A history with calls needs them even when this request
/// offers none (a summary).
fn tools(request: &Request, cache: CacheTime) -> (Vec<Tool<'_>>, bool) {
    let mut tools: Vec<Tool<'_>> = request
        .tools
        .iter()
        .map(|tool| Tool {
            r#type: None,
            name: &tool.name,
            description: Some(&tool.description),
            input_schema: Some(shape::schema(tool)),
            cache_control: None,
        })
        .collect();
    tools.extend(hosted(request));
    let offered = !tools.is_empty();
    if request.tools.is_empty() {
        let mut names = BTreeSet::new();
        for turn in shape::turns(request) {
            if let Turn::Assistant(blocks) = turn {
                names.extend(blocks.into_iter().filter_map(|block| match block {
                    AssistantBlock::ToolCall { name, .. } => Some(name.as_str()),
                    _ => None,
                }));
            }
        }
        names.retain(|name| !tools.iter().any(|tool| tool.name == *name));
        let empty = || serde_json::json!({"type": "object", "properties": {}});
        tools.extend(names.into_iter().map(|name| Tool {
            r#type: None,
            name,
            description: Some("Was available earlier in this conversation."),
            input_schema: Some(empty()),
            cache_control: None,
        }));
    }
    if let Some(last) = tools.last_mut() {
        last.cache_control = Mark::new(cache);
    }
    (tools, offered)
}

/// Tools the vendor runs, in the versions that every model which has them takes. A local tool of the same
/// name wins: names are unique.
fn hosted(request: &Request) -> impl Iterator<Item = Tool<'_>> {
    request
        .hosted_tools
        .iter()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|tool| match tool {
            HostedTool::WebSearch => ("web_search_20250305", "web_search"),
            HostedTool::CodeExecution => ("code_execution_20250825", "code_execution"),
        })
        .filter(|(_, name)| !request.tools.iter().any(|tool| tool.name == *name))
        .map(|(r#type, name)| Tool {
            r#type: Some(r#type),
            name,
            description: None,
            input_schema: None,
            cache_control: None,
        })
}

/// The sandbox of the turn under way. An older turn's is not asked for again: it is gone after a while, and
/// a request that names it would be refused.
fn container_of(request: &Request, turns: &[Turn<'_>]) -> Option<String> {
    request
        .hosted_tools
        .iter()
        .find(|tool| **tool == HostedTool::CodeExecution)?;
    let under_way = turns.iter().rev().take_while(|turn| match turn {
        Turn::User(said) => said.iter().all(|said| matches!(said, Said::System(_))),
        Turn::Assistant(_) | Turn::Results(_) => true,
    });
    under_way
        .filter_map(|turn| match turn {
            Turn::Assistant(blocks) => Some(blocks),
            _ => None,
        })
        .flat_map(|blocks| blocks.iter().rev())
        .find_map(|block| match block {
            AssistantBlock::Opaque { native } => container(native).filter(|id| !id.is_empty()),
            _ => None,
        })
}

fn system(parts: &[String], cache: CacheTime) -> Vec<Text<'_>> {
    let mut system: Vec<Text<'_>> = parts
        .iter()
        .filter(|part| visible(part))
        .map(|part| Text::plain(part))
        .collect();
    if let Some(last) = system.last_mut() {
        last.cache_control = Mark::new(cache);
    }
    system
}

/// Writes the messages, with a cache mark at the end of the last two user messages: the older one is where
/// the request before this one ended.
fn marked(drafts: Vec<Draft<'_>>, cache: CacheTime) -> Vec<Message> {
    let users: Vec<usize> = drafts
        .iter()
        .enumerate()
        .filter(|(_, draft)| matches!(draft, Draft::User(_)))
        .map(|(at, _)| at)
        .collect();
    let marks = users[users.len().saturating_sub(2)..].to_vec();
    drafts
        .into_iter()
        .enumerate()
        .map(|(at, draft)| match draft {
            Draft::Assistant(content) => Message {
                role: "assistant",
                content,
            },
            Draft::User(mut blocks) => {
                // Stable: results keep their order and come first.
                blocks.sort_by_key(|block| !matches!(block, UserBlock::Result { .. }));
                let last = blocks.len().wrapping_sub(1);
                let mark = |n: usize| {
                    (n == last && marks.contains(&at))
                        .then(|| Mark::new(cache))
                        .flatten()
                };
                let content = blocks
                    .iter()
                    .enumerate()
                    .map(|(n, block)| user_block(block, mark(n)))
                    .collect();
                Message {
                    role: "user",
                    content,
                }
            }
        })
        .collect()
}

fn user_block(block: &UserBlock<'_>, cache_control: Option<Mark>) -> Json {
    match block {
        UserBlock::Text(text) => json(&Text {
            cache_control,
            ..Text::plain(text)
        }),
        UserBlock::Media(kind, media) => json(&Attached {
            r#type: match kind {
                media::Kind::Image => "image",
                media::Kind::Pdf => "document",
            },
            source: Source {
                r#type: "base64",
                media_type: &media.media_type,
                data: &media.data,
            },
            title: (*kind == media::Kind::Pdf && visible(&media.name)).then_some(&media.name),
            cache_control,
        }),
        UserBlock::Result { id, result } => json(&Result {
            r#type: "tool_result",
            tool_use_id: id,
            content: if visible(&result.text) {
                &result.text
            } else {
                "(no output)"
            },
            is_error: result.is_error,
            cache_control,
        }),
    }
}
