//! OpenAI Responses: stateless, with the model's own items sent back as they were.

use super::answer;
use super::media::{self, Shown};
use super::shape::{self, Json, Said, Turn, json, legal_id, native, visible};
use crate::dialect::Dialect;
use crate::effort;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tenure_core::request::{
    AssistantBlock, Effort, HostedTool, OutputSchema, Request, ToolChoice, ToolResult,
};

/// The longest id that the vendor's own endpoint takes: 400 "string too long. Expected a string with maximum length 64".
const ID_LIMIT: usize = 64;

/// What the vendor's own endpoint takes of pictures and documents. "File inputs": models that see take PDFs, too, as text
/// and a picture of each page; 50 MB a request.
const MEDIA: media::Limits = media::Limits {
    types: media::TYPES,
    image: 20 * 1024 * 1024,
    document: 40 * 1024 * 1024,
    // Larger pictures are scaled by the vendor itself.
    side: u32::MAX,
    side_of_many: u32::MAX,
    many: usize::MAX,
    images: 400,
    sum: 40 * 1024 * 1024,
};

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    store: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    include: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Answer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "str::is_empty")]
    prompt_cache_key: &'a str,
    #[serde(skip_serializing_if = "String::is_empty")]
    instructions: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Choice<'a>>,
    input: Vec<Json>,
}

#[derive(Serialize)]
struct Reasoning {
    effort: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'static str>,
}

#[derive(Serialize)]
struct Answer {
    format: Format,
}

#[derive(Serialize)]
struct Format {
    r#type: &'static str,
    name: String,
    strict: bool,
    schema: Value,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Choice<'a> {
    Word(&'static str),
    Function { r#type: &'static str, name: &'a str },
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: Value,
    strict: bool,
}

#[derive(Serialize)]
struct Message<'a> {
    r#type: &'static str,
    role: &'static str,
    content: [Part<'a>; 1],
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    InputText {
        text: &'a str,
    },
    OutputText {
        text: &'a str,
    },
    InputImage {
        detail: &'static str,
        image_url: String,
    },
    InputFile {
        filename: &'a str,
        file_data: String,
    },
}

/// How a call went out, so that its result goes out alike.
struct Sent {
    call_id: String,
    output: &'static str,
}

/// The ids of a request: how long they may be, and under which the calls went out.
struct Ids {
    /// Of an item that has to name itself.
    item: usize,
    /// Of a call that the server numbered itself.
    call: usize,
    sent: HashMap<String, Sent>,
}

impl Ids {
    /// As the server wants them. One that imitates the protocol knows its own calls again; xAI's, whose items are named
    /// by the response and the call together (86 characters), its items, too.
    fn of(dialect: Dialect) -> Self {
        let (item, call) = match dialect {
            Dialect::Openai | Dialect::Azure => (ID_LIMIT, ID_LIMIT),
            Dialect::Xai => (usize::MAX, usize::MAX),
            _ => (ID_LIMIT, usize::MAX),
        };
        Self {
            item,
            call,
            sent: HashMap::new(),
        }
    }
}

/// The body; `None` when no message is left.
pub(super) fn encode(request: &Request, dialect: Dialect, output: Option<u64>) -> Option<Vec<u8>> {
    let shown = Shown::of(request, &MEDIA);
    let mut input = Vec::new();
    let mut ids = Ids::of(dialect);
    for turn in shape::turns(request) {
        match turn {
            Turn::User(said) => said
                .iter()
                .for_each(|said| input.extend(said_items(said, &shown))),
            Turn::Assistant(blocks) => assistant(&blocks, &mut ids, &mut input),
            Turn::Results(results) => {
                input.extend(results.iter().map(|result| result_item(result, &ids)))
            }
        }
    }
    if input.is_empty() {
        return None;
    }
    let model = &*request.model.model;
    let tools = tools(request);
    let body = Body {
        model,
        stream: true,
        store: false,
        include: include(request),
        reasoning: reasoning(request),
        text: request.output_schema.as_ref().map(|schema| Answer {
            format: format(schema),
        }),
        max_output_tokens: output.map(|n| n.max(16)),
        prompt_cache_key: &request.cache_key,
        instructions: request
            .system
            .iter()
            .map(String::as_str)
            .filter(|part| visible(part))
            .collect::<Vec<_>>()
            .join("\n\n"),
        tool_choice: (!tools.is_empty()).then(|| choice(request)),
        tools,
        input,
    };
    serde_json::to_vec(&body).ok()
}

/// What is asked for beside the answer. Models that do not reason refuse to be asked for sealed reasoning.
fn include(request: &Request) -> Vec<&'static str> {
    let mut include = Vec::new();
    if reasons(&request.model.model) {
        include.push("reasoning.encrypted_content");
    }
    if request.hosted_tools.contains(&HostedTool::CodeExecution) {
        include.push("code_interpreter_call.outputs");
    }
    include
}

fn reasoning(request: &Request) -> Option<Reasoning> {
    let model = &*request.model.model;
    let words = effort::words(model);
    let word = match request.effort? {
        Effort::Off => words[0],
        Effort::Low => words[1],
        Effort::Medium => words[2],
        Effort::High => words[3],
    };
    // The vendor's own tools are refused with `minimal`.
    let effort = word.map(|word| if word == "minimal" { "low" } else { word })?;
    let told = effort != "none" && effort::summarises(model) && !request.hide_thoughts;
    Some(Reasoning {
        effort,
        summary: told.then_some("auto"),
    })
}

/// The form of the answer: strict where the vendor's grammar can hold all of it.
fn format(schema: &OutputSchema) -> Format {
    let strict = answer::is_strict(&schema.schema);
    Format {
        r#type: "json_schema",
        name: answer::name(schema),
        strict,
        schema: shape::canonical(&schema.schema),
    }
}

fn tools(request: &Request) -> Vec<Json> {
    #[derive(Serialize)]
    struct Hosted {
        r#type: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        container: Option<Container>,
    }
    #[derive(Serialize)]
    struct Container {
        r#type: &'static str,
    }
    let local = request.tools.iter().map(|tool| {
        json(&Tool {
            r#type: "function",
            name: &tool.name,
            description: &tool.description,
            parameters: shape::schema(tool),
            strict: false,
        })
    });
    let hosted: BTreeSet<HostedTool> = request.hosted_tools.iter().copied().collect();
    let hosted = hosted.into_iter().map(|tool| match tool {
        HostedTool::WebSearch => json(&Hosted {
            r#type: "web_search",
            container: None,
        }),
        // The vendor goes on in the sandbox of earlier calls while it lives, and makes a new one after.
        HostedTool::CodeExecution => json(&Hosted {
            r#type: "code_interpreter",
            container: Some(Container { r#type: "auto" }),
        }),
    });
    local.chain(hosted).collect()
}

fn choice(request: &Request) -> Choice<'_> {
    match &request.tool_choice {
        ToolChoice::Auto => Choice::Word("auto"),
        ToolChoice::None => Choice::Word("none"),
        ToolChoice::Required => Choice::Word("required"),
        ToolChoice::Tool(name) if request.tools.iter().any(|tool| tool.name == *name) => {
            Choice::Function {
                r#type: "function",
                name,
            }
        }
        ToolChoice::Tool(_) => Choice::Word("auto"),
    }
}

fn said_items(said: &Said<'_>, shown: &Shown) -> Vec<Json> {
    let user = |part| message("user", part);
    match said {
        Said::User(text) => vec![user(Part::InputText { text })],
        Said::System(text) => vec![message("developer", Part::InputText { text })],
        Said::Media(one) => {
            let url = || format!("data:{};base64,{}", one.media_type, one.data);
            match (shown.stand_in(one), media::kind(one)) {
                (Some(words), _) => vec![user(Part::InputText { text: &words })],
                (None, Some(media::Kind::Image)) => {
                    // A picture has no name of its own; a prompt may speak of it by that.
                    let name = format!("{}:", one.name);
                    vec![
                        user(Part::InputText { text: &name }),
                        user(Part::InputImage {
                            detail: "auto",
                            image_url: url(),
                        }),
                    ]
                }
                (None, Some(media::Kind::Pdf)) => vec![user(Part::InputFile {
                    filename: if visible(&one.name) {
                        &one.name
                    } else {
                        "document.pdf"
                    },
                    file_data: url(),
                })],
                (None, None) => {
                    let words = shape::media_as_text(one);
                    vec![user(Part::InputText { text: &words })]
                }
            }
        }
    }
}

/// Does the model reason? Chat variants of reasoning models do not.
fn reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let old = ["gpt-3", "gpt-4", "chatgpt-4"];
    let talks_only = name.starts_with("gpt-") && name.contains("-chat");
    !talks_only && !old.iter().any(|old| name.starts_with(old))
}

fn message(role: &'static str, part: Part<'_>) -> Json {
    json(&Message {
        r#type: "message",
        role,
        content: [part],
    })
}

fn told(text: &str) -> Json {
    message("assistant", Part::OutputText { text })
}

fn result_item(result: &ToolResult, ids: &Ids) -> Json {
    #[derive(Serialize)]
    struct Output<'a> {
        r#type: &'static str,
        call_id: &'a str,
        output: &'a str,
    }
    let made = legal_id(&result.id, ID_LIMIT);
    let (call_id, kind) = match ids.sent.get(result.id.as_str()) {
        Some(sent) => (sent.call_id.as_str(), sent.output),
        None => (&*made, "function_call_output"),
    };
    let output = if visible(&result.text) {
        &result.text
    } else {
        "(no output)"
    };
    json(&Output {
        r#type: kind,
        call_id,
        output,
    })
}

fn assistant(blocks: &[&AssistantBlock], ids: &mut Ids, input: &mut Vec<Json>) {
    let longest = ids.item;
    // Reasoning belongs to the item after it; alone it is refused.
    let mut reasoning: Vec<Json> = Vec::new();
    // Items whose reasoning cannot go back must not name themselves: the API would look for it.
    let mut anonymous = false;
    for block in blocks {
        let item = match block {
            AssistantBlock::Text { text, native: own } => match native(own.as_deref()) {
                Some((own, fields)) if word(&fields, "type") == "message" => {
                    Some(named(own, fields, anonymous))
                }
                _ => visible(text).then(|| told(text)),
            },
            AssistantBlock::Reasoning { native: own, .. } => {
                match native(own.as_deref()) {
                    Some((own, fields)) if replayable(&fields) => {
                        reasoning.push(fitting(own, &fields, longest));
                    }
                    Some(_) => anonymous = true,
                    None => {}
                }
                continue;
            }
            AssistantBlock::ToolCall {
                id,
                name,
                input,
                native: own,
            } => Some(call(id, name, input, own.as_deref(), anonymous, ids)),
            AssistantBlock::Hosted {
                name,
                call,
                result,
                text,
                ..
            } => {
                if let Some((call, fields)) = native(call.as_deref()) {
                    input.append(&mut reasoning);
                    input.push(fitting(call, &fields, longest));
                    native(result.as_deref()).map(|(own, fields)| fitting(own, &fields, longest))
                } else {
                    shape::hosted_as_text(name, text).map(|text| told(&text))
                }
            }
            AssistantBlock::Opaque { native: own } => {
                native(Some(own)).map(|(own, fields)| fitting(own, &fields, longest))
            }
        };
        if let Some(item) = item {
            input.append(&mut reasoning);
            input.push(item);
        }
    }
}

/// Without `store`, reasoning can only go back with its content: sealed, or open.
fn replayable(fields: &Map<String, Value>) -> bool {
    word(fields, "type") == "reasoning"
        && (!word(fields, "encrypted_content").is_empty()
            || fields
                .get("content")
                .and_then(Value::as_array)
                .is_some_and(|content| !content.is_empty()))
}

/// An item with its id, unless it must not name itself or its id is of another form than the API's own: servers that
/// imitate it number as they like, and an item needs no id.
fn named(own: Json, mut fields: Map<String, Value>, anonymous: bool) -> Json {
    let prefix = match word(&fields, "type") {
        "message" => "msg",
        "function_call" => "fc",
        "custom_tool_call" => "ctc",
        _ => "",
    };
    let id = word(&fields, "id");
    let foreign = !id.starts_with(prefix) || id.len() > ID_LIMIT;
    if (anonymous || foreign) && fields.remove("id").is_some() {
        json(&fields)
    } else {
        own
    }
}

/// An item that has to name itself, under ids that the endpoint takes: another server of this protocol may have made
/// it. Everything else of it stays byte for byte; a call and its result are renamed alike.
fn fitting(own: Json, fields: &Map<String, Value>, longest: usize) -> Json {
    let renamed: Vec<(&str, Json)> = ["id", "call_id"]
        .into_iter()
        .filter(|key| word(fields, key).len() > longest)
        .map(|key| (key, json(&legal_id(word(fields, key), longest))))
        .collect();
    if renamed.is_empty() {
        return own;
    }
    let Ok(mut parts) = serde_json::from_str::<BTreeMap<String, &RawValue>>(own.get()) else {
        return own;
    };
    for (key, id) in &renamed {
        parts.insert((*key).to_owned(), id);
    }
    json(&parts)
}

fn call(
    id: &str,
    name: &str,
    input: &str,
    own: Option<&str>,
    anonymous: bool,
    ids: &mut Ids,
) -> Json {
    #[derive(Serialize)]
    struct FunctionCall<'a> {
        r#type: &'static str,
        call_id: &'a str,
        name: &'a str,
        arguments: &'a str,
    }
    if let Some((own, mut fields)) = native(own) {
        let kind = word(&fields, "type").to_owned();
        let custom = kind == "custom_tool_call";
        let sound = custom
            || serde_json::from_str::<Map<String, Value>>(word(&fields, "arguments")).is_ok();
        if sound && (custom || kind == "function_call") {
            let output = if custom {
                "custom_tool_call_output"
            } else {
                "function_call_output"
            };
            // A renamed call (an id used twice, or one too long) takes its new id along.
            let same = word(&fields, "call_id") == id && id.len() <= ids.call;
            let call_id = if same {
                id.to_owned()
            } else {
                legal_id(id, ID_LIMIT).into_owned()
            };
            ids.sent.insert(
                id.to_owned(),
                Sent {
                    call_id: call_id.clone(),
                    output,
                },
            );
            if same {
                return named(own, fields, anonymous);
            }
            fields.insert("call_id".to_owned(), Value::String(call_id));
            fields.remove("id");
            return json(&fields);
        }
    }
    let call_id = legal_id(id, ID_LIMIT);
    ids.sent.insert(
        id.to_owned(),
        Sent {
            call_id: call_id.clone().into_owned(),
            output: "function_call_output",
        },
    );
    json(&FunctionCall {
        r#type: "function_call",
        call_id: &call_id,
        name,
        arguments: &shape::object_text(input),
    })
}

fn word<'a>(fields: &'a Map<String, Value>, key: &str) -> &'a str {
    fields.get(key).and_then(Value::as_str).unwrap_or_default()
}
