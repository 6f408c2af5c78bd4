//! What single servers of Chat Completions refuse: one good request for each, and an example for each rule.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tenure_scripted::validate::{self, ChatDialect};
use tenure_scripted::{Part, Script, Times, Turn};

use crate::client::{Client, serve};
use crate::good::{PDF, PNG, chat_good};

/// A conversation that every server takes, in the words of `dialect`.
fn good(dialect: ChatDialect) -> Value {
    let mut body = json!({
        "model": "m1", "stream": true,
        "tools": [{"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}],
        "messages": [
            {"role": "system", "content": "You help."},
            {"role": "user", "content": "read"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "Ab3dE6gH9", "type": "function", "function": {"name": "read", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "Ab3dE6gH9", "content": "A"},
            {"role": "assistant", "content": "done"},
            {"role": "user", "content": "thanks"}
        ]
    });
    match dialect {
        ChatDialect::Perplexity => {
            body.as_object_mut().unwrap().remove("tools");
            body["messages"] = json!([
                {"role": "system", "content": "You help."},
                {"role": "user", "content": [
                    {"type": "text", "text": "read"},
                    {"type": "file_url", "file_url": {"url": PDF}, "file_name": "a.pdf"}]},
                {"role": "assistant", "content": "done"},
                {"role": "user", "content": "thanks"}
            ]);
        }
        ChatDialect::Deepseek | ChatDialect::Moonshot => {
            for at in [2, 4] {
                body["messages"][at]["reasoning_content"] = json!("Hm.");
            }
        }
        ChatDialect::Mistral => {
            body["messages"][4]["content"] = json!([
                {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
                {"type": "text", "text": "done"}
            ]);
            body["messages"][1]["content"] = json!([
                {"type": "document_url", "document_url": format!("data:application/pdf;base64,{PDF}")},
                {"type": "text", "text": "read"}
            ]);
        }
        ChatDialect::Openrouter => {
            body["tools"]
                .as_array_mut()
                .unwrap()
                .push(json!({"type": "openrouter:web_search"}));
            body["messages"][1]["content"] = json!([
                {"type": "file", "file": {"filename": "a.pdf", "file_data": format!("data:application/pdf;base64,{PDF}")}},
                {"type": "text", "text": "read", "cache_control": {"type": "ephemeral"}}
            ]);
        }
        _ => {}
    }
    body
}

#[test]
fn each_server_takes_its_good_request() {
    for dialect in ChatDialect::ALL {
        validate::openai_chat_dialect(&good(dialect), dialect)
            .unwrap_or_else(|broken| panic!("{dialect:?}: {broken:#?}"));
        assert_eq!(ChatDialect::of_word(dialect.as_str()), Some(dialect));
    }
    validate::openai_chat_dialect(&chat_good(), ChatDialect::Openai).unwrap();
}

type Mutation = (&'static str, ChatDialect, fn(&mut Value));

const MUTATIONS: &[Mutation] = &[
    ("chat.dialect.field", ChatDialect::Mistral, |b| {
        b["stream_options"] = json!({"include_usage": true})
    }),
    ("chat.dialect.field", ChatDialect::Azure, |b| {
        b["prompt_cache_key"] = json!("ses_1")
    }),
    ("chat.dialect.field", ChatDialect::Openai, |b| {
        b["thinking"] = json!({"type": "enabled"})
    }),
    ("chat.dialect.field", ChatDialect::Xai, |b| {
        b["search_parameters"] = json!({"mode": "auto"})
    }),
    ("chat.dialect.field", ChatDialect::Google, |b| {
        b["prompt_cache_key"] = json!("ses_1")
    }),
    ("chat.dialect.message_field", ChatDialect::Google, |b| {
        b["messages"][4]["reasoning"] = json!("Hm.")
    }),
    ("chat.dialect.field", ChatDialect::Cerebras, |b| {
        b["service_tier"] = json!("auto")
    }),
    ("chat.dialect.message_field", ChatDialect::Groq, |b| {
        b["messages"][4]["reasoning_content"] = json!("Hm.")
    }),
    ("chat.dialect.message_field", ChatDialect::Cerebras, |b| {
        b["messages"][4]["reasoning_content"] = json!("Hm.")
    }),
    ("chat.dialect.message_field", ChatDialect::Mistral, |b| {
        b["messages"][4]["reasoning"] = json!("Hm.")
    }),
    ("chat.dialect.role", ChatDialect::Deepseek, |b| {
        b["messages"][0]["role"] = json!("developer")
    }),
    ("chat.dialect.system_place", ChatDialect::LlamaCpp, |b| {
        b["messages"][5]["role"] = json!("system")
    }),
    ("chat.dialect.order", ChatDialect::Mistral, |b| {
        b["messages"][4] = json!({"role": "user", "content": "and?"})
    }),
    ("chat.dialect.order", ChatDialect::Perplexity, |b| {
        b["messages"][2]["role"] = json!("user")
    }),
    ("chat.dialect.first_user", ChatDialect::Perplexity, |b| {
        drop(b["messages"].as_array_mut().unwrap().remove(1))
    }),
    ("chat.dialect.last_role", ChatDialect::Mistral, |b| {
        drop(b["messages"].as_array_mut().unwrap().pop())
    }),
    ("chat.dialect.id", ChatDialect::Mistral, |b| {
        b["messages"][2]["tool_calls"][0]["id"] = json!("call_12345");
        b["messages"][3]["tool_call_id"] = json!("call_12345");
    }),
    ("chat.dialect.tools", ChatDialect::Perplexity, |b| {
        b["tools"] = good(ChatDialect::Any)["tools"].clone()
    }),
    ("chat.dialect.max_tools", ChatDialect::Openai, |b| {
        b["tools"] = (0..129)
            .map(|n| json!({"type": "function", "function": {"name": format!("t{n}")}}))
            .collect()
    }),
    ("chat.dialect.tool_choice", ChatDialect::Zai, |b| {
        b["tool_choice"] = json!("none")
    }),
    ("chat.dialect.tool_choice", ChatDialect::LmStudio, |b| {
        b["tool_choice"] = json!({"type": "function", "function": {"name": "read"}})
    }),
    ("chat.dialect.tool_choice", ChatDialect::Groq, |b| {
        b["tool_choice"] = json!("any")
    }),
    (
        "chat.dialect.tool_choice_thinking",
        ChatDialect::Deepseek,
        |b| b["tool_choice"] = json!("required"),
    ),
    (
        "chat.dialect.tool_choice_thinking",
        ChatDialect::Moonshot,
        |b| b["tool_choice"] = json!({"type": "function", "function": {"name": "read"}}),
    ),
    (
        "chat.dialect.format",
        ChatDialect::Deepseek,
        |b| {
            b["response_format"] =
                json!({"type": "json_schema", "json_schema": {"name": "a", "schema": {}}})
        },
    ),
    ("chat.dialect.format", ChatDialect::LmStudio, |b| {
        b["response_format"] = json!({"type": "json_object"})
    }),
    ("chat.dialect.format_with_tools", ChatDialect::Groq, |b| {
        b["response_format"] = json!({"type": "json_object"})
    }),
    ("chat.dialect.effort", ChatDialect::Mistral, |b| {
        b["reasoning_effort"] = json!("low")
    }),
    (
        "chat.dialect.reasoning_missing",
        ChatDialect::Deepseek,
        |b| b["messages"][4]["reasoning_content"] = json!(""),
    ),
    (
        "chat.dialect.reasoning_missing",
        ChatDialect::Moonshot,
        |b| {
            b["messages"][2]
                .as_object_mut()
                .unwrap()
                .remove("reasoning_content");
        },
    ),
    ("chat.dialect.image", ChatDialect::Deepseek, |b| {
        b["messages"][1]["content"] = json!([{"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{PNG}")}}])
    }),
];

#[test]
fn each_rule_of_a_server_refuses() {
    for (rule, dialect, mutate) in MUTATIONS {
        let mut body = good(*dialect);
        mutate(&mut body);
        let broken = validate::openai_chat_dialect(&body, *dialect).expect_err(rule);
        assert!(
            broken.iter().any(|b| b.rule == *rule),
            "{rule} at {dialect:?} is not among {broken:#?}"
        );
    }
    let shown: BTreeSet<&str> = MUTATIONS.iter().map(|(rule, ..)| *rule).collect();
    let listed: BTreeSet<&str> = validate::openai_chat_dialect_rules()
        .iter()
        .copied()
        .collect();
    assert_eq!(shown, listed, "each listed rule has a breaking example");
}

#[test]
fn switched_off_thinking_lifts_its_rules() {
    let mut body = good(ChatDialect::Deepseek);
    body["thinking"] = json!({"type": "disabled"});
    body["tool_choice"] = json!("required");
    body["messages"][4]
        .as_object_mut()
        .unwrap()
        .remove("reasoning_content");
    validate::openai_chat_dialect(&body, ChatDialect::Deepseek).unwrap();
}

async fn talk(dialect: ChatDialect, path: &str) -> String {
    let turn = Turn::default()
        .and(Part::reasoning("Two words."))
        .and(Part::call("read", json!({"path": "a"})));
    let handle = serve(Script::new([turn.times(Times::Forever)])).await;
    let mut client = Client::connect(handle.addr()).await;
    client
        .send(path, &[], good(dialect).to_string().as_bytes())
        .await;
    let answer = client.answer().await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text()
}

#[tokio::test]
async fn servers_stream_with_their_habits() {
    let mistral = talk(ChatDialect::Mistral, "/dialect/mistral/v1/chat/completions").await;
    assert!(
        mistral.contains("\"content\":[{\"type\":\"thinking\""),
        "{mistral}"
    );
    let call = mistral
        .split("\"id\":\"")
        .filter_map(|rest| rest.split('"').next())
        .find(|id| id.len() == 9);
    assert!(call.is_some(), "{mistral}");
    let router = talk(
        ChatDialect::Openrouter,
        "/dialect/openrouter/v1/chat/completions",
    )
    .await;
    assert!(router.starts_with(": OPENROUTER PROCESSING"), "{router}");
    assert!(router.contains("\"signature\":\"tnscripted"), "{router}");
    let azure = talk(
        ChatDialect::Azure,
        "/dialect/azure/openai/deployments/d/chat/completions?api-version=2024-10-21",
    )
    .await;
    assert!(azure.contains("prompt_filter_results"), "{azure}");
    assert!(!azure.contains("Two words"), "{azure}");
    let groq = talk(ChatDialect::Groq, "/dialect/groq/v1/chat/completions").await;
    assert!(groq.contains("\"reasoning\":\"Two"), "{groq}");
}

#[tokio::test]
async fn a_refusal_has_the_form_of_its_server() {
    let handle = serve(Script::new([Turn::text("x").times(Times::Forever)])).await;
    let mut client = Client::connect(handle.addr()).await;
    let mut body = good(ChatDialect::Mistral);
    body["messages"][2]["tool_calls"][0]["id"] = json!("call_1");
    body["messages"][3]["tool_call_id"] = json!("call_1");
    client
        .send(
            "/dialect/mistral/v1/chat/completions",
            &[],
            body.to_string().as_bytes(),
        )
        .await;
    let answer = client.answer().await.unwrap();
    assert_eq!(answer.status, 400);
    let answer: Value = serde_json::from_str(&answer.text()).unwrap();
    assert_eq!(answer["object"], "error");
    assert!(answer["message"].as_str().unwrap().contains("length of 9"));
    client
        .send(
            "/dialect/azure/openai/deployments/d/chat/completions",
            &[],
            good(ChatDialect::Azure).to_string().as_bytes(),
        )
        .await;
    assert_eq!(
        client.answer().await.unwrap().status,
        400,
        "without api-version"
    );
}
