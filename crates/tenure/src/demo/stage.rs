//! The stage: a temporary folder with a small project that has a failing test, a scripted model on a loopback
//! port, and a configuration that knows nothing else.

use crate::exit::{CliError, CliResult};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tenure_scripted::{Handle, Script, ScriptedModel};

/// What the user asks for.
pub const TASK: &str =
    "The test of this project fails. Find out why, fix it, and show that it passes.";
/// What the user asks for in the second act.
pub const WAIT: &str = "Wait for a very long time.";

const GREET: &str =
    "#!/bin/sh\n# prints a greeting for the name it is given\necho \"Hello, $2!\"\n";

/// The first run is slow, as the first build of a project is: that is when the process is killed.
const TEST: &str = r#"#!/bin/sh
cd "$(dirname "$0")" || exit 1
if [ ! -e .built ]; then
  touch .built
  echo "building for the first time, this takes a while"
  sleep 60
fi
got=$(sh greet.sh World)
if [ "$got" = "Hello, World!" ]; then
  echo "PASSED: the greeting is right"
else
  echo "FAILED: expected 'Hello, World!', got '$got'"
  exit 1
fi
"#;

/// What the model says, by what is in its history: whatever process asks, and however often.
const SCRIPT: &str = r#"
version = 1
name = "fix a small project"
select = "history"
models = ["scripted"]

[[turn]]
name = "wait until interrupted"
when = "Wait for a very long time."
part = [{ text = "I wait." }, { call = { name = "bash", input = { command = "touch waiting; sleep 600 & sleep 600" } } }]

[[turn]]
name = "look, and run the test"
skip_if_contains = "prints a greeting for the name"
part = [
  { reasoning = "The program and its test first." },
  { text = "I read the program and run its test." },
  { call = { name = "read", input = { path = "greet.sh" } } },
  { call = { name = "bash", input = { command = "sh test.sh" } } },
]

[[turn]]
name = "run the test again, since nobody knows how the first run ended"
skip_if_contains = "FAILED: expected"
part = [
  { reasoning = "The outcome of the test run is unknown. A test may be run again." },
  { text = "Nobody knows how that run ended. A test may be repeated, so I run it again." },
  { call = { name = "bash", input = { command = "sh test.sh" } } },
]

[[turn]]
name = "fix it"
times = 1
part = [
  { text = "The program greets its second argument; it must be the first." },
  { call = { name = "edit", input = { path = "greet.sh", old_string = "$2", new_string = "$1" } } },
]

[[turn]]
name = "run the test once more"
skip_if_contains = "PASSED: the greeting"
part = [{ call = { name = "bash", input = { command = "sh test.sh" } } }]

[[turn]]
name = "done"
part = [{ text = "`greet.sh` used its second argument. It uses the first now, and the test passes." }]
"#;

/// The stage while the demonstration runs.
pub struct Stage {
    folder: tempfile::TempDir,
    /// The scripted model.
    pub model: Handle,
}

impl Stage {
    /// Builds everything.
    pub async fn build() -> CliResult<Self> {
        let folder = tempfile::Builder::new()
            .prefix("tenure-demo-")
            .tempdir()
            .map_err(|e| CliError::failed(format!("no temporary folder could be made: {e}")))?;
        let script = Script::parse(SCRIPT)
            .map_err(|e| CliError::failed(format!("the demonstration's script is broken: {e}")))?;
        let model = ScriptedModel::builder(script)
            .strict_seals(true)
            .bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
            .await
            .map_err(|e| {
                CliError::failed(format!(
                    "the scripted model cannot listen on the loopback address: {e}"
                ))
            })?;
        let stage = Self { folder, model };
        stage.write("project/greet.sh", GREET)?;
        stage.write("project/test.sh", TEST)?;
        stage.write("tenure.toml", &stage.configuration())?;
        Ok(stage)
    }

    fn configuration(&self) -> String {
        format!(
            "default_model = \"demo/scripted\"\nstore = \"sqlite:tenure.db\"\n\
             [providers.demo]\nprotocol = \"anthropic-messages\"\nbase_url = \"{}\"\n\
             [providers.demo.models.scripted]\ncontext = 200000\noutput = 8000\n\
             price = {{ input = 3.0, output = 15.0 }}\n\
             [permissions]\nbash = \"allow\"\nedit = \"allow\"\n",
            self.model.base_url()
        )
    }

    fn write(&self, name: &str, text: &str) -> CliResult {
        let path = self.path(name);
        let cannot = |e: std::io::Error| {
            CliError::failed(format!("{} cannot be written: {e}", path.display()))
        };
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(cannot)?;
        }
        std::fs::write(&path, text).map_err(cannot)
    }

    /// A path on the stage.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// This program as another process that knows only the stage.
    pub fn command(&self, args: &[&str]) -> CliResult<Command> {
        let program = std::env::current_exe().map_err(|e| {
            CliError::failed(format!("the program's own file cannot be found: {e}"))
        })?;
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("processes.log"))?;
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(self.path("project"))
            .stdin(Stdio::null())
            .stderr(log)
            .env("HOME", self.folder())
            .env("TENURE_CONFIG", self.path("tenure.toml"));
        for name in [
            "TENURE_STORE",
            "TENURE_MODEL",
            "XDG_CONFIG_HOME",
            "XDG_DATA_HOME",
            "XDG_STATE_HOME",
        ] {
            command.env_remove(name);
        }
        Ok(command)
    }

    /// Keeps the folder.
    pub fn keep(self) -> PathBuf {
        self.folder.keep()
    }
}
