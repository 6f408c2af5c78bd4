//! Exact search that does not care how line ends were spelt, and replacement that keeps the file's own.

use std::ops::Range;

/// Where the old text stands, in bytes of the file's text.
pub(super) type Place = Range<usize>;

/// All places, without overlaps. First exactly as given; only when there is none, and line ends are the only possible
/// reason, with every line end of either side counted as equal.
pub(super) fn places(text: &str, old: &str) -> Vec<Place> {
    let exact = exact(text, old);
    if !exact.is_empty() || !old.contains('\n') {
        return exact;
    }
    let plain_old = old.replace("\r\n", "\n");
    let (plain, removed) = without_cr(text);
    plain
        .match_indices(&plain_old)
        .map(|(at, found)| original(&removed, at)..original(&removed, at + found.len()))
        .collect()
}

/// A line end at the start of the old text takes its CR with it: no half of a line end stays behind.
fn exact(text: &str, old: &str) -> Vec<Place> {
    let mut found: Vec<Place> = Vec::new();
    for (at, piece) in text.match_indices(old) {
        let free = found.last().map_or(0, |last| last.end);
        let with_cr = old.starts_with('\n')
            && text
                .get(free..at)
                .is_some_and(|before| before.ends_with('\r'));
        found.push(at - usize::from(with_cr)..at + piece.len());
    }
    found
}

/// The text with CR LF as LF, and at which positions of the result a CR was left out.
fn without_cr(text: &str) -> (String, Vec<usize>) {
    let mut plain = String::with_capacity(text.len());
    let mut removed = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("\r\n") {
        let (before, after) = rest.split_at(at);
        plain.push_str(before);
        removed.push(plain.len());
        plain.push('\n');
        rest = after.strip_prefix("\r\n").unwrap_or_default();
    }
    plain.push_str(rest);
    (plain, removed)
}

/// A position in the original text. The CR belongs to the line end: a piece that begins with the line end takes it in,
/// one that ends just before does not.
fn original(removed: &[usize], at: usize) -> usize {
    at + removed.partition_point(|r| *r < at)
}

/// A changed text.
pub(super) struct Changed {
    pub(super) text: String,
    /// Where the new pieces begin.
    pub(super) at: Vec<usize>,
    /// Bytes taken out and put in.
    pub(super) removed: usize,
    pub(super) added: usize,
}

/// Puts `new` in all places. Its line ends become those of the replaced piece, or of the file when the piece has none.
pub(super) fn replaced(text: &str, places: &[Place], new: &str) -> Changed {
    let mut changed = Changed {
        text: String::with_capacity(text.len()),
        at: Vec::new(),
        removed: 0,
        added: 0,
    };
    let file_end = line_end(text);
    let mut last = 0;
    for place in places {
        let piece = text.get(place.clone()).unwrap_or_default();
        let new = with_line_end(new, line_end(piece).or(file_end));
        changed
            .text
            .push_str(text.get(last..place.start).unwrap_or_default());
        changed.at.push(changed.text.len());
        changed.text.push_str(&new);
        changed.removed += place.len();
        changed.added += new.len();
        last = place.end;
    }
    changed.text.push_str(text.get(last..).unwrap_or_default());
    changed
}

/// The line end most lines of a piece have; `None` when it has none.
fn line_end(piece: &str) -> Option<&'static str> {
    let crlf = piece.matches("\r\n").count();
    let all = piece.bytes().filter(|b| *b == b'\n').count();
    match (crlf, all - crlf) {
        (0, 0) => None,
        (crlf, lf) if crlf > lf => Some("\r\n"),
        _ => Some("\n"),
    }
}

fn with_line_end(new: &str, end: Option<&'static str>) -> String {
    match end {
        // Line ends written out as CR LF are meant: only plain ones follow the file.
        Some("\r\n") => new.replace("\r\n", "\n").replace('\n', "\r\n"),
        _ => new.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_plain_old_text_is_found_in_a_crlf_file_with_its_line_ends() {
        let text = "a\r\nb\r\nc\r\n";
        assert_eq!(places(text, "a\nb"), vec![Place { start: 0, end: 4 }]);
        assert_eq!(places(text, "b\n"), vec![Place { start: 3, end: 6 }]);
        assert_eq!(places(text, "\nb"), vec![Place { start: 1, end: 4 }]);
        let changed = replaced(text, &places(text, "a\nb\n"), "x\ny\nz\n");
        assert_eq!(changed.text, "x\r\ny\r\nz\r\nc\r\n");
    }

    #[test]
    fn lines_are_never_skipped() {
        assert!(places("first\nreal\nlast\n", "first\ninvented\nlast\n").is_empty());
        assert!(places("first\n  real\n", "first\nreal\n").is_empty());
    }

    proptest! {
        #[test]
        fn only_the_places_differ(text in "[ab\r\n]{0,40}", old in "[ab\n]{1,4}", new in "[ab\n]{0,5}") {
            let found = places(&text, &old);
            let changed = replaced(&text, &found, &new);
            prop_assert_eq!(changed.text.len(), text.len() - changed.removed + changed.added);
            for place in &found {
                prop_assert_eq!(text[place.clone()].replace("\r\n", "\n"), old.replace("\r\n", "\n"));
            }
            // Taking the new pieces out again leaves what was around the old ones.
            let mut around = String::new();
            let mut last = 0;
            for place in &found {
                around.push_str(&text[last..place.start]);
                last = place.end;
            }
            around.push_str(&text[last..]);
            prop_assert_eq!(around.len(), changed.text.len() - changed.added);
        }
    }
}
