//! A model that answers by the seed: text, signed reasoning, calls, refusals, cut streams. It judges each request.

use super::executor::{Executor, Proc};
use super::ledger::Ledger;
use super::plan::ModelPlan;
use crate::chance::Chance;
use async_trait::async_trait;
use futures::StreamExt;
use std::sync::Arc;
use tenure_core::error::{ErrorClass, ProviderError};
use tenure_core::event::body::FragmentKind;
use tenure_core::model::ModelLimits;
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_core::request::Request;
use tenure_core::usage::Usage;
use tenure_provider::{AttemptKey, Dialect, Encoded, EventStream, Protocol, Provider, encode};
use tenure_scripted::validate;

/// What is spoken, each as often as it stands here; its place in the list is part of what a seed means.
pub const SPOKEN: [Protocol; 8] = [
    Protocol::OpenaiChat,
    Protocol::OpenaiResponses,
    Protocol::AnthropicMessages,
    Protocol::AnthropicMessages,
    Protocol::Gemini,
    Protocol::BedrockConverse,
    Protocol::AnthropicMessages,
    Protocol::Gemini,
];

/// The provider of one simulated process.
pub struct SimProvider {
    /// The world's executor.
    pub executor: Executor,
    /// The world's book.
    pub ledger: Arc<Ledger>,
    /// The process that asks.
    pub proc: Proc,
    /// How it answers.
    pub plan: ModelPlan,
}

/// One thing a stream does.
enum Act {
    Wait(u64),
    Say(Vec<ProviderEvent>),
    Fail(ProviderError),
}

#[async_trait]
impl Provider for SimProvider {
    fn protocol(&self) -> &'static str {
        self.plan.protocol.as_str()
    }

    fn encode(&self, request: &Request) -> Result<Encoded, ProviderError> {
        let limits = ModelLimits {
            context: None,
            output: Some(4_000),
        };
        encode(self.plan.protocol, Dialect::Common, &limits, request)
    }

    async fn send(
        &self,
        encoded: Encoded,
        attempt: &AttemptKey,
    ) -> Result<EventStream, ProviderError> {
        let sending = self.ledger.send(self.proc, &attempt.0, &encoded.hash);
        let mut chance = Chance::of(self.plan.seed, number_of(&attempt.0));
        if chance.percent(self.plan.validated) {
            self.validate(&attempt.0, &encoded);
        }
        self.executor
            .sleep_micros(5_000 + chance.below(self.plan.first_byte))
            .await;
        if chance.percent(self.plan.fatal) {
            return Err(ProviderError::new(
                ErrorClass::InvalidRequest,
                "refused for good, as the seed says",
            ));
        }
        if chance.percent(self.plan.refusals) {
            return Err(refusal(&mut chance));
        }
        let may_call = may_call(&encoded);
        let acts = Answer {
            chance,
            plan: &self.plan,
            acts: Vec::new(),
            key: &attempt.0,
            ledger: &self.ledger,
        }
        .write(may_call);
        let executor = self.executor.clone();
        let stream = futures::stream::iter(acts).filter_map(move |act| {
            // Under way until whoever reads it lets go of it.
            let _ = &sending;
            let executor = executor.clone();
            async move {
                match act {
                    Act::Wait(micros) => {
                        executor.sleep_micros(micros).await;
                        None
                    }
                    Act::Say(events) => Some(Ok(events)),
                    Act::Fail(error) => Some(Err(error)),
                }
            }
        });
        Ok(Box::pin(stream))
    }
}

impl SimProvider {
    fn validate(&self, key: &str, encoded: &Encoded) {
        let verdict = match serde_json::from_slice(&encoded.body) {
            Ok(body) => match self.plan.protocol {
                Protocol::AnthropicMessages => validate::anthropic_messages(&body),
                Protocol::OpenaiResponses => validate::openai_responses(&body),
                Protocol::OpenaiChat => validate::openai_chat(&body),
                Protocol::Gemini => validate::gemini(&body),
                Protocol::BedrockConverse => {
                    validate::bedrock_converse_model(&encoded.model, &body)
                }
            },
            Err(error) => {
                self.ledger
                    .violated("P3", format!("the request of {key} is not JSON: {error}"));
                return;
            }
        };
        if let Err(broken) = verdict {
            let body = String::from_utf8_lossy(&encoded.body);
            let words =
                format!("the request of {key} is refused by its vendor: {broken:?}\n{body}");
            self.ledger.violated("P3", words);
        }
    }
}

/// A number that names the attempt: the same attempt is answered the same, whoever sends it.
fn number_of(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Does the request let the model call? Looked up in the bytes: parsing each body would cost more than the rest.
fn may_call(encoded: &Encoded) -> bool {
    let none = [
        &br#""tool_choice":"none""#[..],
        &br#""tool_choice":{"type":"none""#[..],
        &br#""functionCallingConfig":{"mode":"NONE""#[..],
        // Converse has no field for it, and is told in words.
        &b"Do not call any tool"[..],
    ];
    let has = |part: &[u8]| {
        encoded
            .body
            .windows(part.len())
            .any(|window| window == part)
    };
    has(br#""tools":["#) && !none.iter().any(|part| has(part))
}

fn refusal(chance: &mut Chance) -> ProviderError {
    let (class, wait) = match chance.below(12) {
        0..=3 => (ErrorClass::RateLimit, Some(50 + chance.below(2_000))),
        4..=6 => (ErrorClass::Overloaded, None),
        7 => (ErrorClass::Server, None),
        8 => (ErrorClass::Transport, None),
        9 => (ErrorClass::Timeout, None),
        10 => (ErrorClass::ContextOverflow, None),
        _ => (ErrorClass::InvalidRequest, None),
    };
    let mut error = ProviderError::new(class, "as the seed says");
    error.retry_after_ms = wait;
    error
}

/// An answer being written.
struct Answer<'a> {
    chance: Chance,
    plan: &'a ModelPlan,
    acts: Vec<Act>,
    key: &'a str,
    ledger: &'a Ledger,
}

impl Answer<'_> {
    fn say(&mut self, events: Vec<ProviderEvent>) {
        let wait = self.chance.below(self.plan.delta);
        self.acts.push(Act::Wait(wait));
        self.acts.push(Act::Say(events));
    }

    fn write(mut self, may_call: bool) -> Vec<Act> {
        if self.chance.percent(30) {
            self.reasoning();
        }
        if self.chance.percent(70) || !may_call {
            self.text();
        }
        let mut called = false;
        if may_call && self.chance.percent(self.plan.calls) {
            for n in 0..1 + self.chance.below(3) {
                self.call(n);
            }
            called = true;
        }
        if self.chance.percent(self.plan.cuts) {
            let most = self.acts.len() as u64 + 1;
            let at = self.chance.below(most) as usize;
            self.acts.truncate(at);
            if self.chance.percent(50) {
                let error = ProviderError::new(ErrorClass::Transport, "cut by the seed");
                self.acts.push(Act::Fail(error));
            }
            return self.acts;
        }
        let usage = Usage {
            input: 10 + self.chance.below(100),
            output: 5 + self.chance.below(100),
            ..Usage::default()
        };
        let finish = if called {
            Finish::ToolCalls
        } else {
            Finish::Stop
        };
        self.say(vec![ProviderEvent::Finish {
            finish,
            raw: None,
            usage,
        }]);
        self.acts
    }

    fn text(&mut self) {
        let id = "t0".to_owned();
        self.say(vec![ProviderEvent::TextStart { id: id.clone() }]);
        let mut whole = String::new();
        for _ in 0..1 + self.chance.below(self.plan.talk) {
            let text = format!("words {} ", self.chance.below(1_000));
            whole.push_str(&text);
            self.say(vec![ProviderEvent::TextDelta {
                id: id.clone(),
                text,
            }]);
        }
        whole.push('.');
        self.ledger
            .says(self.key, FragmentKind::Text, whole.clone());
        let last = ProviderEvent::TextDelta {
            id: id.clone(),
            text: ".".to_owned(),
        };
        let native = (self.plan.protocol == Protocol::OpenaiResponses).then(|| {
            let key = self.key;
            format!(
                "{{\"type\":\"message\",\"id\":\"msg_{key}\",\"role\":\"assistant\",\"status\":\"completed\",\
                 \"content\":[{{\"type\":\"output_text\",\"text\":\"{whole}\",\"annotations\":[]}}]}}"
            )
        });
        self.say(vec![last, ProviderEvent::TextEnd { id, native }]);
    }

    fn reasoning(&mut self) {
        let id = "r0".to_owned();
        let key = self.key;
        let native = match self.plan.protocol {
            Protocol::AnthropicMessages => Some(format!(
                "{{\"type\":\"thinking\",\"thinking\":\"hm\", \"signature\":\"sig-{key}\"}}"
            )),
            Protocol::OpenaiResponses => Some(format!(
                "{{\"id\":\"rs_{key}\",\"type\":\"reasoning\", \"summary\":[],\"encrypted_content\":\"e-{key}\"}}"
            )),
            Protocol::Gemini => Some(format!(
                "{{\"text\":\"hm\",\"thought\": true,\"thoughtSignature\":\"g-{key}\"}}"
            )),
            Protocol::BedrockConverse => Some(format!(
                "{{\"reasoningContent\": {{\"reasoningText\":{{\"text\":\"hm\",\"signature\":\"b-{key}\"}}}}}}"
            )),
            Protocol::OpenaiChat => Some("{\"field\":\"reasoning_content\"}".to_owned()),
        };
        self.ledger
            .says(self.key, FragmentKind::Reasoning, "hm".to_owned());
        self.say(vec![ProviderEvent::ReasoningStart { id: id.clone() }]);
        self.say(vec![
            ProviderEvent::ReasoningDelta {
                id: id.clone(),
                text: "hm".to_owned(),
            },
            ProviderEvent::ReasoningEnd { id, native },
        ]);
    }

    /// What is called, and with what.
    fn called(&mut self) -> (&'static str, String) {
        if self.chance.percent(self.plan.asks) {
            return ("ask", "{}".to_owned());
        }
        let takes = format!("{{\"ms\":{}}}", self.chance.below(self.plan.work_ms));
        if self.plan.deaf > 0 && self.chance.percent(self.plan.deaf) {
            let ms = self.chance.below(self.plan.work_ms);
            return ("work", format!("{{\"ms\":{ms},\"deaf\":true}}"));
        }
        if self.chance.percent(self.plan.inside) {
            return ("watch", takes);
        }
        match self.chance.below(18) {
            0 => ("nothing", "{}".to_owned()),
            1 => ("work", "{\"ms\": 1".to_owned()),
            2..=6 => ("note", "{}".to_owned()),
            7 => ("work", "{\"ms\":20,\"fail\":true}".to_owned()),
            8 => {
                let ms = self.chance.below(5_000);
                ("work", format!("{{\"ms\":{ms},\"stubborn\":true}}"))
            }
            _ => ("work", takes),
        }
    }

    fn call(&mut self, n: u64) {
        let id = format!("call_{n}");
        let (name, input) = self.called();
        let key = self.key;
        let native = match self.plan.protocol {
            Protocol::OpenaiResponses => {
                let quoted = serde_json::Value::from(input.as_str());
                Some(format!(
                    "{{\"type\":\"function_call\",\"id\":\"fc_{key}_{n}\",\"call_id\":\"{id}\",\"name\":\"{name}\",\
                     \"arguments\":{quoted},\"status\":\"completed\"}}"
                ))
            }
            // The first of parallel calls is signed.
            Protocol::Gemini if n == 0 => Some(format!(
                "{{\"functionCall\":{{}}, \"thoughtSignature\":\"c-{key}\"}}"
            )),
            _ => None,
        };
        self.say(vec![
            ProviderEvent::ToolInputStart {
                id: id.clone(),
                name: name.to_owned(),
            },
            ProviderEvent::ToolInputDelta {
                id: id.clone(),
                name: None,
                text: input.clone(),
            },
            ProviderEvent::ToolInputEnd {
                id: id.clone(),
                name: None,
            },
        ]);
        self.say(vec![ProviderEvent::ToolCall {
            id,
            name: name.to_owned(),
            input,
            executed: false,
            native,
        }]);
    }
}
