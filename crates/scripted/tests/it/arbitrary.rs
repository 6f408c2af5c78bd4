//! Whatever comes from outside: a verdict, never a panic, and the server goes on serving.

use proptest::prelude::*;
use serde_json::{Value, json};
use tenure_scripted::validate;
use tenure_scripted::{Script, Times, Turn};

use crate::client::{CHAT, Client, PATHS, ask, post, serve};
use crate::good::{anthropic_good, chat_good, gemini_good, responses_good};

fn any_json() -> impl Strategy<Value = Value> {
    let words = prop_oneof![
        Just("user"),
        Just("assistant"),
        Just("tool"),
        Just("tool_use"),
        Just("tool_result"),
        Just("thinking"),
        Just("text"),
        Just("function_call"),
        Just("function_call_output"),
        Just("reasoning"),
        Just("message"),
        Just(""),
        Just(" "),
        Just("ü\u{0}"),
        Just("{}"),
        Just("call_1"),
        Just("ephemeral")
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|n| json!(n)),
        words.prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let keys = prop_oneof![
            Just("type"),
            Just("role"),
            Just("content"),
            Just("id"),
            Just("name"),
            Just("input"),
            Just("call_id"),
            Just("tool_calls"),
            Just("function"),
            Just("cache_control"),
            Just("summary"),
            Just("signature"),
            Just("parts"),
            Just("functionCall"),
            Just("functionResponse"),
            Just("thoughtSignature"),
            Just("properties")
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((keys, inner), 0..4)
                .prop_map(|pairs| pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    })
}

/// Puts `value` at the n-th place of a tree, counted over all its nodes.
fn put(tree: &mut Value, n: &mut usize, value: &Value) -> bool {
    if *n == 0 {
        *tree = value.clone();
        return true;
    }
    *n -= 1;
    match tree {
        Value::Array(list) => list.iter_mut().any(|v| put(v, n, value)),
        Value::Object(fields) => fields.values_mut().any(|v| put(v, n, value)),
        _ => false,
    }
}

fn validate_all(body: &Value) {
    for dialect in validate::ChatDialect::ALL {
        if let Err(broken) = validate::openai_chat_dialect(body, dialect) {
            assert!(!broken.is_empty(), "a refusal names its rules");
        }
    }
    for check in [
        validate::openai_chat,
        validate::openai_responses,
        validate::anthropic_messages,
        validate::gemini,
        validate::gemini_3,
    ] {
        if let Err(broken) = check(body) {
            assert!(!broken.is_empty(), "a refusal names its rules");
        }
    }
}

proptest! {
    #[test]
    fn validators_never_panic(body in any_json(), n in 0_usize..120) {
        validate_all(&body);
        for mut good in [chat_good(), responses_good(), anthropic_good(), gemini_good()] {
            let mut place = n;
            put(&mut good, &mut place, &body);
            validate_all(&good);
        }
    }

    #[test]
    fn script_text_never_panics(text in "(version = 1\n)?(\\[\\[turn\\]\\]\n)?\\PC{0,60}") {
        let _ = Script::parse(&text);
    }
}

#[tokio::test]
async fn nonsense_on_the_socket_ends_that_connection_only() {
    let handle = serve(Script::new([Turn::text("x").times(Times::Forever)])).await;
    let nonsense: [&[u8]; 6] = [
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST /v1/messages HTTP/2.0\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\ncontent-length: many\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ];
    for bytes in nonsense {
        let mut client = Client::connect(handle.addr()).await;
        client.send_raw(bytes).await;
        let answer = client.answer().await.unwrap();
        assert_eq!(answer.status, 400, "{bytes:?}");
    }
    // A client that dies in the middle of its request leaves no record and no trace.
    let mut client = Client::connect(handle.addr()).await;
    client
        .send_raw(b"POST /v1/messages HTTP/1.1\r\ncontent-length: 10\r\n\r\n{")
        .await;
    drop(client);
    for path in PATHS {
        assert_eq!(post(&handle, path, &ask(path, "x")).await.status, 200);
    }
    assert_eq!(handle.requests().len(), 3);
    assert_eq!(handle.requests()[0].path, CHAT);
}
