//! Everything that must hold when a killed session has been finished: log, effects, requests, rows, processes.

use super::phase::Phase;
use super::point::{Hit, Point};
use crate::checker;
use crate::processes;
use crate::task;
use anyhow::Result;
use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tenure_core::event::EventBody;
use tenure_core::event::body::ToolFailure;
use tenure_core::{Event, MessageId};
use tenure_scripted::{Recorded, Verdict};

/// How long a background node may take to leave.
const LEAVING: Duration = Duration::from_secs(15);

/// What a finished point leaves.
pub(super) struct Evidence {
    pub events: Vec<Event>,
    pub requests: Vec<Recorded>,
    pub overlaps: Vec<(u64, u64)>,
    pub claims: usize,
    pub effects: usize,
    pub workspace: PathBuf,
    pub mark: String,
    pub acknowledged: Vec<MessageId>,
    /// The head at each kill; none when there was no session.
    pub cuts: Vec<Option<u64>>,
}

/// Checks everything and counts what the table shows.
pub(super) async fn all(evidence: &Evidence, point: &mut Point) -> Result<()> {
    count(evidence, point);
    let mut wrong: Vec<String> = checker::check(&evidence.events)
        .iter()
        .map(ToString::to_string)
        .collect();
    ends(evidence, &mut wrong);
    requests(evidence, &mut wrong);
    wrong.extend(task::disagreements(&evidence.workspace, &evidence.events)?);
    let left = left(&evidence.mark).await?;
    wrong.extend(
        left.into_iter()
            .map(|command| format!("P4: left running: {command}")),
    );
    point.violations.extend(wrong);
    Ok(())
}

fn count(evidence: &Evidence, point: &mut Point) {
    let events = &evidence.events;
    let of = |type_name: &str| {
        events
            .iter()
            .filter(|e| e.body.type_name() == type_name)
            .count()
    };
    point.events = events.len() as u64;
    point.steps = of("step.ended");
    point.tools = of("tool.started");
    point.prompts = evidence.acknowledged.len();
    point.requests = evidence.requests.len();
    point.hits = evidence
        .cuts
        .iter()
        .map(|head| hit(events, *head))
        .collect();
    let charged = |e: &&Event| matches!(&e.body, EventBody::RecoveryStarted(r) if r.attempts > 0);
    point.charged = events.iter().filter(charged).count();
}

/// What the kill behind `head` hit: the log up to it, and what the next owner's first commit settled.
fn hit(events: &[Event], head: Option<u64>) -> Hit {
    let Some(head) = head else {
        return Hit {
            phase: Phase::NoSession,
            taken_over: false,
            not_executed: 0,
            unknown: 0,
        };
    };
    let (before, after) = events.split_at(events.partition_point(|event| event.seq <= head));
    let epoch = before.iter().filter_map(|event| event.epoch).max();
    let next = after.iter().find(|event| event.epoch.is_some());
    let taken_over = next.is_some_and(|event| event.epoch > epoch);
    let mut hit = Hit {
        phase: Phase::of(before),
        taken_over,
        not_executed: 0,
        unknown: 0,
    };
    let settled = after.iter().take_while(|event| {
        !matches!(
            event.body,
            EventBody::StepFailed(_) | EventBody::StepStarted(_)
        )
    });
    for event in settled {
        if let EventBody::ToolFailed(e) = &event.body {
            match e.failure {
                ToolFailure::NotExecuted => hit.not_executed += 1,
                ToolFailure::OutcomeUnknown => hit.unknown += 1,
                _ => {}
            }
        }
    }
    hit
}

/// The session is at rest, well, with nothing of it lost.
fn ends(evidence: &Evidence, wrong: &mut Vec<String>) {
    if evidence.claims > 0 || evidence.effects > 0 {
        wrong.push(format!(
            "P4: {} claim rows and {} effect rows are left",
            evidence.claims, evidence.effects
        ));
    }
    let last = evidence
        .events
        .iter()
        .rev()
        .find(|event| event.body.type_name().starts_with("execution."));
    if !last.is_some_and(|event| matches!(event.body, EventBody::ExecutionSucceeded(_))) {
        let what = last.map_or("nothing", |event| event.body.type_name());
        wrong.push(format!("the session ends with {what}"));
    }
    for input in checker::pending(&evidence.events) {
        wrong.push(format!("P2: input {input} is pending in a session at rest"));
    }
    let promoted: HashSet<&MessageId> = evidence
        .events
        .iter()
        .filter_map(|event| match &event.body {
            EventBody::InputPromoted(e) => Some(&e.input),
            _ => None,
        })
        .collect();
    for input in evidence
        .acknowledged
        .iter()
        .filter(|input| !promoted.contains(input))
    {
        wrong.push(format!("P2: acknowledged input {input} was never promoted"));
    }
}

/// Every request was valid, alone, announced in the log before, and sent once.
fn requests(evidence: &Evidence, wrong: &mut Vec<String>) {
    let announced: HashSet<String> = evidence
        .events
        .iter()
        .filter_map(|event| match &event.body {
            EventBody::AttemptStarted(e) => Some(format!("{}-{}", e.message, e.attempt)),
            _ => None,
        })
        .collect();
    let mut sent = HashSet::new();
    for request in &evidence.requests {
        if request.verdict != Verdict::Accepted {
            wrong.push(format!(
                "P3: request {} was refused: {:?}",
                request.number, request.verdict
            ));
        }
        let Some(key) = request.header("x-tenure-attempt") else {
            wrong.push(format!("P5: request {} names no attempt", request.number));
            continue;
        };
        if !announced.contains(key) {
            wrong.push(format!("P5: attempt {key} was sent and is not in the log"));
        }
        if !sent.insert(key) {
            wrong.push(format!("P5: attempt {key} was sent twice"));
        }
    }
    for (first, second) in &evidence.overlaps {
        wrong.push(format!(
            "P1: request {second} came while {first} was under way"
        ));
    }
}

/// Processes that carry the mark when everything had time to leave.
async fn left(mark: &str) -> Result<Vec<String>> {
    let deadline = Instant::now() + LEAVING;
    loop {
        let left = processes::marked(mark)?;
        let only_nodes = left
            .iter()
            .all(|process| process.command.contains(" node ") || is_nursery(process.pid));
        // A tool's process has no time at all: its call is settled. A node leaves when it finds nothing to do, and
        // what forks its guardians leaves with it.
        if left.is_empty() || !only_nodes || Instant::now() > deadline {
            return Ok(left.into_iter().map(|process| process.command).collect());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Does the process only fork guardians? A guardian it forked has another name.
fn is_nursery(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm"))
        .is_ok_and(|name| name.trim() == "tenure-nursery")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tenure_core::event::body::*;
    use tenure_core::{EventId, ExecutionId, ModelRef, SessionId};
    use tenure_scripted::Vendor;

    fn evidence() -> Evidence {
        let input = MessageId::from_bits(7);
        let kind = InputKind::user("do".to_owned());
        let bodies: [EventBody; 4] = [
            InputAdmitted {
                input: input.clone(),
                kind,
                delivery: Delivery::Steer,
            }
            .into(),
            InputPromoted {
                input: input.clone(),
            }
            .into(),
            AttemptStarted {
                message: MessageId::from_bits(1),
                attempt: 1,
                model: ModelRef {
                    provider: "p".to_owned(),
                    model: "m".to_owned(),
                },
                request_hash: String::new(),
                at_most: None,
            }
            .into(),
            ExecutionSucceeded {
                execution: ExecutionId::from_bits(1),
            }
            .into(),
        ];
        let event = |(seq, body): (usize, EventBody)| Event {
            id: EventId::from_bits(seq as u128),
            session: SessionId::from_bits(1),
            seq: seq as u64,
            epoch: Some(1),
            created_ms: 0,
            body,
        };
        Evidence {
            events: bodies.into_iter().enumerate().map(event).collect(),
            requests: vec![request(&format!("{}-1", MessageId::from_bits(1)))],
            overlaps: Vec::new(),
            claims: 0,
            effects: 0,
            workspace: PathBuf::new(),
            mark: String::new(),
            acknowledged: vec![input],
            cuts: Vec::new(),
        }
    }

    fn request(key: &str) -> Recorded {
        Recorded {
            number: 0,
            vendor: Vendor::OpenaiChat,
            path: String::new(),
            headers: vec![("x-tenure-attempt".to_owned(), key.to_owned())],
            body: Arc::default(),
            bytes: Arc::default(),
            verdict: Verdict::Accepted,
            turn: None,
            started: Duration::ZERO,
            ended: None,
        }
    }

    fn wrong(change: impl FnOnce(&mut Evidence)) -> String {
        let mut evidence = evidence();
        change(&mut evidence);
        let mut wrong = Vec::new();
        ends(&evidence, &mut wrong);
        requests(&evidence, &mut wrong);
        wrong.join("; ")
    }

    #[test]
    fn each_broken_promise_is_named() {
        assert_eq!(wrong(|_| {}), "");
        assert!(wrong(|e| e.requests.push(e.requests[0].clone())).contains("was sent twice"));
        assert!(wrong(|e| e.requests.push(request("msg_other-1"))).contains("is not in the log"));
        assert!(wrong(|e| e.requests[0].headers.clear()).contains("names no attempt"));
        assert!(wrong(|e| e.requests[0].verdict = Verdict::NoTurn).contains("was refused"));
        assert!(wrong(|e| e.overlaps.push((0, 1))).contains("while 0 was under way"));
        assert!(wrong(|e| e.claims = 1).contains("1 claim rows"));
        assert!(wrong(|e| e.effects = 1).contains("1 effect rows"));
        assert!(wrong(|e| drop(e.events.pop())).contains("ends with nothing"));
        assert!(wrong(|e| drop(e.events.remove(1))).contains("is pending in a session at rest"));
        assert!(
            wrong(|e| e.acknowledged.push(MessageId::from_bits(8))).contains("was never promoted")
        );
    }
}
