//! A client that shares no code with the server: raw HTTP/1.1 over a socket, server-sent events, and folds of them.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_scripted::{Handle, Script, ScriptedModel};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub const LIMIT: Duration = Duration::from_secs(20);
pub const CHAT: &str = "/v1/chat/completions";
pub const RESPONSES: &str = "/v1/responses";
pub const MESSAGES: &str = "/v1/messages";
pub const GEMINI: &str = "/v1beta/models/m1:streamGenerateContent?alt=sse";
pub const PATHS: [&str; 3] = [CHAT, RESPONSES, MESSAGES];

/// How the server ended an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Proper,
    Closed,
    Reset,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    /// The chunks of a chunked body, as the server cut them.
    pub chunks: Vec<Vec<u8>>,
    pub body: Vec<u8>,
    pub end: End,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub fn events(&self) -> Vec<(String, Value)> {
        events(&self.body)
    }

    pub fn rules(&self) -> Vec<String> {
        serde_json::from_value(self.json()["scripted"]["rules"].clone()).unwrap()
    }
}

/// The events of a stream: (event name or "", data). Data that is not JSON becomes a string.
pub fn events(body: &[u8]) -> Vec<(String, Value)> {
    let text = String::from_utf8_lossy(body).replace("\r\n", "\n");
    let mut all = Vec::new();
    for block in text.split("\n\n") {
        let (mut name, mut data) = (String::new(), None);
        for line in block.lines() {
            if let Some(value) = line.strip_prefix("event: ") {
                name = value.to_owned();
            } else if let Some(value) = line.strip_prefix("data: ") {
                data = Some(serde_json::from_str(value).unwrap_or_else(|_| json!(value)));
            }
        }
        if let Some(data) = data {
            all.push((name, data));
        }
    }
    all
}

pub async fn serve(script: Script) -> Handle {
    ScriptedModel::builder(script)
        .bind(loopback())
        .await
        .unwrap()
}

pub fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// A minimal valid request of a wire form with one user text.
pub fn ask(path: &str, text: &str) -> Value {
    match path {
        CHAT => json!({"model": "m1", "stream": true, "stream_options": {"include_usage": true},
                       "messages": [{"role": "user", "content": text}]}),
        RESPONSES => json!({"model": "m1", "stream": true, "store": false,
                            "include": ["reasoning.encrypted_content"],
                            "input": [{"role": "user", "content": text}]}),
        GEMINI => json!({"contents": [{"role": "user", "parts": [{"text": text}]}]}),
        _ => json!({"model": "m1", "stream": true, "max_tokens": 4096,
                    "messages": [{"role": "user", "content": text}]}),
    }
}

pub struct Client {
    socket: TcpStream,
    inbox: Vec<u8>,
}

impl Client {
    pub async fn connect(addr: SocketAddr) -> Self {
        Self {
            socket: TcpStream::connect(addr).await.unwrap(),
            inbox: Vec::new(),
        }
    }

    pub async fn send(&mut self, path: &str, extra: &[(&str, &str)], body: &[u8]) {
        let mut head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nanthropic-version: 2023-06-01\r\n\
             content-length: {}\r\n",
            body.len()
        );
        for (name, value) in extra {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        self.send_raw(head.as_bytes()).await;
        self.send_raw(body).await;
    }

    pub async fn send_raw(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
    }

    /// Reads more; an end instead when there is no more.
    async fn more(&mut self) -> Result<(), End> {
        let read = timeout(LIMIT, self.socket.read_buf(&mut self.inbox))
            .await
            .expect("the server is silent");
        match read {
            Ok(0) => Err(End::Closed),
            Ok(_) => Ok(()),
            Err(_) => Err(End::Reset),
        }
    }

    /// Reads until `mark` has arrived.
    pub async fn read_until(&mut self, mark: &str) -> String {
        loop {
            let text = String::from_utf8_lossy(&self.inbox).into_owned();
            if text.contains(mark) {
                return text;
            }
            self.more()
                .await
                .unwrap_or_else(|end| panic!("{end:?} before {mark:?}, got {text}"));
        }
    }

    /// Reads until the server ends the connection.
    pub async fn read_to_end(&mut self) -> End {
        loop {
            if let Err(end) = self.more().await {
                return end;
            }
        }
    }

    pub async fn answer(&mut self) -> Result<Answer, End> {
        let head_end = loop {
            if let Some(at) = self.inbox.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            self.more().await?;
        };
        let head: Vec<u8> = self.inbox.drain(..head_end).collect();
        let head = String::from_utf8(head).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Answer {
            status,
            head,
            chunks: Vec::new(),
            body: Vec::new(),
            end: End::Proper,
        };
        let length = answer
            .head
            .lines()
            .find_map(|l| l.strip_prefix("content-length: ").map(str::to_owned));
        if let Some(length) = length {
            let length: usize = length.parse().unwrap();
            while self.inbox.len() < length {
                self.more().await?;
            }
            answer.body = self.inbox.drain(..length).collect();
            return Ok(answer);
        }
        if let Err(end) = self.chunks(&mut answer.chunks).await {
            answer.end = end;
        }
        answer.body = answer.chunks.concat();
        Ok(answer)
    }

    async fn chunks(&mut self, chunks: &mut Vec<Vec<u8>>) -> Result<(), End> {
        loop {
            let line_end = loop {
                if let Some(at) = self.inbox.windows(2).position(|w| w == b"\r\n") {
                    break at;
                }
                self.more().await?;
            };
            let size =
                usize::from_str_radix(std::str::from_utf8(&self.inbox[..line_end]).unwrap(), 16)
                    .unwrap();
            while self.inbox.len() < line_end + 2 + size + 2 {
                self.more().await?;
            }
            let mut chunk: Vec<u8> = self.inbox.drain(..line_end + 2 + size + 2).collect();
            chunk.drain(..line_end + 2);
            chunk.truncate(size);
            if size == 0 {
                return Ok(());
            }
            chunks.push(chunk);
        }
    }
}

pub async fn post(handle: &Handle, path: &str, body: &Value) -> Answer {
    try_post(handle, path, body).await.unwrap()
}

pub async fn try_post(handle: &Handle, path: &str, body: &Value) -> Result<Answer, End> {
    let mut client = Client::connect(handle.addr()).await;
    client.send(path, &[], body.to_string().as_bytes()).await;
    client.answer().await
}

/// What a stream says, folded.
#[derive(Debug, Default, PartialEq)]
pub struct Said {
    pub text: String,
    pub reasoning: String,
    pub seal: Option<String>,
    /// (id, name, arguments)
    pub calls: Vec<(String, String, String)>,
    pub finish: Option<String>,
    pub usage: Value,
    pub done: bool,
    /// The assistant's part of the next request: blocks, items or one message.
    pub replay: Vec<Value>,
}

pub fn fold(path: &str, events: &[(String, Value)]) -> Said {
    match path {
        CHAT => fold_chat(events),
        RESPONSES => fold_responses(events),
        GEMINI => fold_gemini(events),
        _ => fold_messages(events),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

fn fold_chat(events: &[(String, Value)]) -> Said {
    let mut said = Said::default();
    for (name, data) in events {
        assert_eq!(name, "", "this form names no events");
        if data == "[DONE]" {
            said.done = true;
            continue;
        }
        assert_eq!(data["object"], "chat.completion.chunk");
        let choice = &data["choices"][0];
        said.text.push_str(text(&choice["delta"]["content"]));
        said.reasoning
            .push_str(text(&choice["delta"]["reasoning_content"]));
        for call in choice["delta"]["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let index = call["index"].as_u64().unwrap() as usize;
            let function = &call["function"];
            if index == said.calls.len() {
                assert_eq!(call["type"], "function");
                said.calls.push((
                    text(&call["id"]).into(),
                    text(&function["name"]).into(),
                    String::new(),
                ));
            }
            said.calls[index].2.push_str(text(&function["arguments"]));
        }
        if let Some(finish) = choice["finish_reason"].as_str() {
            said.finish = Some(finish.into());
        }
        if data["usage"].is_object() {
            assert_eq!(data["choices"], json!([]));
            said.usage = data["usage"].clone();
        }
    }
    let calls: Vec<Value> = said
        .calls
        .iter()
        .map(|(id, name, args)| {
            json!({"id": id, "type": "function", "function": {"name": name, "arguments": args}})
        })
        .collect();
    let mut message = json!({"role": "assistant", "content": said.text});
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    said.replay.push(message);
    said
}

fn fold_responses(events: &[(String, Value)]) -> Said {
    let mut said = Said::default();
    for (place, (name, data)) in events.iter().enumerate() {
        assert_eq!(data["type"], name.as_str());
        assert_eq!(data["sequence_number"], place, "sequence numbers are dense");
        match name.as_str() {
            "response.output_text.delta" => said.text.push_str(text(&data["delta"])),
            "response.reasoning_summary_text.delta" => {
                said.reasoning.push_str(text(&data["delta"]))
            }
            "response.function_call_arguments.delta" => {
                said.calls
                    .last_mut()
                    .unwrap()
                    .2
                    .push_str(text(&data["delta"]));
            }
            "response.output_item.added" if data["item"]["type"] == "function_call" => {
                let item = &data["item"];
                said.calls.push((
                    text(&item["call_id"]).into(),
                    text(&item["name"]).into(),
                    String::new(),
                ));
            }
            "response.output_item.done" => {
                let item = &data["item"];
                if let Some(seal) = item["encrypted_content"].as_str() {
                    said.seal = Some(seal.into());
                }
                said.replay.push(item.clone());
            }
            "response.completed" | "response.incomplete" => {
                said.done = true;
                said.finish = Some(text(&data["response"]["status"]).into());
                said.usage = data["response"]["usage"].clone();
                let done = data["response"]["output"].as_array().unwrap();
                assert!(said.replay.iter().all(|item| done.contains(item)));
            }
            _ => {}
        }
    }
    said
}

fn fold_gemini(events: &[(String, Value)]) -> Said {
    let mut said = Said::default();
    for (name, data) in events {
        assert_eq!(name, "", "this form names no events");
        if data.get("error").is_some() {
            continue;
        }
        assert!(!text(&data["responseId"]).is_empty());
        let candidate = &data["candidates"][0];
        assert_eq!(candidate["content"]["role"], "model");
        for part in candidate["content"]["parts"].as_array().unwrap() {
            if part["thought"] == true {
                said.reasoning.push_str(text(&part["text"]));
                continue;
            }
            said.text.push_str(text(&part["text"]));
            if let Some(seal) = part["thoughtSignature"].as_str() {
                said.seal = Some(seal.into());
            }
            if let Some(call) = part.get("functionCall") {
                let word = |key: &str| text(&call[key]).to_owned();
                said.calls
                    .push((word("id"), word("name"), call["args"].to_string()));
            }
            if part["text"] != "" || part.get("thoughtSignature").is_some() {
                said.replay.push(part.clone());
            }
        }
        if let Some(finish) = candidate["finishReason"].as_str() {
            said.finish = Some(finish.into());
            said.done = true;
            said.usage = data["usageMetadata"].clone();
        }
    }
    said
}

fn fold_messages(events: &[(String, Value)]) -> Said {
    let mut said = Said::default();
    for (name, data) in events {
        assert_eq!(data["type"], name.as_str());
        match name.as_str() {
            "content_block_start" => {
                assert_eq!(data["index"], said.replay.len());
                said.replay.push(data["content_block"].clone());
                let block = &data["content_block"];
                if block["type"] == "tool_use" {
                    said.calls.push((
                        text(&block["id"]).into(),
                        text(&block["name"]).into(),
                        String::new(),
                    ));
                }
            }
            "content_block_delta" => fold_block_delta(&mut said, &data["delta"]),
            "message_delta" => {
                said.finish = data["delta"]["stop_reason"].as_str().map(str::to_owned);
                said.usage = data["usage"].clone();
            }
            "message_stop" => said.done = true,
            _ => {}
        }
    }
    for block in said.replay.iter_mut().filter(|b| b["type"] == "tool_use") {
        let call = said
            .calls
            .iter()
            .find(|(id, ..)| block["id"] == id.as_str())
            .unwrap();
        block["input"] = serde_json::from_str(&call.2).unwrap_or(json!({}));
    }
    said
}

fn fold_block_delta(said: &mut Said, delta: &Value) {
    let block = said.replay.last_mut().unwrap();
    let (field, kind) = match delta["type"].as_str().unwrap() {
        "text_delta" => ("text", &mut said.text),
        "thinking_delta" => ("thinking", &mut said.reasoning),
        "signature_delta" => {
            said.seal = Some(text(&delta["signature"]).into());
            block["signature"] = delta["signature"].clone();
            return;
        }
        "input_json_delta" => {
            if block["type"] == "tool_use" {
                said.calls
                    .last_mut()
                    .unwrap()
                    .2
                    .push_str(text(&delta["partial_json"]));
            }
            return;
        }
        other => panic!("unknown delta {other}"),
    };
    kind.push_str(text(&delta[field]));
    block[field] = json!(format!("{}{}", text(&block[field]), text(&delta[field])));
}

/// The request that follows: the history so far, what was said, and the results of its calls.
pub fn follow(path: &str, before: &Value, said: &Said, result: &str) -> Value {
    let mut next = before.clone();
    let ids = said.calls.iter().map(|(id, ..)| id);
    match path {
        CHAT => {
            let list = next["messages"].as_array_mut().unwrap();
            list.extend(said.replay.clone());
            list.extend(
                ids.map(|id| json!({"role": "tool", "tool_call_id": id, "content": result})),
            );
        }
        RESPONSES => {
            let list = next["input"].as_array_mut().unwrap();
            list.extend(said.replay.clone());
            list.extend(ids.map(
                |id| json!({"type": "function_call_output", "call_id": id, "output": result}),
            ));
        }
        GEMINI => {
            let list = next["contents"].as_array_mut().unwrap();
            list.push(json!({"role": "model", "parts": said.replay}));
            let results: Vec<Value> = said
                .calls
                .iter()
                .map(|(id, name, _)| {
                    json!({"functionResponse": {"id": id, "name": name, "response": {"output": result}}})
                })
                .collect();
            list.push(json!({"role": "user", "parts": results}));
        }
        _ => {
            let list = next["messages"].as_array_mut().unwrap();
            list.push(json!({"role": "assistant", "content": said.replay}));
            let results: Vec<Value> = ids
                .map(|id| json!({"type": "tool_result", "tool_use_id": id, "content": result}))
                .collect();
            list.push(json!({"role": "user", "content": results}));
        }
    }
    next
}
