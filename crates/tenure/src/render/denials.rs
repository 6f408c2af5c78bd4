//! Calls that a rule denied: said in one line at the end, since a pipe shows the model's text only.

use super::escape::safe_line;
use super::transcript::input_summary;
use super::width;
use std::collections::HashMap;
use tenure_core::event::EventBody;
use tenure_core::event::body::ToolFailure;
use tenure_core::{CallId, MessageId, SessionId};

/// Columns of what was denied that are worth a line.
const COLUMNS: usize = 60;

/// What a result says before the rules that are missing.
const RULES_BEGIN: &str = "The user can allow it in their configuration:";

/// The denied calls of what was seen.
#[derive(Debug, Default)]
pub struct Denials {
    open: HashMap<(MessageId, CallId), String>,
    count: u64,
    by_rule: u64,
    /// The first one: the call, and its result.
    first: Option<(String, String)>,
}

impl Denials {
    /// Learns from an event.
    pub fn event(&mut self, body: &EventBody) {
        match body {
            EventBody::ToolCalled(called) => {
                let what = format!(
                    "{} {}",
                    safe_line(&called.name),
                    input_summary(&called.input)
                );
                let key = (called.message.clone(), called.call.clone());
                self.open.insert(key, width::cut(what.trim_end(), COLUMNS));
            }
            EventBody::ToolSucceeded(done) => {
                self.open.remove(&(done.message.clone(), done.call.clone()));
            }
            EventBody::ToolFailed(done) => {
                let what = self.open.remove(&(done.message.clone(), done.call.clone()));
                if done.failure == ToolFailure::Denied {
                    self.count += 1;
                    // Who answered no knows it.
                    if !done.text.starts_with("Denied: the user ") {
                        self.by_rule += 1;
                        let what = what.unwrap_or_else(|| "a tool".to_owned());
                        self.first.get_or_insert((what, done.text.clone()));
                    }
                }
            }
            _ => {}
        }
    }

    /// How many calls were denied, by rules and by answers.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// One line about the calls that rules denied, if there were any.
    pub fn words(&self, session: &SessionId) -> Option<String> {
        let (what, text) = self.first.as_ref()?;
        let (calls, more) = match self.by_rule {
            1 => ("1 tool call was".to_owned(), ""),
            n => (format!("{n} tool calls were"), ", …"),
        };
        let allow = match missing_rules(text) {
            Some(rules) => format!(" — allow it with {rules} or --allow-all"),
            None if text.contains("--allow-all") => " — --allow-all allows it".to_owned(),
            None => " — `tenure config` names the rules".to_owned(),
        };
        Some(format!(
            "notice: {calls} denied by a rule: {what}{more}{allow}; `tenure show {session}` has all"
        ))
    }
}

/// The rules that a result names as missing, on one line.
fn missing_rules(text: &str) -> Option<String> {
    let (_, rules) = text.split_once(RULES_BEGIN)?;
    let rules: Vec<String> = rules
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("or with"))
        .map(safe_line)
        .collect();
    (!rules.is_empty()).then(|| width::cut(&rules.join(" "), 2 * COLUMNS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::event::body::{ToolCalled, ToolFailed};

    fn denied(denials: &mut Denials, call: &str, text: &str) {
        let message = MessageId::from_bits(1);
        denials.event(
            &ToolCalled {
                message: message.clone(),
                part: 0,
                attempt: 1,
                call: CallId::new(call),
                name: "edit".into(),
                input: r#"{"path":"hello.py"}"#.into(),
                executed: false,
                native: None,
            }
            .into(),
        );
        denials.event(
            &ToolFailed {
                message,
                call: CallId::new(call),
                failure: ToolFailure::Denied,
                text: text.into(),
                cut: None,
                native: None,
            }
            .into(),
        );
    }

    #[test]
    fn what_rules_denied_is_one_line_with_the_missing_rule() {
        let session = SessionId::from_bits(1);
        let mut denials = Denials::default();
        assert_eq!(denials.words(&session), None);
        let text = format!(
            "Denied: Permission denied\n{RULES_BEGIN}\n[permissions.edit]\n\"hello.py\" = \"allow\"\nor with --allow-all."
        );
        denied(&mut denials, "a", &text);
        assert_eq!(
            denials.words(&session).unwrap(),
            format!(
                "notice: 1 tool call was denied by a rule: edit hello.py — allow it with [permissions.edit] \
                 \"hello.py\" = \"allow\" or --allow-all; `tenure show {session}` has all"
            )
        );
        denied(
            &mut denials,
            "b",
            "Denied: the user did not allow this call.",
        );
        assert_eq!(denials.count(), 2);
        assert!(denials.words(&session).unwrap().contains("1 tool call was"));
        denied(&mut denials, "c", "Denied: `edit` is denied");
        assert!(
            denials
                .words(&session)
                .unwrap()
                .contains("2 tool calls were")
        );
    }
}
