//! Chat Completions in every dialect: arbitrary histories pass each server's rules, and a session talks to several.

use crate::fakes::Echo;
use crate::support::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;
use tenure_core::model::{ModelLimits, ModelRef};
use tenure_core::request::*;
use tenure_engine::*;
use tenure_provider::{Dialect, HttpProvider, Protocol, ProviderSettings, Secret, encode};
use tenure_scripted::validate::{self, ChatDialect};
use tenure_scripted::{Part, Script, ScriptedModel, Turn, Verdict};

/// A grey PNG of one pixel, and the least that looks like a PDF.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==";
const PDF: &str = "JVBERi0xLjQKJSVFT0YK";

fn words() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("go".to_owned()),
        Just("  \n".to_owned()),
        Just("é 漢 \"quoted\" \\ </tenure-note>".to_owned()),
        "[a-z ]{0,12}",
    ]
}

fn ids() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("call_1".to_owned()),
        Just("toolu_01ABCDEFGHIJKLMNOPQRSTUV".to_owned()),
        Just("functions.read:0".to_owned()),
        Just("Ab3dE6gH9".to_owned()),
        Just(String::new()),
        Just("with space/é".to_owned()),
        Just("x".repeat(90)),
        "[a-c]",
    ]
}

fn natives() -> impl Strategy<Value = Option<String>> {
    let fields = [
        "reasoning_content",
        "reasoning",
        "thinking",
        "reasoning_text",
    ];
    prop_oneof![
        Just(None),
        Just(Some("no json".to_owned())),
        Just(Some(
            json!({"type": "thinking", "thinking": "x", "signature": "s"}).to_string()
        )),
        Just(Some(
            json!({"reasoning_details": [{"type": "reasoning.text", "text": "x"}]}).to_string()
        )),
        Just(Some(
            json!({"annotations": [{"type": "file", "file": {"hash": "h"}}]}).to_string()
        )),
        prop::sample::select(fields.to_vec()).prop_map(|f| Some(json!({"field": f}).to_string())),
    ]
}

fn block() -> impl Strategy<Value = AssistantBlock> {
    let inputs = prop_oneof![
        Just("{}"),
        Just("{\"a\":1}"),
        Just(""),
        Just("[1]"),
        Just("{bro")
    ];
    prop_oneof![
        (words(), natives()).prop_map(|(text, native)| AssistantBlock::Text { text, native }),
        (words(), natives()).prop_map(|(text, native)| AssistantBlock::Reasoning { text, native }),
        (ids(), inputs, natives()).prop_map(|(id, input, native)| AssistantBlock::ToolCall {
            id,
            name: "read".to_owned(),
            input: input.to_owned(),
            native,
        }),
        (ids(), words(), natives()).prop_map(|(id, text, call)| AssistantBlock::Hosted {
            id,
            name: "web_search".to_owned(),
            input: "{}".to_owned(),
            result: call.clone(),
            call,
            text,
        }),
        Just(AssistantBlock::Opaque {
            native: json!({"type": "hologram"}).to_string()
        }),
    ]
}

fn part() -> impl Strategy<Value = UserPart> {
    let media = |name: &str, media_type: &str, data: &str| {
        UserPart::Media(Media {
            name: name.to_owned(),
            media_type: media_type.to_owned(),
            data: Arc::from(data),
        })
    };
    prop_oneof![
        4 => words().prop_map(UserPart::Text),
        1 => Just(media("a.png", "image/png", PNG)),
        1 => Just(media("b.pdf", "application/pdf", PDF)),
        1 => Just(media("c.bmp", "image/bmp", PDF)),
    ]
}

fn message() -> impl Strategy<Value = RequestMessage> {
    let results = (ids(), words()).prop_map(|(id, text)| ToolResult {
        id,
        name: "read".to_owned(),
        text,
        is_error: false,
    });
    prop_oneof![
        3 => prop::collection::vec(part(), 1..3).prop_map(|parts| RequestMessage::User { parts }),
        1 => words().prop_map(|text| RequestMessage::System { text }),
        4 => prop::collection::vec(block(), 1..5).prop_map(|blocks| RequestMessage::Assistant { blocks }),
        2 => prop::collection::vec(results, 1..4).prop_map(|results| RequestMessage::ToolResults { results }),
    ]
}

/// A history: as it comes, or with every call answered behind its message as the engine does it.
fn history() -> impl Strategy<Value = Vec<RequestMessage>> {
    (prop::collection::vec(message(), 1..10), any::<bool>()).prop_map(|(messages, answered)| {
        if !answered {
            return messages;
        }
        let mut all = Vec::new();
        for message in messages {
            let results: Vec<ToolResult> = match &message {
                RequestMessage::ToolResults { .. } => continue,
                RequestMessage::Assistant { blocks } => blocks
                    .iter()
                    .filter_map(|block| match block {
                        AssistantBlock::ToolCall { id, name, .. } => Some(ToolResult {
                            id: id.clone(),
                            name: name.clone(),
                            text: "ok".to_owned(),
                            is_error: false,
                        }),
                        _ => None,
                    })
                    .collect(),
                _ => Vec::new(),
            };
            all.push(message);
            if !results.is_empty() {
                all.push(RequestMessage::ToolResults { results });
            }
        }
        all
    })
}

fn request() -> impl Strategy<Value = Request> {
    let choice = prop_oneof![
        Just(ToolChoice::Auto),
        Just(ToolChoice::None),
        Just(ToolChoice::Required),
        Just(ToolChoice::Tool("read".to_owned())),
        Just(ToolChoice::Tool("nobody".to_owned())),
    ];
    let effort = prop::option::of(prop::sample::select(vec![
        Effort::Off,
        Effort::Low,
        Effort::Medium,
        Effort::High,
    ]));
    let models = [
        "m",
        "anthropic/claude-x",
        "groq/compound",
        "openai/gpt-oss-20b",
        "gpt-5-nano",
        "qwen3",
    ];
    let hosted = prop::collection::vec(
        prop::sample::select(vec![HostedTool::WebSearch, HostedTool::CodeExecution]),
        0..2,
    );
    (
        history(),
        prop::sample::select(models.to_vec()),
        choice,
        effort,
        hosted,
        (any::<bool>(), 0_usize..200, any::<bool>(), any::<bool>()),
    )
        .prop_map(|(messages, model, tool_choice, effort, hosted_tools, (form, tools, system, limit))| {
            // Mostly one tool, sometimes none or more than anybody takes.
            let tools = match tools {
                0..20 => 0,
                20..190 => 1,
                more => more,
            };
            Request {
                system: if system { vec!["You help.".to_owned()] } else { Vec::new() },
                messages,
                tools: (0..tools)
                    .map(|n| ToolDef {
                        name: if n == 0 { "read".to_owned() } else { format!("t{n}") },
                        description: "Does.".to_owned(),
                        input_schema: json!({"type": "object", "properties": {"a": {"type": "string"}}}),
                    })
                    .collect(),
                tool_choice,
                max_output: limit.then_some(100),
                cache_key: "ses_1".to_owned(),
                hosted_tools,
                output_schema: form.then(|| OutputSchema {
                    name: "answer".to_owned(),
                    schema: json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false}),
                }),
                effort,
                ..Request::new(ModelRef {
                    provider: "p".to_owned(),
                    model: model.to_owned(),
                })
            }
        })
}

/// The server whose rules hold for a dialect: its own where there are any.
fn judge(dialect: Dialect) -> ChatDialect {
    ChatDialect::of_word(dialect.as_str()).unwrap_or(ChatDialect::Any)
}

/// How a property is tested: `usual` cases, or as many as `PROPTEST_CASES` asks for.
fn cases(usual: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok();
    ProptestConfig {
        cases: asked.and_then(|n| n.parse().ok()).unwrap_or(usual),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(96))]

    #[test]
    fn any_history_in_any_dialect_is_what_its_server_takes(request in request()) {
        let limits = ModelLimits { context: None, output: None };
        for dialect in Dialect::all() {
            let Ok(encoded) = encode(Protocol::OpenaiChat, dialect, &limits, &request) else {
                continue;
            };
            let body: Value = serde_json::from_slice(&encoded.body).unwrap();
            let judged = validate::openai_chat_dialect(&body, judge(dialect));
            prop_assert!(judged.is_ok(), "{dialect:?}: {judged:#?}\n{body:#}");
        }
    }
}

#[test]
fn every_dialect_with_rules_of_its_own_is_one_we_speak() {
    let spoken: Vec<&str> = Dialect::all().map(Dialect::as_str).collect();
    for dialect in ChatDialect::ALL {
        let known = dialect == ChatDialect::Any || spoken.contains(&dialect.as_str());
        assert!(known, "{dialect:?}");
    }
}

fn provider(name: &str, dialect: Dialect, url: String) -> Arc<HttpProvider> {
    let mut settings = ProviderSettings::new(name, Protocol::OpenaiChat, url);
    settings.dialect = Some(dialect);
    settings.api_key = Some(Secret::new("sk-test-0123456789"));
    Arc::new(HttpProvider::new(settings).unwrap())
}

/// One session asks one server after the other, each with reasoning, a call and a result, and comes back to the
/// first: nobody refuses anything.
#[tokio::test]
async fn a_session_talks_to_one_server_after_the_other() {
    let turn = || {
        Turn::default()
            .and(Part::reasoning("I look first."))
            .and(Part::text("Looking."))
            .and(Part::call("echo", json!({"say": "seen"})))
    };
    let script = Script::new((0..12).flat_map(|_| [turn(), Turn::text("Done.")]));
    let model = ScriptedModel::builder(script)
        .api_key("sk-test-0123456789")
        .bind("127.0.0.1:0".parse().unwrap())
        .await
        .unwrap();
    let bed = Bed::new([]).with_tool(Echo);
    let servers = [
        (Dialect::Mistral, model.dialect_url(ChatDialect::Mistral)),
        (Dialect::Deepseek, model.dialect_url(ChatDialect::Deepseek)),
        (
            Dialect::Openrouter,
            model.dialect_url(ChatDialect::Openrouter),
        ),
        (
            Dialect::Azure,
            format!(
                "http://{}/dialect/azure/openai/deployments/{{model}}?api-version=2024-10-21",
                model.addr()
            ),
        ),
        (Dialect::Groq, model.dialect_url(ChatDialect::Groq)),
        (
            Dialect::Perplexity,
            model.dialect_url(ChatDialect::Perplexity),
        ),
    ];
    let mut models = Models::new(bed.catalogue.clone());
    for (dialect, url) in servers.clone() {
        models = models.with(dialect.as_str(), provider(dialect.as_str(), dialect, url));
    }
    let engine = Engine::start(
        bed.store.clone(),
        models,
        bed.tools.clone(),
        bed.config.clone(),
    )
    .await
    .unwrap();
    let session = bed.session().await;
    let order = [0, 1, 2, 3, 4, 0, 1, 2, 5, 1, 3];
    for at in order {
        let (dialect, _) = &servers[at];
        let wanted = ModelRef {
            provider: dialect.as_str().to_owned(),
            model: "anthropic/claude-x".to_owned(),
        };
        bed.client().select_model(&session, wanted).await.unwrap();
        let (_, outcome) = ask(&engine, &session, "look").await;
        let refused: Vec<Verdict> = model
            .requests()
            .into_iter()
            .map(|request| request.verdict)
            .filter(|verdict| *verdict != Verdict::Accepted)
            .collect();
        assert_eq!(outcome, Outcome::Succeeded, "{dialect:?}: {refused:#?}");
        assert!(refused.is_empty(), "{dialect:?}: {refused:#?}");
    }
    engine.idle().await;
    let requests = model.requests();
    let azure: Vec<&str> = requests
        .iter()
        .map(|request| request.path.as_str())
        .filter(|path| path.contains("azure"))
        .collect();
    assert_eq!(
        azure[0],
        "/dialect/azure/openai/deployments/anthropic%2Fclaude-x/chat/completions"
    );
    let seen = |path: &str, needle: &str| {
        requests
            .iter()
            .filter(|request| request.path.contains(path))
            .any(|request| request.body.to_string().contains(needle))
    };
    assert!(seen("deepseek", "\"reasoning_content\":\"I look first.\""));
    assert!(seen("openrouter", "\"signature\":\"tnscripted"));
    assert!(
        seen("mistral", "{\"type\":\"text\",\"text\":\"I look first.\"}")
            || seen("mistral", "\"thinking\"")
    );
    crate::checks::assert_at_rest(&bed.log(&session).await);
}
