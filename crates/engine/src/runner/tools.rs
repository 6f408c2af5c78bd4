//! Local tools of one session: started when their call is durable, run concurrently, each settled once.

mod counts;

use crate::engine::Shared;
use crate::engine::leftovers;
use crate::engine::stopped::{Group, Stopped, Trace, all_gone};
use crate::error::DrainError;
use crate::hub::LiveItem;
use crate::node::Life;
use crate::runner::Runner;
use crate::runner::permission::Judged;
use crate::writer::{Batch, Writer};
use counts::{Counts, Done};
use futures::FutureExt;
use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tenure_core::event::EventBody;
use tenure_core::event::body::*;
use tenure_core::id::{CallId, MessageId, SessionId};
use tenure_core::provider::replace_nul;
use tenure_core::turn::{CallStatus, Effect, TurnState};
use tenure_provider::Secret;
use tenure_store::{AppendError, HookOp, ProcessId};
use tenure_tools::permission::{Place, Rules, hides};
use tenure_tools::seen::SeenFiles;
use tenure_tools::todo::TodoList;
use tenure_tools::{
    PathFilter, ProgressSink, SpawnSink, ToolCx, ToolError, ToolOutput, Truncation,
};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, watch};
use tokio_util::sync::CancellationToken;

pub(super) use counts::{Asking, Rest};

/// How long a dropped call may take to go.
const BLOCKED: std::time::Duration = std::time::Duration::from_secs(1);

/// What every call of a session shares. Cheap to clone.
#[derive(Clone)]
pub(crate) struct CallContext {
    pub shared: Arc<Shared>,
    pub session: SessionId,
    pub life: Life,
    pub workspace: PathBuf,
    pub generation: u64,
    pub rules: Arc<Mutex<Rules>>,
    /// Cancelled when calls may be spawned (R10).
    pub clear: CancellationToken,
    /// The log up to here is in the turn's memory as it was loaded.
    pub cursor: Option<u64>,
    pub last_step: bool,
}

/// The calls of one session that are running.
pub(crate) struct ToolRunner {
    /// Asks tools to stop: they kill their processes and settle by themselves.
    cancel: CancellationToken,
    /// Ends tasks that did not.
    abort: CancellationToken,
    launched: HashSet<CallId>,
    counts: watch::Sender<Counts>,
    concurrency: usize,
    slots: Arc<Semaphore>,
    fault_in: mpsc::UnboundedSender<DrainError>,
    fault_out: mpsc::UnboundedReceiver<DrainError>,
    todo: TodoList,
    seen: SeenFiles,
    /// What of the calls may still be at work, and what was left before them.
    group: Group,
}

impl ToolRunner {
    /// With the task list as the log has it.
    pub fn new(concurrency: usize, todos: Option<&serde_json::Value>, group: Group) -> Self {
        let items = todos.and_then(|todos| serde_json::from_value(todos.clone()).ok());
        let (fault_in, fault_out) = mpsc::unbounded_channel();
        Self {
            cancel: CancellationToken::new(),
            abort: CancellationToken::new(),
            launched: HashSet::new(),
            counts: watch::Sender::default(),
            concurrency,
            slots: Arc::new(Semaphore::new(concurrency)),
            fault_in,
            fault_out,
            todo: TodoList::new(items.unwrap_or_default()),
            seen: SeenFiles::default(),
            group,
        }
    }

    /// A new step: call ids of earlier ones may come again.
    pub fn begin_step(&mut self) {
        self.launched.clear();
        self.group.next();
    }

    /// Starts every durable call that has not been looked at.
    pub fn launch_pending(&mut self, cx: &CallContext, writer: &Writer) {
        let pending = writer.turn().pending();
        for effect in pending {
            let Effect::RunTool {
                message,
                call,
                name,
                input,
            } = effect
            else {
                continue;
            };
            if !self.launched.insert(call.clone()) {
                continue;
            }
            self.counts.send_modify(|counts| counts.running += 1);
            let living = &cx.shared.living;
            let (grouped, trace) = self.group.begin(&message, &call, living);
            let alive = (living.begin(), grouped);
            let task = CallTask {
                cx: cx.clone(),
                writer: writer.clone(),
                message,
                call,
                name,
                input,
                cancel: self.cancel.clone(),
                slots: self.slots.clone(),
                counts: self.counts.clone(),
                todo: self.todo.clone(),
                seen: self.seen.clone(),
                before: self.group.before(),
                trace,
            };
            let done = Done::of(&self.counts);
            let (abort, fault) = (self.abort.clone(), self.fault_in.clone());
            cx.shared.config.env.spawn(Box::pin(async move {
                // Dropped in this order: once none counts as running, none is at work but by what it started.
                let _counted = (alive, done);
                tokio::select! {
                    biased;
                    () = abort.cancelled() => {}
                    result = task.run() => if let Err(error) = result {
                        // The drain that reads this may be gone; then nobody needs it.
                        let _ = fault.send(error);
                    }
                }
            }));
        }
    }

    /// A call could not be recorded: the drain must end.
    pub async fn fault(&mut self) -> DrainError {
        match self.fault_out.recv().await {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }

    /// Waits until no call runs.
    pub async fn wait_idle(&mut self) -> Result<(), DrainError> {
        let mut counts = self.counts.subscribe();
        let idle = async {
            // The sender lives in self: this cannot fail.
            let _ = counts.wait_for(|counts| counts.running == 0).await;
        };
        tokio::select! {
            biased;
            fault = self.fault_out.recv() => Err(fault.unwrap_or(DrainError::Lost)),
            () = idle => Ok(()),
        }
    }

    /// Waits until no call runs, or, once `let_go`, until all that are left wait for answers: from then on none
    /// of them begins, whatever is answered.
    pub(super) async fn rest(&mut self, let_go: &CancellationToken) -> Result<Rest, DrainError> {
        let mut asking = self.counts.subscribe();
        let held = async {
            let_go.cancelled().await;
            loop {
                if self.counts.send_if_modified(Counts::hold) {
                    return;
                }
                // The sender lives in self: this cannot fail.
                let _ = asking.changed().await;
            }
        };
        let mut counts = self.counts.subscribe();
        let idle = async {
            let _ = counts.wait_for(|counts| counts.running == 0).await;
        };
        tokio::select! {
            biased;
            fault = self.fault_out.recv() => Err(fault.unwrap_or(DrainError::Lost)),
            () = idle => Ok(Rest::Idle),
            () = held => Ok(Rest::AllAsk),
        }
    }

    /// Drops the calls that wait, unsettled.
    pub async fn drop_calls(&mut self, env: &dyn crate::environment::Environment) {
        self.abort.cancel();
        self.begin_anew(env).await;
    }

    /// What runs is left to itself.
    pub fn forget(&mut self) {
        self.cancel = CancellationToken::new();
        self.abort = CancellationToken::new();
        self.counts = watch::Sender::default();
        self.group.forget();
    }

    /// Stops every call: asks, waits `grace`, then drops what is left (which kills its processes).
    pub async fn stop(
        &mut self,
        env: &dyn crate::environment::Environment,
        grace: std::time::Duration,
    ) {
        self.cancel.cancel();
        self.group.is_stopped();
        let mut counts = self.counts.subscribe();
        tokio::select! {
            biased;
            _ = counts.wait_for(|counts| counts.running == 0) => {}
            () = env.sleep(grace) => {}
        }
        self.abort.cancel();
        self.begin_anew(env).await;
    }

    /// Waits for calls that were dropped, and forgets them.
    async fn begin_anew(&mut self, env: &dyn crate::environment::Environment) {
        let mut counts = self.counts.subscribe();
        // A tool that blocks its thread cannot be dropped; its result will find its call settled.
        tokio::select! {
            biased;
            _ = counts.wait_for(|counts| counts.running == 0) => {}
            () = env.sleep(BLOCKED) => tracing::warn!("a tool does not let itself be stopped"),
        }
        self.counts = watch::Sender::default();
        self.cancel = CancellationToken::new();
        self.abort = CancellationToken::new();
        // A tool that could not be stopped keeps its slot, and nobody else's.
        self.slots = Arc::new(Semaphore::new(self.concurrency));
        self.group.next();
        while self.fault_out.try_recv().is_ok() {}
    }

    /// Waits so long until nothing that stopped calls started is at work, unless that is called `off`.
    pub async fn gone(&self, within: std::time::Duration, off: &CancellationToken) {
        self.group.gone(within, off).await;
    }

    /// How long something that stopped calls started may be at work yet; none when it is known to be gone.
    pub fn quiet(&self) -> Option<std::time::Duration> {
        self.group.quiet()
    }

    /// The calls of which something may be at work.
    pub fn left(&self) -> Vec<Trace> {
        self.group.left()
    }
}

impl Drop for ToolRunner {
    fn drop(&mut self) {
        self.abort.cancel();
    }
}

impl Runner {
    /// What the calls of the open step share.
    pub(crate) fn call_context(&self) -> CallContext {
        let settings = self.state.settings.as_ref();
        CallContext {
            shared: self.shared.clone(),
            session: self.session.clone(),
            life: self.life.clone(),
            workspace: settings.map_or_else(PathBuf::new, |s| PathBuf::from(&s.location.directory)),
            generation: settings.map_or(0, |s| s.generation),
            rules: self.rules.clone(),
            clear: self.quiet.token(),
            cursor: self.state.cursor,
            last_step: self.writer.turn().step.as_ref().is_some_and(|s| s.last),
        }
    }
}

/// One call on its way.
pub(super) struct CallTask {
    pub(super) cx: CallContext,
    pub(super) writer: Writer,
    pub(super) message: MessageId,
    pub(super) call: CallId,
    name: String,
    input: Arc<str>,
    pub(super) cancel: CancellationToken,
    pub(super) counts: watch::Sender<Counts>,
    slots: Arc<Semaphore>,
    todo: TodoList,
    seen: SeenFiles,
    /// Calls that were stopped before.
    before: Vec<Stopped>,
    /// What it starts.
    trace: Trace,
}

/// What a call came to.
struct Settlement {
    body: EventBody,
}

impl CallTask {
    async fn run(self) -> Result<(), DrainError> {
        // The semaphore is never closed: without a slot there is nobody to run for.
        let Ok(slot) = self.slots.acquire().await else {
            return Ok(());
        };
        if self.cx.last_step {
            let text = "Not executed: tools cannot be called in the last step of a turn";
            return self
                .settle(self.failure(ToolFailure::NotExecuted, text), None)
                .await;
        }
        let input: serde_json::Value = match serde_json::from_str(&self.input) {
            Ok(input) => input,
            Err(error) => {
                let text = format!("Not executed: the input is not JSON ({error})");
                return self
                    .settle(self.failure(ToolFailure::NotExecuted, &text), None)
                    .await;
            }
        };
        let tool_cx = match self.tool_cx() {
            Ok(cx) => cx,
            Err(text) => {
                return self
                    .settle(self.failure(ToolFailure::NotExecuted, &text), None)
                    .await;
            }
        };
        let (slot, granted) = match self.permission(&tool_cx, &input) {
            Judged::Now(granted) => (Some(slot), granted),
            Judged::Ask(question, accesses) => {
                // People take their time: calls that wait for them hold up no others.
                drop(slot);
                let granted = self.ask(&question, accesses).await?;
                (self.slot_again().await, granted)
            }
        };
        let granted = match granted {
            Ok(granted) => granted,
            Err(refusal) => return self.settle(refusal, None).await,
        };
        if slot.is_none() || !self.may_begin().await {
            // Whoever stops the calls settles it as not begun.
            return Ok(());
        }
        // A tool that reports its process makes the start durable together with it, before it begins.
        let tool = self.cx.shared.tools.get(&self.name);
        let tool_cx = ToolCx {
            granted: Some(granted.into()),
            at_work: Some(self.trace.at_work()),
            ..tool_cx
        };
        let early = if broken!(self.cx.shared.config, ToolSpawnedEarly) {
            Some(self.execute(tool_cx.clone(), input.clone()).await)
        } else {
            None
        };
        if !tool.is_some_and(|tool| tool.reports_spawn()) {
            match self.started(None).await {
                Err(AppendError::StaleAttachment { .. }) => return self.settle_stale().await,
                started => started?,
            }
            // This process may have been paused since, and another may own the session by now: then whoever does
            // has settled the call, and it must not begin (R10).
            if !self.may_begin().await {
                return Ok(());
            }
        }
        let settlement = match early {
            Some(settlement) => settlement,
            None => self.execute(tool_cx, input).await,
        };
        self.settle(settlement.body, Some(self.cx.generation)).await
    }

    /// Makes `tool.started` durable.
    async fn started(&self, process: Option<ProcessId>) -> Result<(), AppendError> {
        let start = Start::of(self);
        start.record(&self.writer, process).await
    }

    /// May something begin now? Waits until what a lost owner left is gone, and what stopped calls of this node left,
    /// and for the renewal after a pause; false when the call is stopped, or this life of the node is over.
    async fn may_begin(&self) -> bool {
        let ready = async {
            self.cx.clear.cancelled().await;
            all_gone(&self.before, self.cx.shared.config.env.as_ref()).await;
            self.cx.shared.node.may_go_on(&self.cx.life).await
        };
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => false,
            go_on = ready => go_on,
        }
    }

    /// A slot for a call that gave its own away; none when it is cancelled first.
    async fn slot_again(&self) -> Option<SemaphorePermit<'_>> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => None,
            slot = self.slots.acquire() => slot.ok(),
        }
    }

    fn tool_cx(&self) -> Result<ToolCx, String> {
        let config = &self.cx.shared.config;
        let workspace = &self.cx.workspace;
        let mut cx = ToolCx::new(
            self.cx.session.to_string(),
            self.call.to_string(),
            workspace,
            config
                .output_dir
                .join(self.cx.session.as_str())
                .join(self.message.as_str()),
            config
                .guardian
                .clone()
                .with_lease(self.cx.life.lease.clone()),
        )
        .map_err(|error| {
            format!(
                "Not executed: the workspace {} cannot be used: {error}",
                workspace.display()
            )
        })?;
        cx.cancel = self.cancel.clone();
        cx.env_remove.clone_from(&config.secret_env);
        cx.todo = self.todo.clone();
        cx.seen = self.seen.clone();
        cx.progress = Some(self.progress_sink());
        cx.spawned = Some(self.spawn_sink());
        cx.unreadable = Some(self.hidden_files());
        Ok(cx)
    }

    fn progress_sink(&self) -> ProgressSink {
        let secrets = self.cx.shared.config.secrets.clone();
        let (hub, session, call) = (
            self.cx.shared.hub.clone(),
            self.cx.session.clone(),
            self.call.clone(),
        );
        ProgressSink::new(move |progress| {
            hub.send(
                &session,
                LiveItem::ToolOutput {
                    call: call.clone(),
                    text: masked(&secrets, progress.text),
                    total_bytes: progress.total_bytes,
                },
            );
        })
    }

    /// Files the rules deny to `read` stay hidden from searches of the tree they lie in.
    fn hidden_files(&self) -> PathFilter {
        let rules = self.rules();
        let workspace = self.cx.workspace.clone();
        PathFilter::new(move |real| hides(&rules, "read", real, &Place::new(&workspace)))
    }

    /// `tool.started` and the process become durable before the command begins, so that a successor can find
    /// it (R10).
    fn spawn_sink(&self) -> SpawnSink {
        let (writer, start) = (self.writer.clone(), Start::of(self));
        let (shared, life) = (self.cx.shared.clone(), self.cx.life.clone());
        SpawnSink::new(move |spawned| {
            let process = ProcessId {
                pid: spawned.pid,
                pid_start: spawned.pid_start,
                boot_id: spawned.boot_id,
            };
            let (writer, start) = (writer.clone(), start.clone());
            let (shared, life) = (shared.clone(), life.clone());
            async move {
                start
                    .record(&writer, Some(process))
                    .await
                    .map_err(|error| format!("Not executed: {error}"))?;
                if shared.node.may_go_on(&life).await {
                    Ok(())
                } else {
                    Err("Not executed: this node may no longer start anything".to_owned())
                }
            }
        })
    }

    async fn execute(&self, cx: ToolCx, input: serde_json::Value) -> Settlement {
        let tools = &self.cx.shared.tools;
        let run = AssertUnwindSafe(tools.run(&self.name, cx, &input)).catch_unwind();
        let body = match run.await {
            Ok(Ok(output)) => self.success(output),
            // A tool that reports its process begins with that report: refused there, it never began.
            Ok(Err(error)) if !self.has_begun() => {
                self.failure(ToolFailure::NotExecuted, &non_empty(error.to_string()))
            }
            Ok(Err(error)) => self.error(error),
            Err(_) => {
                let text = format!(
                    "The tool {} failed by a fault of its own (it panicked)",
                    self.name
                );
                self.failure(ToolFailure::Failed, &text)
            }
        };
        Settlement { body }
    }

    /// Is its `tool.started` durable?
    fn has_begun(&self) -> bool {
        let turn = self.writer.turn();
        let call = turn.call(&self.call);
        call.is_some_and(|call| {
            matches!(
                call.status,
                CallStatus::Started { .. } | CallStatus::Settled
            )
        })
    }

    fn success(&self, output: ToolOutput) -> EventBody {
        ToolSucceeded {
            message: self.message.clone(),
            call: self.call.clone(),
            text: self.masked(non_empty(output.text)),
            title: self.masked(output.title),
            metadata: self.masked_value(output.metadata),
            cut: output.truncation.as_ref().map(cut),
            native: None,
        }
        .into()
    }

    fn masked(&self, text: String) -> String {
        masked(&self.cx.shared.config.secrets, text)
    }

    fn masked_value(&self, value: serde_json::Value) -> serde_json::Value {
        use serde_json::Value;
        match value {
            Value::String(text) => Value::String(self.masked(text)),
            Value::Array(items) => {
                let masked = items.into_iter().map(|item| self.masked_value(item));
                Value::Array(masked.collect())
            }
            Value::Object(fields) => {
                let masked = fields
                    .into_iter()
                    .map(|(name, field)| (name, self.masked_value(field)));
                Value::Object(masked.collect())
            }
            other => other,
        }
    }

    fn error(&self, error: ToolError) -> EventBody {
        let text = non_empty(error.to_string());
        let (failure, truncation) = match error {
            ToolError::InvalidInput { .. } | ToolError::UnknownTool { .. } => {
                (ToolFailure::NotExecuted, None)
            }
            ToolError::TimedOut { truncation, .. } => (ToolFailure::TimedOut, truncation),
            ToolError::Interrupted { truncation, .. } => {
                let text = format!("Tool execution interrupted\n{text}");
                return self.failed(ToolFailure::Interrupted, text, truncation.as_ref());
            }
            ToolError::Failed { truncation, .. } => (ToolFailure::Failed, truncation),
            ToolError::NotFound { .. } | ToolError::Refused { .. } | ToolError::Io { .. } => {
                (ToolFailure::Failed, None)
            }
        };
        self.failed(failure, text, truncation.as_ref())
    }

    pub(super) fn failure(&self, failure: ToolFailure, text: &str) -> EventBody {
        self.failed(failure, text.to_owned(), None)
    }

    fn failed(
        &self,
        failure: ToolFailure,
        text: String,
        truncation: Option<&Truncation>,
    ) -> EventBody {
        ToolFailed {
            message: self.message.clone(),
            call: self.call.clone(),
            failure,
            text: self.masked(text),
            cut: truncation.map(cut),
            native: None,
        }
        .into()
    }

    /// Writes the one settlement, unless somebody else has written it. With a generation given, a result of
    /// a replaced attachment is refused by the store (R14).
    async fn settle(&self, body: EventBody, generation: Option<u64>) -> Result<(), DrainError> {
        let left = self.trace.some();
        if left {
            leftovers::see_to(
                &self.cx.shared,
                &self.cx.session,
                std::slice::from_ref(&self.trace),
            );
        }
        let op = HookOp::EffectEnd {
            message: self.message.clone(),
            call: self.call.clone(),
            generation,
            left,
        };
        let call = self.call.clone();
        // Stopped calls leave the step to whoever stops them: it did not end well.
        let stopped = self.cancel.is_cancelled();
        let mut ops = vec![op];
        if generation.is_some() && !stopped {
            // It ran to its end in normal running: charges are forgotten (R8).
            ops.push(HookOp::Progress);
        }
        let appended = self
            .writer
            .append_with(move |turn| {
                let open = turn
                    .call(&call)
                    .is_some_and(|c| c.status != CallStatus::Settled);
                open.then(|| match stopped {
                    true => Batch::settle(vec![body], ops),
                    false => super::step::settle_and_end(turn, vec![body], ops),
                })
            })
            .await;
        match appended {
            Ok(_) => Ok(()),
            Err(AppendError::StaleAttachment { .. }) => {
                tracing::info!(session = %self.cx.session, call = %self.call, "late result of a replaced attachment refused");
                Box::pin(self.settle_stale()).await
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The location was replaced while this call was open: its result is not used (R14).
    async fn settle_stale(&self) -> Result<(), DrainError> {
        let text =
            "The session's location was replaced while this call was open; its result is not used";
        self.settle(self.failure(ToolFailure::Stale, text), None)
            .await
    }

    pub(super) fn rules(&self) -> Rules {
        self.cx
            .rules
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn input(&self) -> Arc<str> {
        self.input.clone()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// The start of a call, to be made durable.
#[derive(Clone)]
struct Start {
    message: MessageId,
    call: CallId,
    generation: u64,
    unguarded: bool,
}

impl Start {
    fn of(task: &CallTask) -> Self {
        Self {
            message: task.message.clone(),
            call: task.call.clone(),
            generation: task.cx.generation,
            unguarded: broken!(task.cx.shared.config, ToolStartUnguarded),
        }
    }

    /// Makes `tool.started` durable, with its process when that is known already. A process alone is recorded when
    /// the start already is.
    async fn record(self, writer: &Writer, process: Option<ProcessId>) -> Result<(), AppendError> {
        writer
            .append_with(move |turn| Some(self.batch(turn, process)))
            .await?;
        Ok(())
    }

    fn batch(self, turn: &TurnState, process: Option<ProcessId>) -> Batch {
        let Self {
            message,
            call,
            generation,
            unguarded,
        } = self;
        let begun = turn
            .call(&call)
            .is_some_and(|c| matches!(c.status, CallStatus::Started { .. }));
        let mut events: Vec<EventBody> = Vec::new();
        let mut ops = Vec::new();
        if !begun {
            events.push(
                ToolStarted {
                    message: message.clone(),
                    call: call.clone(),
                    generation,
                }
                .into(),
            );
            ops.push(HookOp::EffectStart {
                message: message.clone(),
                call: call.clone(),
                generation,
            });
        }
        if let Some(process) = process {
            ops.push(HookOp::EffectProcess {
                message,
                call,
                process,
            });
        }
        if unguarded {
            Batch::settle(events, ops)
        } else {
            Batch::start(events, ops)
        }
    }
}

fn cut(truncation: &Truncation) -> OutputCut {
    OutputCut {
        total_bytes: truncation.total_bytes,
        full_path: truncation
            .full_path
            .as_ref()
            .map(|path| path.display().to_string())
            .unwrap_or_default(),
    }
}

/// No key this process knows goes into the log, to a reader or to a model, whatever a tool prints.
fn masked(secrets: &[Secret], text: String) -> String {
    secrets.iter().fold(text, |text, secret| {
        if text.contains(secret.expose()) {
            secret.mask(&text)
        } else {
            text
        }
    })
}

fn non_empty(mut text: String) -> String {
    // A tool of somebody else's may still print one.
    replace_nul(&mut text);
    if text.trim().is_empty() {
        "(no output)".to_owned()
    } else {
        text
    }
}
