//! The rules of Gemini requests: contents, roles, the parts of a message.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::Report;
use super::gemini_pairing;
use super::gemini_params;
use super::shape::{is_blank, kind};

pub(super) const RULES: &[&str] = &[
    "gemini.body_object",
    "gemini.unknown_field",
    "gemini.contents",
    "gemini.content",
    "gemini.role",
    "gemini.first_user",
    "gemini.last_user",
    "gemini.alternation",
    "gemini.part",
    "gemini.part_data",
    "gemini.part_field",
    "gemini.part_role",
    "gemini.text",
    "gemini.text_empty",
    "gemini.thought",
    "gemini.signature",
    "gemini.inline_data",
    "gemini.inline_type",
    "gemini.inline_sum",
    "gemini.file_data",
    "gemini.function_call",
    "gemini.function_name",
    "gemini.call_id_unique",
    "gemini.function_response",
    "gemini.unanswered_call",
    "gemini.response_count",
    "gemini.response_name",
    "gemini.response_id",
    "gemini.orphan_response",
    "gemini.executable_code",
    "gemini.code_result",
    "gemini.hosted_unanswered",
    "gemini.hosted_orphan",
    "gemini.call_signature",
    "gemini.system",
    "gemini.tools",
    "gemini.declaration",
    "gemini.duplicate_function",
    "gemini.schema",
    "gemini.schema_keyword",
    "gemini.schema_twice",
    "gemini.tool_mix",
    "gemini.tool_config",
    "gemini.allowed_names",
    "gemini.tool_config_without_functions",
    "gemini.generation",
    "gemini.max_output_tokens",
    "gemini.temperature",
    "gemini.top_p",
    "gemini.stop_sequences",
    "gemini.response_form",
    "gemini.thinking",
    "gemini.safety",
];

/// The kinds of data of which a part has exactly one.
const DATA: [&str; 9] = [
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
];

/// What a part may say beside its data.
const BESIDE: [&str; 5] = [
    "thought",
    "thoughtSignature",
    "videoMetadata",
    "mediaResolution",
    "partMetadata",
];

/// The field under its JSON name or its name in the protocol's definition; the API reads both. Null is absent.
pub(super) fn get<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    let found = value.get(key).or_else(|| value.get(snake(key)));
    found.filter(|v| !v.is_null())
}

/// `camelCase` as `snake_case`.
pub(super) fn snake(key: &str) -> String {
    let mut out = String::with_capacity(key.len() + 4);
    for c in key.chars() {
        if c.is_ascii_uppercase() {
            out.push('_');
            out.push(c.to_ascii_lowercase());
        } else {
            out.push(c);
        }
    }
    out
}

/// The field as text, or an empty string.
pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    get(value, key).and_then(Value::as_str).unwrap_or("")
}

/// The field as a list, or an empty one.
pub(super) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    get(value, key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Refuses keys of an object that are not among `known`.
pub(super) fn known_fields(
    report: &mut Report,
    value: &Value,
    known: &[&str],
    rule: &'static str,
    at: &str,
) {
    for key in value.as_object().into_iter().flatten().map(|(key, _)| key) {
        let ok = known.iter().any(|k| key == k || *key == snake(k));
        report.check(ok, rule, at, || {
            format!("Invalid JSON payload received. Unknown name {key:?}: Cannot find field.")
        });
    }
}

pub(super) fn check(body: &Value, report: &mut Report) {
    if !report.check(body.is_object(), "gemini.body_object", "", || {
        format!("the body must be a JSON object, got {}", kind(body))
    }) {
        return;
    }
    gemini_params::check(body, report);
    let contents = list(body, "contents");
    if !report.check(!contents.is_empty(), "gemini.contents", "contents", || {
        "contents is not specified".into()
    }) {
        return;
    }
    let inline = |part: &Value| get(part, "inlineData").map_or(0, |data| text(data, "data").len());
    let sum: usize = contents
        .iter()
        .flat_map(|content| list(content, "parts"))
        .map(inline)
        .sum();
    report.check(
        sum <= INLINE_REQUEST,
        "gemini.inline_sum",
        "contents",
        || format!("Request payload size exceeds the limit: {INLINE_REQUEST} bytes."),
    );
    for (index, content) in contents.iter().enumerate() {
        check_content(content, &format!("contents[{index}]"), report);
    }
    check_roles(contents, report);
    gemini_pairing::check(contents, report);
}

fn check_roles(contents: &[Value], report: &mut Report) {
    let role = |content: &Value| text(content, "role").to_owned();
    report.check(
        role(&contents[0]) != "model",
        "gemini.first_user",
        "contents[0]",
        || "the first content must have the role user".into(),
    );
    let last = contents.len() - 1;
    report.check(
        role(&contents[last]) != "model",
        "gemini.last_user",
        &format!("contents[{last}]"),
        || "Please ensure that the request ends with a user role.".into(),
    );
    for (index, pair) in contents.windows(2).enumerate() {
        report.check(
            role(&pair[0]) != role(&pair[1]),
            "gemini.alternation",
            &format!("contents[{}]", index + 1),
            || "Please ensure that multiturn requests alternate between user and model.".into(),
        );
    }
}

fn check_content(content: &Value, at: &str, report: &mut Report) {
    let parts = get(content, "parts").and_then(Value::as_array);
    let Some(parts) = parts.filter(|parts| !parts.is_empty()) else {
        report.add(
            "gemini.content",
            at,
            "contents.parts must not be empty: a content needs a role and a list of parts",
        );
        return;
    };
    known_fields(report, content, &["role", "parts"], "gemini.content", at);
    let role = text(content, "role");
    report.check(["user", "model"].contains(&role), "gemini.role", at, || {
        format!("Please use a valid role: user, model; got {role:?}")
    });
    for (index, part) in parts.iter().enumerate() {
        check_part(part, role, &format!("{at}.parts[{index}]"), report);
    }
}

fn check_part(part: &Value, role: &str, at: &str, report: &mut Report) {
    if !report.check(part.is_object(), "gemini.part", at, || {
        format!("a part must be an object, got {}", kind(part))
    }) {
        return;
    }
    let known: Vec<&str> = DATA.iter().chain(&BESIDE).copied().collect();
    known_fields(report, part, &known, "gemini.part_field", at);
    let data: Vec<&str> = DATA
        .into_iter()
        .filter(|key| get(part, key).is_some())
        .collect();
    let [data] = data[..] else {
        report.add(
            "gemini.part_data",
            at,
            format!("a part must have exactly one kind of data, got {data:?}"),
        );
        return;
    };
    if let Some(signature) = get(part, "thoughtSignature") {
        report.check(
            signature.as_str().is_some_and(|s| !s.is_empty()),
            "gemini.signature",
            at,
            || "Thought signature is not valid.".into(),
        );
    }
    if let Some(thought) = get(part, "thought") {
        report.check(thought.is_boolean(), "gemini.thought", at, || {
            format!("thought must be a boolean, got {}", kind(thought))
        });
    }
    let wrong = match role {
        "user" => {
            [
                "functionCall",
                "executableCode",
                "codeExecutionResult",
                "toolCall",
                "toolResponse",
            ]
            .contains(&data)
                || get(part, "thought") == Some(&Value::Bool(true))
        }
        "model" => data == "functionResponse",
        _ => false,
    };
    report.check(!wrong, "gemini.part_role", at, || {
        format!("a part with {data} cannot be in a content of the role {role}")
    });
    check_data(part, data, at, report);
}

fn check_data(part: &Value, data: &str, at: &str, report: &mut Report) {
    let value = get(part, data).unwrap_or(&Value::Null);
    match data {
        "text" => {
            let Some(said) = value.as_str() else {
                report.add(
                    "gemini.text",
                    at,
                    format!("text must be a string, got {}", kind(value)),
                );
                return;
            };
            // An empty text may still carry a signature.
            let signed = get(part, "thoughtSignature").is_some();
            report.check(signed || !is_blank(said), "gemini.text_empty", at, || {
                "Unable to submit request because it has an empty text parameter.".into()
            });
        }
        "inlineData" => check_inline(value, at, report),
        "fileData" => {
            report.check(
                !text(value, "fileUri").is_empty(),
                "gemini.file_data",
                at,
                || "fileData needs a fileUri".into(),
            );
        }
        "functionCall" => {
            let shaped = get(value, "name").is_some_and(Value::is_string)
                && get(value, "args").is_none_or(Value::is_object);
            report.check(shaped, "gemini.function_call", at, || {
                "a functionCall needs a name, and its args must be an object".into()
            });
            check_name(text(value, "name"), at, report);
        }
        "functionResponse" => {
            let shaped = get(value, "name").is_some_and(Value::is_string)
                && get(value, "response").is_some_and(Value::is_object);
            report.check(shaped, "gemini.function_response", at, || {
                "a functionResponse needs a name and a response that is an object".into()
            });
        }
        "executableCode" => {
            let shaped = !text(value, "code").is_empty() && !text(value, "language").is_empty();
            report.check(shaped, "gemini.executable_code", at, || {
                "executableCode needs its code and language, as they were received".into()
            });
        }
        "codeExecutionResult" => {
            report.check(
                text(value, "outcome").starts_with("OUTCOME_"),
                "gemini.code_result",
                at,
                || "codeExecutionResult needs its outcome, as it was received".into(),
            );
        }
        _ => {}
    }
}

/// A function's name: a letter or underscore, then up to 63 letters, digits, `_`, `-`, `.` and `:`.
pub(super) fn check_name(name: &str, at: &str, report: &mut Report) {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let ok = name.starts_with(first)
        && name.len() <= 64
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-.:".contains(c));
    report.check(ok, "gemini.function_name", at, || {
        format!(
            "Invalid function name {name:?}. Must start with a letter or an underscore, be of letters, digits, \
             underscores, dots, colons or dashes, and at most 64 long."
        )
    });
}

/// What Gemini documents as input: pictures without GIF and SVG, PDF, sound, film, plain text.
const INLINE_TYPES: &[&str] = &[
    "image/png",
    "image/jpeg",
    "image/webp",
    "image/heic",
    "image/heif",
    "application/pdf",
    "text/plain",
    "audio/wav",
    "audio/mp3",
    "audio/mpeg",
    "audio/aiff",
    "audio/aac",
    "audio/ogg",
    "audio/flac",
    "video/mp4",
    "video/mpeg",
    "video/mov",
    "video/quicktime",
    "video/avi",
    "video/x-flv",
    "video/mpg",
    "video/webm",
    "video/wmv",
    "video/3gpp",
];

/// A request with data inside may have 20 MB altogether.
const INLINE_REQUEST: usize = 20_000_000;

fn check_inline(value: &Value, at: &str, report: &mut Report) {
    let data = text(value, "data");
    let decoded = STANDARD.decode(data).is_ok_and(|bytes| !bytes.is_empty());
    report.check(decoded, "gemini.inline_data", at, || {
        "inlineData.data must be base64 and not empty".into()
    });
    let mime = text(value, "mimeType");
    report.check(
        INLINE_TYPES.contains(&mime),
        "gemini.inline_type",
        at,
        || format!("Unsupported MIME type: {mime:?}"),
    );
}
