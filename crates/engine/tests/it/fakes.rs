//! Tools that behave on purpose: echo, hold until told, ignore a stop, block their thread, ask first.

use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tenure_tools::permission::Access;
use tenure_tools::{Tool, ToolCx, ToolError, ToolOutput, ToolSpec};
use tokio::sync::watch;

fn spec(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: "A tool of the tests.".to_owned(),
        input_schema: json!({"type": "object"}),
    }
}

fn said(text: &str) -> ToolOutput {
    ToolOutput {
        text: text.to_owned(),
        ..ToolOutput::default()
    }
}

/// Says what it was given; panics or fails when told to.
pub struct Echo;

#[async_trait]
impl Tool for Echo {
    fn spec(&self) -> ToolSpec {
        spec("echo")
    }

    fn access(&self, _: &ToolCx, _: &Value) -> Result<Vec<Access>, ToolError> {
        Ok(Vec::new())
    }

    async fn run(&self, _: ToolCx, input: Value) -> Result<ToolOutput, ToolError> {
        if input["panic"] == json!(true) {
            panic!("as told");
        }
        if input["fail"] == json!(true) {
            return Err(ToolError::failed("as told"));
        }
        Ok(said(input["say"].as_str().unwrap_or_default()))
    }
}

/// How a [`Held`] tool takes a request to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Ends at once.
    Obeys,
    /// Waits on, at an await.
    Ignores,
    /// Blocks its thread.
    Blocks,
}

/// What the test knows of a [`Held`] tool, and how it lets it go.
#[derive(Debug, Clone)]
pub struct Hold {
    pub begun: Arc<AtomicUsize>,
    working: Arc<()>,
    open: Arc<watch::Sender<bool>>,
}

impl Hold {
    pub fn release(&self) {
        self.open.send_replace(true);
    }

    /// How many runs have not ended, well or dropped.
    pub fn at_work(&self) -> usize {
        // This handle, and the tool's own.
        Arc::strong_count(&self.working) - 2
    }

    pub fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }
}

/// Runs until it is released.
pub struct Held {
    manner: Manner,
    hold: Hold,
}

impl Held {
    pub fn new(manner: Manner) -> (Self, Hold) {
        let hold = Hold {
            begun: Arc::default(),
            working: Arc::default(),
            open: Arc::new(watch::Sender::new(false)),
        };
        (
            Self {
                manner,
                hold: hold.clone(),
            },
            hold,
        )
    }
}

#[async_trait]
impl Tool for Held {
    fn spec(&self) -> ToolSpec {
        spec("hold")
    }

    fn access(&self, _: &ToolCx, _: &Value) -> Result<Vec<Access>, ToolError> {
        Ok(Vec::new())
    }

    async fn run(&self, cx: ToolCx, _: Value) -> Result<ToolOutput, ToolError> {
        let _at_work = self.hold.working.clone();
        self.hold.begun.fetch_add(1, Ordering::SeqCst);
        let mut open = self.hold.open.subscribe();
        match self.manner {
            Manner::Obeys => tokio::select! {
                _ = open.wait_for(|open| *open) => Ok(said("released")),
                () = cx.cancel.cancelled() => Err(ToolError::interrupted("the hold")),
            },
            Manner::Ignores => {
                let _ = open.wait_for(|open| *open).await;
                Ok(said("released"))
            }
            Manner::Blocks => {
                while !*open.borrow() {
                    // tidy: sleep ok because this tool has to block its thread
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                Ok(said("released"))
            }
        }
    }
}

/// Asks for leave first.
pub struct Asks;

#[async_trait]
impl Tool for Asks {
    fn spec(&self) -> ToolSpec {
        spec("asks")
    }

    fn access(&self, cx: &ToolCx, input: &Value) -> Result<Vec<Access>, ToolError> {
        let name = input["path"].as_str().unwrap_or("a.txt");
        Ok(vec![Access::Write {
            given: name.to_owned(),
            real: cx.workspace.join(name),
        }])
    }

    async fn run(&self, _: ToolCx, _: Value) -> Result<ToolOutput, ToolError> {
        Ok(said("done as allowed"))
    }
}

/// Says where it runs.
pub struct Where;

#[async_trait]
impl Tool for Where {
    fn spec(&self) -> ToolSpec {
        spec("where")
    }

    fn access(&self, _: &ToolCx, _: &Value) -> Result<Vec<Access>, ToolError> {
        Ok(Vec::new())
    }

    async fn run(&self, cx: ToolCx, _: Value) -> Result<ToolOutput, ToolError> {
        Ok(said(&cx.workspace.display().to_string()))
    }
}

/// Appends a line to a file in the workspace, then runs until it is released.
pub struct Line(Hold);

impl Line {
    pub fn new() -> (Self, Hold) {
        let (_, hold) = Held::new(Manner::Ignores);
        (Self(hold.clone()), hold)
    }
}

#[async_trait]
impl Tool for Line {
    fn spec(&self) -> ToolSpec {
        spec("line")
    }

    fn access(&self, _: &ToolCx, _: &Value) -> Result<Vec<Access>, ToolError> {
        Ok(Vec::new())
    }

    async fn run(&self, cx: ToolCx, _: Value) -> Result<ToolOutput, ToolError> {
        use std::io::Write;
        let mut file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(cx.workspace.join("lines"))
            .map_err(|e| ToolError::io("opening lines", e))?;
        writeln!(file, "{}", cx.call).map_err(|e| ToolError::io("writing lines", e))?;
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        let mut open = self.0.open.subscribe();
        let _ = open.wait_for(|open| *open).await;
        Ok(said("written"))
    }
}
