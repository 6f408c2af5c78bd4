//! Cancel everywhere: a drain is dropped at each of its polls, or meets an interrupt there, and what is left is
//! settled by the supervisor's own code.

mod faults;
mod takeover;

use super::*;
use crate::Engine;
use crate::checks;
use crate::fakes::Echo;
use crate::stepping::Stepping;
use crate::support::*;
use futures::future::BoxFuture;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use tenure_core::error::{ErrorClass, ProviderError};
use tenure_core::event::Event;
use tenure_core::provider::Finish;
use tenure_core::request::RequestMessage;
use tenure_core::turn::TurnState;
use tenure_store::mutation::{Mutation, Mutations};
use tenure_store::{Interrupted, OpenOptions};

/// Polls at most `n` times; `None` when that was not enough. The future is not polled again after that.
async fn poll_times<F: Future>(mut future: Pin<&mut F>, n: usize) -> Option<F::Output> {
    let mut left = n;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// What an execution goes through.
struct Story {
    name: &'static str,
    answers: fn() -> Vec<Play>,
    /// A turn before it, so that there is something to compact.
    history: bool,
    /// Admits more than the first prompt.
    more: for<'a> fn(&'a Bed, &'a SessionId) -> BoxFuture<'a, ()>,
    max_steps: u32,
    /// The model's window; 0 for an unknown one.
    window: u64,
}

const PLAIN: Story = Story {
    name: "plain",
    answers: || vec![Play::Answer(text("hello"))],
    history: false,
    more: |_, _| Box::pin(async {}),
    max_steps: 0,
    window: 0,
};

fn parallel() -> Vec<Play> {
    vec![
        Play::Answer(calls([
            call("a", "echo", r#"{"say":"one"}"#),
            call("b", "echo", r#"{"fail":true}"#),
            call("c", "nope", "{}"),
            call("d", "echo", "{broken"),
        ])),
        Play::Answer(text("done")),
    ]
}

fn refused(class: ErrorClass) -> Play {
    Play::Refuse(ProviderError::new(class, "refused"))
}

fn cut_behind_a_call() -> Answer {
    vec![Ok(vec![call("a", "echo", r#"{"say":"one"}"#)])]
}

fn stories() -> Vec<Story> {
    vec![
        PLAIN,
        Story {
            name: "parallel tools",
            answers: parallel,
            ..PLAIN
        },
        Story {
            name: "step.failed",
            answers: || vec![refused(ErrorClass::Auth)],
            ..PLAIN
        },
        Story {
            name: "violation",
            answers: || {
                let twice = calls([call("a", "echo", "{}"), call("a", "echo", "{}")]);
                vec![Play::Answer(twice)]
            },
            ..PLAIN
        },
        Story {
            name: "retry",
            answers: || vec![Play::Answer(half("hal")), Play::Answer(text("whole"))],
            ..PLAIN
        },
        Story {
            name: "cut behind a call",
            answers: || vec![Play::Answer(cut_behind_a_call()), Play::Answer(text("on"))],
            ..PLAIN
        },
        Story {
            name: "empty replies",
            answers: || {
                let empty = || Play::Answer(vec![Ok(vec![finish(Finish::Stop)])]);
                let tool = Play::Answer(calls([call("a", "echo", "{}")]));
                vec![tool, empty(), empty()]
            },
            ..PLAIN
        },
        Story {
            name: "overflow and compaction",
            answers: || {
                vec![
                    refused(ErrorClass::ContextOverflow),
                    Play::Answer(text("the summary")),
                    Play::Answer(text("fits now")),
                ]
            },
            history: true,
            ..PLAIN
        },
        Story {
            name: "threshold, and a summary of nothing before one",
            answers: || {
                let nothing = vec![Ok(vec![finish(Finish::Stop)])];
                vec![
                    Play::Answer(nothing),
                    Play::Answer(text("the summary")),
                    Play::Answer(text("fits")),
                ]
            },
            history: true,
            more: |bed, session| {
                Box::pin(async move {
                    let long = "word ".repeat(2_000);
                    bed.admit(session, crate::Prompt::steer(long)).await;
                })
            },
            window: 2_500,
            ..PLAIN
        },
        Story {
            name: "overflow, and a summarising request that is refused twice",
            answers: || {
                vec![
                    refused(ErrorClass::ContextOverflow),
                    refused(ErrorClass::Overloaded),
                    refused(ErrorClass::ContextOverflow),
                    Play::Answer(text("the summary")),
                    Play::Answer(text("fits now")),
                ]
            },
            history: true,
            ..PLAIN
        },
        Story {
            name: "manual compaction, then the queue",
            answers: || {
                vec![
                    Play::Answer(text("steered")),
                    Play::Answer(text("the summary")),
                    Play::Answer(text("queued")),
                ]
            },
            history: true,
            more: |bed, session| {
                Box::pin(async move {
                    bed.client().compact(session).await.unwrap();
                    bed.admit(session, crate::Prompt::queue("later")).await;
                })
            },
            ..PLAIN
        },
        Story {
            name: "last step",
            answers: || vec![Play::Answer(calls([call("a", "echo", "{}")]))],
            max_steps: 1,
            ..PLAIN
        },
        Story {
            name: "move",
            answers: || vec![Play::Answer(text("here")), Play::Answer(text("there"))],
            more: |bed, session| {
                Box::pin(async move {
                    let there = bed.workspace().display().to_string();
                    bed.client().relocate(session, there).await.unwrap();
                    bed.admit(session, crate::Prompt::steer("and there")).await;
                })
            },
            ..PLAIN
        },
    ]
}

/// What happens at the n-th poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// The future is dropped while its append is on its way.
    DropEarly,
    /// It is dropped when its append is committed, and it has not been told.
    DropLate,
    /// An interrupt is committed; the drain goes on until it notices by itself.
    Interrupt,
}

struct Lab {
    bed: Bed,
    engine: Engine,
}

impl Lab {
    async fn new(mutations: Mutations) -> Self {
        Self::with_window(mutations, 0).await
    }

    async fn with_window(mutations: Mutations, window: u64) -> Self {
        let options = OpenOptions {
            mutations,
            ..OpenOptions::default()
        };
        let mut bed = Bed::with_options([], options).with_tool(Echo);
        if window > 0 {
            bed.window(window, 100);
        }
        let store = Arc::new(Stepping(bed.store.clone()));
        let engine = bed.engine_on(store, bed.config.clone()).await;
        Self { bed, engine }
    }

    /// A session with the story's inputs waiting.
    async fn session(&self, story: &Story) -> SessionId {
        let rules = tenure_tools::permission::Rules::allow_all();
        let session = self.bed.session_with(rules, story.max_steps).await;
        self.bed.model.clear();
        if story.history {
            self.bed.model.push(Play::Answer(text("long ago")));
            ask(&self.engine, &session, "the first words").await;
            self.engine.idle().await;
            self.engine.forget(&session);
        }
        for play in (story.answers)() {
            self.bed.model.push(play);
        }
        self.bed.admit(&session, crate::Prompt::steer("go")).await;
        (story.more)(&self.bed, &session).await;
        session
    }

    async fn take(&self, session: &SessionId) -> Runner {
        let shared = &self.engine.shared;
        shared.mark_running(session);
        let life = shared.node.life();
        let acquired = shared.store.acquire(session, &life.incarnation, false);
        let Acquire::Acquired(tenure) = acquired.await.unwrap() else {
            panic!("the session is free")
        };
        let writer = Writer::new(
            shared.store.clone(),
            shared.config.env.clone(),
            session.clone(),
            tenure.fence.clone(),
        );
        let begun = begin(shared, session, life, &tenure, &writer).await;
        begun.unwrap().0
    }

    /// Everything sent to the writer for this session before has been carried out after this.
    async fn barrier(&self, session: &SessionId) {
        let incarnation = self.engine.incarnation();
        let store = &self.bed.store;
        store.acquire(session, &incarnation, false).await.unwrap();
    }

    /// One run of `story`. True when the drain came to its end within `n` polls.
    async fn run(&self, story: &Story, n: usize, at: At) -> Result<bool, String> {
        let session = self.session(story).await;
        let mut runner = self.take(&session).await;
        let (done, receipt, ended) = {
            let mut drain = Box::pin(runner.drain());
            let done = poll_times(drain.as_mut(), n).await;
            let mut receipt = None;
            let mut ended = None;
            if done.is_none() && at != At::DropEarly {
                self.barrier(&session).await;
            }
            if done.is_none() && at == At::Interrupt {
                receipt = Some(self.bed.interrupt(&session).await);
                ended = Some(drain.await);
            }
            (done, receipt, ended)
        };
        self.barrier(&session).await;
        if let Some(result) = done {
            result.map_err(|e| format!("the drain ended in {e}"))?;
            self.over(&session, &mut runner).await?;
            return Ok(true);
        }
        if at != At::Interrupt {
            self.memory_is_the_fold(&runner).await?;
        }
        let receipt = match receipt {
            Some(receipt) => receipt,
            None => self.bed.interrupt(&session).await,
        };
        self.settle(&mut runner, &session, &receipt, ended).await?;
        self.over(&session, &mut runner).await?;
        Ok(false)
    }

    async fn settle(
        &self,
        runner: &mut Runner,
        session: &SessionId,
        receipt: &Interrupted,
        ended: Option<Result<DrainEnd, DrainError>>,
    ) -> Result<(), String> {
        match (receipt, &ended) {
            (Interrupted::Accepted { seq, .. }, ended) => {
                if !matches!(ended, None | Some(Err(DrainError::Cancelling))) {
                    return Err(format!("the drain did not notice: {ended:?}"));
                }
                nothing_starts_after(&self.bed.log(session).await, *seq)?;
                let stopped = Err(Stopped::Drain(DrainError::Cancelling));
                let owned = runner.conclude(stopped).await;
                if owned != Ok(Some(Owned::Ended)) {
                    return Err(format!("not settled: {owned:?}"));
                }
                let log = self.bed.log(session).await;
                nothing_starts_after(&log, *seq)?;
                if let Some(EventBody::ExecutionSucceeded(_)) = log.last().map(|e| &e.body) {
                    return Err("an accepted interrupt ended as a success".to_owned());
                }
            }
            // The drain had just let go.
            (Interrupted::Idle, None) => {}
            (Interrupted::Idle, Some(Ok(_))) => {}
            other => return Err(format!("the interrupt was {other:?}")),
        }
        Ok(())
    }

    /// The turn's memory is what the log says, whenever nobody writes.
    async fn memory_is_the_fold(&self, runner: &Runner) -> Result<(), String> {
        let mut last = (String::new(), String::new());
        for _ in 0..200 {
            self.barrier(&runner.session).await;
            let memory = words(&runner.writer.turn());
            let log = self.bed.log(&runner.session).await;
            let fold = words(&SessionState::fold(&log).turn);
            if memory == fold {
                return Ok(());
            }
            // A tool may be writing just now.
            last = (memory, fold);
            tokio::task::yield_now().await;
        }
        Err(format!("memory {}\nlog    {}", last.0, last.1))
    }

    /// After the end: no claim, a sound log, and the next prompt works.
    async fn over(&self, session: &SessionId, runner: &mut Runner) -> Result<(), String> {
        let claims = self.bed.store.claims().await.unwrap();
        if !claims.is_empty() {
            return Err(format!("claims stay behind: {claims:?}"));
        }
        let log = self.bed.log(session).await;
        let faults = checks::faults_at_rest(&log);
        if !faults.is_empty() {
            return Err(format!("{faults:#?}\n{}", checks::show(&log)));
        }
        self.memory_is_the_fold(runner).await?;
        self.engine.shared.unmark_running(session);
        self.bed.model.clear();
        let (_, outcome) = ask(&self.engine, session, "what next").await;
        if outcome != crate::Outcome::Succeeded {
            return Err(format!("the next prompt ended in {outcome:?}"));
        }
        self.engine.idle().await;
        self.engine.forget(session);
        let last = self.bed.model.last_request();
        let asked = last.messages.iter().rev().find_map(|m| match m {
            RequestMessage::User { parts } => Some(
                parts
                    .iter()
                    .filter_map(|part| part.as_text())
                    .collect::<String>(),
            ),
            _ => None,
        });
        if !asked.is_some_and(|text| text.contains("what next") || text.contains("later")) {
            return Err(format!("asked {:?}", last.messages));
        }
        let faults = self.bed.model.faults();
        self.bed.model.requests.lock().unwrap().clear();
        let log = self.bed.log(session).await;
        let mut faults: Vec<String> = faults
            .into_iter()
            .chain(checks::faults_at_rest(&log))
            .collect();
        faults.dedup();
        if faults.is_empty() {
            Ok(())
        } else {
            Err(format!("{faults:#?}\n{}", checks::show(&log)))
        }
    }
}

fn words(turn: &TurnState) -> String {
    format!("{:?} {:?} {:?}", turn.execution, turn.compaction, turn.step)
}

/// No effect's start is committed after the interrupt (R10).
fn nothing_starts_after(log: &[Event], seq: u64) -> Result<(), String> {
    let start = log.iter().filter(|e| e.seq > seq).find(|e| {
        matches!(
            e.body,
            EventBody::ExecutionStarted(_)
                | EventBody::InputPromoted(_)
                | EventBody::StepStarted(_)
                | EventBody::AttemptStarted(_)
                | EventBody::ToolStarted(_)
                | EventBody::CompactionStarted(_)
        )
    });
    match start {
        Some(event) => Err(format!(
            "{} at {} after the interrupt at {seq}",
            event.body.type_name(),
            event.seq
        )),
        None => Ok(()),
    }
}

/// Every n until the drain comes to its end; how many there were, or the first that broke.
async fn everywhere(lab: &Lab, story: &Story, at: At) -> Result<usize, String> {
    for n in 1..2_000 {
        match lab.run(story, n, at).await {
            Ok(false) => {}
            Ok(true) => return Ok(n),
            Err(what) => return Err(format!("{}, {at:?} at poll {n}: {what}", story.name)),
        }
    }
    Err("it never ends".to_owned())
}

async fn all_stories(at: At) {
    for story in stories() {
        let lab = Lab::with_window(Mutations::default(), story.window).await;
        let polls = everywhere(&lab, &story, at).await;
        let polls = polls.unwrap_or_else(|what| panic!("{what}"));
        // Three polls of each append, and some in between.
        assert!(polls > 15, "{}: only {polls} polls", story.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_dropped_while_its_append_is_on_its_way_is_settled() {
    all_stories(At::DropEarly).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_dropped_between_commit_and_notification_is_settled() {
    all_stories(At::DropLate).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupt_at_any_point_is_noticed_and_nothing_starts_after_it() {
    all_stories(At::Interrupt).await;
}

/// The seeds' fault, by its two names: the commit of `step.started`, or of `step.failed`, is done, and the
/// one that made it is dropped before it hears of it.
async fn dropped_right_after(story: &Story, type_name: &str) {
    let lab = Lab::new(Mutations::default()).await;
    for n in 1..500 {
        let session = lab.session(story).await;
        let mut runner = lab.take(&session).await;
        {
            let mut drain = Box::pin(runner.drain());
            let done = poll_times(drain.as_mut(), n).await;
            assert!(done.is_none(), "no {type_name} before the end");
            lab.barrier(&session).await;
        }
        let last = lab.bed.log(&session).await.pop().unwrap();
        let batch_ends_with_it = match type_name {
            // The first attempt begins in the same commit.
            "step.started" => last.body.type_name() == "attempt.started",
            name => last.body.type_name() == name,
        };
        let receipt = lab.bed.interrupt(&session).await;
        lab.settle(&mut runner, &session, &receipt, None)
            .await
            .unwrap();
        lab.over(&session, &mut runner).await.unwrap();
        if batch_ends_with_it {
            return;
        }
    }
    panic!("{type_name} was never the last commit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupt_between_the_commit_of_step_started_and_its_notification_settles() {
    dropped_right_after(&PLAIN, "step.started").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupt_between_the_commit_of_step_failed_and_its_notification_settles() {
    let story = Story {
        name: "step.failed",
        answers: || vec![refused(ErrorClass::Auth)],
        ..PLAIN
    };
    dropped_right_after(&story, "step.failed").await;
}

/// With the rule broken, the harness finds a place where it shows.
async fn noticed(mutation: Mutation, story: &Story, at: At) -> String {
    let lab = Lab::new(Mutations::only(mutation)).await;
    match everywhere(&lab, story, at).await {
        Ok(polls) => panic!("{} went unnoticed in {polls} polls", mutation.name()),
        Err(what) => what,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_behind_the_notification_is_noticed() {
    noticed(Mutation::HookAfterNotify, &PLAIN, At::DropLate).await;
    noticed(Mutation::HookAfterNotify, &PLAIN, At::DropEarly).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_passes_under_an_interrupt_is_noticed() {
    noticed(Mutation::NoGuardCancelling, &PLAIN, At::Interrupt).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_ends_the_interrupt_is_noticed() {
    noticed(Mutation::LeaveClearsCancelling, &PLAIN, At::Interrupt).await;
}

impl Lab {
    /// The one input is taken back at the n-th poll of the drain. True when the drain was over by then.
    async fn take_back(&self, n: usize) -> Result<bool, String> {
        let session = self.session(&PLAIN).await;
        let mut runner = self.take(&session).await;
        let inbox = self.bed.store.inbox(&session).await.unwrap();
        let client = self.bed.client();
        let (over, ended) = {
            let mut drain = Box::pin(runner.drain());
            match poll_times(drain.as_mut(), n).await {
                Some(ended) => (true, ended),
                None => {
                    self.barrier(&session).await;
                    // Too late is an answer too.
                    let _ = client.cancel_input(&session, &inbox[0].input, "me").await;
                    (false, drain.await)
                }
            }
        };
        if ended != Ok(DrainEnd::Idle) {
            return Err(format!("the drain ended in {ended:?}"));
        }
        self.over(&session, &mut runner).await?;
        Ok(over)
    }

    async fn take_back_everywhere(&self) -> Result<usize, String> {
        for n in 1..500 {
            if self
                .take_back(n)
                .await
                .map_err(|what| format!("at poll {n}: {what}"))?
            {
                return Ok(n);
            }
        }
        Err("it never ends".to_owned())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_input_taken_back_at_any_point_has_one_end() {
    let lab = Lab::new(Mutations::default()).await;
    assert!(lab.take_back_everywhere().await.unwrap() > 15);
    let broken = Lab::new(Mutations::only(Mutation::NoCasPromote)).await;
    broken.take_back_everywhere().await.unwrap_err();
}
