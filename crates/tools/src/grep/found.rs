//! What a search found so far, bounded, and its form for the model.

use std::io;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink, SinkContext, SinkMatch};
use serde::Deserialize;

use crate::output::{OutputLimits, clean, cut};

/// Most bytes shown of one line.
const LINE: usize = 400;
/// Where in a long line the match should stand.
const BEFORE_MATCH: usize = 100;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    Content,
    Files,
    Count,
}

/// Collects matches of one file after the other.
pub(super) struct Found {
    mode: Mode,
    limit: usize,
    most_bytes: usize,
    files: Vec<InFile>,
    current: Option<InFile>,
    counted: usize,
    bytes: usize,
    more: bool,
}

struct InFile {
    name: String,
    matches: u64,
    rows: String,
}

/// The end of a search.
pub(super) struct Summary {
    pub(super) text: String,
    /// Matching lines, or files in the other modes.
    pub(super) matches: usize,
    pub(super) files: usize,
    pub(super) more: bool,
}

impl Found {
    pub(super) fn new(mode: Mode, limit: usize, limits: &OutputLimits) -> Self {
        Self {
            mode,
            limit,
            most_bytes: limits.shown_bytes,
            files: Vec::new(),
            current: None,
            counted: 0,
            bytes: 0,
            more: false,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.more
    }

    pub(super) fn begin(&mut self, name: String) {
        self.current = Some(InFile {
            name,
            matches: 0,
            rows: String::new(),
        });
    }

    pub(super) fn end(&mut self) {
        if let Some(file) = self.current.take().filter(|f| f.matches > 0) {
            self.bytes += file.name.len() + 16;
            self.files.push(file);
        }
    }

    pub(super) fn sink<'a>(&'a mut self, matcher: &'a RegexMatcher) -> FileSink<'a> {
        FileSink {
            found: self,
            matcher,
        }
    }

    /// Whether one more result may be kept; if not, the search is over and more is known to exist.
    fn room(&mut self) -> bool {
        if self.counted >= self.limit || self.bytes >= self.most_bytes {
            self.more = true;
            return false;
        }
        self.counted += 1;
        true
    }

    pub(super) fn finish(mut self) -> Summary {
        self.files.sort_by(|a, b| a.name.cmp(&b.name));
        let rows: Vec<String> = self
            .files
            .iter()
            .map(|file| match self.mode {
                Mode::Content => format!("{}\n{}", file.name, file.rows),
                Mode::Files => format!("{}\n", file.name),
                Mode::Count => format!("{}: {}\n", file.name, file.matches),
            })
            .collect();
        let between = if self.mode == Mode::Content { "\n" } else { "" };
        Summary {
            text: rows.join(between).trim_end().to_owned(),
            matches: self.counted,
            files: self.files.len(),
            more: self.more,
        }
    }
}

/// Receives the matches of one file.
pub(super) struct FileSink<'a> {
    found: &'a mut Found,
    matcher: &'a RegexMatcher,
}

impl FileSink<'_> {
    fn row(&mut self, number: Option<u64>, mark: char, line: &[u8]) {
        let at = if mark == ':' {
            self.matcher
                .find(line)
                .ok()
                .flatten()
                .map_or(0, |m| m.start())
        } else {
            0
        };
        let row = format!(
            "{:>6}{mark} {}\n",
            number.unwrap_or_default(),
            window(line, at)
        );
        self.found.bytes += row.len();
        if let Some(file) = &mut self.found.current {
            file.rows.push_str(&row);
        }
    }
}

impl Sink for FileSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        let first = self.found.current.as_ref().is_none_or(|f| f.matches == 0);
        let by_line = self.found.mode == Mode::Content;
        if (by_line || first) && !self.found.room() {
            return Ok(false);
        }
        if let Some(file) = &mut self.found.current {
            file.matches += 1;
        }
        if by_line {
            self.row(found.line_number(), ':', found.bytes());
        }
        Ok(self.found.mode != Mode::Files)
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        if self.found.mode == Mode::Content {
            self.row(context.line_number(), '-', context.bytes());
        }
        Ok(true)
    }
}

/// A line as text; of a long one the part around `at`.
fn window(line: &[u8], at: usize) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() <= LINE {
        return clean(&String::from_utf8_lossy(line)).into_owned();
    }
    let start = at.saturating_sub(BEFORE_MATCH);
    let end = (start + LINE + 64).min(line.len());
    let part = line.get(start..end).unwrap_or_default();
    // The start may fall inside a character.
    let skip = if start == 0 {
        0
    } else {
        part.iter()
            .take(3)
            .take_while(|b| (0x80..0xc0).contains(*b))
            .count()
    };
    let text = String::from_utf8_lossy(part.get(skip..).unwrap_or_default()).into_owned();
    let before = if start > 0 { "…" } else { "" };
    let cleaned = clean(&text);
    format!(
        "{before}{}… [line of {} bytes]",
        cut(&cleaned, LINE),
        line.len()
    )
}
