//! Tools of the simulation: they do nothing but say in the world's book that they began and ended.

use super::environment::Machine;
use super::executor::{Executor, Proc};
use super::ledger::{Ended, Ledger, Starting};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;
use tenure_core::id::{CallId, MessageId, SessionId};
use tenure_core::placement::Serves;
use tenure_tools::permission::Access;
use tenure_tools::{AtWork, Spawned, Tool, ToolCx, ToolError, ToolOutput, ToolSet, ToolSpec};

/// How often a command that does not end is looked at, in microseconds.
const LOOKS: u64 = 100_000;
/// So many looks later its node has ended it.
const DEAF_FOR: u64 = 30;

/// What the tools of one process know of the world.
#[derive(Clone)]
pub struct Bench {
    /// The world's executor.
    pub executor: Executor,
    /// The world's book.
    pub ledger: Arc<Ledger>,
    /// Their process.
    pub proc: Proc,
    /// Where it runs.
    pub machine: Arc<Machine>,
    /// Which places are served there.
    pub serves: Serves,
}

impl Bench {
    /// The tools of the process.
    pub fn tools(&self) -> ToolSet {
        ToolSet::empty()
            .with(Arc::new(Work(self.clone())))
            .with(Arc::new(Note(self.clone())))
            .with(Arc::new(Watch(self.clone())))
            .with(Arc::new(Ask(self.clone())))
    }

    /// It begins, physically; none outside any session.
    fn begin(&self, cx: &ToolCx, pid: u32, guarded: bool) -> Option<Running> {
        self.begin_as(cx, pid, guarded, false)
    }

    fn begin_as(&self, cx: &ToolCx, pid: u32, guarded: bool, deaf: bool) -> Option<Running> {
        let session = SessionId::parse(&cx.session).ok()?;
        let message = message_of(cx)?;
        let number = self.ledger.start(Starting {
            session,
            message,
            call: CallId::new(cx.call.as_str()),
            proc: self.proc,
            machine: self.machine.clone(),
            serves: self.serves.clone(),
            pid,
            lease: cx.guardian.lease.clone().filter(|_| guarded),
            deaf,
        });
        Some(Running {
            ledger: self.ledger.clone(),
            number,
        })
    }

    /// Its guardian is stopped: the command goes on, and whoever started it follows it and ends it by other means,
    /// which takes a while.
    fn follow(&self, running: Running, at_work: Option<AtWork>) {
        let executor = self.executor.clone();
        self.executor.spawn(self.proc, async move {
            for _ in 0..DEAF_FOR {
                executor.sleep_micros(LOOKS).await;
                if !running.is_alive() {
                    break;
                }
            }
            running.end(Ended::Killed);
            drop(at_work);
        });
    }
}

/// Outputs are kept by session and message.
fn message_of(cx: &ToolCx) -> Option<MessageId> {
    let name = cx.output_dir.file_name()?.to_str()?;
    MessageId::parse(name).ok()
}

/// A call that runs; dropping it kills it.
struct Running {
    ledger: Arc<Ledger>,
    number: usize,
}

impl Running {
    fn end(&self, how: Ended) -> bool {
        self.ledger.end(self.number, how)
    }

    fn is_alive(&self) -> bool {
        self.ledger.lives(self.number)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end(Ended::Killed);
    }
}

fn homeless() -> ToolError {
    ToolError::failed("a call outside any session")
}

fn spec(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: "A tool of the simulation.".to_owned(),
        input_schema: json!({"type": "object"}),
    }
}

fn said(text: &str) -> ToolOutput {
    ToolOutput {
        text: text.to_owned(),
        ..ToolOutput::default()
    }
}

/// Takes its time under a guardian, as a shell command does.
struct Work(Bench);

#[async_trait]
impl Tool for Work {
    fn spec(&self) -> ToolSpec {
        spec("work")
    }

    fn access(&self, _: &ToolCx, _: &Value) -> Result<Vec<Access>, ToolError> {
        Ok(Vec::new())
    }

    fn reports_spawn(&self) -> bool {
        true
    }

    async fn run(&self, cx: ToolCx, input: Value) -> Result<ToolOutput, ToolError> {
        let pid = self.0.ledger.pid();
        if let Some(spawned) = &cx.spawned {
            let guardian = Spawned {
                pid,
                pid_start: u64::from(pid),
                boot_id: self.0.machine.boot_id.clone(),
            };
            // As the real one: a command that is stopped before its leave has come does not begin.
            tokio::select! {
                biased;
                () = cx.cancel.cancelled() => return Err(ToolError::interrupted("the work")),
                leave = spawned.report(guardian) => leave.map_err(ToolError::refused)?,
            }
        }
        if cx.cancel.is_cancelled() {
            return Err(ToolError::interrupted("the work"));
        }
        let deaf = input["deaf"] == json!(true);
        let running = self.0.begin_as(&cx, pid, true, deaf);
        let running = running.ok_or_else(homeless)?;
        let micros = input["ms"].as_u64().unwrap_or(1) * 1_000;
        let stopped = tokio::select! {
            biased;
            () = cx.cancel.cancelled() => true,
            () = self.0.executor.sleep_micros(micros) => false,
        };
        if stopped && deaf {
            self.0.follow(running, cx.at_work.clone());
            return Err(ToolError::interrupted("the work"));
        }
        if stopped {
            // The guardian's own grace for a command that ignores SIGTERM.
            let grace = if input["stubborn"] == json!(true) {
                200_000
            } else {
                2_000
            };
            self.0.executor.sleep_micros(grace).await;
            running.end(Ended::Killed);
            return Err(ToolError::interrupted("the work"));
        }
        if !running.end(Ended::Done) {
            return Err(ToolError::failed("the work was killed"));
        }
        if input["fail"] == json!(true) {
            return Err(ToolError::failed("the work failed as asked"));
        }
        Ok(said("worked"))
    }
}

/// Done at once, inside the node's own process.
struct Note(Bench);

#[async_trait]
impl Tool for Note {
    fn spec(&self) -> ToolSpec {
        spec("note")
    }

    fn access(&self, _: &ToolCx, _: &Value) -> Result<Vec<Access>, ToolError> {
        Ok(Vec::new())
    }

    async fn run(&self, cx: ToolCx, _: Value) -> Result<ToolOutput, ToolError> {
        let running = self.0.begin(&cx, 0, false).ok_or_else(homeless)?;
        running.end(Ended::Done);
        Ok(said("noted"))
    }
}

/// Takes its time inside the node's own process, as a call to another server does: nobody but the node ends it.
struct Watch(Bench);

#[async_trait]
impl Tool for Watch {
    fn spec(&self) -> ToolSpec {
        spec("watch")
    }

    fn access(&self, _: &ToolCx, _: &Value) -> Result<Vec<Access>, ToolError> {
        Ok(Vec::new())
    }

    async fn run(&self, cx: ToolCx, input: Value) -> Result<ToolOutput, ToolError> {
        let running = self.0.begin(&cx, 0, false).ok_or_else(homeless)?;
        let micros = input["ms"].as_u64().unwrap_or(1) * 1_000;
        tokio::select! {
            biased;
            () = cx.cancel.cancelled() => {
                running.end(Ended::Killed);
                return Err(ToolError::interrupted("the watch"));
            }
            () = self.0.executor.sleep_micros(micros) => {}
        }
        running.end(Ended::Done);
        Ok(said("watched"))
    }
}

/// Needs leave first.
struct Ask(Bench);

#[async_trait]
impl Tool for Ask {
    fn spec(&self) -> ToolSpec {
        spec("ask")
    }

    fn access(&self, cx: &ToolCx, _: &Value) -> Result<Vec<Access>, ToolError> {
        Ok(vec![Access::Write {
            given: "a.txt".to_owned(),
            real: cx.workspace.join("a.txt"),
        }])
    }

    async fn run(&self, cx: ToolCx, _: Value) -> Result<ToolOutput, ToolError> {
        let running = self.0.begin(&cx, 0, false).ok_or_else(homeless)?;
        running.end(Ended::Done);
        Ok(said("done as allowed"))
    }
}
