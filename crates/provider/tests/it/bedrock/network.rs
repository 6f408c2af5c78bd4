//! Bedrock over real sockets: signatures, keys, errors, and a conversation with calls.

use futures::StreamExt;
use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderValue};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::time::{Duration, SystemTime};
use tenure_core::error::{ErrorClass, ProviderError};
use tenure_core::model::ModelRef;
use tenure_core::provider::ProviderEvent;
use tenure_core::request::*;
use tenure_provider::{
    AttemptKey, AwsKeys, Finding, HttpProvider, Protocol, Provider, ProviderSettings, Secret,
    probe, sign,
};
use tenure_scripted::{Fault, Handle, Part, Script, ScriptedModel, Turn};

/// The example keys of the vendor's documentation; they open nothing.
const ID: &str = "AKIDEXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const MODEL: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";

fn keys() -> AwsKeys {
    AwsKeys {
        id: Secret::new(ID),
        secret: Secret::new(SECRET),
        token: Some(Secret::new("a-session-token")),
    }
}

async fn serve(script: Script) -> Handle {
    ScriptedModel::builder(script)
        .api_key(format!("{ID}:{SECRET}"))
        .bind("127.0.0.1:0".parse().unwrap())
        .await
        .unwrap()
}

fn settings(model: &Handle) -> ProviderSettings {
    let mut settings = ProviderSettings::new("aws", Protocol::BedrockConverse, model.base_url());
    settings.aws.region = Some("us-west-2".into());
    settings.aws.keys = Some(keys());
    settings
}

fn request(messages: Vec<RequestMessage>) -> Request {
    Request {
        messages,
        tools: vec![ToolDef {
            name: "bash".into(),
            description: "Runs.".into(),
            input_schema: json!({"type": "object", "properties": {}}),
        }],
        ..Request::new(ModelRef {
            provider: "aws".into(),
            model: MODEL.into(),
        })
    }
}

async fn say(
    provider: &HttpProvider,
    request: &Request,
) -> Result<Vec<ProviderEvent>, ProviderError> {
    let encoded = provider.encode(request)?;
    let mut stream = provider.send(encoded, &AttemptKey("att_1".into())).await?;
    let mut events = Vec::new();
    while let Some(item) = stream.next().await {
        events.extend(item?);
    }
    Ok(events)
}

fn user(text: &str) -> RequestMessage {
    RequestMessage::User {
        parts: vec![text.into()],
    }
}

#[tokio::test]
async fn a_signed_conversation_with_reasoning_and_a_call_goes_both_ways() {
    let script = Script::new([
        Turn::default()
            .and(Part::reasoning("Look first."))
            .and(Part::text("I look."))
            .and(Part::call("bash", json!({"command": "ls"}))),
        Turn::text("It is empty."),
    ]);
    let model = serve(script).await;
    let provider = HttpProvider::new(settings(&model)).unwrap();
    let first = say(&provider, &request(vec![user("What is here?")]))
        .await
        .unwrap();
    let got = crate::fold::fold(&first);
    assert_eq!(
        (got.text.as_str(), got.reasoning.as_str()),
        ("I look.", "Look first.")
    );
    let call = &got.calls[0];
    let history = vec![
        user("What is here?"),
        RequestMessage::Assistant {
            blocks: vec![
                AssistantBlock::Reasoning {
                    text: got.reasoning.clone(),
                    native: got.reasonings[0].1.clone(),
                },
                AssistantBlock::Text {
                    text: got.text.clone(),
                    native: None,
                },
                AssistantBlock::ToolCall {
                    id: call.id.clone(),
                    name: call.name.clone(),
                    input: call.input.clone().unwrap(),
                    native: None,
                },
            ],
        },
        RequestMessage::ToolResults {
            results: vec![ToolResult {
                id: call.id.clone(),
                name: call.name.clone(),
                text: "(nothing)".into(),
                is_error: false,
            }],
        },
    ];
    let second = say(&provider, &request(history)).await.unwrap();
    assert_eq!(crate::fold::fold(&second).text, "It is empty.");
    let seen = model.requests();
    assert_eq!(seen.len(), 2);
    assert_eq!(
        seen[0].path,
        "/v1/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream"
    );
    assert_eq!(
        seen[0].header("accept"),
        Some("application/vnd.amazon.eventstream")
    );
    assert!(
        seen[1].body.to_string().contains("tnscripted.b."),
        "sealed reasoning went back"
    );
    model.shutdown().await;
}

#[tokio::test]
async fn a_wrong_key_is_an_auth_error_that_shows_no_key() {
    let model = serve(Script::new([Turn::text("hi")])).await;
    let mut settings = settings(&model);
    settings.aws.keys = Some(AwsKeys {
        secret: Secret::new("another secret"),
        ..keys()
    });
    let provider = HttpProvider::new(settings.clone()).unwrap();
    let error = say(&provider, &request(vec![user("a")])).await.unwrap_err();
    assert_eq!((error.class, error.status), (ErrorClass::Auth, Some(403)));
    assert!(!format!("{error:?} {provider:?}").contains("another secret"));
    let report = probe(&settings, Duration::from_secs(5)).await;
    assert_eq!(report.finding, Finding::Auth, "{}", report.message);
    assert!(report.message.contains("AWS keys"), "{}", report.message);
    model.shutdown().await;
}

#[tokio::test]
async fn a_probe_costs_nothing_and_says_that_the_keys_are_good() {
    let model = serve(Script::new([Turn::text("hi")])).await;
    let report = probe(&settings(&model), Duration::from_secs(5)).await;
    assert_eq!(report.finding, Finding::Ok, "{}", report.message);
    model.shutdown().await;
}

#[tokio::test]
async fn refusals_have_their_class_by_the_header_of_their_type() {
    let fault = |status, error_type: Option<&str>, message: Option<&str>| Turn {
        fault: Some(Fault::Status {
            status,
            headers: std::collections::BTreeMap::new(),
            body: None,
            message: message.map(str::to_owned),
            error_type: error_type.map(str::to_owned),
        }),
        ..Turn::default()
    };
    let overflow = Turn {
        fault: Some(Fault::Overflow {
            used: 300_000,
            limit: 200_000,
        }),
        ..Turn::default()
    };
    let event = |kind: &str| Turn {
        fault: Some(Fault::ErrorEvent {
            after_events: Some(3),
            after_parts: None,
            error_type: Some(kind.to_owned()),
            message: None,
            failed: false,
        }),
        ..Turn::text("some words before it")
    };
    let model = serve(Script::new([
        fault(429, None, None),
        fault(503, None, None),
        fault(500, None, None),
        fault(404, None, None),
        fault(
            403,
            Some("AccessDeniedException"),
            Some("You don't have access to the model."),
        ),
        fault(
            400,
            Some("ExpiredTokenException"),
            Some("The token has expired."),
        ),
        overflow,
        event("throttlingException"),
        event("modelStreamErrorException"),
    ]))
    .await;
    let provider = HttpProvider::new(settings(&model)).unwrap();
    let mut classes = Vec::new();
    for _ in 0..9 {
        let error = say(&provider, &request(vec![user("a")])).await.unwrap_err();
        classes.push(error.class);
    }
    assert_eq!(
        classes,
        [
            ErrorClass::RateLimit,
            ErrorClass::Overloaded,
            ErrorClass::Server,
            ErrorClass::NotFound,
            ErrorClass::Permission,
            ErrorClass::Auth,
            ErrorClass::ContextOverflow,
            ErrorClass::RateLimit,
            ErrorClass::Server,
        ]
    );
    model.shutdown().await;
}

fn hmac(key: &[u8], message: &str) -> Vec<u8> {
    let mut block = [0_u8; 64];
    block[..key.len()].copy_from_slice(key);
    let inner = Sha256::new()
        .chain_update(block.map(|b| b ^ 0x36))
        .chain_update(message);
    Sha256::new()
        .chain_update(block.map(|b| b ^ 0x5c))
        .chain_update(inner.finalize())
        .finalize()
        .to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn a_signature_is_the_one_that_its_description_gives() {
    // 2026-01-02T03:04:05Z, which comes in from outside.
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_323_045);
    let body = b"{\"messages\":[]}";
    let url = "https://bedrock-runtime.us-west-2.amazonaws.com/model/a.b-v1%3A0/converse-stream";
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("x-tenure-attempt", HeaderValue::from_static("att_1"));
    let made = sign(&keys(), "us-west-2", time, url, &headers, body).unwrap();
    assert_eq!(made["x-amz-date"], "20260102T030405Z");
    assert_eq!(made["x-amz-security-token"], "a-session-token");
    let canonical = format!(
        "POST\n/model/a.b-v1%253A0/converse-stream\n\ncontent-type:application/json\n\
         host:bedrock-runtime.us-west-2.amazonaws.com\nx-amz-date:20260102T030405Z\n\
         x-amz-security-token:a-session-token\n\ncontent-type;host;x-amz-date;x-amz-security-token\n{}",
        hex(&Sha256::digest(body))
    );
    let scope = "20260102/us-west-2/bedrock/aws4_request";
    let text = format!(
        "AWS4-HMAC-SHA256\n20260102T030405Z\n{scope}\n{}",
        hex(&Sha256::digest(canonical))
    );
    let mut key = format!("AWS4{SECRET}").into_bytes();
    for part in scope.split('/').chain([text.as_str()]) {
        key = hmac(&key, part);
    }
    assert_eq!(
        made["authorization"],
        format!(
            "AWS4-HMAC-SHA256 Credential={ID}/{scope}, \
             SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, Signature={}",
            hex(&key)
        )
    );
    let again = sign(&keys(), "us-west-2", time, url, &headers, body).unwrap();
    assert_eq!(made, again, "equal arguments give equal signatures");
}
