//! What of a request a provider refuses, read from its code and its words.
//!
//! What is left out after a refusal stays out, so a word that merely occurs in it is not enough: thinking goes
//! only when its signature, its seal or its place is refused, pictures only when they are spoken of.

use crate::error::SessionError;

/// What was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// The provider's own state: a signature, sealed reasoning, a field only some models know.
    State,
    /// To be asked for a summary of what the model thinks: OpenAI tells it only to verified organisations.
    Thoughts,
    /// An image or a document.
    Media,
    /// The request, without a word of what in it.
    Unsaid,
}

/// What `error` refuses; `None` when it is no refusal of a request's content.
pub(super) fn of(error: &SessionError) -> Option<Refused> {
    let form = matches!(error.kind.as_str(), "invalid_request" | "request_too_large");
    // Some servers refuse a picture or a sealed item with 404 or 500: there the words have to be plain.
    let other = matches!(error.kind.as_str(), "not_found" | "server" | "unknown");
    if !form && !other {
        return None;
    }
    let code = error.code.as_deref().unwrap_or_default();
    let text = plain(&error.message);
    if form && (text.contains("reasoning summar") || text.contains("reasoning.summary")) {
        return Some(Refused::Thoughts);
    }
    if STATE_CODES.contains(&code) || state_worded(&text) {
        return Some(Refused::State);
    }
    // A body that is too large has nothing that weighs more.
    let weighs = error.kind == "request_too_large";
    if weighs || (media_worded(&text) && (form || cannot_be_read(&text))) {
        return Some(Refused::Media);
    }
    form.then_some(Refused::Unsaid)
}

/// In lower case, without the marks that vendors put around names.
fn plain(message: &str) -> String {
    let mut text = message.to_ascii_lowercase();
    text.retain(|c| !matches!(c, '`' | '\'' | '"'));
    text
}

const STATE_CODES: [&str; 2] = ["invalid_encrypted_content", "invalid_thought_signature"];

fn state_worded(text: &str) -> bool {
    let any = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let sealed = [
        // OpenAI: sealed reasoning of another organisation, or of a model that is gone.
        "encrypted content",
        "encrypted_content",
        // OpenAI: reasoning and the item behind it only go together.
        "of type reasoning",
        "required reasoning item",
        "reasoning item",
        // Gemini: on calls and on text.
        "thought signature",
        "thought_signature",
        "thoughtsignature",
        // Anthropic, also behind Bedrock and Vertex: the block, its place, its data.
        "thinking block",
        "thinking blocks",
        "redacted_thinking",
        "expected thinking",
    ];
    let signed = text.contains("signature") && any(&["thinking", "reasoning"]);
    let forgotten = text.contains("item with id rs_") && text.contains("not found");
    // Servers of Chat Completions that do not know another's fields.
    let unknown_field = any(&["reasoning_content", "reasoning_details", "extra_content"])
        && any(&[
            "support",
            "not permitted",
            "not allowed",
            "unknown",
            "unrecognized",
            "unexpected",
            "extra inputs",
        ]);
    any(&sealed) || signed || forgotten || unknown_field
}

/// Is an image or a document spoken of? A tool may be called `read_file`: only whole words count.
fn media_worded(text: &str) -> bool {
    let begins = [
        "image",
        "picture",
        "pixel",
        "pdf",
        "document",
        "media",
        "mime",
        "base64",
        "input_image",
        "input_file",
        "inline_data",
        "inlinedata",
        "multimodal",
        "vision",
    ];
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|word| {
            begins.iter().any(|begin| word.starts_with(begin))
                || matches!(word, "file" | "files" | "file_data" | "file_url")
        })
}

/// Does it say that something is not taken or cannot be read?
fn cannot_be_read(text: &str) -> bool {
    [
        "support",
        "multimodal",
        "required for image",
        "process input image",
        "process image",
        "decode image",
        "load image",
        "does not accept",
        "cannot accept",
    ]
    .iter()
    .any(|word| text.contains(word))
}
