//! Which turn answers a request: conditions on its text, and the count of uses.

use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::script::{Script, Select, Times, Turn};
use crate::vendor::Vendor;

/// Which turn of a script was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnId {
    /// The turn at this index.
    Turn(usize),
    /// The fallback turn.
    Fallback,
}

/// A request's text, as the conditions of turns see it: decoded strings, without the tools' definitions.
pub(crate) struct RequestText<'a> {
    vendor: Vendor,
    body: &'a Value,
}

impl<'a> RequestText<'a> {
    pub(crate) fn new(vendor: Vendor, body: &'a Value) -> Self {
        Self { vendor, body }
    }

    fn history(&self) -> &'a [Value] {
        let key = match self.vendor {
            Vendor::OpenaiResponses => "input",
            Vendor::Gemini => "contents",
            _ => "messages",
        };
        self.body
            .get(key)
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    /// True when any string of the system prompt or the history contains `needle`.
    pub(crate) fn contains(&self, needle: &str) -> bool {
        let heads = ["system", "instructions", "input"];
        self.history().iter().any(|item| holds(item, needle))
            || heads
                .iter()
                .filter_map(|key| self.body.get(*key))
                .any(|v| !v.is_array() && holds(v, needle))
            || ["system", "systemInstruction"]
                .iter()
                .filter_map(|key| self.body.get(*key))
                .any(|v| holds(v, needle))
    }

    /// True when what stands behind the model's last output contains `needle`.
    pub(crate) fn newest_contains(&self, needle: &str) -> bool {
        if let Some(text) = self.body.get("input").and_then(Value::as_str) {
            return text.contains(needle);
        }
        self.history()
            .iter()
            .rev()
            .take_while(|item| is_input(item))
            .any(|item| holds(item, needle))
    }
}

/// True for what the client puts in: messages that are not the assistant's, tool outputs.
fn is_input(item: &Value) -> bool {
    let text = |key: &str| item.get(key).and_then(Value::as_str);
    match (text("role"), text("type")) {
        (Some(role), _) => role != "assistant" && role != "model",
        (None, Some(kind)) => kind.ends_with("_output") || kind == "mcp_approval_response",
        (None, None) => false,
    }
}

fn holds(value: &Value, needle: &str) -> bool {
    match value {
        Value::String(text) => text.contains(needle),
        Value::Array(list) => list.iter().any(|v| holds(v, needle)),
        Value::Object(fields) => fields.values().any(|v| holds(v, needle)),
        _ => false,
    }
}

/// Picks turns and counts their uses.
#[derive(Debug)]
pub(crate) struct Selector {
    used: Mutex<Vec<u64>>,
}

impl Selector {
    pub(crate) fn new(script: &Script) -> Self {
        Self {
            used: Mutex::new(vec![0; script.turns.len()]),
        }
    }

    /// The turn for a request, counted as used; `None` when none applies and there is no fallback.
    pub(crate) fn pick<'s>(
        &self,
        script: &'s Script,
        text: &RequestText,
    ) -> Option<(TurnId, &'s Turn)> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, turn) in script.turns.iter().enumerate() {
            let limit = match (turn.times, script.select) {
                (Some(Times::Count(n)), _) => n,
                (None, Select::Sequence) => 1,
                (Some(Times::Forever), _) | (None, Select::History) => u64::MAX,
            };
            if used[index] < limit && applies(turn, text) {
                used[index] += 1;
                return Some((TurnId::Turn(index), turn));
            }
        }
        script
            .fallback
            .as_ref()
            .map(|turn| (TurnId::Fallback, turn))
    }
}

fn applies(turn: &Turn, text: &RequestText) -> bool {
    turn.skip_if_contains
        .as_ref()
        .is_none_or(|needle| !text.contains(needle))
        && turn
            .when_request
            .as_ref()
            .is_none_or(|needle| text.contains(needle))
        && turn
            .when
            .as_ref()
            .is_none_or(|needle| text.newest_contains(needle))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newest_input_ends_at_the_models_last_output() {
        let chat = json!({"messages": [
            {"role": "user", "content": "alpha"}, {"role": "assistant", "content": "beta"},
            {"role": "tool", "tool_call_id": "c", "content": "gamma"}, {"role": "user", "content": "delta \"q\""}]});
        let text = RequestText::new(Vendor::OpenaiChat, &chat);
        assert!(text.newest_contains("gamma") && text.newest_contains("delta \"q\""));
        assert!(!text.newest_contains("alpha") && !text.newest_contains("beta"));
        let responses = json!({"instructions": "sys", "input": [
            {"role": "user", "content": "alpha"},
            {"type": "function_call", "call_id": "c", "arguments": "{\"x\":1}"},
            {"type": "function_call_output", "call_id": "c", "output": "gamma"}]});
        let text = RequestText::new(Vendor::OpenaiResponses, &responses);
        assert!(text.newest_contains("gamma") && !text.newest_contains("alpha"));
        assert!(text.contains("sys") && text.contains("alpha"));
    }

    #[test]
    fn tool_definitions_are_not_part_of_the_text() {
        let body = json!({"tools": [{"name": "secret"}], "system": [{"type": "text", "text": "sys"}], "messages": []});
        let text = RequestText::new(Vendor::AnthropicMessages, &body);
        assert!(!text.contains("secret") && text.contains("sys"));
    }

    #[test]
    fn history_selection_counts_nothing() {
        let script = Script::new([Turn::text("one").skip_if_contains("ONE"), Turn::text("two")])
            .by_history();
        let selector = Selector::new(&script);
        let pick = |content: &str| {
            let body = json!({"messages": [{"role": "user", "content": content}]});
            selector
                .pick(&script, &RequestText::new(Vendor::OpenaiChat, &body))
                .map(|(id, _)| id)
        };
        assert_eq!(pick("x"), Some(TurnId::Turn(0)));
        assert_eq!(pick("x"), Some(TurnId::Turn(0)));
        assert_eq!(pick("ONE"), Some(TurnId::Turn(1)));
        assert_eq!(pick("ONE"), Some(TurnId::Turn(1)));
    }

    #[test]
    fn a_sequence_uses_each_turn_once_and_waits_for_its_when() {
        let script = Script::new([Turn::text("a").when("later"), Turn::text("b")]);
        let selector = Selector::new(&script);
        let pick = |content: &str| {
            let body = json!({"messages": [{"role": "user", "content": content}]});
            selector
                .pick(&script, &RequestText::new(Vendor::OpenaiChat, &body))
                .map(|(id, _)| id)
        };
        assert_eq!(pick("now"), Some(TurnId::Turn(1)));
        assert_eq!(pick("now"), None);
        assert_eq!(pick("later"), Some(TurnId::Turn(0)));
        assert_eq!(pick("later"), None);
    }
}
