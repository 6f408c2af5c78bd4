//! The `--json` form: one object a line, versioned. docs/events.md is its description.

use super::transcript::Totals;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tenure_core::event::body::FragmentKind;
use tenure_core::event::{Event, EventRecord};
use tenure_core::usage::Usage;
use tenure_core::{CallId, MessageId, SessionId};
use tenure_engine::LiveItem;

/// The version of every line.
pub const VERSION: u32 = 1;

#[derive(Serialize)]
struct EventLine<'a> {
    v: u32,
    kind: &'static str,
    session: &'a SessionId,
    seq: u64,
    id: &'a str,
    #[serde(rename = "type")]
    type_name: &'a str,
    version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<u64>,
    created_ms: i64,
    data: &'a RawValue,
}

#[derive(Serialize)]
struct LiveLine<'a> {
    v: u32,
    kind: &'static str,
    session: &'a SessionId,
    #[serde(flatten)]
    item: Live<'a>,
}

/// A live item in words of its own: `kind` is taken by the line.
#[derive(Serialize)]
#[serde(tag = "live", rename_all = "snake_case")]
enum Live<'a> {
    Delta {
        message: &'a MessageId,
        attempt: u32,
        part: u32,
        fragment: FragmentKind,
        offset: u64,
        text: &'a str,
    },
    ToolOutput {
        call: &'a CallId,
        text: &'a str,
        total_bytes: u64,
    },
    Superseded {
        message: &'a MessageId,
        attempt: u32,
        part: u32,
        from: u64,
    },
    Lagged,
}

#[derive(Serialize)]
struct SyncedLine<'a> {
    v: u32,
    kind: &'static str,
    session: &'a SessionId,
    seq: Option<u64>,
}

#[derive(Serialize)]
struct SessionLine<'a> {
    v: u32,
    kind: &'static str,
    session: &'a SessionId,
    created: bool,
    input: Option<&'a str>,
}

/// Why it did not end well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorWords {
    /// A stable word.
    pub kind: String,
    /// For people.
    pub message: String,
}

#[derive(Serialize)]
struct ResultLine<'a> {
    v: u32,
    kind: &'static str,
    session: &'a SessionId,
    outcome: &'a str,
    exit: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorWords>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<&'a Value>,
    steps: u64,
    usage: Usage,
    cost: u64,
    cost_incomplete: bool,
    denied: u64,
}

fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value)
        .expect("invariant: our own structs have string keys and finite numbers")
}

/// A durable event.
pub fn event(event: &Event) -> String {
    let record = EventRecord::from(event);
    line(&EventLine {
        v: VERSION,
        kind: "event",
        session: &record.session,
        seq: record.seq,
        id: record.id.as_str(),
        type_name: &record.type_name,
        version: record.version,
        epoch: record.epoch,
        created_ms: record.created_ms,
        data: &record.data,
    })
}

/// A live item.
pub fn live(session: &SessionId, item: &LiveItem) -> String {
    let item = match item {
        LiveItem::Delta {
            message,
            attempt,
            part,
            kind,
            offset,
            text,
        } => Live::Delta {
            message,
            attempt: *attempt,
            part: *part,
            fragment: *kind,
            offset: *offset,
            text,
        },
        LiveItem::ToolOutput {
            call,
            text,
            total_bytes,
        } => Live::ToolOutput {
            call,
            text,
            total_bytes: *total_bytes,
        },
        LiveItem::Superseded {
            message,
            attempt,
            part,
            from,
        } => Live::Superseded {
            message,
            attempt: *attempt,
            part: *part,
            from: *from,
        },
        LiveItem::Lagged => Live::Lagged,
    };
    line(&LiveLine {
        v: VERSION,
        kind: "live",
        session,
        item,
    })
}

/// The reader has everything up to here; what follows happens now.
pub fn synced(session: &SessionId, seq: Option<u64>) -> String {
    line(&SyncedLine {
        v: VERSION,
        kind: "synced",
        session,
        seq,
    })
}

/// The session that a command works on, before anything else of it.
pub fn session(session: &SessionId, created: bool, input: Option<&str>) -> String {
    line(&SessionLine {
        v: VERSION,
        kind: "session",
        session,
        created,
        input,
    })
}

/// What the events printed add up to.
pub struct Seen<'a> {
    /// Sums.
    pub totals: &'a Totals,
    /// Denied calls.
    pub denied: u64,
    /// The answer that was asked for in a form, when it has it.
    pub answer: Option<&'a Value>,
}

/// How it ended; the last line.
pub fn result(
    session: &SessionId,
    outcome: &str,
    exit: u8,
    error: Option<ErrorWords>,
    seen: &Seen<'_>,
) -> String {
    line(&ResultLine {
        v: VERSION,
        kind: "result",
        session,
        outcome,
        exit,
        error,
        answer: seen.answer,
        steps: seen.totals.steps,
        usage: seen.totals.usage,
        cost: seen.totals.cost,
        cost_incomplete: seen.totals.incomplete,
        denied: seen.denied,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::EventId;
    use tenure_core::event::body::*;

    #[test]
    fn lines_have_the_documented_form() {
        let id = SessionId::from_bits(1);
        let body = InputPromoted {
            input: MessageId::from_bits(2),
        };
        let made = Event {
            id: EventId::from_bits(3),
            session: id.clone(),
            seq: 4,
            epoch: None,
            created_ms: 5,
            body: body.into(),
        };
        insta::assert_snapshot!(event(&made), @r#"{"v":1,"kind":"event","session":"ses_00000000000000000000000001","seq":4,"id":"evt_00000000000000000000000003","type":"input.promoted","version":1,"created_ms":5,"data":{"input":"msg_00000000000000000000000002"}}"#);
        let item = LiveItem::Delta {
            message: MessageId::from_bits(2),
            attempt: 1,
            part: 0,
            kind: FragmentKind::Text,
            offset: 0,
            text: "a\u{1b}\n".into(),
        };
        insta::assert_snapshot!(live(&id, &item), @r#"{"v":1,"kind":"live","session":"ses_00000000000000000000000001","live":"delta","message":"msg_00000000000000000000000002","attempt":1,"part":0,"fragment":"text","offset":0,"text":"a\u001b\n"}"#);
        let item = LiveItem::Superseded {
            message: MessageId::from_bits(2),
            attempt: 1,
            part: 0,
            from: 7,
        };
        insta::assert_snapshot!(live(&id, &item), @r#"{"v":1,"kind":"live","session":"ses_00000000000000000000000001","live":"superseded","message":"msg_00000000000000000000000002","attempt":1,"part":0,"from":7}"#);
    }
}
