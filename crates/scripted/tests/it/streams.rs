//! Each wire form says what the script says, in its vendor's shape, and its answer can be replayed.

use serde_json::{Value, json};
use tenure_scripted::{Part, Script, Turn, Verdict};

use crate::client::{CHAT, MESSAGES, PATHS, RESPONSES, ask, fold, follow, post, serve};

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

#[tokio::test]
async fn every_form_says_the_same() {
    for path in PATHS {
        let handle = serve(Script::new([rich()])).await;
        let answer = post(&handle, path, &ask(path, "read")).await;
        assert_eq!(answer.status, 200);
        assert!(answer.head.contains("text/event-stream"));
        let said = fold(path, &answer.events());
        assert_eq!(said.text, "I read both.\nNow. €", "{path}");
        assert_eq!(said.reasoning, "Two files, \"a\" and ü.", "{path}");
        assert_eq!(said.calls.len(), 2, "{path}");
        let input: Value = serde_json::from_str(&said.calls[0].2).unwrap();
        assert_eq!(
            input,
            json!({"path": "a", "deep": {"x": [1, 2, 3]}}),
            "{path}"
        );
        assert_eq!(
            (said.calls[1].1.as_str(), said.calls[1].2.as_str()),
            ("read", "{}"),
            "{path}"
        );
        assert_ne!(said.calls[0].0, said.calls[1].0, "{path}");
        assert!(said.done, "{path}");
        let finish = match path {
            CHAT => "tool_calls",
            RESPONSES => "completed",
            _ => "tool_use",
        };
        assert_eq!(said.finish.as_deref(), Some(finish));
    }
}

#[tokio::test]
async fn an_answer_replayed_exactly_is_accepted_and_one_with_altered_reasoning_is_not() {
    for path in [RESPONSES, MESSAGES] {
        let handle = serve(Script::new([rich(), Turn::text("done")])).await;
        let first = ask(path, "read");
        let said = fold(path, &post(&handle, path, &first).await.events());
        let good = follow(path, &first, &said, "content");
        let seal = said.seal.unwrap();

        let swapped = if seal.ends_with("A=") { "B=" } else { "A=" };
        let altered = format!("{}{swapped}", &seal[..seal.len() - 2]);
        let text = good.to_string();
        let bad: Value = serde_json::from_str(&text.replace(&seal, &altered)).unwrap();
        assert_ne!(bad, good);
        let refused = post(&handle, path, &bad).await;
        assert_eq!(
            (refused.status, refused.rules()),
            (400, vec!["scripted.altered_seal".to_owned()]),
            "{path}"
        );

        // A new server knows the seals of the old one.
        let after_restart = serve(Script::new([Turn::text("done")])).await;
        for server in [&handle, &after_restart] {
            let answer = post(server, path, &good).await;
            assert_eq!(answer.status, 200, "{path} {}", answer.text());
            assert_eq!(fold(path, &answer.events()).text, "done");
        }
    }
}

#[tokio::test]
async fn altered_thinking_text_under_a_good_signature_is_refused() {
    let handle = serve(Script::new([rich()])).await;
    let first = ask(MESSAGES, "read");
    let said = fold(MESSAGES, &post(&handle, MESSAGES, &first).await.events());
    let mut next = follow(MESSAGES, &first, &said, "content");
    next["messages"][1]["content"][0]["thinking"] = json!("Two files.");
    assert_eq!(
        post(&handle, MESSAGES, &next).await.rules(),
        ["scripted.altered_seal"]
    );
}

#[tokio::test]
async fn the_chat_stream_begins_with_the_role_and_ends_with_finish_usage_done() {
    let script = Script::parse(
        "version = 1\n[[turn]]\npart = [{ text = \"hi there\" }]\n\
         usage = { input = 100, output = 9, cache_read = 60, cache_write = 10, reasoning = 4 }",
    )
    .unwrap();
    let handle = serve(script).await;
    let events = post(&handle, CHAT, &ask(CHAT, "x")).await.events();
    let first = &events[0].1["choices"][0];
    assert_eq!(
        first["delta"],
        json!({"role": "assistant", "content": "", "refusal": null})
    );
    assert_eq!(events.len(), 6);
    assert_eq!(events[3].1["choices"][0]["finish_reason"], "stop");
    let usage = &events[4].1["usage"];
    assert_eq!(
        (&usage["prompt_tokens"], &usage["completion_tokens"]),
        (&json!(100), &json!(9))
    );
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 60);
    assert_eq!(usage["completion_tokens_details"]["reasoning_tokens"], 4);
    assert_eq!(events[5].1, "[DONE]");
}

#[tokio::test]
async fn the_messages_stream_has_its_frame_and_counts_cached_tokens_beside_the_input() {
    let script = Script::parse(
        "version = 1\n[[turn]]\npart = [{ reasoning = \"hm\" }, { reasoning = \"\", redacted = true }, { text = \
         \"hi\" }]\nusage = { input = 100, output = 9, cache_read = 60, cache_write = 10 }",
    )
    .unwrap();
    let handle = serve(script).await;
    let events = post(&handle, MESSAGES, &ask(MESSAGES, "x")).await.events();
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "message_start",
            "content_block_start",
            "ping",
            "content_block_delta",
            "content_block_delta",
            "content_block_stop",
            "content_block_start",
            "content_block_stop",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop"
        ]
    );
    assert_eq!(events[4].1["delta"]["type"], "signature_delta");
    assert_eq!(events[6].1["content_block"]["type"], "redacted_thinking");
    assert!(
        events[6].1["content_block"]["data"]
            .as_str()
            .unwrap()
            .starts_with("tnscripted.")
    );
    let usage = &events[11].1["usage"];
    assert_eq!(usage["input_tokens"], 30);
    assert_eq!(
        (&usage["cache_read_input_tokens"], &usage["output_tokens"]),
        (&json!(60), &json!(9))
    );
}

#[tokio::test]
async fn the_responses_stream_has_its_life_cycle() {
    let handle = serve(Script::new([rich()])).await;
    let events = post(&handle, RESPONSES, &ask(RESPONSES, "x"))
        .await
        .events();
    let mut names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    names.dedup();
    assert_eq!(
        names,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.reasoning_summary_part.added",
            "response.reasoning_summary_text.delta",
            "response.reasoning_summary_text.done",
            "response.reasoning_summary_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.completed"
        ]
    );
}

#[tokio::test]
async fn encrypted_reasoning_is_sent_only_when_asked_for() {
    let handle = serve(Script::new([rich()])).await;
    let mut body = ask(RESPONSES, "x");
    body.as_object_mut().unwrap().remove("include");
    let said = fold(RESPONSES, &post(&handle, RESPONSES, &body).await.events());
    assert_eq!(said.seal, None);
    assert_eq!(said.reasoning, "Two files, \"a\" and ü.");
}

#[tokio::test]
async fn thinking_enabled_and_a_tool_use_without_scripted_reasoning_still_think() {
    let handle = serve(Script::new([
        Turn::call("read", json!({})),
        Turn::text("done"),
    ]))
    .await;
    let mut first = ask(MESSAGES, "read");
    first["thinking"] = json!({"type": "enabled", "budget_tokens": 1024});
    let said = fold(MESSAGES, &post(&handle, MESSAGES, &first).await.events());
    assert_eq!(said.replay[0]["type"], "thinking");
    let answer = post(&handle, MESSAGES, &follow(MESSAGES, &first, &said, "r")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test]
async fn many_deltas_arrive_in_few_writes() {
    let script =
        Script::parse("version = 1\n[[turn]]\npart = [{ text = \"ab \", deltas = 20000 }]")
            .unwrap();
    for path in PATHS {
        let handle = serve(script.clone()).await;
        let answer = post(&handle, path, &ask(path, "x")).await;
        let said = fold(path, &answer.events());
        assert_eq!(said.text, "ab ".repeat(20_000), "{path}");
        assert!(said.done, "{path}");
        assert!(answer.chunks.len() < 1000, "{path} {}", answer.chunks.len());
    }
}

#[tokio::test]
async fn raw_tool_input_goes_over_the_wire_as_it_is() {
    let script = "version = 1\n[[turn]]\npart = [{ call = { name = \"read\", input = '{\"path\": \"a', id = \"c1\" } }]";
    for path in PATHS {
        let handle = serve(Script::parse(script).unwrap()).await;
        let said = fold(path, &post(&handle, path, &ask(path, "x")).await.events());
        assert_eq!(
            said.calls,
            [(
                "c1".to_owned(),
                "read".to_owned(),
                "{\"path\": \"a".to_owned()
            )],
            "{path}"
        );
    }
}

#[tokio::test]
async fn hosted_tools_carry_their_result_or_stay_open() {
    let script = "version = 1\n[[turn]]\npart = [{ hosted = { name = \"web_search\", input = { query = \"q\" }, \
                  result = [] } }, { hosted = { name = \"web_search\", input = { query = \"r\" } } }, { text = \"so\" }]";
    let handle = serve(Script::parse(script).unwrap()).await;
    let said = fold(
        MESSAGES,
        &post(&handle, MESSAGES, &ask(MESSAGES, "x")).await.events(),
    );
    let types: Vec<&Value> = said.replay.iter().map(|b| &b["type"]).collect();
    assert_eq!(
        types,
        [
            "server_tool_use",
            "web_search_tool_result",
            "server_tool_use",
            "text"
        ]
    );
    assert_eq!(said.replay[0]["id"], said.replay[1]["tool_use_id"]);

    let handle = serve(Script::parse(script).unwrap()).await;
    let events = post(&handle, RESPONSES, &ask(RESPONSES, "x"))
        .await
        .events();
    let count = |name: &str| events.iter().filter(|(n, _)| n == name).count();
    assert_eq!(count("response.web_search_call.in_progress"), 2);
    assert_eq!(count("response.web_search_call.completed"), 1);
    let said = fold(RESPONSES, &events);
    assert_eq!(
        said.replay[0]["action"],
        json!({"type": "search", "query": "q"})
    );
    let indexes: Vec<&Value> = events
        .iter()
        .filter(|(n, _)| n == "response.output_item.added")
        .map(|(_, data)| &data["output_index"])
        .collect();
    assert_eq!(indexes, [0, 1, 2]);
}

#[tokio::test]
async fn finishes_are_each_vendors_words_and_unknown_ones_pass() {
    let cases = [
        ("length", "length", "incomplete", "max_tokens"),
        ("content_filter", "content_filter", "incomplete", "refusal"),
        (
            "eaten_by_bear",
            "eaten_by_bear",
            "incomplete",
            "eaten_by_bear",
        ),
    ];
    for (finish, chat, responses, messages) in cases {
        let script =
            format!("version = 1\n[[turn]]\npart = [{{ text = \"x\" }}]\nfinish = \"{finish}\"");
        for (path, word) in [(CHAT, chat), (RESPONSES, responses), (MESSAGES, messages)] {
            let handle = serve(Script::parse(&script).unwrap()).await;
            let said = fold(path, &post(&handle, path, &ask(path, "x")).await.events());
            assert_eq!(said.finish.as_deref(), Some(word), "{path}");
            assert!(said.done);
        }
    }
}

#[tokio::test]
async fn a_request_that_does_not_stream_gets_one_body() {
    for path in PATHS {
        let handle = serve(Script::new([rich()])).await;
        let mut body = ask(path, "x");
        body.as_object_mut().unwrap().remove("stream");
        body.as_object_mut().unwrap().remove("stream_options");
        let answer = post(&handle, path, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let whole = answer.json();
        let (text, calls) = match path {
            CHAT => (
                &whole["choices"][0]["message"]["content"],
                whole["choices"][0]["message"]["tool_calls"]
                    .as_array()
                    .unwrap()
                    .len(),
            ),
            RESPONSES => (
                &whole["output"][1]["content"][0]["text"],
                whole["output"].as_array().unwrap().len() - 2,
            ),
            _ => (
                &whole["content"][1]["text"],
                whole["content"].as_array().unwrap().len() - 2,
            ),
        };
        assert_eq!((text, calls), (&json!("I read both.\nNow. €"), 2), "{path}");
        assert_eq!(handle.requests()[0].verdict, Verdict::Accepted);
    }
}
