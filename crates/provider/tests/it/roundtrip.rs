//! Every recorded stream through a whole session: decoded, made durable, read back, built into the next request,
//! encoded, and judged by the vendor's independent validator. Also for another vendor, as after a switch.

use crate::corpus::{Case, VENDORS, Vendor, cases};
use crate::fold::fold;
use crate::session::Session;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use tenure_core::model::ModelLimits;
use tenure_core::provider::ProviderEvent;
use tenure_core::request::{AssistantBlock, Request, RequestMessage};
use tenure_provider::{Decoder, Dialect, Protocol, encode};
use tenure_scripted::validate::{self, Broken, ChatDialect, ResponsesServer};

/// A server of one of OpenAI's protocols: how its recorded cases begin, its host, and its name among the validators.
const SERVERS: [(&str, &str, ChatDialect); 8] = [
    ("openai-", "api.openai.com", ChatDialect::Openai),
    ("azure-", "x.openai.azure.com", ChatDialect::Azure),
    ("mistral-", "api.mistral.ai", ChatDialect::Mistral),
    ("deepseek-", "api.deepseek.com", ChatDialect::Deepseek),
    ("openrouter-", "openrouter.ai", ChatDialect::Openrouter),
    ("groq-", "api.groq.com", ChatDialect::Groq),
    ("xai-", "api.x.ai", ChatDialect::Xai),
    ("cerebras-", "api.cerebras.ai", ChatDialect::Cerebras),
];

/// The endpoint of a recorded case: its habits for the encoder, and for the validator.
fn server(case: &str) -> (Dialect, ChatDialect) {
    let server = SERVERS.iter().find(|(name, ..)| case.starts_with(name));
    let (host, judge) = server.map_or(("model.example", ChatDialect::Any), |s| (s.1, s.2));
    (Dialect::of_host(host), judge)
}

/// What the vendor's own validator finds in a body.
fn broken(protocol: Protocol, model: &str, server: ChatDialect, body: &[u8]) -> Vec<String> {
    let body: Value = serde_json::from_slice(body).unwrap();
    let verdict = match protocol {
        Protocol::OpenaiChat => validate::openai_chat_dialect(&body, server),
        Protocol::OpenaiResponses => {
            let server = match server {
                ChatDialect::Xai => ResponsesServer::Xai,
                ChatDialect::Openai | ChatDialect::Azure => ResponsesServer::Openai,
                _ => ResponsesServer::Any,
            };
            validate::openai_responses_server(&body, server)
        }
        Protocol::AnthropicMessages => validate::anthropic_messages(&body),
        Protocol::Gemini if model.starts_with("gemini-3") => validate::gemini_3(&body),
        Protocol::Gemini => validate::gemini(&body),
        Protocol::BedrockConverse => validate::bedrock_converse(&body),
    };
    let broken = verdict.err().unwrap_or_default();
    let line = |b: &Broken| format!("{} at {}: {}", b.rule, b.at, b.message);
    broken.iter().map(line).collect()
}

/// Decodes in the pieces a network would give.
fn batches(protocol: Protocol, body: &[u8]) -> Vec<Vec<ProviderEvent>> {
    let mut decoder = Decoder::new(protocol);
    let mut batches: Vec<_> = body.chunks(1400).map(|chunk| decoder.feed(chunk)).collect();
    batches.push(decoder.end());
    batches
}

/// Keys of native state that carry what a provider signed or sealed, or that hold such keys.
const SEALED: [&str; 8] = [
    "redactedContent",
    "signature",
    "data",
    "encrypted_content",
    "thinking",
    "reasoning_details",
    "thoughtSignature",
    "thought_signature",
];

/// The exact JSON text of everything sealed in a piece of native state.
fn sealed(native: &str, into: &mut Vec<String>) {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(native).unwrap();
    for (key, value) in fields {
        let text = value.get();
        if SEALED.contains(&key.as_str()) && !matches!(text, "null" | "\"\"" | "[]") {
            into.push(text.to_owned());
        } else if text.starts_with('{') {
            sealed(text, into);
        } else if key == "parts" {
            let parts: Vec<&RawValue> = serde_json::from_str(text).unwrap();
            parts.iter().for_each(|part| sealed(part.get(), into));
        }
    }
}

/// The pieces of reasoning state in a request's own words.
fn states(request: &Request) -> Vec<String> {
    let mut found = Vec::new();
    for message in &request.messages {
        let RequestMessage::Assistant { blocks } = message else {
            continue;
        };
        // A message of reasoning alone is left out: no vendor takes one.
        if blocks
            .iter()
            .all(|block| matches!(block, AssistantBlock::Reasoning { .. }))
        {
            continue;
        }
        for block in blocks {
            let native = match block {
                AssistantBlock::Reasoning { native, .. }
                | AssistantBlock::Text { native, .. }
                | AssistantBlock::ToolCall { native, .. } => native.as_deref(),
                AssistantBlock::Opaque { native } => Some(native.as_str()),
                AssistantBlock::Hosted { .. } => None,
            };
            if let Some(native) = native {
                sealed(native, &mut found);
            }
        }
    }
    found
}

/// What came of one case.
#[derive(Default)]
struct Outcome {
    wrong: Vec<String>,
    /// Pieces of reasoning state in the encoded body.
    states: usize,
    calls: usize,
}

fn round_trip(vendor: &Vendor, case: &Case) -> Outcome {
    let mut outcome = Outcome::default();
    let batches = batches(vendor.protocol, &case.body);
    let said = fold(&batches.concat());
    let model = case.expected["model"].as_str().unwrap_or("a-model");
    let mut session = Session::begin(vendor.protocol, model);
    session.user("What now?");
    session.step(batches);
    let stored = session.stored();
    let mut session = Session::read_back(vendor.protocol, model, &stored);
    assert_eq!(session.stored(), stored, "{}: other events", case.name);

    session.user("And then?");
    let names = said.calls.iter().map(|call| call.name.clone());
    let request = session.request(vendor.protocol, names.clone());
    let limits = ModelLimits {
        output: Some(4096),
        context: None,
    };
    let (dialect, server) = server(&case.name);
    let encoded = match encode(vendor.protocol, dialect, &limits, &request) {
        Ok(encoded) => encoded,
        Err(error) => {
            outcome.wrong.push(error.message);
            return outcome;
        }
    };
    outcome
        .wrong
        .extend(broken(vendor.protocol, model, server, &encoded.body));
    let body = String::from_utf8(encoded.body.to_vec()).unwrap();
    for state in states(&request) {
        outcome.states += 1;
        if !body.contains(&state) {
            let start: String = state.chars().take(80).collect();
            outcome.wrong.push(format!("lost reasoning state {start}"));
        }
    }
    // What the decoder sealed and the log kept has come as far as the request.
    let mut decoded = Vec::new();
    for (_, native) in &said.reasonings {
        native
            .iter()
            .for_each(|native| sealed(native, &mut decoded));
    }
    let kept = states(&request);
    let lost = decoded.iter().filter(|state| !kept.contains(state)).count();
    let nothing_else = said.text.trim().is_empty() && said.calls.is_empty();
    if lost > 0 && said.finish.is_some() && !nothing_else {
        outcome
            .wrong
            .push(format!("{lost} pieces of reasoning state left the history"));
    }
    for id in session.ran() {
        outcome.calls += 1;
        if !body.contains(&format!("ran {id}")) {
            outcome.wrong.push(format!("no result of {id}"));
        }
    }
    outcome
        .wrong
        .extend(at_openai(vendor.protocol, &limits, &request));
    for other in VENDORS.iter().filter(|v| v.protocol != vendor.protocol) {
        let request = session.request(other.protocol, names.clone());
        match encode(other.protocol, Dialect::default(), &limits, &request) {
            Ok(encoded) => {
                let switch = format!("after a switch to {}: ", other.folder);
                let found = broken(
                    other.protocol,
                    &encoded.model,
                    ChatDialect::Any,
                    &encoded.body,
                );
                outcome
                    .wrong
                    .extend(found.iter().map(|line| format!("{switch}{line}")));
                let body = String::from_utf8_lossy(&encoded.body).into_owned();
                // Short values could be there by chance.
                let foreign = decoded.iter().filter(|state| state.len() > 40);
                if foreign.into_iter().any(|state| body.contains(state)) {
                    outcome
                        .wrong
                        .push(format!("{switch}foreign reasoning state"));
                }
            }
            Err(error) => outcome.wrong.push(error.message),
        }
    }
    outcome
}

/// What OpenAI's own endpoint finds in a request whose history another server of its protocol made: a provider of the
/// configuration whose address was changed keeps its name, and so its sessions their items.
fn at_openai(protocol: Protocol, limits: &ModelLimits, request: &Request) -> Vec<String> {
    if protocol != Protocol::OpenaiResponses {
        return Vec::new();
    }
    let encoded = encode(protocol, Dialect::Openai, limits, request).unwrap();
    let found = broken(protocol, &encoded.model, ChatDialect::Openai, &encoded.body);
    let body = String::from_utf8_lossy(&encoded.body).into_owned();
    let kept = states(request);
    let lost = kept.iter().filter(|state| !body.contains(*state)).count();
    found
        .iter()
        .map(|line| format!("at OpenAI's own endpoint: {line}"))
        .chain((lost > 0).then(|| format!("at OpenAI's own endpoint: {lost} states lost")))
        .collect()
}

#[test]
fn corpus_streams_survive_the_log_and_the_next_request() {
    let mut bad = Vec::new();
    for vendor in VENDORS {
        let cases = cases(vendor);
        let (mut good, mut states, mut calls) = (0, 0, 0);
        for case in &cases {
            let outcome = round_trip(vendor, case);
            good += usize::from(outcome.wrong.is_empty());
            states += outcome.states;
            calls += outcome.calls;
            for line in &outcome.wrong {
                let line: String = line.chars().take(400).collect();
                bad.push(format!("{}: {line}", case.name));
            }
        }
        if !cases.is_empty() {
            println!(
                "round trip {}: {good} of {} sessions valid for their vendor and after a switch to each other one; {states} pieces of reasoning state byte-identical, {calls} calls with their results",
                vendor.folder,
                cases.len()
            );
        }
    }
    assert!(bad.is_empty(), "{} faults\n{}", bad.len(), bad.join("\n"));
}
