//! Budgets hold at every point where a request would be sent, in whichever process, by the log alone.

use crate::fakes::*;
use crate::support::*;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tenure_core::Usage;
use tenure_core::error::{ErrorClass, ProviderError, SessionError};
use tenure_core::event::EventBody;
use tenure_core::event::body::Limits;
use tenure_core::facts::IdSource;
use tenure_core::id::SessionId;
use tenure_core::price::{Price, Rate, Rates};
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_core::request::HostedTool;
use tenure_core::session::SessionState;
use tenure_engine::*;
use tenure_provider::{Asks, ModelSettings};
use tenure_store::ProcessId;

/// What each answer of the scripted model costs at [`price`]: ten tokens in, five out.
const ANSWER: u64 = 2_000;
/// The most a request can cost that asks for what [`Bed`] declares: 1,000 tokens in, 100 out.
const MOST: u64 = 120_000;

fn price() -> Price {
    Price::flat(Rates {
        input: Rate::per_million("100").unwrap(),
        output: Rate::per_million("200").unwrap(),
        ..Rates::default()
    })
}

fn priced(answers: impl IntoIterator<Item = Play>) -> Bed {
    let mut bed = Bed::new(answers).with_tool(Echo);
    bed.config.auto_compaction = false;
    declare(&mut bed, Some(price()));
    bed
}

fn declare(bed: &mut Bed, price: Option<Price>) {
    let settings = ModelSettings {
        context: Some(1_000),
        output: Some(100),
        price,
        ..ModelSettings::default()
    };
    bed.catalogue.declare(&Bed::model_ref(), settings);
}

fn cost(limit: u64) -> Limits {
    Limits {
        max_cost: Some(limit),
        ..Limits::default()
    }
}

async fn limited(bed: &Bed, limits: Limits) -> SessionId {
    let session = bed.session().await;
    bed.client().set_limits(&session, limits).await.unwrap();
    session
}

fn budget(outcome: Outcome) -> SessionError {
    match outcome {
        Outcome::Failed(error) if error.kind == "budget" => error,
        other => panic!("expected an end by a budget, got {other:?}"),
    }
}

fn echo(id: &str) -> Play {
    Play::Answer(calls([call(id, "echo", "{}")]))
}

async fn fold(bed: &Bed, session: &SessionId) -> SessionState {
    SessionState::fold(&bed.log(session).await)
}

#[tokio::test]
async fn a_limit_on_cost_ends_the_turn_before_the_next_step() {
    let bed = priced([echo("a"), echo("b"), echo("c")]);
    let engine = bed.engine().await;
    let session = limited(&bed, cost(2 * ANSWER)).await;
    let error = budget(ask(&engine, &session, "go").await.1);
    assert!(
        error.message.contains("$0.004 of $0.004 are spent")
            && error.message.contains("--max-cost"),
        "{}",
        error.message
    );
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.model.sent(), 2);
    // What the log, the fold and the row say is the same sum.
    let log = bed.log(&session).await;
    let attempts = log.iter().filter_map(|e| match &e.body {
        EventBody::AttemptEnded(e) => e.cost,
        _ => None,
    });
    assert_eq!(attempts.sum::<u64>(), 2 * ANSWER);
    assert_eq!(fold(&bed, &session).await.totals.cost, 2 * ANSWER);
    let row = bed.store.session(&session).await.unwrap().unwrap();
    assert_eq!((row.cost, row.cost_incomplete), (2 * ANSWER, false));
    // The next prompt is not sent either, and waits; when more is allowed, another prompt takes it along.
    let (waiting, ended) = ask(&engine, &session, "more").await;
    budget(ended);
    assert_eq!(bed.model.sent(), 2);
    engine.idle().await;
    let inbox = bed.store.inbox(&session).await.unwrap();
    assert_eq!(inbox.len(), 1);
    assert_eq!(inbox[0].input, waiting);
    bed.client()
        .set_limits(&session, cost(20 * ANSWER))
        .await
        .unwrap();
    bed.model.clear();
    assert_eq!(ask(&engine, &session, "now").await.1, Outcome::Succeeded);
    let asked = bed.asked_last();
    assert!(
        asked.contains("user: more") && asked.contains("user: now"),
        "{asked}"
    );
    engine.idle().await;
    bed.assert_at_rest(&session).await;
}

#[tokio::test]
async fn a_limit_on_tokens_needs_no_price() {
    let mut bed = priced([echo("a"), echo("b"), echo("c")]);
    declare(&mut bed, None);
    let engine = bed.engine().await;
    let limits = Limits {
        max_tokens: Some(16),
        ..Limits::default()
    };
    let session = limited(&bed, limits).await;
    let error = budget(ask(&engine, &session, "go").await.1);
    assert!(error.message.contains("30 of 16"), "{}", error.message);
    assert_eq!(bed.model.sent(), 2);
}

#[tokio::test]
async fn an_unknown_price_is_no_price_of_zero() {
    let mut bed = priced([]);
    declare(&mut bed, None);
    let engine = bed.engine().await;
    let session = limited(&bed, cost(1_000_000)).await;
    let error = budget(ask(&engine, &session, "go").await.1);
    assert!(
        error.message.contains("the price of p/m is not known"),
        "{}",
        error.message
    );
    assert_eq!(bed.model.sent(), 0);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    // Without the limit it runs, and the sum says that a part is unknown.
    bed.client()
        .set_limits(&session, Limits::default())
        .await
        .unwrap();
    assert_eq!(ask(&engine, &session, "again").await.1, Outcome::Succeeded);
    let totals = fold(&bed, &session).await.totals;
    assert_eq!((totals.cost, totals.incomplete), (0, true));
    engine.idle().await;
    engine.shutdown().await.unwrap();
    // A price that is known later prices what was used before.
    declare(&mut bed, Some(price()));
    let engine = bed.engine().await;
    bed.client()
        .set_limits(&session, cost(ANSWER))
        .await
        .unwrap();
    let error = budget(ask(&engine, &session, "third").await.1);
    assert!(
        error.message.contains("up to $0.002 more by one request"),
        "{}",
        error.message
    );
    bed.client()
        .set_limits(&session, cost(ANSWER + 1))
        .await
        .unwrap();
    assert_eq!(ask(&engine, &session, "fourth").await.1, Outcome::Succeeded);
}

/// The owner is killed in a request: its cost is lost. The heir counts the most it can have been.
#[tokio::test]
async fn a_takeover_counts_what_the_lost_owner_sent() {
    for (limit, goes_on) in [
        (MOST, false),
        (MOST + ANSWER, false),
        (MOST + ANSWER + 1, true),
    ] {
        let bed = priced([echo("a"), Play::Hang(half("x"))]);
        let session = limited(&bed, cost(limit)).await;
        let victim = bed.victim().await;
        let admission = bed.admit(&session, Prompt::steer("hi")).await;
        victim.engine.run(&session);
        bed.until(&session, "fragment.started").await;
        victim.kill().await;
        let heir = bed.engine().await;
        let ended = outcome(&heir, &session, &admission).await;
        assert_eq!(ended == Outcome::Succeeded, goes_on, "{limit}: {ended:?}");
        assert_eq!(bed.model.sent(), if goes_on { 3 } else { 2 }, "{limit}");
        if !goes_on {
            let error = budget(ended);
            assert!(
                error.message.contains("up to $0.12 more"),
                "{}",
                error.message
            );
        }
        heir.idle().await;
        bed.assert_at_rest(&session).await;
    }
}

#[tokio::test]
async fn a_retry_is_not_sent_when_what_was_lost_may_have_used_the_rest() {
    let cut = || {
        let broken = ProviderError::new(ErrorClass::Transport, "connection reset");
        Play::Answer(vec![half("x").remove(0), Err(broken)])
    };
    let bed = priced([cut(), cut()]);
    let engine = bed.engine().await;
    let session = limited(&bed, cost(MOST + 1)).await;
    let error = budget(ask(&engine, &session, "go").await.1);
    assert!(error.message.contains("2 requests"), "{}", error.message);
    assert_eq!(bed.model.sent(), 2, "one was allowed after the first");
    engine.idle().await;
    bed.assert_at_rest(&session).await;
}

/// An answer of which some came, with the tokens counted so far, and then this instead of an end.
fn broken(error: ErrorClass) -> Play {
    let mut said = text("x").remove(0).unwrap();
    // As Messages begins: a count of the prompt, and a placeholder for the answer.
    said.insert(0, ProviderEvent::Usage(usage(20, 1)));
    Play::Answer(vec![Ok(said), Err(ProviderError::new(error, "broken"))])
}

#[tokio::test]
async fn what_a_cut_answer_reported_is_not_all_it_cost() {
    let bed = priced([broken(ErrorClass::Cut), broken(ErrorClass::Timeout)]);
    let engine = bed.engine().await;
    let session = limited(&bed, cost(MOST + 1)).await;
    let error = budget(ask(&engine, &session, "go").await.1);
    assert!(error.message.contains("2 requests"), "{}", error.message);
    assert_eq!(bed.model.sent(), 2, "one was allowed after the first");
    let totals = fold(&bed, &session).await.totals;
    assert_eq!((totals.usage.total(), totals.cost), (42, 0));
    assert!(totals.incomplete, "what is shown is a lower bound");
    engine.idle().await;
    bed.assert_at_rest(&session).await;
}

/// The ends of one compaction, answered so: usage, and cost.
async fn compacted(answer: Play) -> (Option<u64>, Option<u64>) {
    let mut bed = priced([]);
    let settings = ModelSettings {
        context: Some(200_000),
        output: Some(1_000),
        price: Some(price()),
        ..ModelSettings::default()
    };
    bed.catalogue.declare(&Bed::model_ref(), settings);
    bed.model
        .push(Play::Answer(text(&"an old answer ".repeat(50))));
    let engine = bed.engine().await;
    let session = bed.session().await;
    assert_eq!(ask(&engine, &session, "go").await.1, Outcome::Succeeded);
    engine.idle().await;
    bed.model.push(answer);
    bed.client().compact(&session).await.unwrap();
    engine.run(&session);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    let log = bed.log(&session).await;
    let (usage, cost) = log
        .iter()
        .find_map(|e| match &e.body {
            EventBody::CompactionEnded(e) => Some((e.usage, e.cost)),
            EventBody::CompactionFailed(e) => Some((e.usage, e.cost)),
            _ => None,
        })
        .expect("it was asked for");
    (usage.map(|usage| usage.total()), cost)
}

#[tokio::test]
async fn a_compaction_that_says_nothing_of_its_tokens_is_not_free() {
    let mut silent = text("a short summary");
    let Some(Ok(end)) = silent.last_mut() else {
        panic!("an answer ends")
    };
    end.pop();
    end.push(ProviderEvent::Finish {
        finish: Finish::Stop,
        raw: None,
        usage: Usage::default(),
    });
    assert_eq!(compacted(Play::Answer(silent)).await, (None, None));
    let counted = Play::Answer(text("a short summary"));
    assert_eq!(compacted(counted).await, (Some(15), Some(ANSWER)));
}

#[tokio::test]
async fn a_compaction_that_broke_off_is_neither_free_nor_counted_exactly() {
    // Refused before a word, refused behind some, and cut.
    let refused = Play::Refuse(ProviderError::new(ErrorClass::Overloaded, "busy"));
    assert_eq!(compacted(refused).await, (Some(0), Some(0)));
    let late = Play::Answer(vec![
        half("some text").remove(0),
        Err(ProviderError::new(ErrorClass::Overloaded, "busy")),
    ]);
    assert_eq!(compacted(late).await, (None, None));
    assert_eq!(
        compacted(broken(ErrorClass::Cut)).await,
        (Some(21), None),
        "a lower bound has no cost"
    );
}

#[tokio::test]
async fn with_a_limit_on_cost_a_model_with_tools_for_fees_is_not_asked() {
    let searching = || {
        let search = ProviderEvent::ToolCall {
            id: "srv".to_owned(),
            name: "web_search".to_owned(),
            input: "{}".to_owned(),
            executed: true,
            native: None,
        };
        let found = ProviderEvent::ToolResult {
            id: "srv".to_owned(),
            text: "found".to_owned(),
            is_error: false,
            native: None,
        };
        let mut answer = text("found it");
        answer.insert(0, Ok(vec![search, found]));
        Play::Answer(answer)
    };
    let mut bed = priced([searching()]);
    let settings = ModelSettings {
        context: Some(1_000),
        output: Some(100),
        price: Some(price()),
        asks: Asks {
            hosted: vec![HostedTool::WebSearch],
            ..Asks::default()
        },
        ..ModelSettings::default()
    };
    bed.catalogue.declare(&Bed::model_ref(), settings);
    let engine = bed.engine().await;
    let session = limited(&bed, cost(1_000_000)).await;
    let error = budget(ask(&engine, &session, "go").await.1);
    assert!(
        error.message.contains("fees of their own") && error.message.contains("`hosted`"),
        "{}",
        error.message
    );
    assert_eq!(bed.model.sent(), 0);
    // Without the limit it runs, and its cost is said to be unknown.
    bed.client()
        .set_limits(&session, Limits::default())
        .await
        .unwrap();
    assert_eq!(ask(&engine, &session, "again").await.1, Outcome::Succeeded);
    let totals = fold(&bed, &session).await.totals;
    assert_eq!((totals.usage.total(), totals.cost), (15, 0));
    assert!(totals.incomplete);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
}

#[tokio::test]
async fn a_refused_request_costs_nothing_and_is_repeated() {
    let busy = || Play::Refuse(ProviderError::new(ErrorClass::RateLimit, "slow down"));
    let bed = priced([busy(), busy()]);
    let engine = bed.engine().await;
    let session = limited(&bed, cost(1)).await;
    assert_eq!(ask(&engine, &session, "go").await.1, Outcome::Succeeded);
    assert_eq!(bed.model.sent(), 3);
    let totals = fold(&bed, &session).await.totals;
    assert_eq!((totals.cost, totals.incomplete), (ANSWER, false));
}

#[tokio::test]
async fn a_compaction_is_a_request_too() {
    let bed = priced([]);
    let engine = bed.engine().await;
    let session = limited(&bed, cost(ANSWER)).await;
    assert_eq!(ask(&engine, &session, "go").await.1, Outcome::Succeeded);
    engine.idle().await;
    bed.client().compact(&session).await.unwrap();
    engine.run(&session);
    let failed = bed.until(&session, "compaction.failed").await;
    let EventBody::CompactionFailed(failed) = &failed.body else {
        panic!("{failed:?}")
    };
    assert_eq!(failed.error.kind, "budget");
    assert_eq!(failed.cost, Some(0));
    assert_eq!(bed.model.sent(), 1);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
}

fn wall(limit: u64) -> Limits {
    Limits {
        max_wall_ms: Some(limit),
        ..Limits::default()
    }
}

#[tokio::test]
async fn a_step_that_never_ends_is_stopped_when_its_time_is_over() {
    let bed = priced([Play::Hang(half("x"))]);
    let engine = bed.engine().await;
    // Long enough for the step to have begun on a busy machine.
    let session = limited(&bed, wall(1_501)).await;
    let error = budget(ask(&engine, &session, "go").await.1);
    assert!(
        error.message.contains("1501 ms") && error.message.contains("--max-time"),
        "{}",
        error.message
    );
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.count(&session, "step.failed").await, 1);
    // Each execution has its own time.
    bed.client()
        .set_limits(&session, wall(600_000))
        .await
        .unwrap();
    assert_eq!(ask(&engine, &session, "again").await.1, Outcome::Succeeded);
}

#[tokio::test]
async fn a_tool_that_never_ends_is_stopped_and_settled() {
    let (tool, hold) = Held::new(Manner::Ignores);
    let bed = priced([Play::Answer(calls([call("a", "hold", "{}")]))]).with_tool(tool);
    let engine = bed.engine().await;
    let session = limited(&bed, wall(1_500)).await;
    budget(ask(&engine, &session, "go").await.1);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!((hold.begun(), bed.model.sent()), (1, 1));
    assert_eq!(settlements(&bed.log(&session).await).len(), 1);
}

/// The world, at another time of the day, and with long waits that end when the test says so.
#[derive(Default)]
struct Later {
    ms: i64,
    long: AtomicUsize,
    over: tokio::sync::Notify,
}

/// A wait so long is one for the end of an execution's time.
const LONG: Duration = Duration::from_secs(1_800);

/// Ends waits of [`Later`] by another handle.
struct World(Arc<Later>);

impl IdSource for World {
    fn next_bits(&self) -> u128 {
        SystemEnvironment.next_bits()
    }
}

impl Environment for World {
    fn now_ms(&self) -> i64 {
        SystemEnvironment.now_ms() + self.0.ms
    }

    fn boot_ms(&self) -> u64 {
        SystemEnvironment.boot_ms()
    }

    fn random(&self) -> u64 {
        SystemEnvironment.random()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        if duration >= LONG {
            let later = self.0.clone();
            return Box::pin(async move {
                later.long.fetch_add(1, Ordering::SeqCst);
                later.over.notified().await;
            });
        }
        SystemEnvironment.sleep(duration)
    }

    fn spawn(&self, future: BoxFuture<'static, ()>) {
        SystemEnvironment.spawn(future);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        SystemEnvironment.blocking(work)
    }

    fn end_leftover(&self, process: ProcessId) -> BoxFuture<'static, Result<(), String>> {
        SystemEnvironment.end_leftover(process)
    }

    fn as_ids(&self) -> &dyn IdSource {
        self
    }
}

const HOUR: i64 = 3_600_000;

const DAY: i64 = 24 * HOUR;

/// The time of an execution counts from its durable start, whoever runs it now: each owner's share by its own clock,
/// however far that is from the clock of the next one.
#[tokio::test]
async fn a_takeover_does_not_begin_the_time_anew_nor_compares_two_clocks() {
    for (ran, off) in [
        (HOUR - 60_000, DAY),
        (HOUR - 60_000, -DAY),
        (HOUR, DAY),
        (HOUR, -DAY),
    ] {
        let gate = Gate::shut();
        let (tool, hold) = Held::new(Manner::Obeys);
        let one = calls([call("a", "hold", "{}")]);
        let bed = priced([Play::Gated(Vec::new(), gate.clone(), one)]).with_tool(tool);
        let session = limited(&bed, wall(HOUR as u64)).await;
        let victim = bed.victim().await;
        let admission = bed.admit(&session, Prompt::steer("hi")).await;
        victim.engine.run(&session);
        bed.until(&session, "attempt.started").await;
        victim.world.off_ms.store(ran, Ordering::SeqCst);
        gate.open();
        eventually("the tool", async || hold.begun() == 1).await;
        victim.kill().await;
        let config = EngineConfig {
            env: Arc::new(World(Arc::new(Later {
                ms: off,
                ..Later::default()
            }))),
            ..bed.config.clone()
        };
        let heir = bed.engine_with(&bed.store, config).await;
        let ended = outcome(&heir, &session, &admission).await;
        if ran < HOUR {
            assert_eq!(ended, Outcome::Succeeded, "{off}");
        } else {
            budget(ended);
            assert_eq!(bed.model.sent(), 1);
        }
        heir.idle().await;
        bed.assert_at_rest(&session).await;
    }
}

/// An owner's own time is the boot clock's: whoever sets the wall clock neither ends nor lengthens it.
#[tokio::test]
async fn a_wall_clock_that_is_set_while_it_runs_ends_nothing() {
    let gate = Gate::shut();
    let one = calls([call("a", "echo", "{}")]);
    let bed = priced([Play::Gated(Vec::new(), gate.clone(), one)]).with_tool(Echo);
    let session = limited(&bed, wall(HOUR as u64)).await;
    let owner = bed.victim().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    owner.engine.run(&session);
    bed.until(&session, "attempt.started").await;
    owner.world.off_ms.store(DAY, Ordering::SeqCst);
    gate.open();
    let ended = outcome(&owner.engine, &session, &admission).await;
    assert_eq!(ended, Outcome::Succeeded);
    assert_eq!(bed.model.sent(), 2);
}

/// A longer time holds for the step that is running: its end is looked up again when the old one is over.
#[tokio::test]
async fn a_time_raised_meanwhile_holds_for_the_running_step() {
    let bed = priced([Play::Hang(half("x"))]);
    let later = Arc::new(Later::default());
    let config = EngineConfig {
        env: Arc::new(World(later.clone())),
        ..bed.config.clone()
    };
    let engine = bed.engine_with(&bed.store, config).await;
    let session = limited(&bed, wall(HOUR as u64)).await;
    let admission = bed.admit(&session, Prompt::steer("go")).await;
    engine.run(&session);
    bed.until(&session, "fragment.started").await;
    let before = later.long.load(Ordering::SeqCst);
    let longer = wall(2 * HOUR as u64);
    bed.client().set_limits(&session, longer).await.unwrap();
    later.over.notify_waiters();
    eventually("another wait", async || {
        later.long.load(Ordering::SeqCst) > before
    })
    .await;
    assert_eq!(bed.count(&session, "execution.failed").await, 0);
    bed.interrupt(&session).await;
    let ended = outcome(&engine, &session, &admission).await;
    assert!(matches!(ended, Outcome::Interrupted(_)), "{ended:?}");
    engine.idle().await;
    bed.assert_at_rest(&session).await;
}

#[tokio::test]
async fn limits_in_force_are_read_from_the_log() {
    let bed = priced([]);
    let session = limited(&bed, cost(7)).await;
    assert_eq!(bed.client().limits(&session).await.unwrap(), cost(7));
}
