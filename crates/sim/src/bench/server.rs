//! The scripted model as a process of its own, that answers what it saw and when in nanoseconds.

use super::usage::now_ns;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use tenure_scripted::{Script, ScriptedModel, Verdict};

/// The hidden argument that makes the benchmark program the server.
pub const SERVE: &str = "--serve";

/// One request, on the monotonic clock.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Seen {
    /// When it was read to its end.
    pub started_ns: u64,
    /// When the last byte of its answer was handed over.
    pub ended_ns: Option<u64>,
    /// It was answered by a turn.
    pub accepted: bool,
}

#[derive(Serialize, Deserialize)]
struct Ready {
    base_url: String,
}

/// Serves the script until standard input ends; each line on it is answered with all requests so far.
///
/// # Errors
/// The script is not valid, or the loopback interface cannot be used.
pub fn serve(script: &str) -> Result<()> {
    let script = Script::parse(script)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let loopback = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let before = now_ns()?;
    let handle = runtime.block_on(
        ScriptedModel::builder(script)
            .keep_bodies(false)
            .bind(loopback),
    )?;
    // The records count from a moment within the call, which takes microseconds.
    let origin = before.midpoint(now_ns()?);
    let mut out = std::io::stdout().lock();
    let ready = Ready {
        base_url: handle.base_url(),
    };
    writeln!(out, "{}", serde_json::to_string(&ready)?)?;
    out.flush()?;
    for line in std::io::stdin().lock().lines() {
        line?;
        let at = |since: std::time::Duration| origin + since.as_nanos() as u64;
        let seen: Vec<Seen> = handle
            .requests()
            .iter()
            .map(|request| Seen {
                started_ns: at(request.started),
                ended_ns: request.ended.map(|(ended, _)| at(ended)),
                accepted: request.verdict == Verdict::Accepted,
            })
            .collect();
        writeln!(out, "{}", serde_json::to_string(&seen)?)?;
        out.flush()?;
    }
    Ok(())
}

/// A server process. Dropped, it ends.
pub(super) struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// The base URL of all wire forms.
    pub base_url: String,
}

impl Server {
    /// Starts this very program as the server of a script, given as JSON.
    pub fn start(script: &serde_json::Value) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(SERVE)
            .arg(script.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("the scripted model cannot be started")?;
        let stdin = child.stdin.take();
        let mut stdout = BufReader::new(child.stdout.take().context("its output is piped")?);
        let ready: Ready = serde_json::from_str(&line(&mut stdout)?)?;
        Ok(Self {
            child,
            stdin,
            stdout,
            base_url: ready.base_url,
        })
    }

    /// All requests so far. Each must have been answered by the script.
    pub fn requests(&mut self) -> Result<Vec<Seen>> {
        let stdin = self
            .stdin
            .as_mut()
            .context("the server is asked while it lives")?;
        writeln!(stdin, "requests")?;
        let seen: Vec<Seen> = serde_json::from_str(&line(&mut self.stdout)?)?;
        anyhow::ensure!(
            seen.iter().all(|one| one.accepted),
            "the scripted model refused a request"
        );
        Ok(seen)
    }
}

fn line(out: &mut impl BufRead) -> Result<String> {
    let mut text = String::new();
    out.read_line(&mut text)?;
    anyhow::ensure!(!text.is_empty(), "the scripted model ended");
    Ok(text)
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // It ends by itself; what is left of it is reaped.
        let _ = self.child.wait();
    }
}
