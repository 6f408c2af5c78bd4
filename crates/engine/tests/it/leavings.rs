//! Known faults, the third part: what one turn or one attempt leaves behind touches neither the next nor its readers.

use crate::fakes::*;
use crate::support::*;
use tenure_core::error::{ErrorClass, ProviderError};
use tenure_core::event::EventBody;
use tenure_core::id::{MessageId, SessionId};
use tenure_core::message::{Entry, PartKind};
use tenure_core::provider::ProviderEvent;
use tenure_core::session::SessionState;
use tenure_engine::*;
use tenure_store::FollowItem;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

/// Admits a prompt as another client does, who wakes nobody, and waits for its first request, which comes by itself.
async fn starts(bed: &Bed, session: &SessionId, what: &str) {
    assert_eq!(bed.store.claims().await.unwrap(), [], "{what}: idle");
    let steps = bed.count(session, "step.started").await;
    let admission = bed.admit(session, Prompt::steer(what)).await;
    bed.until_event(
        session,
        what,
        |e| matches!(&e.body, EventBody::InputPromoted(p) if p.input == admission.input),
    )
    .await;
    bed.until_nth(session, "step.started", steps + 1).await;
}

/// A tool that is told to stop and does not, after whatever `manner` says, and keeps its only slot.
async fn after_a_stubborn_tool(manner: Manner) {
    let (tool, hold) = Held::new(manner);
    let mut bed = Bed::new([Play::Answer(calls([call("a", "hold", "{}")]))])
        .with_tool(tool)
        .with_tool(Echo);
    bed.config.tool_concurrency = 1;
    let engine = bed.engine().await;
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("hold")).await;
    engine.run(&session);
    eventually("the tool", async || hold.begun() == 1).await;
    bed.interrupt(&session).await;
    bed.until(&session, "execution.interrupted").await;
    engine.idle().await;
    bed.model
        .push(Play::Answer(calls([call("b", "echo", "{}")])));
    starts(&bed, &session, "behind a stubborn tool").await;
    if manner == Manner::Blocks {
        // Its next call waits for what is still at work; only the prompt does not.
        hold.release();
    }
    // It has slots of its own, too.
    bed.until(&session, "tool.succeeded").await;
    hold.release();
    engine.idle().await;
    bed.assert_at_rest(&session).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_024_a_prompt_starts_whatever_the_tools_of_the_turn_before_do() {
    for manner in [Manner::Obeys, Manner::Ignores, Manner::Blocks] {
        after_a_stubborn_tool(manner).await;
    }
}

#[tokio::test]
async fn bc_s_024_a_prompt_starts_whoever_still_reads_the_turn_before() {
    // More items than a reader's queue holds, once a peer that never reads is there.
    let gate = Gate::shut();
    let chatter = || {
        let delta = |n: usize| ProviderEvent::TextDelta {
            id: "t".to_owned(),
            text: format!("{n} "),
        };
        let mut answer = text("begin");
        answer.splice(1..1, (0..3_000).map(|n| Ok(vec![delta(n)])));
        let rest = answer.split_off(1);
        Play::Gated(answer, gate.clone(), rest)
    };
    let mut bed = Bed::new([chatter(), chatter()]);
    bed.config.socket_dir = Some(bed.dir.path().to_owned());
    let engine = bed.engine().await;
    let session = bed.session().await;
    let _live = engine.live(&session);
    let _followed = bed.client().follow(&session, None);
    let path = bed
        .dir
        .path()
        .join(format!("{}.sock", engine.incarnation()));
    eventually("the socket", async || path.exists()).await;
    let admission = bed.admit(&session, Prompt::steer("talk")).await;
    engine.run(&session);
    bed.until(&session, "fragment.started").await;
    // One peer that asks and never reads, and one that says nothing at all.
    let mut peer = UnixStream::connect(&path).await.unwrap();
    let asked = format!("{{\"op\":\"live\",\"session\":\"{session}\"}}\n");
    peer.write_all(asked.as_bytes()).await.unwrap();
    let _mute = UnixStream::connect(&path).await.unwrap();
    gate.open();
    assert_eq!(
        outcome(&engine, &session, &admission).await,
        Outcome::Succeeded
    );
    engine.idle().await;
    for what in ["once", "again"] {
        starts(&bed, &session, what).await;
        bed.until_event(&session, "the end", |e| {
            matches!(e.body, EventBody::ExecutionSucceeded(_))
        })
        .await;
        engine.idle().await;
    }
    bed.assert_at_rest(&session).await;
}

#[tokio::test]
async fn bc_s_024_a_prompt_starts_after_a_turn_that_failed_or_whose_process_died() {
    let refused = ProviderError::new(ErrorClass::Auth, "no such key");
    let (tool, hold) = Held::new(Manner::Ignores);
    let bed = Bed::new([Play::Refuse(refused)]).with_tool(tool);
    let session = bed.session().await;
    let victim = bed.victim().await;
    let failed = ask(&victim.engine, &session, "first").await.1;
    assert!(matches!(failed, Outcome::Failed(_)), "{failed:?}");
    victim.engine.idle().await;
    starts(&bed, &session, "behind a failure").await;
    victim.engine.idle().await;
    // Killed in the middle of a tool, whose turn another process then ends.
    bed.model
        .push(Play::Answer(calls([call("a", "hold", "{}")])));
    bed.admit(&session, Prompt::steer("hold")).await;
    eventually("the tool", async || hold.begun() == 1).await;
    victim.kill().await;
    let engine = bed.engine().await;
    engine.run(&session);
    bed.until(&session, "recovery.started").await;
    bed.until_nth(&session, "execution.succeeded", 2).await;
    engine.idle().await;
    starts(&bed, &session, "behind a death").await;
    engine.idle().await;
    bed.assert_at_rest(&session).await;
}

/// What a client shows that draws live text and lets the log decide.
#[derive(Default)]
struct Screen {
    /// Attempt and text of the message that streams.
    live: (u32, String),
    log: SessionState,
}

impl Screen {
    fn live(&mut self, receiver: &mut tokio::sync::broadcast::Receiver<LiveItem>) {
        while let Ok(item) = receiver.try_recv() {
            if let LiveItem::Delta { attempt, text, .. } = item {
                if attempt != self.live.0 {
                    self.live = (attempt, String::new());
                }
                self.live.1 += &text;
            }
        }
    }

    fn shown(&self) -> Vec<String> {
        let texts = self.log.entries.iter().filter_map(|e| match e.as_ref() {
            Entry::Assistant(message) => Some(&message.parts),
            _ => None,
        });
        texts
            .flatten()
            .filter(|part| !part.superseded)
            .filter_map(|part| match &part.kind {
                PartKind::Text(text) => Some(text.text.clone()),
                _ => None,
            })
            .collect()
    }

    /// Reads the log from `after` to the end of the execution.
    async fn read(&mut self, bed: &Bed, session: &SessionId) {
        use futures::StreamExt;
        let mut items = bed.client().follow(session, self.log.cursor);
        while let Some(item) = items.next().await {
            if let FollowItem::Event(event) = item.unwrap() {
                self.log.apply(&event);
                if matches!(event.body, EventBody::ExecutionSucceeded(_)) {
                    return;
                }
            }
        }
    }
}

#[tokio::test]
async fn bc_s_049_text_of_a_broken_attempt_is_shown_to_nobody_in_the_end() {
    let gate = Gate::shut();
    let bed = Bed::new([
        Play::Answer(half("The answer is fo")),
        Play::Gated(Vec::new(), gate.clone(), text("The answer is 42.")),
    ]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let (mut first, mut second, mut third) =
        (Screen::default(), Screen::default(), Screen::default());
    let mut before = engine.live(&session);
    let admission = bed.admit(&session, Prompt::steer("what?")).await;
    engine.run(&session);
    bed.until_nth(&session, "attempt.started", 2).await;
    // Between the attempts: one has seen the broken one live, the other has it from the log alone.
    first.live(&mut before);
    assert_eq!(first.live, (1, "The answer is fo".to_owned()));
    let mut between = engine.live(&session);
    for event in bed.log(&session).await {
        second.log.apply(&event);
    }
    assert_eq!(second.shown(), Vec::<String>::new());
    gate.open();
    assert_eq!(
        outcome(&engine, &session, &admission).await,
        Outcome::Succeeded
    );
    engine.idle().await;
    first.live(&mut before);
    second.live(&mut between);
    for screen in [&mut first, &mut second, &mut third] {
        screen.read(&bed, &session).await;
        assert_eq!(screen.shown(), ["The answer is 42."]);
    }
    for live in [&first.live, &second.live] {
        assert_eq!(live, &(2, "The answer is 42.".to_owned()));
    }
    let superseded: Vec<(MessageId, bool)> = (bed.log(&session).await.into_iter())
        .filter_map(|e| match e.body {
            EventBody::FragmentEnded(e) => Some((e.message, e.superseded)),
            _ => None,
        })
        .collect();
    assert!(superseded[0].1 && !superseded[1].1, "{superseded:?}");
    assert_eq!(superseded[0].0, superseded[1].0, "attempts of one message");
    assert_eq!(ask(&engine, &session, "why?").await.1, Outcome::Succeeded);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    for index in 1..bed.model.sent() {
        assert!(
            !bed.asked(index).contains("answer is fo"),
            "request {index}"
        );
    }
    assert!(bed.asked_last().contains("said: The answer is 42."));
}
