//! Bytes of unknown origin made into text that is safe to store, send and print.

use std::borrow::Cow;

use unicode_segmentation::GraphemeCursor;

/// A joined character longer than this is cut between its parts: otherwise one endless run of combining marks could
/// push the cut back to nothing.
const LONGEST_GRAPHEME: usize = 256;

/// The longest beginning of `text` of at most `max` bytes that ends between two characters as a reader sees them.
#[must_use]
pub fn cut(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    let floor = text.floor_char_boundary(max);
    let start = grapheme_start(text, floor);
    let at = if floor - start > LONGEST_GRAPHEME {
        floor
    } else {
        start
    };
    text.get(..at).unwrap_or_default()
}

/// The longest end of `text` of at most `max` bytes that begins between two characters as a reader sees them.
#[must_use]
pub fn cut_tail(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    let ceil = text.ceil_char_boundary(text.len() - max);
    let end = grapheme_end(text, ceil);
    let at = if end - ceil > LONGEST_GRAPHEME {
        ceil
    } else {
        end
    };
    text.get(at..).unwrap_or_default()
}

/// Whether `at` lies between two characters as a reader sees them.
fn is_boundary(text: &str, at: usize) -> bool {
    GraphemeCursor::new(at, text.len(), true)
        .is_boundary(text, 0)
        .unwrap_or(true)
}

fn grapheme_start(text: &str, mut at: usize) -> usize {
    let lowest = at.saturating_sub(LONGEST_GRAPHEME + 8);
    while at > lowest && !is_boundary(text, at) {
        at = text.floor_char_boundary(at - 1);
    }
    at
}

fn grapheme_end(text: &str, mut at: usize) -> usize {
    let highest = at.saturating_add(LONGEST_GRAPHEME + 8).min(text.len());
    while at < highest && !is_boundary(text, at) {
        at = text.ceil_char_boundary(at + 1);
    }
    at
}

/// Makes text safe: control characters become visible escapes (`\0`, `\x1b`, `\r`), except tab and newline; CR LF
/// becomes a newline. Direction overrides are escaped too, since they make a terminal show what is not there.
#[must_use]
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(needs_escape) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\r' if chars.peek() == Some(&'\n') => {}
            '\r' => out.push_str("\\r"),
            '\0' => out.push_str("\\0"),
            c if !needs_escape(c) => out.push(c),
            c if u32::from(c) < 0x100 => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
        }
    }
    Cow::Owned(out)
}

fn needs_escape(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Decodes output: UTF-16 when it begins with that byte-order mark, else UTF-8 with U+FFFD for what is not. The
/// mark itself is dropped.
#[must_use]
pub fn decode(bytes: &[u8]) -> Cow<'_, str> {
    match encoding_rs::Encoding::for_bom(bytes) {
        Some((encoding, mark)) => encoding.decode_without_bom_handling(&bytes[mark..]).0,
        None => String::from_utf8_lossy(bytes),
    }
}
