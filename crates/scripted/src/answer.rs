//! Answers requests on one connection: path, key, rules, turn, and then the stream or the error.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::encode::Plan;
use crate::http::{Conn, ReadError, Request, answer};
use crate::issue::check_seals;
use crate::measure::{measure, output_asked};
use crate::play::play;
use crate::record::{Arrival, Ended, Flight, Verdict};
use crate::route::Route;
use crate::script::{CutHow, Fault, Turn};
use crate::select::{RequestText, TurnId};
use crate::server::Shared;
use crate::sigv4;
use crate::stream::Stop;
use crate::validate::Broken;
use crate::vendor::Vendor;
use crate::whole;

/// Serves a connection until it closes.
pub(crate) async fn serve(shared: Arc<Shared>, mut conn: Conn) {
    loop {
        let request = match conn.read_request().await {
            Ok(request) => request,
            Err(ReadError::Closed | ReadError::Incomplete) => return,
            Err(ReadError::Malformed(what)) => {
                let body = json!({"error": {"message": what, "type": "invalid_request_error"}})
                    .to_string();
                let _ = conn
                    .write_all(&answer(400, &[("connection", "close")], body.as_bytes()))
                    .await;
                return;
            }
        };
        let keep_alive = request.keep_alive;
        if !respond(&shared, &mut conn, request).await || !keep_alive {
            return;
        }
    }
}

/// Answers one request; true when the connection can carry another.
async fn respond(shared: &Shared, conn: &mut Conn, request: Request) -> bool {
    let Some(route) = Route::of_path(&request.path, shared.dialect) else {
        return respond_elsewhere(shared, conn, &request).await;
    };
    let vendor = route.vendor;
    if request.method != "POST" {
        let body = vendor.error_body(405, None, Some("only POST is served here"));
        return refuse(conn, vendor, 405, &body).await;
    }
    let (body, unreadable) = match serde_json::from_slice::<Value>(&request.body) {
        Ok(body) => (Arc::new(body), None),
        Err(error) => (Arc::default(), Some(error.to_string())),
    };
    let (verdict, found) = judge(shared, route, &request, &body, unreadable);
    let refusal = match &verdict {
        Verdict::Accepted => None,
        Verdict::NoTurn => Some((400, no_turn(vendor))),
        Verdict::Invalid(broken) => Some((400, vendor.refusal_body(route.dialect, broken))),
        Verdict::Unreadable(what) => {
            let message = format!("We could not parse the JSON body of your request: {what}");
            Some((400, vendor.error_body(400, None, Some(&message))))
        }
        Verdict::Unauthorized if vendor == Vendor::BedrockConverse => {
            Some((403, vendor.error_body(403, None, None)))
        }
        // Google counts a wrong key among the invalid arguments.
        Verdict::Unauthorized if vendor == Vendor::Gemini => {
            Some((400, vendor.error_body(401, None, None)))
        }
        Verdict::Unauthorized => Some((401, vendor.error_body(401, None, None))),
        Verdict::UnknownModel => Some((404, vendor.error_body(404, None, None))),
        Verdict::TooLong { input, output } => {
            let window = shared.script.window.unwrap_or_default();
            Some((400, too_long_body(vendor, window, *input, *output)))
        }
    };
    let arrival = Arrival {
        vendor,
        path: &request.path,
        headers: &request.headers,
        body: Arc::clone(&body),
        bytes: &request.body,
        verdict,
        turn: found.map(|(id, _)| id),
        turn_name: found.and_then(|(_, turn)| turn.name.as_deref()),
    };
    let flight = shared.recorder.begin(arrival, &conn.socket);
    match (refusal, found) {
        (None, Some((_, turn))) => {
            perform(shared, conn, flight, route, turn, &request, &body).await
        }
        (refusal, _) => {
            let (status, body) = refusal.unwrap_or_else(|| (400, no_turn(vendor)));
            flight.closing();
            let sent = refuse(conn, vendor, status, &body).await;
            flight.end(if sent {
                Ended::Finished
            } else {
                Ended::Aborted
            });
            sent
        }
    }
}

fn no_turn(vendor: Vendor) -> Value {
    let message =
        "scripted model: no turn of the script applies to this request; add a turn or a fallback";
    let mut body = vendor.error_body(400, Some("script_exhausted"), Some(message));
    body["scripted"] = json!({"rules": ["scripted.no_turn"]});
    body
}

type Found<'s> = Option<(TurnId, &'s Turn)>;

fn judge<'s>(
    shared: &'s Shared,
    route: Route,
    request: &Request,
    body: &Value,
    unreadable: Option<String>,
) -> (Verdict, Found<'s>) {
    if !is_authorized(shared, request) {
        return (Verdict::Unauthorized, None);
    }
    if let Some(what) = unreadable {
        return (Verdict::Unreadable(what), None);
    }
    let vendor = route.vendor;
    let mut broken = check_headers(vendor, request);
    broken.extend(route.check(request));
    let model = vendor.model(&request.path, body);
    broken.extend(vendor.validate(&model, body, route.dialect));
    broken.extend(check_seals(vendor, body, shared.strict_seals));
    if !broken.is_empty() {
        return (Verdict::Invalid(broken), None);
    }
    let models = &shared.script.models;
    let model = vendor.model(&request.path, body);
    if !models.is_empty() && !models.contains(&model) {
        return (Verdict::UnknownModel, None);
    }
    if let Some(too_long) = too_long(shared.script.window, vendor, body) {
        return (too_long, None);
    }
    match shared
        .selector
        .pick(&shared.script, &RequestText::new(vendor, body))
    {
        Some(found) => (Verdict::Accepted, Some(found)),
        None => (Verdict::NoTurn, None),
    }
}

/// Does a request not fit the window?
fn too_long(window: Option<u64>, vendor: Vendor, body: &Value) -> Option<Verdict> {
    let window = window?;
    let input = measure(body);
    if input > window {
        return Some(Verdict::TooLong {
            input,
            output: None,
        });
    }
    let output = output_asked(body).filter(|output| input.saturating_add(*output) > window)?;
    vendor.sum_body(input, output, window)?;
    Some(Verdict::TooLong {
        input,
        output: Some(output),
    })
}

fn too_long_body(vendor: Vendor, window: u64, input: u64, output: Option<u64>) -> Value {
    output
        .and_then(|output| vendor.sum_body(input, output, window))
        .unwrap_or_else(|| vendor.overflow_body(input, window))
}

fn is_authorized(shared: &Shared, request: &Request) -> bool {
    let Some(key) = &shared.api_key else {
        return true;
    };
    // An AWS key is ID:SECRET, and never sent: the request is signed with it.
    if let Some((id, secret)) = key.split_once(':')
        && request
            .header("authorization")
            .is_some_and(|value| value.starts_with("AWS4-"))
    {
        let fault = sigv4::fault(request, id, secret);
        if let Some(fault) = &fault {
            eprintln!("scripted model: {fault}");
        }
        return fault.is_none();
    }
    let bearer = request
        .header("authorization")
        .and_then(|value| value.strip_prefix("Bearer "));
    let named = |header| request.header(header) == Some(key);
    bearer == Some(key)
        || ["x-api-key", "api-key", "x-goog-api-key"]
            .into_iter()
            .any(named)
}

fn check_headers(vendor: Vendor, request: &Request) -> Vec<Broken> {
    let mut broken = Vec::new();
    let content_type = request
        .header("content-type")
        .unwrap_or("")
        .to_ascii_lowercase();
    if !content_type.starts_with("application/json") {
        broken.push(Broken {
            rule: "scripted.content_type",
            at: "content-type".into(),
            message: format!("the content type must be application/json, got {content_type:?}"),
        });
    }
    if vendor == Vendor::AnthropicMessages && request.header("anthropic-version").is_none() {
        broken.push(Broken {
            rule: "scripted.anthropic_version",
            at: "anthropic-version".into(),
            message: "anthropic-version: header is required".into(),
        });
    }
    if vendor == Vendor::Gemini
        && request.path.ends_with(":streamGenerateContent")
        && !request.query.split('&').any(|pair| pair == "alt=sse")
    {
        broken.push(Broken {
            rule: "scripted.alt_sse",
            at: "alt".into(),
            message: "only the stream of events is served here: add ?alt=sse".into(),
        });
    }
    broken
}

async fn respond_elsewhere(shared: &Shared, conn: &mut Conn, request: &Request) -> bool {
    if request.method == "GET" && request.path == "/v1/models" {
        if !is_authorized(shared, request) {
            return send(conn, 401, &Vendor::OpenaiChat.error_body(401, None, None)).await;
        }
        let data: Vec<Value> = shared
            .script
            .models
            .iter()
            .map(|id| json!({"id": id, "object": "model", "created": 0, "owned_by": "scripted"}))
            .collect();
        return send(conn, 200, &json!({"object": "list", "data": data})).await;
    }
    let message = format!(
        "Invalid URL ({} {}): the scripted model serves POST /v1/chat/completions, /v1/responses, /v1/messages \
         /v1beta/models/MODEL:streamGenerateContent and /model/MODEL/converse-stream",
        request.method, request.path
    );
    let body = json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": null}});
    send(conn, 404, &body).await
}

async fn send(conn: &Conn, status: u16, body: &Value) -> bool {
    conn.write_all(&answer(status, &[], body.to_string().as_bytes()))
        .await
        .is_ok()
}

/// Sends an error as the vendor does.
async fn refuse(conn: &Conn, vendor: Vendor, status: u16, body: &Value) -> bool {
    let header = vendor.error_header(status, None);
    let headers: Vec<(&str, &str)> = header.iter().map(|(n, v)| (*n, v.as_str())).collect();
    conn.write_all(&answer(status, &headers, body.to_string().as_bytes()))
        .await
        .is_ok()
}

/// Plays the turn found for a valid request; true when the connection can carry another.
async fn perform(
    shared: &Shared,
    conn: &mut Conn,
    flight: Flight,
    route: Route,
    turn: &Turn,
    request: &Request,
    body: &Value,
) -> bool {
    let vendor = route.vendor;
    let streams = match vendor {
        Vendor::Gemini => request.path.ends_with(":streamGenerateContent"),
        Vendor::BedrockConverse => request.path.ends_with("/converse-stream"),
        _ => body.get("stream") == Some(&Value::Bool(true)),
    };
    let result = match early_fault(vendor, turn) {
        Some(early) => fail_early(conn, &flight, turn, early).await,
        None => {
            let model = vendor.model(&request.path, body);
            let input = match shared.script.window {
                Some(_) => measure(body),
                None => request.body.len() as u64 / 4 + 1,
            };
            let plan = Plan::new(route, turn, &model, body, input, &shared.issuer);
            if streams {
                play(conn, &flight, turn, &plan, &shared.issuer).await
            } else {
                answer_whole(shared, conn, &flight, turn, &plan).await
            }
        }
    };
    match result {
        Ok(()) => {
            flight.end(Ended::Finished);
            true
        }
        Err(Stop::Cut(how)) => {
            flight.closing();
            match how {
                CutHow::End => {
                    let _ = conn.write_all(b"0\r\n\r\n").await;
                }
                CutHow::Close => {}
                CutHow::Reset => conn.reset_on_close(),
            }
            flight.end(Ended::Cut);
            how == CutHow::End
        }
        Err(Stop::ClientLeft | Stop::Error) => {
            flight.end(Ended::Aborted);
            false
        }
    }
}

/// What goes wrong instead of a stream.
enum Early {
    Answer(Vec<u8>),
    NoAnswer(CutHow),
    Silence(Option<u64>),
}

fn early_fault(vendor: Vendor, turn: &Turn) -> Option<Early> {
    match turn.fault.as_ref()? {
        Fault::Status {
            status,
            headers,
            body,
            message,
            error_type,
        } => {
            let body = match body {
                Some(Value::String(raw)) => raw.clone(),
                Some(value) => value.to_string(),
                None => vendor
                    .error_body(*status, error_type.as_deref(), message.as_deref())
                    .to_string(),
            };
            let named = vendor.error_header(*status, error_type.as_deref());
            let headers: Vec<(&str, &str)> = named
                .iter()
                .map(|(n, v)| (*n, v.as_str()))
                .chain(headers.iter().map(|(n, v)| (n.as_str(), v.as_str())))
                .collect();
            Some(Early::Answer(answer(*status, &headers, body.as_bytes())))
        }
        Fault::Overflow { used, limit } => {
            let body = vendor.overflow_body(*used, *limit).to_string();
            let named = vendor.error_header(400, None);
            let headers: Vec<(&str, &str)> = named.iter().map(|(n, v)| (*n, v.as_str())).collect();
            Some(Early::Answer(answer(400, &headers, body.as_bytes())))
        }
        Fault::NoAnswer { how } => Some(Early::NoAnswer(if *how == CutHow::End {
            CutHow::Close
        } else {
            *how
        })),
        Fault::Stall {
            before_headers: true,
            for_ms,
            ..
        } => Some(Early::Silence(*for_ms)),
        _ => None,
    }
}

async fn wait(conn: &mut Conn, millis: u64) -> Result<(), Stop> {
    tokio::select! {
        biased;
        () = conn.left() => Err(Stop::ClientLeft),
        () = tokio::time::sleep(Duration::from_millis(millis)) => Ok(()),
    }
}

async fn fail_early(
    conn: &mut Conn,
    flight: &Flight,
    turn: &Turn,
    early: Early,
) -> Result<(), Stop> {
    if turn.delay_ms > 0 {
        wait(conn, turn.delay_ms).await?;
    }
    match early {
        Early::Answer(bytes) => {
            flight.closing();
            conn.write_all(&bytes).await.map_err(|_| Stop::ClientLeft)
        }
        Early::NoAnswer(how) => Err(Stop::Cut(how)),
        Early::Silence(Some(millis)) => {
            // Silence that ends leaves nothing sensible to say: the connection closes.
            wait(conn, millis).await?;
            Err(Stop::Cut(CutHow::Close))
        }
        Early::Silence(None) => {
            conn.left().await;
            Err(Stop::ClientLeft)
        }
    }
}

async fn answer_whole(
    shared: &Shared,
    conn: &mut Conn,
    flight: &Flight,
    turn: &Turn,
    plan: &Plan,
) -> Result<(), Stop> {
    if turn.delay_ms > 0 {
        wait(conn, turn.delay_ms).await?;
    }
    match &turn.fault {
        Some(Fault::Cut {
            how: CutHow::Reset, ..
        }) => return Err(Stop::Cut(CutHow::Reset)),
        Some(Fault::Cut { .. }) => return Err(Stop::Cut(CutHow::Close)),
        Some(Fault::Stall {
            for_ms: Some(millis),
            ..
        }) => wait(conn, *millis).await?,
        Some(Fault::Stall { .. }) => {
            conn.left().await;
            return Err(Stop::ClientLeft);
        }
        _ => {}
    }
    let body = whole::body(plan, &shared.issuer).to_string();
    flight.closing();
    conn.write_all(&answer(200, &[], body.as_bytes()))
        .await
        .map_err(|_| Stop::ClientLeft)
}
