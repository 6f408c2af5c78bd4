//! Cuts text into the pieces a model streams, each with its JSON-escaped form.

/// One piece of streamed text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'a> {
    /// The characters.
    pub(crate) raw: &'a str,
    /// The same as the inside of a JSON string.
    pub(crate) escaped: &'a str,
}

/// A text cut into pieces, escaped once; `deltas` repeats them without escaping again.
#[derive(Debug)]
pub(crate) struct Pieces {
    text: String,
    escaped: String,
    /// Ends of each piece in `text` and in `escaped`.
    ends: Vec<(usize, usize)>,
    count: usize,
}

impl Pieces {
    /// Cuts at `size` characters, or behind each word's blanks. `deltas` asks for exactly so many pieces: the text's
    /// own ones, repeated from the start.
    pub(crate) fn cut(text: &str, size: Option<usize>, deltas: Option<usize>) -> Self {
        let text = if text.is_empty() && deltas.is_some_and(|n| n > 0) {
            "word "
        } else {
            text
        };
        let mut pieces = Self {
            text: text.to_owned(),
            escaped: String::with_capacity(text.len() + 8),
            ends: Vec::new(),
            count: 0,
        };
        let mut start = 0;
        let mut chars = 0;
        let mut blank_before = false;
        for (at, c) in text.char_indices() {
            let full = match size {
                Some(size) => chars == size,
                None => blank_before && !c.is_whitespace(),
            };
            if full && at > start {
                pieces.end_at(start, at);
                start = at;
                chars = 0;
            }
            chars += 1;
            blank_before = c.is_whitespace();
        }
        if start < text.len() {
            pieces.end_at(start, text.len());
        }
        pieces.count = deltas.unwrap_or(pieces.ends.len());
        pieces
    }

    fn end_at(&mut self, start: usize, end: usize) {
        let quoted = serde_json::Value::from(&self.text[start..end]).to_string();
        self.escaped.push_str(&quoted[1..quoted.len() - 1]);
        self.ends.push((end, self.escaped.len()));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Piece<'_>> {
        let distinct = self.ends.len().max(1);
        (0..self.count).map(move |n| {
            let at = n % distinct;
            let (start, escaped_start) = if at == 0 { (0, 0) } else { self.ends[at - 1] };
            let (end, escaped_end) = self.ends[at];
            Piece {
                raw: &self.text[start..end],
                escaped: &self.escaped[escaped_start..escaped_end],
            }
        })
    }

    /// How many bytes all pieces have, before escaping.
    pub(crate) fn sent_bytes(&self) -> usize {
        self.iter().map(|piece| piece.raw.len()).sum()
    }

    /// All characters that will be sent.
    pub(crate) fn whole(&self) -> String {
        self.iter().map(|piece| piece.raw).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raws(text: &str, size: Option<usize>, deltas: Option<usize>) -> Vec<String> {
        Pieces::cut(text, size, deltas)
            .iter()
            .map(|p| p.raw.to_owned())
            .collect()
    }

    #[test]
    fn pieces_are_words_or_sizes_and_lose_nothing() {
        assert_eq!(raws("ab  cd\ne", None, None), ["ab  ", "cd\n", "e"]);
        assert_eq!(raws("äöüß", Some(3), None), ["äöü", "ß"]);
        assert!(raws("", None, None).is_empty());
        assert_eq!(raws("a b", None, Some(5)), ["a ", "b", "a ", "b", "a "]);
        assert_eq!(raws("", None, Some(2)), ["word ", "word "]);
        assert!(raws("x", None, Some(0)).is_empty());
    }

    #[test]
    fn the_escaped_form_is_the_inside_of_a_json_string() {
        let pieces = Pieces::cut("a\"b\\ \n€", Some(2), None);
        let joined: String = pieces.iter().map(|p| p.escaped).collect();
        let back: String = serde_json::from_str(&format!("\"{joined}\"")).expect("json");
        assert_eq!(back, "a\"b\\ \n€");
        assert_eq!(pieces.whole(), back);
    }
}
