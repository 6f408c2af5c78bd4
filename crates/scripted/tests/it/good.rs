//! One good request per vendor that uses as many features as it can.

use serde_json::{Value, json};

/// A grey PNG of one pixel.
pub const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==";
/// The least that looks like a PDF.
pub const PDF: &str = "JVBERi0xLjQKJSVFT0YK";

pub fn chat_good() -> Value {
    json!({
        "model": "m1", "stream": true, "stream_options": {"include_usage": true},
        "max_completion_tokens": 512, "temperature": 0.5, "top_p": 0.9, "n": 1, "stop": ["END"],
        "parallel_tool_calls": true, "tool_choice": "auto", "reasoning_effort": "low",
        "response_format": {"type": "text"},
        "tools": [{"type": "function", "function": {"name": "read", "description": "Reads.",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}}],
        "messages": [
            {"role": "system", "content": "You help."},
            {"role": "user", "content": [{"type": "text", "text": "read both"}], "name": "ann"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{\"path\":\"a\"}"}},
                {"id": "call_2", "type": "function", "function": {"name": "read", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "call_2", "content": ""},
            {"role": "tool", "tool_call_id": "call_1", "content": "A"},
            {"role": "assistant", "content": "done"},
            {"role": "user", "content": "thanks"}
        ]
    })
}

/// To a model of Gemini 3.
pub fn gemini_good() -> Value {
    json!({
        "systemInstruction": {"parts": [{"text": "You help."}]},
        "tools": [{"functionDeclarations": [
            {"name": "read", "description": "Reads.", "parametersJsonSchema": {"type": "object",
                "properties": {"path": {"type": "string"}, "lines": {"type": "array", "items": {"type": "integer"}}},
                "required": ["path"], "additionalProperties": false}},
            {"name": "list", "description": "Lists.", "parameters": {"type": "OBJECT",
                "properties": {"dir": {"type": "STRING"}}}}]},
            {"googleSearch": {}}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["read"]},
            "includeServerSideToolInvocations": true},
        "generationConfig": {"maxOutputTokens": 512, "temperature": 1, "topP": 0.9, "stopSequences": ["END"],
            "responseMimeType": "application/json", "responseJsonSchema": {"type": "object", "properties": {}},
            "thinkingConfig": {"includeThoughts": true, "thinkingLevel": "low"}},
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
        "contents": [
            {"role": "user", "parts": [{"text": "read both"},
                {"inlineData": {"mimeType": "image/png", "data": PNG}},
                {"fileData": {"mimeType": "application/pdf", "fileUri": "files/1"}}]},
            {"role": "model", "parts": [
                {"text": "Two.", "thought": true, "thoughtSignature": "c2ln"},
                {"executableCode": {"code": "print(1)", "language": "PYTHON", "id": "x1"}},
                {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n", "id": "x1"}},
                {"toolCall": {"toolType": "FILE_SEARCH", "id": "s1"}},
                {"toolResponse": {"toolType": "FILE_SEARCH", "id": "s1"}},
                {"text": "reading"},
                {"functionCall": {"id": "c1", "name": "read", "args": {"path": "a"}}, "thoughtSignature": "c2ln"},
                {"functionCall": {"id": "c2", "name": "list"}}]},
            {"role": "user", "parts": [
                {"functionResponse": {"id": "c1", "name": "read", "response": {"output": "A"}}},
                {"functionResponse": {"id": "c2", "name": "list", "response": {"error": "gone"}}},
                {"text": "go on"}]},
            {"role": "model", "parts": [{"text": "done"}, {"text": "", "thoughtSignature": "c2ln"}]},
            {"role": "user", "parts": [{"text": "thanks"}]}
        ]
    })
}

pub fn responses_good() -> Value {
    json!({
        "model": "m1", "stream": true, "store": false, "instructions": "You help.",
        "include": ["reasoning.encrypted_content"], "max_output_tokens": 512, "temperature": 1, "top_p": 1,
        "parallel_tool_calls": true, "tool_choice": "auto", "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {"type": "json_schema", "name": "answer", "strict": true, "schema": {
            "type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
            "additionalProperties": false}}}, "truncation": "disabled",
        "tools": [{"type": "function", "name": "read", "strict": false,
            "parameters": {"type": "object", "properties": {}}},
            {"type": "web_search"}, {"type": "code_interpreter", "container": {"type": "auto"}}],
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "read both"},
                {"type": "input_image", "image_url": format!("data:image/png;base64,{PNG}")},
                {"type": "input_file", "filename": "a.pdf", "file_data": format!("data:application/pdf;base64,{PDF}")}]},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Two."}],
             "encrypted_content": "opaque"},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "arguments": "{}"},
            {"type": "function_call", "id": "fc_2", "call_id": "call_2", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_2", "output": ""},
            {"type": "function_call_output", "call_id": "call_1", "output": "A"},
            {"type": "message", "id": "msg_1", "role": "assistant",
             "content": [{"type": "output_text", "text": "done"}]},
            {"role": "user", "content": "thanks"}
        ]
    })
}

pub fn anthropic_good() -> Value {
    let mark = json!({"type": "ephemeral"});
    json!({
        "model": "m1", "max_tokens": 4096, "stream": true, "top_p": 0.95, "stop_sequences": ["END"],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "system": [{"type": "text", "text": "You help.", "cache_control": mark}],
        "tools": [{"name": "read", "input_schema": {"type": "object", "properties": {}}},
                  {"type": "web_search_20250305", "name": "web_search"},
                  {"type": "code_execution_20250825", "name": "code_execution"}],
        "tool_choice": {"type": "auto"}, "container": "container_1",
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {
            "type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}},
            "required": ["a"], "additionalProperties": false}}},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "read both", "cache_control": mark}]},
            {"role": "assistant", "content": [
                {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
                {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [
                    {"type": "web_search_result", "url": "https://a.example", "title": "A", "encrypted_content": "e"}]},
                {"type": "text", "text": "found", "citations": [
                    {"type": "web_search_result_location", "url": "https://a.example", "title": "A",
                     "encrypted_index": "i", "cited_text": "found"}]}]},
            {"role": "user", "content": [{"type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                {"type": "document", "title": "spec.pdf",
                 "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Two.", "signature": "sig"},
                {"type": "redacted_thinking", "data": "opaque"},
                {"type": "text", "text": "reading"},
                {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}},
                {"type": "tool_use", "id": "toolu_2", "name": "read", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": ""},
                {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": true,
                 "content": [{"type": "text", "text": "A"}]},
                {"type": "text", "text": "go on"}]}
        ]
    })
}
