//! Cases of known faults: tool calls in the stream, usage, limits of the catalogue.

use crate::fold::read;
use crate::streams::{anthropic, chat, events, responses};
use serde_json::{Value, json};
use tenure_core::model::ModelRef;
use tenure_core::provider::Finish;
use tenure_core::usage::Usage;
use tenure_provider::{Catalogue, ModelSettings, Origin, Protocol};

fn piece(index: Option<u64>, id: Option<&str>, name: Option<&str>, arguments: Value) -> Value {
    let mut call = json!({"type": "function", "function": {"arguments": arguments}});
    if let Some(index) = index {
        call["index"] = json!(index);
    }
    if let Some(id) = id {
        call["id"] = json!(id);
    }
    if let Some(name) = name {
        call["function"]["name"] = json!(name);
    }
    json!({"tool_calls": [call]})
}

fn calls(deltas: &[Value]) -> Vec<(String, String, String)> {
    chat(deltas, "tool_calls")
        .calls
        .into_iter()
        .map(|c| (c.id, c.name, c.input.unwrap_or_else(|| "<none>".to_owned())))
        .collect()
}

fn call(id: &str, name: &str, input: &str) -> (String, String, String) {
    (id.to_owned(), name.to_owned(), input.to_owned())
}

#[test]
fn bc_s_040_declared_limits_win_and_say_where_they_come_from() {
    let mut catalogue = Catalogue::new();
    let own = ModelRef::parse("own/famous").unwrap();
    let other = ModelRef::parse("other/famous").unwrap();
    catalogue.declare(
        &other,
        ModelSettings {
            context: Some(1_000_000),
            output: None,
            ..ModelSettings::default()
        },
    );
    catalogue.declare(
        &own,
        ModelSettings {
            context: Some(32_768),
            output: Some(4096),
            ..ModelSettings::default()
        },
    );
    let info = catalogue.lookup(&own);
    assert_eq!(
        (
            info.limits.context,
            info.limits.output,
            info.origins.context
        ),
        (Some(32_768), Some(4096), Origin::Declared)
    );
    let unknown = catalogue.lookup(&ModelRef::parse("third/famous").unwrap());
    assert_eq!(
        (unknown.limits.context, unknown.price, unknown.origins.price),
        (None, None, Origin::Unknown),
        "bc-s-069: unknown, not free"
    );
    assert_eq!(catalogue.models().count(), 2);
}

#[test]
fn bc_s_051_every_way_to_send_no_arguments() {
    for arguments in [
        json!(""),
        json!("{}"),
        json!(" "),
        Value::Null,
        json!("null"),
    ] {
        let got = calls(&[piece(Some(0), Some("a"), Some("todo"), arguments.clone())]);
        let input = if arguments == json!("{}") { "{}" } else { "" };
        assert_eq!(got, [call("a", "todo", input)], "{arguments}");
    }
    let absent = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "todo"}}]});
    assert_eq!(calls(&[absent]), [call("a", "todo", "")]);
    let got = anthropic(
        &[(
            json!({"type": "tool_use", "id": "a", "name": "todo", "input": {}}),
            &[],
        )],
        "tool_use",
    );
    assert_eq!(got.calls[0].input.as_deref(), Some(""));
    let got = responses(
        &[
            json!({"type": "function_call", "id": "f", "call_id": "a", "name": "todo", "arguments": ""}),
        ],
        json!({"type": "response.completed", "response": {}}),
    );
    assert_eq!(got.calls[0].input.as_deref(), Some(""));
}

#[test]
fn bc_s_052_cut_arguments_stay_raw() {
    let cut = "{\"path\":\"a.txt\",\"content\":\"line 1\\nline 2";
    for finish in ["length", "tool_calls"] {
        let got = chat(
            &[piece(Some(0), Some("a"), Some("write"), json!(cut))],
            finish,
        );
        assert_eq!(
            got.calls[0].input.as_deref(),
            Some(cut),
            "nothing is repaired"
        );
        assert_eq!(
            got.finish.unwrap().0,
            if finish == "length" {
                Finish::Length
            } else {
                Finish::ToolCalls
            }
        );
    }
    for stop in ["max_tokens", "tool_use"] {
        let deltas = [json!({"type": "input_json_delta", "partial_json": cut})];
        let got = anthropic(
            &[(
                json!({"type": "tool_use", "id": "a", "name": "write", "input": {}}),
                &deltas[..],
            )],
            stop,
        );
        assert_eq!(got.calls[0].input.as_deref(), Some(cut));
    }
}

#[test]
fn bc_s_052_arguments_lost_to_the_output_limit_are_no_call() {
    let got = chat(
        &[piece(Some(0), Some("a"), Some("write"), json!(""))],
        "length",
    );
    assert_eq!(got.calls[0].input, None, "it must not run with {{}}");
    let got = anthropic(
        &[(
            json!({"type": "tool_use", "id": "a", "name": "write", "input": {}}),
            &[],
        )],
        "max_tokens",
    );
    assert_eq!(got.calls[0].input, None);
    let first = piece(Some(0), Some("a"), Some("list"), json!(""));
    let second = piece(Some(1), Some("b"), Some("write"), json!("{\"p\":"));
    let got = chat(&[first, second], "length");
    assert_eq!(
        got.calls[0].input.as_deref(),
        Some(""),
        "only the last call can have been cut"
    );
}

#[test]
fn bc_s_053_alternating_fragments() {
    let got = calls(&[
        piece(Some(0), Some("a"), Some("read"), json!("")),
        piece(Some(1), Some("b"), Some("grep"), json!("{\"q\"")),
        piece(Some(0), None, None, json!("{\"p\":")),
        piece(Some(1), None, None, json!(":2}")),
        piece(Some(0), None, None, json!("1}")),
    ]);
    assert_eq!(
        got,
        [
            call("a", "read", "{\"p\":1}"),
            call("b", "grep", "{\"q\":2}")
        ]
    );
}

#[test]
fn bc_s_054_new_ids_at_a_used_index() {
    let three = [
        piece(Some(0), Some("a"), Some("f"), json!("{\"n\":1}")),
        piece(Some(0), Some("b"), Some("f"), json!("{\"n\":2}")),
        piece(Some(0), Some("c"), Some("g"), json!("{\"n\":3}")),
    ];
    let want = [
        call("a", "f", "{\"n\":1}"),
        call("b", "f", "{\"n\":2}"),
        call("c", "g", "{\"n\":3}"),
    ];
    assert_eq!(calls(&three), want);
    let list: Vec<Value> = three.iter().map(|d| json!({"id": "c", "choices": [{"index": 0, "delta": d, "finish_reason": "tool_calls"}]})).collect();
    let got = read(Protocol::OpenaiChat, events(&list));
    assert_eq!(got.calls.len(), 3);
    let same = calls(&[
        piece(Some(0), Some("a"), Some("f"), json!("{\"n\"")),
        piece(Some(0), Some("a"), None, json!(":")),
        piece(Some(0), Some(""), Some(""), json!("1")),
        piece(Some(0), None, None, json!("}")),
    ]);
    assert_eq!(same, [call("a", "f", "{\"n\":1}")]);
}

#[test]
fn deltas_without_index_go_to_their_call() {
    let got = calls(&[
        piece(None, Some("a"), Some("f"), json!("{\"n\":")),
        piece(None, Some("b"), Some("g"), json!("{\"m\":")),
        piece(None, Some("a"), None, json!("1}")),
        piece(None, None, None, json!("2}")),
    ]);
    assert_eq!(
        got,
        [call("a", "f", "{\"n\":1}"), call("b", "g", "{\"m\":2}")]
    );
    let legacy = chat(
        &[
            json!({"function_call": {"name": "f", "arguments": "{\"a\""}}),
            json!({"function_call": {"arguments": ":1}"}}),
        ],
        "function_call",
    );
    assert_eq!(legacy.calls[0].input.as_deref(), Some("{\"a\":1}"));
    assert_eq!(legacy.finish.unwrap().0, Finish::ToolCalls);
}

#[test]
fn bc_s_055_made_up_ids_are_legal_stable_and_distinct() {
    let deltas = [
        piece(Some(0), None, Some("f"), json!("{")),
        piece(Some(1), None, Some("g"), json!("{}")),
        piece(Some(0), None, None, json!("}")),
    ];
    let first = calls(&deltas);
    assert_eq!(first, calls(&deltas), "the same stream gives the same ids");
    assert_ne!(first[0].0, first[1].0);
    for (id, _, input) in &first {
        assert_eq!(input, "{}");
        assert!(
            id.len() <= 40
                && id
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'),
            "{id}"
        );
    }
}

#[test]
fn bc_s_056_names_repeated_in_parts_and_separated() {
    let repeated = calls(&[
        piece(Some(0), Some("a"), Some("bash"), json!("{\"c\":")),
        piece(Some(0), Some("a"), Some("bash"), json!("1}")),
    ]);
    assert_eq!(repeated, [call("a", "bash", "{\"c\":1}")]);
    let before_arguments = calls(&[
        piece(Some(0), Some("a"), Some("bash"), Value::Null),
        piece(Some(0), None, Some("bash"), json!("{}")),
    ]);
    assert_eq!(before_arguments, [call("a", "bash", "{}")]);
    let parts = calls(&[
        piece(Some(0), Some("a"), Some("ba"), json!("")),
        piece(Some(0), None, Some("sh"), json!("{}")),
    ]);
    assert_eq!(parts, [call("a", "bash", "{}")]);
    let two = calls(&[
        piece(Some(0), Some("a"), Some("bash"), json!("{}")),
        piece(Some(0), Some("b"), Some("research"), json!("{}")),
    ]);
    assert_eq!(two, [call("a", "bash", "{}"), call("b", "research", "{}")]);
    let without_ids = chat(
        &[
            piece(Some(0), None, Some("bash"), json!("{}")),
            piece(Some(0), None, Some("research"), json!("{}")),
        ],
        "tool_calls",
    );
    let names: Vec<String> = without_ids.calls.into_iter().map(|c| c.name).collect();
    assert_eq!(names, ["bash", "research"]);
}

#[test]
fn bc_s_008_an_id_used_twice_in_a_step_is_renamed() {
    let got = calls(&[
        piece(Some(0), Some("a"), Some("f"), json!("{}")),
        piece(Some(1), Some("a"), Some("f"), json!("{}")),
    ]);
    assert_eq!(got, [call("a", "f", "{}"), call("a_2", "f", "{}")]);
    let block = || {
        (
            json!({"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}),
            &[][..],
        )
    };
    let ids: Vec<String> = anthropic(&[block(), block()], "tool_use")
        .calls
        .into_iter()
        .map(|c| c.id)
        .collect();
    assert_eq!(ids, ["a", "a_2"]);
}

#[test]
fn bc_s_006_a_call_that_only_has_a_name_is_told_and_not_made() {
    let list = [
        json!({"id": "c", "choices": [{"index": 0, "delta": piece(Some(0), Some("a"), Some("write"), json!(""))}]}),
    ];
    let got = read(Protocol::OpenaiChat, events(&list));
    assert_eq!(
        (got.calls[0].name.as_str(), got.calls[0].input.clone()),
        ("write", None)
    );
    assert!(got.error.is_some());
}

#[test]
fn bc_s_067_gross_and_net_counts_agree() {
    let gross = read(
        Protocol::OpenaiResponses,
        events(&[
            json!({"type": "response.completed", "response": {"usage": {"input_tokens": 1000, "input_tokens_details": {"cached_tokens": 800}, "output_tokens": 500, "output_tokens_details": {"reasoning_tokens": 300}}}}),
        ]),
    );
    let want = Usage {
        input: 200,
        output: 500,
        reasoning: 300,
        cache_read: 800,
        cache_write: 0,
        cache_write_long: 0,
        searches: None,
    };
    assert_eq!(gross.finish.unwrap().2, want);
    assert_eq!((want.prompt(), want.context()), (1000, 1500));
}

#[test]
fn object_arguments_become_their_text() {
    let got = calls(&[piece(Some(0), Some("a"), Some("f"), json!({"k": 1.5}))]);
    assert_eq!(got, [call("a", "f", "{\"k\":1.5}")]);
}
