//! A workspace to run tools in, and ways to look at processes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use tenure_tools::guardian::GuardianCommand;
use tenure_tools::{ToolCx, ToolError, ToolOutput, ToolSet};

/// A temporary workspace.
pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        let place = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        std::fs::create_dir(place.workspace()).unwrap();
        std::fs::create_dir(place.outside()).unwrap();
        place
    }

    fn root(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    pub fn workspace(&self) -> PathBuf {
        self.root().join("work")
    }

    /// A directory beside the workspace.
    pub fn outside(&self) -> PathBuf {
        self.root().join("outside")
    }

    pub fn outputs(&self) -> PathBuf {
        self.root().join("outputs")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.workspace().join(name)
    }

    pub fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub fn get(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    pub fn text(&self, name: &str) -> String {
        String::from_utf8(self.get(name)).unwrap()
    }

    pub fn cx(&self) -> ToolCx {
        let guardian = GuardianCommand::new(guardian_program());
        ToolCx::new(
            "ses_1",
            "call_1",
            &self.workspace(),
            self.outputs(),
            guardian,
        )
        .unwrap()
    }

    pub async fn run(&self, tool: &str, input: Value) -> Result<ToolOutput, ToolError> {
        run(&self.cx(), tool, input).await
    }

    /// Waits until a file written by a command holds a process id.
    pub async fn pid(&self, name: &str) -> u32 {
        let path = self.path(name);
        let mut pid = None;
        eventually(&format!("{name} to hold a process id"), || {
            pid = std::fs::read_to_string(&path)
                .ok()
                .filter(|text| text.ends_with('\n'))
                .and_then(|text| text.trim().parse().ok());
            pid.is_some()
        })
        .await;
        pid.unwrap()
    }
}

pub fn guardian_program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_tenure-guardian"))
}

/// Runs as the engine does: asks what the call touches, grants it if it is inside, runs.
pub async fn run(cx: &ToolCx, tool: &str, input: Value) -> Result<ToolOutput, ToolError> {
    ToolSet::builtin().run(tool, cx.clone(), &input).await
}

/// Whether a process is there and not merely waiting to be reaped.
pub fn alive(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    !matches!(
        stat.rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next()),
        Some('Z' | 'X') | None
    )
}

/// Waits, generously, for a condition.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < until, "waited in vain for {what}");
        // tidy: sleep ok because the condition is another process's, which tells nobody.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
