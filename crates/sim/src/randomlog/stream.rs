//! What a provider streams in a random session: mostly as its protocol wants, sometimes not.

use super::Tape;
use super::model::Asked;
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
const IDS: [&str; 7] = [
    "call_1",
    "call_2",
    "call_1_2",
    "call_1_a2",
    "toolu_01",
    "id with space/é",
    "x0123456789012345678901234567890123456789012345678901234567890123456789",
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
        let quoted = serde_json::Value::from(text.as_str());
        let number = self.number();
        let native = match self.asked.protocol {
            "anthropic-messages" if !text.trim().is_empty() && self.tape.once_in(3) => Some(
                format!("{{\"type\":\"text\", \"text\":{quoted},\"citations\":[]}}"),
            ),
            "openai-responses" if !text.trim().is_empty() => Some(format!(
                "{{\"type\":\"message\", \"id\":\"msg_{number}\",\"role\":\"assistant\",\"status\":\"completed\",\
                 \"content\":[{{\"type\":\"output_text\",\"text\":{quoted},\"annotations\":[]}}]}}"
            )),
            _ => None,
        };
        self.push(ProviderEvent::TextEnd { id, native });
    }

    fn reasoning(&mut self, n: usize) {
        // Numbered from zero like the texts.
        let id = format!("t{n}");
        self.push(ProviderEvent::ReasoningStart { id: id.clone() });
        self.push(ProviderEvent::ReasoningDelta {
            id: id.clone(),
            text: "hm".to_owned(),
        });
        if self.tape.once_in(6) {
            return;
        }
        let number = self.number();
        let native = match (self.asked.protocol, self.tape.pick(4)) {
            (_, 3) => None,
            ("anthropic-messages", 2) => Some(format!(
                "{{\"data\":\"sealed{number}\",\"type\":\"redacted_thinking\"}}"
            )),
            ("anthropic-messages", _) => Some(format!(
                "{{\"type\":\"thinking\",\"thinking\":\"h\\u006d\", \"signature\":\"sig{number}\"}}"
            )),
            ("openai-responses", _) => Some(format!(
                "{{\"id\":\"rs_{number}\",\"type\":\"reasoning\", \"summary\":[],\"encrypted_content\":\"e{number}\"}}"
            )),
            _ => Some("{\"field\":\"reasoning_content\"}".to_owned()),
        };
        self.push(ProviderEvent::ReasoningEnd { id, native });
    }

    fn call_id(&mut self) -> Option<String> {
        let id = self.tape.of(&IDS).to_owned();
        if self.used.contains(&id) {
            return None;
        }
        self.used.push(id.clone());
        Some(id)
    }

    fn call(&mut self) {
        let Some(id) = self.call_id() else { return };
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
        let native = self.is("openai-responses").then(|| {
            let (id, name, input) = (
                serde_json::Value::from(id.as_str()),
                serde_json::Value::from(name.as_str()),
                serde_json::Value::from(input.as_str()),
            );
            format!(
                "{{\"type\":\"function_call\", \"id\":\"fc_{number}\",\"call_id\":{id},\"name\":{name},\
                 \"arguments\":{input},\"status\":\"completed\"}}"
            )
        });
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
        let id = format!("srvtoolu_{}", number % 5);
        if self.used.contains(&id) {
            return;
        }
        self.used.push(id.clone());
        let (call, result) = match self.asked.protocol {
            "anthropic-messages" => (
                Some(format!(
                    "{{\"type\":\"server_tool_use\",\"id\":\"{id}\", \"name\":\"web_search\",\"input\":{{}}}}"
                )),
                Some(format!(
                    "{{\"type\":\"web_search_tool_result\",\"tool_use_id\":\"{id}\", \"content\":[]}}"
                )),
            ),
            "openai-responses" => (
                Some(format!(
                    "{{\"type\":\"web_search_call\", \"id\":\"ws_{number}\",\"status\":\"completed\"}}"
                )),
                None,
            ),
            _ => (None, None),
        };
        self.push(ProviderEvent::ToolCall {
            id: id.clone(),
            name: "web_search".to_owned(),
            input: "{}".to_owned(),
            executed: true,
            native: call,
        });
        if self.tape.once_in(4) {
            // Left open: the stream is cut, or the turn is paused.
            return;
        }
        let text = self.tape.of(&["found", ""]).to_owned();
        let is_error = self.tape.once_in(4);
        self.push(ProviderEvent::ToolResult {
            id,
            text,
            is_error,
            native: result,
        });
    }

    fn opaque(&mut self) {
        let number = self.number();
        let native = match self.asked.protocol {
            "anthropic-messages" if self.tape.once_in(2) => format!(
                "{{\"type\":\"web_search_tool_result\",\"tool_use_id\":\"srvtoolu_{}\", \"content\":[]}}",
                number % 5
            ),
            "anthropic-messages" => {
                format!("{{\"type\":\"container_upload\", \"file_id\":\"f{number}\"}}")
            }
            "openai-responses" => format!(
                "{{\"type\":\"mcp_list_tools\", \"id\":\"mcpl_{number}\",\"server_label\":\"s\",\"tools\":[]}}"
            ),
            _ => return,
        };
        self.push(ProviderEvent::Opaque { native });
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
            6 if self.is("anthropic-messages") => self.finish(Finish::Pause, usage),
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
