//! Several protocols in one session: what one made rests while another is asked, and returns byte for byte;
//! and consecutive requests to one begin with the same bytes.
//!
//! Every test here runs over all protocols of [`ALL`]: a new one joins by a row there.

use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::time::SystemTime;
use tenure_core::event::body::*;
use tenure_core::history::{RequestPlan, build};
use tenure_core::model::{ModelLimits, ModelRef};
use tenure_core::provider::{Finish, NativeState};
use tenure_core::request::{HostedTool, Media, Request, RequestMessage, ToolDef};
use tenure_core::session::SessionState;
use tenure_core::{CallId, Event, EventBody, EventId, MessageId, SessionError, SessionId, Usage};
use tenure_provider::{Dialect, Protocol, classify, encode};
use tenure_scripted::validate::{self, Broken};

/// One protocol with what a turn of it leaves behind.
struct Row {
    protocol: Protocol,
    provider: &'static str,
    model: &'static str,
    validate: fn(&Value) -> Result<(), Vec<Broken>>,
    /// Where its body keeps the conversation.
    messages: &'static str,
    /// The provider's own JSON of reasoning, of text, of a call, of a hosted call and of its result; `{n}` is
    /// the turn's number.
    reasoning: Option<&'static str>,
    text: Option<&'static str>,
    call: Option<&'static str>,
    hosted: Option<(&'static str, Option<&'static str>)>,
}

const BEDROCK_MODEL: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";

const ALL: &[Row] = &[
    Row {
        protocol: Protocol::AnthropicMessages,
        provider: "anthropic",
        model: "claude-sonnet-4-6",
        validate: validate::anthropic_messages,
        messages: "messages",
        reasoning: Some(r#"{"type":"thinking","thinking":"hm {n}","signature":"SIG-{n}=="}"#),
        text: None,
        call: None,
        hosted: Some((
            r#"{"type":"server_tool_use","id":"srvtoolu_{n}","name":"web_search","input":{"query":"q"}}"#,
            Some(
                r#"{"type":"web_search_tool_result","tool_use_id":"srvtoolu_{n}","content":[{"type":"web_search_result","url":"https://a.example/{n}","title":"A","encrypted_content":"ENC-{n}"}]}"#,
            ),
        )),
    },
    Row {
        protocol: Protocol::OpenaiResponses,
        provider: "openai",
        model: "gpt-5.4",
        validate: validate::openai_responses,
        messages: "input",
        reasoning: Some(
            r#"{"id":"rs_{n}","type":"reasoning","summary":[{"type":"summary_text","text":"hm {n}"}],"encrypted_content":"ENC-{n}"}"#,
        ),
        text: Some(
            r#"{"id":"msg_{n}","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"looking {n}","annotations":[]}]}"#,
        ),
        call: Some(
            r#"{"id":"fc_{n}","type":"function_call","status":"completed","arguments":"{\"path\":\"{n}\"}","call_id":"call_{n}","name":"read"}"#,
        ),
        hosted: Some((
            r#"{"id":"ws_{n}","type":"web_search_call","status":"completed","action":{"type":"search","query":"q"}}"#,
            None,
        )),
    },
    Row {
        protocol: Protocol::OpenaiChat,
        provider: "local",
        model: "small",
        validate: validate::openai_chat,
        messages: "messages",
        reasoning: Some(r#"{"field":"reasoning_content"}"#),
        text: None,
        call: None,
        hosted: None,
    },
    Row {
        protocol: Protocol::Gemini,
        provider: "google",
        model: "gemini-2.5-pro",
        validate: validate::gemini,
        messages: "contents",
        reasoning: Some(r#"{"text":"hm {n}","thought":true}"#),
        text: Some(r#"{"text":"looking {n}","thoughtSignature":"GSIG-{n}=="}"#),
        call: Some(r#"{"functionCall":{},"thoughtSignature":"GCALL-SIG-{n}=="}"#),
        hosted: Some((
            r#"{"executableCode":{"language":"PYTHON","code":"print({n})"}}"#,
            Some(r#"{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"found {n}"}}"#),
        )),
    },
    Row {
        protocol: Protocol::BedrockConverse,
        provider: "aws",
        model: BEDROCK_MODEL,
        validate: |body| validate::bedrock_converse_model(BEDROCK_MODEL, body),
        messages: "messages",
        reasoning: Some(
            r#"{"reasoningContent":{"reasoningText":{"text":"hm {n}","signature":"BSIG-{n}=="}}}"#,
        ),
        text: None,
        call: None,
        hosted: None,
    },
];

/// A log under construction.
#[derive(Default)]
struct Log {
    events: Vec<Event>,
    turns: u64,
}

impl Log {
    fn new() -> Self {
        let mut log = Self::default();
        log.add(SessionCreated {
            title: None,
            location: Location::at("/w".to_owned()),
            model: reference(&ALL[0]),
            limits: Limits::default(),
            permissions: Value::Null,
        });
        log.add(InstructionsSet {
            parts: vec!["You are an agent.".to_owned()],
            digest: "1".to_owned(),
        });
        log
    }

    fn add(&mut self, body: impl Into<EventBody>) {
        let seq = self.events.len() as u64;
        self.events.push(Event {
            id: EventId::from_bits(u128::from(seq) + 1),
            session: SessionId::from_bits(1),
            seq,
            epoch: Some(1),
            created_ms: 0,
            body: body.into(),
        });
    }

    fn say(&mut self, kind: InputKind) {
        let input = MessageId::from_bits(self.events.len() as u128 + 1_000);
        self.add(InputAdmitted {
            input: input.clone(),
            kind,
            delivery: Delivery::Steer,
        });
        self.add(InputPromoted { input });
    }

    fn state(&self) -> SessionState {
        SessionState::fold(&self.events)
    }

    /// A step of `row` that thinks, searches, speaks and calls; with `whole` false its reasoning is cut and
    /// its call settled by an interrupt.
    fn step(&mut self, row: &Row, whole: bool) {
        self.turns += 1;
        let n = self.turns;
        let message = MessageId::from_bits(u128::from(n) + 5_000);
        self.add(StepStarted {
            message: message.clone(),
            step: 1,
            model: reference(row),
            last: false,
        });
        self.add(AttemptStarted {
            message: message.clone(),
            attempt: 1,
            model: reference(row),
            request_hash: String::new(),
            at_most: None,
        });
        let own = |text: Option<&str>| text.map(|text| native(row, text, n));
        // Parts are numbered without gaps.
        let mut next = 1;
        self.fragment(
            &message,
            0,
            FragmentKind::Reasoning,
            &format!("hm {n}"),
            own(row.reasoning),
            whole,
        );
        if let Some((call, result)) = row.hosted.filter(|_| whole) {
            self.hosted(&message, own(Some(call)), own(result), n);
            next += 1;
        }
        self.fragment(
            &message,
            next,
            FragmentKind::Text,
            &format!("looking {n}"),
            own(row.text),
            whole,
        );
        let call = CallId::new(format!("call_{n}"));
        self.add(ToolCalled {
            message: message.clone(),
            part: next + 1,
            attempt: 1,
            call: call.clone(),
            name: "read".to_owned(),
            input: format!("{{\"path\":\"{n}\"}}"),
            executed: false,
            native: own(row.call),
        });
        self.end(message, call, whole);
    }

    fn end(&mut self, message: MessageId, call: CallId, whole: bool) {
        let usage = Usage::default();
        if whole {
            self.add(AttemptEnded {
                message: message.clone(),
                attempt: 1,
                finish: Finish::ToolCalls,
                raw_finish: None,
                usage: Some(usage),
                cost: None,
                error: None,
            });
            self.add(ToolSucceeded {
                message: message.clone(),
                call,
                text: "content".to_owned(),
                title: String::new(),
                metadata: Value::Null,
                cut: None,
                native: None,
            });
            self.add(StepEnded {
                message,
                finish: Finish::ToolCalls,
                usage,
                cost: None,
            });
        } else {
            self.add(ToolFailed {
                message: message.clone(),
                call,
                failure: ToolFailure::Interrupted,
                text: "Tool execution interrupted".to_owned(),
                cut: None,
                native: None,
            });
            self.add(StepFailed {
                message,
                error: SessionError::new("interrupted", "by the user"),
                usage,
                cost: None,
            });
        }
    }

    fn fragment(
        &mut self,
        message: &MessageId,
        part: u32,
        kind: FragmentKind,
        text: &str,
        native: Option<NativeState>,
        whole: bool,
    ) {
        self.add(FragmentStarted {
            message: message.clone(),
            part,
            attempt: 1,
            kind,
        });
        self.add(FragmentChunk {
            message: message.clone(),
            part,
            text: text.to_owned(),
        });
        self.add(FragmentEnded {
            message: message.clone(),
            part,
            bytes: text.len() as u64,
            hash: String::new(),
            native: native.filter(|_| whole),
            partial: !whole,
            superseded: false,
        });
    }

    fn hosted(
        &mut self,
        message: &MessageId,
        call: Option<NativeState>,
        result: Option<NativeState>,
        n: u64,
    ) {
        let id = CallId::new(format!("srvtoolu_{n}"));
        self.add(ToolCalled {
            message: message.clone(),
            part: 1,
            attempt: 1,
            call: id.clone(),
            name: "web_search".to_owned(),
            input: "{\"query\":\"q\"}".to_owned(),
            executed: true,
            native: call,
        });
        self.add(ToolSucceeded {
            message: message.clone(),
            call: id,
            text: format!("found {n}"),
            title: String::new(),
            metadata: Value::Null,
            cut: None,
            native: result,
        });
    }
}

fn reference(row: &Row) -> ModelRef {
    ModelRef {
        provider: row.provider.to_owned(),
        model: row.model.to_owned(),
    }
}

fn native(row: &Row, text: &str, n: u64) -> NativeState {
    NativeState {
        protocol: row.protocol.as_str().to_owned(),
        provider: row.provider.to_owned(),
        model: row.model.to_owned(),
        native: text.replace("{n}", &n.to_string()),
    }
}

fn request(state: &SessionState, row: &Row) -> Request {
    build(
        state,
        &RequestPlan {
            model: reference(row),
            protocol: row.protocol.as_str().to_owned(),
            tools: vec![ToolDef {
                name: "read".to_owned(),
                description: "Reads.".to_owned(),
                input_schema: serde_json::json!({"type": "object", "properties": {}}),
            }],
            last_step: false,
            max_output: Some(8_000),
            cache_key: "ses_1".to_owned(),
            hosted_tools: vec![HostedTool::WebSearch],
            effort: None,
            blind: Default::default(),
        },
    )
}

/// The body for `row`, which its vendor would accept.
fn body(log: &Log, row: &Row) -> String {
    let state = log.state();
    let limits = ModelLimits {
        context: None,
        output: None,
    };
    let encoded = encode(
        row.protocol,
        Dialect::Common,
        &limits,
        &request(&state, row),
    )
    .expect("something to send");
    let body = String::from_utf8(encoded.body.to_vec()).expect("JSON is UTF-8");
    let value = serde_json::from_str(&body).expect("JSON");
    if let Err(broken) = (row.validate)(&value) {
        panic!("{:?}: {broken:#?}\n{body}", row.protocol);
    }
    body
}

/// The fields of `body` as they are written, without cache marks.
fn fields(body: &str) -> BTreeMap<String, String> {
    let plain = body
        .replace(",\"cache_control\":{\"type\":\"ephemeral\"}", "")
        .replace(",{\"cachePoint\":{\"type\":\"default\"}}", "");
    let fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&plain).expect("an object");
    let text = |(key, value): (String, Box<RawValue>)| (key, value.get().to_owned());
    fields.into_iter().map(text).collect()
}

/// The conversation in `body`, up to its last word: a text may go on in a later request.
fn conversation(body: &str, row: &Row) -> String {
    let conversation = fields(body).remove(row.messages).expect("a conversation");
    conversation.trim_end_matches(['}', ']', '"']).to_owned()
}

/// Everything beside the conversation.
fn beside(body: &str, row: &Row) -> BTreeMap<String, String> {
    let mut fields = fields(body);
    fields.remove(row.messages);
    fields
}

/// Every piece of a vendor's own JSON that a turn `n` of `row` left, apart from fields that are only names.
fn own_pieces(row: &Row, n: u64) -> Vec<String> {
    let hosted = row
        .hosted
        .into_iter()
        .flat_map(|(call, result)| [Some(call), result]);
    // Beside a call that is written anew, Gemini's signature is kept as it was.
    let beside = |call: &'static str| call.strip_prefix("{\"functionCall\":{},");
    let call = row.call.map(|call| match beside(call) {
        Some(field) => field.trim_end_matches('}'),
        None => call,
    });
    [row.reasoning, row.text, call]
        .into_iter()
        .chain(hosted)
        .flatten()
        .filter(|text| text.contains("{n}"))
        .map(|text| text.replace("{n}", &n.to_string()))
        .collect()
}

#[test]
fn bc_s_065_over_every_pair_of_protocols_state_rests_and_returns_byte_for_byte() {
    for a in ALL {
        for b in ALL.iter().filter(|b| b.protocol != a.protocol) {
            let mut log = Log::new();
            log.say(InputKind::user("look"));
            log.step(a, true);
            let before = body(&log, a);
            for piece in own_pieces(a, 1) {
                assert!(
                    before.contains(&piece),
                    "{:?}: {piece}\n{before}",
                    a.protocol
                );
            }
            log.say(InputKind::user("now you"));
            let foreign = body(&log, b);
            for piece in own_pieces(a, 1)
                .iter()
                .chain(&["SIG-1".into(), "ENC-1".into()])
            {
                assert!(
                    !foreign.contains(piece.as_str()),
                    "{:?} reads {:?}: {piece}\n{foreign}",
                    b.protocol,
                    a.protocol
                );
            }
            if a.hosted.is_some() {
                assert!(
                    foreign.contains("found 1"),
                    "hosted results are told in words"
                );
            }
            log.step(b, true);
            body(&log, b);
            log.say(InputKind::user("and you again"));
            let back = body(&log, a);
            for piece in own_pieces(a, 1) {
                assert!(back.contains(&piece), "{:?} {piece}\n{back}", a.protocol);
            }
            // The foreign turn in between changes nothing in front of it.
            assert!(
                conversation(&back, a).starts_with(&conversation(&before, a)),
                "{:?} after {:?}",
                a.protocol,
                b.protocol
            );
            for piece in own_pieces(b, 2) {
                assert!(!back.contains(&piece), "{:?}: {piece}", a.protocol);
            }
        }
    }
}

#[test]
fn another_model_family_of_the_same_provider_gets_no_signed_reasoning() {
    for row in ALL.iter().filter(|row| !own_pieces(row, 1).is_empty()) {
        let mut log = Log::new();
        log.say(InputKind::user("look"));
        log.step(row, true);
        let other = Row {
            model: "another-model",
            ..*row
        };
        let foreign = body(&log, &other);
        for secret in ["SIG-1", "ENC-1"] {
            assert!(!foreign.contains(secret), "{:?}: {foreign}", row.protocol);
        }
        let dated = format!("{}-20991231", row.model);
        let own = Row {
            model: Box::leak(dated.into_boxed_str()),
            ..*row
        };
        let piece = own_pieces(row, 1)[0].clone();
        assert!(
            body(&log, &own).contains(&piece),
            "a date makes no other family"
        );
    }
}

/// What happens between two requests of one epoch.
type Between = (&'static str, fn(&mut Log, &Row));

const BETWEEN: &[Between] = &[
    ("a step", |log, row| log.step(row, true)),
    ("an interrupt and a prompt", |log, row| {
        log.step(row, false);
        log.say(InputKind::user("go on"));
    }),
    ("a retried attempt", |log, row| {
        log.step(row, true);
        // What was given up is in the log, and in no request.
        let message = MessageId::from_bits(9_000);
        log.add(StepStarted {
            message: message.clone(),
            step: 2,
            model: reference(row),
            last: false,
        });
        log.fragment(&message, 0, FragmentKind::Text, "half", None, false);
        if let Some(EventBody::FragmentEnded(end)) = log.events.last_mut().map(|e| &mut e.body) {
            end.superseded = true;
        }
        log.add(StepFailed {
            message,
            error: SessionError::new("cut", "cut"),
            usage: Usage::default(),
            cost: None,
        });
        log.say(InputKind::user("again"));
    }),
    ("changed instructions", |log, row| {
        log.step(row, true);
        log.add(InstructionsChanged {
            text: "From now on be brief.".to_owned(),
            digest: "2".to_owned(),
        });
        log.say(InputKind::user("well?"));
    }),
    ("a picture and a file", |log, row| {
        log.step(row, true);
        log.say(InputKind::User {
            text: "look at this".to_owned(),
            files: vec![AttachedFile {
                name: "a.txt".to_owned(),
                text: "text".to_owned(),
            }],
            media: vec![Media {
                name: "a.png".to_owned(),
                media_type: "image/png".to_owned(),
                data: "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==".into(),
            }],
            schema: None,
            effort: None,
        });
    }),
];

#[test]
fn consecutive_requests_share_their_whole_beginning_byte_for_byte() {
    for row in ALL {
        for first in BETWEEN {
            for second in BETWEEN {
                let mut log = Log::new();
                log.say(InputKind::user("look"));
                (first.1)(&mut log, row);
                let before = body(&log, row);
                (second.1)(&mut log, row);
                let after = body(&log, row);
                assert_eq!(
                    beside(&before, row),
                    beside(&after, row),
                    "{:?}",
                    row.protocol
                );
                let (before, after) = (conversation(&before, row), conversation(&after, row));
                assert!(
                    after.starts_with(&before),
                    "{:?}: {} then {}\n{before}\n{after}",
                    row.protocol,
                    first.0,
                    second.0
                );
            }
        }
    }
}

#[test]
fn a_log_folded_again_gives_the_same_bytes() {
    for row in ALL {
        let mut log = Log::new();
        log.say(InputKind::user("look"));
        for (_, happen) in BETWEEN {
            happen(&mut log, row);
        }
        let mut kept = SessionState::default();
        for event in &log.events {
            // As it is stored and read back.
            let stored = event.body.encode();
            assert_eq!(stored, event.body.encode());
            kept.apply(event);
        }
        let (again, kept) = (request(&log.state(), row), request(&kept, row));
        assert_eq!(again, kept);
        assert_eq!(body(&log, row), body(&log, row));
    }
}

/// What vendors answer to a picture they do not take: statuses and bodies as they were seen.
fn picture_refusals(protocol: Protocol) -> &'static [(u16, &'static str)] {
    match protocol {
        Protocol::AnthropicMessages => &[
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.0.content.0.image.source.base64.data: At least one of the image dimensions exceed max allowed size: 8000 pixels"}}"#,
            ),
            (
                413,
                r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
            ),
        ],
        Protocol::OpenaiResponses => &[(
            400,
            r#"{"error":{"message":"The image data you provided does not represent a valid image. Please check your input and try again.","type":"invalid_request_error","param":"input","code":"invalid_value"}}"#,
        )],
        Protocol::OpenaiChat => &[
            (
                404,
                r#"{"error":{"message":"No endpoints found that support image input","code":404}}"#,
            ),
            (
                500,
                r#"{"error":{"code":500,"message":"image input is not supported - hint: if this is unexpected, you may need to provide the mmproj","type":"server_error"}}"#,
            ),
            (
                400,
                r#"{"error":{"message":"Failed to deserialize the JSON body into the target type: messages[1]: unknown variant `image_url`, expected `text` at line 1 column 900","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}"#,
            ),
        ],
        Protocol::Gemini => &[
            (
                400,
                r#"{"error":{"code":400,"message":"Unable to process input image. Please retry or report in https://developers.generativeai.google/guide/troubleshooting","status":"INVALID_ARGUMENT"}}"#,
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"Request contains an invalid argument.","status":"INVALID_ARGUMENT"}}"#,
            ),
        ],
        Protocol::BedrockConverse => &[(
            400,
            r#"{"message":"This model doesn't support the image content block that you provided."}"#,
        )],
    }
}

/// What vendors answer to state of theirs that no longer holds.
fn state_refusals(protocol: Protocol) -> &'static [(u16, &'static str)] {
    match protocol {
        Protocol::AnthropicMessages => &[
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.1.content.0: Invalid `signature` in `thinking` block"}}"#,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`."}}"#,
            ),
        ],
        Protocol::OpenaiResponses => &[
            (
                400,
                r#"{"error":{"message":"The encrypted content gAAA...Rg== could not be verified.","type":"invalid_request_error","param":null,"code":"invalid_encrypted_content"}}"#,
            ),
            (
                400,
                r#"{"error":{"message":"Item 'rs_1' of type 'reasoning' was provided without its required following item.","type":"invalid_request_error","param":"input","code":null}}"#,
            ),
            (
                404,
                r#"{"error":{"message":"Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.","type":"invalid_request_error","param":"input","code":null}}"#,
            ),
        ],
        Protocol::OpenaiChat => &[(
            400,
            r#"{"error":{"message":"'messages.2' : for 'role:assistant' the following must be satisfied[('messages.2' : property 'reasoning_content' is unsupported)]","type":"invalid_request_error"}}"#,
        )],
        Protocol::Gemini => &[(
            400,
            r#"{"error":{"code":400,"message":"Corrupted thought signature.","status":"INVALID_ARGUMENT"}}"#,
        )],
        Protocol::BedrockConverse => &[(
            400,
            r#"{"message":"The model returned the following errors: messages.1.content.0: Invalid `signature` in `thinking` block"}"#,
        )],
    }
}

impl Log {
    /// A step that the vendor answers with `status` and `said`.
    fn refused(&mut self, row: &Row, (status, said): (u16, &str)) {
        let message = MessageId::from_bits(self.events.len() as u128 + 9_100);
        self.add(StepStarted {
            message: message.clone(),
            step: 2,
            model: reference(row),
            last: false,
        });
        let error = classify(
            status,
            &Default::default(),
            said.as_bytes(),
            SystemTime::UNIX_EPOCH,
        );
        self.add(StepFailed {
            message,
            error: SessionError::from(&error),
            usage: Usage::default(),
            cost: None,
        });
    }
}

#[test]
fn bc_s_066_a_refused_picture_is_told_in_words_and_the_session_works_on() {
    for (row, refusal) in ALL.iter().flat_map(|row| {
        picture_refusals(row.protocol)
            .iter()
            .map(move |r| (row, *r))
    }) {
        let mut log = Log::new();
        log.say(InputKind::user("look"));
        BETWEEN[4].1(&mut log, row);
        let shown = |log: &Log| {
            let parts = request(&log.state(), row).messages;
            parts.iter().any(|message| {
                matches!(message, RequestMessage::User { parts } if parts.iter().any(|p| p.as_text().is_none()))
            })
        };
        assert!(shown(&log));
        log.refused(row, refusal);
        assert!(
            log.state().wants_step,
            "the step is tried once more by itself after {refusal:?}"
        );
        assert!(!shown(&log), "{refusal:?}");
        assert!(body(&log, row).contains("a.png"));
        log.refused(row, refusal);
        assert!(!shown(&log));
    }
}

#[test]
fn bc_s_061_refused_signatures_are_left_out_of_one_more_try() {
    for (row, refusal) in ALL
        .iter()
        .flat_map(|row| state_refusals(row.protocol).iter().map(move |r| (row, *r)))
    {
        let mut log = Log::new();
        log.say(InputKind::user("look"));
        log.step(row, true);
        let secrets = ["SIG-1", "ENC-1", "reasoning_content"];
        let holds = |body: &str| secrets.iter().any(|secret| body.contains(secret));
        assert!(holds(&body(&log, row)), "{:?}", row.protocol);
        log.refused(row, refusal);
        assert!(log.state().wants_step, "{refusal:?}");
        let repaired = body(&log, row);
        assert!(!holds(&repaired), "{refusal:?}: {repaired}");
        log.refused(row, refusal);
        assert!(!log.state().wants_step, "one repair, not two: {refusal:?}");
    }
}

#[test]
fn every_protocol_has_one_row_here() {
    for protocol in Protocol::ALL {
        let rows = ALL.iter().filter(|row| row.protocol == protocol).count();
        assert_eq!(rows, 1, "{protocol:?}");
    }
}
