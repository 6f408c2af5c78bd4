//! Folds decoded events into what they say, and checks the order rules every reader relies on.

use std::collections::{HashMap, HashSet};
use tenure_core::error::ProviderError;
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_core::usage::Usage;
use tenure_provider::{Decoder, Protocol};

/// A call as the events tell it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Call {
    pub id: String,
    pub name: String,
    /// `None` while no `ToolCall` came.
    pub input: Option<String>,
    pub streamed: String,
    pub executed: bool,
    pub native: Option<String>,
}

/// Everything a stream said.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Folded {
    pub started: Option<(Option<String>, Option<String>)>,
    pub text: String,
    pub texts: Vec<(String, Option<String>)>,
    pub reasoning: String,
    pub reasonings: Vec<(String, Option<String>)>,
    pub calls: Vec<Call>,
    pub results: Vec<(String, String, bool, Option<String>)>,
    pub opaque: Vec<String>,
    pub finish: Option<(Finish, Option<String>, Usage)>,
    pub usage: Option<Usage>,
    pub error: Option<ProviderError>,
}

/// Decodes a whole body, cut at `cuts`.
pub fn decode_cut(protocol: Protocol, body: &[u8], cuts: &[usize]) -> Vec<ProviderEvent> {
    let mut decoder = Decoder::new(protocol);
    let mut events = Vec::new();
    let mut from = 0;
    for cut in cuts.iter().map(|cut| (*cut).min(body.len())) {
        if cut > from {
            events.extend(decoder.feed(&body[from..cut]));
            from = cut;
        }
    }
    events.extend(decoder.feed(&body[from..]));
    events.extend(decoder.end());
    events
}

/// Decodes and folds a body.
pub fn read(protocol: Protocol, body: impl AsRef<[u8]>) -> Folded {
    fold(&decode_cut(protocol, body.as_ref(), &[]))
}

/// Folds events; panics where they break the order rules.
pub fn fold(events: &[ProviderEvent]) -> Folded {
    let mut out = Folded::default();
    let mut open: HashMap<String, usize> = HashMap::new();
    let mut seen: HashSet<String> = HashSet::new();
    let mut inputs_open: HashSet<String> = HashSet::new();
    let mut over = false;
    for event in events {
        assert!(!over, "event after the end: {event:?}");
        match event.clone() {
            ProviderEvent::Started { response_id, model } => {
                assert!(out.started.is_none(), "started twice");
                out.started = Some((response_id, model));
            }
            ProviderEvent::TextStart { id } => {
                assert!(seen.insert(id.clone()), "fragment {id} twice");
                open.insert(id, out.texts.len());
                out.texts.push((String::new(), None));
            }
            ProviderEvent::TextDelta { id, text } => {
                assert!(!text.is_empty());
                out.texts[open[&id]].0.push_str(&text);
                out.text.push_str(&text);
            }
            ProviderEvent::TextEnd { id, native } => {
                let at = open.remove(&id).expect("text ends that is open");
                out.texts[at].1 = native;
            }
            ProviderEvent::ReasoningStart { id } => {
                assert!(seen.insert(id.clone()), "fragment {id} twice");
                open.insert(id, out.reasonings.len());
                out.reasonings.push((String::new(), None));
            }
            ProviderEvent::ReasoningDelta { id, text } => {
                assert!(!text.is_empty());
                out.reasonings[open[&id]].0.push_str(&text);
                out.reasoning.push_str(&text);
            }
            ProviderEvent::ReasoningEnd { id, native } => {
                let at = open.remove(&id).expect("reasoning ends that is open");
                out.reasonings[at].1 = native;
            }
            ProviderEvent::ToolInputStart { id, name } => {
                assert!(seen.insert(id.clone()), "call {id} twice");
                assert!(inputs_open.insert(id.clone()));
                out.calls.push(Call {
                    id,
                    name,
                    ..Call::default()
                });
            }
            ProviderEvent::ToolInputDelta { id, name, text } => {
                assert!(
                    inputs_open.contains(&id),
                    "delta of {id} before its start or after its end"
                );
                let call = out.calls.iter_mut().find(|c| c.id == id).unwrap();
                assert!(name.is_none_or(|name| name == call.name));
                call.streamed.push_str(&text);
            }
            ProviderEvent::ToolInputEnd { id, name } => {
                assert!(inputs_open.remove(&id), "input of {id} ends twice");
                let call = out.calls.iter().find(|c| c.id == id).unwrap();
                assert!(name.is_none_or(|name| name == call.name));
            }
            ProviderEvent::ToolCall {
                id,
                name,
                input,
                executed,
                native,
            } => {
                assert!(
                    !inputs_open.contains(&id),
                    "call {id} before the end of its input"
                );
                if executed {
                    assert!(seen.insert(id.clone()), "call {id} twice");
                    out.calls.push(Call {
                        id,
                        name,
                        input: Some(input),
                        executed,
                        native,
                        ..Call::default()
                    });
                } else {
                    let call = out
                        .calls
                        .iter_mut()
                        .find(|c| c.id == id)
                        .expect("a call whose input started");
                    assert_eq!(call.name, name);
                    assert!(call.input.replace(input).is_none(), "call {id} twice");
                    call.native = native;
                }
            }
            ProviderEvent::ToolResult {
                id,
                text,
                is_error,
                native,
            } => {
                assert!(
                    out.calls.iter().any(|c| c.id == id && c.executed),
                    "result without call {id}"
                );
                assert!(
                    out.results.iter().all(|r| r.0 != id),
                    "second result of {id}"
                );
                out.results.push((id, text, is_error, native));
            }
            ProviderEvent::Opaque { native } => out.opaque.push(native),
            ProviderEvent::Usage(usage) => out.usage = Some(usage),
            ProviderEvent::Finish { finish, raw, usage } => {
                assert!(open.is_empty(), "open fragments at the finish");
                assert!(inputs_open.is_empty(), "open inputs at the finish");
                out.finish = Some((finish, raw, usage));
                out.usage = Some(usage);
                over = true;
            }
            ProviderEvent::Error(error) => {
                out.error = Some(error);
                over = true;
            }
        }
    }
    assert!(over, "the stream has no end");
    for native in out
        .texts
        .iter()
        .chain(&out.reasonings)
        .filter_map(|f| f.1.as_ref())
        .chain(&out.opaque)
    {
        assert!(
            serde_json::from_str::<serde_json::Value>(native)
                .unwrap()
                .is_object(),
            "native state is no object"
        );
    }
    out
}
