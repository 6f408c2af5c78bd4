//! The conversation as Gemini's `contents`: user and model in turns, each function answered in the next one.

use super::super::media::{Limits, Shown};
use super::super::shape::{self, Json, Said, Turn, json, native, visible};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use tenure_core::request::{AssistantBlock, Request, ToolResult};

/// What the vendor documents for calls that another model made: it stands for a signature and is not checked.
const SKIP_SIGNATURE: &str = "skip_thought_signature_validator";

/// What the vendor takes inside a request, which may have 20 MB altogether: the rest is for words. It scales
/// pictures itself.
pub(in super::super) const MEDIA: Limits = Limits {
    types: &["image/png", "image/jpeg", "image/webp", "application/pdf"],
    image: 14 * 1024 * 1024,
    document: 14 * 1024 * 1024,
    side: u32::MAX,
    side_of_many: u32::MAX,
    many: usize::MAX,
    images: 3000,
    sum: 14 * 1024 * 1024,
};

/// One message.
#[derive(Serialize)]
pub(super) struct Content {
    role: &'static str,
    parts: Vec<Json>,
}

#[derive(Serialize)]
struct Text<'a> {
    text: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Inline<'a> {
    inline_data: Data<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    mime_type: &'a str,
    data: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    function_response: Answer<'a>,
}

#[derive(Serialize)]
struct Answer<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: &'a str,
    response: Outcome<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome<'a> {
    Output(&'a str),
    Error(&'a str),
}

/// Which of the vendor's ids stand in the request.
#[derive(Default)]
struct Ids {
    /// The vendor's own id of each call, where it gave one.
    of_call: HashMap<String, Option<String>>,
    used: HashSet<String>,
}

/// The messages; empty when nothing is left to be said. `signatures`: the model refuses a call without one.
pub(super) fn contents(request: &Request, signatures: bool) -> Vec<Content> {
    let mut ids = Ids::default();
    let mut contents: Vec<Content> = Vec::new();
    let shown = Shown::of(request, &MEDIA);
    for turn in shape::turns(request) {
        match turn {
            Turn::User(said) => {
                let parts = said.iter().map(|said| match said {
                    Said::User(text) => json(&Text { text }),
                    Said::Media(media) => match shown.stand_in(media) {
                        Some(words) => json(&Text { text: &words }),
                        None => json(&Inline {
                            inline_data: Data {
                                mime_type: &media.media_type,
                                data: &media.data,
                            },
                        }),
                    },
                    Said::System(text) => json(&Text {
                        text: &shape::note(text),
                    }),
                });
                extend(&mut contents, "user", parts.collect());
            }
            Turn::Results(results) => {
                let parts = results.iter().map(|result| answer(result, &ids));
                extend(&mut contents, "user", parts.collect());
            }
            Turn::Assistant(blocks) => {
                let parts = model(&blocks, signatures, &mut ids);
                if contents.is_empty() && !parts.is_empty() {
                    extend(&mut contents, "user", vec![go_on()]);
                }
                extend(&mut contents, "model", parts);
            }
        }
    }
    if contents.last().is_some_and(|last| last.role == "model") {
        extend(&mut contents, "user", vec![go_on()]);
    }
    contents
}

fn go_on() -> Json {
    json(&Text { text: "Continue." })
}

fn extend(contents: &mut Vec<Content>, role: &'static str, parts: Vec<Json>) {
    if parts.is_empty() {
        return;
    }
    match contents.last_mut() {
        Some(last) if last.role == role => last.parts.extend(parts),
        _ => contents.push(Content { role, parts }),
    }
}

fn answer(result: &ToolResult, ids: &Ids) -> Json {
    let text = if visible(&result.text) {
        result.text.as_str()
    } else {
        "(no output)"
    };
    json(&Response {
        function_response: Answer {
            id: ids.of_call.get(&result.id).and_then(|id| id.as_deref()),
            name: &legal_name(&result.name),
            response: if result.is_error {
                Outcome::Error(text)
            } else {
                Outcome::Output(text)
            },
        },
    })
}

fn model(blocks: &[&AssistantBlock], signatures: bool, ids: &mut Ids) -> Vec<Json> {
    let mut parts = Vec::new();
    // Only the first of parallel calls carries a signature.
    let mut unsigned = signatures;
    let mut answered = false;
    for block in blocks {
        let before = parts.len();
        match block {
            AssistantBlock::Text { text, native: own } => match run(own.as_deref()) {
                Some(own) => {
                    answered |= visible(text) || own.iter().any(is_media);
                    parts.extend(own);
                    continue;
                }
                None => parts.extend(plain(text)),
            },
            AssistantBlock::Reasoning { native: own, .. } => {
                parts.extend(run(own.as_deref()).into_iter().flatten());
                continue;
            }
            AssistantBlock::ToolCall {
                id,
                name,
                input,
                native: own,
            } => {
                let (call, vendor) = call(name, input, own.as_deref(), unsigned, &mut ids.used);
                unsigned = false;
                ids.of_call.insert(id.clone(), vendor);
                parts.push(call);
            }
            AssistantBlock::Hosted {
                name,
                call,
                result,
                text,
                ..
            } => match (native(call.as_deref()), part(result.as_deref())) {
                // What a search found is no part: the model's text tells it.
                (Some((_, fields)), _) if is_metadata(&fields) => {}
                (Some((call, _)), Some((result, _))) => parts.extend([call, result]),
                _ => parts.extend(shape::hosted_as_text(name, text).and_then(|t| plain(&t))),
            },
            AssistantBlock::Opaque { native: own } => {
                parts.extend(kept(own));
            }
        }
        answered |= parts.len() > before;
    }
    // Thoughts alone are no answer, and a message without any word says nothing.
    if answered { parts } else { Vec::new() }
}

fn plain(text: &str) -> Option<Json> {
    visible(text).then(|| json(&Text { text }))
}

/// The provider's own JSON of a part.
fn part(own: Option<&str>) -> Option<(Json, Map<String, Value>)> {
    native(own).filter(|(_, fields)| !fields.is_empty() && !is_metadata(fields))
}

/// A part that was only kept. A result whose call is elsewhere would answer nothing here, and a part without any
/// content is refused: a signature alone goes back with an empty text.
fn kept(own: &str) -> Option<Json> {
    const BESIDE: [&str; 5] = [
        "thought",
        "thoughtSignature",
        "videoMetadata",
        "mediaResolution",
        "partMetadata",
    ];
    let (own, mut fields) = part(Some(own))?;
    if ["codeExecutionResult", "toolResponse"]
        .iter()
        .any(|result| fields.contains_key(*result))
    {
        return None;
    }
    if fields.keys().any(|key| !BESIDE.contains(&key.as_str())) {
        return Some(own);
    }
    fields.insert("text".to_owned(), Value::String(String::new()));
    fields
        .contains_key("thoughtSignature")
        .then(|| json(&fields))
}

/// The parts of a run of text or thoughts: one, or the list the decoder kept.
fn run(own: Option<&str>) -> Option<Vec<Json>> {
    #[derive(serde::Deserialize)]
    struct Run {
        parts: Vec<Json>,
    }
    let (own, fields) = part(own)?;
    if !fields.contains_key("parts") {
        return Some(vec![own]);
    }
    let run: Run = serde_json::from_str(own.get()).ok()?;
    let objects = run.parts.iter().all(|part| part.get().starts_with('{'));
    (objects && !run.parts.is_empty()).then_some(run.parts)
}

/// A picture or another file that the model made.
fn is_media(part: &Json) -> bool {
    ["inlineData", "fileData"].iter().any(|key| {
        serde_json::from_str::<Map<String, Value>>(part.get()).is_ok_and(|f| f.contains_key(*key))
    })
}

/// A name of a function as it must be here: it begins with a letter or an underscore. Another vendor's model may
/// have called something else.
fn legal_name(name: &str) -> Cow<'_, str> {
    if name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        return Cow::Borrowed(name);
    }
    Cow::Owned(format!("_{name}").chars().take(64).collect())
}

/// What the decoder keeps of a response beside its parts.
fn is_metadata(fields: &Map<String, Value>) -> bool {
    fields.contains_key("groundingMetadata") || fields.contains_key("urlContextMetadata")
}

/// A call with what its provider gave it beside name and arguments, and the provider's id.
/// An id that stood in front of it already is left out: a provider that used one twice would refuse both.
fn call(
    name: &str,
    input: &str,
    own: Option<&str>,
    unsigned: bool,
    used: &mut HashSet<String>,
) -> (Json, Option<String>) {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Part<'a> {
        function_call: Call<'a>,
        #[serde(flatten)]
        more: Map<String, Value>,
    }
    #[derive(Serialize)]
    struct Call<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a str>,
        name: &'a str,
        args: &'a RawValue,
        #[serde(flatten)]
        more: Map<String, Value>,
    }
    let mut more = native(own).map(|(_, fields)| fields).unwrap_or_default();
    let mut call_more = match more.remove("functionCall") {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    for own in ["name", "args"] {
        call_more.remove(own);
    }
    let id = match call_more.remove("id") {
        Some(Value::String(id)) if !id.is_empty() && used.insert(id.clone()) => Some(id),
        _ => None,
    };
    if unsigned && !more.contains_key("thoughtSignature") {
        more.insert(
            "thoughtSignature".to_owned(),
            Value::String(SKIP_SIGNATURE.to_owned()),
        );
    }
    let args = RawValue::from_string(shape::object_text(input).into_owned())
        .unwrap_or_else(|_| json(&Map::new()));
    let part = json(&Part {
        function_call: Call {
            id: id.as_deref(),
            name: &legal_name(name),
            args: &args,
            more: call_more,
        },
        more,
    });
    (part, id)
}
