//! The log checker: a whole life passes, and each rule is broken once.

use sha2::{Digest, Sha256};
use tenure_core::event::EventBody;
use tenure_core::event::body::*;
use tenure_core::provider::Finish;
use tenure_core::usage::Usage;
use tenure_core::*;
use tenure_sim::checker::{Promise, check, pending};

fn msg(n: u128) -> MessageId {
    MessageId::from_bits(n)
}

fn exe(n: u128) -> ExecutionId {
    ExecutionId::from_bits(n)
}

fn call(n: u32) -> CallId {
    CallId::new(format!("call_{n}"))
}

fn model() -> ModelRef {
    ModelRef {
        provider: "p".to_owned(),
        model: "m".to_owned(),
    }
}

fn error() -> SessionError {
    SessionError::new("crashed", "lost")
}

const COST: Usage = Usage {
    input: 10,
    output: 5,
    reasoning: 0,
    cache_read: 0,
    cache_write: 0,
    cache_write_long: 0,
    searches: None,
};

/// Bodies with the epochs they are written under.
struct Log(Vec<(Option<u64>, EventBody)>);

impl Log {
    fn events(&self) -> Vec<Event> {
        let numbered = self.0.iter().enumerate();
        let event = |(seq, (epoch, body)): (usize, &(Option<u64>, EventBody))| Event {
            id: EventId::from_bits(seq as u128),
            session: SessionId::from_bits(1),
            seq: seq as u64,
            epoch: *epoch,
            created_ms: 0,
            body: body.clone(),
        };
        numbered.map(event).collect()
    }

    fn open(&mut self, body: impl Into<EventBody>) -> &mut Self {
        self.0.push((None, body.into()));
        self
    }

    fn own(&mut self, epoch: u64, body: impl Into<EventBody>) -> &mut Self {
        self.0.push((Some(epoch), body.into()));
        self
    }

    /// The place of the n-th event of a type, from 0.
    fn at(&self, type_name: &str, nth: usize) -> usize {
        let found = self
            .0
            .iter()
            .enumerate()
            .filter(|(_, (_, b))| b.type_name() == type_name);
        found.map(|(at, _)| at).nth(nth).unwrap()
    }

    fn twice(&mut self, type_name: &str, nth: usize) {
        let at = self.at(type_name, nth);
        let again = self.0[at].clone();
        self.0.insert(at + 1, again);
    }

    fn without(&mut self, type_name: &str, nth: usize) {
        let at = self.at(type_name, nth);
        self.0.remove(at);
    }

    fn edit(&mut self, nth: usize, type_name: &str, change: impl FnOnce(&mut EventBody)) {
        let at = self.at(type_name, nth);
        change(&mut self.0[at].1);
    }
}

fn admitted(n: u128) -> InputAdmitted {
    InputAdmitted {
        input: msg(n),
        kind: InputKind::user("do".to_owned()),
        delivery: Delivery::Steer,
    }
}

fn step(n: u128) -> StepStarted {
    StepStarted {
        message: msg(n),
        step: 1,
        model: model(),
        last: false,
    }
}

fn attempt(n: u128, attempt: u32) -> AttemptStarted {
    AttemptStarted {
        message: msg(n),
        attempt,
        model: model(),
        request_hash: "h".to_owned(),
        at_most: None,
    }
}

fn ended(n: u128, attempt: u32, usage: Option<Usage>) -> AttemptEnded {
    AttemptEnded {
        message: msg(n),
        attempt,
        finish: Finish::Stop,
        raw_finish: None,
        usage,
        cost: None,
        error: None,
    }
}

fn called(n: u128, part: u32, id: u32) -> ToolCalled {
    ToolCalled {
        message: msg(n),
        part,
        attempt: 1,
        call: call(id),
        name: "bash".to_owned(),
        input: "{}".to_owned(),
        executed: false,
        native: None,
    }
}

fn started(n: u128, id: u32) -> ToolStarted {
    ToolStarted {
        message: msg(n),
        call: call(id),
        generation: 0,
    }
}

fn succeeded(n: u128, id: u32) -> ToolSucceeded {
    ToolSucceeded {
        message: msg(n),
        call: call(id),
        text: "ok".to_owned(),
        title: String::new(),
        metadata: serde_json::Value::Null,
        cut: None,
        native: None,
    }
}

fn failed(n: u128, id: u32, failure: ToolFailure) -> ToolFailed {
    ToolFailed {
        message: msg(n),
        call: call(id),
        failure,
        text: "no".to_owned(),
        cut: None,
        native: None,
    }
}

fn text(log: &mut Log, epoch: u64, n: u128, part: u32, words: &str) {
    let digest = Sha256::digest(words.as_bytes());
    let (message, kind) = (msg(n), FragmentKind::Text);
    log.own(
        epoch,
        FragmentStarted {
            message: message.clone(),
            part,
            attempt: 1,
            kind,
        },
    )
    .own(
        epoch,
        FragmentChunk {
            message: message.clone(),
            part,
            text: words.to_owned(),
        },
    )
    .own(
        epoch,
        FragmentEnded {
            message,
            part,
            bytes: words.len() as u64,
            hash: digest[..8]
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            native: None,
            partial: false,
            superseded: false,
        },
    );
}

fn step_failed(n: u128) -> StepFailed {
    StepFailed {
        message: msg(n),
        error: error(),
        usage: Usage::default(),
        cost: None,
    }
}

/// A prompt, a step with two calls, a crash in the second step's tools, a takeover, and a good end.
fn life() -> Log {
    let mut log = Log(Vec::new());
    log.open(SessionCreated {
        title: None,
        location: Location::at("/w".to_owned()),
        model: model(),
        limits: Limits::default(),
        permissions: serde_json::Value::Null,
    })
    .open(admitted(101))
    .own(1, ExecutionStarted { execution: exe(1) })
    .own(1, InputPromoted { input: msg(101) })
    .own(1, step(1))
    .own(1, attempt(1, 1));
    text(&mut log, 1, 1, 0, "two calls");
    log.own(1, called(1, 1, 1))
        .own(1, called(1, 2, 2))
        .own(1, started(1, 1))
        .own(1, ended(1, 1, Some(COST)))
        .own(1, started(1, 2))
        .own(1, succeeded(1, 2))
        .own(1, succeeded(1, 1))
        .own(
            1,
            StepEnded {
                message: msg(1),
                finish: Finish::ToolCalls,
                usage: COST,
                cost: None,
            },
        )
        .own(1, step(2))
        .own(1, attempt(2, 1))
        .own(1, called(2, 0, 1))
        .own(1, called(2, 1, 2))
        .own(1, started(2, 1))
        .own(
            2,
            RecoveryStarted {
                execution: Some(exe(1)),
                phase: Phase::Active,
                attempts: 1,
                decision: RecoveryDecision::Continue,
            },
        )
        .own(2, ended(2, 1, None))
        .own(2, failed(2, 1, ToolFailure::OutcomeUnknown))
        .own(2, failed(2, 2, ToolFailure::NotExecuted))
        .own(2, step_failed(2))
        .own(2, admitted(102))
        .own(2, InputPromoted { input: msg(102) })
        .own(2, step(3))
        .own(2, attempt(3, 1));
    text(&mut log, 2, 3, 0, "done");
    log.own(2, ended(3, 1, Some(COST)))
        .own(
            2,
            StepEnded {
                message: msg(3),
                finish: Finish::Stop,
                usage: COST,
                cost: None,
            },
        )
        .own(2, ExecutionSucceeded { execution: exe(1) });
    log
}

#[track_caller]
fn breaks(log: &Log, promise: Promise, words: &str) {
    let findings = check(&log.events());
    let found = findings
        .iter()
        .any(|f| f.promise == promise && f.message.contains(words));
    assert!(
        found,
        "no {promise} finding with {words:?} among {findings:#?}"
    );
}

#[track_caller]
fn broken(change: impl FnOnce(&mut Log), promise: Promise, words: &str) {
    let mut log = life();
    change(&mut log);
    breaks(&log, promise, words);
}

#[test]
fn a_whole_life_and_each_of_its_beginnings_pass() {
    let events = life().events();
    for end in 0..=events.len() {
        assert_eq!(check(&events[..end]), [], "the first {end} events");
    }
    assert_eq!(pending(&events), []);
    assert_eq!(pending(&events[..2]), [msg(101)]);
}

#[test]
fn the_shape_of_the_log_is_checked() {
    let mut events = life().events();
    events.remove(7);
    assert_eq!(check(&events)[0].promise, Promise::Order);
    let mut events = life().events();
    events[5].id = events[4].id.clone();
    assert!(check(&events)[0].message.contains("is there twice"));
    let mut events = life().events();
    events[5].session = SessionId::from_bits(2);
    assert!(check(&events)[0].message.contains("in the log of"));
    broken(
        |log| log.without("session.created", 0),
        Promise::Order,
        "begins with its one creation",
    );
    broken(
        |log| log.twice("execution.started", 0),
        Promise::Order,
        "started twice",
    );
    broken(
        |log| log.without("execution.started", 0),
        Promise::Order,
        "outside an execution",
    );
    broken(
        |log| log.twice("step.ended", 0),
        Promise::Order,
        "ended, and was not open",
    );
    broken(
        |log| log.without("step.ended", 0),
        Promise::Order,
        "while a step or compaction was open",
    );
    broken(
        |log| log.without("step.started", 0),
        Promise::Order,
        "whose step is not open",
    );
}

#[test]
fn p1_a_deposed_owner_writes_nothing() {
    broken(
        |log| {
            let at = log.at("step.started", 2);
            log.0[at].0 = Some(1);
        },
        Promise::OneOwner,
        "an event of epoch 1 follows one of epoch 2",
    );
    broken(
        |log| log.without("recovery.started", 0),
        Promise::OneOwner,
        "instead of a recovery",
    );
    broken(
        |log| {
            let at = log.at("tool.started", 0);
            log.0[at].0 = None;
        },
        Promise::OneOwner,
        "without a fence",
    );
}

#[test]
fn p2_an_input_has_one_fate() {
    broken(
        |log| log.twice("input.admitted", 0),
        Promise::NothingLost,
        "admitted twice",
    );
    broken(
        |log| log.twice("input.promoted", 0),
        Promise::NothingLost,
        "had been promoted",
    );
    broken(
        |log| log.without("input.admitted", 0),
        Promise::NothingLost,
        "never been admitted",
    );
    broken(
        |log| log.without("input.promoted", 1),
        Promise::NothingLost,
        "was pending",
    );
    let taken_back = |log: &mut Log| {
        let at = log.at("input.promoted", 0);
        log.0.insert(
            at,
            (
                None,
                InputCancelled {
                    input: msg(101),
                    by: "me".to_owned(),
                }
                .into(),
            ),
        );
    };
    broken(taken_back, Promise::NothingLost, "had been cancelled");
}

#[test]
fn p3_a_step_is_whole_before_it_is_over() {
    broken(
        |log| log.without("tool.succeeded", 0),
        Promise::AlwaysSendable,
        "had no result",
    );
    broken(
        |log| log.twice("tool.succeeded", 0),
        Promise::AlwaysSendable,
        "second result",
    );
    broken(
        |log| log.without("tool.called", 0),
        Promise::AlwaysSendable,
        "never made",
    );
    broken(
        |log| log.twice("tool.called", 0),
        Promise::AlwaysSendable,
        "made twice",
    );
    broken(
        |log| log.without("fragment.ended", 0),
        Promise::AlwaysSendable,
        "while fragment 0 was open",
    );
    broken(
        |log| log.twice("fragment.ended", 0),
        Promise::AlwaysSendable,
        "ended, and was not open",
    );
    broken(
        |log| log.without("fragment.started", 0),
        Promise::AlwaysSendable,
        "text for part 0",
    );
    broken(
        |log| log.twice("fragment.started", 0),
        Promise::AlwaysSendable,
        "began twice",
    );
    broken(
        |log| log.without("fragment.chunk", 0),
        Promise::AlwaysSendable,
        "chunks are 0 bytes",
    );
    let other = |log: &mut Log| {
        log.edit(0, "fragment.chunk", |body| {
            if let EventBody::FragmentChunk(chunk) = body {
                "xyz calls".clone_into(&mut chunk.text);
            }
        });
    };
    broken(other, Promise::AlwaysSendable, "says 9 bytes");
    broken(
        |log| log.without("step.failed", 0),
        Promise::Order,
        "while a step or compaction was open",
    );
    let cut = |log: &mut Log| {
        let at = log.at("step.ended", 1);
        log.0.remove(at);
    };
    broken(
        cut,
        Promise::AlwaysSendable,
        "was open at the end of an execution",
    );
}

#[test]
fn p4_nothing_starts_behind_an_interrupt() {
    let interrupt = InterruptRequested {
        interrupt: InterruptId::from_bits(1),
        execution: Some(exe(1)),
        by: "me".to_owned(),
    };
    let mut log = life();
    let at = log.at("tool.started", 1);
    log.0.insert(at, (None, interrupt.clone().into()));
    breaks(
        &log,
        Promise::CancelIsAnEvent,
        "tool.started behind the interrupt",
    );
    breaks(
        &log,
        Promise::CancelIsAnEvent,
        "ended with execution.succeeded",
    );
    let mut late = life();
    late.open(interrupt.clone());
    breaks(&late, Promise::CancelIsAnEvent, "which was not running");

    // Settled as it should be, the same interrupt breaks nothing.
    let mut log = life();
    log.0.truncate(log.at("tool.started", 1));
    log.open(interrupt)
        .own(1, succeeded(1, 1))
        .own(1, failed(1, 2, ToolFailure::NotExecuted))
        .own(
            1,
            StepFailed {
                usage: COST,
                ..step_failed(1)
            },
        )
        .own(
            1,
            ExecutionInterrupted {
                execution: exe(1),
                reason: InterruptReason::User,
            },
        );
    assert_eq!(check(&log.events()), []);
}

#[test]
fn p5_effects_begin_once_and_are_told_as_they_were() {
    broken(
        |log| log.twice("tool.started", 0),
        Promise::HonestEffects,
        "started twice",
    );
    broken(
        |log| log.twice("attempt.started", 0),
        Promise::HonestEffects,
        "started behind attempt 1",
    );
    broken(
        |log| log.without("attempt.ended", 0),
        Promise::HonestEffects,
        "while its attempt 1 was open",
    );
    broken(
        |log| log.twice("attempt.ended", 0),
        Promise::HonestEffects,
        "ended, and was not open",
    );
    broken(
        |log| log.without("tool.started", 0),
        Promise::HonestEffects,
        "not begun",
    );
    broken(
        |log| log.twice("step.started", 0),
        Promise::HonestEffects,
        "started twice",
    );
    let hosted = |log: &mut Log| {
        log.edit(0, "tool.called", |body| {
            if let EventBody::ToolCalled(call) = body {
                call.executed = true;
            }
        });
    };
    broken(hosted, Promise::HonestEffects, "run by the provider");
    let again = |log: &mut Log| {
        let at = log.at("attempt.ended", 1);
        log.0.insert(at, (Some(2), started(2, 2).into()));
    };
    broken(again, Promise::HonestEffects, "by another owner");
    let resent = |log: &mut Log| {
        let at = log.at("attempt.ended", 1);
        log.0.insert(at + 1, (Some(2), attempt(2, 2).into()));
    };
    broken(resent, Promise::HonestEffects, "whose owner was lost");
    for (nth, how) in [
        (0, ToolFailure::NotExecuted),
        (0, ToolFailure::Failed),
        (1, ToolFailure::OutcomeUnknown),
    ] {
        let lie = |log: &mut Log| {
            log.edit(nth, "tool.failed", |body| {
                if let EventBody::ToolFailed(failed) = body {
                    failed.failure = how;
                }
            });
        };
        broken(lie, Promise::HonestEffects, "its owner was lost");
    }
    let usage = |log: &mut Log| {
        log.edit(0, "step.ended", |body| {
            if let EventBody::StepEnded(ended) = body {
                ended.usage.input += 10;
            }
        });
    };
    broken(usage, Promise::HonestEffects, "attempts add up to");
    let well = |log: &mut Log| {
        let at = log.at("step.failed", 0);
        let end = StepEnded {
            message: msg(2),
            finish: Finish::Stop,
            usage: Usage::default(),
            cost: None,
        };
        log.0[at].1 = end.into();
    };
    broken(well, Promise::HonestEffects, "said to have ended well");
}

#[test]
fn a_fork_goes_on_under_epochs_of_its_own() {
    let mut log = life();
    log.0.truncate(log.at("tool.succeeded", 0));
    let through = log.0.len() as u64 - 1;
    log.open(SessionForked {
        parent: SessionId::from_bits(9),
        through,
    })
    .open(admitted(103))
    .own(1, ExecutionStarted { execution: exe(2) })
    .own(1, InputPromoted { input: msg(103) })
    .own(1, ExecutionSucceeded { execution: exe(2) });
    assert_eq!(check(&log.events()), []);
}

/// Said twice, it is one input: whoever says it again derives the same name.
#[test]
fn what_an_owner_says_itself_is_named_after_the_step_it_follows() {
    let with = |input: MessageId| {
        let mut log = life();
        let at = log.at("step.failed", 0) + 1;
        let said = InputAdmitted {
            input: input.clone(),
            kind: InputKind::Synthetic {
                text: "go on".to_owned(),
            },
            delivery: Delivery::Steer,
        };
        let taken_back = InputCancelled {
            input,
            by: "recovery".to_owned(),
        };
        log.0.insert(at, (Some(2), said.into()));
        log.0.insert(at + 1, (Some(2), taken_back.into()));
        log
    };
    let named = |session: u128, step: u128| {
        let session = SessionId::from_bits(session);
        MessageId::derived(&["continuation", session.as_str(), msg(step).as_str()])
    };
    assert_eq!(check(&with(named(1, 2)).events()), []);
    let words = "goes on after step";
    breaks(&with(named(1, 3)), Promise::NothingLost, words);
    breaks(&with(msg(500)), Promise::NothingLost, words);
    // What a fork inherits bears its parent's name.
    let forked = |input| {
        let mut log = with(input);
        let through = log.0.len() as u64 - 1;
        log.open(SessionForked {
            parent: SessionId::from_bits(9),
            through,
        });
        log
    };
    assert_eq!(check(&forked(named(9, 2)).events()), []);
    breaks(&forked(named(1, 2)), Promise::NothingLost, words);
}

/// Whoever looks after a place says so without owning the session; its owner moves none that is being stopped.
#[test]
fn a_place_may_be_rebuilt_under_whatever_runs() {
    let replaced = AttachmentReplaced {
        location: Location::at("/w"),
        generation: 1,
        reason: "rebuilt".to_owned(),
    };
    let mut log = life();
    let at = log.at("step.started", 0) + 1;
    log.0.insert(at, (None, replaced.clone().into()));
    assert_eq!(check(&log.events()), []);
    let mut log = life();
    let asked = InterruptRequested {
        interrupt: InterruptId::from_bits(1),
        execution: Some(exe(1)),
        by: "user".to_owned(),
    };
    log.0.truncate(log.at("tool.succeeded", 0));
    log.open(asked).open(replaced.clone());
    assert_eq!(check(&log.events()), []);
    log.own(1, replaced);
    breaks(&log, Promise::CancelIsAnEvent, "behind the interrupt");
}
