//! The `glob` tool: files by the pattern of their path.

use async_trait::async_trait;
use globset::{GlobBuilder, GlobMatcher};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::input;
use crate::path;
use crate::permission::Access;
use crate::tool::{Tool, ToolCx, ToolError, ToolOutput, ToolSpec};
use crate::walk::{self, End};

const DEFAULT_LIMIT: usize = 100;
const MOST_LIMIT: usize = 1000;

/// The tool.
#[derive(Debug, Clone, Copy)]
pub struct Glob;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    pattern: String,
    path: Option<String>,
    limit: Option<usize>,
}

#[async_trait]
impl Tool for Glob {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "glob".into(),
            description: "Finds files by pattern, such as `src/**/*.rs` or `*.{ts,tsx}`. A pattern without `/` \
                          matches names at any depth. Files that ignore files exclude are left out; links are not \
                          followed. At most 100 paths, sorted."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "pattern": { "type": "string", "minLength": 1, "description": "Relative to `path`." },
                    "path": { "type": "string", "description": "Directory to search. Default: the workspace." },
                    "limit": { "type": "integer", "minimum": 1, "maximum": MOST_LIMIT, "description": "Most paths." }
                },
                "required": ["pattern"],
                "additionalProperties": false
            }),
        }
    }

    fn access(&self, cx: &ToolCx, input: &Value) -> Result<Vec<Access>, ToolError> {
        let input: Input = input::read(input)?;
        let resolved = path::resolve(&cx.workspace, input.path.as_deref().unwrap_or("."))?;
        Ok(vec![Access::Search {
            given: resolved.given,
            real: resolved.real,
        }])
    }

    async fn run(&self, cx: ToolCx, input: Value) -> Result<ToolOutput, ToolError> {
        let input: Input = input::read(&input)?;
        let matcher = compile(&input.pattern)?;
        crate::tool::off_thread(cx, move |cx| glob(cx, &input, &matcher)).await
    }
}

/// Compiles a pattern; shared with `grep`'s `include`.
pub(crate) fn compile(pattern: &str) -> Result<GlobMatcher, ToolError> {
    if pattern.starts_with('/') || pattern.split('/').any(|part| part == "..") {
        return Err(ToolError::invalid(format!(
            "the pattern `{}` must be relative and stay below its directory. Give the directory as `path`.",
            crate::output::cut(pattern, 200)
        )));
    }
    let pattern = pattern.trim_start_matches("./");
    let anywhere = if pattern.contains('/') {
        pattern.to_owned()
    } else {
        format!("**/{pattern}")
    };
    GlobBuilder::new(&anywhere)
        .literal_separator(true)
        .build()
        .map(|glob| glob.compile_matcher())
        .map_err(|error| ToolError::invalid(format!("the pattern is not valid: {error}.")))
}

fn glob(cx: &ToolCx, input: &Input, matcher: &GlobMatcher) -> Result<ToolOutput, ToolError> {
    let resolved = path::resolve(&cx.workspace, input.path.as_deref().unwrap_or("."))?;
    cx.permits(&Access::Search {
        given: resolved.given.clone(),
        real: resolved.real.clone(),
    })?;
    // Opened to be sure that the root is what was checked; the walk itself follows no link below it.
    let root = path::open_file(&resolved.real).map_err(|e| path::open_error(&resolved, e))?;
    if !root.metadata().is_ok_and(|m| m.is_dir()) {
        return Err(ToolError::invalid(format!(
            "`{}` is not a directory.",
            resolved.given
        )));
    }
    let limit = input.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MOST_LIMIT);
    let mut found = Vec::new();
    let end = walk::visit(walk::entries(&resolved.real), &cx.cancel, |entry| {
        if entry
            .path
            .strip_prefix(&resolved.real)
            .is_ok_and(|relative| matcher.is_match(relative))
        {
            found.push(path::shown(&cx.workspace, &entry.path));
        }
        found.len() <= limit
    });
    if end == End::Cancelled {
        return Err(ToolError::interrupted("The search"));
    }
    let more = found.len() > limit;
    found.truncate(limit);
    found.sort_unstable();
    let mut text = found.join("\n");
    if found.is_empty() {
        text.push_str("No file matches.");
    }
    if more {
        text.push_str(&format!(
            "\n[{limit} paths shown; more exist. Narrow the pattern]"
        ));
    }
    if let Some(note) = end.note() {
        text.push_str(&format!("\n[{note}]"));
    }
    Ok(ToolOutput {
        text,
        title: format!(
            "{} ({} found{})",
            input.pattern,
            found.len(),
            if more { ", more exist" } else { "" }
        ),
        metadata: json!({ "count": found.len(), "more": more, "complete": end == End::Complete }),
        truncation: None,
    })
}
