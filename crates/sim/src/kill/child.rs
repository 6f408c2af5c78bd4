//! One real `tenure` process whose `--json` output is counted, and which is killed when its plan says so.

use super::plan::Killing;
use crate::processes;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::time::Duration;
use tenure_core::SessionId;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

/// No process of a kill run has anything to do that takes longer.
const PATIENCE: Duration = Duration::from_secs(90);

/// How the process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ended {
    /// By our SIGKILL.
    Killed,
    /// By itself, with this code.
    Code(i32),
}

/// What was learned of it.
#[derive(Debug)]
pub(super) struct Told {
    pub ended: Ended,
    /// The session it named.
    pub session: Option<SessionId>,
    /// Its prompt was acknowledged as this input.
    pub input: Option<String>,
    pub stderr: String,
}

/// Called with the number of events after each one that is seen.
pub(super) type OnEvent<'a> = &'a mut (dyn FnMut(u64, &SessionId) + Send);

/// Runs the command until it ends, or kills it. `mark`: background nodes that carry it are killed with it.
pub(super) async fn run(
    mut command: Command,
    killing: Option<&Killing>,
    mark: &str,
    on_event: OnEvent<'_>,
) -> Result<Told> {
    let mut child = command.spawn().context("`tenure` cannot be started")?;
    let stdout = child.stdout.take().context("the output is piped")?;
    let mut stderr = child.stderr.take().context("the errors are piped")?;
    let said = tokio::spawn(async move {
        let mut text = String::new();
        // What it said is for people; a part is better than nothing.
        let _ = stderr.read_to_string(&mut text).await;
        text
    });
    let mut lines = BufReader::new(stdout).lines();
    let mut told = Told {
        ended: Ended::Killed,
        session: None,
        input: None,
        stderr: String::new(),
    };
    let mut events = 0;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(killing) = killing.filter(|killing| events >= killing.after_events) {
            if let Some(code) = kill_after(&mut child, killing.delay, mark).await? {
                told.ended = Ended::Code(code);
            }
            // What it had written before is still in the pipe.
            while let Ok(Some(line)) = lines.next_line().await {
                read(&line, &mut told);
            }
            break;
        }
        let line = tokio::time::timeout_at(deadline, lines.next_line()).await;
        match line.context("`tenure` wrote nothing and did not end")?? {
            Some(line) => {
                if read(&line, &mut told) {
                    events += 1;
                    if let Some(session) = &told.session {
                        on_event(events, session);
                    }
                }
            }
            None => {
                let status = tokio::time::timeout_at(deadline, child.wait()).await;
                let status = status.context("`tenure` closed its output and did not end")??;
                told.ended = Ended::Code(status.code().unwrap_or(-1));
                break;
            }
        }
    }
    told.stderr = said.await.unwrap_or_default();
    Ok(told)
}

/// Waits, then kills; its exit code when it ended by itself before.
async fn kill_after(child: &mut Child, delay: Duration, mark: &str) -> Result<Option<i32>> {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    if let Some(status) = child.try_wait()? {
        return Ok(Some(status.code().unwrap_or(-1)));
    }
    child.start_kill()?;
    for process in processes::marked(mark)? {
        if process.command.contains(" node ") {
            processes::kill(process.pid);
        }
    }
    child.wait().await?;
    Ok(None)
}

/// Reads one line of output. True when it is a durable event.
fn read(line: &str, told: &mut Told) -> bool {
    // A line that the kill cut in two is no line.
    let Ok(value) = serde_json::from_str::<Value>(line) else {
        return false;
    };
    match value["kind"].as_str() {
        Some("session") => {
            told.session = value["session"]
                .as_str()
                .and_then(|id| SessionId::parse(id).ok());
            told.input = value["input"].as_str().map(str::to_owned);
            false
        }
        Some("event") => true,
        _ => false,
    }
}

impl Told {
    /// The exit code of a process that was not killed.
    pub(super) fn code(&self) -> Result<i32> {
        match self.ended {
            Ended::Code(code) => Ok(code),
            Ended::Killed => bail!("the process was killed"),
        }
    }
}
