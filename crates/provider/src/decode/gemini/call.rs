//! One function call of a Gemini stream: whole, or with arguments that come path by path.

use super::super::raw::{self, Raw};
use super::super::sink::Sink;
use super::arguments::Arguments;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tenure_core::provider::ProviderEvent;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FunctionCall<'a> {
    #[serde(borrow, default)]
    id: Raw<'a>,
    #[serde(borrow, default)]
    name: Raw<'a>,
    #[serde(borrow, default)]
    args: Raw<'a>,
    #[serde(borrow, default)]
    partial_args: Raw<'a>,
    #[serde(borrow, default)]
    will_continue: Raw<'a>,
}

/// A call while it comes.
pub(super) struct Call {
    id: String,
    name: String,
    arguments: Arguments,
    /// What goes back with the call beside its name and arguments; `None` when there is nothing.
    native: Option<String>,
    goes_on: bool,
}

impl Call {
    /// Reads a `functionCall` part: the next piece of `open`, or a call of its own. `None` when it says
    /// nothing.
    pub fn read(
        open: Option<Self>,
        part: &str,
        json: &RawValue,
        signature: Raw<'_>,
        sink: &mut Sink,
    ) -> Option<Self> {
        let Ok(piece) = serde_json::from_str::<FunctionCall<'_>>(json.get()) else {
            return open;
        };
        let goes_on = piece.will_continue.is_some_and(|raw| raw.get() == "true");
        let name = raw::text(piece.name).unwrap_or_default();
        let mut call = match open {
            Some(open) if name.is_empty() => open,
            None if name.is_empty() && piece.args.is_none() => return None,
            open => {
                // The call before it ends without a word when the next one begins.
                if let Some(open) = open {
                    open.end(sink);
                }
                Self::start(part, &piece, name.into_owned(), signature, sink)
            }
        };
        call.goes_on = goes_on;
        if let Some(whole) = raw::arguments(piece.args) {
            call.arguments.whole(&whole);
        }
        let partials = piece
            .partial_args
            .and_then(|raw| serde_json::from_str::<Vec<Value>>(raw.get()).ok());
        for partial in partials.iter().flatten() {
            call.arguments.set(partial);
            sink.touch();
        }
        Some(call)
    }

    fn start(
        part: &str,
        piece: &FunctionCall<'_>,
        name: String,
        signature: Raw<'_>,
        sink: &mut Sink,
    ) -> Self {
        let vendor = raw::word(piece.id).unwrap_or_default();
        let id = sink.call_id(&vendor);
        sink.push_content(ProviderEvent::ToolInputStart {
            id: id.clone(),
            name: name.clone(),
        });
        Self {
            id,
            name,
            arguments: Arguments::default(),
            native: native(part, &vendor, signature),
            goes_on: false,
        }
    }

    /// Are there more pieces to come?
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// The call is whole.
    pub fn end(self, sink: &mut Sink) {
        let input = self.arguments.into_text();
        if !input.is_empty() {
            sink.push_content(ProviderEvent::ToolInputDelta {
                id: self.id.clone(),
                name: None,
                text: input.clone(),
            });
        }
        sink.call(self.id, self.name, input, self.native);
    }

    /// The output limit cut the call off.
    pub fn abandon(self, sink: &mut Sink) {
        sink.push(ProviderEvent::ToolInputEnd {
            id: self.id,
            name: Some(self.name),
        });
    }
}

/// The part without what the call's own fields hold: the vendor's id, the signature character by character,
/// and what this version does not know.
fn native(part: &str, vendor: &str, signature: Raw<'_>) -> Option<String> {
    let mut fields: Map<String, Value> = serde_json::from_str(part).ok()?;
    let call = fields.get_mut("functionCall")?.as_object_mut()?;
    for own in ["name", "args", "partialArgs", "willContinue"] {
        call.remove(own);
    }
    let more = fields.len() > 1 || fields.get("functionCall") != Some(&Value::Object(Map::new()));
    if !more && vendor.is_empty() && signature.is_none() {
        return None;
    }
    Some(Value::Object(fields).to_string())
}
