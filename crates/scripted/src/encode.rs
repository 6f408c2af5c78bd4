//! What a turn sends: its plan with all ids issued, and the encoders of the three wire forms.

pub(crate) mod anthropic;
pub(crate) mod bedrock;
pub(crate) mod chat;
pub(crate) mod event_frames;
mod frames;
pub(crate) mod gemini;
mod hosted;
pub(crate) mod responses;

use serde_json::Value;

use crate::issue::Issuer;
use crate::pieces::{Piece, Pieces};
use crate::route::Route;
use crate::script::{Finish, Part, Seal, Turn};
use crate::validate::ChatDialect;
use crate::vendor::Vendor;

pub(crate) use frames::Frames;
pub(crate) use hosted::{anthropic_result, responses_item};

/// Token counts as they will be reported.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tokens {
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) reasoning: u64,
    pub(crate) cache_read: u64,
    pub(crate) cache_write: u64,
}

/// A part with its ids and seals issued and its text cut.
#[derive(Debug)]
pub(crate) enum Planned {
    Text {
        pieces: Pieces,
        /// The vendor's own JSON of each.
        citations: Vec<Value>,
    },
    Reasoning {
        pieces: Pieces,
        seal: Option<String>,
        redacted: bool,
    },
    Call {
        id: String,
        name: String,
        pieces: Pieces,
    },
    Hosted {
        id: String,
        name: String,
        input: Value,
        result: Option<Value>,
        failed: bool,
    },
}

impl Planned {
    /// The pieces it streams; a hosted call streams none.
    pub(crate) fn pieces(&self) -> Option<&Pieces> {
        match self {
            Self::Text { pieces, .. } | Self::Call { pieces, .. } => Some(pieces),
            Self::Reasoning {
                pieces, redacted, ..
            } => (!redacted).then_some(pieces),
            Self::Hosted { .. } => None,
        }
    }
}

/// Everything an answer consists of, before it is laid on the wire.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) vendor: Vendor,
    /// Which server of the Chat form it plays.
    pub(crate) dialect: ChatDialect,
    pub(crate) id: String,
    pub(crate) model: String,
    pub(crate) created: u64,
    pub(crate) parts: Vec<Planned>,
    pub(crate) finish: Finish,
    /// `None`: no usage is reported.
    pub(crate) tokens: Option<Tokens>,
    /// The Chat form reports usage only when asked to.
    pub(crate) chat_usage: bool,
    /// The Responses form sends encrypted reasoning only when asked to.
    pub(crate) encrypted: bool,
    /// What the Responses form repeats of the request.
    pub(crate) store: bool,
    /// The Gemini form signs parts, and not the reasoning before them: the signature of each part.
    pub(crate) signatures: Vec<Option<String>>,
    /// The Gemini form's signature of an answer without calls.
    pub(crate) tail_signature: Option<String>,
}

/// Characters of tool input in a piece when the turn does not say.
const INPUT_PIECE: usize = 12;

impl Plan {
    pub(crate) fn new(
        route: Route,
        turn: &Turn,
        model: &str,
        body: &Value,
        input_tokens: u64,
        issuer: &Issuer,
    ) -> Self {
        let vendor = route.vendor;
        let mut parts: Vec<Planned> = Vec::with_capacity(turn.parts.len() + 1);
        let calls = turn.has_calls();
        let thinks = matches!(turn.parts.first(), Some(Part::Reasoning { .. }));
        let enabled = body
            .pointer("/thinking/type")
            .is_some_and(|t| t == "enabled");
        if vendor == Vendor::AnthropicMessages && enabled && calls && !thinks {
            // With thinking enabled that vendor always thinks before it uses a tool, and refuses a replay without it.
            parts.push(plan_part(route, &Part::reasoning(""), turn, issuer));
        }
        parts.extend(
            turn.parts
                .iter()
                .map(|part| plan_part(route, part, turn, issuer)),
        );
        let sent: usize = parts
            .iter()
            .filter_map(Planned::pieces)
            .map(Pieces::sent_bytes)
            .sum();
        let usage = &turn.usage;
        let tokens = (!usage.omit).then(|| Tokens {
            input: usage.input.unwrap_or(input_tokens),
            output: usage.output.unwrap_or(sent as u64 / 4 + 1),
            reasoning: usage.reasoning,
            cache_read: usage.cache_read,
            cache_write: usage.cache_write,
        });
        let (signatures, tail_signature) = signatures(vendor, turn, &parts, issuer);
        let created = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        Self {
            vendor,
            dialect: route.dialect,
            id: issuer.id(match vendor {
                Vendor::OpenaiChat => "chatcmpl-",
                Vendor::OpenaiResponses => "resp_",
                Vendor::AnthropicMessages => "msg_",
                Vendor::Gemini => "resp",
                Vendor::BedrockConverse => "brk_",
            }),
            model: model.to_owned(),
            created,
            parts,
            finish: turn.finish.clone().unwrap_or(if calls {
                Finish::ToolCalls
            } else {
                Finish::Stop
            }),
            tokens,
            chat_usage: body
                .pointer("/stream_options/include_usage")
                .is_some_and(|v| v == true),
            encrypted: body
                .get("include")
                .and_then(Value::as_array)
                .is_some_and(|list| list.iter().any(|v| v == "reasoning.encrypted_content")),
            store: body.get("store") != Some(&Value::Bool(false)),
            signatures,
            tail_signature,
        }
    }
}

/// The Gemini form's signatures: on the first call, or behind everything when there is none. Reasoning says by its
/// own seal whether and how an answer is signed; calls are signed anyway.
fn signatures(
    vendor: Vendor,
    turn: &Turn,
    parts: &[Planned],
    issuer: &Issuer,
) -> (Vec<Option<String>>, Option<String>) {
    let mut signatures = vec![None; parts.len()];
    if vendor != Vendor::Gemini {
        return (signatures, None);
    }
    let seal = turn.parts.iter().rev().find_map(|part| match part {
        Part::Reasoning { seal, .. } => Some(seal),
        _ => None,
    });
    let sign = |covered: &str| match seal {
        Some(Seal::Literal(text)) => Some(text.clone()),
        Some(Seal::Absent) => None,
        Some(Seal::Issued) | None => Some(issuer.seal(vendor, covered)),
    };
    let first = parts
        .iter()
        .zip(&mut signatures)
        .find_map(|(part, signature)| match part {
            Planned::Call { name, pieces, .. } => Some((name, pieces, signature)),
            _ => None,
        });
    if let Some((name, pieces, signature)) = first {
        let args = serde_json::from_str(&pieces.whole()).unwrap_or_default();
        *signature = sign(&covered_call(name, &args));
        return (signatures, None);
    }
    let tail = seal.and_then(|_| sign(""));
    (signatures, tail)
}

/// What a signature on a call covers.
pub(crate) fn covered_call(name: &str, args: &Value) -> String {
    format!("{name}({args})")
}

fn plan_part(route: Route, part: &Part, turn: &Turn, issuer: &Issuer) -> Planned {
    let vendor = route.vendor;
    let signs = matches!(vendor, Vendor::AnthropicMessages | Vendor::BedrockConverse)
        || route.dialect == ChatDialect::Openrouter;
    match part {
        Part::Text {
            text,
            deltas,
            citations,
        } => Planned::Text {
            pieces: Pieces::cut(text, turn.chunk_size, *deltas),
            citations: citations.clone(),
        },
        Part::Reasoning {
            text,
            deltas,
            seal,
            redacted,
        } => {
            let pieces = Pieces::cut(text, turn.chunk_size, *deltas);
            let seal = match seal {
                // A signature covers the visible text.
                Seal::Issued if signs && !redacted => Some(issuer.seal(vendor, &pieces.whole())),
                Seal::Issued => Some(issuer.seal(vendor, "")),
                Seal::Literal(text) => Some(text.clone()),
                Seal::Absent => None,
            };
            Planned::Reasoning {
                pieces,
                seal,
                redacted: *redacted,
            }
        }
        Part::Call { name, input, id } => Planned::Call {
            id: id.clone().unwrap_or_else(|| call_id(route, issuer)),
            name: name.clone(),
            pieces: Pieces::cut(
                &input.wire_text(),
                Some(turn.chunk_size.unwrap_or(INPUT_PIECE)),
                None,
            ),
        },
        Part::Hosted {
            name,
            input,
            result,
            failed,
            id,
        } => Planned::Hosted {
            id: id
                .clone()
                .unwrap_or_else(|| issuer.id(hosted::id_prefix(vendor, name))),
            name: name.clone(),
            input: input.clone(),
            result: result.clone(),
            failed: *failed,
        },
    }
}

/// A call id as the server makes them.
fn call_id(route: Route, issuer: &Issuer) -> String {
    let id = issuer.id(route.vendor.call_prefix());
    if route.dialect != ChatDialect::Mistral {
        return id;
    }
    let letters: Vec<char> = id.chars().filter(char::is_ascii_alphanumeric).collect();
    letters[letters.len().saturating_sub(9)..].iter().collect()
}

/// Writes one answer as the events of a wire form.
pub(crate) trait Encoder: Send {
    /// What comes before the first part.
    fn start(&mut self, plan: &Plan, out: &mut Frames);
    /// The opening of a part.
    fn open(&mut self, part: &Planned, out: &mut Frames);
    /// One piece of the open part.
    fn delta(&mut self, piece: Piece<'_>, out: &mut Frames);
    /// The end of the open part.
    fn close(&mut self, part: &Planned, out: &mut Frames);
    /// The finish and the usage.
    fn finish(&mut self, plan: &Plan, out: &mut Frames);
    /// The stream's end mark.
    fn terminator(&mut self, plan: &Plan, out: &mut Frames);
    /// An error event.
    fn error(&mut self, plan: &Plan, error: &StreamError<'_>, out: &mut Frames);
}

/// An error that arrives within a stream.
#[derive(Debug)]
pub(crate) struct StreamError<'a> {
    pub(crate) error_type: Option<&'a str>,
    pub(crate) message: Option<&'a str>,
    pub(crate) failed: bool,
}

pub(crate) fn encoder(plan: &Plan, issuer: &Issuer) -> Box<dyn Encoder> {
    match plan.vendor {
        Vendor::OpenaiChat => Box::new(chat::Chat::new(plan.dialect)),
        Vendor::OpenaiResponses => Box::new(responses::Responses::new(issuer)),
        Vendor::AnthropicMessages => Box::new(anthropic::Anthropic::default()),
        Vendor::Gemini => Box::new(gemini::Gemini::default()),
        Vendor::BedrockConverse => Box::new(bedrock::Bedrock::default()),
    }
}
