//! Real `tenure` processes, real signals: what only happens when a process dies, competes or is interrupted.

mod interrupts;
mod kills;
mod prompts;
mod sharing;

use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_core::{Event, EventBody, SessionId};
use tenure_engine::{Client, SystemEnvironment};
use tenure_scripted::{Handle, Recorded, Script, ScriptedModel, Verdict};
use tenure_sim::checker;
use tenure_sim::place::{Place, tenure};
use tenure_sim::processes::{Marked, marked};
use tenure_store::{OpenOptions, SqliteStore};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

/// A busy machine may be slow; it is never this slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// A model, and a place where `tenure` runs against it.
struct Bed {
    model: Handle,
    place: Place,
}

impl Bed {
    async fn new(script: Script) -> Self {
        let loopback = "127.0.0.1:0".parse().unwrap();
        let model = ScriptedModel::builder(script).bind(loopback).await.unwrap();
        let place = Place::new(&tenure().unwrap(), &model.base_url(), "openai-chat").unwrap();
        Self { model, place }
    }

    /// Starts `tenure` with `--json` output.
    fn start(&self, arguments: &[&str]) -> Run {
        let mut child = self.place.command(arguments).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Run {
            child,
            lines,
            seen: Vec::new(),
        }
    }

    fn store(&self) -> Arc<SqliteStore> {
        SqliteStore::open(&self.place.store(), OpenOptions::default()).unwrap()
    }

    fn client(&self) -> Client {
        Client::new(self.store(), Arc::new(SystemEnvironment))
    }

    /// Lets tools go on that wait for this file.
    fn touch(&self, name: &str) {
        std::fs::write(self.place.workspace().join(name), "").unwrap();
    }

    /// Marked processes with exactly this command line.
    fn running(&self, command: &str) -> Vec<Marked> {
        let mut all = marked(self.place.mark()).unwrap();
        all.retain(|one| one.command == command);
        all
    }

    /// Waits until so many processes run this command line; gives back how long that took.
    async fn until_running(&self, command: &str, count: usize) -> Duration {
        let began = Instant::now();
        let mut looks = tokio::time::interval(Duration::from_millis(2));
        while self.running(command).len() != count {
            let all = marked(self.place.mark()).unwrap();
            assert!(
                began.elapsed() < PATIENCE,
                "not {count} × `{command}`: {all:?}"
            );
            looks.tick().await;
        }
        began.elapsed()
    }

    /// The exported log, which keeps every promise, and whose requests were valid, alone and sent once.
    async fn clean_log(&self, session: &SessionId) -> Vec<Event> {
        let events = self.place.exported(session).await.unwrap();
        assert_eq!(checker::check(&events), []);
        let attempts = of(&events, "attempt.started").count();
        let sent = self.model.requests();
        assert!(
            sent.len() <= attempts,
            "{} requests, {attempts} attempts",
            sent.len()
        );
        let mut keys: Vec<&str> = sent
            .iter()
            .map(|r| r.header("x-tenure-attempt").unwrap())
            .collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), sent.len(), "an attempt was sent twice");
        assert_eq!(self.model.overlaps(), []);
        for request in &sent {
            assert_eq!(request.verdict, Verdict::Accepted);
        }
        events
    }
}

fn of<'e>(events: &'e [Event], type_name: &'e str) -> impl Iterator<Item = &'e EventBody> {
    events
        .iter()
        .map(|event| &event.body)
        .filter(move |body| body.type_name() == type_name)
}

/// The words of a request's history.
fn words(request: &Recorded) -> String {
    request.body["messages"].to_string()
}

/// A `tenure` process whose JSON lines are read.
struct Run {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    seen: Vec<Value>,
}

impl Run {
    /// Reads up to the first line that fits.
    async fn until(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
            let line = line
                .unwrap_or_else(|_| panic!("no {what} in time: {:#?}", self.seen))
                .unwrap();
            let Some(line) = line else {
                panic!("the output ended before {what}: {:#?}", self.seen)
            };
            let value: Value = serde_json::from_str(&line).unwrap();
            self.seen.push(value.clone());
            if fits(&value) {
                return value;
            }
        }
    }

    async fn until_event(&mut self, type_name: &str) -> Value {
        self.until(type_name, |value| value["type"] == type_name)
            .await
    }

    async fn session(&mut self) -> SessionId {
        let line = self
            .until("its session", |value| value["kind"] == "session")
            .await;
        SessionId::parse(line["session"].as_str().unwrap()).unwrap()
    }

    /// Reads to the end; the exit code and the result line.
    async fn end(mut self) -> (i32, Value) {
        let result = self
            .until("its result", |value| value["kind"] == "result")
            .await;
        let status = tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .expect("it ends")
            .unwrap();
        (status.code().unwrap_or(-1), result)
    }

    async fn ends_well(self) {
        let (code, result) = self.end().await;
        assert_eq!(
            (code, result["outcome"].as_str()),
            (0, Some("succeeded")),
            "{result}"
        );
    }
}
