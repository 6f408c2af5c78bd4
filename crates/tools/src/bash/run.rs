//! One run of a command: from the guardian's start to the last byte of output.

use std::fs::File;
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;

use super::followed::Followed;
use crate::guardian::{Ended, ExitKind, Guarded, Killed, Report, Why, kill_leftover};
use crate::output::{Collected, Collector, clean};
use crate::tool::{Progress, ToolCx, ToolError};

/// How long output may be quiet, after everything ended, before whoever still holds it is left alone.
const QUIET: Duration = Duration::from_millis(200);
/// How long reading may go on after everything ended.
const DRAIN: Duration = Duration::from_secs(2);
/// How long the guardian may take to end everything before the call returns without it.
const GIVE_UP: Duration = Duration::from_secs(3);
const CHUNK: usize = 64 * 1024;

/// Who stopped a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    Interrupt,
    TimeLimit(Duration),
    /// The node that ran it lost its right to.
    Lease,
    /// Somebody else signalled the guardian.
    Signal,
}

/// What is known when a run is over.
pub(super) struct Finished {
    pub(super) collected: Collected,
    pub(super) ended: Ended,
    pub(super) stopped: Option<Stopped>,
    pub(super) took: Duration,
    /// Something outside the guardian's reach still holds the output.
    pub(super) held: bool,
    /// The guardian itself was killed.
    pub(super) guardian_lost: bool,
    /// The guardian had not finished when the call gave up waiting.
    pub(super) gave_up: bool,
}

/// Runs a command in an open directory. Dropping the future ends everything the command started; the call's mark of
/// being at work is kept until that is seen.
pub(super) async fn run(
    cx: &ToolCx,
    dir: &File,
    command: &str,
    limit: Duration,
) -> Result<Finished, ToolError> {
    let failed = |e: crate::guardian::StartError| ToolError::failed(format!("Not executed: {e}."));
    if cx.cancel.is_cancelled() {
        return Err(not_begun());
    }
    let guarded = Guarded::prepare(&cx.guardian, dir, &cx.env_remove).map_err(failed)?;
    if let Some(sink) = &cx.spawned {
        tokio::select! {
            biased;
            () = cx.cancel.cancelled() => return Err(not_begun()),
            leave = sink.report(guarded.spawned().clone()) => {
                leave.map_err(|reason| ToolError::refused(format!("the command was not begun: {reason}")))?;
            }
        }
    }
    if cx.cancel.is_cancelled() {
        return Err(not_begun());
    }
    // From here on the command may run.
    let mut followed = Followed::new(guarded, cx.at_work.clone());
    followed.guarded().go(command).await.map_err(failed)?;
    Run::new(cx, limit).follow(followed).await
}

fn not_begun() -> ToolError {
    ToolError::Interrupted {
        text: "Interrupted before the command began; nothing was executed.".into(),
        metadata: serde_json::json!({ "begun": false }),
        truncation: None,
    }
}

struct Run<'a> {
    cx: &'a ToolCx,
    limit: Duration,
    began: Instant,
    collector: Collector,
    stopped: Option<Stopped>,
    exit: Option<ExitKind>,
    stuck: Vec<Killed>,
}

/// How the guardian's reports ended.
enum Last {
    Done(Vec<Killed>, u64),
    Lost,
    GaveUp,
}

impl<'a> Run<'a> {
    fn new(cx: &'a ToolCx, limit: Duration) -> Self {
        Self {
            cx,
            limit,
            began: Instant::now(),
            collector: Collector::new(cx.limits, &cx.output_dir, &cx.call),
            stopped: None,
            exit: None,
            stuck: Vec::new(),
        }
    }

    async fn follow(mut self, mut followed: Followed) -> Result<Finished, ToolError> {
        let mut buffer = vec![0_u8; CHUNK];
        let mut open = true;
        let last = self.watch(&mut followed, &mut buffer, &mut open).await?;
        if matches!(last, Last::Done(..)) {
            followed.is_over();
        }
        let held = open && self.drain(followed.guarded(), &mut buffer).await;
        let took = self.began.elapsed();
        let guardian_lost = matches!(last, Last::Lost);
        let mut gave_up = matches!(last, Last::GaveUp);
        // A guardian that is gone, or that does not answer (the command may have stopped it), is replaced here.
        if guardian_lost || (gave_up && self.stuck.is_empty()) {
            gave_up = !self.sweep(followed.guarded()).await;
            if !gave_up {
                followed.is_over();
            }
        }
        let (killed, more_killed) = match last {
            Last::Done(killed, more) => (killed, more),
            Last::Lost | Last::GaveUp => (Vec::new(), 0),
        };
        let ended = Ended {
            exit: self.exit,
            killed,
            more_killed,
            stuck: self.stuck,
        };
        let collected = self.collector.finish();
        Ok(Finished {
            collected,
            ended,
            stopped: self.stopped,
            took,
            held,
            guardian_lost,
            gave_up,
        })
    }

    async fn watch(
        &mut self,
        followed: &mut Followed,
        buffer: &mut [u8],
        open: &mut bool,
    ) -> Result<Last, ToolError> {
        let deadline = tokio::time::sleep(self.limit);
        let give_up = tokio::time::sleep(self.limit + GIVE_UP);
        tokio::pin!(deadline, give_up);
        let cancel = self.cx.cancel.clone();
        loop {
            let step = {
                // Two borrows of one guardian: its reports and its output.
                let (reports, output) = followed.guarded().split();
                tokio::select! {
                    biased;
                    () = cancel.cancelled(), if self.stopped.is_none() => Step::Stop(Stopped::Interrupt),
                    () = &mut deadline, if self.stopped.is_none() => Step::Stop(Stopped::TimeLimit(self.limit)),
                    report = reports.next() => Step::Report(report),
                    n = output.read(buffer), if *open => Step::Output(n.unwrap_or(0)),
                    () = &mut give_up => return Ok(Last::GaveUp),
                }
            };
            match step {
                Step::Stop(by) => {
                    self.stopped = Some(by);
                    give_up
                        .as_mut()
                        .reset(tokio::time::Instant::now() + GIVE_UP);
                    followed.guarded().kill().await;
                }
                Step::Output(0) => *open = false,
                Step::Output(n) => self.take(buffer.get(..n).unwrap_or_default()),
                Step::Report(Some(Report::NotStarted(reason))) => {
                    followed.is_over();
                    return Err(ToolError::failed(format!("Not executed: {reason}.")));
                }
                Step::Report(Some(Report::Exited(kind))) => {
                    self.exit = Some(kind);
                    give_up
                        .as_mut()
                        .reset(tokio::time::Instant::now() + GIVE_UP);
                }
                Step::Report(Some(Report::Ending(why))) => {
                    let by = match why {
                        Why::Lease => Some(Stopped::Lease),
                        Why::Signal => Some(Stopped::Signal),
                        Why::Order | Why::Leftover => None,
                    };
                    self.stopped = self.stopped.or(by);
                    give_up
                        .as_mut()
                        .reset(tokio::time::Instant::now() + GIVE_UP);
                }
                Step::Report(Some(Report::Stuck(stuck))) => {
                    followed.stuck = true;
                    self.stuck = stuck;
                }
                Step::Report(Some(Report::Done {
                    killed,
                    more_killed,
                })) => {
                    return Ok(Last::Done(killed, more_killed));
                }
                Step::Report(None) => return Ok(Last::Lost),
            }
        }
    }

    /// Reads what is left in the pipe; `true` when somebody still holds it open.
    async fn drain(&mut self, guarded: &mut Guarded, buffer: &mut [u8]) -> bool {
        let until = Instant::now() + DRAIN;
        while Instant::now() < until {
            match tokio::time::timeout(QUIET, guarded.output.read(buffer)).await {
                Ok(Ok(0) | Err(_)) => return false,
                Ok(Ok(n)) => self.take(buffer.get(..n).unwrap_or_default()),
                Err(_) => return true,
            }
        }
        true
    }

    fn take(&mut self, bytes: &[u8]) {
        self.collector.push(bytes);
        if let Some(progress) = &self.cx.progress {
            // A character cut by the piece's end shows as a replacement here; the result is decoded whole.
            let text = clean(&String::from_utf8_lossy(bytes)).into_owned();
            progress.send(Progress {
                text,
                total_bytes: self.collector.total_bytes(),
            });
        }
    }

    /// Ends what the guardian watched, and it; found by identity and mark. Gives whether nothing is left.
    async fn sweep(&mut self, guarded: &Guarded) -> bool {
        let spawned = guarded.spawned().clone();
        let swept = tokio::task::spawn_blocking(move || {
            kill_leftover(spawned.pid, spawned.pid_start, &spawned.boot_id)
        });
        match swept.await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => {
                tracing::warn!(%error, "a command left processes behind");
                false
            }
            Err(_) => false,
        }
    }
}

enum Step {
    Stop(Stopped),
    Report(Option<Report>),
    Output(usize),
}
