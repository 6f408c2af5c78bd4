//! A folder of its own for real `tenure` processes: configuration, store, workspace, and a mark on all they start.

use crate::processes::MARK;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tenure_core::event::EventRecord;
use tenure_core::{Event, SessionId};
use tokio::process::Command;

/// The wire forms a configuration can name.
pub const PROTOCOLS: [&str; 5] = [
    "openai-chat",
    "openai-responses",
    "anthropic-messages",
    "gemini",
    BEDROCK,
];
/// The form that not every build speaks.
const BEDROCK: &str = "bedrock-converse";

/// Those of [`PROTOCOLS`] that `tenure` speaks, in their order: it is asked, since its features are its own.
///
/// # Errors
/// It cannot be run.
pub fn spoken(tenure: &Path) -> Result<Vec<&'static str>> {
    // Nobody listens there, and nobody has to.
    let place = Place::new(tenure, "http://127.0.0.1:9/v1", BEDROCK)?;
    let said = place.blocking(&["doctor"]).output()?;
    let unbuilt = String::from_utf8_lossy(&said.stdout).contains("--features bedrock");
    let all = PROTOCOLS.into_iter();
    Ok(all.filter(|form| !unbuilt || *form != BEDROCK).collect())
}

/// The name of the model asked in `protocol`: where a name says what its model takes, one that takes much.
fn model(protocol: &str) -> &'static str {
    match protocol {
        "gemini" => "gemini-3-pro-preview",
        BEDROCK => "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        _ => "m1",
    }
}

/// The program under test: `TENURE_BIN`, else `tenure` beside this executable or in the folders above it.
///
/// # Errors
/// There is none; the message says how to get one.
pub fn tenure() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("TENURE_BIN") {
        let path = PathBuf::from(named);
        if !path.is_file() {
            bail!(
                "TENURE_BIN names {}, which is not there: build it first",
                path.display()
            );
        }
        return Ok(path);
    }
    let me = std::env::current_exe().context("the running program has no path")?;
    // A test's executable is in `deps`, a program's beside `tenure`.
    let found = me
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("tenure"));
    found
        .into_iter()
        .find(|path| path.is_file())
        .with_context(|| {
            format!(
                "there is no `tenure` near {}: run `cargo build -p tenure`, or set TENURE_BIN",
                me.display()
            )
        })
}

/// A temporary folder in which `tenure` runs against one model endpoint.
#[derive(Debug)]
pub struct Place {
    folder: PathBuf,
    temporary: Option<tempfile::TempDir>,
    tenure: PathBuf,
    mark: String,
}

impl Place {
    /// A fresh one. `base_url` is a scripted model's, `protocol` one of [`PROTOCOLS`].
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn new(tenure: &Path, base_url: &str, protocol: &str) -> Result<Self> {
        let temporary = tempfile::Builder::new().prefix("tn-").tempdir()?;
        let folder = temporary.path().canonicalize()?;
        std::fs::create_dir(folder.join("work"))?;
        let mark = folder
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let place = Self {
            temporary: Some(temporary),
            tenure: tenure.to_owned(),
            mark: mark.context("a temporary folder has a name")?,
            folder,
        };
        std::fs::write(place.config(), place.config_text(base_url, protocol))?;
        Ok(place)
    }

    fn config_text(&self, base_url: &str, protocol: &str) -> String {
        let model = model(protocol);
        let access = if protocol == BEDROCK {
            "region = \"us-east-1\""
        } else {
            "api_key_env = \"SIM_API_KEY\""
        };
        format!(
            "default_model = \"local/{model}\"\nstore = \"sqlite:{}\"\n\n[providers.local]\nprotocol = \"{protocol}\"\n\
             base_url = \"{base_url}\"\n{access}\n\n[providers.local.models.\"{model}\"]\n\
             context = 200000\noutput = 32000\n\n[permissions]\nbash = \"allow\"\n",
            self.store().display()
        )
    }

    /// The configuration file.
    pub fn config(&self) -> PathBuf {
        self.folder.join("tenure.toml")
    }

    /// The store's file.
    pub fn store(&self) -> PathBuf {
        self.folder.join("tenure.db")
    }

    /// The folder the session works in.
    pub fn workspace(&self) -> PathBuf {
        self.folder.join("work")
    }

    /// The mark in the environment of everything started here.
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// Keeps the folder and says where it is.
    pub fn keep(&mut self) -> &Path {
        if let Some(temporary) = self.temporary.take() {
            let _ = temporary.keep();
        }
        &self.folder
    }

    /// `tenure` with these arguments, in the workspace, with nothing of the caller's environment but `PATH`.
    /// It is killed when its handle is dropped.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::from(self.blocking(arguments));
        command.kill_on_drop(true);
        command
    }

    /// The same for callers that wait by themselves.
    pub fn blocking(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = std::process::Command::new(&self.tenure);
        command
            .args(arguments)
            .current_dir(self.workspace())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.folder)
            .env("TENURE_CONFIG", self.config())
            .env("SIM_API_KEY", "sim-key")
            .env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
            .env("AWS_SECRET_ACCESS_KEY", "an-example-of-a-secret")
            .env("NO_COLOR", "1")
            .env(MARK, &self.mark)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs it to its end; its output when it succeeded.
    ///
    /// # Errors
    /// It cannot be started, or ended with another code than 0.
    pub async fn output(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command(arguments).output().await?;
        let line = arguments.join(" ");
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("`tenure {line}` ended with {}: {said}", output.status);
        }
        String::from_utf8(output.stdout).with_context(|| format!("`tenure {line}` wrote no text"))
    }

    /// The session's log, as `tenure export --raw` writes it.
    ///
    /// # Errors
    /// The export fails, or is not what an import could read.
    pub async fn exported(&self, session: &SessionId) -> Result<Vec<Event>> {
        let text = self.output(&["export", "--raw", session.as_str()]).await?;
        events(&text)
    }
}

/// Reads the events of an export; other lines (a head, a foot) are passed over.
///
/// # Errors
/// A line is not JSON, or an event cannot be read.
pub fn events(text: &str) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    for line in text.lines() {
        let value: serde_json::Value =
            serde_json::from_str(line).context("a line of the export")?;
        if value.get("seq").is_none() {
            continue;
        }
        let record: EventRecord = serde_json::from_str(line).context("an event of the export")?;
        events.push(Event::try_from(record)?);
    }
    Ok(events)
}
