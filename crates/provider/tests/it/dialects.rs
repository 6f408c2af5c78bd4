//! Chat requests in the dialect of each server: what the table of dialects says, seen in the bytes.

use crate::requests::*;
use serde_json::{Value, json};
use tenure_core::request::{
    AssistantBlock, Effort, HostedTool, Media, OutputSchema, Request, RequestMessage, ToolChoice,
    ToolDef, UserPart,
};
use tenure_provider::{Dialect, Protocol, encode};

fn of(model: &str, messages: Vec<RequestMessage>) -> Request {
    let schema = json!({"type": "object", "properties": {}});
    plain(
        model,
        &["You help."],
        messages,
        vec![tool("read", "Reads.", schema)],
    )
}

fn call(id: &str) -> AssistantBlock {
    call_of(id, "read", "{}", None)
}

fn answers(ids: &[&str]) -> RequestMessage {
    let answer = |id: &&str| result_of(id, "read", &format!("of {id}"));
    results(ids.iter().map(answer).collect())
}

fn raw(dialect: Dialect, request: &Request) -> String {
    let encoded = encode(Protocol::OpenaiChat, dialect, &NO_LIMITS, request).unwrap();
    String::from_utf8(encoded.body.to_vec()).unwrap()
}

fn body(dialect: Dialect, request: &Request) -> Value {
    serde_json::from_str(&raw(dialect, request)).unwrap()
}

/// A tool loop with a note and a steer behind it.
fn loop_of(id: &str, field: &str) -> Vec<RequestMessage> {
    vec![
        user("go"),
        assistant(vec![thought("Hm.", json!({"field": field})), call(id)]),
        answers(&[id]),
        note("Changed."),
        user("and?"),
    ]
}

#[test]
fn mistral_ids_order_and_thinking_parts() {
    let body = body(
        Dialect::Mistral,
        &of("m", loop_of("toolu_01ABCDEFGHIJ", "thinking")),
    );
    let message = &body["messages"][2];
    let id = message["tool_calls"][0]["id"].as_str().unwrap();
    assert!(
        id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()),
        "{id}"
    );
    assert_eq!(body["messages"][3]["tool_call_id"], id);
    assert_eq!(
        roles(&body),
        ["system", "user", "assistant", "tool", "assistant", "user"],
        "only the model may speak after a tool"
    );
    assert_eq!(
        message["content"],
        json!([{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}])
    );
    assert_eq!(
        body["messages"][5]["content"],
        "<tenure-note>\nChanged.\n</tenure-note>\n\nand?"
    );
    assert!(body.get("stream_options").is_none());
    let own = of("m", loop_of("Ab3dE6gH9", "thinking"));
    let own: Value = serde_json::from_str(&raw(Dialect::Mistral, &own)).unwrap();
    assert_eq!(
        own["messages"][3]["tool_call_id"], "Ab3dE6gH9",
        "its own stay"
    );
}

#[test]
fn reasoning_goes_back_where_each_server_reads_it() {
    let at = |dialect, field| {
        let body = body(dialect, &of("m", loop_of("call_1", field)));
        body["messages"][2].clone()
    };
    for (dialect, field, place) in [
        (Dialect::Deepseek, "reasoning_content", "reasoning_content"),
        (Dialect::Moonshot, "reasoning", "reasoning_content"),
        (Dialect::Zai, "reasoning_content", "reasoning_content"),
        (Dialect::Groq, "reasoning", "reasoning"),
        (Dialect::Cerebras, "reasoning_content", "reasoning"),
        (Dialect::Ollama, "reasoning", "reasoning"),
        (Dialect::Vllm, "reasoning", "reasoning"),
        (Dialect::Common, "reasoning_content", "reasoning_content"),
        (Dialect::Openrouter, "reasoning", "reasoning"),
    ] {
        let message = at(dialect, field);
        assert_eq!(message[place], "Hm.", "{dialect:?}");
        for other in ["reasoning_content", "reasoning", "reasoning_details"] {
            assert!(
                other == place || message.get(other).is_none(),
                "{dialect:?} {other}"
            );
        }
    }
    for dialect in [Dialect::Openai, Dialect::Azure, Dialect::Perplexity] {
        let message = at(dialect, "reasoning_content");
        assert!(!message.to_string().contains("Hm."), "{dialect:?}");
    }
}

#[test]
fn where_reasoning_is_required_its_absence_is_filled() {
    let history = || {
        vec![
            user("go"),
            assistant(vec![call("call_1")]),
            answers(&["call_1"]),
            assistant(vec![text("done")]),
            user("more"),
        ]
    };
    let request = of("m", history());
    for dialect in [Dialect::Deepseek, Dialect::Moonshot] {
        let body = body(dialect, &request);
        for at in [2, 4] {
            let placeholder = body["messages"][at]["reasoning_content"].as_str().unwrap();
            assert!(!placeholder.is_empty(), "an empty one is refused");
        }
    }
    let off = Request {
        effort: Some(Effort::Off),
        ..of("m", history())
    };
    let off = body(Dialect::Deepseek, &off);
    assert!(off["messages"][2].get("reasoning_content").is_none());
    assert_eq!(off["thinking"], json!({"type": "disabled"}));
    let chat = Request {
        tools: Vec::new(),
        ..request
    };
    let chat = body(Dialect::Deepseek, &chat);
    assert!(chat["messages"][4].get("reasoning_content").is_none());
}

#[test]
fn router_details_go_back_verbatim_and_marks_move_without_a_trace() {
    let details =
        json!([{"type": "reasoning.text", "text": "Hm.", "signature": "S+/=", "index": 0}]);
    let native = json!({"reasoning_details": details});
    let mut history = vec![
        user("go"),
        assistant(vec![thought("Hm.", native), call("call_1")]),
        answers(&["call_1"]),
    ];
    let short = of("anthropic/claude-x", history.clone());
    let sent = body(Dialect::Openrouter, &short);
    assert_eq!(sent["messages"][2]["reasoning_details"], details);
    let marked: Vec<bool> = sent["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m.to_string().contains("cache_control"))
        .collect();
    assert_eq!(
        marked,
        [true, true, false, true],
        "system and the last two places"
    );
    history.extend([assistant(vec![text("done")]), user("more")]);
    let longer = raw(Dialect::Openrouter, &of("anthropic/claude-x", history));
    let strip = |body: &str| body.replace(",\"cache_control\":{\"type\":\"ephemeral\"}", "");
    let strip =
        |body: &str| strip(&body.replace("\"cache_control\":{\"type\":\"ephemeral\"},", ""));
    let short = strip(&raw(Dialect::Openrouter, &short));
    assert!(strip(&longer).starts_with(short.trim_end_matches(['}', ']'])));
    let other = body(Dialect::Openrouter, &of("openai/gpt", vec![user("go")]));
    assert_eq!(other["messages"][1]["content"], "go");
}

#[test]
fn parsed_documents_go_back_to_the_gateway() {
    let file = json!({"type": "file", "file": {"hash": "h", "name": "a.pdf", "content": []}});
    let cited = json!({"type": "url_citation", "url_citation": {"url": "https://a.example"}});
    let answer = AssistantBlock::Text {
        text: "read".into(),
        native: Some(json!({"annotations": [cited, file]}).to_string()),
    };
    let request = of("m", vec![user("go"), assistant(vec![answer]), user("more")]);
    let router = body(Dialect::Openrouter, &request);
    assert_eq!(router["messages"][2]["annotations"], json!([file]));
    let common = body(Dialect::Common, &request);
    assert!(common["messages"][2].get("annotations").is_none());
}

#[test]
fn a_server_without_tools_is_told_in_words() {
    let history = vec![
        assistant(vec![text("earlier")]),
        user("go"),
        assistant(vec![text("I look."), call("c1"), call("c2")]),
        answers(&["c1", "c2"]),
        assistant(vec![text("done")]),
    ];
    let body = body(Dialect::Perplexity, &of("sonar", history));
    assert!(body.get("tools").is_none() && body.get("tool_choice").is_none());
    assert_eq!(
        roles(&body),
        [
            "system",
            "user",
            "assistant",
            "user",
            "assistant",
            "user",
            "assistant",
            "user"
        ]
    );
    assert_eq!(
        body["messages"][4]["content"],
        "I look.\n\n[Called read with {}]\n\n[Called read with {}]"
    );
    assert_eq!(
        body["messages"][5]["content"],
        "[read gave:]\nof c1\n\n[read gave:]\nof c2"
    );
}

#[test]
fn calls_and_results_are_paired_whatever_the_history_holds() {
    let history = vec![
        user("go"),
        answers(&["nobody"]),
        assistant(vec![call("same"), call("same"), call("lost")]),
        answers(&["same", "stray", "same"]),
        user("and"),
        assistant(vec![call("same")]),
        user("stop"),
    ];
    let body = body(Dialect::Openai, &of("m", history));
    assert_eq!(
        roles(&body),
        [
            "system",
            "user",
            "assistant",
            "tool",
            "tool",
            "tool",
            "user",
            "assistant",
            "tool",
            "user"
        ]
    );
    let called: Vec<&str> = [(2, 0), (2, 1), (2, 2), (7, 0)]
        .iter()
        .map(|(at, n)| {
            body["messages"][at]["tool_calls"][n]["id"]
                .as_str()
                .unwrap()
        })
        .collect();
    let answered: Vec<&str> = [3, 4, 5, 8]
        .iter()
        .map(|at| body["messages"][*at]["tool_call_id"].as_str().unwrap())
        .collect();
    assert_eq!(called, answered);
    let mut distinct = called.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 4);
    assert_eq!(
        body["messages"][5]["content"],
        "No result was recorded for this call."
    );
}

#[test]
fn kimis_own_ids_are_read_by_the_model_and_stay() {
    let history = || loop_of("functions.read:0", "reasoning_content");
    for (dialect, stays) in [
        (Dialect::Moonshot, true),
        (Dialect::Vllm, true),
        (Dialect::Common, false),
        (Dialect::Openai, false),
    ] {
        let body = body(dialect, &of("kimi", history()));
        let id = body["messages"][2]["tool_calls"][0]["id"].as_str().unwrap();
        assert_eq!(id == "functions.read:0", stays, "{dialect:?}");
    }
}

const PNG: &str = "iVBORw0KGgo=";
const PDF: &str = "JVBERi0xLjc=";

fn media(media_type: &str, name: &str) -> UserPart {
    UserPart::Media(Media {
        name: name.into(),
        media_type: media_type.into(),
        data: if media_type == "application/pdf" {
            PDF.into()
        } else {
            PNG.into()
        },
    })
}

#[test]
fn images_and_documents_as_each_server_takes_them() {
    let parts = || {
        vec![
            UserPart::from("see"),
            media("image/png", "a.png"),
            media("application/pdf", "b.pdf"),
            UserPart::from("well?"),
        ]
    };
    let content = |dialect| {
        let request = of("m", vec![RequestMessage::User { parts: parts() }]);
        body(dialect, &request)["messages"][1]["content"].clone()
    };
    let image =
        json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{PNG}")}});
    let openai = content(Dialect::Openai);
    assert_eq!(openai[0], json!({"type": "text", "text": "see"}));
    assert_eq!(openai[1], image);
    assert_eq!(
        openai[2],
        json!({"type": "file", "file": {"filename": "b.pdf", "file_data": format!("data:application/pdf;base64,{PDF}")}})
    );
    assert_eq!(
        content(Dialect::Mistral)[2],
        json!({"type": "document_url", "document_url": format!("data:application/pdf;base64,{PDF}"), "document_name": "b.pdf"})
    );
    assert_eq!(
        content(Dialect::Perplexity)[2],
        json!({"type": "file_url", "file_url": {"url": PDF}, "file_name": "b.pdf"})
    );
    let groq = content(Dialect::Groq);
    assert_eq!(groq[1], image);
    assert!(
        groq[2]["text"].as_str().unwrap().contains("b.pdf"),
        "{groq}"
    );
    let deepseek = content(Dialect::Deepseek);
    let words = deepseek.as_str().expect("words alone");
    assert!(
        words.contains("a.png") && words.contains("b.pdf"),
        "{words}"
    );
    let odd = of(
        "m",
        vec![RequestMessage::User {
            parts: vec![media("image/svg+xml", "c.svg")],
        }],
    );
    let odd = body(Dialect::Openai, &odd);
    assert!(
        odd["messages"][1]["content"]
            .as_str()
            .unwrap()
            .contains("c.svg")
    );
}

#[test]
fn bc_s_066_pictures_over_a_servers_limits_are_told_in_words() {
    let content = |dialect, media: Vec<Media>| {
        let parts = media.into_iter().map(UserPart::Media).collect();
        let request = of("m", vec![RequestMessage::User { parts }]);
        body(dialect, &request)["messages"][1]["content"].to_string()
    };
    let shown = |text: &str| text.matches("image_url\":{").count();
    let picture = |name: &str, media_type: &str, data: String| Media {
        name: name.into(),
        media_type: media_type.into(),
        data: data.into(),
    };
    let gif = || picture("a.gif", "image/gif", "R0lGODlhAQABAAAAACw=".into());
    let png = |bytes: usize| {
        let rest = "AAAA".repeat(bytes / 3);
        picture("a.png", "image/png", format!("iVBORw0KGgoA{rest}"))
    };
    for dialect in [Dialect::Google, Dialect::Xai, Dialect::Dashscope] {
        let said = content(dialect, vec![gif()]);
        assert!(
            said.contains("image/gif is not taken"),
            "{dialect:?}: {said}"
        );
        assert_eq!(shown(&content(dialect, vec![png(0)])), 1, "{dialect:?}");
    }
    assert_eq!(shown(&content(Dialect::Openai, vec![gif()])), 1);
    for (dialect, takes) in [
        (Dialect::Groq, false),
        (Dialect::Zai, false),
        (Dialect::Openai, true),
    ] {
        let said = content(dialect, vec![png(6_000_000)]);
        assert_eq!(shown(&said) == 1, takes, "{dialect:?}");
        assert!(takes || said.contains("at most"), "{dialect:?}");
    }
    // One too many: the oldest goes, not all.
    for (dialect, most) in [(Dialect::Groq, 5), (Dialect::Mistral, 8)] {
        let many = content(dialect, vec![png(0); most + 1]);
        let left = shown(&many);
        assert!(left <= most && left > most / 2, "{dialect:?}: {left}");
    }
    // A file that only claims to be a picture.
    let fake = content(
        Dialect::Common,
        vec![picture("x.png", "image/png", "AAAA".into())],
    );
    assert_eq!(shown(&fake), 0);
}

#[test]
fn an_answers_form_as_far_as_the_server_can_promise_it() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false});
    let request = |tools: bool, schema: &Value| {
        let mut request = of("m", vec![user("go")]);
        if !tools {
            request.tools.clear();
        }
        request.output_schema = Some(OutputSchema {
            name: "answer".into(),
            schema: schema.clone(),
        });
        request
    };
    let ask = |dialect, tools| body(dialect, &request(tools, &schema));
    for (dialect, with_tools) in [
        (Dialect::Openai, true),
        (Dialect::Openrouter, true),
        (Dialect::Mistral, true),
        (Dialect::Groq, false),
        (Dialect::LlamaCpp, false),
        (Dialect::Vllm, false),
        (Dialect::LmStudio, false),
    ] {
        let format = &ask(dialect, false)["response_format"];
        assert_eq!(format["type"], "json_schema", "{dialect:?}");
        assert_eq!(
            format["json_schema"],
            json!({"name": "answer", "schema": schema, "strict": true})
        );
        let tools = ask(dialect, true);
        assert_eq!(
            tools.get("response_format").is_some(),
            with_tools,
            "{dialect:?}"
        );
        let words = tools["messages"][0]["content"].as_str().unwrap();
        assert_eq!(words.contains("JSON Schema"), !with_tools, "{dialect:?}");
    }
    for dialect in [Dialect::Deepseek, Dialect::Zai] {
        let body = ask(dialect, true);
        assert_eq!(body["response_format"], json!({"type": "json_object"}));
        let words = body["messages"][0]["content"].as_str().unwrap();
        assert!(words.contains("JSON") && words.contains("additionalProperties"));
    }
    let common = ask(Dialect::Common, false);
    assert!(common.get("response_format").is_none());
    assert!(
        common["messages"][0]["content"]
            .as_str()
            .unwrap()
            .starts_with("You help.")
    );
    let loose = request(
        false,
        &json!({"type": "object", "properties": {"a": {"type": "string"}}}),
    );
    let loose = body(Dialect::Openai, &loose);
    assert_eq!(loose["response_format"]["json_schema"]["strict"], false);
}

#[test]
fn choices_of_tools_in_each_servers_words() {
    let named = json!({"type": "function", "function": {"name": "read"}});
    let ask = |dialect, choice: ToolChoice| {
        let request = Request {
            tool_choice: choice,
            ..of("m", vec![user("go")])
        };
        body(dialect, &request)
    };
    let tool = || ToolChoice::Tool("read".into());
    for (dialect, none, required, one) in [
        (
            Dialect::Openai,
            json!("none"),
            json!("required"),
            named.clone(),
        ),
        (Dialect::Mistral, json!("none"), json!("any"), named.clone()),
        (
            Dialect::LmStudio,
            json!("none"),
            json!("required"),
            json!("required"),
        ),
        (
            Dialect::Deepseek,
            json!("none"),
            json!("auto"),
            json!("auto"),
        ),
        (Dialect::Zai, json!(null), json!("auto"), json!("auto")),
    ] {
        assert_eq!(
            ask(dialect, ToolChoice::None)["tool_choice"],
            none,
            "{dialect:?}"
        );
        assert_eq!(
            ask(dialect, ToolChoice::Required)["tool_choice"],
            required,
            "{dialect:?}"
        );
        assert_eq!(ask(dialect, tool())["tool_choice"], one, "{dialect:?}");
    }
    let hidden = ask(Dialect::Zai, ToolChoice::None);
    assert!(
        hidden.get("tools").is_none(),
        "what cannot be forbidden is not shown"
    );
    let calm = Request {
        tool_choice: ToolChoice::Required,
        effort: Some(Effort::Off),
        ..of("m", vec![user("go")])
    };
    assert_eq!(body(Dialect::Deepseek, &calm)["tool_choice"], "required");
    let nobody = ask(Dialect::Openai, ToolChoice::Tool("nobody".into()));
    assert_eq!(nobody["tool_choice"], "required");
    let mut many = of("m", vec![user("go")]);
    many.tools = (0..200)
        .map(|n| ToolDef {
            name: format!("t{n}"),
            ..many.tools[0].clone()
        })
        .collect();
    assert_eq!(
        body(Dialect::Openai, &many)["tools"]
            .as_array()
            .unwrap()
            .len(),
        128
    );
}

#[test]
fn thinking_in_each_servers_words() {
    let ask = |dialect, model: &str, effort| {
        let request = Request {
            effort: Some(effort),
            ..of(model, vec![user("go")])
        };
        body(dialect, &request)
    };
    let high = |dialect, model: &str| ask(dialect, model, Effort::High);
    let off = |dialect, model: &str| ask(dialect, model, Effort::Off);
    assert_eq!(high(Dialect::Openai, "gpt-5.2")["reasoning_effort"], "high");
    assert_eq!(off(Dialect::Openai, "gpt-5.2")["reasoning_effort"], "none");
    assert_eq!(
        off(Dialect::Openai, "gpt-5-nano")["reasoning_effort"],
        "minimal"
    );
    assert_eq!(off(Dialect::Openai, "o4-mini")["reasoning_effort"], "low");
    for (dialect, fixed) in [
        (Dialect::Openai, "gpt-4o"),
        (Dialect::Openai, "gpt-4.1"),
        (Dialect::Xai, "grok-3"),
        (Dialect::Xai, "grok-code-fast-1"),
    ] {
        let body = high(dialect, fixed);
        assert_eq!(
            body.get("reasoning_effort"),
            None,
            "{fixed} refuses the field"
        );
    }
    assert_eq!(
        high(Dialect::Openrouter, "m")["reasoning"],
        json!({"effort": "high"})
    );
    assert_eq!(high(Dialect::Mistral, "m")["reasoning_effort"], "high");
    let deepseek = high(Dialect::Deepseek, "m");
    assert_eq!(
        (&deepseek["thinking"], &deepseek["reasoning_effort"]),
        (&json!({"type": "enabled"}), &json!("max"))
    );
    assert_eq!(
        high(Dialect::Groq, "qwen/qwen3-32b")["reasoning_effort"],
        "default"
    );
    assert_eq!(
        off(Dialect::Groq, "qwen/qwen3-32b")["reasoning_effort"],
        "none"
    );
    assert_eq!(
        off(Dialect::Together, "m")["reasoning"],
        json!({"enabled": false})
    );
    assert_eq!(
        high(Dialect::Zai, "glm")["thinking"],
        json!({"type": "enabled", "clear_thinking": false})
    );
    for (dialect, model, word) in [
        (Dialect::Cerebras, "gpt-oss-120b", Some("low")),
        (Dialect::Cerebras, "qwen-3.8-27b", Some("none")),
        (
            Dialect::Fireworks,
            "accounts/fireworks/models/kimi-k2p6",
            None,
        ),
        (
            Dialect::Fireworks,
            "accounts/fireworks/models/glm-5p1",
            Some("none"),
        ),
        (
            Dialect::Fireworks,
            "accounts/fireworks/models/gpt-oss-20b",
            Some("low"),
        ),
        (Dialect::Moonshot, "kimi-k3", Some("low")),
        (Dialect::Moonshot, "kimi-k2.6", None),
    ] {
        let said = off(dialect, model);
        assert_eq!(
            said.get("reasoning_effort").and_then(Value::as_str),
            word,
            "{model}"
        );
    }
    assert_eq!(
        high(Dialect::Moonshot, "kimi-k3")["reasoning_effort"],
        "max"
    );
    let k2 = off(Dialect::Moonshot, "kimi-k2.6");
    assert_eq!(k2["thinking"], json!({"type": "disabled"}));
    for always in ["kimi-k3", "kimi-k2.7-code", "kimi-k2-thinking"] {
        let body = off(Dialect::Moonshot, always);
        assert!(
            body.get("thinking").is_none(),
            "{always} cannot be switched"
        );
    }
    assert_eq!(off(Dialect::Dashscope, "qwen")["enable_thinking"], false);
    assert_eq!(
        off(Dialect::Vllm, "m")["chat_template_kwargs"]["enable_thinking"],
        false
    );
    assert_eq!(high(Dialect::Vllm, "m")["reasoning_effort"], "high");
    assert!(
        high(Dialect::Xai, "grok-4")
            .get("reasoning_effort")
            .is_none()
    );
    let silent = body(Dialect::Openai, &of("m", vec![user("go")]));
    assert!(
        silent.get("reasoning_effort").is_none(),
        "left to the vendor"
    );
}

#[test]
fn tools_of_the_servers_own_and_other_fields() {
    let ask = |dialect, model: &str| {
        let request = Request {
            hosted_tools: vec![HostedTool::WebSearch, HostedTool::CodeExecution],
            max_output: Some(7),
            ..of(model, vec![user("go")])
        };
        body(dialect, &request)
    };
    assert_eq!(
        ask(Dialect::Openrouter, "m")["tools"][1],
        json!({"type": "openrouter:web_search"})
    );
    assert_eq!(
        ask(Dialect::Groq, "groq/compound")["compound_custom"]["tools"]["enabled_tools"],
        json!(["web_search", "visit_website", "code_interpreter"])
    );
    assert_eq!(
        ask(Dialect::Groq, "openai/gpt-oss-120b")["tools"][2],
        json!({"type": "code_interpreter"})
    );
    assert_eq!(ask(Dialect::Dashscope, "qwen")["enable_search"], true);
    assert_eq!(ask(Dialect::Zai, "glm")["tools"][1]["type"], "web_search");
    let common = ask(Dialect::Common, "m");
    assert_eq!(common["tools"].as_array().unwrap().len(), 1);
    assert_eq!(common["max_tokens"], 7);
    let azure = ask(Dialect::Azure, "gpt");
    assert_eq!(azure["max_completion_tokens"], 7);
    assert!(azure.get("prompt_cache_key").is_none());
    assert_eq!(ask(Dialect::Moonshot, "kimi")["prompt_cache_key"], "ses_1");
    assert_eq!(ask(Dialect::Xai, "grok-5").get("search_parameters"), None);
}

#[test]
fn every_dialect_keeps_the_prefix_of_an_earlier_request() {
    for dialect in Dialect::all() {
        let mut history = loop_of("call_1", "reasoning_content");
        let short = raw(dialect, &of("m", history.clone()));
        history.extend([
            assistant(vec![call("call_1"), call("odd id")]),
            answers(&["call_1", "odd id"]),
            note("Again."),
        ]);
        let longer = raw(dialect, &of("m", history));
        assert!(
            longer.starts_with(short.trim_end_matches(['}', ']'])),
            "{dialect:?}\n{short}\n{longer}"
        );
    }
}
