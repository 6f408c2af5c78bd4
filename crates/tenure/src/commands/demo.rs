//! `tenure demo`: a crash in the middle of a tool call, a takeover, an interrupt, and the promises checked.

use super::{Context, print};
use crate::args::DemoArgs;
use crate::demo::checks::{self, Check};
use crate::demo::stage::{Stage, TASK, WAIT};
use crate::demo::timeline::{self, Moment};
use crate::exit::{CliError, CliResult, Kind};
use crate::render::spans::Style;
use futures::StreamExt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_core::event::{Event, EventBody};
use tenure_core::{MessageId, SessionId};
use tenure_store::{FollowItem, OpenOptions, SqliteStore, Store};

/// Nothing of the demonstration takes longer than this.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often something outside the log is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Runs it.
pub async fn run(cx: &Context, args: &DemoArgs) -> CliResult {
    let began = Instant::now();
    let stage = Stage::build().await?;
    let result = Play { cx, stage: &stage }.all().await;
    let ok = match result {
        Ok(ok) => ok,
        // Nobody reads on: there is nothing to look into, nor anybody who could be told where it lies.
        Err(error) if error.kind == Kind::Quiet && !args.keep => return Err(error),
        Err(error) => {
            let kept = stage.keep();
            return Err(error.hint(format!("everything is kept in {}", kept.display())));
        }
    };
    if args.keep || !ok {
        print(&format!("kept: {}\n", stage.keep().display()))?;
    }
    if ok {
        print(&format!(
            "\nAll promises kept, in {:.1} s.\n",
            began.elapsed().as_secs_f64()
        ))
    } else {
        Err(CliError::failed("a promise was broken")
            .hint("that is a defect of Tenure: please report it"))
    }
}

struct Play<'a> {
    cx: &'a Context,
    stage: &'a Stage,
}

impl Play<'_> {
    async fn all(&self) -> CliResult<bool> {
        self.say("The model in this demonstration is scripted: it follows a file, and is served on a loopback port.")?;
        self.say("Everything else is real: the processes, the kill, the store, the tools.\n")?;
        self.step("1", &format!("a process works on: {TASK}"))?;
        let mut first = self.child(&["run", TASK, "--json"])?;
        let session = session_of(&mut first).await?;
        let store = SqliteStore::open(&self.stage.path("tenure.db"), OpenOptions::default())
            .map_err(|e| CliError::failed(e.to_string()))?;
        let mut moments = Vec::new();

        let at = self.in_the_middle(&store, &session).await?;
        first.kill().and_then(|()| first.wait())?;
        let words = format!(
            "SIGKILL of process {} in the middle of the tool call",
            first.id()
        );
        self.step("2", &words)?;
        moments.push(Moment { after: at, words });

        self.step("3", "another process takes over and finishes")?;
        let second = self.child(&["resume", session.as_str(), "--json"])?;
        finished(second, "the second process").await?;
        let tested = self.run_test()?;
        self.step(
            "4",
            &format!("the project's own test, run by hand: {tested}"),
        )?;

        self.step("5", "a long command is started and interrupted")?;
        self.interrupted(&store, &session).await?;
        self.report(&store, &session, &moments).await
    }

    /// Waits for the durable start of the slow call, the end of the quick one, and the command itself.
    async fn in_the_middle(&self, store: &Arc<SqliteStore>, session: &SessionId) -> CliResult<u64> {
        let mut bash = None;
        let mut read_is_done = false;
        let seq = until(store, session, "the first tool call", |event| {
            match &event.body {
                EventBody::ToolCalled(e) if e.name == "bash" => bash = Some(e.call.clone()),
                EventBody::ToolSucceeded(_) => read_is_done = true,
                EventBody::ToolStarted(e) if Some(&e.call) == bash.as_ref() => {
                    bash_started(&mut bash)
                }
                _ => {}
            }
            read_is_done && bash.is_none()
        })
        .await?;
        appears(&self.stage.path("project/.built")).await?;
        Ok(seq)
    }

    async fn interrupted(&self, store: &Arc<SqliteStore>, session: &SessionId) -> CliResult {
        let child = self.child(&["run", "--session", session.as_str(), WAIT, "--json"])?;
        appears(&self.stage.path("project/waiting")).await?;
        let asked = self.child(&["interrupt", session.as_str()])?;
        finished(asked, "the interrupt").await?;
        // Its exit code says that it was interrupted.
        let status = ended(child).await?;
        if status.code() != Some(130) {
            return Err(CliError::failed(format!(
                "the interrupted process ended with {status}, not with 130"
            )));
        }
        until(
            store,
            session,
            "the end of the interrupted execution",
            |event| matches!(event.body, EventBody::ExecutionInterrupted(_)),
        )
        .await?;
        Ok(())
    }

    async fn report(
        &self,
        store: &Arc<SqliteStore>,
        session: &SessionId,
        moments: &[Moment],
    ) -> CliResult<bool> {
        let row = crate::store::find(store.as_ref(), session.as_str()).await?;
        let mut events = Vec::new();
        super::show::each_event(store.as_ref(), &row, None, |event| {
            events.push(event);
            Ok(())
        })
        .await?;
        print("\n")?;
        for line in timeline::lines(&events, moments, self.cx.caps) {
            print(&format!("{line}\n"))?;
        }
        print("\nWhat recovery decided\n")?;
        for line in timeline::recovery(&events) {
            print(&format!("  {line}\n"))?;
        }
        let requests = self.stage.model.requests();
        let pending: Vec<MessageId> = store
            .inbox(session)
            .await?
            .into_iter()
            .map(|p| p.input)
            .collect();
        let alive = processes_in(&self.stage.path("project")).await;
        let claims = store.claims().await?.len();
        print("\nThe promises, checked on the log and on what the model was asked\n")?;
        let mut ok = true;
        for check in [
            checks::one_owner(&events),
            checks::nothing_lost(&events, &pending),
            checks::always_sendable(&requests),
            checks::cancel_is_an_event(&events, claims, &alive),
            checks::honest_effects(&events, requests.len()),
        ] {
            ok &= self.check(&check)?;
        }
        Ok(ok)
    }

    fn check(&self, check: &Check) -> CliResult<bool> {
        let colour = self.cx.caps.colour && self.cx.caps.stdout;
        let good = check.broken.is_empty();
        let mark = if good {
            Style::colour(Style::GREEN).paint("✓", colour)
        } else {
            Style::colour(Style::RED).paint("✗", colour)
        };
        let words = if good {
            check.words.clone()
        } else {
            check.broken.join("; ")
        };
        print(&format!("  {mark} {}: {words}\n", check.name))?;
        Ok(good)
    }

    fn run_test(&self) -> CliResult<String> {
        let out = std::process::Command::new("sh")
            .arg(self.stage.path("project/test.sh"))
            .output()?;
        let text = String::from_utf8_lossy(&out.stdout).trim().to_owned();
        if out.status.success() {
            Ok(text)
        } else {
            Err(CliError::failed(format!(
                "the project's test still fails: {text}"
            )))
        }
    }

    fn child(&self, args: &[&str]) -> CliResult<Child> {
        Ok(self.stage.command(args)?.stdout(Stdio::piped()).spawn()?)
    }

    fn say(&self, text: &str) -> CliResult {
        print(&format!("{text}\n"))
    }

    fn step(&self, number: &str, text: &str) -> CliResult {
        let colour = self.cx.caps.colour && self.cx.caps.stdout;
        print(&format!("{} {text}\n", Style::bold().paint(number, colour)))
    }
}

/// The slow call has begun: it is no longer waited for.
fn bash_started(bash: &mut Option<tenure_core::CallId>) {
    *bash = None;
}

/// The session a child names in its first line. What it writes after that is read and dropped, so that it never
/// waits for a reader.
async fn session_of(child: &mut Child) -> CliResult<SessionId> {
    let stdout = child
        .stdout
        .take()
        .ok_or_else(|| CliError::failed("the child has no output"))?;
    let (send, receive) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        let mut line = String::new();
        let read = reader.read_line(&mut line);
        // The receiver is there until it has this.
        let _ = send.send(read.map(|_| line));
        let _ = std::io::copy(&mut reader, &mut std::io::sink());
    });
    let line = tokio::time::timeout(PATIENCE, receive)
        .await
        .map_err(|_| CliError::failed("the first process did not begin in time"))?
        .map_err(|_| CliError::failed("the first process said nothing"))??;
    let value: serde_json::Value = serde_json::from_str(&line)
        .map_err(|_| CliError::failed("the first process failed").hint("see processes.log"))?;
    SessionId::parse(value["session"].as_str().unwrap_or_default())
        .map_err(|e| CliError::failed(e.to_string()))
}

/// Follows the log until `done`; gives the seq of the event that made it so.
async fn until(
    store: &Arc<SqliteStore>,
    session: &SessionId,
    what: &str,
    mut done: impl FnMut(&Event) -> bool,
) -> CliResult<u64> {
    let store: Arc<dyn Store> = store.clone();
    let mut items = tenure_store::follow(store, session.clone(), None);
    let follow = async {
        while let Some(item) = items.next().await {
            if let FollowItem::Event(event) = item?
                && done(&event)
            {
                return Ok(event.seq);
            }
        }
        Err(CliError::failed("the log ended"))
    };
    tokio::time::timeout(PATIENCE, follow).await.map_err(|_| {
        CliError::failed(format!("{what} did not come in time")).hint("see processes.log")
    })?
}

/// Waits for a file: the sign of a command that it has begun.
async fn appears(path: &Path) -> CliResult {
    let began = Instant::now();
    while !path.exists() {
        if began.elapsed() > PATIENCE {
            return Err(CliError::failed(format!(
                "{} did not appear in time",
                path.display()
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

async fn ended(child: Child) -> CliResult<std::process::ExitStatus> {
    let id = child.id();
    let waiting = tokio::task::spawn_blocking(move || child.wait_with_output());
    match tokio::time::timeout(PATIENCE, waiting).await {
        Ok(Ok(output)) => Ok(output?.status),
        Ok(Err(error)) => Err(CliError::failed(error.to_string())),
        Err(_) => Err(CliError::failed(format!(
            "process {id} did not end in time"
        ))),
    }
}

async fn finished(child: Child, what: &str) -> CliResult {
    let status = ended(child).await?;
    if status.success() {
        Ok(())
    } else {
        Err(CliError::failed(format!("{what} ended with {status}")).hint("see processes.log"))
    }
}

/// Processes that still work in a folder. A killed one may need a moment to go.
async fn processes_in(folder: &Path) -> Vec<String> {
    let began = Instant::now();
    loop {
        let alive = working_in(folder);
        if alive.is_empty() || began.elapsed() > Duration::from_secs(2) {
            return alive;
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn working_in(folder: &Path) -> Vec<String> {
    let Ok(folder) = folder.canonicalize() else {
        return Vec::new();
    };
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .filter(|entry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == folder))
        .map(|entry| format!("process {}", entry.file_name().to_string_lossy()))
        .collect()
}
