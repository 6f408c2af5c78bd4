//! What a provider streams in a random session: mostly as its protocol wants, sometimes not.

use super::model::{ANTHROPIC, Asked, GEMINI};
use super::{Tape, native};
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_core::{ErrorClass, ProviderError, Usage};

const TOOLS: [&str; 5] = ["bash", "read", "write", "", "my tool/é"];
const INPUTS: [&str; 8] = [
    "{}",
    "{\"path\": \"a\", \"n\":1.50}",
    "",
    " ",
    "{\"path\":\"a",
    "[1]",
    "{\"a\":\"\\ud800\"}",
    "null",
];
/// Few ids, so that they meet again within a step and across steps; some no vendor takes.
const IDS: [&str; 9] = [
    "call_1",
    "call_2",
    "call_1_2",
    "call_1_a2",
    "toolu_01",
    "",
    "id with space/é",
    "Ab3dE6gH9",
    "x0123456789012345678901234567890123456789012345678901234567890123456789",
];
/// Ids of calls the provider runs itself.
const HOSTED_IDS: [&str; 5] = [
    "srvtoolu_0",
    "srvtoolu_1",
    "srvtoolu_2",
    "srvtoolu_3",
    "srvtoolu_4",
];
const TEXTS: [&str; 6] = [
    "Done.",
    "",
    " \n",
    "é\u{1f600} ",
    "{}",
    "ends with space \n",
];

struct Script<'a> {
    tape: &'a mut Tape,
    asked: &'a Asked,
    item: &'a mut u64,
    batches: Vec<Vec<ProviderEvent>>,
    used: Vec<String>,
    called: bool,
}

/// One attempt's events in batches, as a network would cut them.
pub(super) fn script(tape: &mut Tape, asked: &Asked, item: &mut u64) -> Vec<Vec<ProviderEvent>> {
    let mut script = Script {
        tape,
        asked,
        item,
        batches: Vec::new(),
        used: Vec::new(),
        called: false,
    };
    for n in 0..script.tape.pick(6) {
        script.block(n);
    }
    script.end();
    script.batches
}

impl Script<'_> {
    fn push(&mut self, event: ProviderEvent) {
        // A batch goes on or a new one begins.
        match self.batches.last_mut() {
            Some(batch) if self.tape.pick(3) != 0 => batch.push(event),
            _ => self.batches.push(vec![event]),
        }
    }

    fn number(&mut self) -> u64 {
        *self.item += 1;
        *self.item
    }

    fn is(&self, protocol: &str) -> bool {
        self.asked.protocol == protocol
    }

    fn block(&mut self, n: usize) {
        match self.tape.pick(12) {
            0..=3 => self.text(n),
            4 | 5 => self.reasoning(n),
            6..=8 => self.call(),
            9 => self.hosted(),
            10 => self.opaque(),
            _ => self.nonsense(n),
        }
    }

    fn text(&mut self, n: usize) {
        let id = format!("t{n}");
        let text = self.tape.of(&TEXTS).to_owned();
        self.push(ProviderEvent::TextStart { id: id.clone() });
        self.push(ProviderEvent::TextDelta {
            id: id.clone(),
            text: text.clone(),
        });
        if self.tape.once_in(8) {
            return;
        }
        let number = self.number();
        let native = if self.is(GEMINI) && text.is_empty() && self.tape.once_in(2) {
            Some(native::picture(number))
        } else {
            native::text(self.tape, self.asked, number, &text)
        };
        self.push(ProviderEvent::TextEnd { id, native });
    }

    fn reasoning(&mut self, n: usize) {
        // Numbered from zero like the texts.
        let id = format!("t{n}");
        self.push(ProviderEvent::ReasoningStart { id: id.clone() });
        let number = self.number();
        let (text, native) = native::reasoning(self.tape, self.asked, number);
        if !text.is_empty() {
            self.push(ProviderEvent::ReasoningDelta {
                id: id.clone(),
                text: text.to_owned(),
            });
        }
        if self.tape.once_in(6) {
            return;
        }
        self.push(ProviderEvent::ReasoningEnd { id, native });
    }

    /// The id of a call in this stream, and the one its vendor gave it: a decoder renames what it has had.
    fn call_id(&mut self) -> (String, String) {
        let vendor = self.tape.of(&IDS).to_owned();
        let mut id = if vendor.is_empty() {
            format!("call_{}", self.number())
        } else {
            vendor.clone()
        };
        let mut n = 2;
        while self.used.contains(&id) {
            id = format!("{vendor}_{n}");
            n += 1;
        }
        self.used.push(id.clone());
        (id, vendor)
    }

    fn call(&mut self) {
        let (id, vendor) = self.call_id();
        let name = self.tape.of(&TOOLS).to_owned();
        let input = self.tape.of(&INPUTS).to_owned();
        if self.tape.pick(3) != 0 {
            self.push(ProviderEvent::ToolInputStart {
                id: id.clone(),
                name: name.clone(),
            });
            self.push(ProviderEvent::ToolInputDelta {
                id: id.clone(),
                name: None,
                text: input.clone(),
            });
            if self.tape.once_in(8) {
                return;
            }
            self.push(ProviderEvent::ToolInputEnd {
                id: id.clone(),
                name: Some(name.clone()),
            });
        }
        let number = self.number();
        let native = native::call(self.tape, self.asked, number, (&vendor, &name, &input));
        self.called = true;
        self.push(ProviderEvent::ToolCall {
            id,
            name,
            input,
            executed: false,
            native,
        });
    }

    fn hosted(&mut self) {
        let number = self.number();
        let id = self.tape.of(&HOSTED_IDS).to_owned();
        if self.used.contains(&id) {
            return;
        }
        self.used.push(id.clone());
        let hosted = native::hosted_call(self.tape, self.asked, number, &id);
        self.push(ProviderEvent::ToolCall {
            id: id.clone(),
            name: hosted.name.to_owned(),
            input: hosted.input.to_owned(),
            executed: true,
            native: hosted.call,
        });
        if !hosted.whole && self.tape.once_in(4) {
            // Left open: the stream is cut, or the turn is paused.
            return;
        }
        let text = self.tape.of(&["found", ""]).to_owned();
        let is_error = self.tape.once_in(4);
        self.push(ProviderEvent::ToolResult {
            id,
            text,
            is_error,
            native: hosted.result,
        });
    }

    fn opaque(&mut self) {
        let number = self.number();
        let answers = self.tape.of(&HOSTED_IDS);
        if let Some(native) = native::opaque(self.tape, self.asked, number, answers) {
            self.push(ProviderEvent::Opaque { native });
        }
    }

    /// What no stream may do.
    fn nonsense(&mut self, n: usize) {
        if !self.tape.once_in(4) {
            return;
        }
        let id = format!("t{n}");
        let event = match self.tape.pick(4) {
            0 => ProviderEvent::TextDelta {
                id,
                text: "x".to_owned(),
            },
            1 => ProviderEvent::ToolResult {
                id,
                text: "x".to_owned(),
                is_error: false,
                native: None,
            },
            2 => ProviderEvent::ToolInputEnd { id, name: None },
            _ => ProviderEvent::ReasoningEnd { id, native: None },
        };
        self.push(event);
    }

    fn end(&mut self) {
        let usage = Usage {
            input: 10,
            output: 5,
            ..Usage::default()
        };
        let event = match self.tape.pick(10) {
            8 => ProviderEvent::Error(ProviderError::new(ErrorClass::Overloaded, "overloaded")),
            9 => return,
            7 => self.finish(Finish::Length, usage),
            6 if self.is(ANTHROPIC) => self.finish(Finish::Pause, usage),
            _ if self.called => self.finish(Finish::ToolCalls, usage),
            _ => self.finish(Finish::Stop, usage),
        };
        self.push(event);
    }

    fn finish(&self, finish: Finish, usage: Usage) -> ProviderEvent {
        ProviderEvent::Finish {
            finish,
            raw: None,
            usage,
        }
    }
}
