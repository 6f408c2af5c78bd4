//! A place to run the program in: its own home, configuration, store and project, and a scripted model.

use serde_json::Value;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tenure_scripted::{Handle, Script, ScriptedModel};

/// Nothing in these tests takes longer than this, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A script whose every answer is the same text.
pub const HELLO: &str =
    "version = 1\nselect = \"history\"\n[[turn]]\npart = [{ text = \"Hello from the model.\" }]\n";

/// A command's end.
#[derive(Debug)]
pub struct Out {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Out {
    /// Checks the exit code, showing everything when it is another.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(
            self.code, code,
            "\nstdout:\n{}\nstderr:\n{}",
            self.stdout, self.stderr
        );
        self
    }

    /// Standard output as JSON lines.
    pub fn lines(&self) -> Vec<Value> {
        self.stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect()
    }
}

impl From<Output> for Out {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// A place with a scripted model.
pub struct Place {
    base: tempfile::TempDir,
    model: Option<(tokio::runtime::Runtime, Handle)>,
}

impl Place {
    /// A place whose model follows `script`; tools may do everything.
    pub fn new(script: &str) -> Self {
        Self::with(
            script,
            "[permissions]\nbash = \"allow\"\nwrite = \"allow\"\nedit = \"allow\"\n",
        )
    }

    /// A place with more configuration, which follows the model's table.
    pub fn with(script: &str, more: &str) -> Self {
        let mut place = Self::bare();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let script = Script::parse(script).unwrap();
        let handle = runtime
            .block_on(ScriptedModel::builder(script).bind(SocketAddr::from(([127, 0, 0, 1], 0))))
            .unwrap();
        let config = format!(
            "default_model = \"local/m1\"\n[providers.local]\nprotocol = \"openai-chat\"\nbase_url = \"{}\"\n\
             [providers.local.models.m1]\ncontext = 200000\nprice = {{ input = 1.0, output = 2.0 }}\n\
             [providers.local.models.m2]\n{more}",
            handle.base_url()
        );
        place.write_config(&config);
        place.model = Some((runtime, handle));
        place
    }

    /// A place without configuration and model.
    pub fn bare() -> Self {
        let base = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(base.path().join("project")).unwrap();
        Self { base, model: None }
    }

    /// The scripted model.
    pub fn model(&self) -> &Handle {
        &self.model.as_ref().unwrap().1
    }

    /// Replaces the user's configuration file.
    pub fn write_config(&self, text: &str) {
        self.write("home/.config/tenure/tenure.toml", text);
    }

    /// The user's configuration file.
    pub fn config(&self) -> PathBuf {
        self.path("home/.config/tenure/tenure.toml")
    }

    /// Writes a file below the place.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A path below the place.
    pub fn path(&self, name: &str) -> PathBuf {
        self.base.path().canonicalize().unwrap().join(name)
    }

    /// The store.
    pub fn store(&self) -> PathBuf {
        self.path("home/.local/share/tenure/tenure.db")
    }

    /// The program, knowing only this place.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command
            .args(args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path("home"))
            .env("TZ", "UTC")
            .current_dir(self.path("project"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs it to its end.
    pub fn run(&self, args: &[&str]) -> Out {
        finish(self.command(args).spawn().unwrap())
    }

    /// Runs it with something on standard input.
    pub fn run_with_stdin(&self, args: &[&str], stdin: &[u8]) -> Out {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        let bytes = stdin.to_vec();
        // A program that refuses its input may close the pipe before all of it is written.
        let writer = std::thread::spawn(move || drop(pipe.write_all(&bytes)));
        let out = finish(child);
        writer.join().unwrap();
        out
    }

    /// Starts it.
    pub fn start(&self, args: &[&str]) -> Child {
        self.command(args).spawn().unwrap()
    }

    /// The only session's id.
    pub fn only_session(&self) -> String {
        let rows = self.run(&["sessions", "--json"]).exits(0).lines();
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows[0]["id"].as_str().unwrap().to_owned()
    }

    /// A session's row.
    pub fn row(&self, session: &str) -> Value {
        self.run(&["show", session, "--json"])
            .exits(0)
            .lines()
            .remove(0)
    }

    /// The types of a session's events.
    pub fn types(&self, session: &str) -> Vec<String> {
        self.events(session)
            .iter()
            .map(|e| e["type"].as_str().unwrap().to_owned())
            .collect()
    }

    /// A session's events.
    pub fn events(&self, session: &str) -> Vec<Value> {
        self.run(&["log", session, "--json"]).exits(0).lines()
    }

    /// Waits until the session's log holds an event of a type, and gives all events.
    pub fn wait_for_event(&self, session: &str, type_name: &str) -> Vec<Value> {
        wait(&format!("{type_name} in {session}"), || {
            let events = self.events(session);
            events
                .iter()
                .any(|e| e["type"] == type_name)
                .then_some(events)
        })
    }
}

/// Waits for a child, but not for ever.
pub fn finish(child: Child) -> Out {
    let id = child.id();
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || send.send(child.wait_with_output()));
    match receive.recv_timeout(PATIENCE) {
        Ok(output) => output.unwrap().into(),
        Err(_) => {
            let _ = Command::new("kill").args(["-9", &id.to_string()]).status();
            let output: Option<Out> = receive
                .recv_timeout(PATIENCE)
                .ok()
                .map(|o| o.unwrap().into());
            panic!("process {id} did not end in time: {output:?}")
        }
    }
}

/// Looks until there is something.
pub fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what} did not come in time");
        // tidy: sleep ok because a condition of other processes can only be looked at again
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits for a file.
pub fn wait_for_file(path: &Path) {
    wait(&path.display().to_string(), || path.exists().then_some(()));
}

/// Sends a signal by name.
pub fn signal(child: &Child, name: &str) {
    let status = Command::new("kill")
        .args([&format!("-{name}"), &child.id().to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

/// Ids and times replaced, so that output can be compared.
pub fn normalised(text: &str) -> String {
    let mut out = text.to_owned();
    for (pattern, with) in [
        (r"\b(ses|msg|exe|evt|int|cmp|inc)_[0-9a-z]{26}\b", "${1}_ID"),
        (r"\bcall_[0-9a-f]+", "call_ID"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "DATE TIME"),
        (r"/[^ \n]*/project", "PROJECT"),
        (r"\b\d+\.\ds\b", "TIME"),
        (r"[0-9a-f]{12,64}", "HASH"),
    ] {
        out = regex::Regex::new(pattern)
            .unwrap()
            .replace_all(&out, with)
            .into_owned();
    }
    out
}
