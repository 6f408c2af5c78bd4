//! From the conversation to a request: what goes back, to whom, and in which order.

use crate::journal::*;
use tenure_core::event::body::*;
use tenure_core::history::{LAST_STEP_NOTICE, build};
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_core::request::*;
use tenure_core::turn::settle::Cause;
use tenure_core::{EventBody, ModelRef, SessionId};

pub fn kinds(request: &Request) -> Vec<&'static str> {
    request
        .messages
        .iter()
        .map(|message| match message {
            RequestMessage::User { .. } => "user",
            RequestMessage::System { .. } => "system",
            RequestMessage::Assistant { .. } => "assistant",
            RequestMessage::ToolResults { .. } => "results",
        })
        .collect()
}

pub fn blocks(request: &Request) -> Vec<&AssistantBlock> {
    request
        .messages
        .iter()
        .flat_map(|message| match message {
            RequestMessage::Assistant { blocks } => blocks.iter(),
            _ => [].iter(),
        })
        .collect()
}

pub fn natives(request: &Request) -> Vec<String> {
    blocks(request)
        .into_iter()
        .filter_map(|block| match block {
            AssistantBlock::Text { native, .. }
            | AssistantBlock::Reasoning { native, .. }
            | AssistantBlock::ToolCall { native, .. } => native.clone(),
            AssistantBlock::Hosted { call, .. } => call.clone(),
            AssistantBlock::Opaque { native } => Some(native.clone()),
        })
        .collect()
}

const SIGNED: &str = "{\"type\":\"thinking\",\"thinking\":\"\\u00e4\", \"signature\":\"s\"}";

fn signed_turn() -> Journal {
    let mut journal = Journal::new();
    journal.user("u", "go");
    let native = Some("{\"id\":\"fc_1\"}".to_owned());
    let tool = ProviderEvent::ToolCall {
        id: "c1".to_owned(),
        name: "bash".to_owned(),
        input: "{\"b\":1,  \"a\":2}".to_owned(),
        executed: false,
        native,
    };
    let stream = [
        reasoning("r", "ä", Some(SIGNED)),
        vec![tool, finish(Finish::ToolCalls)],
    ];
    journal.whole("a", stream.concat());
    journal
}

#[test]
fn own_state_goes_back_byte_for_byte_and_to_nobody_else() {
    let journal = signed_turn();
    let ask = |protocol: &str, provider: &str, model: &str| {
        let model = ModelRef {
            provider: provider.to_owned(),
            model: model.to_owned(),
        };
        build(&journal.state, &plan_for(protocol, model))
    };
    assert_eq!(natives(&journal.request()), [SIGNED, "{\"id\":\"fc_1\"}"]);
    for (protocol, provider, model) in [
        ("openai-chat", "p", "m"),
        (PROTOCOL, "other", "m"),
        (PROTOCOL, "p", "other"),
    ] {
        let request = ask(protocol, provider, model);
        assert!(natives(&request).is_empty());
        // The call stays, in plain words, with its result.
        assert_eq!(kinds(&request), ["user", "assistant", "results"]);
    }
    for same in ["m-latest", "m-20260101"] {
        assert_eq!(natives(&ask(PROTOCOL, "p", same)).len(), 2, "{same}");
    }
}

#[test]
fn a_request_is_the_same_bytes_again_and_extends_the_one_before() {
    let mut journal = signed_turn();
    let first = journal.request();
    assert_eq!(first, journal.request());
    journal.whole(
        "b",
        [text("t", "Done."), vec![finish(Finish::Stop)]].concat(),
    );
    journal.add(InstructionsChanged {
        text: "AGENTS.md says: use tabs".to_owned(),
        digest: "d2".to_owned(),
    });
    journal.user("u2", "more");
    let second = journal.request();
    assert_eq!(second.messages[..first.messages.len()], first.messages[..]);
    assert_eq!(
        second.system, first.system,
        "changes are appended, not rewritten"
    );
    assert_eq!(kinds(&second)[3..], ["assistant", "system", "user"]);
    assert_eq!(journal.state.instructions.as_ref().unwrap().digest, "d2");
}

#[test]
fn the_last_step_keeps_its_tools_and_may_not_call_them() {
    let journal = signed_turn();
    let mut plan = plan_for(PROTOCOL, model());
    plan.tools = vec![ToolDef {
        name: "bash".to_owned(),
        description: "d".to_owned(),
        input_schema: serde_json::json!({"type": "object"}),
    }];
    plan.last_step = true;
    let request = build(&journal.state, &plan);
    assert_eq!(
        (request.tools.len(), request.tool_choice),
        (1, ToolChoice::None)
    );
    let notice = RequestMessage::System {
        text: LAST_STEP_NOTICE.to_owned(),
    };
    assert_eq!(request.messages.last(), Some(&notice));
}

fn hosted(id: &str, native: Option<&str>) -> ProviderEvent {
    ProviderEvent::ToolCall {
        id: id.to_owned(),
        name: "web_search".to_owned(),
        input: "{}".to_owned(),
        executed: true,
        native: native.map(str::to_owned),
    }
}

#[test]
fn a_hosted_call_goes_back_whole_or_in_words() {
    let answered = |native: Option<&str>| ProviderEvent::ToolResult {
        id: "h".to_owned(),
        text: "found".to_owned(),
        is_error: false,
        native: native.map(str::to_owned),
    };
    let ask = |stream: Vec<ProviderEvent>| {
        let mut journal = Journal::new();
        journal.user("u", "go");
        journal.whole(
            "a",
            [stream, text("t", "x"), vec![finish(Finish::Stop)]].concat(),
        );
        journal.request()
    };
    let own = |request: &Request| match blocks(request)[0] {
        AssistantBlock::Hosted { call, result, .. } => (call.is_some(), result.is_some()),
        other => panic!("{other:?}"),
    };
    let whole = ask(vec![
        hosted("h", Some("{\"c\":1}")),
        answered(Some("{\"r\":1}")),
    ]);
    assert_eq!(own(&whole), (true, true));
    // A vendor whose call item holds the result.
    let one_item = ask(vec![hosted("h", Some("{\"c\":1}")), answered(None)]);
    assert_eq!(own(&one_item), (true, false));
    let unanswered = ask(vec![hosted("h", Some("{\"c\":1}"))]);
    assert_eq!(own(&unanswered), (false, false));
}

#[test]
fn a_paused_turn_is_continued_and_its_late_result_joins_its_call() {
    let mut journal = Journal::new();
    journal.user("u", "go");
    let paused = vec![hosted("h", Some("{\"c\":1}")), finish(Finish::Pause)];
    journal.whole("a", paused);
    assert!(journal.state.wants_step);
    let own = |request: &Request| match blocks(request)[0] {
        AssistantBlock::Hosted { call, result, .. } => (call.clone(), result.clone()),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        own(&journal.request()),
        (Some("{\"c\":1}".to_owned()), None)
    );
    let late = "{\"type\":\"web_search_tool_result\",\"tool_use_id\":\"h\"}";
    let block = |native: &str| ProviderEvent::Opaque {
        native: native.to_owned(),
    };
    let rest = [
        vec![block(late)],
        text("t", "Found."),
        vec![finish(Finish::Stop)],
    ];
    let mut answered = journal.clone();
    answered.whole("b", rest.concat());
    assert_eq!(own(&answered.request()).1.as_deref(), Some(late));
    // Without its call, the result would be refused: it is left out.
    let orphan = late.replace("\"h\"", "\"other\"");
    let rest = [
        vec![block(&orphan)],
        text("t", "Found."),
        vec![finish(Finish::Stop)],
    ];
    journal.whole("b", rest.concat());
    assert!(!natives(&journal.request()).contains(&orphan));
    assert_eq!(own(&journal.request()).1, None);
}

#[test]
fn a_summary_comes_first_then_the_pinned_words_then_what_was_kept() {
    let mut journal = signed_turn();
    let kept_from = journal.events.len() as u64;
    journal.whole(
        "b",
        [text("t", "Done."), vec![finish(Finish::Stop)]].concat(),
    );
    journal.add(compacted(kept_from));
    let request = journal.request();
    assert_eq!(kinds(&request), ["user", "user", "assistant"]);
    let RequestMessage::User { parts } = &request.messages[1] else {
        panic!()
    };
    assert_eq!(parts, &["go".into()]);
}

pub fn compacted(kept_from: u64) -> CompactionEnded {
    CompactionEnded {
        compaction: tenure_core::CompactionId::from_bits(1),
        summary: "So far: nothing.".to_owned(),
        kept_from,
        usage: Some(usage(100, 10)),
        cost: None,
    }
}

#[test]
fn a_fork_inside_a_step_behind_a_note_is_sendable() {
    let mut journal = Journal::new();
    journal.user("u", "go").begin("a");
    journal
        .stream(vec![complete("c1", "bash", "{}", false)])
        .unwrap();
    journal.add(InstructionsChanged {
        text: "new".to_owned(),
        digest: "x".to_owned(),
    });
    journal.add(SessionForked {
        parent: SessionId::from_bits(9),
        through: journal.events.len() as u64 - 1,
    });
    assert!(journal.state.turn.at_boundary());
    assert_eq!(
        kinds(&journal.request()),
        ["user", "assistant", "results", "system"]
    );
    let text = format!("{:?}", journal.request());
    assert!(text.contains("forked while this call was open"), "{text}");
}

#[test]
fn an_input_the_vendors_json_readers_would_refuse_is_not_sent() {
    // A lone surrogate, a number beyond all ranges, nesting deeper than any reader goes.
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
    for bad in [
        "{\"a\":\"\\ud800\"}",
        "{\"a\":1e999}",
        deep.as_str(),
        "{\"a\":1} x",
    ] {
        let mut journal = Journal::new();
        journal.user("u", "go").begin("a");
        let stream = vec![
            complete("c1", "bash", bad, false),
            finish(Finish::ToolCalls),
        ];
        journal.stream(stream).unwrap();
        assert!(
            journal
                .events
                .iter()
                .any(|e| matches!(&e.body, EventBody::ToolFailed(_))),
            "{bad} is settled"
        );
        journal.end();
        let request = journal.request();
        let AssistantBlock::ToolCall { input, .. } = blocks(&request)[0] else {
            panic!()
        };
        assert_eq!(input, "{}");
    }
}

#[test]
fn an_empty_input_leaves_a_message_all_the_same() {
    let mut journal = Journal::new();
    journal.user("u", " \n");
    assert_eq!(kinds(&journal.request()), ["user"]);
    journal.begin("a");
    journal.settle(&Cause::Crashed);
    assert_eq!(
        kinds(&journal.request()),
        ["user"],
        "a message of nothing is left out"
    );
}

#[test]
fn a_tool_name_no_vendor_takes_is_written_in_letters_it_takes() {
    for (name, sent) in [
        ("", "unnamed"),
        ("my tool/é", "my_tool__"),
        ("bash", "bash"),
    ] {
        let mut journal = Journal::new();
        journal.user("u", "go");
        journal.whole(
            "a",
            vec![complete("c1", name, "{}", false), finish(Finish::ToolCalls)],
        );
        let request = journal.request();
        let AssistantBlock::ToolCall { name, .. } = blocks(&request)[0] else {
            panic!()
        };
        assert_eq!(name, sent);
    }
}
