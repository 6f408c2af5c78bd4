//! Against the shared corpus, when it is present: its requests are accepted, its streams have all keys ours have.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::{Value, json};
use tenure_scripted::Script;
use tenure_scripted::validate::{self, Broken, ChatDialect, ResponsesServer};

use crate::client::{CHAT, GEMINI, MESSAGES, RESPONSES, ask, events, post, serve};

type Check = fn(&Value) -> Result<(), Vec<Broken>>;

fn folder_of(folder: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/corpus")
        .join(folder)
}

fn accepts_all(folder: &str, check: Check, at_least: usize) {
    accepts_all_named(folder, |_, body| check(body), at_least);
}

/// As [`accepts_all`], with a check that may depend on a case's name.
fn accepts_all_named(
    folder: &str,
    check: impl Fn(&str, &Value) -> Result<(), Vec<Broken>>,
    at_least: usize,
) {
    let root = folder_of(folder);
    let Ok(entries) = std::fs::read_dir(&root) else {
        println!("skipped: no corpus at {}", root.display());
        return;
    };
    let mut seen = 0;
    let mut refused = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        if !path.to_string_lossy().ends_with(".request.json") {
            continue;
        }
        seen += 1;
        let body: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if let Err(broken) = check(&name, &body) {
            refused.push((name, broken));
        }
    }
    assert!(
        refused.is_empty(),
        "recorded requests refused: {refused:#?}"
    );
    assert!(seen >= at_least, "only {seen} requests found in {folder}");
}

#[test]
fn openai_chat_requests_of_the_corpus_pass() {
    accepts_all("openai-chat", validate::openai_chat, 81);
}

/// The servers of the corpus that have rules of their own here.
const SERVERS: [(&str, ChatDialect); 12] = [
    ("azure-openai-", ChatDialect::Azure),
    ("deepseek-", ChatDialect::Deepseek),
    ("groq-", ChatDialect::Groq),
    ("llama-cpp-", ChatDialect::LlamaCpp),
    ("mistral-", ChatDialect::Mistral),
    ("ollama-", ChatDialect::Ollama),
    ("openai-", ChatDialect::Openai),
    ("openrouter-", ChatDialect::Openrouter),
    ("perplexity-", ChatDialect::Perplexity),
    ("together-", ChatDialect::Together),
    ("vllm-", ChatDialect::Vllm),
    ("z-ai-", ChatDialect::Zai),
];

/// What a server answered with a stream, its own rules must take.
#[test]
fn requests_that_single_servers_took_pass_their_own_rules() {
    let root = folder_of("openai-chat");
    let Ok(entries) = std::fs::read_dir(&root) else {
        println!("skipped: no corpus at {}", root.display());
        return;
    };
    let (mut seen, mut refused) = (0, Vec::new());
    for entry in entries {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let server = SERVERS.iter().find(|(start, _)| name.starts_with(start));
        let Some((_, dialect)) = server.filter(|_| name.ends_with(".request.json")) else {
            continue;
        };
        seen += 1;
        let body: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        if let Err(broken) = validate::openai_chat_dialect(&body, *dialect) {
            refused.push((name, broken));
        }
    }
    println!(
        "corpus requests of single servers: {} of {seen} pass",
        seen - refused.len()
    );
    assert!(refused.is_empty(), "{refused:#?}");
    assert!(seen >= 50, "only {seen} requests found");
}

#[test]
fn openai_responses_requests_of_the_corpus_pass() {
    let check = |name: &str, body: &Value| {
        let server = match name.split('-').next() {
            Some("xai") => ResponsesServer::Xai,
            Some("openai" | "azure") => ResponsesServer::Openai,
            _ => ResponsesServer::Any,
        };
        validate::openai_responses_server(body, server)
    };
    accepts_all_named("openai-responses", check, 33);
}

#[test]
fn anthropic_messages_requests_of_the_corpus_pass() {
    accepts_all("anthropic-messages", validate::anthropic_messages, 36);
}

#[test]
fn gemini_requests_of_the_corpus_pass() {
    accepts_all("gemini", validate::gemini, 30);
}

/// The paths of all keys in a value, lists collapsed; what a tool takes or returns is its own affair.
fn key_paths(value: &Value, at: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Array(list) => list
            .iter()
            .for_each(|v| key_paths(v, &format!("{at}[]"), into)),
        Value::Object(fields) => {
            for (key, v) in fields {
                let here = format!("{at}.{key}");
                if !["input", "action", "metadata", "args"].contains(&key.as_str()) {
                    key_paths(v, &here, into);
                }
                into.insert(here);
            }
        }
        _ => {}
    }
}

fn shapes(events: &[(String, Value)]) -> BTreeMap<String, BTreeSet<String>> {
    let mut shapes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (_, data) in events {
        let kind = data["type"]
            .as_str()
            .or(data["object"].as_str())
            .unwrap_or("");
        key_paths(data, "", shapes.entry(kind.to_owned()).or_default());
    }
    shapes
}

async fn keys_are_known(folder: &str, path: &str) {
    let Ok(entries) = std::fs::read_dir(folder_of(folder)) else {
        println!("skipped: no corpus");
        return;
    };
    let mut recorded: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in entries {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|e| e == "sse") {
            for (kind, keys) in shapes(&events(&std::fs::read(file).unwrap())) {
                recorded.entry(kind).or_default().extend(keys);
            }
        }
    }
    let script = Script::parse(
        "version = 1\n[[turn]]\npart = [{ reasoning = \"hm\" }, { reasoning = \"\", redacted = true }, \
         { hosted = { name = \"web_search\", result = [] } }, { text = \"hi\" }, { call = { name = \"a\" } }]",
    )
    .unwrap();
    let handle = serve(script).await;
    let ours = shapes(&post(&handle, path, &ask(path, "x")).await.events());
    for (kind, keys) in ours {
        // Documented by the vendor, with the keys of its siblings; no recording happens to have it.
        let recorded_as = if kind == "response.web_search_call.completed" {
            "response.web_search_call.searching"
        } else {
            &kind
        };
        let known = recorded
            .get(recorded_as)
            .unwrap_or_else(|| panic!("no recording has {kind:?}"));
        let unknown: Vec<&String> = keys.difference(known).collect();
        assert!(unknown.is_empty(), "{kind:?}: no recording has {unknown:?}");
    }
}

#[tokio::test]
async fn chat_streams_have_only_keys_that_were_recorded() {
    keys_are_known("openai-chat", CHAT).await;
}

#[tokio::test]
async fn responses_streams_have_only_keys_that_were_recorded() {
    keys_are_known("openai-responses", RESPONSES).await;
}

#[tokio::test]
async fn messages_streams_have_only_keys_that_were_recorded() {
    keys_are_known("anthropic-messages", MESSAGES).await;
}

#[tokio::test]
async fn gemini_streams_have_only_keys_that_were_recorded() {
    keys_are_known("gemini", GEMINI).await;
}

#[test]
fn the_shape_check_sees_an_unknown_key() {
    let ours = shapes(&[(
        String::new(),
        json!({"type": "t", "a": [{"b": 1}], "input": {"free": 1}}),
    )]);
    let expected = [".a", ".a[].b", ".input", ".type"].map(str::to_owned);
    assert_eq!(ours["t"], BTreeSet::from(expected));
}
