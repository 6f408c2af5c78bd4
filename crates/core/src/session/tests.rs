//! Tests of the session fold.

use super::*;
use crate::id::{CallId, EventId, SessionId};
use crate::message::PartKind;
use crate::provider::Finish;

/// Numbers events like a log would.
struct Log(Vec<Event>);

impl Log {
    fn add(&mut self, body: impl Into<EventBody>) -> &mut Self {
        let seq = self.0.len() as u64;
        self.0.push(Event {
            id: EventId::from_bits(u128::from(seq) + 1),
            session: SessionId::from_bits(1),
            seq,
            epoch: Some(1),
            created_ms: seq as i64,
            body: body.into(),
        });
        self
    }
}

fn created() -> SessionCreated {
    SessionCreated {
        title: None,
        location: Location::at("/p".to_owned()),
        model: ModelRef {
            provider: "p".to_owned(),
            model: "m".to_owned(),
        },
        limits: Limits::default(),
        permissions: serde_json::Value::Null,
    }
}

fn msg(name: &str) -> MessageId {
    MessageId::parse(&format!("msg_{name}")).unwrap()
}

fn admit(log: &mut Log, name: &str, promote: bool) {
    log.add(InputAdmitted {
        input: msg(name),
        kind: InputKind::user(name.to_owned()),
        delivery: Delivery::Steer,
    });
    if promote {
        log.add(InputPromoted { input: msg(name) });
    }
}

fn step(log: &mut Log, name: &str, call: Option<&str>) {
    let model = created().model;
    log.add(StepStarted {
        message: msg(name),
        step: 1,
        model: model.clone(),
        last: false,
    });
    log.add(AttemptStarted {
        message: msg(name),
        attempt: 1,
        model,
        request_hash: String::new(),
        at_most: None,
    });
    if let Some(call) = call {
        log.add(ToolCalled {
            message: msg(name),
            part: 0,
            attempt: 1,
            call: CallId::new(call),
            name: "t".to_owned(),
            input: "{}".to_owned(),
            executed: false,
            native: None,
        });
    }
}

#[test]
fn applying_twice_changes_nothing() {
    let mut log = Log(Vec::new());
    log.add(created());
    admit(&mut log, "a", true);
    step(&mut log, "r", Some("c1"));
    let once = SessionState::fold(&log.0);
    let twice = SessionState::fold(log.0.iter().flat_map(|e| [e, e]));
    assert_eq!(once.entries, twice.entries);
    assert_eq!(once.totals, twice.totals);
    assert_eq!(once.turn.pending(), twice.turn.pending());
}

#[test]
fn a_pending_input_is_visible_and_not_in_the_conversation() {
    let mut log = Log(Vec::new());
    log.add(created());
    admit(&mut log, "a", false);
    let state = SessionState::fold(&log.0);
    assert_eq!(state.inbox.len(), 1);
    assert!(state.entries.is_empty());
    assert!(!state.wants_step);
}

#[test]
fn a_fork_inside_a_step_begins_at_rest_with_every_call_settled() {
    let mut log = Log(Vec::new());
    log.add(created());
    admit(&mut log, "a", true);
    admit(&mut log, "waiting", false);
    step(&mut log, "r", Some("c1"));
    log.add(SessionForked {
        parent: SessionId::from_bits(1),
        through: 5,
    });
    let state = SessionState::fold(&log.0);
    assert!(state.inbox.is_empty());
    assert!(state.turn.at_boundary());
    let Entry::Assistant(message) = state.entries.last().unwrap().as_ref() else {
        panic!("the open message is last")
    };
    assert_eq!(message.end.as_ref().unwrap().finish, Finish::Error);
    let PartKind::Tool(tool) = &message.parts[0].kind else {
        panic!("a tool")
    };
    assert!(tool.outcome.is_some());
}

#[test]
fn a_compaction_keeps_the_tail_and_pins_the_last_user_input() {
    let mut log = Log(Vec::new());
    log.add(created());
    admit(&mut log, "task", true);
    step(&mut log, "r1", None);
    log.add(StepEnded {
        message: msg("r1"),
        finish: Finish::Stop,
        usage: Usage::default(),
        cost: None,
    });
    let kept_from = log.0.len() as u64;
    step(&mut log, "r2", None);
    log.add(StepEnded {
        message: msg("r2"),
        finish: Finish::Stop,
        usage: Usage::default(),
        cost: None,
    });
    log.add(CompactionEnded {
        compaction: crate::id::CompactionId::from_bits(1),
        summary: "so far".to_owned(),
        kept_from,
        usage: None,
        cost: None,
    });
    let state = SessionState::fold(&log.0);
    assert_eq!(state.entries.len(), 1);
    let summary = state.summary.unwrap();
    assert!(matches!(summary.pinned, Some(InputKind::User { text, .. }) if text == "task"));
}
