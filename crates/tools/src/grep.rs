//! The `grep` tool: lines that match a regular expression, with ripgrep's own parts.

mod found;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use async_trait::async_trait;
use globset::GlobMatcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::glob::compile;
use crate::input;
use crate::path;
use crate::permission::Access;
use crate::tool::{Tool, ToolCx, ToolError, ToolOutput, ToolSpec};
use crate::walk::{self, End, Entry, Step};
use found::{Found, Mode};

const DEFAULT_LIMIT: usize = 100;
const MOST_LIMIT: usize = 1000;
const MOST_CONTEXT: usize = 10;
/// Most memory for one line; a file with a longer one is passed over.
const LONGEST_LINE: usize = 16 * 1024 * 1024;

/// The tool.
#[derive(Debug, Clone, Copy)]
pub struct Grep;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    pattern: String,
    path: Option<String>,
    include: Option<String>,
    mode: Option<Mode>,
    ignore_case: Option<bool>,
    literal: Option<bool>,
    context: Option<usize>,
    limit: Option<usize>,
}

#[async_trait]
impl Tool for Grep {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "grep".into(),
            description: "Searches file contents for a regular expression (Rust syntax, one line at a time). Files \
                          that ignore files exclude, and binary files, are left out; links are not followed. `mode` \
                          is `content` (default: matching lines with their numbers), `files` or `count`."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "pattern": { "type": "string", "minLength": 1, "description": "Regular expression." },
                    "path": { "type": "string", "description": "File or directory. Default: the workspace." },
                    "include": { "type": "string", "description": "Only files of this pattern, such as `*.rs`." },
                    "mode": { "type": "string", "enum": ["content", "files", "count"] },
                    "ignore_case": { "type": "boolean", "description": "Default false." },
                    "literal": { "type": "boolean", "description": "The pattern is plain text. Default false." },
                    "context": { "type": "integer", "minimum": 0, "maximum": MOST_CONTEXT, "description": "Lines around each match." },
                    "limit": { "type": "integer", "minimum": 1, "maximum": MOST_LIMIT, "description": "Most matching lines or files." }
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
        let matcher = matcher(&input)?;
        let include = input.include.as_deref().map(compile).transpose()?;
        crate::tool::off_thread(cx, move |cx| grep(cx, &input, &matcher, include.as_ref())).await
    }
}

fn matcher(input: &Input) -> Result<RegexMatcher, ToolError> {
    RegexMatcherBuilder::new()
        .case_insensitive(input.ignore_case.unwrap_or(false))
        .fixed_strings(input.literal.unwrap_or(false))
        .line_terminator(Some(b'\n'))
        .build(&input.pattern)
        .map_err(|error| {
            ToolError::invalid(format!(
                "the pattern is not valid: {}. Set `literal` to search for plain text.",
                crate::output::cut(&error.to_string(), 500)
            ))
        })
}

fn grep(
    cx: &ToolCx,
    input: &Input,
    matcher: &RegexMatcher,
    include: Option<&GlobMatcher>,
) -> Result<ToolOutput, ToolError> {
    let resolved = path::resolve(&cx.workspace, input.path.as_deref().unwrap_or("."))?;
    cx.permits(&Access::Search {
        given: resolved.given.clone(),
        real: resolved.real.clone(),
    })?;
    let root = path::open_file(&resolved.real).map_err(|e| path::open_error(&resolved, e))?;
    let single = root.metadata().is_ok_and(|m| m.is_file());
    let context = input.context.unwrap_or(0).min(MOST_CONTEXT);
    let mut searcher = SearcherBuilder::new()
        .line_number(true)
        .binary_detection(BinaryDetection::quit(0))
        .before_context(context)
        .after_context(context)
        .heap_limit(Some(LONGEST_LINE))
        .build();
    let limit = input.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MOST_LIMIT);
    let mut found = Found::new(input.mode.unwrap_or(Mode::Content), limit, &cx.limits);
    let mut unreadable = 0_usize;
    let mut search_one = |entry: Entry| {
        if entry.regular && wanted(cx, &entry.path, &resolved.real, include) {
            let name = path::shown(&cx.workspace, &entry.path);
            if search_file(
                &mut searcher,
                matcher,
                &entry.path,
                &cx.cancel,
                &mut found,
                name,
            )
            .is_err()
            {
                unreadable += 1;
            }
        }
        !found.is_full()
    };
    let end = if single {
        let only = Entry {
            path: resolved.real.clone(),
            regular: true,
        };
        walk::visit(
            std::iter::once(Step::File(only)),
            &cx.cancel,
            &mut search_one,
        )
    } else {
        walk::visit(walk::entries(&resolved.real), &cx.cancel, &mut search_one)
    };
    if end == End::Cancelled || cx.cancel.is_cancelled() {
        return Err(ToolError::interrupted("The search"));
    }
    Ok(result(input, found, end, unreadable))
}

fn result(input: &Input, found: Found, end: End, unreadable: usize) -> ToolOutput {
    let summary = found.finish();
    let mut text = summary.text;
    if summary.matches == 0 {
        text.push_str("No line matches.");
    }
    let mut notes: Vec<String> = Vec::new();
    if summary.more {
        notes.push(format!(
            "{} shown; more exist. Narrow the search or raise `limit`",
            summary.matches
        ));
    }
    notes.extend(end.note());
    if unreadable > 0 {
        notes.push(format!("{unreadable} files could not be read"));
    }
    if !notes.is_empty() {
        text.push_str(&format!("\n[{}]", notes.join("; ")));
    }
    ToolOutput {
        text,
        title: format!(
            "{} ({} in {} files)",
            crate::output::cut(&input.pattern, 80),
            summary.matches,
            summary.files
        ),
        metadata: json!({
            "matches": summary.matches,
            "files": summary.files,
            "more": summary.more,
            "complete": end == End::Complete && !summary.more,
            "unreadable": unreadable,
        }),
        truncation: None,
    }
}

fn wanted(cx: &ToolCx, file: &Path, root: &Path, include: Option<&GlobMatcher>) -> bool {
    let relative = file.strip_prefix(root).unwrap_or(file);
    let relative = if relative.as_os_str().is_empty() {
        Path::new(file.file_name().unwrap_or_default())
    } else {
        relative
    };
    include.is_none_or(|include| include.is_match(relative))
        && cx
            .unreadable
            .as_ref()
            .is_none_or(|filter| !filter.hides(file))
}

fn search_file(
    searcher: &mut Searcher,
    matcher: &RegexMatcher,
    file: &Path,
    cancel: &CancellationToken,
    found: &mut Found,
    name: String,
) -> io::Result<()> {
    let file = path::open_file(file)?;
    if !file.metadata()?.is_file() {
        return Ok(());
    }
    found.begin(name);
    let searched = searcher.search_reader(matcher, Stoppable { file, cancel }, found.sink(matcher));
    found.end();
    searched
}

/// A file whose reading ends with an error when the call is cancelled: one file may be very long.
struct Stoppable<'a> {
    file: File,
    cancel: &'a CancellationToken,
}

impl Read for Stoppable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other("cancelled"));
        }
        self.file.read(buffer)
    }
}
