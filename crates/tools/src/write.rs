//! The `write` tool: creates or replaces a whole file.

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::input;
use crate::path::{self, Resolved};
use crate::permission::Access;
use crate::seen::content_hash;
use crate::tool::{Tool, ToolCx, ToolError, ToolOutput, ToolSpec};

/// The tool.
#[derive(Debug, Clone, Copy)]
pub struct Write;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    path: String,
    content: String,
}

#[async_trait]
impl Tool for Write {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "write".into(),
            description: "Writes a whole file, exactly as given, and makes missing directories. An existing file is \
                          replaced in one step. To change part of a file use `edit`. A file that changed since you \
                          read it is not overwritten."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "path": { "type": "string", "minLength": 1, "description": "Relative to the workspace, or absolute." },
                    "content": { "type": "string", "description": "The complete new content." }
                },
                "required": ["path", "content"],
                "additionalProperties": false
            }),
        }
    }

    fn access(&self, cx: &ToolCx, input: &Value) -> Result<Vec<Access>, ToolError> {
        let input: Input = input::read(input)?;
        let resolved = path::resolve(&cx.workspace, &input.path)?;
        Ok(vec![Access::Write {
            given: resolved.given,
            real: resolved.real,
        }])
    }

    async fn run(&self, cx: ToolCx, input: Value) -> Result<ToolOutput, ToolError> {
        let input: Input = input::read(&input)?;
        crate::tool::off_thread(cx, move |cx| {
            let resolved = path::resolve(&cx.workspace, &input.path)?;
            cx.permits(&Access::Write {
                given: resolved.given.clone(),
                real: resolved.real.clone(),
            })?;
            crate::lock::with(&resolved.real, || write(cx, &resolved, &input.content))
        })
        .await
    }
}

fn write(cx: &ToolCx, resolved: &Resolved, content: &str) -> Result<ToolOutput, ToolError> {
    if resolved.exists {
        let file = path::open_file(&resolved.real).map_err(|e| path::open_error(resolved, e))?;
        crate::edit::check_unchanged(cx, resolved, file)?;
    }
    let replaced = path::replace(&resolved.real, content.as_bytes())
        .map_err(|e| crate::edit::write_error(resolved, e))?;
    cx.seen
        .remember(&resolved.real, content_hash(content.as_bytes()));
    let shown = path::shown(&cx.workspace, &resolved.real);
    let lines = content.lines().count();
    let now = format!("{} bytes, {lines} lines", content.len());
    let text = match replaced.previous {
        Some(previous) => format!("Replaced {shown}: {previous} bytes before, now {now}."),
        None => format!("Created {shown}: {now}."),
    };
    Ok(ToolOutput {
        text,
        title: shown,
        metadata: json!({
            "path": resolved.real,
            "created": replaced.previous.is_none(),
            "previous_bytes": replaced.previous,
            "bytes": content.len(),
            "directories_made": replaced.directories_made,
        }),
        truncation: None,
    })
}
