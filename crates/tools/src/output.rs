//! Bounded output: what the model sees, and the whole of it kept in a file.

mod collector;
mod display;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use collector::{Collected, Collector};
pub use display::{clean, cut, cut_tail, decode};

use crate::tool::{ToolCx, ToolOutput};

/// Bounds on what one call may show and keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputLimits {
    /// Most bytes of text the model is shown. Default 30 KiB.
    pub shown_bytes: usize,
    /// Most bytes kept in the file that holds the whole. Default 256 MiB.
    pub file_bytes: u64,
    /// Most bytes shown of one line by the tools that work on lines. Default 2,000.
    pub line_bytes: usize,
}

impl Default for OutputLimits {
    fn default() -> Self {
        Self {
            shown_bytes: 30 * 1024,
            file_bytes: 256 * 1024 * 1024,
            line_bytes: 2000,
        }
    }
}

/// How much was left out, and where the rest is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truncation {
    /// Bytes of the whole.
    pub total_bytes: u64,
    /// Lines of the whole; a last line without a line end counts.
    pub total_lines: u64,
    /// Bytes of text shown of it.
    pub shown_bytes: u64,
    /// The file that holds the whole, if it could be kept.
    pub full_path: Option<PathBuf>,
    /// Bytes in that file, when it is not the whole.
    pub file_cut_at: Option<u64>,
}

impl fmt::Display for Truncation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "output cut: {} of {} bytes shown ({} lines in all)",
            self.shown_bytes, self.total_bytes, self.total_lines
        )?;
        match (&self.full_path, self.file_cut_at) {
            (Some(path), None) => write!(f, "; all of it is in {}", path.display()),
            (Some(path), Some(kept)) => {
                write!(f, "; the first {kept} bytes are in {}", path.display())
            }
            (None, _) => f.write_str("; the rest was not kept"),
        }
    }
}

/// Bounds a result of any tool: when its text is too long the whole goes to a file, once, and the text becomes its
/// beginning and end with a note. A result that already says it was cut is only made safe to show.
///
/// Never fails: when the file cannot be written the note says so. Writes synchronously; call it off the async
/// threads for texts of many megabytes.
#[must_use]
pub fn bound(cx: &ToolCx, mut output: ToolOutput) -> ToolOutput {
    output.title = cut(&clean(&output.title.replace('\n', " ")), 200).to_owned();
    if output.truncation.is_some() || output.text.len() <= cx.limits.shown_bytes {
        output.text = clean(&output.text).into_owned();
        return output;
    }
    let (text, truncation) = bound_text(&output.text, &cx.limits, &cx.output_dir, &cx.call);
    output.text = text;
    output.truncation = truncation;
    output
}

/// Bounds one text; see [`bound`]. The file is named after `call`.
#[must_use]
pub fn bound_text(
    text: &str,
    limits: &OutputLimits,
    output_dir: &Path,
    call: &str,
) -> (String, Option<Truncation>) {
    let mut collector = Collector::new(*limits, output_dir, call);
    collector.push(text.as_bytes());
    let collected = collector.finish();
    (collected.text, collected.truncation)
}
