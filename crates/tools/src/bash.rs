//! The `bash` tool: runs a shell command under a guardian and tells truthfully how it ended.

mod followed;
mod report;
mod run;

use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::input;
use crate::path;
use crate::permission::Access;
use crate::tool::{Tool, ToolCx, ToolError, ToolOutput, ToolSpec};

const DEFAULT_TIMEOUT_S: u64 = 120;
const MOST_TIMEOUT_S: u64 = 600;
/// The kernel allows 128 KiB for one argument.
const LONGEST_COMMAND: usize = 100 * 1024;

/// The tool.
#[derive(Debug, Clone, Copy)]
pub struct Bash;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    command: String,
    workdir: Option<String>,
    timeout_s: Option<u64>,
}

impl Input {
    fn checked(value: &Value) -> Result<Self, ToolError> {
        let input: Self = input::read(value)?;
        if input.command.trim().is_empty() {
            return Err(ToolError::invalid("`command` is empty."));
        }
        if input.command.contains('\0') {
            return Err(ToolError::invalid("`command` has a NUL character."));
        }
        if input.command.len() > LONGEST_COMMAND {
            return Err(ToolError::invalid(format!(
                "`command` has {} bytes, at most {LONGEST_COMMAND} are possible. Write a script with `write` and \
                 run that.",
                input.command.len()
            )));
        }
        Ok(input)
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(
            self.timeout_s
                .unwrap_or(DEFAULT_TIMEOUT_S)
                .clamp(1, MOST_TIMEOUT_S),
        )
    }

    fn workdir(&self) -> &str {
        self.workdir
            .as_deref()
            .filter(|d| !d.is_empty())
            .unwrap_or(".")
    }
}

#[async_trait]
impl Tool for Bash {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "bash".into(),
            description: "Runs a shell command (`bash -c`) in the workspace and gives its output, standard and error \
                          in one, and its exit code. Each call is a new shell; standard input is empty. It ends \
                          after `timeout_s` seconds (120 by default, 600 at most). Everything the command starts \
                          ends with the call, background processes too: start a server, use it and stop it in one \
                          call. Prefer the other tools for reading, searching and changing files."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "command": { "type": "string", "minLength": 1, "description": "The command." },
                    "workdir": { "type": "string", "description": "Where to run it. Default: the workspace." },
                    "timeout_s": {
                        "type": "integer", "minimum": 1, "maximum": MOST_TIMEOUT_S,
                        "description": "Time limit in seconds."
                    }
                },
                "required": ["command"],
                "additionalProperties": false
            }),
        }
    }

    fn access(&self, cx: &ToolCx, input: &Value) -> Result<Vec<Access>, ToolError> {
        let input = Input::checked(input)?;
        let resolved = path::resolve(&cx.workspace, input.workdir())?;
        Ok(vec![Access::Command {
            command: input.command,
            cwd: resolved.real,
            background: false,
        }])
    }

    fn reports_spawn(&self) -> bool {
        true
    }

    async fn run(&self, cx: ToolCx, input: Value) -> Result<ToolOutput, ToolError> {
        let input = Input::checked(&input)?;
        let resolved = path::resolve(&cx.workspace, input.workdir())?;
        cx.permits(&Access::Command {
            command: input.command.clone(),
            cwd: resolved.real.clone(),
            background: false,
        })?;
        let dir = path::open_dir(&resolved.real).map_err(|e| path::open_error(&resolved, e))?;
        let finished = run::run(&cx, &dir, &input.command, input.timeout()).await?;
        report::report(&input.command, finished)
    }
}
