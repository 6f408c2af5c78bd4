//! The `read` tool: numbered lines of a text file, or the names in a directory.

mod lines;

use std::fs::File;
use std::io::Read as _;

use async_trait::async_trait;
use encoding_rs::{CoderResult, Encoding, UTF_8};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::input;
use crate::path::{self, Resolved};
use crate::permission::Access;
use crate::text::{LARGEST_FILE, is_binary};
use crate::tool::{Tool, ToolCx, ToolError, ToolOutput, ToolSpec};
use lines::Lines;

const DEFAULT_LINES: u64 = 2000;
const DIRECTORY_NAMES: usize = 500;
const DIRECTORY_LOOKED_AT: usize = 20_000;
const CHUNK: usize = 64 * 1024;

/// The tool.
#[derive(Debug, Clone, Copy)]
pub struct Read;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    path: String,
    offset: Option<u64>,
    limit: Option<u64>,
}

#[async_trait]
impl Tool for Read {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "read".into(),
            description: "Reads a text file. Lines are shown with their number and a tab before them. Long files come \
                          in parts: use `offset` (first line, from 1) and `limit` (number of lines, 2000 by \
                          default). For a directory it lists the names in it."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "path": { "type": "string", "minLength": 1, "description": "Relative to the workspace, or absolute." },
                    "offset": { "type": "integer", "minimum": 1, "description": "First line, from 1." },
                    "limit": { "type": "integer", "minimum": 1, "description": "Number of lines." }
                },
                "required": ["path"],
                "additionalProperties": false
            }),
        }
    }

    fn access(&self, cx: &ToolCx, input: &Value) -> Result<Vec<Access>, ToolError> {
        let input: Input = input::read(input)?;
        let resolved = path::resolve(&cx.workspace, &input.path)?;
        Ok(vec![Access::Read {
            given: resolved.given,
            real: resolved.real,
        }])
    }

    async fn run(&self, cx: ToolCx, input: Value) -> Result<ToolOutput, ToolError> {
        let input: Input = input::read(&input)?;
        crate::tool::off_thread(cx, move |cx| {
            let resolved = path::resolve(&cx.workspace, &input.path)?;
            cx.permits(&Access::Read {
                given: resolved.given.clone(),
                real: resolved.real.clone(),
            })?;
            let file =
                path::open_file(&resolved.real).map_err(|e| path::open_error(&resolved, e))?;
            let meta = file
                .metadata()
                .map_err(|e| ToolError::io(format!("Cannot read `{}`", resolved.given), e))?;
            if meta.is_dir() {
                return list(cx, &resolved, &file);
            }
            if !meta.is_file() {
                return Err(ToolError::refused(format!(
                    "`{}` is not a regular file.",
                    resolved.given
                )));
            }
            read(cx, &resolved, file, meta.len(), &input)
        })
        .await
    }
}

fn read(
    cx: &ToolCx,
    resolved: &Resolved,
    mut file: File,
    size: u64,
    input: &Input,
) -> Result<ToolOutput, ToolError> {
    let offset = input.offset.unwrap_or(1).max(1);
    let mut lines = Lines::new(offset, input.limit.unwrap_or(DEFAULT_LINES), &cx.limits);
    let whole = scan(cx, resolved, &mut file, size, &mut lines)?;
    let shown = path::shown(&cx.workspace, &resolved.real);
    let page = lines.finish();
    if page.shown == 0 && page.lines > 0 {
        return Err(ToolError::failed(format!(
            "`{}` has {} lines; there is no line {offset}.",
            resolved.given, page.lines
        )));
    }
    let mut text = page.text;
    let last = offset + page.shown.saturating_sub(1);
    let total = if whole {
        page.lines.to_string()
    } else {
        format!("more than {last}")
    };
    let complete = whole && offset == 1 && page.shown == page.lines;
    let mut notes = Vec::new();
    if page.lines == 0 {
        notes.push("the file is empty".to_owned());
    } else if !complete {
        notes.push(format!(
            "lines {offset} to {last} of {total}, {size} bytes in all"
        ));
        if !whole || last < page.lines {
            notes.push(format!("go on with offset={}", last + 1));
        }
    }
    if page.crlf {
        notes.push("line ends are CR LF".to_owned());
    }
    if page.no_final_newline && whole && last == page.lines && page.lines > 0 {
        notes.push("no line end after the last line".to_owned());
    }
    if page.replaced {
        notes.push("not all of it is valid text; � stands for what is not".to_owned());
    }
    if !notes.is_empty() {
        text.push_str(&format!("[{}]", notes.join("; ")));
    }
    Ok(ToolOutput {
        text,
        title: if complete {
            shown
        } else {
            format!("{shown}, lines {offset}–{last}")
        },
        metadata: json!({
            "path": resolved.real,
            "bytes": size,
            "offset": offset,
            "lines": page.shown,
            "total_lines": whole.then_some(page.lines),
            "complete": complete,
        }),
        truncation: None,
    })
}

/// Reads until the wanted lines are there and, for files of common size, to the end, to count lines and to remember
/// the content. Gives whether the end was reached. Memory is bounded whatever the file is.
fn scan(
    cx: &ToolCx,
    resolved: &Resolved,
    file: &mut File,
    size: u64,
    lines: &mut Lines,
) -> Result<bool, ToolError> {
    let mut chunk = vec![0_u8; CHUNK];
    let mut hash = Sha256::new();
    let mut decoder = None;
    let mut read = 0_u64;
    loop {
        if cx.cancel.is_cancelled() {
            return Err(ToolError::interrupted("Reading"));
        }
        let n = file
            .read(&mut chunk)
            .map_err(|e| ToolError::io(format!("Cannot read `{}`", resolved.given), e))?;
        let bytes = chunk.get(..n).unwrap_or_default();
        hash.update(bytes);
        let skip = match decoder {
            Some(_) => 0,
            None if is_binary(bytes.get(..8192).unwrap_or(bytes)) => {
                return Err(ToolError::refused(format!(
                    "`{}` is a binary file of {size} bytes. Use `bash` with a tool made for its format.",
                    resolved.given
                )));
            }
            None => Encoding::for_bom(bytes).map_or(0, |(_, mark)| mark),
        };
        let decoder = decoder.get_or_insert_with(|| {
            Encoding::for_bom(bytes)
                .map_or(UTF_8, |(e, _)| e)
                .new_decoder_without_bom_handling()
        });
        let mut rest = bytes.get(skip..).unwrap_or_default();
        loop {
            let mut piece = String::with_capacity(CHUNK);
            let (result, used, replaced) = decoder.decode_to_string(rest, &mut piece, n == 0);
            lines.feed(&piece, replaced);
            rest = rest.get(used..).unwrap_or_default();
            if result == CoderResult::InputEmpty {
                break;
            }
        }
        read += n as u64;
        if n == 0 {
            if read <= LARGEST_FILE {
                cx.seen.remember(&resolved.real, hash.finalize().into());
            }
            return Ok(true);
        }
        if lines.is_full() && read > LARGEST_FILE {
            return Ok(false);
        }
    }
}

/// Lists through the open directory, which is the one that was checked.
fn list(cx: &ToolCx, resolved: &Resolved, dir: &File) -> Result<ToolOutput, ToolError> {
    let io = |e| ToolError::io(format!("Cannot list `{}`", resolved.given), e);
    let mut names = Vec::new();
    for entry in open_entries(resolved, dir)
        .map_err(io)?
        .take(DIRECTORY_LOOKED_AT)
    {
        let entry = entry.map_err(io)?;
        let mark = match entry.file_type() {
            Ok(kind) if kind.is_dir() => "/",
            Ok(kind) if kind.is_symlink() => "@",
            _ => "",
        };
        names.push(format!("{}{mark}", entry.file_name().to_string_lossy()));
    }
    names.sort_unstable();
    let found = names.len();
    names.truncate(DIRECTORY_NAMES);
    let shown = path::shown(&cx.workspace, &resolved.real);
    let mut text =
        format!("{shown} is a directory with {found} entries (`/` directory, `@` link):\n");
    text.push_str(&names.join("\n"));
    if found > names.len() {
        text.push_str(&format!("\n[{} more; use `glob`]", found - names.len()));
    }
    Ok(ToolOutput {
        text,
        title: shown,
        metadata: json!({ "path": resolved.real, "entries": found, "shown": names.len() }),
        truncation: None,
    })
}

#[cfg(target_os = "linux")]
fn open_entries(_resolved: &Resolved, dir: &File) -> std::io::Result<std::fs::ReadDir> {
    use std::os::fd::AsRawFd;
    std::fs::read_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()))
}

#[cfg(not(target_os = "linux"))]
fn open_entries(resolved: &Resolved, _dir: &File) -> std::io::Result<std::fs::ReadDir> {
    std::fs::read_dir(&resolved.real)
}
