//! Tells code, comments and literals of Rust text apart, byte by byte: enough for house rules, no parser.

/// What a byte of a source file belongs to. A literal's quotes and prefixes belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Anything that is neither of the others.
    Code,
    /// Line, block and documentation comments.
    Comment,
    /// String, byte string, C string and character literals.
    Literal,
}

/// One kind per byte of `text`. Text that does not lex (an open string) is classified to its end without complaint.
pub fn classify(text: &str) -> Vec<Kind> {
    let bytes = text.as_bytes();
    let mut kinds = vec![Kind::Code; bytes.len()];
    let mut at = 0;
    while at < bytes.len() {
        let (end, kind) = token(bytes, at);
        kinds[at..end].fill(kind);
        at = end;
    }
    kinds
}

/// The end and kind of what begins at `at`; code is taken one word or one byte at a time.
fn token(bytes: &[u8], at: usize) -> (usize, Kind) {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        let length = rest
            .iter()
            .position(|byte| *byte == b'\n')
            .unwrap_or(rest.len());
        return (at + length, Kind::Comment);
    }
    if rest.starts_with(b"/*") {
        return (block_comment(bytes, at), Kind::Comment);
    }
    if rest[0] == b'"' {
        return (quoted(bytes, at + 1, b'"'), Kind::Literal);
    }
    if rest[0] == b'\'' {
        return match char_literal(bytes, at) {
            Some(end) => (end, Kind::Literal),
            None => (at + 1, Kind::Code),
        };
    }
    if is_word(rest[0]) {
        let word = rest.iter().take_while(|byte| is_word(**byte)).count();
        return match prefixed_literal(bytes, at, word) {
            Some(end) => (end, Kind::Literal),
            None => (at + word, Kind::Code),
        };
    }
    (at + 1, Kind::Code)
}

/// Whether `byte` can be part of a name or number; bytes of non-ASCII letters count.
pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn block_comment(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// The end of a literal whose opening quote ended at `at`.
fn quoted(bytes: &[u8], mut at: usize, quote: u8) -> usize {
    while at < bytes.len() {
        if bytes[at] == b'\\' {
            at += 2;
        } else if bytes[at] == quote {
            return at + 1;
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// The end of a character literal at the quote `at`; `None` for a lifetime or label.
fn char_literal(bytes: &[u8], at: usize) -> Option<usize> {
    let first = *bytes.get(at + 1)?;
    if first == b'\\' {
        return Some(quoted(bytes, at + 1, b'\''));
    }
    let width = match first {
        0x00..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        _ => 4,
    };
    let end = at + 1 + width;
    (bytes.get(end) == Some(&b'\'')).then_some(end + 1)
}

/// The end of a literal that begins with the word of `word` bytes at `at` (`b"`, `r#"`, `c"`, `b'` …).
fn prefixed_literal(bytes: &[u8], at: usize, word: usize) -> Option<usize> {
    let prefix = &bytes[at..at + word];
    let after = at + word;
    let next = *bytes.get(after)?;
    match prefix {
        b"b" if next == b'\'' => char_literal(bytes, after),
        b"b" | b"c" if next == b'"' => Some(quoted(bytes, after + 1, b'"')),
        b"r" | b"br" | b"cr" if next == b'"' || next == b'#' => raw_string(bytes, after),
        _ => None,
    }
}

/// The end of a raw string whose hashes begin at `at`; `None` for a raw name such as `r#type`.
fn raw_string(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at..].iter().take_while(|byte| **byte == b'#').count();
    if bytes.get(at + hashes) != Some(&b'"') {
        return None;
    }
    let mut closing = vec![b'"'];
    closing.extend(std::iter::repeat_n(b'#', hashes));
    let body = at + hashes + 1;
    let length = bytes[body..]
        .windows(closing.len())
        .position(|window| window == closing);
    Some(length.map_or(bytes.len(), |length| body + length + closing.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code as it stands, comments as `c`, literals as `s`.
    fn drawn(text: &str) -> String {
        let kinds = classify(text);
        let draw = |(byte, kind): (u8, &Kind)| match kind {
            Kind::Code => char::from(byte),
            Kind::Comment => 'c',
            Kind::Literal => 's',
        };
        text.bytes().zip(&kinds).map(draw).collect()
    }

    #[test]
    fn comments_nest_and_end_where_they_should() {
        assert_eq!(drawn("a // b\nc"), "a cccc\nc");
        assert_eq!(drawn("a /* b /* c */ d */ e"), "a ccccccccccccccccc e");
        assert_eq!(drawn("a /* open"), "a ccccccc");
    }

    #[test]
    fn strings_hide_comment_marks_and_quotes() {
        assert_eq!(drawn(r#"f("// \" no", x)"#), "f(ssssssssss, x)");
        assert_eq!(drawn(r##"f(r#"a " b"#, x)"##), "f(ssssssssss, x)");
        assert_eq!(drawn(r#"(b"x", c"y", br"\")"#), "(ssss, ssss, sssss)");
        assert_eq!(drawn("r#type = 1"), "r#type = 1");
        assert_eq!(drawn("bar\"x\""), "barsss");
    }

    #[test]
    fn characters_are_told_from_lifetimes() {
        assert_eq!(
            drawn("'a' '\\'' b'\"' 'b: &'a str"),
            "sss ssss ssss 'b: &'a str"
        );
        assert_eq!(drawn("f('{', 'é')"), "f(sss, ssss)");
        assert_eq!(drawn("'\\u{1F600}';"), "sssssssssss;");
    }
}
