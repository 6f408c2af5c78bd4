//! The durable vocabulary: every event type, its name and version, and how it is encoded.
//!
//! An event is stored as `(type, version, data)`; `data` is the JSON of one struct of [`body`]. To add a
//! type: write its struct in `body`, add a line to the `events!` table below, and handle it in
//! [`session::apply`](crate::session). Changing a stored struct incompatibly means a new version.

pub mod body;

use crate::id::{EventId, MessageId, SessionId};
use body::*;
use serde::{Deserialize, Serialize};

/// An event as the log holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its id; appending the same id again returns the stored event.
    pub id: EventId,
    /// The session it belongs to.
    pub session: SessionId,
    /// Its place in the session, dense from 0.
    pub seq: u64,
    /// The epoch it was written under; none when it was admitted without a fence.
    pub epoch: Option<u64>,
    /// Wall-clock milliseconds when it was decided; for people, never for order.
    pub created_ms: i64,
    /// What happened.
    pub body: EventBody,
}

/// An event that is not in the log yet.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    /// Its id.
    pub id: EventId,
    /// Wall-clock milliseconds.
    pub created_ms: i64,
    /// What happened.
    pub body: EventBody,
}

/// An event's data could not be read as its type and version say.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event {type_name} version {version} cannot be read: {detail}")]
pub struct BadEvent {
    /// The stored type.
    pub type_name: String,
    /// The stored version.
    pub version: u32,
    /// What is wrong with the data.
    pub detail: String,
}

macro_rules! events {
    ($($(#[$doc:meta])* $variant:ident = $name:literal v $version:literal;)*) => {
        /// What happened. The names are the stored types.
        #[derive(Debug, Clone, PartialEq)]
        pub enum EventBody {
            $($(#[$doc])* $variant($variant),)*
            /// A type or version this program does not know: kept, shown, skipped by every fold.
            Unknown(UnknownEvent),
        }

        impl EventBody {
            /// The stored type, for example `step.started`.
            pub fn type_name(&self) -> &str {
                match self {
                    $(Self::$variant(_) => $name,)*
                    Self::Unknown(unknown) => &unknown.type_name,
                }
            }

            /// The version of the type's data.
            pub fn version(&self) -> u32 {
                match self {
                    $(Self::$variant(_) => $version,)*
                    Self::Unknown(unknown) => unknown.version,
                }
            }

            /// The data as JSON text.
            pub fn encode(&self) -> String {
                match self {
                    $(Self::$variant(data) => serde_json::to_string(data)
                        .expect("invariant: event structs have string keys and finite numbers"),)*
                    Self::Unknown(unknown) => unknown.data.clone(),
                }
            }

            /// Reads stored data by exact type and version.
            pub fn decode(type_name: &str, version: u32, data: &str) -> Result<Self, BadEvent> {
                let bad = |e: serde_json::Error| BadEvent {
                    type_name: type_name.to_owned(),
                    version,
                    detail: e.to_string(),
                };
                match (type_name, version) {
                    $(($name, $version) => serde_json::from_str::<$variant>(data).map(Self::$variant).map_err(bad),)*
                    _ => Ok(Self::Unknown(UnknownEvent {
                        type_name: type_name.to_owned(),
                        version,
                        data: data.to_owned(),
                    })),
                }
            }

            /// Every type this program knows, with its version.
            pub const KNOWN: &'static [(&'static str, u32)] = &[$(($name, $version),)*];
        }

        $(impl From<$variant> for EventBody {
            fn from(data: $variant) -> Self {
                Self::$variant(data)
            }
        })*
    };
}

/// Data of a type or version this program does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownEvent {
    /// The stored type.
    pub type_name: String,
    /// The stored version.
    pub version: u32,
    /// The stored JSON text.
    pub data: String,
}

events! {
    /// The session exists.
    SessionCreated = "session.created" v 1;
    /// The session shares its parent's events up to a point.
    SessionForked = "session.forked" v 1;
    /// The session has a title.
    SessionRenamed = "session.renamed" v 1;
    /// Another model from here on.
    ModelSelected = "model.selected" v 1;
    /// Other limits from here on.
    LimitsChanged = "limits.changed" v 1;
    /// Other permission rules from here on.
    PermissionsChanged = "permissions.changed" v 1;
    /// The location was replaced under the session (R14).
    AttachmentReplaced = "attachment.replaced" v 1;
    /// The privileged instructions at the start of an instruction epoch.
    InstructionsSet = "instructions.set" v 1;
    /// Instructions changed later; appended, never rewritten.
    InstructionsChanged = "instructions.changed" v 1;

    /// A request was accepted and waits.
    InputAdmitted = "input.admitted" v 1;
    /// A waiting input became part of the conversation.
    InputPromoted = "input.promoted" v 1;
    /// A waiting input was taken back.
    InputCancelled = "input.cancelled" v 1;
    /// A waiting input changed its delivery.
    InputDeliveryChanged = "input.delivery_changed" v 1;

    /// Somebody asked to stop (R5).
    InterruptRequested = "interrupt.requested" v 1;
    /// A busy period began.
    ExecutionStarted = "execution.started" v 1;
    /// A busy period ended well.
    ExecutionSucceeded = "execution.succeeded" v 1;
    /// A busy period ended in a failure.
    ExecutionFailed = "execution.failed" v 1;
    /// A busy period was interrupted.
    ExecutionInterrupted = "execution.interrupted" v 1;
    /// A new owner took the session over and says what it found.
    RecoveryStarted = "recovery.started" v 1;
    /// The session is set aside until a user releases it (R8).
    SessionQuarantined = "session.quarantined" v 1;
    /// A user released the session from quarantine.
    SessionReleased = "session.released" v 1;

    /// The model is known not to see what was attached: it reads words in its place.
    MediaWithheld = "media.withheld" v 1;
    /// A logical model turn began.
    StepStarted = "step.started" v 1;
    /// A physical request is about to be sent (R11).
    AttemptStarted = "attempt.started" v 1;
    /// A physical request ended, with its usage.
    AttemptEnded = "attempt.ended" v 1;
    /// Another attempt is planned.
    RetryScheduled = "retry.scheduled" v 1;
    /// A text or reasoning fragment began.
    FragmentStarted = "fragment.started" v 1;
    /// A checkpoint of a fragment's text.
    FragmentChunk = "fragment.chunk" v 1;
    /// A fragment is complete, or superseded.
    FragmentEnded = "fragment.ended" v 1;
    /// A tool call's input began to stream.
    ToolInputStarted = "tool.input.started" v 1;
    /// A tool call is complete and durable; nothing has run.
    ToolCalled = "tool.called" v 1;
    /// A local tool is about to be spawned (R10).
    ToolStarted = "tool.started" v 1;
    /// A tool call ended well.
    ToolSucceeded = "tool.succeeded" v 1;
    /// A tool call ended otherwise.
    ToolFailed = "tool.failed" v 1;
    /// A block of the provider's that is only kept.
    BlockRecorded = "block.recorded" v 1;
    /// A tool call waits for a person.
    PermissionAsked = "permission.asked" v 1;
    /// A person (or a rule) answered.
    PermissionAnswered = "permission.answered" v 1;
    /// The step ended well.
    StepEnded = "step.ended" v 1;
    /// The step failed.
    StepFailed = "step.failed" v 1;

    /// A compaction began.
    CompactionStarted = "compaction.started" v 1;
    /// Old history is replaced by a summary in requests from here on.
    CompactionEnded = "compaction.ended" v 1;
    /// The compaction failed; history is as it was.
    CompactionFailed = "compaction.failed" v 1;
}

impl EventBody {
    /// The message within whose step this happened; none for what opens or closes a step, and outside.
    pub fn message(&self) -> Option<&MessageId> {
        match self {
            Self::AttemptStarted(e) => Some(&e.message),
            Self::AttemptEnded(e) => Some(&e.message),
            Self::RetryScheduled(e) => Some(&e.message),
            Self::FragmentStarted(e) => Some(&e.message),
            Self::FragmentChunk(e) => Some(&e.message),
            Self::FragmentEnded(e) => Some(&e.message),
            Self::ToolInputStarted(e) => Some(&e.message),
            Self::ToolCalled(e) => Some(&e.message),
            Self::ToolStarted(e) => Some(&e.message),
            Self::ToolSucceeded(e) => Some(&e.message),
            Self::ToolFailed(e) => Some(&e.message),
            Self::BlockRecorded(e) => Some(&e.message),
            Self::PermissionAsked(e) => Some(&e.message),
            Self::PermissionAnswered(e) => Some(&e.message),
            _ => None,
        }
    }
}

/// The exported and `--json` form of an event: one JSON object, one line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EventRecord {
    /// The session.
    pub session: SessionId,
    /// Place in the session.
    pub seq: u64,
    /// Event id.
    pub id: EventId,
    /// Stored type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Version of the data.
    pub version: u32,
    /// Epoch, absent for unfenced events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Wall-clock milliseconds.
    pub created_ms: i64,
    /// The data.
    pub data: Box<serde_json::value::RawValue>,
}

impl From<&Event> for EventRecord {
    fn from(event: &Event) -> Self {
        Self {
            session: event.session.clone(),
            seq: event.seq,
            id: event.id.clone(),
            type_name: event.body.type_name().to_owned(),
            version: event.body.version(),
            epoch: event.epoch,
            created_ms: event.created_ms,
            data: serde_json::value::RawValue::from_string(event.body.encode())
                .expect("invariant: an encoded body is JSON"),
        }
    }
}

impl TryFrom<EventRecord> for Event {
    type Error = BadEvent;

    fn try_from(record: EventRecord) -> Result<Self, BadEvent> {
        Ok(Self {
            body: EventBody::decode(&record.type_name, record.version, record.data.get())?,
            id: record.id,
            session: record.session,
            seq: record.seq,
            epoch: record.epoch,
            created_ms: record.created_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::body::PermissionAnswer;

    #[test]
    fn unknown_types_are_kept_byte_for_byte() {
        let body = EventBody::decode("later.thing", 7, "{\"a\" : 1}").unwrap();
        assert_eq!((body.type_name(), body.version()), ("later.thing", 7));
        assert_eq!(body.encode(), "{\"a\" : 1}");
    }

    #[test]
    fn an_answer_of_before_nobody_could_give_one_is_a_persons_and_keeps_its_bytes() {
        let stored =
            r#"{"message":"msg_00000000000000000000000001","call":"c","answer":"no","by":"me"}"#;
        let body = EventBody::decode("permission.answered", 1, stored).unwrap();
        let EventBody::PermissionAnswered(answered) = &body else {
            panic!("{body:?}")
        };
        let no = PermissionAnswer::No {
            note: None,
            nobody: false,
        };
        assert_eq!(answered.answer, no);
        assert_eq!(body.encode(), stored);
    }

    #[test]
    fn known_types_are_distinct_and_refuse_bad_data() {
        let mut names: Vec<_> = EventBody::KNOWN.iter().map(|(n, _)| n).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), EventBody::KNOWN.len());
        let error = EventBody::decode("step.started", 1, "{}").unwrap_err();
        assert!(
            error.to_string().contains("step.started version 1"),
            "{error}"
        );
    }
}
