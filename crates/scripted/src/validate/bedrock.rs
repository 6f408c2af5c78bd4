//! The rules of Bedrock Converse requests: messages and their content blocks.
//!
//! From the API's reference and from what it is known to answer. The models behind it differ; where a rule is one of
//! some models only, it is judged by the model's name.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::Report;
use super::bedrock_pairing;
use super::bedrock_params;
use super::shape::{is_blank, is_name, kind, text_of};

pub(super) const RULES: &[&str] = &[
    "bedrock.body_object",
    "bedrock.unknown_field",
    "bedrock.messages",
    "bedrock.role",
    "bedrock.first_user",
    "bedrock.last_user",
    "bedrock.alternate",
    "bedrock.content",
    "bedrock.block_union",
    "bedrock.block_role",
    "bedrock.text_empty",
    "bedrock.image",
    "bedrock.image_count",
    "bedrock.document",
    "bedrock.document_name",
    "bedrock.document_name_unique",
    "bedrock.document_text",
    "bedrock.document_count",
    "bedrock.tool_use",
    "bedrock.tool_use_id",
    "bedrock.tool_use_id_unique",
    "bedrock.tool_name",
    "bedrock.tool_result",
    "bedrock.unanswered_tool_use",
    "bedrock.orphan_result",
    "bedrock.result_count",
    "bedrock.duplicate_result",
    "bedrock.result_first",
    "bedrock.hosted_unanswered",
    "bedrock.mixed_turn",
    "bedrock.reasoning",
    "bedrock.reasoning_signature",
    "bedrock.reasoning_last",
    "bedrock.thinking_first",
    "bedrock.cache_point",
    "bedrock.cache_point_place",
    "bedrock.cache_point_count",
    "bedrock.cache_point_model",
    "bedrock.system",
    "bedrock.tool_config_required",
    "bedrock.tools",
    "bedrock.tool_schema",
    "bedrock.duplicate_tool",
    "bedrock.tool_choice",
    "bedrock.tool_choice_model",
    "bedrock.inference_config",
    "bedrock.output_config",
    "bedrock.additional_fields",
    "bedrock.thinking_budget",
    "bedrock.thinking_forced_tool",
];

/// Who made the model, as its name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Maker {
    Anthropic,
    Amazon,
    /// Named, and none of the two.
    Other,
    /// Nobody says which model it is: only what holds for all of them is judged.
    Unknown,
}

impl Maker {
    pub(super) fn of(model: &str) -> Self {
        let model = model.to_ascii_lowercase();
        if model.contains("anthropic.claude") {
            Self::Anthropic
        } else if model.contains("amazon.nova") {
            Self::Amazon
        } else if model.contains('.') {
            Self::Other
        } else {
            Self::Unknown
        }
    }
}

/// The one member a union has, and its value.
pub(super) fn member(value: &Value) -> Option<(&str, &Value)> {
    let fields = value.as_object()?;
    let mut given = fields.iter().filter(|(_, value)| !value.is_null());
    let (key, value) = given.next()?;
    given.next().is_none().then_some((key.as_str(), value))
}

pub(super) fn blocks(message: &Value) -> &[Value] {
    message
        .get("content")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

pub(super) fn check(model: &str, body: &Value, report: &mut Report) {
    if !report.check(body.is_object(), "bedrock.body_object", "", || {
        format!("the body must be a JSON object, got {}", kind(body))
    }) {
        return;
    }
    let maker = Maker::of(model);
    bedrock_params::check(model, maker, body, report);
    let messages = body.get("messages").and_then(Value::as_array);
    let Some(messages) = messages.filter(|m| !m.is_empty()) else {
        report.add(
            "bedrock.messages",
            "messages",
            "A conversation must have at least one message.",
        );
        return;
    };
    check_roles(model, messages, report);
    let mut seen = Seen::default();
    for (index, message) in messages.iter().enumerate() {
        check_message(
            message,
            maker,
            &format!("messages[{index}]"),
            &mut seen,
            report,
        );
    }
    report.check(seen.images <= 20, "bedrock.image_count", "messages", || {
        format!("at most 20 images, got {}", seen.images)
    });
    report.check(
        seen.documents.len() <= 5,
        "bedrock.document_count",
        "messages",
        || format!("at most 5 documents, got {}", seen.documents.len()),
    );
    bedrock_pairing::check(maker, body, messages, report);
}

/// What is counted over all messages.
#[derive(Default)]
struct Seen {
    images: usize,
    documents: Vec<String>,
    names: HashSet<String>,
}

fn check_roles(model: &str, messages: &[Value], report: &mut Report) {
    let role = |at: usize| text_of(&messages[at], "role");
    report.check(role(0) == "user", "bedrock.first_user", "messages[0]", || {
        "A conversation must start with a user message. Try again with a conversation that starts with a user \
         message."
            .into()
    });
    let last = messages.len() - 1;
    report.check(
        role(last) == "user",
        "bedrock.last_user",
        &format!("messages[{last}]"),
        || "The model does not take a prefilled answer: the conversation must end with a user message.".into(),
    );
    // Amazon's oldest models join what one side says in several messages.
    if model.contains("titan") {
        return;
    }
    for at in 1..messages.len() {
        report.check(
            role(at) != role(at - 1),
            "bedrock.alternate",
            &format!("messages[{at}]"),
            || {
                "A conversation must alternate between user and assistant roles. Make sure the conversation \
                 alternates between user and assistant roles and try again."
                    .into()
            },
        );
    }
}

fn check_message(message: &Value, maker: Maker, at: &str, seen: &mut Seen, report: &mut Report) {
    let role = text_of(message, "role");
    let known = role == "user" || role == "assistant";
    if !report.check(known, "bedrock.role", at, || {
        format!("role must be one of user, assistant, got {role:?}; a system prompt is the field `system`")
    }) {
        return;
    }
    let here = format!("{at}.content");
    let content = message.get("content").and_then(Value::as_array);
    let Some(content) = content.filter(|c| !c.is_empty()) else {
        report.add(
            "bedrock.content",
            here,
            "The content field in the Message object is empty. Add a ContentBlock object to the content field and \
             try again.",
        );
        return;
    };
    for (index, block) in content.iter().enumerate() {
        check_block(
            block,
            role,
            maker,
            &format!("{here}[{index}]"),
            seen,
            report,
        );
    }
    check_points(content, &here, report);
    let holds = |name: &str| content.iter().any(|b| b.get(name).is_some());
    report.check(
        !holds("document") || holds("text"),
        "bedrock.document_text",
        &here,
        || "A text block has to stand in a message that holds a document.".into(),
    );
    let thinks = content
        .last()
        .is_some_and(|b| b.get("reasoningContent").is_some());
    report.check(
        !(thinks && role == "assistant"),
        "bedrock.reasoning_last",
        &here,
        || "The final block in an assistant message cannot be `thinking`.".into(),
    );
}

fn check_block(
    block: &Value,
    role: &str,
    maker: Maker,
    at: &str,
    seen: &mut Seen,
    report: &mut Report,
) {
    let user = [
        "image",
        "document",
        "video",
        "audio",
        "toolResult",
        "guardContent",
        "searchResult",
    ];
    let assistant = ["toolUse", "reasoningContent", "citationsContent"];
    let found = member(block).filter(|(name, _)| {
        user.contains(name) || assistant.contains(name) || ["text", "cachePoint"].contains(name)
    });
    let Some((name, value)) = found else {
        report.add(
            "bedrock.block_union",
            at,
            "A ContentBlock has exactly one member, and a known one.",
        );
        return;
    };
    // A tool of Amazon's own leaves its result in the assistant's message.
    let hosted = name == "toolResult" && !text_of(value, "type").is_empty();
    let wrong = match role {
        "user" => assistant.contains(&name),
        _ => user.contains(&name) && !hosted,
    };
    report.check(!wrong, "bedrock.block_role", at, || {
        format!("{name} blocks cannot be in {role} messages")
    });
    match name {
        "text" => {
            let blank = value.as_str().is_none_or(is_blank);
            report.check(!blank, "bedrock.text_empty", at, || {
                "The text field in the ContentBlock object is blank. Add text to the text field, and try again."
                    .into()
            });
        }
        "image" => check_image(value, at, seen, report),
        "document" => check_document(value, at, seen, report),
        "toolUse" => check_tool_use(value, at, report),
        "toolResult" => check_tool_result(value, at, report),
        "reasoningContent" => check_reasoning(value, maker, at, report),
        "cachePoint" => {
            let ttl = value.get("ttl").and_then(Value::as_str);
            let ok = text_of(value, "type") == "default"
                && ttl.is_none_or(|t| ["5m", "1h"].contains(&t));
            report.check(ok, "bedrock.cache_point", at, || {
                "a cachePoint has the type default, and a ttl of 5m or 1h".into()
            });
        }
        _ => {}
    }
}

/// Where cache points may stand: behind something, and not directly behind a document.
fn check_points(content: &[Value], at: &str, report: &mut Report) {
    for (index, block) in content.iter().enumerate() {
        if block.get("cachePoint").is_none() {
            continue;
        }
        let before = index.checked_sub(1).and_then(|n| content.get(n));
        let ok = before.is_some_and(|b| {
            ["document", "video", "cachePoint"]
                .iter()
                .all(|name| b.get(*name).is_none())
        });
        report.check(ok, "bedrock.cache_point_place", &format!("{at}[{index}]"), || {
            "a cachePoint cannot be first, nor directly behind a document, a video or another cachePoint".into()
        });
    }
}

/// The bytes of a source in base64; `None` when they are none.
fn bytes_of(value: &Value) -> Option<usize> {
    let bytes = value.pointer("/source/bytes")?.as_str()?;
    STANDARD
        .decode(bytes)
        .ok()
        .map(|b| b.len())
        .filter(|n| *n > 0)
}

fn check_image(value: &Value, at: &str, seen: &mut Seen, report: &mut Report) {
    seen.images += 1;
    let format = ["png", "jpeg", "gif", "webp"].contains(&text_of(value, "format"));
    let sized = bytes_of(value).is_some_and(|n| n <= 3_932_160);
    let elsewhere = value
        .pointer("/source/s3Location/uri")
        .is_some_and(Value::is_string);
    report.check(format && (sized || elsewhere), "bedrock.image", at, || {
        "an image has a format of png, jpeg, gif or webp, and at most 3.75 MB of bytes in base64".into()
    });
}

fn check_document(value: &Value, at: &str, seen: &mut Seen, report: &mut Report) {
    let formats = [
        "pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md",
    ];
    let sized = bytes_of(value).is_some_and(|n| n <= 4_718_592);
    let source = value.get("source").unwrap_or(&Value::Null);
    let elsewhere = ["s3Location", "text", "content"]
        .iter()
        .any(|key| source.get(key).is_some());
    report.check(
        formats.contains(&text_of(value, "format")) && (sized || elsewhere),
        "bedrock.document",
        at,
        || format!("a document has a format of {formats:?} and at most 4.5 MB of bytes in base64"),
    );
    let name = text_of(value, "name");
    let legal = |c: char| c.is_ascii_alphanumeric() || c == ' ' || "-()[]".contains(c);
    let ok =
        !name.is_empty() && name.len() <= 200 && name.chars().all(legal) && !name.contains("  ");
    report.check(ok, "bedrock.document_name", at, || {
        format!(
            "The file name {name:?} is not valid: it can only contain alphanumeric characters, whitespace \
             characters, hyphens, parentheses, and square brackets. The name can't contain more than one \
             consecutive whitespace character."
        )
    });
    report.check(
        seen.names.insert(name.to_owned()),
        "bedrock.document_name_unique",
        at,
        || format!("The request holds two documents of the name {name:?}."),
    );
    seen.documents.push(name.to_owned());
}

fn check_tool_use(value: &Value, at: &str, report: &mut Report) {
    let id = text_of(value, "toolUseId");
    report.check(is_name(id, 64), "bedrock.tool_use_id", at, || {
        format!(
            "Value {id:?} at 'toolUse.toolUseId' failed to satisfy constraint: Member must satisfy regular \
             expression pattern: [a-zA-Z0-9_-]+ and have length less than or equal to 64"
        )
    });
    let name = text_of(value, "name");
    report.check(is_name(name, 64), "bedrock.tool_name", at, || {
        format!(
            "Value {name:?} at 'toolUse.name' must satisfy [a-zA-Z0-9_-]+ and be at most 64 long"
        )
    });
    report.check(
        value.get("input").is_some_and(Value::is_object),
        "bedrock.tool_use",
        at,
        || format!("The format of the value at toolUse.input of {id:?} is invalid. Provide a json object."),
    );
}

fn check_tool_result(value: &Value, at: &str, report: &mut Report) {
    let id = text_of(value, "toolUseId");
    report.check(is_name(id, 64), "bedrock.tool_use_id", at, || {
        format!("Value {id:?} at 'toolResult.toolUseId' must satisfy [a-zA-Z0-9_-]+ and be at most 64 long")
    });
    let legal = ["text", "json", "image", "document", "video", "searchResult"];
    let parts = blocks(value);
    let known = !parts.is_empty()
        && parts
            .iter()
            .all(|part| member(part).is_some_and(|(name, _)| legal.contains(&name)));
    let blank = parts.iter().any(|part| {
        part.get("text")
            .is_some_and(|t| t.as_str().is_none_or(is_blank))
    });
    let status = value.get("status").and_then(Value::as_str);
    let status = status.is_none_or(|s| s == "success" || s == "error");
    report.check(known && !blank && status, "bedrock.tool_result", at, || {
        format!(
            "a toolResult has content of at least one block of {legal:?}, no text in it blank, and a status of \
             success or error"
        )
    });
}

fn check_reasoning(value: &Value, maker: Maker, at: &str, report: &mut Report) {
    match member(value) {
        Some(("reasoningText", text)) => {
            let said = text.get("text").is_some_and(Value::is_string);
            report.check(said, "bedrock.reasoning", at, || {
                "reasoningText needs its text".into()
            });
            let signed = !text_of(text, "signature").is_empty();
            report.check(
                signed || maker != Maker::Anthropic,
                "bedrock.reasoning_signature",
                at,
                || "reasoning has to come back with its signature, as it was received".into(),
            );
        }
        Some(("redactedContent", data)) => {
            let ok = data
                .as_str()
                .is_some_and(|d| !d.is_empty() && STANDARD.decode(d).is_ok());
            report.check(ok, "bedrock.reasoning", at, || {
                "redactedContent is binary data in base64".into()
            });
        }
        _ => report.add(
            "bedrock.reasoning",
            at,
            "reasoningContent has exactly one of reasoningText and redactedContent",
        ),
    }
}
