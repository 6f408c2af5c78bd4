//! Requests in Gemini's form, and whole conversations with the scripted model over a real socket.

use crate::fold::{Folded, fold, read};
use crate::requests::*;
use futures::StreamExt as _;
use serde_json::{Value, json};
use std::time::Duration;
use tenure_core::request::*;
use tenure_provider::{
    AttemptKey, Dialect, Finding, HttpProvider, Protocol, Provider as _, ProviderSettings, Secret,
    encode, probe,
};
use tenure_scripted::validate::{self, Broken};
use tenure_scripted::{Handle, Part, Script, ScriptedModel, Turn};

const SKIP: &str = "skip_thought_signature_validator";

fn request(model: &str, messages: Vec<RequestMessage>) -> Request {
    let schema = json!({"$schema": "x", "type": "object", "additionalProperties": false,
        "properties": {"path": {"type": "string", "format": "uri", "minLength": 1}}, "required": ["path"]});
    let tools = ["read", "list"].map(|name| tool(name, "Does.", schema.clone()));
    let system = ["You are Tenure.", " ", "Be brief."];
    plain(model, &system, messages, tools.to_vec())
}

fn call(id: &str, name: &str, native: Option<&str>) -> AssistantBlock {
    call_of(id, name, "{\"path\":\"a\"}", native)
}

fn result(id: &str, name: &str, text: &str) -> ToolResult {
    result_of(id, name, text)
}

/// The body, which the validator of its model must accept.
fn body(request: &Request) -> Value {
    let encoded = encode(Protocol::Gemini, Dialect::Common, &NO_LIMITS, request).unwrap();
    let body: Value = serde_json::from_slice(&encoded.body).unwrap();
    let check: fn(&Value) -> Result<(), Vec<Broken>> =
        if request.model.model.starts_with("gemini-3") {
            validate::gemini_3
        } else {
            validate::gemini
        };
    assert_eq!(check(&body), Ok(()), "{body:#}");
    body
}

/// What a stream said, as blocks of the next request to the same model.
fn replayed(said: &Folded, parts: &[&str]) -> Vec<AssistantBlock> {
    let mut texts = said.texts.iter();
    let mut thoughts = said.reasonings.iter();
    let mut calls = said.calls.iter();
    let next = |part: &&str| match *part {
        "text" => texts.next().map(|(text, native)| AssistantBlock::Text {
            text: text.clone(),
            native: native.clone(),
        }),
        "thought" => thoughts
            .next()
            .map(|(text, native)| AssistantBlock::Reasoning {
                text: text.clone(),
                native: native.clone(),
            }),
        _ => calls.next().map(|call| {
            let result = said.results.iter().find(|r| r.0 == call.id);
            match result {
                None => AssistantBlock::ToolCall {
                    id: call.id.clone(),
                    name: call.name.clone(),
                    input: call.input.clone().unwrap(),
                    native: call.native.clone(),
                },
                Some(result) => AssistantBlock::Hosted {
                    id: call.id.clone(),
                    name: call.name.clone(),
                    input: call.input.clone().unwrap(),
                    call: call.native.clone(),
                    result: result.3.clone(),
                    text: result.1.clone(),
                },
            }
        }),
    };
    parts.iter().filter_map(next).collect()
}

#[test]
fn the_whole_form() {
    let mut request = request(
        "gemini-2.5-flash",
        vec![
            user("one"),
            assistant(vec![
                text("calling"),
                call("c:1", "read", None),
                call("c:2", "list", None),
            ]),
            RequestMessage::System {
                text: "Instructions changed.".into(),
            },
            results(vec![
                result("c:1", "read", "ok"),
                ToolResult {
                    is_error: true,
                    ..result("c:2", "list", " ")
                },
            ]),
            user("two"),
        ],
    );
    request.max_output = Some(100);
    let got = body(&request);
    assert_eq!(
        got["systemInstruction"],
        json!({"parts": [{"text": "You are Tenure."}, {"text": "Be brief."}]})
    );
    assert_eq!(
        got["contents"],
        json!([
            {"role": "user", "parts": [{"text": "one"}]},
            {"role": "model", "parts": [
                {"text": "calling"},
                {"functionCall": {"name": "read", "args": {"path": "a"}}},
                {"functionCall": {"name": "list", "args": {"path": "a"}}}]},
            {"role": "user", "parts": [
                {"functionResponse": {"name": "read", "response": {"output": "ok"}}},
                {"functionResponse": {"name": "list", "response": {"error": "(no output)"}}},
                {"text": "<tenure-note>\nInstructions changed.\n</tenure-note>"},
                {"text": "two"}]},
        ])
    );
    let declared = &got["tools"][0]["functionDeclarations"];
    assert_eq!(declared[0]["name"], "read");
    assert_eq!(
        declared[0]["parametersJsonSchema"],
        json!({"type": "object", "additionalProperties": false, "required": ["path"],
               "properties": {"path": {"type": "string", "format": "uri", "minLength": 1}}})
    );
    assert_eq!(
        got["toolConfig"],
        json!({"functionCallingConfig": {"mode": "AUTO"}})
    );
    assert_eq!(
        got["generationConfig"],
        json!({"maxOutputTokens": 100, "thinkingConfig": {"includeThoughts": true}})
    );
    assert!(got.get("stream").is_none() && got.get("model").is_none());
}

#[test]
fn bc_s_062_the_signature_on_the_first_of_three_calls_goes_back_there() {
    let calls = json!({"candidates": [{"content": {"parts": [
        {"text": "Two.", "thought": true, "thoughtSignature": "T=="},
        {"text": "reading", "thoughtSignature": "X+/="},
        {"functionCall": {"name": "read", "args": {"path": "a"}, "id": "v1"}, "thoughtSignature": "S+/=="},
        {"functionCall": {"name": "read", "args": {"path": "b"}, "id": "v2"}},
        {"functionCall": {"name": "list", "args": {}}}]}, "finishReason": "STOP"}]});
    let said = read(Protocol::Gemini, format!("data: {calls}\n\n"));
    let blocks = replayed(&said, &["thought", "text", "call", "call", "call"]);
    let answers = said
        .calls
        .iter()
        .map(|c| result(&c.id, &c.name, "ok"))
        .collect();
    let got = body(&request(
        "gemini-3-pro-preview",
        vec![user("a"), assistant(blocks), results(answers)],
    ));
    assert_eq!(
        got["contents"][1]["parts"],
        calls["candidates"][0]["content"]["parts"]
    );
    let answered: Vec<(&Value, Option<&str>)> = got["contents"][2]["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| &part["functionResponse"])
        .map(|r| (&r["name"], r["id"].as_str()))
        .collect();
    let read = json!("read");
    assert_eq!(
        answered,
        [
            (&read, Some("v1")),
            (&read, Some("v2")),
            (&json!("list"), None)
        ],
        "in the order of the calls, with ids where the vendor gave them"
    );
}

#[test]
fn hosted_calls_and_blocks_of_the_vendor_go_back_as_they_came() {
    let parts = json!([
        {"executableCode": {"code": "1", "language": "PYTHON", "id": "x"}, "thoughtSignature": "S"},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1", "id": "x"}},
        {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
        {"text": "", "thoughtSignature": "E"}]);
    let chunk = json!({"candidates": [{"content": {"parts": parts}, "finishReason": "STOP",
        "groundingMetadata": {"webSearchQueries": ["q"]}}]});
    let said = read(Protocol::Gemini, format!("data: {chunk}\n\n"));
    let mut blocks = replayed(&said, &["call", "text", "text", "call"]);
    blocks.push(AssistantBlock::Opaque {
        native: "{\"urlContextMetadata\":{}}".into(),
    });
    let got = body(&request(
        "gemini-3-flash",
        vec![user("a"), assistant(blocks), user("b")],
    ));
    assert_eq!(
        got["contents"][1]["parts"], parts,
        "what a search found is no part"
    );

    // At another model they are words.
    let foreign = AssistantBlock::Hosted {
        id: "x".into(),
        name: "web_search".into(),
        input: "{}".into(),
        call: None,
        result: None,
        text: "found it".into(),
    };
    let got = body(&request(
        "gemini-3-flash",
        vec![user("a"), assistant(vec![foreign]), user("b")],
    ));
    let words = got["contents"][1]["parts"][0]["text"].as_str().unwrap();
    assert!(words.contains("web_search") && words.contains("found it"));
}

#[test]
fn calls_another_model_made_carry_the_documented_stand_in_where_signatures_are_wanted() {
    let messages = || {
        vec![
            user("a"),
            assistant(vec![call("1", "read", None), call("2", "list", None)]),
            results(vec![result("1", "read", "x"), result("2", "list", "y")]),
            assistant(vec![
                text("and"),
                call("3", "read", Some("{\"thoughtSignature\":\"S\"}")),
            ]),
            results(vec![result("3", "read", "z")]),
        ]
    };
    let signatures = |model: &str| -> Vec<Value> {
        let got = body(&request(model, messages()));
        let calls = got["contents"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|content| {
                content["parts"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|part| part.get("functionCall").is_some())
            });
        calls.map(|part| part["thoughtSignature"].clone()).collect()
    };
    for model in [
        "gemini-3-pro-preview",
        "gemini-3.1-flash",
        "gemini-flash-latest",
    ] {
        assert_eq!(
            signatures(model),
            [json!(SKIP), json!(null), json!("S")],
            "{model}"
        );
    }
    for model in ["gemini-2.5-pro", "gemini-2.0-flash", "gemma-3", "m1"] {
        assert_eq!(
            signatures(model),
            [json!(null), json!(null), json!("S")],
            "{model}"
        );
    }
}

#[test]
fn two_requests_share_their_prefix_byte_for_byte() {
    for model in ["gemini-3-pro-preview", "gemini-2.5-pro", "m1"] {
        let mut messages = vec![user("one")];
        let mut before: Option<String> = None;
        for n in 0..6 {
            let id = format!("c{n}");
            messages.extend([
                assistant(vec![text("hm"), call(&id, "read", None)]),
                results(vec![result(&id, "read", "x")]),
            ]);
            if n == 3 {
                // A new turn: calls of the one before are no longer checked, and stay as they are all the same.
                messages.extend([assistant(vec![text("done")]), user("next")]);
            }
            let encoded = encode(
                Protocol::Gemini,
                Dialect::Common,
                &NO_LIMITS,
                &request(model, messages.clone()),
            )
            .unwrap();
            let now = String::from_utf8(encoded.body.to_vec()).unwrap();
            if let Some(before) = before {
                let head = before.trim_end_matches(['}', ']']);
                assert!(now.starts_with(head), "{model}\n{before}\n{now}");
            }
            before = Some(now);
        }
    }
}

#[test]
fn a_conversation_begins_and_ends_with_the_user() {
    let got = body(&request("m1", vec![assistant(vec![text("hello")])]));
    let roles: Vec<&Value> = got["contents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| &c["role"])
        .collect();
    assert_eq!(roles, ["user", "model", "user"]);
    // A message of thoughts alone, or without a word, is left out.
    let thought = AssistantBlock::Reasoning {
        text: "hm".into(),
        native: Some("{\"text\":\"hm\",\"thought\":true,\"thoughtSignature\":\"T\"}".into()),
    };
    let silent = AssistantBlock::Text {
        text: String::new(),
        native: Some("{\"text\":\"\",\"thoughtSignature\":\"E\"}".into()),
    };
    let got = body(&request(
        "m1",
        vec![user("a"), assistant(vec![thought, silent]), user("b")],
    ));
    assert_eq!(
        got["contents"],
        json!([{"role": "user", "parts": [{"text": "a"}, {"text": "b"}]}])
    );
}

#[test]
fn a_run_of_text_with_a_signature_in_it_goes_back_part_by_part() {
    let event = |part: &Value| {
        format!(
            "data: {}\n\n",
            json!({"candidates": [{"content": {"parts": [part]}}]})
        )
    };
    let sent = [
        json!({"text": "Hel", "thoughtSignature": "S+/="}),
        json!({"text": "lo "}),
        json!({"text": "you"}),
        json!({"text": "", "thoughtSignature": "E"}),
    ];
    let stream: String = sent.iter().map(event).collect();
    let said = read(
        Protocol::Gemini,
        stream + "data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\n\n",
    );
    assert_eq!(said.texts.len(), 1);
    let blocks = replayed(&said, &["text"]);
    let got = body(&request(
        "gemini-3-flash",
        vec![user("a"), assistant(blocks), user("b")],
    ));
    assert_eq!(
        got["contents"][1]["parts"],
        json!([sent[0], {"text": "lo you"}, sent[3]])
    );
    // What another model reads of it is the text.
    let plain = vec![text(&said.texts[0].0)];
    let got = body(&request("m1", vec![user("a"), assistant(plain), user("b")]));
    assert_eq!(got["contents"][1]["parts"], json!([{"text": "Hello you"}]));
}

#[test]
fn names_of_calls_begin_as_the_vendor_wants_it() {
    let long = "9".repeat(64);
    let got = body(&request(
        "gemini-3-flash",
        vec![
            user("a"),
            assistant(vec![call("1", "1st", None), call("2", &long, None)]),
            results(vec![result("1", "1st", "x"), result("2", &long, "y")]),
        ],
    ));
    let name = |content: usize, part: usize, kind: &str| {
        got["contents"][content]["parts"][part][kind]["name"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(name(1, 0, "functionCall"), "_1st");
    assert_eq!(name(2, 0, "functionResponse"), "_1st");
    assert_eq!(name(1, 1, "functionCall").len(), 64);
}

fn media(name: &str, media_type: &str, data: &str) -> UserPart {
    UserPart::Media(Media {
        name: name.into(),
        media_type: media_type.into(),
        data: data.into(),
    })
}

#[test]
fn bc_s_066_a_kind_of_picture_the_vendor_does_not_take_is_told_in_words() {
    let parts = vec![
        media("a.gif", "image/gif", "R0lGODlhAQABAAAAACw="),
        media("not.png", "image/png", "AAAA"),
        "look".into(),
    ];
    let got = body(&request("m1", vec![RequestMessage::User { parts }]));
    let words = got["contents"].to_string();
    assert!(!words.contains("inlineData"), "{words}");
    assert!(
        words.contains("a.gif") && words.contains("image/gif is not taken"),
        "{words}"
    );
    assert!(words.contains("not.png"), "{words}");
}

#[test]
fn bc_s_066_old_pictures_make_room_for_new_ones_within_the_vendors_limit() {
    // Three prompts with 7 MiB each: more than the 20 MB that a request may have.
    let data = format!("iVBORw0KGgoA{}", "AAAA".repeat(7 * 1024 * 1024 / 3));
    let messages = ["a.png", "b.png", "c.png"]
        .into_iter()
        .flat_map(|name| {
            let parts = vec![media(name, "image/png", &data), name.into()];
            [RequestMessage::User { parts }]
        })
        .collect();
    let got = body(&request("m1", messages));
    let parts: Vec<&Value> = got["contents"][0]["parts"]
        .as_array()
        .unwrap()
        .iter()
        .collect();
    let shown = parts.iter().filter(|part| part.get("inlineData").is_some());
    assert_eq!(shown.count(), 1);
    assert!(parts[0]["text"].as_str().unwrap().contains("a.png"));
    assert!(parts[4].get("inlineData").is_some(), "the newest is shown");
}

#[test]
fn pictures_and_documents_stand_where_the_user_put_them() {
    let parts = vec![
        media("a.png", "image/png", "iVBORw0KGgo="),
        media("b.pdf", "application/pdf", "JVBERi0xLjc="),
        "compare".into(),
    ];
    let got = body(&request("m1", vec![RequestMessage::User { parts }]));
    assert_eq!(
        got["contents"][0]["parts"],
        json!([
            {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
            {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0xLjc="}},
            {"text": "compare"}])
    );
}

#[test]
fn tools_may_be_forced_forbidden_or_named() {
    let config = |choice| {
        let request = Request {
            tool_choice: choice,
            ..request("m1", vec![user("a")])
        };
        body(&request)["toolConfig"]["functionCallingConfig"].clone()
    };
    assert_eq!(config(ToolChoice::None), json!({"mode": "NONE"}));
    assert_eq!(config(ToolChoice::Required), json!({"mode": "ANY"}));
    assert_eq!(
        config(ToolChoice::Tool("list".into())),
        json!({"mode": "ANY", "allowedFunctionNames": ["list"]})
    );
    assert_eq!(
        config(ToolChoice::Tool("gone".into())),
        json!({"mode": "ANY"})
    );
    let none = Request {
        tools: Vec::new(),
        tool_choice: ToolChoice::None,
        ..request("m1", vec![user("a")])
    };
    let got = body(&none);
    assert!(got.get("tools").is_none() && got.get("toolConfig").is_none());
}

#[test]
fn hosted_tools_are_offered_where_the_model_takes_them() {
    let hosted = vec![HostedTool::CodeExecution, HostedTool::WebSearch];
    let with = |model: &str, functions: bool| {
        let mut request = Request {
            hosted_tools: hosted.clone(),
            ..request(model, vec![user("a")])
        };
        if !functions {
            request.tools.clear();
        }
        let got = body(&request);
        let tools = got["tools"].as_array().unwrap().iter();
        let kinds: Vec<String> = tools
            .map(|tool| tool.as_object().unwrap().keys().next().unwrap().clone())
            .collect();
        (
            kinds,
            got["toolConfig"]["includeServerSideToolInvocations"].clone(),
        )
    };
    assert_eq!(
        with("gemini-3-pro-preview", true),
        (
            ["functionDeclarations", "googleSearch", "codeExecution"]
                .map(str::to_owned)
                .to_vec(),
            json!(true)
        )
    );
    assert_eq!(
        with("gemini-2.5-pro", true),
        (vec!["functionDeclarations".to_owned()], Value::Null),
        "these models refuse both at once"
    );
    assert_eq!(
        with("gemini-2.5-pro", false).0,
        ["googleSearch", "codeExecution"].map(str::to_owned)
    );
}

#[test]
fn the_form_of_an_answer_is_enforced_or_told() {
    let schema = json!({"type": "object", "$schema": "x", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let with = |model: &str, functions: bool| {
        let mut request = Request {
            output_schema: Some(OutputSchema {
                name: "answer".into(),
                schema: schema.clone(),
            }),
            ..request(model, vec![user("a")])
        };
        if !functions {
            request.tools.clear();
        }
        body(&request)
    };
    for (model, functions) in [
        ("gemini-3-flash", true),
        ("gemini-3-flash", false),
        ("gemini-2.5-pro", false),
    ] {
        let got = with(model, functions);
        assert_eq!(
            got["generationConfig"]["responseMimeType"],
            "application/json"
        );
        assert_eq!(
            got["generationConfig"]["responseJsonSchema"],
            json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
        );
    }
    let told = with("gemini-2.5-pro", true);
    assert!(told["generationConfig"].get("responseMimeType").is_none());
    let parts = told["systemInstruction"]["parts"].as_array().unwrap();
    let words = parts.last().unwrap()["text"].as_str().unwrap();
    assert!(
        words.contains("JSON Schema") && words.contains("\"integer\""),
        "{words}"
    );
}

#[test]
fn effort_is_told_in_the_models_own_terms() {
    let thinking = |model: &str, effort| {
        let request = Request {
            effort: Some(effort),
            ..request(model, vec![user("a")])
        };
        body(&request)["generationConfig"]["thinkingConfig"].clone()
    };
    assert_eq!(
        thinking("gemini-3-flash", Effort::Off),
        json!({"includeThoughts": true, "thinkingLevel": "minimal"})
    );
    assert_eq!(
        thinking("gemini-3-pro", Effort::High),
        json!({"includeThoughts": true, "thinkingLevel": "high"})
    );
    assert_eq!(
        thinking("gemini-2.5-flash", Effort::Low),
        json!({"includeThoughts": true, "thinkingBudget": 1024})
    );
    assert_eq!(
        thinking("gemini-2.5-flash", Effort::Off),
        json!({"thinkingBudget": 0})
    );
    assert_eq!(thinking("gemini-2.0-flash", Effort::High), Value::Null);
}

fn settings(url: String) -> ProviderSettings {
    let mut settings = ProviderSettings::new("google", Protocol::Gemini, url);
    settings.api_key = Some(Secret::new("key-1"));
    settings
}

async fn serve(turns: Vec<Turn>) -> Handle {
    ScriptedModel::builder(Script::new(turns))
        .api_key("key-1")
        .bind("127.0.0.1:0".parse().unwrap())
        .await
        .unwrap()
}

async fn ask(provider: &HttpProvider, request: &Request) -> Folded {
    let encoded = provider.encode(request).unwrap();
    let sent = provider.send(encoded, &AttemptKey("att_1".into())).await;
    let items: Vec<_> = sent
        .unwrap_or_else(|error| panic!("{error:?}"))
        .collect()
        .await;
    let events: Vec<_> = items.into_iter().flat_map(|item| item.unwrap()).collect();
    fold(&events)
}

#[tokio::test]
async fn a_conversation_over_a_socket_with_signatures_checked() {
    let turns = vec![
        Turn::default()
            .and(Part::reasoning("Two files."))
            .and(Part::text("Reading."))
            .and(Part::call("read", json!({"path": "a", "n": 1.5})))
            .and(Part::call("list", json!({}))),
        Turn::default()
            .and(Part::reasoning("So."))
            .and(Part::text("Done.")),
        Turn::text("Bye."),
    ];
    let server = serve(turns).await;
    // Google's own documents give the host alone.
    let base = server.base_url().trim_end_matches("/v1").to_owned();
    let provider = HttpProvider::new(settings(base)).unwrap();
    let mut messages = vec![user("read both")];
    let said = ask(
        &provider,
        &request("gemini-3-pro-preview", messages.clone()),
    )
    .await;
    assert_eq!(
        (said.text.as_str(), said.reasoning.as_str()),
        ("Reading.", "Two files.")
    );
    let results_of = |said: &Folded| {
        results(
            said.calls
                .iter()
                .map(|c| result(&c.id, &c.name, "ok"))
                .collect(),
        )
    };
    messages.push(assistant(replayed(
        &said,
        &["thought", "text", "call", "call"],
    )));
    messages.push(results_of(&said));
    let said = ask(
        &provider,
        &request("gemini-3-pro-preview", messages.clone()),
    )
    .await;
    assert_eq!(said.text, "Done.");
    messages.push(assistant(replayed(&said, &["thought", "text", "text"])));
    messages.push(user("thanks"));
    let said = ask(&provider, &request("gemini-3-pro-preview", messages)).await;
    assert_eq!(said.text, "Bye.");
    let asked = server.requests();
    assert_eq!(asked.len(), 3);
    assert!(
        asked
            .iter()
            .all(|r| r.path == "/v1beta/models/gemini-3-pro-preview:streamGenerateContent")
    );
}

#[tokio::test]
async fn names_of_models_are_one_step_of_the_path() {
    let server = serve(vec![Turn::text("x"), Turn::text("y")]).await;
    let provider = HttpProvider::new(settings(server.base_url())).unwrap();
    for (name, path) in [
        ("models/m1", "/v1/models/m1:streamGenerateContent"),
        (
            "../a b?c",
            "/v1/models/..%2Fa%20b%3Fc:streamGenerateContent",
        ),
    ] {
        ask(&provider, &request(name, vec![user("a")])).await;
        assert_eq!(server.requests().last().unwrap().path, path);
    }
}

#[tokio::test]
async fn a_probe_tells_a_good_key_from_a_wrong_one() {
    let server = serve(vec![Turn::text("x")]).await;
    let limit = Duration::from_secs(20);
    let good = probe(&settings(server.base_url()), limit).await;
    assert_eq!(good.finding, Finding::Ok, "{}", good.message);
    let mut wrong = settings(server.base_url());
    wrong.api_key = Some(Secret::new("other"));
    let wrong = probe(&wrong, limit).await;
    assert_eq!(wrong.finding, Finding::Auth, "{}", wrong.message);
    let nowhere = probe(&settings(format!("{}/x", server.base_url())), limit).await;
    assert_eq!(nowhere.finding, Finding::NotFound, "{}", nowhere.message);
    // The real endpoint names the model it does not know; then it has taken the key.
    let body = json!({"error": {"code": 404, "status": "NOT_FOUND", "message":
        "models/tenure-probe is not found for API version v1beta, or is not supported for generateContent."}})
    .to_string();
    let answer = format!(
        "HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let url = crate::http::answering(answer).await;
    let known = probe(&settings(url), limit).await;
    assert_eq!(known.finding, Finding::Ok, "{}", known.message);
}

#[test]
fn a_vendors_id_that_came_twice_stands_once() {
    let native = |signature: &str| {
        json!({"functionCall": {"id": "v1"}, "thoughtSignature": signature}).to_string()
    };
    let got = body(&request(
        "gemini-3-flash",
        vec![
            user("a"),
            assistant(vec![
                call("v1", "read", Some(&native("S1"))),
                call("v1_2", "list", Some(&native("S2"))),
            ]),
            results(vec![result("v1", "read", "x"), result("v1_2", "list", "y")]),
        ],
    ));
    let calls = &got["contents"][1]["parts"];
    assert_eq!(calls[0]["functionCall"]["id"], "v1");
    assert_eq!(calls[1]["functionCall"]["id"], Value::Null);
    assert_eq!(calls[1]["thoughtSignature"], "S2", "the signature stays");
    assert_eq!(
        got["contents"][2]["parts"][1]["functionResponse"]["id"],
        Value::Null
    );
}

#[test]
fn kept_parts_that_nobody_would_take_go_back_otherwise_or_not_at_all() {
    let opaque = |native: Value| AssistantBlock::Opaque {
        native: native.to_string(),
    };
    let got = body(&request(
        "gemini-3-flash",
        vec![
            user("a"),
            assistant(vec![
                opaque(json!({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}})),
                opaque(json!({"toolResponse": {"id": "t", "response": {}}})),
                text("b"),
                opaque(json!({"thoughtSignature": "S+/="})),
            ]),
            user("c"),
        ],
    ));
    assert_eq!(
        got["contents"][1]["parts"],
        json!([{"text": "b"}, {"text": "", "thoughtSignature": "S+/="}])
    );
}

#[test]
fn media_that_are_not_what_they_say_are_told_and_not_shown() {
    let media = |data: &str| {
        UserPart::Media(Media {
            name: "a.png".into(),
            media_type: "image/png".into(),
            data: data.into(),
        })
    };
    for data in ["JVBERi0xLjQKJSVFT0YK", "", "no base64 \u{e9}"] {
        let mut request = request("gemini-2.5-pro", vec![]);
        request.messages = vec![RequestMessage::User {
            parts: vec![media(data), "a".into()],
        }];
        let got = body(&request);
        assert!(got["contents"][0]["parts"][0]["text"].is_string(), "{data}");
        let chat = encode(Protocol::OpenaiChat, Dialect::Openai, &NO_LIMITS, &request).unwrap();
        let chat: Value = serde_json::from_slice(&chat.body).unwrap();
        assert_eq!(validate::openai_chat(&chat), Ok(()), "{chat:#}");
        assert!(!chat.to_string().contains("image_url"), "{data}");
    }
}
