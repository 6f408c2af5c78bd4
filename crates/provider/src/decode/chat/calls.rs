//! Tool calls of a Chat stream: which fragment belongs to which call.

use super::super::raw::{self, Raw};
use super::super::sink::Sink;
use serde::Deserialize;
use tenure_core::provider::ProviderEvent;

#[derive(Deserialize)]
struct CallDelta<'a> {
    #[serde(borrow, default)]
    index: Raw<'a>,
    #[serde(borrow, default)]
    id: Raw<'a>,
    #[serde(borrow, default)]
    function: Raw<'a>,
    #[serde(borrow, default)]
    extra_content: Raw<'a>,
}

#[derive(Deserialize)]
struct FunctionDelta<'a> {
    #[serde(borrow, default)]
    name: Raw<'a>,
    #[serde(borrow, default)]
    arguments: Raw<'a>,
}

struct Call {
    index: Option<u64>,
    /// The vendor's id, empty when it sent none.
    vendor_id: String,
    /// The id in events, unique in the stream.
    id: String,
    name: String,
    arguments: String,
    /// A vendor's own additions to the call, such as a thought signature, to be sent back with it.
    extra: Option<String>,
    announced: bool,
    complete: bool,
}

/// All calls of one stream, in order of first appearance.
#[derive(Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
}

impl Calls {
    /// Was there any call?
    pub fn any(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Takes a `tool_calls` array (or a single object), or a legacy `function_call` object.
    pub fn delta(&mut self, json: &str, legacy: bool, sink: &mut Sink) {
        if legacy {
            if let Ok(function) = serde_json::from_str::<FunctionDelta<'_>>(json) {
                self.fragment(None, "", &function, None, sink);
            }
            return;
        }
        let list: Vec<CallDelta<'_>> = serde_json::from_str(json)
            .or_else(|_| serde_json::from_str(json).map(|one| vec![one]))
            .unwrap_or_default();
        for call in &list {
            let function = call
                .function
                .and_then(|f| serde_json::from_str(f.get()).ok())
                .unwrap_or(FunctionDelta {
                    name: None,
                    arguments: None,
                });
            let id = raw::word(call.id).unwrap_or_default();
            self.fragment(
                raw::number(call.index),
                &id,
                &function,
                call.extra_content,
                sink,
            );
        }
    }

    fn fragment(
        &mut self,
        index: Option<u64>,
        id: &str,
        function: &FunctionDelta<'_>,
        extra: Raw<'_>,
        sink: &mut Sink,
    ) {
        let name = raw::filled(function.name).unwrap_or_default();
        let at = match self.find(index, id, &name) {
            Some(at) => at,
            None => self.open(index, id, sink),
        };
        let call = &mut self.calls[at];
        if !call.announced {
            extend_name(&mut call.name, &name);
        }
        if let Some(extra) = extra.filter(|e| e.get().starts_with('{')) {
            call.extra = Some(extra.get().to_owned());
        }
        if call.vendor_id.is_empty() && !id.is_empty() {
            id.clone_into(&mut call.vendor_id);
        }
        let Some(arguments) = raw::arguments(function.arguments).filter(|a| !a.is_empty()) else {
            if !name.is_empty() {
                sink.touch();
            }
            return;
        };
        if call.complete {
            return;
        }
        call.arguments.push_str(&arguments);
        let (id, name) = (call.id.clone(), call.name.clone());
        let text = arguments.into_owned();
        self.announce(sink);
        sink.push_content(ProviderEvent::ToolInputDelta {
            id,
            name: Some(name),
            text,
        });
    }

    /// The call a fragment continues; `None` when it begins a new one.
    fn find(&self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
        let at = match index {
            Some(_) => match self.calls.iter().rposition(|call| call.index == index) {
                Some(at) => Some(at),
                None if name.is_empty() && !id.is_empty() => self.by_id(id),
                None => None,
            },
            None if id.is_empty() => self.calls.len().checked_sub(1),
            None => self.by_id(id).or_else(|| self.calls.len().checked_sub(1)),
        }?;
        let call = &self.calls[at];
        let other_id = !id.is_empty() && !call.vendor_id.is_empty() && call.vendor_id != id;
        // Nothing can follow a whole object: another name or another id can only be another call.
        let other_call = || id.is_empty() && call.name != name && raw::is_object(&call.arguments);
        if !name.is_empty() && (other_id || other_call()) {
            return None;
        }
        if other_id && raw::is_object(&call.arguments) {
            return None;
        }
        Some(at)
    }

    fn by_id(&self, id: &str) -> Option<usize> {
        self.calls.iter().rposition(|call| call.vendor_id == id)
    }

    fn open(&mut self, index: Option<u64>, id: &str, sink: &mut Sink) -> usize {
        for at in 0..self.calls.len() {
            // Nothing can be appended to a whole object, so the tool may start now.
            if !self.calls[at].complete && raw::is_object(&self.calls[at].arguments) {
                self.complete(at, sink);
            }
        }
        self.calls.push(Call {
            index,
            vendor_id: id.to_owned(),
            id: sink.call_id(id),
            name: String::new(),
            arguments: String::new(),
            extra: None,
            announced: false,
            complete: false,
        });
        self.calls.len() - 1
    }

    /// Says the start of calls whose name can no longer grow: something else has come.
    pub fn announce(&mut self, sink: &mut Sink) {
        for call in self.calls.iter_mut().filter(|call| !call.announced) {
            call.announced = true;
            sink.push_content(ProviderEvent::ToolInputStart {
                id: call.id.clone(),
                name: call.name.clone(),
            });
        }
    }

    /// Completes every call. With `cut`, the output limit was hit: a last call without any argument may have
    /// lost them all, so it is left without a call event rather than run with `{}`.
    pub fn complete_all(&mut self, cut: bool, sink: &mut Sink) {
        let last = self.calls.len().wrapping_sub(1);
        for at in 0..self.calls.len() {
            if self.calls[at].complete {
                continue;
            }
            if cut && at == last && self.calls[at].arguments.trim().is_empty() {
                self.announce(sink);
                let call = &mut self.calls[at];
                call.complete = true;
                sink.push(ProviderEvent::ToolInputEnd {
                    id: call.id.clone(),
                    name: Some(call.name.clone()),
                });
                continue;
            }
            self.complete(at, sink);
        }
    }

    fn complete(&mut self, at: usize, sink: &mut Sink) {
        self.announce(sink);
        let call = &mut self.calls[at];
        call.complete = true;
        let native = call
            .extra
            .take()
            .map(|extra| format!("{{\"extra_content\":{extra}}}"));
        let (id, name) = (call.id.clone(), call.name.clone());
        sink.call(id, name, call.arguments.clone(), native);
    }
}

/// Names come whole, repeated whole, growing, or in parts.
fn extend_name(name: &mut String, more: &str) {
    if more.is_empty() || name == more {
        return;
    }
    if more.starts_with(name.as_str()) {
        more.clone_into(name);
    } else {
        name.push_str(more);
    }
}
