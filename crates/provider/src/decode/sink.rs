//! Where decoder machines put their events, with the bookkeeping all of them share.

use std::borrow::Cow;
use std::collections::HashMap;
use tenure_core::error::{ErrorClass, ProviderError, RESPONSE_TOO_LONG};
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_core::request::input_error;
use tenure_core::usage::Usage;

/// So many calls may one response make. Models make a few; beyond this, somebody sends calls to fill our memory.
const CALL_LIMIT: usize = 4096;

/// Longer ids are replaced by one of our own: they are repeated with every piece of a call's input. Gateways that keep
/// a sealed thought in the id stay below it.
const ID_LIMIT: usize = 64 * 1024;

/// Collects events of one feed and remembers what must be known over the whole stream.
pub(super) struct Sink {
    events: Vec<ProviderEvent>,
    content: bool,
    ended: bool,
    fragments: u64,
    started: bool,
    /// Every call id so far, with the number its next namesake gets.
    calls: HashMap<String, u64>,
    origin: u64,
    usage: Usage,
    usage_said: Usage,
    /// The most bytes the response may say, and those it may still say.
    limit: usize,
    left: usize,
}

impl Sink {
    /// For a response that may say so many bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            events: Vec::new(),
            content: false,
            ended: false,
            fragments: 0,
            started: false,
            calls: HashMap::new(),
            origin: 0,
            usage: Usage::default(),
            usage_said: Usage::default(),
            limit,
            left: limit,
        }
    }

    /// Adds an event without content.
    pub fn push(&mut self, mut event: ProviderEvent) {
        if self.ended {
            return;
        }
        match &mut event {
            ProviderEvent::TextEnd { native, .. }
            | ProviderEvent::ReasoningEnd { native, .. }
            | ProviderEvent::ToolCall { native, .. }
            | ProviderEvent::ToolResult { native, .. } => {
                native.take_if(|native| !can_go_back(native));
            }
            ProviderEvent::Opaque { native } if !can_go_back(native) => return,
            _ => {}
        }
        match self.left.checked_sub(said(&event)) {
            Some(left) => {
                self.left = left;
                self.events.push(event);
            }
            None => self.too_long(),
        }
    }

    /// Ends the stream because the response is longer than any answer is.
    pub fn too_long(&mut self) {
        let text = format!(
            "the provider sent a response of more than {} bytes; it was given up, and is not asked for again. Ask for \
             smaller steps, or look at what answers at this endpoint.",
            self.limit
        );
        let mut error = ProviderError::new(ErrorClass::Protocol, text);
        error.code = Some(RESPONSE_TOO_LONG.to_owned());
        self.fail(error);
    }

    /// Adds an event that shows the model at work.
    pub fn push_content(&mut self, event: ProviderEvent) {
        self.content = true;
        self.push(event);
    }

    /// The model is at work although there is nothing to say.
    pub fn touch(&mut self) {
        self.content = true;
    }

    /// Says `Started`, once.
    pub fn start(&mut self, response_id: Option<String>, model: Option<String>) {
        if !self.started {
            self.started = true;
            self.origin = fnv(response_id.as_deref().unwrap_or(""));
            self.push(ProviderEvent::Started { response_id, model });
        }
    }

    /// Was `Started` said?
    pub fn is_started(&self) -> bool {
        self.started
    }

    /// A fragment id that was not used before in this stream.
    pub fn fragment(&mut self, kind: &str) -> String {
        self.fragments += 1;
        format!("{kind}{}", self.fragments)
    }

    /// A call id that is unique in this stream: the vendor's own where possible. Made-up ids depend only on
    /// the stream, so that decoding it again gives the same ones. Too many calls end the stream.
    pub fn call_id(&mut self, wanted: &str) -> String {
        if self.calls.len() >= CALL_LIMIT && !self.ended {
            self.fail(ProviderError::new(
                ErrorClass::Protocol,
                format!("the provider asked for more than {CALL_LIMIT} calls in one response; the stream was given up"),
            ));
        }
        let base = if wanted.is_empty() || wanted.len() > ID_LIMIT {
            format!("call_{:016x}_{}", self.origin, self.calls.len() + 1)
        } else {
            wanted.to_owned()
        };
        let mut id = base.clone();
        loop {
            if !self.calls.contains_key(&id) {
                self.calls.insert(id.clone(), 2);
                return id;
            }
            let next = self.calls.entry(base.clone()).or_insert(2);
            id = format!("{base}_{next}");
            *next += 1;
        }
    }

    /// A text block is complete.
    pub fn end_text(&mut self, id: String, native: Option<String>) {
        self.push(ProviderEvent::TextEnd { id, native });
    }

    /// A reasoning block is complete.
    pub fn end_reasoning(&mut self, id: String, native: Option<String>) {
        self.push(ProviderEvent::ReasoningEnd { id, native });
    }

    /// More of a text block.
    pub fn more_text(&mut self, id: &str, text: Cow<'_, str>) {
        let (id, text) = (id.to_owned(), text.into_owned());
        self.push_content(ProviderEvent::TextDelta { id, text });
    }

    /// More of a reasoning block.
    pub fn more_reasoning(&mut self, id: &str, text: Cow<'_, str>) {
        let (id, text) = (id.to_owned(), text.into_owned());
        self.push_content(ProviderEvent::ReasoningDelta { id, text });
    }

    /// More of a call's input.
    pub fn more_input(&mut self, id: &str, text: Cow<'_, str>) {
        self.push_content(ProviderEvent::ToolInputDelta {
            id: id.to_owned(),
            name: None,
            text: text.into_owned(),
        });
    }

    /// The input of a call ends, and no call is made of it.
    pub fn no_call(&mut self, id: String, name: String) {
        let name = Some(name);
        self.push(ProviderEvent::ToolInputEnd { id, name });
    }

    /// A complete local call. White space and `null` are what vendors send for no arguments.
    pub fn call(&mut self, id: String, name: String, input: String, native: Option<String>) {
        let input = if matches!(input.trim(), "" | "null") {
            String::new()
        } else {
            input
        };
        self.push(ProviderEvent::ToolInputEnd {
            id: id.clone(),
            name: Some(name.clone()),
        });
        self.push_content(ProviderEvent::ToolCall {
            id,
            name,
            input,
            executed: false,
            native,
        });
    }

    /// Sets the tokens known so far.
    pub fn set_usage(&mut self, usage: Usage) {
        self.usage = usage;
    }

    /// Says the tokens known so far, if they were not said yet.
    pub fn say_usage(&mut self) {
        if self.usage != self.usage_said {
            self.usage_said = self.usage;
            self.push(ProviderEvent::Usage(self.usage));
        }
    }

    /// Ends the stream well.
    pub fn finish(&mut self, finish: Finish, raw: Option<String>) {
        if self.ended {
            return;
        }
        self.push_content(ProviderEvent::Finish {
            finish,
            raw,
            usage: self.usage,
        });
        self.ended = true;
    }

    /// Ends the stream badly. Tokens known so far are said first: they were paid for.
    pub fn fail(&mut self, error: ProviderError) {
        if self.ended {
            return;
        }
        self.say_usage();
        self.events.push(ProviderEvent::Error(error));
        self.ended = true;
    }

    /// Has the stream ended?
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// The events since the last call.
    pub fn take(&mut self) -> Vec<ProviderEvent> {
        std::mem::take(&mut self.events)
    }

    /// Was there content since the last call?
    pub fn take_content(&mut self) -> bool {
        std::mem::take(&mut self.content)
    }
}

/// Bytes that an event says. The input of a call counts when it streams and when it is whole.
fn said(event: &ProviderEvent) -> usize {
    let some = |native: &Option<String>| native.as_ref().map_or(0, String::len);
    match event {
        ProviderEvent::TextDelta { text, .. }
        | ProviderEvent::ReasoningDelta { text, .. }
        | ProviderEvent::ToolInputDelta { text, .. } => text.len(),
        ProviderEvent::TextEnd { native, .. } | ProviderEvent::ReasoningEnd { native, .. } => {
            some(native)
        }
        ProviderEvent::ToolCall { input, native, .. } => input.len() + some(native),
        ProviderEvent::ToolResult { text, native, .. } => text.len() + some(native),
        ProviderEvent::Opaque { native } => native.len(),
        _ => 0,
    }
}

/// May this JSON be put into a request? It was cut out of the stream unread, and may hold numbers or a depth that no
/// reader takes: kept, it would make every later request invalid.
fn can_go_back(native: &str) -> bool {
    native.trim_start().starts_with('{') && input_error(native).is_none()
}

/// FNV-1a: short ids need a stable hash, not a strong one.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
