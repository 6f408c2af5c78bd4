//! The answer to a request that does not stream: one JSON body in the vendor's form.

use serde_json::{Value, json};

use crate::encode::{Plan, Planned, anthropic, anthropic_result, bedrock, chat, gemini, responses};
use crate::issue::Issuer;
use crate::vendor::Vendor;

/// The whole answer as one body.
pub(crate) fn body(plan: &Plan, issuer: &Issuer) -> Value {
    match plan.vendor {
        Vendor::OpenaiChat => chat_completion(plan),
        Vendor::OpenaiResponses => {
            responses::final_response(plan, &responses::collect(plan, issuer))
        }
        Vendor::AnthropicMessages => message(plan),
        Vendor::Gemini => gemini::whole(plan),
        Vendor::BedrockConverse => bedrock::whole(plan),
    }
}

fn chat_completion(plan: &Plan) -> Value {
    let (mut text, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    for part in &plan.parts {
        match part {
            Planned::Text { pieces, .. } => text.push_str(&pieces.whole()),
            Planned::Reasoning { pieces, redacted: false, .. } => reasoning.push_str(&pieces.whole()),
            Planned::Call { id, name, pieces } => calls.push(json!({
                "id": id, "type": "function", "function": {"name": name, "arguments": pieces.whole()}
            })),
            Planned::Reasoning { .. } | Planned::Hosted { .. } => {}
        }
    }
    let mut message = json!({"role": "assistant", "content": text, "refusal": null});
    if !reasoning.is_empty() {
        message["reasoning_content"] = json!(reasoning);
    }
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    let finish = chat::finish_reason(&plan.finish);
    json!({
        "id": plan.id, "object": "chat.completion", "created": plan.created, "model": plan.model,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish}],
        "usage": plan.tokens.map(chat::usage), "system_fingerprint": "fp_scripted"
    })
}

fn message(plan: &Plan) -> Value {
    let mut content = Vec::new();
    for part in &plan.parts {
        match part {
            Planned::Text { pieces, .. } => {
                content.push(json!({"type": "text", "text": pieces.whole()}))
            }
            Planned::Reasoning {
                seal,
                redacted: true,
                ..
            } => {
                content.push(json!({"type": "redacted_thinking", "data": seal}));
            }
            Planned::Reasoning { pieces, seal, .. } => {
                content.push(
                    json!({"type": "thinking", "thinking": pieces.whole(), "signature": seal}),
                );
            }
            Planned::Call { id, name, pieces } => {
                let raw = pieces.whole();
                // A whole body cannot carry malformed JSON where an object belongs; it becomes a string there.
                let input = serde_json::from_str(&raw).unwrap_or(Value::String(raw));
                content.push(json!({"type": "tool_use", "id": id, "name": name, "input": input}));
            }
            Planned::Hosted {
                id,
                name,
                input,
                result,
                failed,
            } => {
                content.push(
                    json!({"type": "server_tool_use", "id": id, "name": name, "input": input}),
                );
                if let Some(result) = result {
                    content.push(anthropic_result(id, name, result, *failed));
                }
            }
        }
    }
    json!({
        "id": plan.id, "type": "message", "role": "assistant", "model": plan.model, "content": content,
        "stop_reason": anthropic::stop_reason(&plan.finish), "stop_sequence": null,
        "usage": plan.tokens.map(|tokens| anthropic::usage(tokens, tokens.output))
    })
}
