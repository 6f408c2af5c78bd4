//! Replies without a word behind tools: asked once to go on, then a failure that says so.

use crate::fakes::*;
use crate::support::*;
use tenure_core::event::body::*;
use tenure_core::event::{Event, EventBody};
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_engine::*;

/// No text, no call, and tokens all the same.
fn nothing() -> Play {
    Play::Answer(vec![Ok(vec![finish(Finish::Stop)])])
}

/// Reasoning, and white space for the user.
fn thoughts() -> Play {
    let id = || "r".to_owned();
    Play::Answer(vec![Ok(vec![
        ProviderEvent::ReasoningStart { id: id() },
        ProviderEvent::ReasoningDelta {
            id: id(),
            text: "hm".to_owned(),
        },
        ProviderEvent::ReasoningEnd {
            id: id(),
            native: None,
        },
        ProviderEvent::TextStart { id: id() },
        ProviderEvent::TextDelta {
            id: id(),
            text: "\n ".to_owned(),
        },
        ProviderEvent::TextEnd {
            id: id(),
            native: None,
        },
        finish(Finish::Stop),
    ])])
}

fn echo(id: &str) -> Play {
    Play::Answer(calls([call(id, "echo", r#"{"say":"one"}"#)]))
}

fn three() -> Play {
    Play::Answer(calls(
        ["a", "b", "c"].map(|id| call(id, "echo", r#"{"say":"one"}"#)),
    ))
}

fn nudges(log: &[Event]) -> usize {
    let nudge = |e: &&Event| {
        matches!(
            &e.body,
            EventBody::InputAdmitted(InputAdmitted { kind: InputKind::Synthetic { text }, .. })
                if text.contains("reply was empty")
        )
    };
    log.iter().filter(nudge).count()
}

#[tokio::test]
async fn bc_s_050_an_empty_reply_behind_tools_is_asked_to_go_on() {
    for empty in [nothing, thoughts] {
        let bed = Bed::new([three(), empty(), Play::Answer(text("it is done"))]).with_tool(Echo);
        let engine = bed.engine().await;
        let session = bed.session().await;
        assert_eq!(ask(&engine, &session, "go").await.1, Outcome::Succeeded);
        engine.idle().await;
        bed.assert_at_rest(&session).await;
        assert_eq!(bed.model.sent(), 3);
        assert_eq!(nudges(&bed.log(&session).await), 1, "visible, and once");
        let asked = bed.asked_last();
        assert!(asked.contains("result c: one") && asked.contains("reply was empty"));
    }
}

#[tokio::test]
async fn bc_s_050_a_second_empty_reply_ends_the_turn_as_that() {
    // Also when it did something in between: one nudge for what a person said.
    for between in [false, true] {
        let mut script = vec![three(), nothing()];
        if between {
            script.push(echo("d"));
        }
        script.push(thoughts());
        let bed = Bed::new(script).with_tool(Echo);
        let engine = bed.engine().await;
        let session = bed.session().await;
        let (_, ended) = ask(&engine, &session, "go").await;
        let Outcome::Failed(error) = ended else {
            panic!("{ended:?}")
        };
        assert_eq!(error.kind, "empty_reply");
        assert!(error.message.starts_with("Empty reply"), "{error}");
        engine.idle().await;
        bed.assert_at_rest(&session).await;
        assert_eq!(bed.model.sent(), 3 + usize::from(between));
        assert_eq!(nudges(&bed.log(&session).await), 1);
        // What a person says next begins anew: it is nudged again.
        for play in [echo("e"), nothing(), Play::Answer(text("now"))] {
            bed.model.push(play);
        }
        assert_eq!(ask(&engine, &session, "on").await.1, Outcome::Succeeded);
        engine.idle().await;
        bed.assert_at_rest(&session).await;
        assert_eq!(nudges(&bed.log(&session).await), 2);
    }
}

#[tokio::test]
async fn bc_s_050_the_nudge_is_the_same_after_a_restart() {
    let gate = Gate::shut();
    let bed = Bed::new([three(), nothing()]).with_tool(Echo);
    bed.model
        .push(Play::Gated(Vec::new(), gate.clone(), text("never heard")));
    let session = bed.session().await;
    let victim = bed.victim().await;
    let admission = bed.admit(&session, Prompt::steer("go")).await;
    victim.engine.run(&session);
    bed.until_nth(&session, "attempt.started", 3).await;
    victim.kill().await;
    bed.model.clear();
    bed.model.push(nothing());
    let engine = bed.engine().await;
    let ended = outcome(&engine, &session, &admission).await;
    let Outcome::Failed(error) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!(error.kind, "empty_reply");
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(nudges(&bed.log(&session).await), 1);
}

#[tokio::test]
async fn an_empty_reply_in_the_last_step_gains_no_further_steps() {
    let bed = Bed::new([echo("a"), nothing()]).with_tool(Echo);
    let engine = bed.engine().await;
    let session = bed
        .session_with(tenure_tools::permission::Rules::allow_all(), 2)
        .await;
    let (_, ended) = ask(&engine, &session, "go").await;
    assert!(matches!(ended, Outcome::Failed(error) if error.kind == "empty_reply"));
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.model.sent(), 2);
}

#[tokio::test]
async fn what_waits_is_parked_behind_an_empty_reply_and_goes_on_when_asked() {
    let gate = Gate::shut();
    let bed = Bed::new([echo("a"), nothing()]).with_tool(Echo);
    bed.model.push(Play::Gated(
        Vec::new(),
        gate.clone(),
        vec![Ok(vec![finish(Finish::Stop)])],
    ));
    let engine = bed.engine().await;
    let session = bed.session().await;
    let first = bed.admit(&session, Prompt::steer("go")).await;
    engine.run(&session);
    bed.until_nth(&session, "attempt.started", 3).await;
    let waiting = bed.admit(&session, Prompt::queue("later")).await;
    gate.open();
    assert!(matches!(
        outcome(&engine, &session, &first).await,
        Outcome::Failed(_)
    ));
    engine.idle().await;
    let resting = bed.store.inbox(&session).await.unwrap();
    assert!(resting.len() == 1 && !resting[0].eligible, "{resting:?}");
    assert_eq!(resting[0].input, waiting.input);
    bed.client().unpark(&session).await.unwrap();
    bed.until_nth(&session, "execution.succeeded", 1).await;
    engine.idle().await;
    bed.assert_at_rest(&session).await;
}
