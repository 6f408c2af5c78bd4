//! Every rule has a breaking example: one good request per vendor, and one mutation of it per rule.

mod anthropic;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tenure_scripted::validate::{self, Broken};

use crate::good::{PNG, anthropic_good, chat_good, gemini_good, responses_good};

/// A PNG that says it is 9000 pixels wide.
const WIDE_PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAIygAAADICAAAAACgrxXlAAAAH0lEQVR4nO3BAQEAAACCIP+vbkhAAQAAAAAAAADAgQEjKQABNueTHwAAAABJRU5ErkJggg==";

type Check = fn(&Value) -> Result<(), Vec<Broken>>;
type Mutation = (&'static str, fn(&mut Value));

fn set(body: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match body.pointer_mut(parent).unwrap() {
        Value::Object(map) => {
            map.insert(key.into(), value);
        }
        Value::Array(list) => list[key.parse::<usize>().unwrap()] = value,
        other => panic!("{pointer} leads into {other}"),
    }
}

fn drop_field(body: &mut Value, pointer: &str) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    body.pointer_mut(parent)
        .unwrap()
        .as_object_mut()
        .unwrap()
        .remove(key)
        .unwrap();
}

fn list<'a>(body: &'a mut Value, pointer: &str) -> &'a mut Vec<Value> {
    body.pointer_mut(pointer).unwrap().as_array_mut().unwrap()
}

fn refuses_each(check: Check, good: &Value, rules: &[&str], mutations: &[Mutation]) {
    check(good).expect("the good request passes");
    for (rule, mutate) in mutations {
        let mut body = good.clone();
        mutate(&mut body);
        let broken = check(&body).expect_err(rule);
        assert!(
            broken.iter().any(|b| b.rule == *rule),
            "{rule} is not among {broken:#?}"
        );
        for b in &broken {
            assert!(
                rules.contains(&b.rule),
                "{} is missing from the list of rules",
                b.rule
            );
            assert!(!b.message.is_empty());
        }
    }
    let shown: BTreeSet<&str> = mutations.iter().map(|(rule, _)| *rule).collect();
    let listed: BTreeSet<&str> = rules.iter().copied().collect();
    assert_eq!(shown, listed, "each listed rule has a breaking example");
    assert_eq!(listed.len(), rules.len(), "no rule is listed twice");
}

const CHAT: &[Mutation] = &[
    ("chat.body_object", |b| *b = json!([1])),
    ("chat.model", |b| drop_field(b, "/model")),
    ("chat.messages", |b| set(b, "/messages", json!([]))),
    ("chat.role", |b| set(b, "/messages/0/role", json!("robot"))),
    ("chat.content", |b| drop_field(b, "/messages/6/content")),
    ("chat.content", |b| {
        set(b, "/messages/5/content", json!(null))
    }),
    ("chat.content", |b| set(b, "/messages/1/content", json!([]))),
    ("chat.part_type", |b| {
        set(b, "/messages/1/content/0/type", json!("input_text"))
    }),
    ("chat.part_shape", |b| {
        drop_field(b, "/messages/1/content/0/text")
    }),
    ("chat.image_data", |b| {
        list(b, "/messages/1/content").push(json!({"type": "image_url",
            "image_url": {"url": "data:image/png;base64,JVBERi0xLjQK"}}));
    }),
    ("chat.file_data", |b| {
        list(b, "/messages/1/content").push(json!({"type": "file",
            "file": {"filename": "a.pdf", "file_data": "JVBERi0xLjQK"}}));
    }),
    ("chat.text_empty", |b| {
        set(b, "/messages/1/content/0/text", json!(" \n"))
    }),
    ("chat.text_empty", |b| {
        set(b, "/messages/6/content", json!(""))
    }),
    ("chat.message_name", |b| {
        set(b, "/messages/1/name", json!("Ann B."))
    }),
    ("chat.tool_calls", |b| {
        set(b, "/messages/2/tool_calls", json!([]))
    }),
    ("chat.tool_calls", |b| {
        drop_field(b, "/messages/2/tool_calls/0/type")
    }),
    ("chat.tool_calls_role", |b| {
        set(b, "/messages/6/tool_calls", json!([]))
    }),
    ("chat.tool_call_id", |b| {
        let long = "x".repeat(41);
        set(b, "/messages/2/tool_calls/0/id", json!(long));
        set(b, "/messages/4/tool_call_id", json!(long));
    }),
    ("chat.tool_call_id_unique", |b| {
        set(b, "/messages/2/tool_calls/1/id", json!("call_1"))
    }),
    ("chat.tool_name", |b| {
        set(
            b,
            "/messages/2/tool_calls/0/function/name",
            json!("read file"),
        )
    }),
    ("chat.arguments", |b| {
        set(
            b,
            "/messages/2/tool_calls/0/function/arguments",
            json!({"path": "a"}),
        )
    }),
    ("chat.arguments", |b| {
        set(
            b,
            "/messages/2/tool_calls/0/function/arguments",
            json!("{\"path\":"),
        )
    }),
    ("chat.arguments", |b| {
        set(
            b,
            "/messages/2/tool_calls/0/function/arguments",
            json!("[1]"),
        )
    }),
    ("chat.unanswered_call", |b| {
        drop(list(b, "/messages").remove(3))
    }),
    ("chat.unanswered_call", |b| {
        // The answer exists but a user message stands between.
        list(b, "/messages").insert(4, json!({"role": "user", "content": "hurry"}));
    }),
    ("chat.tool_call_id_missing", |b| {
        drop_field(b, "/messages/3/tool_call_id")
    }),
    ("chat.orphan_result", |b| {
        set(b, "/messages/3/tool_call_id", json!("call_9"))
    }),
    ("chat.orphan_result", |b| {
        list(b, "/messages")
            .push(json!({"role": "tool", "tool_call_id": "call_1", "content": "late"}));
    }),
    ("chat.duplicate_result", |b| {
        set(b, "/messages/3/tool_call_id", json!("call_1"))
    }),
    ("chat.tools", |b| {
        set(b, "/tools/0", json!({"name": "read"}))
    }),
    ("chat.tool_schema", |b| {
        set(b, "/tools/0/function/parameters", json!({"type": "array"}))
    }),
    ("chat.duplicate_tool", |b| {
        let tool = b["tools"][0].clone();
        list(b, "/tools").push(tool);
    }),
    ("chat.tool_choice", |b| {
        set(b, "/tool_choice", json!("sometimes"))
    }),
    ("chat.tool_choice", |b| {
        set(
            b,
            "/tool_choice",
            json!({"type": "function", "function": {"name": "write"}}),
        );
    }),
    ("chat.tool_choice_without_tools", |b| {
        drop_field(b, "/tools")
    }),
    ("chat.parallel_without_tools", |b| drop_field(b, "/tools")),
    ("chat.stream", |b| set(b, "/stream", json!("yes"))),
    ("chat.stream_options", |b| set(b, "/stream", json!(false))),
    ("chat.max_tokens", |b| {
        set(b, "/max_completion_tokens", json!(0))
    }),
    ("chat.max_tokens_twice", |b| set(b, "/max_tokens", json!(9))),
    ("chat.temperature", |b| set(b, "/temperature", json!(2.5))),
    ("chat.top_p", |b| set(b, "/top_p", json!(-0.1))),
    ("chat.n", |b| set(b, "/n", json!(0))),
    ("chat.stop", |b| {
        set(b, "/stop", json!(["a", "b", "c", "d", "e"]))
    }),
    ("chat.response_format", |b| {
        set(b, "/response_format/type", json!("xml"))
    }),
    ("chat.reasoning_effort", |b| {
        set(b, "/reasoning_effort", json!("heroic"))
    }),
];

#[test]
fn chat_rules_each_refuse() {
    refuses_each(
        validate::openai_chat,
        &chat_good(),
        validate::openai_chat_rules(),
        CHAT,
    );
}

const GEMINI: &[Mutation] = &[
    ("gemini.body_object", |b| *b = json!("hi")),
    ("gemini.unknown_field", |b| set(b, "/stream", json!(true))),
    ("gemini.contents", |b| set(b, "/contents", json!([]))),
    ("gemini.content", |b| set(b, "/contents/0/parts", json!([]))),
    ("gemini.content", |b| set(b, "/contents/0", json!("hi"))),
    ("gemini.role", |b| {
        set(b, "/contents/0/role", json!("assistant"))
    }),
    ("gemini.role", |b| drop_field(b, "/contents/0/role")),
    ("gemini.first_user", |b| {
        drop(list(b, "/contents").remove(0))
    }),
    ("gemini.last_user", |b| drop(list(b, "/contents").pop())),
    ("gemini.alternation", |b| {
        let last = b["contents"][4].clone();
        list(b, "/contents").push(last);
    }),
    ("gemini.part", |b| {
        set(b, "/contents/4/parts/0", json!("hi"))
    }),
    ("gemini.part_data", |b| {
        set(b, "/contents/4/parts/0", json!({"thought": true}))
    }),
    ("gemini.part_data", |b| {
        set(b, "/contents/1/parts/6/text", json!("and"))
    }),
    ("gemini.part_field", |b| {
        set(b, "/contents/4/parts/0/type", json!("text"))
    }),
    ("gemini.part_role", |b| {
        set(b, "/contents/4/parts/0/thought", json!(true))
    }),
    ("gemini.part_role", |b| {
        let call = json!({"functionCall": {"name": "read"}});
        list(b, "/contents/0/parts").push(call);
    }),
    ("gemini.part_role", |b| {
        let answer = b["contents"][2]["parts"][0].clone();
        list(b, "/contents/3/parts").push(answer);
    }),
    ("gemini.text", |b| {
        set(b, "/contents/4/parts/0/text", json!(["hi"]))
    }),
    ("gemini.text_empty", |b| {
        set(b, "/contents/4/parts/0/text", json!(" "))
    }),
    ("gemini.text_empty", |b| {
        drop_field(b, "/contents/3/parts/1/thoughtSignature")
    }),
    ("gemini.thought", |b| {
        set(b, "/contents/1/parts/0/thought", json!("yes"))
    }),
    ("gemini.signature", |b| {
        set(b, "/contents/1/parts/6/thoughtSignature", json!(""))
    }),
    ("gemini.inline_data", |b| {
        set(
            b,
            "/contents/0/parts/1/inlineData/data",
            json!("data:image/png;base64,AAAA"),
        )
    }),
    ("gemini.inline_type", |b| {
        set(
            b,
            "/contents/0/parts/1/inlineData/mimeType",
            json!("image/gif"),
        )
    }),
    ("gemini.inline_sum", |b| {
        set(
            b,
            "/contents/0/parts/1/inlineData/data",
            json!("AAAA".repeat(5_000_001)),
        )
    }),
    ("gemini.file_data", |b| {
        drop_field(b, "/contents/0/parts/2/fileData/fileUri")
    }),
    ("gemini.function_call", |b| {
        set(b, "/contents/1/parts/6/functionCall/args", json!("{}"))
    }),
    ("gemini.function_name", |b| {
        set(
            b,
            "/contents/1/parts/6/functionCall/name",
            json!("read file"),
        )
    }),
    ("gemini.function_name", |b| {
        set(b, "/tools/0/functionDeclarations/1/name", json!("1st"))
    }),
    ("gemini.call_id_unique", |b| {
        set(b, "/contents/1/parts/7/functionCall/id", json!("c1"))
    }),
    ("gemini.function_response", |b| {
        set(
            b,
            "/contents/2/parts/0/functionResponse/response",
            json!("A"),
        )
    }),
    ("gemini.unanswered_call", |b| {
        list(b, "/contents/2/parts").drain(0..2);
    }),
    ("gemini.unanswered_call", |b| {
        list(b, "/contents").truncate(2);
    }),
    ("gemini.response_count", |b| {
        drop(list(b, "/contents/2/parts").remove(0))
    }),
    ("gemini.response_name", |b| {
        set(
            b,
            "/contents/2/parts/0/functionResponse/name",
            json!("list"),
        )
    }),
    ("gemini.response_id", |b| {
        set(b, "/contents/2/parts/0/functionResponse/id", json!("c9"))
    }),
    ("gemini.response_id", |b| {
        drop_field(b, "/contents/2/parts/0/functionResponse/id")
    }),
    ("gemini.orphan_response", |b| {
        let answer = b["contents"][2]["parts"][0].clone();
        list(b, "/contents/4/parts").push(answer);
    }),
    ("gemini.executable_code", |b| {
        drop_field(b, "/contents/1/parts/1/executableCode/language")
    }),
    ("gemini.code_result", |b| {
        drop_field(b, "/contents/1/parts/2/codeExecutionResult/outcome")
    }),
    ("gemini.hosted_unanswered", |b| {
        drop(list(b, "/contents/1/parts").remove(2))
    }),
    ("gemini.hosted_orphan", |b| {
        drop(list(b, "/contents/1/parts").remove(3))
    }),
    ("gemini.call_signature", |b| {
        list(b, "/contents").truncate(3);
        drop_field(b, "/contents/1/parts/6/thoughtSignature");
    }),
    ("gemini.system", |b| {
        set(b, "/systemInstruction", json!("You help."))
    }),
    ("gemini.system", |b| {
        set(b, "/systemInstruction/parts/0/text", json!(""))
    }),
    ("gemini.tools", |b| set(b, "/tools", json!({}))),
    ("gemini.tools", |b| {
        set(b, "/tools/1", json!({"type": "web_search"}))
    }),
    ("gemini.declaration", |b| {
        set(b, "/tools/0/functionDeclarations/0/input_schema", json!({}))
    }),
    ("gemini.duplicate_function", |b| {
        set(b, "/tools/0/functionDeclarations/1/name", json!("read"))
    }),
    ("gemini.schema", |b| {
        set(
            b,
            "/tools/0/functionDeclarations/0/parametersJsonSchema/type",
            json!("array"),
        )
    }),
    ("gemini.schema", |b| {
        set(
            b,
            "/tools/0/functionDeclarations/0/parametersJsonSchema/required/0",
            json!("gone"),
        )
    }),
    ("gemini.schema", |b| {
        drop_field(
            b,
            "/tools/0/functionDeclarations/0/parametersJsonSchema/properties/lines/items",
        )
    }),
    ("gemini.schema", |b| {
        let both = json!({"$ref": "#/$defs/A", "type": "string"});
        set(
            b,
            "/tools/0/functionDeclarations/0/parametersJsonSchema/properties/path",
            both,
        )
    }),
    ("gemini.schema_keyword", |b| {
        set(
            b,
            "/tools/0/functionDeclarations/0/parametersJsonSchema/$schema",
            json!("x"),
        )
    }),
    ("gemini.schema_keyword", |b| {
        set(
            b,
            "/tools/0/functionDeclarations/1/parameters/additionalProperties",
            json!(false),
        )
    }),
    ("gemini.schema_twice", |b| {
        set(
            b,
            "/tools/0/functionDeclarations/0/parameters",
            json!({"type": "OBJECT"}),
        )
    }),
    ("gemini.tool_mix", |b| {
        drop_field(b, "/toolConfig/includeServerSideToolInvocations")
    }),
    ("gemini.tool_config", |b| {
        set(b, "/toolConfig/functionCallingConfig/mode", json!("auto"))
    }),
    ("gemini.allowed_names", |b| {
        set(b, "/toolConfig/functionCallingConfig/mode", json!("AUTO"))
    }),
    ("gemini.allowed_names", |b| {
        set(
            b,
            "/toolConfig/functionCallingConfig/allowedFunctionNames/0",
            json!("gone"),
        )
    }),
    ("gemini.tool_config_without_functions", |b| {
        drop(list(b, "/tools").remove(0));
        drop_field(b, "/toolConfig/functionCallingConfig/allowedFunctionNames");
    }),
    ("gemini.generation", |b| {
        set(b, "/generationConfig/max_tokens", json!(5))
    }),
    ("gemini.generation", |b| {
        set(b, "/generationConfig", json!([1]))
    }),
    ("gemini.max_output_tokens", |b| {
        set(b, "/generationConfig/maxOutputTokens", json!(0))
    }),
    ("gemini.temperature", |b| {
        set(b, "/generationConfig/temperature", json!(2.5))
    }),
    ("gemini.top_p", |b| {
        set(b, "/generationConfig/topP", json!(1.5))
    }),
    ("gemini.stop_sequences", |b| {
        set(
            b,
            "/generationConfig/stopSequences",
            json!(["a", "b", "c", "d", "e", "f"]),
        )
    }),
    ("gemini.response_form", |b| {
        drop_field(b, "/generationConfig/responseMimeType")
    }),
    ("gemini.response_form", |b| {
        set(
            b,
            "/generationConfig/responseSchema",
            json!({"type": "OBJECT"}),
        )
    }),
    ("gemini.thinking", |b| {
        set(
            b,
            "/generationConfig/thinkingConfig/thinkingBudget",
            json!(1024),
        )
    }),
    ("gemini.thinking", |b| {
        set(
            b,
            "/generationConfig/thinkingConfig/thinkingLevel",
            json!("max"),
        )
    }),
    ("gemini.thinking", |b| {
        let off = json!({"includeThoughts": true, "thinkingBudget": 0});
        set(b, "/generationConfig/thinkingConfig", off)
    }),
    ("gemini.safety", |b| {
        drop_field(b, "/safetySettings/0/threshold")
    }),
];

#[test]
fn gemini_rules_each_refuse() {
    refuses_each(
        validate::gemini_3,
        &gemini_good(),
        validate::gemini_rules(),
        GEMINI,
    );
}

#[test]
fn gemini_reads_both_spellings_of_a_field_and_takes_null_for_none() {
    let mut body = gemini_good();
    let config = body.as_object_mut().unwrap().remove("toolConfig").unwrap();
    let calling = &config["functionCallingConfig"];
    set(
        &mut body,
        "/tool_config",
        json!({"function_calling_config": {"mode": calling["mode"], "allowed_function_names": ["read"]},
               "include_server_side_tool_invocations": true}),
    );
    set(&mut body, "/cachedContent", json!(null));
    assert_eq!(validate::gemini_3(&body), Ok(()));
}

#[test]
fn only_gemini_3_wants_signatures_and_only_in_the_current_turn() {
    let mut body = gemini_good();
    drop_field(&mut body, "/contents/1/parts/6/thoughtSignature");
    assert_eq!(validate::gemini_3(&body), Ok(()), "the turn is over");
    list(&mut body, "/contents").truncate(3);
    assert_eq!(validate::gemini(&body), Ok(()));
    let skipped = json!("skip_thought_signature_validator");
    set(&mut body, "/contents/1/parts/6/thoughtSignature", skipped);
    assert_eq!(validate::gemini_3(&body), Ok(()));
}

const RESPONSES: &[Mutation] = &[
    ("responses.body_object", |b| *b = json!("hello")),
    ("responses.model", |b| set(b, "/model", json!(""))),
    ("responses.input", |b| set(b, "/input", json!([]))),
    ("responses.item_type", |b| {
        set(b, "/input/4/type", json!("function_result"))
    }),
    ("responses.role", |b| set(b, "/input/0/role", json!("tool"))),
    ("responses.content", |b| drop_field(b, "/input/7/content")),
    ("responses.part_type", |b| {
        set(b, "/input/6/content/0/type", json!("input_text"))
    }),
    ("responses.part_type", |b| {
        set(b, "/input/0/content/0/type", json!("output_text"))
    }),
    ("responses.part_shape", |b| {
        drop_field(b, "/input/0/content/0/text")
    }),
    ("responses.image", |b| {
        set(
            b,
            "/input/0/content/1/image_url",
            json!(format!("data:image/tiff;base64,{PNG}")),
        )
    }),
    ("responses.image", |b| {
        set(b, "/input/0/content/1/image_url", json!("a.png"))
    }),
    ("responses.file", |b| {
        drop_field(b, "/input/0/content/2/filename")
    }),
    ("responses.file", |b| {
        set(
            b,
            "/input/0/content/2/file_data",
            json!(format!("data:application/zip;base64,{PNG}")),
        )
    }),
    ("responses.strict_schema", |b| {
        set(b, "/text/format/schema/required", json!([]))
    }),
    ("responses.reasoning_summary", |b| {
        set(b, "/reasoning/summary", json!("long"))
    }),
    ("responses.hosted_tool", |b| {
        drop_field(b, "/tools/2/container")
    }),
    ("responses.hosted_tool", |b| {
        set(b, "/tools/1/type", json!("web_seach"))
    }),
    ("responses.text_empty", |b| {
        set(b, "/input/6/content/0/text", json!(""))
    }),
    ("responses.text_empty", |b| {
        set(b, "/input/7/content", json!("  "))
    }),
    ("responses.item_id", |b| {
        set(b, "/input/2/id", json!("call_1"))
    }),
    ("responses.item_id", |b| {
        set(b, "/input/2/id", json!(format!("fc_{}", "x".repeat(62))))
    }),
    ("responses.item_id_unique", |b| {
        set(b, "/input/3/id", json!("fc_1"))
    }),
    ("responses.item_reference", |b| {
        list(b, "/input").push(json!({"type": "item_reference", "id": "msg_1"}));
    }),
    ("responses.call_id", |b| drop_field(b, "/input/2/call_id")),
    ("responses.call_id", |b| {
        set(b, "/input/2/call_id", json!("x".repeat(81)))
    }),
    ("responses.call_id_unique", |b| {
        set(b, "/input/3/call_id", json!("call_1"))
    }),
    ("responses.tool_name", |b| {
        set(b, "/input/2/name", json!("a.b"))
    }),
    ("responses.arguments", |b| {
        set(b, "/input/2/arguments", json!({}))
    }),
    ("responses.arguments", |b| {
        set(b, "/input/2/arguments", json!(""))
    }),
    ("responses.unanswered_call", |b| {
        drop(list(b, "/input").remove(5))
    }),
    ("responses.orphan_output", |b| {
        set(b, "/input/5/call_id", json!("call_9"))
    }),
    ("responses.orphan_output", |b| {
        // An output before its call answers nothing.
        let output = list(b, "/input").remove(5);
        list(b, "/input").insert(1, output);
    }),
    ("responses.duplicate_output", |b| {
        list(b, "/input")
            .push(json!({"type": "function_call_output", "call_id": "call_1", "output": "again"}));
    }),
    ("responses.output", |b| {
        set(b, "/input/5/output", json!({"text": "A"}))
    }),
    ("responses.reasoning", |b| drop_field(b, "/input/1/summary")),
    ("responses.reasoning_alone", |b| {
        let item =
            json!({"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "o"});
        list(b, "/input").push(item);
    }),
    ("responses.reasoning_not_stored", |b| {
        set(b, "/input/1/encrypted_content", json!(null))
    }),
    ("responses.include", |b| {
        set(b, "/include", json!(["reasoning"]))
    }),
    ("responses.include_encrypted", |b| {
        set(b, "/include", json!([]))
    }),
    ("responses.instructions", |b| {
        set(b, "/instructions", json!(["You help."]))
    }),
    ("responses.store", |b| set(b, "/store", json!("no"))),
    ("responses.tools", |b| {
        set(b, "/tools/0", json!({"function": {}}))
    }),
    ("responses.tool_schema", |b| {
        set(b, "/tools/0/parameters", json!("object"))
    }),
    ("responses.duplicate_tool", |b| {
        let tool = b["tools"][0].clone();
        list(b, "/tools").push(tool);
    }),
    ("responses.tool_choice", |b| {
        set(
            b,
            "/tool_choice",
            json!({"type": "function", "name": "write"}),
        )
    }),
    ("responses.tool_choice_without_tools", |b| {
        drop_field(b, "/tools");
        set(b, "/tool_choice", json!("required"));
    }),
    ("responses.parallel_tool_calls", |b| {
        set(b, "/parallel_tool_calls", json!(1))
    }),
    ("responses.stream", |b| set(b, "/stream", json!(1))),
    ("responses.max_output_tokens", |b| {
        set(b, "/max_output_tokens", json!(15))
    }),
    ("responses.temperature", |b| {
        set(b, "/temperature", json!("warm"))
    }),
    ("responses.top_p", |b| set(b, "/top_p", json!(1.5))),
    ("responses.text_format", |b| {
        set(b, "/text/format/type", json!("yaml"))
    }),
    ("responses.reasoning_effort", |b| {
        set(b, "/reasoning/effort", json!("heroic"))
    }),
    ("responses.truncation", |b| {
        set(b, "/truncation", json!("always"))
    }),
];

#[test]
fn responses_rules_each_refuse() {
    refuses_each(
        validate::openai_responses,
        &responses_good(),
        validate::openai_responses_rules(),
        RESPONSES,
    );
}

#[test]
fn a_server_that_makes_longer_ids_takes_them_again() {
    use validate::ResponsesServer::{Any, Openai, Xai};
    let rule = |body: &Value, server| {
        let found = validate::openai_responses_server(body, server);
        found.err().map(|found| found[0].rule)
    };
    let mut body = responses_good();
    for at in ["/input/2/call_id", "/input/5/call_id"] {
        set(&mut body, at, json!("x".repeat(70)));
    }
    assert_eq!(
        [Any, Openai, Xai].map(|server| rule(&body, server)),
        [None, Some("responses.call_id"), None]
    );
    set(
        &mut body,
        "/input/2/id",
        json!(format!("fc_{}", "x".repeat(83))),
    );
    assert_eq!(rule(&body, Any), Some("responses.item_id"));
    assert_eq!(rule(&body, Xai), None);
    set(&mut body, "/input/2/id", json!(""));
    assert_eq!(rule(&body, Xai), Some("responses.item_id"));
}
