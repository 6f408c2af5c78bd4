//! Makes text from models and tools safe for a terminal: no control sequence of theirs reaches it.

use std::borrow::Cow;

/// `text` with every control character but newline and tab shown instead of sent, and direction overrides
/// shown too, since they make text read as something it is not.
pub fn safe(text: &str) -> Cow<'_, str> {
    if !text.chars().any(unsafe_char) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if !unsafe_char(c) => out.push(c),
            '\r' => out.push('␍'),
            '\u{7f}' => out.push('␡'),
            c if (c as u32) < 0x20 => {
                out.push(char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}'))
            }
            c => out.push_str(&format!("\\u{{{:x}}}", c as u32)),
        }
    }
    // A line end of the other kind is a line end, not something to be shown.
    Cow::Owned(out.replace("␍\n", "\n"))
}

/// [`safe`], on one line.
pub fn safe_line(text: &str) -> String {
    let one: String = text
        .chars()
        .map(|c| {
            if matches!(c, '\n' | '\t' | '\r') {
                ' '
            } else {
                c
            }
        })
        .collect();
    safe(&one).into_owned()
}

fn unsafe_char(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || (c.is_control() && c != '\n' && c != '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_shown_not_sent() {
        assert_eq!(safe("a\u{1b}[31mb\u{0}c"), "a␛[31mb␀c");
        assert_eq!(safe("\u{9b}2J"), "\\u{9b}2J");
        assert_eq!(safe("x\u{202e}y"), "x\\u{202e}y");
        assert_eq!(safe("one\r\ntwo\rthree"), "one\ntwo␍three");
        assert!(matches!(safe("plain\n\ttext é"), Cow::Borrowed(_)));
    }

    #[test]
    fn one_line_stays_one_line() {
        assert_eq!(safe_line("a\nb\tc\u{1b}"), "a b c␛");
    }
}
