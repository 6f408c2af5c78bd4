//! Long tasks on models with small windows, over real HTTP against a server that counts by its own measure: what is
//! sent always fits, the task ends, and the cost is the sum of its attempts.

use crate::support::*;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tenure_core::compaction::{SECTIONS, SUMMARY_MARK};
use tenure_core::event::body::CompactionReason;
use tenure_core::event::{Event, EventBody};
use tenure_core::id::SessionId;
use tenure_core::model::ModelRef;
use tenure_core::price::{Price, Rate, Rates};
use tenure_core::session::SessionState;
use tenure_core::usage::Usage;
use tenure_engine::*;
use tenure_provider::{AwsKeys, HttpProvider, ModelSettings, Protocol, ProviderSettings, Secret};
use tenure_scripted::{
    Fault, Handle, Part, Recorded, Script, ScriptedModel, Times, Turn, TurnId, Verdict, measure,
};
use tenure_tools::permission::Access;
use tenure_tools::{Tool, ToolCx, ToolError, ToolOutput, ToolSpec};

/// The window of the model, by the server's measure.
const WINDOW: u64 = 32_000;
pub const OUTPUT: u64 = 2_000;

/// Every protocol this build speaks; the others are named, so that nobody takes them for tested.
pub fn protocols() -> impl Iterator<Item = Protocol> {
    Protocol::ALL.into_iter().filter(|protocol| {
        if !protocol.is_built() {
            println!("skipped: {protocol:?} is not in this build");
        }
        protocol.is_built()
    })
}

/// A model of `protocol` whose kind its encoder knows where the name decides what can be said.
pub fn small_model(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::BedrockConverse => "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        Protocol::Gemini => "gemini-3-pro-preview",
        _ => "small-model",
    }
}

/// A tool that answers with much text.
struct Fill;

#[async_trait]
impl Tool for Fill {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "fill".to_owned(),
            description: "Reads a part of a long report.".to_owned(),
            input_schema: json!({"type": "object", "properties": {"part": {"type": "integer"}}}),
        }
    }

    fn access(&self, _: &ToolCx, _: &Value) -> Result<Vec<Access>, ToolError> {
        Ok(Vec::new())
    }

    async fn run(&self, _: ToolCx, input: Value) -> Result<ToolOutput, ToolError> {
        let part = input["part"].as_u64().unwrap_or_default();
        let words = input["words"].as_u64().unwrap_or(3_500);
        let text: String = (0..words)
            .map(|n| format!("word{} ", (n * 7 + part) % 997))
            .collect();
        Ok(ToolOutput {
            text: format!("part {part}: {text}"),
            ..ToolOutput::default()
        })
    }
}

/// What a model writes that was asked for a summary.
pub fn summary() -> Turn {
    let text: String = SECTIONS
        .iter()
        .map(|(heading, _)| format!("## {heading}\n{}\n", "as told before. ".repeat(30)))
        .collect();
    Turn {
        times: Some(Times::Forever),
        ..Turn::text(text).when(SUMMARY_MARK)
    }
}

fn price() -> Price {
    let dollars = |text| Rate::per_million(text).unwrap();
    Price::flat(Rates {
        cache_read: Some(dollars("0.3")),
        input: dollars("3"),
        output: dollars("15"),
        ..Rates::default()
    })
}

/// A server with a window, an engine that asks it, and what both share.
pub struct Small {
    pub bed: Bed,
    pub server: Handle,
    engine: Engine,
    session: SessionId,
}

impl Small {
    /// The server holds [`WINDOW`] tokens; the model is declared with what `declared` says.
    pub async fn new(
        protocol: Protocol,
        model: &str,
        script: Script,
        declared: (Option<u64>, Option<u64>),
    ) -> Self {
        let server = ScriptedModel::builder(script.window(WINDOW))
            .bind("127.0.0.1:0".parse().unwrap())
            .await
            .unwrap();
        let mut bed = Bed::new([]).with_tool(Fill);
        let reference = ModelRef {
            provider: "http".to_owned(),
            model: model.to_owned(),
        };
        let settings = ModelSettings {
            context: declared.0,
            output: declared.1,
            price: Some(price()),
            ..ModelSettings::default()
        };
        bed.catalogue.declare(&reference, settings.clone());
        let engine = Self::engine(&bed, &server, protocol, model, settings).await;
        let session = bed.session().await;
        bed.client()
            .select_model(&session, reference)
            .await
            .unwrap();
        Self {
            bed,
            server,
            engine,
            session,
        }
    }

    async fn engine(
        bed: &Bed,
        server: &Handle,
        protocol: Protocol,
        model: &str,
        settings: ModelSettings,
    ) -> Engine {
        let mut settings = ProviderSettings {
            models: BTreeMap::from([(model.to_owned(), settings)]),
            ..ProviderSettings::new("http", protocol, server.base_url())
        };
        // The server asks nobody for a key; AWS's signature needs one all the same.
        settings.aws.region = Some("us-east-1".to_owned());
        settings.aws.keys = Some(AwsKeys {
            id: Secret::new("AKIDEXAMPLE"),
            secret: Secret::new("an-example-of-a-secret"),
            token: None,
        });
        let provider = HttpProvider::new(settings).unwrap();
        let models = Models::new(bed.catalogue.clone()).with("http", std::sync::Arc::new(provider));
        let config = EngineConfig {
            max_steps: 200,
            ..bed.config.clone()
        };
        Engine::start(bed.store.clone(), models, bed.tools.clone(), config)
            .await
            .unwrap()
    }

    /// Prompts, and waits as long as it takes.
    pub async fn ask(&self, words: &str) -> Outcome {
        let admission = self.bed.admit(&self.session, Prompt::steer(words)).await;
        self.engine.run(&self.session);
        let outcome = self
            .engine
            .outcome(&self.session, &admission.input, Some(admission.seq));
        tokio::time::timeout(std::time::Duration::from_secs(300), outcome)
            .await
            .expect("an outcome")
            .unwrap()
    }

    pub async fn log(&self) -> Vec<Event> {
        self.bed.log(&self.session).await
    }

    pub async fn count(&self, name: &str) -> usize {
        self.bed.count(&self.session, name).await
    }

    /// No request broke a rule of its vendor; those that did not fit are counted.
    fn refused(&self) -> usize {
        let mut refused = 0;
        for request in self.server.requests() {
            match &request.verdict {
                Verdict::Accepted => {
                    let tokens = measure(&request.body);
                    assert!(tokens <= WINDOW, "{tokens} tokens");
                }
                Verdict::TooLong { .. } => refused += 1,
                other => panic!("{other:?}: {}", request.body),
            }
        }
        refused
    }

    pub async fn at_rest(&self) {
        self.engine.idle().await;
        assert_eq!(self.bed.store.claims().await.unwrap(), []);
        crate::checks::assert_at_rest(&self.log().await);
    }
}

pub fn reasons(log: &[Event]) -> Vec<CompactionReason> {
    log.iter()
        .filter_map(|e| match &e.body {
            EventBody::CompactionStarted(c) => Some(c.reason),
            _ => None,
        })
        .collect()
}

/// What each physical request of the log spent: attempts of steps, and compactions.
fn spent(log: &[Event]) -> Vec<(Option<Usage>, Option<u64>)> {
    log.iter()
        .filter_map(|e| match &e.body {
            EventBody::AttemptEnded(e) => Some((e.usage, e.cost)),
            EventBody::CompactionEnded(e) => Some((e.usage, e.cost)),
            EventBody::CompactionFailed(e) => Some((e.usage, e.cost)),
            _ => None,
        })
        .collect()
}

/// A task of `parts` steps, with a busy server, a summary of nothing and reasoning in between.
fn long_task(parts: u64) -> Script {
    let nothing = Turn::text(" ").when(SUMMARY_MARK);
    let mut turns = vec![nothing, summary()];
    for part in 0..parts {
        if part % 10 == 4 {
            turns.push(Turn::fault(Fault::Status {
                status: 503,
                headers: BTreeMap::new(),
                body: None,
                message: None,
                error_type: None,
            }));
        }
        let call = Turn::call("fill", json!({"part": part}));
        turns.push(if part % 3 == 0 {
            Turn::default()
                .and(Part::reasoning("The next part will say."))
                .and(Part::call("fill", json!({"part": part})))
        } else {
            call
        });
    }
    turns.push(Turn::text("ALL PARTS ARE READ"));
    Script::new(turns)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_compactions_in_a_small_window_end_their_task_and_cost_the_sum_of_their_attempts() {
    for protocol in protocols() {
        let declared = (Some(WINDOW), Some(OUTPUT));
        let script = long_task(46);
        let small = Small::new(protocol, small_model(protocol), script.clone(), declared).await;
        let ended = small
            .ask("Read all 46 parts of the report and say when you are done")
            .await;
        assert_eq!(ended, Outcome::Succeeded, "{protocol:?}");
        small.at_rest().await;
        assert_eq!(
            small.refused(),
            0,
            "{protocol:?}: nothing was sent that does not fit"
        );

        let log = small.log().await;
        let compacted = small.count("compaction.ended").await;
        assert!(compacted >= 10, "{protocol:?}: {compacted} compactions");
        assert!(
            reasons(&log)
                .iter()
                .all(|r| *r == CompactionReason::Threshold)
        );
        assert_eq!(
            small.count("compaction.failed").await,
            1,
            "the one of nothing"
        );

        let state = SessionState::fold(&log);
        let spent = spent(&log);
        let requests = small.server.requests();
        assert_eq!(
            spent.len(),
            requests.len(),
            "{protocol:?}: each request has its end"
        );
        let cost: u64 = spent.iter().filter_map(|(_, cost)| *cost).sum();
        assert_eq!(state.totals.cost, cost, "{protocol:?}");
        assert!(
            !state.totals.incomplete,
            "{protocol:?}: refusals are known to cost nothing"
        );
        // The server counts on its own what it was sent, and answered.
        let mut asked = Usage::default();
        for (usage, cost) in &spent {
            if let Some(usage) = usage {
                assert_eq!(*cost, price().micro_dollars(usage));
                asked.add(usage);
            }
        }
        let served = |r: &&Recorded| match r.turn {
            Some(TurnId::Turn(index)) => script.turns[index].fault.is_none(),
            _ => false,
        };
        let sent: u64 = requests
            .iter()
            .filter(served)
            .map(|r| measure(&r.body))
            .sum();
        assert_eq!(asked.prompt(), sent, "{protocol:?}");
        assert_eq!(state.totals.usage, asked);
        let row = small
            .bed
            .store
            .session(&small.session)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(row.cost, cost, "{protocol:?}: the list says the same");

        let last = small.server.requests().pop().unwrap();
        let body = last.body.to_string();
        assert!(
            body.contains("Read all 46 parts"),
            "the task is there, word for word"
        );
        assert!(body.contains("Goal and constraints"), "and the summary");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_smaller_than_declared_is_learnt_from_refusals_and_the_task_ends_all_the_same() {
    for protocol in protocols() {
        let declared = (Some(WINDOW * 2), Some(OUTPUT));
        let small = Small::new(protocol, small_model(protocol), long_task(14), declared).await;
        let ended = small.ask("Read all 14 parts of the report").await;
        assert_eq!(ended, Outcome::Succeeded, "{protocol:?}");
        small.at_rest().await;
        let log = small.log().await;
        let overflows = reasons(&log)
            .iter()
            .filter(|r| **r == CompactionReason::Overflow)
            .count();
        assert!(overflows >= 1, "{protocol:?}: {:?}", reasons(&log));
        assert!(
            small.refused() <= overflows * 2,
            "one refusal, one compaction"
        );
        // The step that did not fit goes on under its own number: no number is left out.
        let mut last = 0;
        for event in &log {
            if let EventBody::StepStarted(step) = &event.body {
                assert!(
                    step.step == last + 1 || step.step == last,
                    "{last}, {}",
                    step.step
                );
                last = step.step;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_tokenizer_counts_where_one_is_public() {
    // Not yet measured: one prompt that an estimate with its margin puts above the trigger, and a count below it.
    let script = Script::new([Turn::text("short"), Turn::text("read")]);
    let declared = (Some(30_000), Some(OUTPUT));
    let small = Small::new(Protocol::OpenaiChat, "gpt-4o", script, declared).await;
    small.ask("hello").await;
    let words = "word ".repeat(21_000);
    assert_eq!(small.ask(&words).await, Outcome::Succeeded);
    assert_eq!(
        reasons(&small.log().await),
        [],
        "21,000 words are 21,000 tokens"
    );
    small.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_surely_does_not_fit_is_not_sent_only_to_be_refused() {
    for model in ["gpt-4o", "small-model"] {
        let script = Script::new([Turn::text("short"), Turn::text("fits")]);
        let declared = (Some(WINDOW), Some(OUTPUT));
        let small = Small::new(Protocol::OpenaiChat, model, script, declared).await;
        small.ask("hello").await;
        let Outcome::Failed(error) = small.ask(&"what a long prompt ".repeat(25_000)).await else {
            panic!("it cannot fit")
        };
        assert_eq!(error.kind, "context_overflow");
        for word in ["32000", "larger window"] {
            assert!(error.message.contains(word), "{}", error.message);
        }
        assert!(
            small.server.requests().len() <= 2,
            "at most a summary was asked for"
        );
        small.at_rest().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_038_a_smaller_output_limit_is_tried_before_anything_is_compacted() {
    for protocol in [Protocol::AnthropicMessages, Protocol::OpenaiChat] {
        // The window is not declared, so that only the refusal can tell.
        let part = |n: u64| Turn::call("fill", json!({"part": n, "words": 4_000}));
        let script = Script::new([part(1), part(2), Turn::text("done")]);
        let small = Small::new(protocol, "m", script, (None, Some(20_000))).await;
        assert_eq!(
            small.ask("read two parts").await,
            Outcome::Succeeded,
            "{protocol:?}"
        );
        small.at_rest().await;
        let log = small.log().await;
        assert_eq!(reasons(&log), [], "{protocol:?}: nothing was compacted");
        let limits = |r: &Recorded| {
            ["max_tokens", "max_completion_tokens"]
                .iter()
                .find_map(|key| r.body.get(*key))
                .and_then(Value::as_u64)
                .unwrap()
        };
        let requests = small.server.requests();
        let refused = requests
            .iter()
            .position(|r| {
                matches!(
                    r.verdict,
                    Verdict::TooLong {
                        output: Some(_),
                        ..
                    }
                )
            })
            .expect("the sum was too large once");
        assert_eq!(limits(&requests[refused]), 20_000);
        let again = &requests[refused + 1];
        assert_eq!(again.verdict, Verdict::Accepted);
        assert_eq!(limits(again), WINDOW - measure(&again.body));
        assert_eq!(
            small.refused(),
            1,
            "{protocol:?}: the window is known from then on"
        );
        assert_eq!(small.count("retry.scheduled").await, 1);
    }
}

/// So many calls at once, whose results are 7,000 tokens each.
fn fills(calls: u64, from: u64) -> Turn {
    let call = |n: u64| Part::call("fill", json!({"part": from + n}));
    (0..calls).fold(Turn::default(), |turn, n| turn.and(call(n)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_040_what_is_declared_of_a_model_is_what_its_session_runs_under() {
    // A name that stands for a window of a million elsewhere.
    let script = Script::new([fills(3, 1), summary(), Turn::text("done")]);
    let declared = (Some(16_384), Some(4_096));
    let small = Small::new(Protocol::OpenaiChat, "gpt-4.1", script, declared).await;
    assert_eq!(small.ask("read the part").await, Outcome::Succeeded);
    small.at_rest().await;
    assert_eq!(reasons(&small.log().await), [CompactionReason::Threshold]);
    for request in small.server.requests() {
        let keys = ["max_tokens", "max_completion_tokens"];
        let output = keys
            .iter()
            .find_map(|k| request.body.get(*k))
            .and_then(Value::as_u64);
        assert!(output.is_some_and(|n| n <= 4_096), "{output:?}");
    }
}

/// A session whose last tool result alone is larger than the window.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_032_a_result_larger_than_the_window_is_cut_for_the_summary_by_itself_and_by_hand() {
    for protocol in protocols() {
        let script = Script::new([
            fills(10, 1),
            summary(),
            Turn::text("done"),
            Turn::text("and done"),
        ]);
        let declared = (Some(WINDOW), Some(OUTPUT));
        let small = Small::new(protocol, small_model(protocol), script, declared).await;
        assert_eq!(
            small.ask("read the huge part").await,
            Outcome::Succeeded,
            "{protocol:?}"
        );
        small.at_rest().await;
        let requests = small.server.requests();
        let summarising = requests
            .iter()
            .find(|r| r.body.to_string().contains(SUMMARY_MARK));
        let words = summarising.expect("asked for a summary").body.to_string();
        assert!(words.contains("bytes cut]"), "what was cut is named");
        // By hand, once more.
        small.bed.client().compact(&small.session).await.unwrap();
        small.engine.run(&small.session);
        small
            .bed
            .until_nth(&small.session, "compaction.ended", 2)
            .await;
        assert_eq!(
            small.ask("and now").await,
            Outcome::Succeeded,
            "{protocol:?}"
        );
        small.at_rest().await;
        assert_eq!(small.refused(), 0, "{protocol:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_to_a_smaller_window_compacts_before_the_first_request_to_it() {
    let script = Script::new([
        Turn::call("fill", json!({"part": 1, "words": 6_000})),
        Turn::text("that much"),
        summary(),
        Turn::text("and here"),
    ]);
    let declared = (Some(WINDOW), Some(OUTPUT));
    let mut small = Small::new(Protocol::OpenaiResponses, "large", script, declared).await;
    assert_eq!(small.ask("read a part").await, Outcome::Succeeded);
    small.at_rest().await;
    let tiny = ModelRef {
        provider: "http".to_owned(),
        model: "tiny".to_owned(),
    };
    let settings = ModelSettings {
        context: Some(8_000),
        output: Some(1_000),
        ..ModelSettings::default()
    };
    small.bed.catalogue.declare(&tiny, settings.clone());
    small.engine.shutdown().await.unwrap();
    small.engine = Small::engine(
        &small.bed,
        &small.server,
        Protocol::OpenaiResponses,
        "tiny",
        settings,
    )
    .await;
    small
        .bed
        .client()
        .select_model(&small.session, tiny)
        .await
        .unwrap();
    assert_eq!(small.ask("go on").await, Outcome::Succeeded);
    small.at_rest().await;
    assert_eq!(reasons(&small.log().await), [CompactionReason::Threshold]);
    for request in small.server.requests().iter().skip(2) {
        assert!(
            measure(&request.body) <= 8_000,
            "{}",
            measure(&request.body)
        );
    }
}
