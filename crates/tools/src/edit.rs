//! The `edit` tool: replaces one exact, unique piece of a text file, or says why not.

mod find;
mod hint;

use std::fs::File;
use std::io::{self, Read};

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::input;
use crate::path::{self, Resolved};
use crate::permission::Access;
use crate::seen::{ContentHash, content_hash};
use crate::text::{LARGEST_FILE, TextFile, line_of};
use crate::tool::{Tool, ToolCx, ToolError, ToolOutput, ToolSpec};

/// Most line numbers named when the old text is found more than once.
const LINES_NAMED: usize = 10;
/// Most bytes of diff kept in the metadata.
const DIFF_BYTES: usize = 8 * 1024;

/// The tool.
#[derive(Debug, Clone, Copy)]
pub struct Edit;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    path: String,
    old_string: String,
    new_string: String,
    #[serde(default)]
    replace_all: Option<bool>,
}

#[async_trait]
impl Tool for Edit {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "edit".into(),
            description: "Replaces `old_string` by `new_string` in a text file. `old_string` must be in the file \
                          exactly once, character by character with its white space (line ends may be given as \
                          plain newlines; the file keeps its own). Give enough lines around the place to make it \
                          unique, or set `replace_all`. Read the file first; do not include the line numbers that \
                          `read` shows."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "path": { "type": "string", "minLength": 1, "description": "Relative to the workspace, or absolute." },
                    "old_string": { "type": "string", "description": "The exact text to replace." },
                    "new_string": { "type": "string", "description": "The text to put there." },
                    "replace_all": { "type": "boolean", "description": "Replace every occurrence. Default false." }
                },
                "required": ["path", "old_string", "new_string"],
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
        if input.old_string.is_empty() {
            return Err(ToolError::refused(
                "`old_string` is empty. Give the text to replace; to create a file or replace all of it use `write`.",
            ));
        }
        if input.old_string == input.new_string {
            return Err(ToolError::refused(
                "`old_string` and `new_string` are the same; nothing would change.",
            ));
        }
        crate::tool::off_thread(cx, move |cx| {
            let resolved = path::resolve(&cx.workspace, &input.path)?;
            cx.permits(&Access::Write {
                given: resolved.given.clone(),
                real: resolved.real.clone(),
            })?;
            if !resolved.exists {
                return Err(path::not_found(&resolved));
            }
            crate::lock::with(&resolved.real, || edit(cx, &resolved, &input))
        })
        .await
    }
}

fn edit(cx: &ToolCx, resolved: &Resolved, input: &Input) -> Result<ToolOutput, ToolError> {
    let file = path::open_file(&resolved.real).map_err(|e| path::open_error(resolved, e))?;
    let bytes = check_unchanged(cx, resolved, file)?;
    let before = content_hash(&bytes);
    let Some(file) = TextFile::parse(&bytes) else {
        return Err(ToolError::refused(format!(
            "`{}` is not text in UTF-8 (or UTF-16 with a byte-order mark), so the parts around the change could not \
             be kept exactly. Use `bash` with a tool made for its format.",
            resolved.given
        )));
    };
    let places = find::places(&file.text, &input.old_string);
    let wanted = match places.len() {
        0 => return Err(no_match(resolved, &file.text, &input.old_string)),
        1 => places,
        _ if input.replace_all.unwrap_or(false) => places,
        _ => return Err(several(resolved, &file.text, &places)),
    };
    let after = find::replaced(&file.text, &wanted, &input.new_string);
    check_size(&file.text, &after)?;
    if after.text == file.text {
        return Err(ToolError::refused(
            "with the file's own line ends the new text is the same as the old.",
        ));
    }
    let new_bytes = file.encode(&after.text);
    check_still(resolved, before)?;
    path::replace(&resolved.real, &new_bytes).map_err(|e| write_error(resolved, e))?;
    cx.seen.remember(&resolved.real, content_hash(&new_bytes));
    Ok(report(
        cx,
        resolved,
        &file.text,
        &after,
        wanted.len(),
        (bytes.len(), new_bytes.len()),
    ))
}

fn report(
    cx: &ToolCx,
    resolved: &Resolved,
    before: &str,
    after: &find::Changed,
    count: usize,
    sizes: (usize, usize),
) -> ToolOutput {
    let shown = path::shown(&cx.workspace, &resolved.real);
    let first = after.at.first().copied().unwrap_or_default();
    let line = line_of(&after.text, first);
    let what = if count == 1 {
        "1 place".to_owned()
    } else {
        format!("{count} places")
    };
    let from = if count == 1 { "at" } else { "first at" };
    let diff = similar::TextDiff::configure()
        .timeout(std::time::Duration::from_millis(200))
        .diff_lines(before, &after.text)
        .unified_diff()
        .context_radius(2)
        .to_string();
    let diff_cut = diff.len() > DIFF_BYTES;
    let diff = crate::output::cut(&diff, DIFF_BYTES).to_owned();
    ToolOutput {
        text: format!(
            "Edited {shown}: {what} replaced, {from} line {line}. {} bytes before, now {}.",
            sizes.0, sizes.1
        ),
        title: shown,
        metadata: json!({
            "path": resolved.real,
            "replacements": count,
            "first_line": line,
            "previous_bytes": sizes.0,
            "bytes": sizes.1,
            "diff": diff,
            "diff_cut": diff_cut,
        }),
        truncation: None,
    }
}

/// The last look before writing: what is outside the replaced pieces must be the same, to the byte.
fn check_size(before: &str, after: &find::Changed) -> Result<(), ToolError> {
    let expected = before.len() - after.removed + after.added;
    if after.text.len() == expected {
        Ok(())
    } else {
        Err(ToolError::failed(format!(
            "The change would make the text {} bytes long instead of {expected}; nothing was written.",
            after.text.len()
        )))
    }
}

/// Reads a file that is to be changed and compares it with what the model saw.
///
/// # Errors
/// Refused when it is not a regular file, too long, or has another content than the model read or wrote last.
pub(crate) fn check_unchanged(
    cx: &ToolCx,
    resolved: &Resolved,
    file: File,
) -> Result<Vec<u8>, ToolError> {
    let bytes = read_regular(resolved, file)?;
    match cx.seen.get(&resolved.real) {
        Some(seen) if seen != content_hash(&bytes) => Err(ToolError::refused(format!(
            "`{}` has changed since you read it. Read it again, then change it.",
            resolved.given
        ))),
        _ => Ok(bytes),
    }
}

/// Nobody else may have written between our reading and the rename; what remains is the time of one rename.
fn check_still(resolved: &Resolved, before: ContentHash) -> Result<(), ToolError> {
    let file = path::open_file(&resolved.real).map_err(|e| path::open_error(resolved, e))?;
    if content_hash(&read_regular(resolved, file)?) == before {
        Ok(())
    } else {
        Err(ToolError::refused(format!(
            "`{}` was changed by somebody else at this moment; nothing was written. Read it again.",
            resolved.given
        )))
    }
}

fn read_regular(resolved: &Resolved, file: File) -> Result<Vec<u8>, ToolError> {
    let io = |e| ToolError::io(format!("Cannot read `{}`", resolved.given), e);
    let meta = file.metadata().map_err(io)?;
    if meta.is_dir() {
        return Err(ToolError::refused(format!(
            "`{}` is a directory.",
            resolved.given
        )));
    }
    if !meta.is_file() {
        return Err(ToolError::refused(format!(
            "`{}` is not a regular file.",
            resolved.given
        )));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(io)?;
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(ToolError::refused(format!(
            "`{}` has {} bytes; files over {LARGEST_FILE} bytes are not changed this way. Use `bash`.",
            resolved.given,
            meta.len()
        )));
    }
    Ok(bytes)
}

/// What to say when writing a checked path failed.
pub(crate) fn write_error(resolved: &Resolved, error: io::Error) -> ToolError {
    match error.kind() {
        _ if path::is_link(&error) => path::open_error(resolved, error),
        io::ErrorKind::NotFound => path::open_error(resolved, error),
        io::ErrorKind::InvalidInput => {
            ToolError::refused(format!("cannot write `{}`: {error}.", resolved.given))
        }
        _ => ToolError::io(
            format!("Cannot write `{}`; it is as it was", resolved.given),
            error,
        ),
    }
}

fn no_match(resolved: &Resolved, text: &str, old: &str) -> ToolError {
    ToolError::refused(format!(
        "`old_string` is not in `{}`; nothing was changed.{}",
        resolved.given,
        hint::nearest(text, old)
    ))
}

fn several(resolved: &Resolved, text: &str, places: &[find::Place]) -> ToolError {
    let mut lines: Vec<String> = places
        .iter()
        .take(LINES_NAMED)
        .map(|p| line_of(text, p.start).to_string())
        .collect();
    if places.len() > LINES_NAMED {
        lines.push("…".into());
    }
    ToolError::refused(format!(
        "`old_string` is in `{}` {} times (lines {}); nothing was changed. Give more lines around the right place, \
         or set `replace_all`.",
        resolved.given,
        places.len(),
        lines.join(", ")
    ))
}
