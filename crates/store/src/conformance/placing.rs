//! States and lists (R4, P7).

use super::world::*;
use crate::api::*;
use tenure_core::event::body::*;
use tenure_core::id::*;
use tenure_core::provider::Finish;
use tenure_core::usage::Usage;

/// A small generator, so that a failing run repeats.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

struct Played {
    session: SessionId,
    owner: Option<Owner>,
    execution: Option<ExecutionId>,
    step: Option<MessageId>,
}

pub async fn every_session_is_in_one_state_and_acquire_agrees(w: World) {
    for seed in 1..=6 {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let mut nodes = vec![w.join().await, w.join().await];
        let mut played = Vec::new();
        for _ in 0..3 {
            let session = w.create().await;
            played.push(Played {
                session,
                owner: None,
                execution: None,
                step: None,
            });
        }
        for _ in 0..50 {
            let at = dice.roll(played.len() as u64) as usize;
            play(&w, &mut dice, &mut nodes, &mut played[at]).await;
        }
        let probe = w.join().await;
        for node in nodes {
            w.store.leave(&node).await.unwrap();
        }
        for session in played {
            check(&w, &session.session, &probe).await;
        }
        w.store.leave(&probe).await.unwrap();
    }
}

async fn play(w: &World, dice: &mut Dice, nodes: &mut Vec<Incarnation>, s: &mut Played) {
    match dice.roll(10) {
        0 | 1 => {
            w.admit(&s.session).await;
        }
        2 | 3 => {
            let node = nodes[dice.roll(nodes.len() as u64) as usize].clone();
            let before = w.state(&s.session).await;
            let answer = w.store.acquire(&s.session, &node, false).await.unwrap();
            agree(&before, &answer);
            if let Acquire::Acquired(tenure) = answer {
                s.owner = Some(Owner::new(&w.store, &s.session, tenure));
            }
        }
        4 => {
            // A node goes without a word; another comes and looks.
            let gone = nodes.remove(0);
            w.backend.crash(&gone);
            let new = w.join().await;
            w.store.reap(&new).await.unwrap();
            nodes.push(new);
        }
        5 => {
            let interrupt = Interrupt {
                session: s.session.clone(),
                interrupt: InterruptId::from_bits(w.bits()),
                execution: None,
                by: "dice".to_owned(),
                now_ms: 0,
            };
            w.store.interrupt(interrupt).await.unwrap();
        }
        6 => {
            let mut resume = Append::unfenced(s.session.clone(), Vec::new());
            resume.ops = vec![if dice.roll(2) == 0 {
                HookOp::Unpark
            } else {
                HookOp::Unquarantine
            }];
            w.store.append(resume).await.unwrap();
        }
        roll => work(w, roll, s).await,
    }
}

/// The owner does something, if it still may.
async fn work(w: &World, roll: u64, s: &mut Played) {
    let Some(owner) = &mut s.owner else { return };
    let open = w
        .store
        .session(&s.session)
        .await
        .unwrap()
        .unwrap()
        .execution;
    s.execution = open;
    let done = match (roll, &s.execution, &s.step) {
        (7, None, _) => {
            let execution = ExecutionId::from_bits(w.bits());
            let event = w.event(ExecutionStarted { execution });
            owner.append(Guard::Running, vec![event], Vec::new()).await
        }
        (7, Some(_), _) => {
            let message = w.message();
            s.step = Some(message.clone());
            owner.start_step(w, &message).await
        }
        (8, Some(execution), Some(step)) => {
            let events = vec![
                w.event(step_ended(step)),
                w.event(ExecutionInterrupted {
                    execution: execution.clone(),
                    reason: InterruptReason::User,
                }),
            ];
            owner.append(Guard::Settling, events, vec![RELEASE]).await
        }
        (9, _, _) => {
            owner
                .ops(vec![HookOp::Quarantine {
                    reason: "dice".to_owned(),
                }])
                .await
        }
        _ => owner.ops(vec![RELEASE_IDLE]).await,
    };
    if matches!(done, Err(AppendError::StaleClaim { .. })) {
        s.owner = None;
    }
}

/// The state that was shown says what taking the session answers.
fn agree(state: &SessionState, answer: &Acquire) {
    let same = matches!(
        (state, answer),
        (
            SessionState::Owned { .. } | SessionState::Waiting { .. },
            Acquire::Held { .. }
        ) | (SessionState::Claimable { .. }, Acquire::Acquired(_))
            | (
                SessionState::Parked { .. } | SessionState::Idle,
                Acquire::Idle
            )
            | (
                SessionState::Quarantined { .. },
                Acquire::Quarantined { .. }
            )
    );
    assert!(
        same,
        "{state:?} was shown, but taking it answered {answer:?}"
    );
}

/// With every node gone, whoever comes finds each session claimable or at rest.
async fn check(w: &World, session: &SessionId, probe: &Incarnation) {
    let state = w.state(session).await;
    let listed = w.store.claimable(1_000).await.unwrap();
    let claimable = matches!(state, SessionState::Claimable { .. });
    assert_eq!(
        listed.iter().any(|row| &row.id == session),
        claimable,
        "{state:?}"
    );
    agree(
        &state,
        &w.store.acquire(session, probe, false).await.unwrap(),
    );
}

pub async fn lists_show_what_the_log_says(w: World) {
    let (first, _, mut owner, _, message) = w.running().await;
    let usage = Usage {
        input: 10,
        output: 5,
        ..Usage::default()
    };
    let part = |text: &str| {
        w.event(FragmentChunk {
            message: message.clone(),
            part: 0,
            text: text.to_owned(),
        })
    };
    let mut events = vec![
        w.event(FragmentStarted {
            message: message.clone(),
            part: 0,
            attempt: 1,
            kind: FragmentKind::Text,
        }),
        part("Hello\nwor"),
        part("ld 100%\n"),
    ];
    for cost in [Some(7), None] {
        events.push(w.event(AttemptEnded {
            message: message.clone(),
            attempt: 1,
            finish: Finish::Stop,
            raw_finish: None,
            usage: Some(usage),
            cost,
            error: None,
        }));
    }
    owner
        .append(Guard::Settling, events, Vec::new())
        .await
        .unwrap();
    let second = w.create().await;
    w.write(&second, w.renamed("Zebra_1")).await;
    let third = w.create().await;
    // Activity orders the list, and the clock does not: every event here carries the same time.
    w.admit(&second).await;
    let ids = |rows: Vec<SessionRow>| rows.into_iter().map(|row| row.id).collect::<Vec<_>>();
    let all = w.store.sessions(SessionQuery::default()).await.unwrap();
    assert_eq!(
        (all[2].usage.input, all[2].usage.output, all[2].cost),
        (20, 10, 7)
    );
    assert!(all[2].cost_incomplete);
    assert_eq!(all[2].last_line, "world 100%");
    assert_eq!(ids(all), [second.clone(), third.clone(), first.clone()]);
    let find = |text: &str| SessionQuery {
        text: Some(text.to_owned()),
        ..SessionQuery::default()
    };
    assert_eq!(
        ids(w.store.sessions(find("zebra_")).await.unwrap()),
        std::slice::from_ref(&second)
    );
    assert_eq!(
        ids(w.store.sessions(find("100%")).await.unwrap()),
        std::slice::from_ref(&first)
    );
    assert_eq!(ids(w.store.sessions(find("%")).await.unwrap()), [first]);
    let page = SessionQuery {
        limit: 1,
        offset: 1,
        ..SessionQuery::default()
    };
    assert_eq!(ids(w.store.sessions(page).await.unwrap()), [third]);
    let elsewhere = SessionQuery {
        directory: Some("/nowhere".to_owned()),
        ..SessionQuery::default()
    };
    assert_eq!(w.store.sessions(elsewhere).await.unwrap(), []);
    let health = w.store.health().await.unwrap();
    assert_eq!((health.problems, health.sessions), (Vec::new(), 3));
}
