//! What the vendors' validators and the log itself say about a request of a random session.

use serde_json::Value;
use std::collections::{HashMap, HashSet};
use tenure_core::history::RequestPlan;
use tenure_core::model::ModelLimits;
use tenure_core::provider::NativeState;
use tenure_core::request::{AssistantBlock, Effort, HostedTool, Request, RequestMessage, ToolDef};
use tenure_core::{Event, EventBody};
use tenure_provider::{Dialect, Protocol, encode};
use tenure_scripted::validate::{self, ChatDialect};
use tenure_sim::randomlog::{ANTHROPIC, Asked, BEDROCK, CHAT, GEMINI, MODELS, RESPONSES, seals};

/// What the configuration asks for; `n` goes through all of it.
pub fn plan(asked: &Asked, n: usize, tools: bool, last_step: bool) -> RequestPlan {
    let tool = |name: &str| ToolDef {
        name: name.to_owned(),
        description: "A tool.".to_owned(),
        input_schema: serde_json::json!({"type": "object", "properties": {}}),
    };
    let hosted = [HostedTool::WebSearch, HostedTool::CodeExecution];
    RequestPlan {
        model: asked.reference(),
        protocol: asked.protocol.to_owned(),
        tools: if tools {
            vec![tool("bash"), tool("read")]
        } else {
            Vec::new()
        },
        last_step,
        max_output: Some(4_000),
        cache_key: "ses_1".to_owned(),
        hosted_tools: hosted[..n % 3].to_vec(),
        effort: [None, Some(Effort::Off), Some(Effort::Low), None][n % 4],
        blind: asked.blind,
    }
}

fn protocol(asked: &Asked) -> Protocol {
    match asked.protocol {
        ANTHROPIC => Protocol::AnthropicMessages,
        RESPONSES => Protocol::OpenaiResponses,
        CHAT => Protocol::OpenaiChat,
        GEMINI => Protocol::Gemini,
        BEDROCK => Protocol::BedrockConverse,
        other => panic!("no protocol for {other}"),
    }
}

/// The dialects `asked` may be spoken to in: one for other protocols, all for Chat.
pub fn dialects(asked: &Asked) -> Vec<Dialect> {
    if asked.protocol == CHAT {
        Dialect::all().collect()
    } else {
        vec![Dialect::Common]
    }
}

/// The body of `request`.
pub fn body(asked: &Asked, request: &Request, dialect: Dialect) -> String {
    let limits = ModelLimits {
        context: None,
        output: None,
    };
    let encoded = encode(protocol(asked), dialect, &limits, request).expect("something to send");
    String::from_utf8(encoded.body.to_vec()).expect("JSON is UTF-8")
}

/// What the vendor would answer.
pub fn check(asked: &Asked, dialect: Dialect, body: &str) -> Result<(), String> {
    let value: Value = serde_json::from_str(body).expect("JSON");
    let verdict = match protocol(asked) {
        Protocol::AnthropicMessages => validate::anthropic_messages(&value),
        Protocol::OpenaiResponses => validate::openai_responses(&value),
        Protocol::Gemini if asked.model.starts_with("gemini-3") => validate::gemini_3(&value),
        Protocol::Gemini => validate::gemini(&value),
        Protocol::BedrockConverse => validate::bedrock_converse_model(asked.model, &value),
        _ => {
            let server = ChatDialect::of_word(dialect.as_str()).unwrap_or(ChatDialect::Any);
            validate::openai_chat_dialect(&value, server)
        }
    };
    verdict.map_err(|broken| format!("{asked:?} {dialect:?}: {broken:#?}\n{body}"))
}

/// Every call has its one result directly behind its message, and no id is used twice.
pub fn assert_paired(request: &Request) {
    let mut seen: HashMap<&str, u32> = HashMap::new();
    let mut messages = request.messages.iter().peekable();
    while let Some(message) = messages.next() {
        let RequestMessage::Assistant { blocks } = message else {
            assert!(
                !matches!(message, RequestMessage::ToolResults { .. }),
                "results without calls"
            );
            continue;
        };
        let calls: Vec<&str> = blocks
            .iter()
            .filter_map(|b| match b {
                AssistantBlock::ToolCall { id, .. } => Some(id.as_str()),
                _ => None,
            })
            .collect();
        for id in &calls {
            *seen.entry(id).or_insert(0) += 1;
        }
        if calls.is_empty() {
            continue;
        }
        let Some(RequestMessage::ToolResults { results }) = messages.next() else {
            panic!("{calls:?} have no results")
        };
        let answered: Vec<&str> = results.iter().map(|r| r.id.as_str()).collect();
        assert_eq!(calls, answered);
    }
    assert!(seen.values().all(|n| *n == 1), "{seen:?}");
}

fn family(model: &str) -> Option<&'static str> {
    MODELS.iter().find(|m| m.model == model).map(|m| m.family)
}

/// The marks of all state that `asked` made itself, in attempts that were not given up.
fn own<'a>(events: &'a [Event], asked: &Asked) -> HashSet<&'a str> {
    let mut own: HashSet<&str> = HashSet::new();
    let mut attempt: Vec<&NativeState> = Vec::new();
    let ours = |state: &NativeState| {
        state.protocol == asked.protocol
            && state.provider == asked.provider
            && family(&state.model) == Some(asked.family)
    };
    let keep = |attempt: &mut Vec<&'a NativeState>, own: &mut HashSet<&'a str>| {
        let kept = attempt.drain(..).filter(|state| ours(state));
        own.extend(kept.flat_map(|state| seals(&state.native)));
    };
    for event in events {
        match &event.body {
            EventBody::FragmentEnded(e) => attempt.extend(&e.native),
            EventBody::ToolCalled(e) => attempt.extend(&e.native),
            EventBody::ToolSucceeded(e) => attempt.extend(&e.native),
            EventBody::ToolFailed(e) => attempt.extend(&e.native),
            EventBody::BlockRecorded(e) => attempt.push(&e.native),
            EventBody::StepStarted(_) | EventBody::RetryScheduled(_) => attempt.clear(),
            EventBody::StepEnded(_) | EventBody::StepFailed(_) | EventBody::SessionForked(_) => {
                keep(&mut attempt, &mut own);
            }
            _ => {}
        }
    }
    own
}

/// Nothing of another provider's, family's or protocol's state is in the body, nor of a given-up attempt.
pub fn assert_no_foreign(events: &[Event], asked: &Asked, body: &str) -> Result<usize, String> {
    let own = own(events, asked);
    let mut found = 0;
    for mark in seals(body) {
        if !own.contains(mark) {
            return Err(format!("{mark} is not {asked:?}'s own in {body}"));
        }
        found += 1;
    }
    Ok(found)
}

/// The provider's own JSON that has to be in the body byte for byte.
///
/// Left out here is what the vendor's rules keep out: thinking while it is turned off, a message that says
/// nothing, blocks that stand for something elsewhere.
pub fn returning<'a>(asked: &Asked, request: &'a Request, body: &str) -> Vec<&'a str> {
    let silent = asked.protocol == ANTHROPIC
        && asked.model.contains("opus-5")
        && body.contains("\"thinking\":{\"type\":\"disabled\"}")
        || asked.protocol == BEDROCK && request.effort == Some(Effort::Off);
    // Converse takes back reasoning only.
    let all = asked.protocol != BEDROCK;
    let mut natives = Vec::new();
    for message in &request.messages {
        let RequestMessage::Assistant { blocks } = message else {
            continue;
        };
        if asked.protocol == CHAT || !says_something(asked, blocks) || unsealed(blocks) {
            continue;
        }
        for block in blocks {
            match block {
                AssistantBlock::Text { native, .. } if all => {
                    natives.extend(native.as_deref().map(parts));
                }
                AssistantBlock::Reasoning { native, .. } if !silent => {
                    let alone = |n: &&str| !n.contains("\"thinking\":\"\"");
                    let seals_alone = asked.model.contains("opus-5");
                    natives.extend(native.as_deref().filter(|n| seals_alone || alone(n)));
                }
                AssistantBlock::Hosted {
                    call: Some(call),
                    result: Some(result),
                    ..
                } if all => natives.extend([call.as_str(), result.as_str()]),
                AssistantBlock::Opaque { native } if all && !elsewhere(native) => {
                    natives.push(native)
                }
                _ => {}
            }
        }
    }
    natives
}

/// A run of Gemini's parts is kept as a list, and its parts go back in a larger one.
fn parts(native: &str) -> &str {
    let list = native.strip_prefix("{\"parts\":[");
    list.and_then(|list| list.strip_suffix("]}"))
        .unwrap_or(native)
}

/// A message of a Gemini model without a word in it is left out whole.
fn says_something(asked: &Asked, blocks: &[AssistantBlock]) -> bool {
    asked.protocol != GEMINI
        || blocks.iter().any(|block| match block {
            AssistantBlock::Text { text, native } => {
                !text.trim().is_empty() || native.as_ref().is_some_and(|n| n.contains("inlineData"))
            }
            AssistantBlock::Hosted { .. } | AssistantBlock::Opaque { .. } => false,
            AssistantBlock::ToolCall { .. } => true,
            AssistantBlock::Reasoning { .. } => false,
        })
}

/// Items next to reasoning that cannot go back lose their names with it.
fn unsealed(blocks: &[AssistantBlock]) -> bool {
    blocks.iter().any(|block| {
        matches!(block, AssistantBlock::Reasoning { native: Some(native), .. }
            if native.contains("\"rs_") && !native.contains("encrypted_content"))
    })
}

fn elsewhere(native: &str) -> bool {
    [
        "\"container\"",
        "urlContextMetadata",
        // Results without their calls, and a signature that gets a text to it.
        "codeExecutionResult",
        "toolResponse",
        "{\"thoughtSignature\"",
    ]
    .iter()
    .any(|word| native.contains(word))
}
