//! Everything that can go wrong on the wire does so where the script says.

use std::time::Duration;

use tenure_scripted::{CutHow, Ended, Fault, Finish, Part, Script, Turn};
use tokio::time::timeout;

use crate::client::{
    Answer, CHAT, Client, End, LIMIT, MESSAGES, PATHS, RESPONSES, ask, fold, post, serve, try_post,
};

fn failing(fault: &str) -> Script {
    let text = format!(
        "version = 1\n[[turn]]\npart = [{{ text = \"one two three\" }}, {{ text = \"four\" }}]\nfault = {fault}\n"
    );
    Script::parse(&text).unwrap()
}

async fn answer(path: &str, fault: &str) -> Answer {
    let handle = serve(failing(fault)).await;
    post(&handle, path, &ask(path, "x")).await
}

#[tokio::test]
async fn statuses_carry_headers_and_the_vendors_body() {
    let fault = r#"{ kind = "status", status = 429, headers = { retry-after = "7" } }"#;
    let refused = answer(MESSAGES, fault).await;
    assert_eq!(refused.status, 429);
    assert!(refused.head.contains("retry-after: 7\r\n"));
    assert_eq!(refused.json()["error"]["type"], "rate_limit_error");
    assert_eq!(
        answer(CHAT, fault).await.json()["error"]["code"],
        "rate_limit_exceeded"
    );
    let overloaded = answer(MESSAGES, r#"{ kind = "status", status = 529 }"#).await;
    assert_eq!(
        (overloaded.status, &overloaded.json()["error"]["type"]),
        (529, &"overloaded_error".into())
    );
    let raw = answer(CHAT, r#"{ kind = "status", status = 502, body = "<html>bad gateway", headers = { content-type = "text/html" } }"#).await;
    assert_eq!(
        (raw.status, raw.text().as_str()),
        (502, "<html>bad gateway")
    );
    assert_eq!(raw.head.matches("content-type").count(), 1);
    assert!(raw.head.contains("text/html"));
}

#[tokio::test]
async fn overflow_has_each_vendors_wording() {
    let fault = r#"{ kind = "overflow", used = 201, limit = 200 }"#;
    let wordings = [
        (CHAT, "maximum context length is 200 tokens"),
        (RESPONSES, "exceeds the context window"),
        (MESSAGES, "prompt is too long: 201 tokens > 200 maximum"),
    ];
    for (path, wording) in wordings {
        let refused = answer(path, fault).await;
        assert_eq!(refused.status, 400);
        assert!(
            refused.json()["error"]["message"]
                .as_str()
                .unwrap()
                .contains(wording)
        );
        if path != MESSAGES {
            assert_eq!(refused.json()["error"]["code"], "context_length_exceeded");
        }
    }
}

#[tokio::test]
async fn an_error_event_ends_the_stream_at_its_place() {
    for path in PATHS {
        let answer = answer(
            path,
            r#"{ kind = "error_event", message = "no more", after_parts = 1 }"#,
        )
        .await;
        assert_eq!((answer.status, answer.end), (200, End::Proper), "{path}");
        let mut events = answer.events();
        let (name, error) = events.pop().unwrap();
        assert_eq!(name, if path == CHAT { "" } else { "error" });
        assert_eq!(error["error"]["message"], "no more", "{path}");
        let said = fold(path, &events);
        assert_eq!(
            (said.text.as_str(), said.done),
            ("one two three", false),
            "{path}"
        );
    }
    let failed = answer(
        RESPONSES,
        r#"{ kind = "error_event", error_type = "server_error", failed = true }"#,
    )
    .await;
    let (name, data) = failed.events().pop().unwrap();
    assert_eq!(
        (name.as_str(), &data["response"]["error"]["code"]),
        ("response.failed", &"server_error".into())
    );
}

#[tokio::test]
async fn a_cut_ends_the_connection_as_told_and_at_the_exact_byte() {
    for path in PATHS {
        for (how, end) in [
            ("end", End::Proper),
            ("close", End::Closed),
            ("reset", End::Reset),
        ] {
            let whole = answer(path, r#"{ kind = "no_terminator" }"#)
                .await
                .body
                .len();
            for bytes in [0, 1, 77, whole / 2] {
                let handle = serve(failing(&format!(
                    "{{ kind = \"cut\", after_bytes = {bytes}, how = \"{how}\" }}"
                )))
                .await;
                let answer = post(&handle, path, &ask(path, "x")).await;
                assert_eq!(
                    (answer.body.len(), answer.end),
                    (bytes, end),
                    "{path} {how}"
                );
                let ended = handle.wait_ended(1).await[0].ended.unwrap().1;
                assert_eq!(ended, Ended::Cut);
            }
        }
    }
}

#[tokio::test]
async fn a_cut_can_count_events_or_parts_or_stand_before_the_finish() {
    let three = answer(MESSAGES, r#"{ kind = "cut", after_events = 3 }"#).await;
    assert_eq!((three.events().len(), three.end), (3, End::Reset));
    let part = answer(MESSAGES, r#"{ kind = "cut", after_parts = 1 }"#).await;
    assert_eq!(fold(MESSAGES, &part.events()).text, "one two three");
    let all = fold(
        MESSAGES,
        &answer(MESSAGES, r#"{ kind = "cut" }"#).await.events(),
    );
    assert_eq!(
        (all.text.as_str(), all.finish, all.done),
        ("one two threefour", None, false)
    );
    let never_reached = answer(
        CHAT,
        r#"{ kind = "cut", after_events = 1000, how = "close" }"#,
    )
    .await;
    assert_eq!(never_reached.end, End::Closed);
}

#[tokio::test]
async fn no_answer_at_all() {
    for (how, end) in [("reset", End::Reset), ("close", End::Closed)] {
        let handle = serve(failing(&format!(
            "{{ kind = \"no_answer\", how = \"{how}\" }}"
        )))
        .await;
        assert_eq!(
            try_post(&handle, CHAT, &ask(CHAT, "x")).await.err(),
            Some(end)
        );
        assert_eq!(handle.wait_ended(1).await[0].ended.unwrap().1, Ended::Cut);
    }
}

#[tokio::test]
async fn a_stall_keeps_alive_until_the_client_leaves() {
    let handle = serve(failing(
        r#"{ kind = "stall", after_events = 2, keepalive_ms = 5 }"#,
    ))
    .await;
    let mut client = Client::connect(handle.addr()).await;
    client
        .send(CHAT, &[], ask(CHAT, "x").to_string().as_bytes())
        .await;
    let seen = client.read_until(": keep-alive").await;
    assert!(seen.contains("one ") && !seen.contains("two "), "{seen}");
    assert!(handle.requests()[0].ended.is_none());
    drop(client);
    let ended = timeout(LIMIT, handle.wait_ended(1)).await.unwrap();
    assert_eq!(ended[0].ended.unwrap().1, Ended::Aborted);
}

#[tokio::test]
async fn a_stall_can_end_or_come_before_the_head() {
    let goes_on = answer(CHAT, r#"{ kind = "stall", after_events = 2, for_ms = 30 }"#).await;
    let said = fold(CHAT, &goes_on.events());
    assert_eq!((said.text.as_str(), said.done), ("one two threefour", true));

    let handle = serve(failing(r#"{ kind = "stall", before_headers = true }"#)).await;
    let mut client = Client::connect(handle.addr()).await;
    client
        .send(CHAT, &[], ask(CHAT, "x").to_string().as_bytes())
        .await;
    timeout(LIMIT, handle.wait_for(1)).await.unwrap();
    let silent = timeout(Duration::from_millis(50), client.read_to_end()).await;
    assert!(silent.is_err(), "not a byte comes");
    handle.shutdown().await;
    assert_ne!(client.read_to_end().await, End::Proper);
}

#[tokio::test]
async fn malformed_bytes_stand_between_events_and_the_stream_goes_on() {
    let broken = answer(
        CHAT,
        r#"{ kind = "malformed", after_events = 2, raw = "data: {oops\n\n" }"#,
    )
    .await;
    let events = broken.events();
    assert_eq!(events[2].1, "{oops");
    assert_eq!(events.last().unwrap().1, "[DONE]");
}

#[tokio::test]
async fn a_missing_terminator_and_a_missing_finish() {
    for path in PATHS {
        let cut = answer(path, r#"{ kind = "no_terminator" }"#).await;
        let said = fold(path, &cut.events());
        assert_eq!(
            (said.text.as_str(), said.done, cut.end),
            ("one two threefour", false, End::Proper),
            "{path}"
        );
    }
    let turn = Turn {
        finish: Some(Finish::Missing),
        ..Turn::text("x")
    };
    let handle = serve(Script::new([turn])).await;
    let said = fold(CHAT, &post(&handle, CHAT, &ask(CHAT, "x")).await.events());
    assert_eq!((said.finish, said.done), (None, true));
}

#[tokio::test]
async fn line_ends_comments_and_split_characters() {
    for path in PATHS {
        let mut turn = Turn::default().and(Part::text("aé€😀b"));
        turn.wire.crlf = true;
        turn.wire.comments = true;
        turn.wire.split_utf8 = true;
        let handle = serve(Script::new([turn])).await;
        let answer = post(&handle, path, &ask(path, "x")).await;
        assert!(
            !answer.text().replace("\r\n", "").contains('\n'),
            "{path}: each line ends with CR LF"
        );
        assert!(answer.text().contains(": scripted\r\n"));
        let split = answer
            .chunks
            .iter()
            .filter(|chunk| std::str::from_utf8(chunk).is_err())
            .count();
        assert!(
            split >= 4,
            "{path}: 3 characters are split over 4 writes, got {split}"
        );
        let said = fold(path, &answer.events());
        assert_eq!((said.text.as_str(), said.done), ("aé€😀b", true), "{path}");
    }
}

#[tokio::test]
async fn writes_can_be_small_and_events_can_be_told_apart() {
    let mut turn = Turn::text("hello world");
    turn.wire.write_bytes = Some(7);
    let handle = serve(Script::new([turn])).await;
    let answer = post(&handle, CHAT, &ask(CHAT, "x")).await;
    assert!(answer.chunks.iter().all(|chunk| chunk.len() <= 7));
    assert_eq!(fold(CHAT, &answer.events()).text, "hello world");

    let mut turn = Turn::text("hello world");
    turn.wire.flush_events = true;
    let handle = serve(Script::new([turn])).await;
    let answer = post(&handle, CHAT, &ask(CHAT, "x")).await;
    assert_eq!(answer.chunks.len(), answer.events().len());
}

#[tokio::test]
async fn delays_hold_back_the_first_byte_and_each_piece() {
    let turn = Turn {
        delay_ms: 40,
        chunk_delay_ms: 20,
        ..Turn::text("a b c")
    };
    let handle = serve(Script::new([turn])).await;
    let start = std::time::Instant::now();
    let answer = post(&handle, MESSAGES, &ask(MESSAGES, "x")).await;
    assert!(
        start.elapsed() >= Duration::from_millis(100),
        "{:?}",
        start.elapsed()
    );
    assert!(answer.chunks.len() >= 4, "pieces leave one by one");
    assert_eq!(fold(MESSAGES, &answer.events()).text, "a b c");
}

#[tokio::test]
async fn a_client_that_leaves_during_a_delay_is_noticed() {
    let turn = Turn {
        delay_ms: 3_600_000,
        ..Turn::text("late")
    };
    let handle = serve(Script::new([turn])).await;
    let mut client = Client::connect(handle.addr()).await;
    client
        .send(CHAT, &[], ask(CHAT, "x").to_string().as_bytes())
        .await;
    timeout(LIMIT, handle.wait_for(1)).await.unwrap();
    drop(client);
    let ended = timeout(LIMIT, handle.wait_ended(1)).await.unwrap();
    assert_eq!(ended[0].ended.unwrap().1, Ended::Aborted);
}

#[tokio::test]
async fn a_fault_alone_is_a_turn() {
    let handle = serve(Script::new([
        Turn::fault(Fault::Cut {
            after_events: Some(1),
            after_bytes: None,
            after_parts: None,
            how: CutHow::Close,
        }),
        Turn::text("fine now"),
    ]))
    .await;
    assert_eq!(
        post(&handle, RESPONSES, &ask(RESPONSES, "x")).await.end,
        End::Closed
    );
    let second = post(&handle, RESPONSES, &ask(RESPONSES, "x")).await;
    assert_eq!(fold(RESPONSES, &second.events()).text, "fine now");
}
