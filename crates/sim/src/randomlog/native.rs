//! The vendors' own JSON of blocks, as their decoders leave it: signed, sealed, cited, hosted, kept.
//!
//! Everything opaque holds a mark of its own ([`seal`]), so that a test can say of any body whose state is in it.

use super::Tape;
use super::model::{ANTHROPIC, Asked, BEDROCK, CHAT, GEMINI, RESPONSES};
use serde_json::{Value, json};

/// A grey PNG of one pixel, in base64.
pub(super) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==";

/// The mark of the `n`th piece of opaque state of a log.
pub fn seal(n: u64) -> String {
    format!("seal-{n}-")
}

/// The marks in a text.
pub fn seals(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("seal-").filter_map(|(at, word)| {
        let digits = &text[at + word.len()..];
        let end = digits.find('-')?;
        digits[..end]
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| &text[at..at + word.len() + end + 1])
    })
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// A text block's own JSON. Odd spacing shows whether it went back byte for byte.
pub(super) fn text(tape: &mut Tape, asked: &Asked, n: u64, text: &str) -> Option<String> {
    let (body, seal) = (quoted(text), seal(n));
    let visible = !text.trim().is_empty();
    match asked.protocol {
        ANTHROPIC if visible && tape.once_in(3) => Some(format!(
            "{{\"type\":\"text\", \"text\":{body},\"citations\":[{{\"type\":\"web_search_result_location\",\
             \"url\":\"https://a.example\",\"title\":\"A\",\"encrypted_index\":\"{seal}\",\"cited_text\":\"c\"}}]}}"
        )),
        RESPONSES if visible => {
            let part = if tape.once_in(6) {
                format!("{{\"type\":\"refusal\",\"refusal\":{body}}}")
            } else {
                format!("{{\"type\":\"output_text\",\"text\":{body},\"annotations\":[]}}")
            };
            Some(format!(
                "{{\"type\":\"message\", \"id\":\"msg_{seal}\",\"role\":\"assistant\",\"status\":\"completed\",\
                 \"content\":[{part}]}}"
            ))
        }
        CHAT if tape.once_in(5) => Some(format!(
            "{{\"annotations\":[{{\"type\":\"file\",\"file\":{{\"hash\":\"{seal}\"}}}}]}}"
        )),
        // A signature in the middle of a run of text.
        GEMINI if visible && tape.once_in(4) => Some(format!(
            "{{\"parts\":[{{\"text\":\"\", \"thoughtSignature\":\"{seal}\"}},{{\"text\": {body}}}]}}"
        )),
        GEMINI if tape.once_in(2) => Some(format!(
            "{{\"text\": {body},\"thoughtSignature\":\"{seal}\"}}"
        )),
        _ => None,
    }
}

/// A reasoning block's own JSON, and the words that go with it.
pub(super) fn reasoning(tape: &mut Tape, asked: &Asked, n: u64) -> (&'static str, Option<String>) {
    let seal = seal(n);
    let native = match (asked.protocol, tape.pick(5)) {
        (_, 4) => None,
        (ANTHROPIC, 2) => {
            let native = format!("{{\"data\":\"{seal}\",\"type\":\"redacted_thinking\"}}");
            return ("", Some(native));
        }
        // Newer models send the signature alone.
        (ANTHROPIC, 3) => {
            let native =
                format!("{{\"type\":\"thinking\",\"thinking\":\"\", \"signature\":\"{seal}\"}}");
            return ("", Some(native));
        }
        (ANTHROPIC, _) => Some(format!(
            "{{\"type\":\"thinking\",\"thinking\":\"h\\u006d\", \"signature\":\"{seal}\"}}"
        )),
        // Kept by the vendor and not sealed: it cannot go back.
        (RESPONSES, 3) => Some(format!(
            "{{\"id\":\"rs_{seal}\",\"type\":\"reasoning\", \"summary\":[]}}"
        )),
        (RESPONSES, _) => Some(format!(
            "{{\"id\":\"rs_{seal}\",\"type\":\"reasoning\", \"summary\":[{{\"type\":\"summary_text\",\
             \"text\":\"hm\"}}],\"encrypted_content\":\"{seal}\"}}"
        )),
        (GEMINI, 0 | 1) => Some(format!(
            "{{\"thought\": true,\"text\":\"hm\",\"thoughtSignature\":\"{seal}\"}}"
        )),
        (GEMINI, _) => None,
        (BEDROCK, 0) => {
            let native = "{\"reasoningContent\": {\"redactedContent\":\"c2VhbGVk\"}}".to_owned();
            return ("", Some(native));
        }
        (BEDROCK, _) => Some(format!(
            "{{\"reasoningContent\": {{\"reasoningText\":{{\"text\":\"hm\",\"signature\":\"{seal}\"}}}}}}"
        )),
        (_, 0) => Some(format!(
            "{{\"reasoning_details\":[{{\"type\":\"reasoning.text\",\"text\":\"hm\",\"signature\":\"{seal}\",\
             \"index\":0}}]}}"
        )),
        (_, 1) => Some(format!(
            "{{\"field\":\"reasoning_text\",\"reasoning_opaque\":\"{seal}\"}}"
        )),
        _ => {
            let field = tape.of(&["reasoning_content", "reasoning", "thinking"]);
            Some(format!("{{\"field\":\"{field}\"}}"))
        }
    };
    ("hm", native)
}

/// A local call's own JSON. `vendor` is the id the vendor gave it.
pub(super) fn call(
    tape: &mut Tape,
    asked: &Asked,
    n: u64,
    (vendor, name, input): (&str, &str, &str),
) -> Option<String> {
    let seal = seal(n);
    match asked.protocol {
        RESPONSES => Some(format!(
            "{{\"type\":\"function_call\", \"id\":\"fc_{seal}\",\"call_id\":{},\"name\":{},\"arguments\":{},\
             \"status\":\"completed\"}}",
            quoted(vendor),
            quoted(name),
            quoted(input)
        )),
        ANTHROPIC if tape.once_in(4) => Some(
            json!({"type": "tool_use", "id": vendor, "name": name, "caller": {"type": "direct"}})
                .to_string(),
        ),
        CHAT if tape.once_in(4) => Some(format!(
            "{{\"extra_content\":{{\"google\":{{\"thought_signature\":\"{seal}\"}}}}}}"
        )),
        GEMINI => {
            let with_id = tape.once_in(2).then(|| json!({"id": vendor}));
            let mut part = json!({"functionCall": with_id.unwrap_or_else(|| json!({}))});
            if !tape.once_in(4) {
                part["thoughtSignature"] = seal.into();
            }
            Some(part.to_string())
        }
        _ => None,
    }
}

/// A call the provider ran itself.
pub(super) struct Hosted {
    pub name: &'static str,
    pub input: &'static str,
    pub call: Option<String>,
    pub result: Option<String>,
    /// Its JSON holds call and result in one: there is never a result on its own.
    pub whole: bool,
}

fn hosted(name: &'static str, input: &'static str, call: String, result: Option<String>) -> Hosted {
    Hosted {
        name,
        input,
        call: Some(call),
        whole: result.is_none(),
        result,
    }
}

fn anthropic_hosted(kind: usize, seal: &str, id: &str) -> Hosted {
    match kind {
        0 | 1 => {
            let content = if kind == 0 {
                format!(
                    "[{{\"type\":\"web_search_result\",\"url\":\"https://a.example\",\"title\":\"A\",\
                     \"encrypted_content\":\"{seal}\"}}]"
                )
            } else {
                "{\"type\":\"web_search_tool_result_error\",\"error_code\":\"unavailable\"}"
                    .to_owned()
            };
            hosted(
                "web_search",
                "{}",
                format!(
                    "{{\"type\":\"server_tool_use\",\"id\":\"{id}\", \"name\":\"web_search\",\"input\":{{}}}}"
                ),
                Some(format!(
                    "{{\"type\":\"web_search_tool_result\",\"tool_use_id\":\"{id}\", \"content\":{content}}}"
                )),
            )
        }
        _ => hosted(
            "bash_code_execution",
            "{\"command\":\"ls\"}",
            format!(
                "{{\"type\":\"server_tool_use\",\"id\":\"{id}\", \"name\":\"bash_code_execution\",\
                 \"input\":{{\"command\":\"ls\"}}}}"
            ),
            Some(format!(
                "{{\"type\":\"bash_code_execution_tool_result\",\"tool_use_id\":\"{id}\", \"content\":\
                 {{\"type\":\"bash_code_execution_result\",\"stdout\":\"{seal}\",\"stderr\":\"\",\"return_code\":0,\
                 \"content\":[]}}}}"
            )),
        ),
    }
}

/// A hosted call of `id` and its result. The vendors whose JSON names no id leave it out.
pub(super) fn hosted_call(tape: &mut Tape, asked: &Asked, n: u64, id: &str) -> Hosted {
    let seal = seal(n);
    match (asked.protocol, tape.pick(4)) {
        (ANTHROPIC, kind) => anthropic_hosted(kind, &seal, id),
        (RESPONSES, 0) => hosted(
            "code_interpreter_call",
            "{\"code\":\"1\"}",
            format!(
                "{{\"type\":\"code_interpreter_call\", \"id\":\"ci_{seal}\",\"status\":\"completed\",\
                 \"code\":\"1\",\"container_id\":\"cntr_1\",\"outputs\":[]}}"
            ),
            None,
        ),
        (RESPONSES, _) => hosted(
            "web_search_call",
            "{}",
            format!(
                "{{\"type\":\"web_search_call\", \"id\":\"ws_{seal}\",\"status\":\"completed\",\
                 \"action\":{{\"type\":\"search\",\"query\":\"q\"}}}}"
            ),
            None,
        ),
        (GEMINI, 0) => hosted(
            "google_search",
            "{\"queries\":[\"q\"]}",
            format!("{{\"groundingMetadata\":{{\"webSearchQueries\":[\"{seal}\"]}}}}"),
            None,
        ),
        (GEMINI, 1) => hosted(
            "GOOGLE_SEARCH_WEB",
            "{}",
            format!(
                "{{\"toolCall\":{{\"toolType\":\"GOOGLE_SEARCH_WEB\",\"args\":{{}},\"id\":\"{id}\"}},\
                 \"thoughtSignature\":\"{seal}\"}}"
            ),
            Some(format!(
                "{{\"toolResponse\":{{\"toolType\":\"GOOGLE_SEARCH_WEB\",\"response\":{{\"a\":1}},\"id\":\"{id}\"}},\
                 \"thoughtSignature\":\"{seal}\"}}"
            )),
        ),
        (GEMINI, _) => hosted(
            "code_execution",
            "{\"code\":\"print(1)\"}",
            format!(
                "{{\"executableCode\":{{\"language\":\"PYTHON\",\"code\":\"print(1)\"}},\"thoughtSignature\":\"{seal}\"}}"
            ),
            Some(
                "{\"codeExecutionResult\":{\"outcome\":\"OUTCOME_OK\", \"output\":\"1\"}}"
                    .to_owned(),
            ),
        ),
        (BEDROCK, _) => hosted(
            "nova_grounding",
            "{}",
            format!(
                "{{\"toolUse\":{{\"toolUseId\":\"{id}\", \"name\":\"nova_grounding\",\"type\":\"server_tool_use\",\
                 \"input\":{{}}}}}}"
            ),
            Some(format!(
                "{{\"toolResult\":{{\"toolUseId\":\"{id}\", \"type\":\"nova_grounding_result\",\
                 \"status\":\"success\",\"content\":[{{\"text\":\"{seal}\"}}]}}}}"
            )),
        ),
        // Chat servers show the result only.
        _ => Hosted {
            name: "search",
            input: "{}",
            call: None,
            result: Some(format!(
                "{{\"index\":0,\"type\":\"search\",\"arguments\":\"{{}}\",\"output\":\"{seal}\"}}"
            )),
            whole: false,
        },
    }
}

/// A block that is only kept: the result of a call that is not in this stream, the name of a sandbox, a list
/// of tools.
pub(super) fn opaque(tape: &mut Tape, asked: &Asked, n: u64, answers: &str) -> Option<String> {
    let seal = seal(n);
    match (asked.protocol, tape.pick(4)) {
        (ANTHROPIC, 0) => Some(format!(
            "{{\"type\":\"web_search_tool_result\",\"tool_use_id\":\"{answers}\", \"content\":[]}}"
        )),
        (ANTHROPIC, 1) => Some(format!(
            "{{\"type\":\"container\",\"id\":\"container_{n}\",\"expires_at\":\"2026-01-01T00:00:00Z\"}}"
        )),
        (ANTHROPIC, _) => Some(format!(
            "{{\"type\":\"container_upload\", \"file_id\":\"{seal}\"}}"
        )),
        (RESPONSES, 0) => Some(format!(
            "{{\"type\":\"shell_call_output\", \"id\":\"sho_{seal}\",\"call_id\":\"{answers}\",\"output\":[]}}"
        )),
        (RESPONSES, _) => Some(format!(
            "{{\"type\":\"mcp_list_tools\", \"id\":\"mcpl_{seal}\",\"server_label\":\"s\",\"tools\":[]}}"
        )),
        (GEMINI, 0) => Some(
            "{\"codeExecutionResult\":{\"outcome\":\"OUTCOME_OK\", \"output\":\"orphan\"}}"
                .to_owned(),
        ),
        (GEMINI, 1) => Some(format!(
            "{{\"toolResponse\":{{\"toolType\":\"GOOGLE_SEARCH_WEB\",\"response\":{{}},\"id\":\"{answers}\"}}}}"
        )),
        (GEMINI, 2) => Some(format!(
            "{{\"urlContextMetadata\":{{\"urlMetadata\":[\"{seal}\"]}}}}"
        )),
        (GEMINI, _) => Some(format!("{{\"thoughtSignature\":\"{seal}\"}}")),
        (BEDROCK, _) => Some(format!(
            "{{\"image\":{{\"format\":\"png\",\"source\":{{\"bytes\":\"{seal}\"}}}}}}"
        )),
        _ => Some(format!("{{\"citations\":[\"{seal}\"]}}")),
    }
}

/// A picture the model made, as the one vendor sends it that makes them among texts.
pub(super) fn picture(n: u64) -> String {
    format!(
        "{{\"inlineData\":{{\"mimeType\":\"image/png\",\"data\":\"{PNG}\"}}, \"thoughtSignature\":\"{}\"}}",
        seal(n)
    )
}
