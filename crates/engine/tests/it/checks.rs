//! What every log and every request must be, whatever happened before.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::event::{Event, EventBody};
use tenure_core::model::ModelLimits;
use tenure_core::request::{AssistantBlock, Request, RequestMessage};
use tenure_core::session::SessionState;
use tenure_provider::{Dialect, Protocol, encode};
use tenure_scripted::validate;

/// What is begun and not yet ended, by a name that says what it is.
#[derive(Default)]
struct Open {
    open: BTreeSet<String>,
    over: BTreeSet<String>,
    faults: Vec<String>,
}

impl Open {
    fn begin(&mut self, what: String, seq: u64) {
        if self.over.contains(&what) || !self.open.insert(what.clone()) {
            self.faults.push(format!("{seq}: {what} begins twice"));
        }
    }

    fn end(&mut self, what: String, seq: u64) {
        if !self.open.remove(&what) {
            let again = if self.over.contains(&what) {
                "ends twice"
            } else {
                "ends unbegun"
            };
            self.faults.push(format!("{seq}: {what} {again}"));
        }
        self.over.insert(what);
    }

    /// Nothing whose name begins with `prefix` may be open now.
    fn none(&mut self, prefix: &str, at: &str, seq: u64) {
        let open: Vec<&String> = self.open.iter().filter(|o| o.starts_with(prefix)).collect();
        if !open.is_empty() {
            self.faults.push(format!("{seq}: open at {at}: {open:?}"));
        }
    }
}

/// Everything that is wrong with a log: what begins ends once, calls before their step, the step before its
/// execution, seqs are dense, epochs never fall (P1).
pub fn faults(log: &[Event]) -> Vec<String> {
    let mut open = Open::default();
    let mut epoch = 0;
    for (index, event) in log.iter().enumerate() {
        let seq = event.seq;
        if seq != index as u64 {
            open.faults.push(format!("{seq}: not dense"));
        }
        if let Some(now) = event.epoch {
            if now < epoch {
                open.faults
                    .push(format!("{seq}: epoch {now} after {epoch}"));
            }
            epoch = now;
        }
        one(&mut open, &event.body, seq);
    }
    open.faults
}

/// As [`faults`], and nothing is open at the end.
pub fn faults_at_rest(log: &[Event]) -> Vec<String> {
    let mut all = faults(log);
    let turn = SessionState::fold(log).turn;
    if turn.execution.is_some() || !turn.at_boundary() {
        all.push(format!(
            "open at the end: {:?} {:?} {:?}",
            turn.execution, turn.compaction, turn.step
        ));
    }
    all
}

fn one(open: &mut Open, body: &EventBody, seq: u64) {
    use EventBody as E;
    match body {
        E::ExecutionStarted(e) => {
            open.none("exe", "execution.started", seq);
            open.begin(format!("exe {}", e.execution), seq);
        }
        E::ExecutionSucceeded(e) => execution_over(open, e.execution.as_str(), seq),
        E::ExecutionFailed(e) => execution_over(open, e.execution.as_str(), seq),
        E::ExecutionInterrupted(e) => execution_over(open, e.execution.as_str(), seq),
        E::StepStarted(e) => {
            open.none("step", "step.started", seq);
            open.none("compaction", "step.started", seq);
            open.begin(format!("step {}", e.message), seq);
        }
        E::StepEnded(e) => step_over(open, e.message.as_str(), seq),
        E::StepFailed(e) => step_over(open, e.message.as_str(), seq),
        E::AttemptStarted(e) => {
            open.none("attempt", "attempt.started", seq);
            open.begin(format!("attempt {} {}", e.message, e.attempt), seq);
        }
        E::AttemptEnded(e) => open.end(format!("attempt {} {}", e.message, e.attempt), seq),
        E::FragmentStarted(e) => open.begin(format!("part {} {}", e.message, e.part), seq),
        E::FragmentEnded(e) => open.end(format!("part {} {}", e.message, e.part), seq),
        E::ToolInputStarted(e) => open.begin(format!("call {} {}", e.message, e.call), seq),
        E::ToolCalled(e) => {
            let call = format!("call {} {}", e.message, e.call);
            if !open.open.contains(&call) {
                open.begin(call, seq);
            }
        }
        E::ToolStarted(e) => open.begin(format!("spawn {} {}", e.message, e.call), seq),
        E::ToolSucceeded(e) => call_over(open, e.message.as_str(), e.call.as_str(), seq),
        E::ToolFailed(e) => call_over(open, e.message.as_str(), e.call.as_str(), seq),
        E::CompactionStarted(e) => {
            open.none("step", "compaction.started", seq);
            open.begin(format!("compaction {}", e.compaction), seq);
        }
        E::CompactionEnded(e) => open.end(format!("compaction {}", e.compaction), seq),
        E::CompactionFailed(e) => open.end(format!("compaction {}", e.compaction), seq),
        E::InputAdmitted(e) => open.begin(format!("input {}", e.input), seq),
        E::InputPromoted(e) => open.end(format!("input {}", e.input), seq),
        E::InputCancelled(e) => open.end(format!("input {}", e.input), seq),
        _ => {}
    }
}

fn execution_over(open: &mut Open, id: &str, seq: u64) {
    for kind in ["step", "attempt", "part", "call", "compaction"] {
        open.none(kind, "the execution's end", seq);
    }
    open.end(format!("exe {id}"), seq);
}

fn step_over(open: &mut Open, id: &str, seq: u64) {
    for kind in ["attempt", "part", "call"] {
        open.none(kind, "the step's end", seq);
    }
    open.end(format!("step {id}"), seq);
}

fn call_over(open: &mut Open, message: &str, call: &str, seq: u64) {
    // A spawn is over with its call.
    let spawn = format!("spawn {message} {call}");
    if open.open.contains(&spawn) {
        open.end(spawn, seq);
    }
    open.end(format!("call {message} {call}"), seq);
}

/// What is wrong with a request: by its own pairing, and by each vendor's validator.
pub fn request_faults(request: &Request) -> Vec<String> {
    let mut all = pairing_faults(request);
    type Check = fn(&Value) -> Result<(), Vec<validate::Broken>>;
    let vendors: [(Protocol, Check); 5] = [
        (Protocol::OpenaiChat, validate::openai_chat),
        (Protocol::OpenaiResponses, validate::openai_responses),
        (Protocol::AnthropicMessages, validate::anthropic_messages),
        (Protocol::Gemini, validate::gemini),
        (Protocol::BedrockConverse, validate::bedrock_converse),
    ];
    let limits = ModelLimits {
        context: None,
        output: None,
    };
    for (protocol, check) in vendors {
        let encoded = encode(protocol, Dialect::Openai, &limits, request);
        match encoded {
            Ok(encoded) => {
                let body: Value = serde_json::from_slice(&encoded.body).expect("JSON");
                if let Err(broken) = check(&body) {
                    all.push(format!("{protocol:?}: {broken:?}"));
                }
            }
            Err(error) => all.push(format!("{protocol:?}: {error}")),
        }
    }
    all
}

fn pairing_faults(request: &Request) -> Vec<String> {
    let mut all = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (index, message) in request.messages.iter().enumerate() {
        let RequestMessage::Assistant { blocks } = message else {
            continue;
        };
        let calls: Vec<&str> = blocks
            .iter()
            .filter_map(|block| match block {
                AssistantBlock::ToolCall { id, .. } => Some(id.as_str()),
                _ => None,
            })
            .collect();
        for call in &calls {
            *seen.entry((*call).to_owned()).or_default() += 1;
        }
        let results: Vec<&str> = match request.messages.get(index + 1) {
            Some(RequestMessage::ToolResults { results }) => {
                results.iter().map(|r| r.id.as_str()).collect()
            }
            _ => Vec::new(),
        };
        if calls != results {
            all.push(format!("calls {calls:?} are answered by {results:?}"));
        }
    }
    all.extend(
        seen.iter()
            .filter(|(_, n)| **n > 1)
            .map(|(id, n)| format!("call {id} is there {n} times")),
    );
    all
}

/// Panics with the whole log when it is not as it must be at rest.
pub fn assert_at_rest(log: &[Event]) {
    let found = faults_at_rest(log);
    assert!(found.is_empty(), "{found:#?}\n{}", show(log));
}

/// The log, one event a line.
pub fn show(log: &[Event]) -> String {
    log.iter()
        .map(|e| format!("{:>3} {:?} {}\n", e.seq, e.epoch, e.body.type_name()))
        .collect()
}
