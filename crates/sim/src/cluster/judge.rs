//! Everything that must hold behind a fleet's work: logs, requests, effects, claims, processes.

use crate::{checker, task};
use anyhow::Result;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use tenure_core::event::EventBody;
use tenure_core::{Event, MessageId, SessionId};
use tenure_scripted::{Recorded, Verdict};

/// Whether two requests of one session may have been under way at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlaps {
    /// No owner was alive and cut off or paused, so there was one request at a time.
    Forbidden,
    /// A paused or cut-off owner cannot hang up on the provider.
    Allowed,
}

/// What is judged.
pub(super) struct Evidence {
    pub logs: BTreeMap<SessionId, Vec<Event>>,
    /// Prompts that were acknowledged, by session.
    pub acknowledged: Vec<(SessionId, MessageId)>,
    pub workspaces: BTreeMap<SessionId, PathBuf>,
    pub requests: Vec<Recorded>,
    pub overlaps: Vec<(u64, u64)>,
    /// Claims that are left, in words.
    pub claims: Vec<String>,
}

/// Every broken promise, in words; none when all hold.
pub(super) fn judge(evidence: &Evidence, overlaps: Overlaps) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (session, log) in &evidence.logs {
        let findings = checker::check(log);
        wrong.extend(findings.iter().map(|one| format!("{session}: {one}")));
        rest(session, log, &mut wrong);
        if let Some(workspace) = evidence.workspaces.get(session) {
            let effects = task::disagreements(workspace, log)?;
            wrong.extend(effects.iter().map(|one| format!("P5: {session}: {one}")));
        }
    }
    lost(evidence, &mut wrong);
    requests(evidence, overlaps, &mut wrong);
    wrong.extend(evidence.claims.iter().map(|one| format!("P4: left: {one}")));
    Ok(wrong)
}

/// The session's last execution has ended, and nothing waits.
fn rest(session: &SessionId, log: &[Event], wrong: &mut Vec<String>) {
    let last = log
        .iter()
        .rev()
        .find(|event| event.body.type_name().starts_with("execution."));
    if last.is_none_or(|event| matches!(event.body, EventBody::ExecutionStarted(_))) {
        wrong.push(format!("P7: {session} is not at rest"));
    }
}

/// Every acknowledged input is in its log, once, and promoted or cancelled or visibly pending.
fn lost(evidence: &Evidence, wrong: &mut Vec<String>) {
    for (session, input) in &evidence.acknowledged {
        let log = evidence.logs.get(session).map_or(&[][..], Vec::as_slice);
        let of = |found: &dyn Fn(&EventBody) -> bool| {
            log.iter().filter(|event| found(&event.body)).count()
        };
        let admitted = of(&|body| matches!(body, EventBody::InputAdmitted(e) if e.input == *input));
        let promoted = of(&|body| matches!(body, EventBody::InputPromoted(e) if e.input == *input));
        if admitted != 1 || promoted > 1 {
            wrong.push(format!(
                "P2: input {input} of {session} was admitted {admitted} and promoted {promoted} times"
            ));
        }
    }
}

/// Every request was valid, announced before, sent once, and alone in its session.
fn requests(evidence: &Evidence, overlaps: Overlaps, wrong: &mut Vec<String>) {
    let mut announced: HashMap<String, &SessionId> = HashMap::new();
    for (session, log) in &evidence.logs {
        for event in log {
            if let EventBody::AttemptStarted(e) = &event.body {
                announced.insert(format!("{}-{}", e.message, e.attempt), session);
            }
        }
    }
    let mut sent = HashSet::new();
    let mut sessions = HashMap::new();
    for request in &evidence.requests {
        let number = request.number;
        if request.verdict != Verdict::Accepted {
            wrong.push(format!(
                "P3: request {number} was refused: {:?}",
                request.verdict
            ));
        }
        let Some(key) = request.header("x-tenure-attempt") else {
            wrong.push(format!("P5: request {number} names no attempt"));
            continue;
        };
        match announced.get(key) {
            Some(session) => {
                sessions.insert(number, *session);
            }
            None => wrong.push(format!("P5: attempt {key} was sent and is in no log")),
        }
        if !sent.insert(key) {
            wrong.push(format!("P5: attempt {key} was sent twice"));
        }
    }
    if overlaps == Overlaps::Allowed {
        return;
    }
    for (first, second) in &evidence.overlaps {
        if let Some(session) = sessions.get(first)
            && sessions.get(second) == Some(session)
        {
            wrong.push(format!(
                "P1: request {second} of {session} came while {first} was under way"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;
    use tenure_core::event::body::*;
    use tenure_core::{EventId, ExecutionId, ModelRef};
    use tenure_scripted::Vendor;

    fn session() -> SessionId {
        SessionId::from_bits(1)
    }

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
            session: session(),
            seq: seq as u64,
            epoch: Some(1),
            created_ms: 0,
            body,
        };
        let log = bodies.into_iter().enumerate().map(event).collect();
        Evidence {
            logs: BTreeMap::from([(session(), log)]),
            acknowledged: vec![(session(), input)],
            workspaces: BTreeMap::new(),
            requests: vec![request(0, &format!("{}-1", MessageId::from_bits(1)))],
            overlaps: Vec::new(),
            claims: Vec::new(),
        }
    }

    fn request(number: u64, key: &str) -> Recorded {
        Recorded {
            number,
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

    /// What is found beside what the checker says: the log here is only a sketch.
    fn wrong(change: impl FnOnce(&mut Evidence)) -> String {
        let mut evidence = evidence();
        change(&mut evidence);
        let mut wrong = Vec::new();
        for (session, log) in &evidence.logs {
            rest(session, log, &mut wrong);
        }
        lost(&evidence, &mut wrong);
        requests(&evidence, Overlaps::Forbidden, &mut wrong);
        wrong.join("; ")
    }

    fn log(evidence: &mut Evidence) -> &mut Vec<Event> {
        evidence.logs.get_mut(&session()).unwrap()
    }

    #[test]
    fn each_broken_promise_is_named() {
        assert_eq!(wrong(|_| {}), "");
        assert!(wrong(|e| drop(log(e).pop())).contains("not at rest"));
        assert!(wrong(|e| drop(log(e).remove(0))).contains("was admitted 0"));
        assert!(
            wrong(|e| {
                let again = log(e)[1].clone();
                log(e).insert(1, again);
            })
            .contains("promoted 2 times")
        );
        assert!(wrong(|e| e.requests.push(request(1, "msg_x-1"))).contains("is in no log"));
        assert!(wrong(|e| e.requests.push(e.requests[0].clone())).contains("was sent twice"));
        assert!(wrong(|e| e.requests[0].headers.clear()).contains("names no attempt"));
        assert!(wrong(|e| e.requests[0].verdict = Verdict::NoTurn).contains("was refused"));
        assert!(wrong(|e| e.overlaps.push((0, 0))).contains("while 0 was under way"));
        assert!(
            !wrong(|e| e.overlaps.push((0, 5))).contains("under way"),
            "requests of different sessions may overlap"
        );
    }
}
