//! Turns are found in order or by the request's own history.

use serde_json::json;
use tenure_scripted::{Script, Turn, TurnId, Verdict};

use crate::client::{CHAT, MESSAGES, PATHS, ask, fold, follow, post, serve};

#[tokio::test]
async fn a_sequence_runs_out_and_then_says_so() {
    let handle = serve(Script::new([Turn::text("one"), Turn::text("two")])).await;
    for word in ["one", "two"] {
        assert_eq!(
            fold(CHAT, &post(&handle, CHAT, &ask(CHAT, "x")).await.events()).text,
            word
        );
    }
    let refused = post(&handle, CHAT, &ask(CHAT, "x")).await;
    assert_eq!(
        (refused.status, refused.rules()),
        (400, vec!["scripted.no_turn".to_owned()])
    );
    let seen = handle.requests();
    assert_eq!(seen[1].turn, Some(TurnId::Turn(1)));
    assert_eq!((&seen[2].verdict, seen[2].turn), (&Verdict::NoTurn, None));
}

#[tokio::test]
async fn a_refused_request_uses_no_turn() {
    let handle = serve(Script::new([Turn::text("one")])).await;
    let mut bad = ask(CHAT, "x");
    bad["messages"] = json!([]);
    assert_eq!(post(&handle, CHAT, &bad).await.rules(), ["chat.messages"]);
    assert_eq!(
        fold(CHAT, &post(&handle, CHAT, &ask(CHAT, "x")).await.events()).text,
        "one"
    );
}

#[tokio::test]
async fn times_when_and_fallback() {
    let script = Script::parse(
        "version = 1\n[fallback]\npart = [{ text = \"else\" }]\n\
         [[turn]]\nwhen = \"SUMMARY\"\ntimes = \"forever\"\npart = [{ text = \"in short\" }]\n\
         [[turn]]\ntimes = 2\npart = [{ text = \"twice\" }]",
    )
    .unwrap();
    let handle = serve(script).await;
    let mut said = Vec::new();
    for text in ["a", "make a SUMMARY", "b", "another SUMMARY", "c"] {
        said.push(fold(CHAT, &post(&handle, CHAT, &ask(CHAT, text)).await.events()).text);
    }
    assert_eq!(said, ["twice", "in short", "twice", "in short", "else"]);
    assert_eq!(handle.requests()[4].turn, Some(TurnId::Fallback));
}

#[tokio::test]
async fn history_finds_the_same_turn_again_after_a_restart() {
    let script = Script::new([
        Turn::call("step", json!({"n": 1})).skip_if_contains("RESULT 1"),
        Turn::call("step", json!({"n": 2})).skip_if_contains("RESULT 2"),
        Turn::text("all done"),
    ])
    .by_history();
    for path in PATHS {
        let mut request = ask(path, "go");
        for n in 1..=2 {
            // Each request is sent twice, each time to a server that has just started: a client that crashed.
            for _ in 0..2 {
                let handle = serve(script.clone()).await;
                let said = fold(path, &post(&handle, path, &request).await.events());
                assert_eq!(said.calls[0].2, json!({"n": n}).to_string(), "{path}");
            }
            let handle = serve(script.clone()).await;
            let said = fold(path, &post(&handle, path, &request).await.events());
            request = follow(path, &request, &said, &format!("RESULT {n}"));
        }
        let handle = serve(script.clone()).await;
        assert_eq!(
            fold(path, &post(&handle, path, &request).await.events()).text,
            "all done"
        );
    }
}

#[tokio::test]
async fn call_ids_do_not_repeat_across_servers() {
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..5 {
        let handle = serve(Script::new([
            Turn::call("a", json!({})),
            Turn::call("a", json!({})),
        ]))
        .await;
        for _ in 0..2 {
            let said = fold(
                MESSAGES,
                &post(&handle, MESSAGES, &ask(MESSAGES, "x")).await.events(),
            );
            assert!(ids.insert(said.calls[0].0.clone()), "{ids:?}");
        }
    }
}
