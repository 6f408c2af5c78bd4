//! Picks a window of lines from a stream of text, numbered and bounded.

use crate::output::{OutputLimits, clean, cut};

/// Takes text piece by piece.
pub(super) struct Lines {
    offset: u64,
    limit: u64,
    most_bytes: usize,
    line_bytes: usize,
    /// Number of the line being read, from 1.
    number: u64,
    /// Its beginning, as far as it may be shown.
    line: String,
    /// Its whole length.
    line_len: u64,
    ends_with_cr: bool,
    full: bool,
    page: Page,
}

/// What was picked.
#[derive(Default)]
pub(super) struct Page {
    pub(super) text: String,
    pub(super) shown: u64,
    /// Lines seen so far; all of them when the end was reached.
    pub(super) lines: u64,
    pub(super) crlf: bool,
    pub(super) no_final_newline: bool,
    pub(super) replaced: bool,
}

impl Lines {
    pub(super) fn new(offset: u64, limit: u64, limits: &OutputLimits) -> Self {
        Self {
            offset,
            limit,
            most_bytes: limits.shown_bytes,
            line_bytes: limits.line_bytes,
            number: 1,
            line: String::new(),
            line_len: 0,
            ends_with_cr: false,
            full: false,
            page: Page::default(),
        }
    }

    /// Whether no further line will be picked.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    pub(super) fn feed(&mut self, text: &str, replaced: bool) {
        self.page.replaced |= replaced;
        let mut rest = text;
        while let Some((line, after)) = rest.split_once('\n') {
            self.add(line);
            self.end_line(true);
            rest = after;
        }
        self.add(rest);
    }

    pub(super) fn finish(mut self) -> Page {
        if self.line_len > 0 {
            self.page.no_final_newline = true;
            self.end_line(false);
        }
        self.page
    }

    fn add(&mut self, piece: &str) {
        let Some(last) = piece.as_bytes().last() else {
            return;
        };
        self.line_len += piece.len() as u64;
        self.ends_with_cr = *last == b'\r';
        // A little more than is shown, so that the cut falls between two characters.
        let room = (self.line_bytes + 512).saturating_sub(self.line.len());
        if self.number >= self.offset && !self.full && room > 0 {
            self.line.push_str(
                piece
                    .get(..piece.floor_char_boundary(room))
                    .unwrap_or_default(),
            );
        }
    }

    fn end_line(&mut self, newline: bool) {
        let crlf = newline && self.ends_with_cr;
        self.page.crlf |= crlf;
        self.page.lines = self.number;
        if self.number >= self.offset && !self.full {
            self.show(crlf);
        }
        self.number += 1;
        self.line.clear();
        self.line_len = 0;
        self.ends_with_cr = false;
    }

    fn show(&mut self, crlf: bool) {
        let length = self.line_len - u64::from(crlf);
        let held = if crlf {
            self.line.strip_suffix('\r').unwrap_or(&self.line)
        } else {
            &self.line
        };
        let mut shown = clean(cut(held, self.line_bytes)).into_owned();
        if length > self.line_bytes as u64 {
            shown.push_str(&format!(" [… line of {length} bytes]"));
        }
        let row = format!("{:>6}\t{shown}\n", self.number);
        // One line at least, else reading on would never get further.
        if self.page.shown > 0 && self.page.text.len() + row.len() > self.most_bytes {
            self.full = true;
            return;
        }
        self.page.text.push_str(&row);
        self.page.shown += 1;
        self.full = self.page.shown >= self.limit;
    }
}
