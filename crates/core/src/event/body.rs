//! The data of every event type. Field names are stored: renaming one is a new version.

use crate::error::{ProviderError, SessionError};
use crate::id::*;
use crate::model::{Blind, ModelRef};
use crate::provider::{Finish, NativeState};
use crate::request::{Effort, Media, OutputSchema};
use crate::usage::Usage;
use serde::{Deserialize, Serialize};

macro_rules! data {
    ($($(#[$m:meta])* $name:ident { $($(#[$fm:meta])* $field:ident : $ty:ty,)* })*) => {
        $($(#[$m])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        pub struct $name { $($(#[$fm])* pub $field: $ty,)* })*
    };
}

/// Where the tools of a session run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Location {
    /// The workspace, an absolute real path.
    pub directory: String,
    /// Labels a node must have to run the session's tools; none for a folder every node has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
}

impl Location {
    /// A folder that any node with a root over it may serve.
    pub fn at(directory: impl Into<String>) -> Self {
        Self {
            directory: directory.into(),
            requires: Vec::new(),
        }
    }
}

/// Limits a session runs under.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Consecutive steps without new user input; the last one may not call tools. 0 means the default.
    #[serde(default)]
    pub max_steps: u32,
    /// What all attempts of the session may cost together, in millionths of a US dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<u64>,
    /// Tokens that all attempts of the session may use together, prompts and outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// How long one execution may take by the clock on the wall, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_wall_ms: Option<u64>,
}

impl Limits {
    /// Only the steps of a turn are limited; 0 means the default.
    pub fn steps(max_steps: u32) -> Self {
        Self {
            max_steps,
            ..Self::default()
        }
    }
}

/// What an input asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum InputKind {
    /// A person's words, with attached text files.
    User {
        /// The prompt.
        text: String,
        /// Attached files.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        files: Vec<AttachedFile>,
        /// Attached images and documents.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        media: Vec<Media>,
        /// The form the answer to this prompt must have; it holds until the next prompt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        schema: Option<OutputSchema>,
        /// How hard to think about this prompt; none leaves it to the configuration.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effort: Option<Effort>,
    },
    /// Tenure's own words to the model, for example after a crash.
    Synthetic {
        /// The text.
        text: String,
    },
    /// Compact the history now (a control input: steers do not cross it).
    Compaction,
    /// Move the session to another location (a control input).
    Move {
        /// The new location.
        location: Location,
    },
}

impl InputKind {
    /// A prompt of words alone.
    pub fn user(text: impl Into<String>) -> Self {
        Self::with_files(text, Vec::new())
    }

    /// A prompt with text files.
    pub fn with_files(text: impl Into<String>, files: Vec<AttachedFile>) -> Self {
        Self::User {
            text: text.into(),
            files,
            media: Vec::new(),
            schema: None,
            effort: None,
        }
    }
}

/// A text file attached to a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedFile {
    /// Its name as the user gave it.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// When a waiting input may enter the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// At the next safe boundary, together with all other steers.
    Steer,
    /// When the session would otherwise be idle, one at a time.
    Queue,
}

/// Why an execution was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InterruptReason {
    /// A person asked.
    User,
    /// The node shuts down.
    Shutdown,
    /// Replaced by other work.
    Superseded,
}

/// The phase a claim was in, as recovery found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// At a boundary: nothing ambiguous outstanding.
    Safe,
    /// A step or compaction is open.
    Active,
    /// An interrupt was accepted and is being settled.
    Cancelling,
}

/// What recovery does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryDecision {
    /// Nothing was ambiguous: go on.
    GoOn,
    /// Settled what was open; one continuation step follows.
    Continue,
    /// Settled an interrupt; nothing follows.
    SettleOnly,
    /// Too many crashes: set aside.
    Quarantine,
}

/// How a tool call that did not succeed ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolFailure {
    /// It never began.
    NotExecuted,
    /// It ran and failed.
    Failed,
    /// It was denied by a rule or a person; it never began.
    Denied,
    /// It was stopped by an interrupt.
    Interrupted,
    /// It ran into its time limit.
    TimedOut,
    /// It had begun when its owner was lost; nobody knows how far it got.
    OutcomeUnknown,
    /// It belongs to an attachment that has been replaced.
    Stale,
}

/// What a fragment holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FragmentKind {
    /// Text for the user.
    Text,
    /// The model's reasoning.
    Reasoning,
}

/// Why a compaction runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionReason {
    /// A person asked.
    Manual,
    /// The history came near the context window.
    Threshold,
    /// The provider said that the request does not fit.
    Overflow,
}

/// The answer to a permission question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum PermissionAnswer {
    /// This call only.
    Once,
    /// This call, and what the rule covers from now on.
    Always {
        /// The remembered rule, in the permission crate's own form.
        rule: serde_json::Value,
    },
    /// No.
    No {
        /// Words for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
        /// No person said so: where the prompt was given nobody can be asked, and what is asked for is denied.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        nobody: bool,
    },
}

/// The most a request can take, as far as that is known when it is sent: what budgets count when its end is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtMost {
    /// Prompt tokens.
    pub prompt: u64,
    /// Generated tokens.
    pub output: u64,
    /// Cost in millionths of a US dollar; none when the price is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
}

/// How much output a tool had and where the whole of it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputCut {
    /// Bytes of the whole output.
    pub total_bytes: u64,
    /// The file that holds it.
    pub full_path: String,
}

data! {
    /// See [`EventBody::SessionCreated`](super::EventBody::SessionCreated).
    SessionCreated {
        /// Title given at creation.
        #[serde(default, skip_serializing_if = "Option::is_none")] title: Option<String>,
        /// Where its tools run.
        location: Location,
        /// The model it starts with.
        model: ModelRef,
        /// Its limits.
        limits: Limits,
        /// Its permission rules, in the permission crate's own form.
        permissions: serde_json::Value,
    }
    /// See [`EventBody::SessionForked`](super::EventBody::SessionForked).
    SessionForked {
        /// The parent.
        parent: SessionId,
        /// The last shared seq. This event's own seq is `through + 1`.
        through: u64,
    }
    /// See [`EventBody::SessionRenamed`](super::EventBody::SessionRenamed).
    SessionRenamed {
        /// The title.
        title: String,
        /// Made from the first prompt, not by a person.
        #[serde(default)] automatic: bool,
    }
    /// See [`EventBody::ModelSelected`](super::EventBody::ModelSelected).
    ModelSelected {
        /// The model.
        model: ModelRef,
    }
    /// See [`EventBody::LimitsChanged`](super::EventBody::LimitsChanged).
    LimitsChanged {
        /// The limits.
        limits: Limits,
    }
    /// See [`EventBody::PermissionsChanged`](super::EventBody::PermissionsChanged).
    PermissionsChanged {
        /// The rules, in the permission crate's own form.
        permissions: serde_json::Value,
    }
    /// See [`EventBody::AttachmentReplaced`](super::EventBody::AttachmentReplaced).
    AttachmentReplaced {
        /// The new location.
        location: Location,
        /// The new generation.
        generation: u64,
        /// Why, for people.
        reason: String,
    }
    /// See [`EventBody::InstructionsSet`](super::EventBody::InstructionsSet).
    InstructionsSet {
        /// System prompt, environment and instruction files, in parts.
        parts: Vec<String>,
        /// Digest of the instruction files, to notice later changes.
        digest: String,
    }
    /// See [`EventBody::InstructionsChanged`](super::EventBody::InstructionsChanged).
    InstructionsChanged {
        /// What to tell the model.
        text: String,
        /// The new digest.
        digest: String,
    }

    /// See [`EventBody::InputAdmitted`](super::EventBody::InputAdmitted).
    InputAdmitted {
        /// The input; becomes its message's id.
        input: MessageId,
        /// What it asks for.
        #[serde(flatten)] kind: InputKind,
        /// When it may enter.
        delivery: Delivery,
    }
    /// See [`EventBody::InputPromoted`](super::EventBody::InputPromoted).
    InputPromoted {
        /// The input.
        input: MessageId,
    }
    /// See [`EventBody::InputCancelled`](super::EventBody::InputCancelled).
    InputCancelled {
        /// The input.
        input: MessageId,
        /// By whom or what.
        by: String,
    }
    /// See [`EventBody::InputDeliveryChanged`](super::EventBody::InputDeliveryChanged).
    InputDeliveryChanged {
        /// The input.
        input: MessageId,
        /// The new delivery.
        delivery: Delivery,
    }

    /// See [`EventBody::InterruptRequested`](super::EventBody::InterruptRequested).
    InterruptRequested {
        /// The request's key.
        interrupt: InterruptId,
        /// The execution it stops; none when it stopped waiting input before it started.
        #[serde(default, skip_serializing_if = "Option::is_none")] execution: Option<ExecutionId>,
        /// By whom, for people.
        by: String,
    }
    /// See [`EventBody::ExecutionStarted`](super::EventBody::ExecutionStarted).
    ExecutionStarted {
        /// The execution.
        execution: ExecutionId,
    }
    /// See [`EventBody::ExecutionSucceeded`](super::EventBody::ExecutionSucceeded).
    ExecutionSucceeded {
        /// The execution.
        execution: ExecutionId,
    }
    /// See [`EventBody::ExecutionFailed`](super::EventBody::ExecutionFailed).
    ExecutionFailed {
        /// The execution.
        execution: ExecutionId,
        /// Why.
        error: SessionError,
    }
    /// See [`EventBody::ExecutionInterrupted`](super::EventBody::ExecutionInterrupted).
    ExecutionInterrupted {
        /// The execution.
        execution: ExecutionId,
        /// Why.
        reason: InterruptReason,
    }
    /// See [`EventBody::RecoveryStarted`](super::EventBody::RecoveryStarted).
    RecoveryStarted {
        /// The execution that is taken over.
        #[serde(default, skip_serializing_if = "Option::is_none")] execution: Option<ExecutionId>,
        /// The phase found.
        phase: Phase,
        /// Crashes charged to this session so far, this one included.
        attempts: u32,
        /// What follows.
        decision: RecoveryDecision,
    }
    /// See [`EventBody::SessionQuarantined`](super::EventBody::SessionQuarantined).
    SessionQuarantined {
        /// Why, and what to do.
        error: SessionError,
        /// Crashes charged.
        attempts: u32,
    }
    /// See [`EventBody::SessionReleased`](super::EventBody::SessionReleased).
    SessionReleased {
        /// By whom.
        by: String,
    }

    /// See [`EventBody::MediaWithheld`](super::EventBody::MediaWithheld).
    MediaWithheld {
        /// The model.
        model: ModelRef,
        /// What it is known not to see.
        blind: Blind,
        /// The images and documents it does not see and that no earlier event named for it, in the conversation's order.
        names: Vec<String>,
    }
    /// See [`EventBody::StepStarted`](super::EventBody::StepStarted).
    StepStarted {
        /// Its assistant message.
        message: MessageId,
        /// Number within the turn, from 1.
        step: u32,
        /// The model.
        model: ModelRef,
        /// Tools may not be called: the last allowed step.
        #[serde(default)] last: bool,
    }
    /// See [`EventBody::AttemptStarted`](super::EventBody::AttemptStarted).
    AttemptStarted {
        /// The step's message.
        message: MessageId,
        /// Number within the step, from 1.
        attempt: u32,
        /// The model.
        model: ModelRef,
        /// SHA-256 of the request body, hexadecimal.
        request_hash: String,
        /// The most it can take; none when the model's limits are unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")] at_most: Option<AtMost>,
    }
    /// See [`EventBody::AttemptEnded`](super::EventBody::AttemptEnded).
    AttemptEnded {
        /// The step's message.
        message: MessageId,
        /// Number within the step.
        attempt: u32,
        /// Why it ended.
        finish: Finish,
        /// The provider's own word.
        #[serde(default, skip_serializing_if = "Option::is_none")] raw_finish: Option<String>,
        /// Tokens; none when they are unknown. A lower bound when `finish` is `error` and there is no cost.
        #[serde(default, skip_serializing_if = "Option::is_none")] usage: Option<Usage>,
        /// Cost in millionths of a US dollar; none when the price or the usage is unknown, when the answer was cut, or
        /// when the provider ran tools of its own, whose fees nobody tells. Searches that it counts in the usage are in it.
        #[serde(default, skip_serializing_if = "Option::is_none")] cost: Option<u64>,
        /// What went wrong.
        #[serde(default, skip_serializing_if = "Option::is_none")] error: Option<ProviderError>,
    }
    /// See [`EventBody::RetryScheduled`](super::EventBody::RetryScheduled).
    RetryScheduled {
        /// The step's message.
        message: MessageId,
        /// The number of the attempt that is planned.
        attempt: u32,
        /// Wall-clock milliseconds at which it is due.
        at_ms: i64,
        /// The wait in milliseconds.
        delay_ms: u64,
        /// Why.
        error: ProviderError,
    }
    /// See [`EventBody::FragmentStarted`](super::EventBody::FragmentStarted).
    FragmentStarted {
        /// The step's message.
        message: MessageId,
        /// Ordinal among the message's parts, from 0.
        part: u32,
        /// The attempt that made it.
        attempt: u32,
        /// What it holds.
        kind: FragmentKind,
    }
    /// See [`EventBody::FragmentChunk`](super::EventBody::FragmentChunk).
    FragmentChunk {
        /// The step's message.
        message: MessageId,
        /// The part.
        part: u32,
        /// The text since the last chunk.
        text: String,
    }
    /// See [`EventBody::FragmentEnded`](super::EventBody::FragmentEnded).
    FragmentEnded {
        /// The step's message.
        message: MessageId,
        /// The part.
        part: u32,
        /// Bytes of all chunks together.
        bytes: u64,
        /// SHA-256 of all chunks, first 16 hexadecimal digits.
        hash: String,
        /// The provider's own JSON of the block.
        #[serde(default, skip_serializing_if = "Option::is_none")] native: Option<NativeState>,
        /// Cut short: by an error, an interrupt or a crash.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] partial: bool,
        /// Belongs to an attempt that was given up: kept here, in no later request.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] superseded: bool,
    }
    /// See [`EventBody::ToolInputStarted`](super::EventBody::ToolInputStarted).
    ToolInputStarted {
        /// The step's message.
        message: MessageId,
        /// The part.
        part: u32,
        /// The attempt that made it.
        attempt: u32,
        /// The call.
        call: CallId,
        /// The tool.
        name: String,
    }
    /// See [`EventBody::ToolCalled`](super::EventBody::ToolCalled).
    ToolCalled {
        /// The step's message.
        message: MessageId,
        /// The part.
        part: u32,
        /// The attempt that made it.
        attempt: u32,
        /// The call.
        call: CallId,
        /// The tool.
        name: String,
        /// The input as the provider sent it; a JSON object unless the call is settled as malformed.
        input: String,
        /// Run by the provider, never by us.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] executed: bool,
        /// The provider's own JSON of the block.
        #[serde(default, skip_serializing_if = "Option::is_none")] native: Option<NativeState>,
    }
    /// See [`EventBody::ToolStarted`](super::EventBody::ToolStarted).
    ToolStarted {
        /// The step's message.
        message: MessageId,
        /// The call.
        call: CallId,
        /// The attachment's generation it runs under (R14).
        generation: u64,
    }
    /// See [`EventBody::ToolSucceeded`](super::EventBody::ToolSucceeded).
    ToolSucceeded {
        /// The step's message.
        message: MessageId,
        /// The call.
        call: CallId,
        /// What the model reads.
        text: String,
        /// One line for people.
        #[serde(default, skip_serializing_if = "String::is_empty")] title: String,
        /// Details for clients, by tool.
        #[serde(default, skip_serializing_if = "serde_json::Value::is_null")] metadata: serde_json::Value,
        /// Set when `text` is not the whole output.
        #[serde(default, skip_serializing_if = "Option::is_none")] cut: Option<OutputCut>,
        /// The provider's own JSON of a hosted result.
        #[serde(default, skip_serializing_if = "Option::is_none")] native: Option<NativeState>,
    }
    /// See [`EventBody::ToolFailed`](super::EventBody::ToolFailed).
    ToolFailed {
        /// The step's message.
        message: MessageId,
        /// The call.
        call: CallId,
        /// How it ended.
        failure: ToolFailure,
        /// What the model reads.
        text: String,
        /// Set when `text` is not the whole output.
        #[serde(default, skip_serializing_if = "Option::is_none")] cut: Option<OutputCut>,
        /// The provider's own JSON of a hosted result.
        #[serde(default, skip_serializing_if = "Option::is_none")] native: Option<NativeState>,
    }
    /// See [`EventBody::BlockRecorded`](super::EventBody::BlockRecorded).
    BlockRecorded {
        /// The step's message.
        message: MessageId,
        /// The part.
        part: u32,
        /// The attempt that made it.
        attempt: u32,
        /// The block.
        native: NativeState,
    }
    /// See [`EventBody::PermissionAsked`](super::EventBody::PermissionAsked).
    PermissionAsked {
        /// The step's message.
        message: MessageId,
        /// The call that waits.
        call: CallId,
        /// The question for people: what would be touched, whole.
        question: String,
        /// Rules that "always" may remember, in the permission crate's own form.
        proposals: Vec<serde_json::Value>,
    }
    /// See [`EventBody::PermissionAnswered`](super::EventBody::PermissionAnswered).
    PermissionAnswered {
        /// The step's message.
        message: MessageId,
        /// The call.
        call: CallId,
        /// The answer.
        #[serde(flatten)] answer: PermissionAnswer,
        /// By whom.
        by: String,
    }
    /// See [`EventBody::StepEnded`](super::EventBody::StepEnded).
    StepEnded {
        /// The step's message.
        message: MessageId,
        /// Why it ended.
        finish: Finish,
        /// The sum of its attempts.
        usage: Usage,
        /// The sum of its attempts' costs in millionths of a US dollar; none when a part is unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")] cost: Option<u64>,
    }
    /// See [`EventBody::StepFailed`](super::EventBody::StepFailed).
    StepFailed {
        /// The step's message.
        message: MessageId,
        /// Why.
        error: SessionError,
        /// The sum of its attempts.
        usage: Usage,
        /// As in `step.ended`.
        #[serde(default, skip_serializing_if = "Option::is_none")] cost: Option<u64>,
    }

    /// See [`EventBody::CompactionStarted`](super::EventBody::CompactionStarted).
    CompactionStarted {
        /// The compaction.
        compaction: CompactionId,
        /// Why.
        reason: CompactionReason,
        /// The control input that asked for it.
        #[serde(default, skip_serializing_if = "Option::is_none")] input: Option<MessageId>,
        /// The model that writes the summary.
        model: ModelRef,
        /// SHA-256 of the request body, hexadecimal: this is the record of its one attempt.
        request_hash: String,
        /// As in `attempt.started`.
        #[serde(default, skip_serializing_if = "Option::is_none")] at_most: Option<AtMost>,
    }
    /// See [`EventBody::CompactionEnded`](super::EventBody::CompactionEnded).
    CompactionEnded {
        /// The compaction.
        compaction: CompactionId,
        /// The summary, never empty.
        summary: String,
        /// Messages whose first event is at or after this seq stay in requests as they are.
        kept_from: u64,
        /// Tokens it cost.
        #[serde(default, skip_serializing_if = "Option::is_none")] usage: Option<Usage>,
        /// Cost in millionths of a US dollar.
        #[serde(default, skip_serializing_if = "Option::is_none")] cost: Option<u64>,
    }
    /// See [`EventBody::CompactionFailed`](super::EventBody::CompactionFailed).
    CompactionFailed {
        /// The compaction.
        compaction: CompactionId,
        /// Why.
        error: SessionError,
        /// Tokens it cost.
        #[serde(default, skip_serializing_if = "Option::is_none")] usage: Option<Usage>,
        /// Cost in millionths of a US dollar.
        #[serde(default, skip_serializing_if = "Option::is_none")] cost: Option<u64>,
    }
}
