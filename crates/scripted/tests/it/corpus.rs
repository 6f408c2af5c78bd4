//! The validators accept every recorded request of the shared corpus, when it is present.

use std::path::PathBuf;

use serde_json::Value;
use tenure_scripted::validate::{self, Broken};

type Check = fn(&Value) -> Result<(), Vec<Broken>>;

fn accepts_all(folder: &str, check: Check, at_least: usize) {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/corpus")
        .join(folder);
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
        if let Err(broken) = check(&body) {
            refused.push((path.file_name().unwrap().to_owned(), broken));
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

#[test]
fn openai_responses_requests_of_the_corpus_pass() {
    accepts_all("openai-responses", validate::openai_responses, 33);
}

#[test]
fn anthropic_messages_requests_of_the_corpus_pass() {
    accepts_all("anthropic-messages", validate::anthropic_messages, 36);
}
