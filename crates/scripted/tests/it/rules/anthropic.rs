//! The breaking examples of Anthropic's rules.

use super::*;

const ANTHROPIC: &[Mutation] = &[
    ("anthropic.body_object", |b| *b = json!(null)),
    ("anthropic.unknown_field", |b| {
        set(b, "/max_completion_tokens", json!(5))
    }),
    ("anthropic.model", |b| drop_field(b, "/model")),
    ("anthropic.max_tokens", |b| drop_field(b, "/max_tokens")),
    ("anthropic.messages", |b| set(b, "/messages", json!([]))),
    ("anthropic.role", |b| {
        set(b, "/messages/0/role", json!("system"))
    }),
    ("anthropic.first_user", |b| {
        drop(list(b, "/messages").remove(0))
    }),
    ("anthropic.content", |b| {
        set(b, "/messages/0/content", json!([]))
    }),
    ("anthropic.block_type", |b| {
        set(b, "/messages/0/content/0/type", json!("input_text"))
    }),
    ("anthropic.block_role", |b| {
        list(b, "/messages/0/content")
            .push(json!({"type": "thinking", "thinking": "x", "signature": "s"}));
    }),
    ("anthropic.block_role", |b| {
        let result = json!({"type": "tool_result", "tool_use_id": "toolu_1"});
        list(b, "/messages/1/content").push(result);
    }),
    ("anthropic.block_field", |b| {
        set(b, "/messages/3/content/3/provider_executed", json!(false))
    }),
    ("anthropic.text", |b| {
        drop_field(b, "/messages/0/content/0/text")
    }),
    ("anthropic.text_empty", |b| {
        set(b, "/messages/0/content/0/text", json!(""))
    }),
    ("anthropic.text_empty", |b| {
        set(b, "/messages/4/content/1/content/0/text", json!(" "))
    }),
    ("anthropic.text_empty", |b| {
        set(b, "/messages/0/content", json!("\n"))
    }),
    ("anthropic.trailing_whitespace", |b| {
        list(b, "/messages").push(json!({"role": "assistant", "content": "and so "}));
    }),
    ("anthropic.source", |b| {
        drop_field(b, "/messages/2/content/0/source/media_type")
    }),
    ("anthropic.source", |b| {
        set(b, "/messages/2/content/0/source/type", json!("content"))
    }),
    ("anthropic.image", |b| {
        set(
            b,
            "/messages/2/content/0/source/media_type",
            json!("image/bmp"),
        )
    }),
    ("anthropic.image", |b| {
        set(
            b,
            "/messages/2/content/0/source/media_type",
            json!("image/gif"),
        )
    }),
    ("anthropic.image", |b| {
        set(b, "/messages/2/content/0/source/data", json!("no base64!"))
    }),
    ("anthropic.image_size", |b| {
        let data = "A".repeat(5 * 1024 * 1024 + 4);
        set(b, "/messages/2/content/0/source/data", json!(data));
    }),
    ("anthropic.image_count", |b| {
        let image = b["messages"][2]["content"][0].clone();
        list(b, "/messages/2/content").extend(std::iter::repeat_n(image, 100));
    }),
    ("anthropic.image_pixels", |b| {
        set(b, "/messages/2/content/0/source/data", json!(WIDE_PNG))
    }),
    ("anthropic.document", |b| {
        set(b, "/messages/2/content/1/source/data", json!(PNG))
    }),
    ("anthropic.document", |b| {
        set(
            b,
            "/messages/2/content/1/source/media_type",
            json!("text/rtf"),
        )
    }),
    ("anthropic.citations", |b| {
        drop_field(b, "/messages/1/content/2/citations/0/encrypted_index")
    }),
    ("anthropic.hosted_tool", |b| {
        set(b, "/tools/1/type", json!("web_search"))
    }),
    ("anthropic.hosted_tool", |b| {
        set(b, "/tools/2/name", json!("python"))
    }),
    ("anthropic.hosted_result", |b| {
        set(b, "/messages/1/content/1/content", json!("found"))
    }),
    ("anthropic.hosted_result", |b| {
        drop_field(b, "/messages/1/content/1/content/0/encrypted_content")
    }),
    ("anthropic.server_tool_use_id", |b| {
        set(b, "/messages/1/content/0/id", json!("toolu_7"));
        set(b, "/messages/1/content/1/tool_use_id", json!("toolu_7"));
    }),
    ("anthropic.container", |b| drop(list(b, "/tools").remove(2))),
    ("anthropic.output_config", |b| {
        set(b, "/output_config/verbosity", json!("low"))
    }),
    ("anthropic.effort", |b| {
        set(b, "/output_config/effort", json!("minimal"))
    }),
    ("anthropic.output_format", |b| {
        set(b, "/output_config/format/name", json!("answer"))
    }),
    ("anthropic.output_schema", |b| {
        drop_field(b, "/output_config/format/schema/additionalProperties")
    }),
    ("anthropic.output_schema", |b| {
        set(
            b,
            "/output_config/format/schema/properties/a/items/maxLength",
            json!(3),
        )
    }),
    ("anthropic.thinking_config", |b| {
        set(
            b,
            "/thinking",
            json!({"type": "adaptive", "budget_tokens": 1024}),
        )
    }),
    ("anthropic.cache_ttl_order", |b| {
        set(b, "/messages/0/content/0/cache_control/ttl", json!("1h"))
    }),
    ("anthropic.tool_use", |b| {
        set(b, "/messages/3/content/3/input", json!("{}"))
    }),
    ("anthropic.tool_use_id", |b| {
        set(b, "/messages/3/content/3/id", json!("call:1"))
    }),
    ("anthropic.tool_use_id_unique", |b| {
        set(b, "/messages/3/content/4/id", json!("toolu_1"))
    }),
    ("anthropic.tool_name", |b| {
        set(b, "/messages/3/content/3/name", json!("read file"))
    }),
    ("anthropic.tool_result", |b| {
        set(b, "/messages/4/content/0/content", json!({"text": "A"}))
    }),
    ("anthropic.unanswered_tool_use", |b| {
        drop(list(b, "/messages/4/content").remove(0))
    }),
    ("anthropic.unanswered_tool_use", |b| {
        drop(list(b, "/messages").remove(4))
    }),
    ("anthropic.unanswered_tool_use", |b| {
        list(b, "/messages").insert(4, json!({"role": "user", "content": "hurry"}));
    }),
    ("anthropic.result_first", |b| {
        list(b, "/messages/4/content").swap(0, 2)
    }),
    ("anthropic.orphan_result", |b| {
        set(b, "/messages/4/content/0/tool_use_id", json!("toolu_9"))
    }),
    ("anthropic.duplicate_result", |b| {
        let result = b["messages"][4]["content"][0].clone();
        list(b, "/messages/4/content").insert(0, result);
    }),
    ("anthropic.hosted_unanswered", |b| {
        drop(list(b, "/messages/1/content").remove(1))
    }),
    ("anthropic.hosted_orphan", |b| {
        drop(list(b, "/messages/1/content").remove(0))
    }),
    ("anthropic.thinking_signature", |b| {
        drop_field(b, "/messages/3/content/0/signature")
    }),
    ("anthropic.redacted_data", |b| {
        drop_field(b, "/messages/3/content/1/data")
    }),
    ("anthropic.thinking_first", |b| {
        list(b, "/messages/3/content").remove(0);
        list(b, "/messages/3/content").remove(0);
    }),
    ("anthropic.thinking_last", |b| {
        list(b, "/messages/1/content")
            .push(json!({"type": "thinking", "thinking": "x", "signature": "s"}));
    }),
    ("anthropic.thinking_config", |b| {
        set(b, "/thinking/type", json!("on"))
    }),
    ("anthropic.thinking_budget", |b| {
        set(b, "/thinking/budget_tokens", json!(4096))
    }),
    ("anthropic.thinking_budget", |b| {
        set(b, "/thinking/budget_tokens", json!(1023))
    }),
    ("anthropic.thinking_sampling", |b| {
        set(b, "/temperature", json!(0.2))
    }),
    ("anthropic.thinking_forced_tool", |b| {
        set(b, "/tool_choice/type", json!("any"))
    }),
    ("anthropic.system", |b| set(b, "/system/0/text", json!(""))),
    ("anthropic.cache_control", |b| {
        set(b, "/system/0/cache_control/type", json!("permanent"))
    }),
    ("anthropic.cache_control_count", |b| {
        let mark = json!({"type": "ephemeral"});
        set(b, "/tools/0/cache_control", mark.clone());
        set(
            b,
            "/messages/4/content/1/content/0/cache_control",
            mark.clone(),
        );
        set(b, "/messages/4/content/2/cache_control", mark);
    }),
    ("anthropic.tools", |b| set(b, "/tools/0", json!("read"))),
    ("anthropic.tool_schema", |b| {
        drop_field(b, "/tools/0/input_schema")
    }),
    ("anthropic.tool_schema", |b| {
        drop_field(b, "/tools/0/input_schema/type")
    }),
    ("anthropic.duplicate_tool", |b| {
        set(b, "/tools/1/name", json!("read"))
    }),
    ("anthropic.tool_choice", |b| {
        set(b, "/tool_choice", json!({"type": "tool", "name": "write"}))
    }),
    ("anthropic.tool_choice_without_tools", |b| {
        drop_field(b, "/tools")
    }),
    ("anthropic.stream", |b| set(b, "/stream", json!("true"))),
    ("anthropic.temperature", |b| {
        set(b, "/temperature", json!(1.5))
    }),
    ("anthropic.top_p", |b| set(b, "/top_p", json!(2))),
    ("anthropic.stop_sequences", |b| {
        set(b, "/stop_sequences", json!([" "]))
    }),
];

#[test]
fn anthropic_rules_each_refuse() {
    refuses_each(
        validate::anthropic_messages,
        &anthropic_good(),
        validate::anthropic_messages_rules(),
        ANTHROPIC,
    );
}

#[test]
fn a_cache_mark_word_inside_a_tool_input_is_not_a_mark() {
    let mut body = anthropic_good();
    let input = json!({"cache_control": 1, "content": [{"cache_control": 2}], "messages": {"cache_control": 3}});
    set(&mut body, "/messages/3/content/3/input", input);
    assert_eq!(validate::anthropic_messages(&body), Ok(()));
}

#[test]
fn thinking_is_asked_of_the_first_message_of_an_open_tool_loop() {
    let mut body = anthropic_good();
    let again = [
        json!({"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_again", "name": "bash", "input": {}}]}),
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_again", "content": "x"}]}),
    ];
    let name = body.pointer("/tools/0/name").unwrap().clone();
    list(&mut body, "/messages").extend(again);
    set(&mut body, "/messages/5/content/0/name", name);
    assert_eq!(
        validate::anthropic_messages(&body),
        Ok(()),
        "it thought once"
    );
    list(&mut body, "/messages/3/content").drain(0..2);
    let refused = format!("{:?}", validate::anthropic_messages(&body));
    assert!(
        refused.contains("anthropic.thinking_first") && refused.contains("messages[3]"),
        "{refused}"
    );
}

#[test]
fn thinking_is_not_asked_of_a_closed_tool_loop() {
    let mut body = anthropic_good();
    list(&mut body, "/messages/3/content").drain(0..2);
    list(&mut body, "/messages").push(json!({"role": "assistant", "content": "done"}));
    list(&mut body, "/messages").push(json!({"role": "user", "content": "thanks"}));
    assert_eq!(validate::anthropic_messages(&body), Ok(()));
}
