//! The Gemini form: what it says, what it takes back, how it refuses and breaks.

use serde_json::{Value, json};
use tenure_scripted::{Part, Script, ScriptedModel, Times, Turn};

use crate::client::{Client, End, GEMINI, ask, fold, follow, loopback, post, serve};

/// The same server asked for a model of the third generation.
const GEMINI_3: &str = "/v1beta/models/gemini-3-pro-preview:streamGenerateContent?alt=sse";

fn rich() -> Turn {
    Turn::default()
        .and(Part::reasoning("Two files, \"a\" and ü."))
        .and(Part::text("I read both.\nNow. €"))
        .and(Part::call(
            "read",
            json!({"path": "a", "deep": {"x": [1, 2, 3]}}),
        ))
        .and(Part::call("read", json!({})))
}

fn turn(text: &str) -> Script {
    Script::parse(&format!("version = 1\n[[turn]]\n{text}")).unwrap()
}

#[tokio::test]
async fn it_says_what_the_script_says_and_takes_it_back() {
    for path in [
        GEMINI,
        GEMINI_3,
        "/v1/models/m1:streamGenerateContent?alt=sse",
    ] {
        let handle = serve(Script::new([rich(), Turn::text("done")])).await;
        let first = ask(GEMINI, "read");
        let answer = post(&handle, path, &first).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.head.contains("text/event-stream"));
        let said = fold(GEMINI, &answer.events());
        assert_eq!(said.text, "I read both.\nNow. €");
        assert_eq!(said.reasoning, "Two files, \"a\" and ü.");
        let input: Value = serde_json::from_str(&said.calls[0].2).unwrap();
        assert_eq!(input, json!({"path": "a", "deep": {"x": [1, 2, 3]}}));
        assert_ne!(said.calls[0].0, said.calls[1].0);
        assert_eq!((said.finish.as_deref(), said.done), (Some("STOP"), true));

        let next = follow(GEMINI, &first, &said, "content");
        let answer = post(&handle, path, &next).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(fold(GEMINI, &answer.events()).text, "done");
    }
}

#[tokio::test]
async fn the_first_call_is_signed_and_the_signature_belongs_to_it() {
    let handle = serve(Script::new([
        rich(),
        Turn::text("done").times(Times::Forever),
    ]))
    .await;
    let first = ask(GEMINI, "read");
    let said = fold(GEMINI, &post(&handle, GEMINI_3, &first).await.events());
    let good = follow(GEMINI, &first, &said, "content");
    let seal = said.seal.unwrap();
    let parts = good["contents"][1]["parts"].as_array().unwrap().clone();
    let signed: Vec<bool> = parts
        .iter()
        .map(|p| p.get("thoughtSignature").is_some())
        .collect();
    let call = parts
        .iter()
        .position(|p| p.get("functionCall").is_some())
        .unwrap();
    assert!(
        signed[call] && signed.iter().filter(|s| **s).count() == 1,
        "{parts:?}"
    );

    let changed = |change: &dyn Fn(&mut Vec<Value>)| {
        let mut body = good.clone();
        change(body["contents"][1]["parts"].as_array_mut().unwrap());
        body
    };
    let moved = changed(&|parts| {
        let sign = parts[call]["thoughtSignature"].take();
        parts[call]
            .as_object_mut()
            .unwrap()
            .remove("thoughtSignature");
        parts[call + 1]["thoughtSignature"] = sign;
    });
    let other = changed(&|parts| parts[call]["functionCall"]["args"]["path"] = json!("b"));
    let altered = changed(&|parts| {
        let swapped = if seal.ends_with("A=") { "B=" } else { "A=" };
        parts[call]["thoughtSignature"] = json!(format!("{}{swapped}", &seal[..seal.len() - 2]));
    });
    let dropped = changed(&|parts| {
        parts[call]
            .as_object_mut()
            .unwrap()
            .remove("thoughtSignature");
    });
    let skipped = changed(&|parts| {
        parts[call]["thoughtSignature"] = json!("skip_thought_signature_validator");
    });
    for (body, rule) in [
        (&moved, "scripted.altered_seal"),
        (&other, "scripted.altered_seal"),
        (&altered, "scripted.altered_seal"),
        (&dropped, "gemini.call_signature"),
    ] {
        let refused = post(&handle, GEMINI_3, body).await;
        assert_eq!(refused.status, 400);
        assert!(
            refused.rules().contains(&rule.to_owned()),
            "{:?}",
            refused.rules()
        );
        assert_eq!(refused.json()["error"]["status"], "INVALID_ARGUMENT");
    }
    // Models before the third generation do not ask for it.
    assert_eq!(post(&handle, GEMINI, &dropped).await.status, 200);
    for body in [&good, &skipped] {
        let answer = post(&handle, GEMINI_3, body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

#[tokio::test]
async fn an_answer_without_calls_is_signed_at_its_end() {
    let script = Script::new([
        Turn::default()
            .and(Part::reasoning("hm"))
            .and(Part::text("so")),
        Turn::text("done"),
    ]);
    let handle = serve(script).await;
    let events = post(&handle, GEMINI, &ask(GEMINI, "x")).await.events();
    let last = &events.last().unwrap().1["candidates"][0];
    assert_eq!(last["content"]["parts"][0]["text"], "");
    assert!(last["content"]["parts"][0]["thoughtSignature"].is_string());
    let said = fold(GEMINI, &events);
    let mut next = ask(GEMINI, "x");
    let list = next["contents"].as_array_mut().unwrap();
    list.push(json!({"role": "model", "parts": said.replay}));
    list.push(json!({"role": "user", "parts": [{"text": "more"}]}));
    let answer = post(&handle, GEMINI, &next).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test]
async fn finishes_usage_and_hosted_tools_are_in_its_words() {
    for (finish, word) in [
        ("length", "MAX_TOKENS"),
        ("content_filter", "SAFETY"),
        ("RECITATION", "RECITATION"),
    ] {
        let handle = serve(turn(&format!(
            "part = [{{ text = \"x\" }}]\nfinish = \"{finish}\""
        )))
        .await;
        let said = fold(
            GEMINI,
            &post(&handle, GEMINI, &ask(GEMINI, "x")).await.events(),
        );
        assert_eq!(said.finish.as_deref(), Some(word));
    }
    let handle = serve(turn(
        "part = [{ hosted = { name = \"code_execution\", input = { code = \"print(1)\" }, result = \"1\" } }, \
         { hosted = { name = \"web_search\", input = { query = \"q\" }, result = [{ url = \"u\", title = \"t\" }] } }, \
         { hosted = { name = \"file_search\", result = { n = 1 }, failed = false } }, { text = \"hi\" }]\n\
         usage = { input = 100, output = 9, cache_read = 60, reasoning = 4 }",
    ))
    .await;
    let events = post(&handle, GEMINI, &ask(GEMINI, "x")).await.events();
    let said = fold(GEMINI, &events);
    assert_eq!(
        said.usage,
        json!({"promptTokenCount": 100, "candidatesTokenCount": 5, "thoughtsTokenCount": 4,
               "cachedContentTokenCount": 60, "totalTokenCount": 109})
    );
    let kinds: Vec<&str> = said
        .replay
        .iter()
        .map(|part| part.as_object().unwrap().keys().next().unwrap().as_str())
        .collect();
    assert_eq!(
        kinds,
        [
            "executableCode",
            "codeExecutionResult",
            "toolCall",
            "toolResponse",
            "text"
        ]
    );
    let found = &events.last().unwrap().1["candidates"][0]["groundingMetadata"];
    assert_eq!(found["webSearchQueries"], json!(["q"]));
    assert_eq!(
        found["groundingChunks"],
        json!([{"web": {"uri": "u", "title": "t"}}])
    );
}

#[tokio::test]
async fn input_that_is_no_object_ends_as_a_malformed_call() {
    let handle = serve(turn(
        "part = [{ call = { name = \"read\", input = '{\"path\": \"a' } }]",
    ))
    .await;
    let said = fold(
        GEMINI,
        &post(&handle, GEMINI, &ask(GEMINI, "x")).await.events(),
    );
    assert_eq!(said.calls, []);
    assert_eq!(said.finish.as_deref(), Some("MALFORMED_FUNCTION_CALL"));
}

#[tokio::test]
async fn without_streaming_the_answer_is_one_body() {
    let handle = serve(Script::new([rich()])).await;
    let answer = post(
        &handle,
        "/v1beta/models/m1:generateContent",
        &ask(GEMINI, "x"),
    )
    .await;
    let whole = answer.json();
    let parts = whole["candidates"][0]["content"]["parts"]
        .as_array()
        .unwrap();
    assert_eq!(
        (parts.len(), &parts[1]["text"]),
        (4, &json!("I read both.\nNow. €"))
    );
    assert_eq!(whole["candidates"][0]["finishReason"], "STOP");
    assert_eq!(whole["modelVersion"], "m1");
}

#[tokio::test]
async fn it_refuses_in_googles_form() {
    let handle = serve(turn(
        "fault = { kind = \"overflow\", used = 1201, limit = 1200 }",
    ))
    .await;
    let mut bad = ask(GEMINI, "x");
    bad["generationConfig"] = json!({"temperature": 9});
    let refused = post(&handle, GEMINI, &bad).await;
    assert_eq!(
        (refused.status, refused.rules()),
        (400, vec!["gemini.temperature".to_owned()])
    );
    let error = &refused.json()["error"];
    assert_eq!(
        (&error["code"], &error["status"]),
        (&json!(400), &json!("INVALID_ARGUMENT"))
    );
    assert!(error.get("type").is_none() && error.get("param").is_none());

    let bare = "/v1beta/models/m1:streamGenerateContent";
    assert_eq!(
        post(&handle, bare, &ask(GEMINI, "x")).await.rules(),
        ["scripted.alt_sse"]
    );

    let overflow = post(&handle, GEMINI, &ask(GEMINI, "x")).await;
    assert_eq!(overflow.status, 400);
    assert_eq!(
        overflow.json()["error"]["message"],
        "The input token count (1201) exceeds the maximum number of tokens allowed (1200)."
    );

    let handle = serve(turn("fault = { kind = \"status\", status = 429 }")).await;
    let limited = post(&handle, GEMINI, &ask(GEMINI, "x")).await;
    assert_eq!(limited.json()["error"]["status"], "RESOURCE_EXHAUSTED");
    assert_eq!(
        post(&handle, "/v1beta/models/m1:embedContent", &bad)
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn a_wrong_key_is_an_invalid_argument_and_an_unknown_model_is_not_found() {
    let script = Script {
        models: vec!["m1".to_owned()],
        ..Script::new([Turn::text("x")])
    };
    let handle = ScriptedModel::builder(script)
        .api_key("secret")
        .bind(loopback())
        .await
        .unwrap();
    let body = ask(GEMINI, "x").to_string();
    let send = async |path: &str, key: &str| {
        let mut client = Client::connect(handle.addr()).await;
        client
            .send(path, &[("x-goog-api-key", key)], body.as_bytes())
            .await;
        client.answer().await.unwrap()
    };
    let wrong = send(GEMINI, "other").await;
    assert_eq!(wrong.status, 400);
    assert_eq!(
        wrong.json()["error"]["details"][0]["reason"],
        "API_KEY_INVALID"
    );
    let unknown = send(GEMINI_3, "secret").await;
    assert_eq!(unknown.status, 404);
    assert_eq!(unknown.json()["error"]["status"], "NOT_FOUND");
    assert_eq!(send(GEMINI, "secret").await.status, 200);
    let recorded = handle.requests();
    let recorded = format!("{recorded:?}");
    assert!(!recorded.contains("secret"), "keys are never recorded");
}

#[tokio::test]
async fn it_breaks_as_told() {
    let part = "part = [{ text = \"one two three\" }]";
    let handle = serve(turn(&format!(
        "{part}\nfault = {{ kind = \"error_event\", after_events = 2 }}"
    )))
    .await;
    let events = post(&handle, GEMINI, &ask(GEMINI, "x")).await.events();
    assert_eq!(events[2].1["error"]["status"], "UNAVAILABLE");
    assert_eq!(fold(GEMINI, &events).text, "one two ");

    let handle = serve(turn(&format!(
        "{part}\nfault = {{ kind = \"cut\", how = \"close\" }}"
    )))
    .await;
    let cut = post(&handle, GEMINI, &ask(GEMINI, "x")).await;
    assert_eq!(cut.end, End::Closed);
    let said = fold(GEMINI, &cut.events());
    assert_eq!((said.text.as_str(), said.done), ("one two three", false));

    // The finish is this form's end mark.
    for fault in [
        "fault = { kind = \"no_terminator\" }",
        "finish = \"missing\"",
    ] {
        let handle = serve(turn(&format!("{part}\n{fault}"))).await;
        let open = post(&handle, GEMINI, &ask(GEMINI, "x")).await;
        assert_eq!(open.end, End::Proper);
        assert!(!fold(GEMINI, &open.events()).done);
    }
}

#[tokio::test]
async fn turns_are_found_by_the_text_of_the_contents() {
    let script = Script::parse(
        "version = 1\nselect = \"history\"\n[[turn]]\nwhen = \"result\"\npart = [{ text = \"after\" }]\n\
         [[turn]]\nwhen_request = \"system words\"\npart = [{ call = { name = \"read\" } }]",
    )
    .unwrap();
    let handle = serve(script).await;
    let mut first = ask(GEMINI, "x");
    first["systemInstruction"] = json!({"parts": [{"text": "system words"}]});
    let said = fold(GEMINI, &post(&handle, GEMINI, &first).await.events());
    assert_eq!(said.calls.len(), 1);
    let next = follow(GEMINI, &first, &said, "the result");
    let answer = post(&handle, GEMINI, &next).await;
    assert_eq!(fold(GEMINI, &answer.events()).text, "after");
}
