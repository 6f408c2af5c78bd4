//! From the conversation to a request that its provider accepts, whatever happened before (P3).
//!
//! Guarantees, for every log: each tool call in the request has exactly one result, right behind its
//! message; call ids are unique in the request; no block is empty; a provider's own JSON goes back byte for
//! byte, and only to the protocol, provider and model family that made it; superseded attempts are left out.

use crate::event::body::InputKind;
use crate::message::*;
use crate::model::{Blind, ModelRef};
use crate::provider::{Finish, NativeState};
use crate::request::*;
use crate::session::{SessionState, Withheld};
use std::borrow::Cow;
use std::collections::HashMap;

/// What the runner adds to the conversation to make a request.
#[derive(Debug, Clone)]
pub struct RequestPlan {
    /// The model asked.
    pub model: ModelRef,
    /// The protocol it is asked in.
    pub protocol: String,
    /// Tool definitions, in stable order.
    pub tools: Vec<ToolDef>,
    /// The last allowed step: tools stay defined and may not be called.
    pub last_step: bool,
    /// Limit on generated tokens.
    pub max_output: Option<u64>,
    /// Key for the provider's prompt cache.
    pub cache_key: String,
    /// Tools the provider may run itself.
    pub hosted_tools: Vec<HostedTool>,
    /// How hard the model should think.
    pub effort: Option<Effort>,
    /// What the model is known not to see: it reads words in its place.
    pub blind: Blind,
}

/// What the model is told in the last allowed step.
pub const LAST_STEP_NOTICE: &str = "This is the last step allowed for this turn: tools cannot be called \
now. Say what was done, what is left, and how to go on.";

/// What the model is told behind a response that hit its output limit.
pub const LENGTH_NOTICE: &str = "Your response above was cut off at the output limit. Go on in smaller \
steps: shorter texts, and large files in several calls.";

/// Stands for an input that holds no words.
const EMPTY_INPUT: &str = "(an empty message)";

/// Builds the request for the next step.
pub fn build(state: &SessionState, plan: &RequestPlan) -> Request {
    let mut builder = Builder {
        plan,
        withheld: &state.withheld,
        messages: Vec::new(),
        ids: HashMap::new(),
        bare: false,
    };
    if let Some(summary) = &state.summary {
        builder.user(vec![UserPart::Text(format!(
            "Summary of the conversation so far (older messages were replaced by it):\n\n{}",
            summary.text
        ))]);
        if let Some((pinned, seq)) = summary.pinned() {
            builder.input(pinned, seq);
        }
    }
    for entry in &state.entries {
        match entry.as_ref() {
            Entry::Input { input, seq, .. } => builder.input(input, *seq),
            Entry::Note { text, .. } => builder.system(text),
            Entry::Assistant(message) => builder.assistant(message),
        }
    }
    if plan.last_step {
        builder.system(LAST_STEP_NOTICE);
    }
    let wishes = wishes(state);
    Request {
        model: plan.model.clone(),
        system: state
            .instructions
            .as_ref()
            .map(|i| i.parts.clone())
            .unwrap_or_default(),
        messages: builder.messages,
        tools: plan.tools.clone(),
        tool_choice: if plan.last_step {
            ToolChoice::None
        } else {
            ToolChoice::Auto
        },
        max_output: plan.max_output,
        cache_key: plan.cache_key.clone(),
        hosted_tools: plan.hosted_tools.clone(),
        output_schema: wishes.schema.cloned(),
        effort: wishes.effort.or(plan.effort),
        hide_thoughts: state.withheld.thoughts,
    }
}

/// What the newest prompt asks of its answer.
#[derive(Default)]
struct Wishes<'a> {
    schema: Option<&'a OutputSchema>,
    effort: Option<Effort>,
}

fn wishes(state: &SessionState) -> Wishes<'_> {
    let newest = state
        .entries
        .iter()
        .rev()
        .find_map(|entry| match entry.as_ref() {
            Entry::Input {
                input: input @ InputKind::User { .. },
                ..
            } => Some(input),
            _ => None,
        });
    let pinned = || state.summary.as_ref()?.pinned.as_ref();
    match newest.or_else(pinned) {
        Some(InputKind::User { schema, effort, .. }) => Wishes {
            schema: schema.as_ref(),
            effort: *effort,
        },
        _ => Wishes::default(),
    }
}

/// An input as the model reads it, some of its images and documents in words.
fn said(input: &InputKind, hidden: impl Fn(&Media) -> bool) -> Vec<UserPart> {
    let texts = input_parts(input).into_iter().map(UserPart::Text);
    let media = match input {
        InputKind::User { media, .. } => media.as_slice(),
        _ => &[],
    };
    // Vendors advise to show what is asked about before the question.
    media
        .iter()
        .map(|media| {
            if hidden(media) {
                UserPart::Text(withheld_media(media))
            } else {
                UserPart::Media(media.clone())
            }
        })
        .chain(texts)
        .collect()
}

/// Stands for an image or a document with which a request was refused, or that the model is known not to see.
fn withheld_media(media: &Media) -> String {
    format!(
        "[{} ({}) was attached here. It is not shown: the model or its provider does not take it.]",
        media.name, media.media_type
    )
}

/// The text parts of an input as the model reads them; media are not among them.
pub fn input_parts(input: &InputKind) -> Vec<String> {
    match input {
        InputKind::User { text, files, .. } => {
            let mut parts: Vec<String> = files
                .iter()
                .map(|file| format!("<file name=\"{}\">\n{}\n</file>", file.name, file.text))
                .collect();
            parts.push(text.clone());
            parts
        }
        InputKind::Synthetic { text } => vec![text.clone()],
        InputKind::Compaction | InputKind::Move { .. } => Vec::new(),
    }
}

/// A model's family: its name without a trailing date or `-latest`.
fn family(model: &str) -> &str {
    let model = model.strip_suffix("-latest").unwrap_or(model);
    match model.rsplit_once('-') {
        Some((family, date)) if date.len() == 8 && date.bytes().all(|b| b.is_ascii_digit()) => {
            family
        }
        _ => model,
    }
}

struct Builder<'a> {
    plan: &'a RequestPlan,
    withheld: &'a Withheld,
    messages: Vec<RequestMessage>,
    /// How often each call id was used so far.
    ids: HashMap<String, u32>,
    /// The message at hand goes without its provider's own state.
    bare: bool,
}

impl Builder<'_> {
    fn user(&mut self, mut parts: Vec<UserPart>) {
        parts.retain(|part| part.as_text().is_none_or(|text| !text.trim().is_empty()));
        if parts.is_empty() {
            // Left out, it could leave the vendor a request without any message.
            parts.push(EMPTY_INPUT.into());
        }
        self.messages.push(RequestMessage::User { parts });
    }

    fn input(&mut self, input: &InputKind, seq: u64) {
        let refused = self.withheld.hides_media(seq);
        let blind = self.plan.blind;
        self.user(said(input, |media| refused || blind.is_to(media)));
    }

    fn system(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.messages.push(RequestMessage::System {
                text: text.to_owned(),
            });
        }
    }

    fn native(&self, native: Option<&NativeState>) -> Option<String> {
        native
            .filter(|n| {
                !self.bare
                    && n.protocol == self.plan.protocol
                    && n.provider == self.plan.model.provider
                    && family(&n.model) == family(&self.plan.model.model)
            })
            .map(|n| n.native.clone())
    }

    /// A call id that no earlier call of the request has, the same in every request of this log.
    fn unique_id(&mut self, id: &str) -> String {
        let mut candidate = id.to_owned();
        loop {
            let uses = self.ids.entry(candidate.clone()).or_insert(0);
            *uses += 1;
            if *uses == 1 {
                return candidate;
            }
            candidate = format!("{id}_{uses}");
        }
    }

    fn assistant(&mut self, message: &AssistantMessage) {
        let finish = message.end.as_ref().map(|end| end.finish);
        let paused = finish == Some(Finish::Pause);
        self.bare = self.withheld.hides_reasoning(message.seq);
        let mut blocks = Vec::new();
        let mut results = Vec::new();
        for part in message.parts.iter().filter(|part| !part.superseded) {
            match &part.kind {
                PartKind::Text(text) => {
                    let native = self.native(text.native.as_ref()).filter(|_| text.complete);
                    if native.is_some() || !text.text.trim().is_empty() {
                        blocks.push(AssistantBlock::Text {
                            text: text.text.clone(),
                            native,
                        });
                    }
                }
                PartKind::Reasoning(text) => {
                    if let Some(native) =
                        self.native(text.native.as_ref()).filter(|_| text.complete)
                    {
                        blocks.push(AssistantBlock::Reasoning {
                            text: text.text.clone(),
                            native: Some(native),
                        });
                    }
                }
                PartKind::Opaque { native } => {
                    if let Some(native) = self.native(Some(native)) {
                        self.opaque(native, &mut blocks);
                    }
                }
                PartKind::Tool(tool) if tool.executed => {
                    self.hosted(tool, paused, &mut blocks);
                }
                PartKind::Tool(tool) => self.local(tool, &mut blocks, &mut results),
            }
        }
        if !(POSITIONLESS.contains(&self.plan.protocol.as_str())
            && blocks.iter().any(says_something))
        {
            drop_dangling_reasoning(&mut blocks);
        }
        if !blocks.is_empty() {
            self.messages.push(RequestMessage::Assistant { blocks });
        }
        if !results.is_empty() {
            self.messages.push(RequestMessage::ToolResults { results });
        }
        if finish == Some(Finish::Length) {
            self.system(LENGTH_NOTICE);
        }
    }

    fn local(
        &mut self,
        tool: &ToolPart,
        blocks: &mut Vec<AssistantBlock>,
        results: &mut Vec<ToolResult>,
    ) {
        // A call whose input never arrived, or is not an object, goes back as an empty one: the vendor
        // would refuse the raw text, and the result says what was wrong.
        let (input, native) = match &tool.input {
            Some(input) if !input.trim().is_empty() && input_error(input).is_none() => {
                (input.clone(), self.native(tool.native.as_ref()))
            }
            _ => ("{}".to_owned(), None),
        };
        let id = self.unique_id(tool.call.as_str());
        let name = legal_name(&tool.name);
        let native = native.filter(|_| id == tool.call.as_str() && name == tool.name);
        results.push(ToolResult {
            id: id.clone(),
            name: name.clone().into_owned(),
            text: result_text(tool),
            is_error: tool.outcome.as_ref().is_none_or(|o| o.failure.is_some()),
        });
        blocks.push(AssistantBlock::ToolCall {
            id,
            name: name.into_owned(),
            input,
            native,
        });
    }

    /// A hosted call goes back as it was to its own provider, with its result or not at all; any other
    /// provider reads it as text. Only the call a turn was paused at is answered later.
    fn hosted(&mut self, tool: &ToolPart, paused: bool, blocks: &mut Vec<AssistantBlock>) {
        let outcome = tool.outcome.as_ref();
        let result = self.native(outcome.and_then(|o| o.native.as_ref()));
        // Some vendors' calls hold their result; such a success has no JSON of its own.
        let answered =
            result.is_some() || outcome.is_some_and(|o| o.native.is_none() && o.failure.is_none());
        let mut id = tool.call.as_str().to_owned();
        // The provider's JSON holds the call's id: where another call has it already, words must do.
        let call = self
            .native(tool.native.as_ref())
            .filter(|_| (answered || paused) && !self.ids.contains_key(&id));
        if call.is_some() {
            id = self.unique_id(&id);
        }
        blocks.push(AssistantBlock::Hosted {
            id,
            name: tool.name.clone(),
            input: tool.input.clone().unwrap_or_else(|| "{}".to_owned()),
            result: result.filter(|_| call.is_some()),
            call,
            text: result_text(tool),
        });
    }

    /// A kept block. The result of a hosted call that its turn was paused at joins that call; without it,
    /// it would answer nothing and the vendor would refuse it.
    fn opaque(&mut self, native: String, blocks: &mut Vec<AssistantBlock>) {
        let Some(answers) = answered_call(&native) else {
            blocks.push(AssistantBlock::Opaque { native });
            return;
        };
        if blocks.is_empty()
            && let Some(RequestMessage::Assistant { blocks: before }) = self.messages.last_mut()
            && let Some(AssistantBlock::Hosted {
                id,
                call: Some(_),
                result: result @ None,
                ..
            }) = before.last_mut()
            && *id == answers
        {
            *result = Some(native);
        }
    }
}

/// A tool's name as every vendor takes it; a model may make up any other.
fn legal_name(name: &str) -> Cow<'_, str> {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.len() <= 64 && name.chars().all(legal) {
        return name.into();
    }
    let clean: String = name
        .chars()
        .map(|c| if legal(c) { c } else { '_' })
        .take(64)
        .collect();
    if clean.is_empty() {
        "unnamed".into()
    } else {
        clean.into()
    }
}

fn result_text(tool: &ToolPart) -> String {
    match &tool.outcome {
        Some(outcome) if outcome.text.trim().is_empty() => "(no output)".to_owned(),
        Some(outcome) => outcome.text.clone(),
        None => "No result was recorded for this call.".to_owned(),
    }
}

/// The call a provider's own block answers; none when it is not a result.
fn answered_call(native: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Block {
        #[serde(default)]
        r#type: String,
        tool_use_id: Option<String>,
        call_id: Option<String>,
    }
    let block: Block = serde_json::from_str(native).ok()?;
    let result = block.r#type.ends_with("_tool_result") || block.r#type.ends_with("_output");
    result.then(|| block.tool_use_id.or(block.call_id).unwrap_or_default())
}

/// Protocols whose reasoning belongs to the message and not to a place in it: its seal may come last.
const POSITIONLESS: [&str; 1] = ["openai-chat"];

fn says_something(block: &AssistantBlock) -> bool {
    !matches!(
        block,
        AssistantBlock::Reasoning { .. } | AssistantBlock::Opaque { .. }
    )
}

/// Reasoning with nothing behind it belongs to output that never came: it answers nothing, and vendors
/// refuse a message that ends with it. What a vendor only wants kept goes with it, but for the name of the
/// sandbox a turn ran code in: that is no content, and whoever goes on needs it.
fn drop_dangling_reasoning(blocks: &mut Vec<AssistantBlock>) {
    let mut sandbox = None;
    while let Some(AssistantBlock::Reasoning { .. } | AssistantBlock::Opaque { .. }) = blocks.last()
    {
        if let Some(AssistantBlock::Opaque { native }) = blocks.pop()
            && is_container(&native)
        {
            sandbox = Some(AssistantBlock::Opaque { native });
        }
    }
    if !blocks.is_empty() {
        blocks.extend(sandbox);
    }
}

fn is_container(native: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Block {
        #[serde(default)]
        r#type: String,
    }
    serde_json::from_str::<Block>(native).is_ok_and(|block| block.r#type == "container")
}
