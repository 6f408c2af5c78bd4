//! A client whose store loses answers, or is away for a moment: each request is carried out once, and its real answer
//! comes.

use crate::fakes::*;
use crate::support::*;
use crate::weather::Weather;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tenure_core::event::EventBody;
use tenure_core::event::body::*;
use tenure_core::id::{InterruptId, MessageId, SessionId};
use tenure_engine::*;
use tenure_store::sqlite::Fault;
use tenure_store::{AppendError, Interrupted};
use tenure_tools::permission::Rules;

const FAULTS: [Fault; 2] = [Fault::AnswerLost, Fault::CommitLost];

fn new_session(bed: &Bed, id: &SessionId, title: &str) -> NewSession {
    NewSession {
        id: Some(id.clone()),
        directory: bed.workspace().display().to_string(),
        model: Bed::model_ref(),
        title: Some(title.to_owned()),
        limits: tenure_core::event::body::Limits::default(),
        permissions: Rules::allow_all(),
    }
}

fn named(id: u128, words: &str) -> Prompt {
    Prompt {
        id: Some(MessageId::from_bits(id)),
        ..Prompt::steer(words)
    }
}

#[tokio::test]
async fn a_session_whose_answer_was_lost_is_made_once() {
    let bed = Bed::new([]);
    for (number, fault) in FAULTS.into_iter().enumerate() {
        let id = SessionId::from_bits(number as u128 + 1);
        bed.store.fail_next_commit(fault);
        let made = bed.client().create(new_session(&bed, &id, "mine")).await;
        assert_eq!(made.as_ref(), Ok(&id), "{fault:?}");
        assert_eq!(bed.count(&id, "session.created").await, 1);
        let other = bed.client().create(new_session(&bed, &id, "another")).await;
        assert_eq!(other, Err(AppendError::SessionExists(id).into()));
    }
}

#[tokio::test]
async fn a_prompt_whose_answer_was_lost_is_admitted_once_and_its_seq_is_told() {
    let bed = Bed::new([]);
    for fault in FAULTS {
        let session = bed.session().await;
        bed.store.fail_next_commit(fault);
        let admission = bed.admit(&session, Prompt::steer("hi")).await;
        let admitted: Vec<(MessageId, u64)> = (bed.log(&session).await.into_iter())
            .filter_map(|event| match event.body {
                EventBody::InputAdmitted(admitted) => Some((admitted.input, event.seq)),
                _ => None,
            })
            .collect();
        assert_eq!(admitted, [(admission.input, admission.seq)], "{fault:?}");
    }
}

#[tokio::test]
async fn an_interrupt_whose_answer_was_lost_is_one_and_answers_the_same() {
    let bed = Bed::new([]);
    for fault in FAULTS {
        let session = bed.session().await;
        bed.admit(&session, Prompt::steer("hi")).await;
        bed.store.fail_next_commit(fault);
        let stopped = bed.interrupt(&session).await;
        assert!(
            matches!(stopped, Interrupted::StoppedBeforeStart { .. }),
            "{fault:?}: {stopped:?}"
        );
        assert_eq!(bed.count(&session, "interrupt.requested").await, 1);
    }
}

#[tokio::test]
async fn an_answer_whose_answer_was_lost_counts_and_anothers_does_not() {
    for fault in FAULTS {
        let bed = Bed::new([Play::Answer(calls([call("a", "asks", "{}")]))]).with_tool(Asks);
        let config = EngineConfig {
            approvals: Approvals::Wait,
            ..bed.config.clone()
        };
        let engine = bed.engine_with(&bed.store, config).await;
        let session = bed.session_with(Rules::default(), 0).await;
        bed.admit(&session, Prompt::steer("hi")).await;
        engine.run(&session);
        let asked = bed.until(&session, "permission.asked").await;
        let EventBody::PermissionAsked(asked) = asked.body else {
            panic!("{asked:?}");
        };
        // Nobody else commits anything from here on.
        engine.shutdown().await.unwrap();
        let client = bed.client();
        let answer = |answer, by| client.answer(&session, &asked.message, &asked.call, answer, by);
        bed.store.fail_next_commit(fault);
        assert_eq!(
            answer(PermissionAnswer::Once, "me").await,
            Ok(()),
            "{fault:?}"
        );
        assert_eq!(answer(PermissionAnswer::Once, "me").await, Ok(()));
        assert_eq!(
            answer(PermissionAnswer::Once, "another").await,
            Err(EngineError::AlreadyAnswered {
                session: session.clone()
            })
        );
        assert_eq!(bed.count(&session, "permission.answered").await, 1);
    }
}

#[tokio::test]
async fn who_gives_up_is_told_what_to_repeat_it_with() {
    let bed = Bed::new([]);
    let session = bed.session().await;
    let hasty = bed.client().patient(Duration::ZERO);
    bed.store.fail_next_commit(Fault::AnswerLost);
    let told = hasty.admit(&session, named(7, "hi")).await.unwrap_err();
    let EngineError::Unconfirmed { again, .. } = &told else {
        panic!("{told:?}");
    };
    let id = MessageId::from_bits(7);
    assert_eq!(again.as_deref(), Some(id.as_str()));
    assert!(told.to_string().contains(id.as_str()), "{told}");
    let repeated = bed.admit(&session, named(7, "hi")).await;
    assert!(repeated.duplicate);
    assert_eq!(bed.count(&session, "input.admitted").await, 1);

    let key = InterruptId::from_bits(8);
    bed.store.fail_next_commit(Fault::AnswerLost);
    let told = hasty.interrupt_as(&session, key.clone(), None, "me").await;
    assert!(
        matches!(&told, Err(EngineError::Unconfirmed { again: Some(again), .. }) if again == key.as_str()),
        "{told:?}"
    );
    let again = hasty.interrupt_as(&session, key, None, "me").await.unwrap();
    assert!(matches!(again, Interrupted::StoppedBeforeStart { .. }));
    assert_eq!(bed.count(&session, "interrupt.requested").await, 1);
}

#[tokio::test]
async fn a_store_that_is_away_for_a_moment_is_waited_for_and_one_that_stays_away_is_not() {
    let bed = Bed::new([]);
    let session = bed.session().await;
    let (store, sky) = Weather::over(&bed.store);
    let client = Client::new(store, bed.config.env.clone());
    sky.away.store(true, Ordering::SeqCst);
    let hasty = client.clone().patient(Duration::from_millis(1));
    let refused = hasty.admit(&session, Prompt::steer("no")).await;
    // Nothing was written, and that is what it says.
    assert!(
        matches!(
            refused,
            Err(EngineError::Append(AppendError::Unavailable { .. }))
        ),
        "{refused:?}"
    );
    assert!(
        sky.take_asked()
            .get("append")
            .is_some_and(|tries| *tries >= 2)
    );
    let waiting = tokio::spawn({
        let session = session.clone();
        async move { client.admit(&session, Prompt::steer("yes")).await }
    });
    let mut tries = 0;
    eventually("some tries", async || {
        tries += sky.take_asked().get("append").copied().unwrap_or(0);
        tries >= 3
    })
    .await;
    sky.away.store(false, Ordering::SeqCst);
    let admission = waiting.await.unwrap().unwrap();
    assert!(!admission.duplicate);
    assert_eq!(bed.count(&session, "input.admitted").await, 1);
}
