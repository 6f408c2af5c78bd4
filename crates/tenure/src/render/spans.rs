//! Styled text that is wrapped by words and painted once its width is known.

use super::width;
use std::fmt::Write;

/// Weights and colours of a span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    /// Bold.
    pub bold: bool,
    /// Dim.
    pub dim: bool,
    /// Italic.
    pub italic: bool,
    /// Underlined.
    pub underline: bool,
    /// Struck through.
    pub strike: bool,
    /// SGR colour code, 0 for none.
    pub colour: u8,
}

impl Style {
    /// Red.
    pub const RED: u8 = 31;
    /// Green.
    pub const GREEN: u8 = 32;
    /// Yellow.
    pub const YELLOW: u8 = 33;
    /// Cyan.
    pub const CYAN: u8 = 36;

    /// Only a colour.
    pub fn colour(colour: u8) -> Self {
        Self {
            colour,
            ..Self::default()
        }
    }

    /// Only dim.
    pub fn dim() -> Self {
        Self {
            dim: true,
            ..Self::default()
        }
    }

    /// Only bold.
    pub fn bold() -> Self {
        Self {
            bold: true,
            ..Self::default()
        }
    }

    /// `text` in this style, or as it is when colours are off.
    pub fn paint(self, text: &str, on: bool) -> String {
        if !on || self == Self::default() || text.is_empty() {
            return text.to_owned();
        }
        let mut codes = String::new();
        let flags = [
            (self.bold, 1),
            (self.dim, 2),
            (self.italic, 3),
            (self.underline, 4),
            (self.strike, 9),
            (self.colour != 0, self.colour),
        ];
        for (_, code) in flags.into_iter().filter(|(set, _)| *set) {
            let sep = if codes.is_empty() { "" } else { ";" };
            let _ = write!(codes, "{sep}{code}");
        }
        format!("\u{1b}[{codes}m{text}\u{1b}[0m")
    }
}

/// A paragraph's worth of styled text. A newline in a span breaks the line.
#[derive(Debug, Clone, Default)]
pub struct Spans(Vec<(Style, String)>);

impl Spans {
    /// Adds text.
    pub fn push(&mut self, style: Style, text: &str) {
        match self.0.last_mut() {
            Some((last, held)) if *last == style => held.push_str(text),
            _ => self.0.push((style, text.to_owned())),
        }
    }

    /// Nothing in it?
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, text)| text.is_empty())
    }

    /// Columns when it is not wrapped.
    pub fn width(&self) -> usize {
        self.0.iter().map(|(_, text)| width::of(text)).sum()
    }

    /// Painted on one line.
    pub fn line(&self, colour: bool) -> String {
        self.0
            .iter()
            .map(|(style, text)| style.paint(&text.replace('\n', " "), colour))
            .collect()
    }

    /// Painted lines of at most `columns`, broken at spaces where there are any.
    pub fn wrap(&self, columns: usize, colour: bool) -> Vec<String> {
        let columns = columns.max(8);
        let mut lines = vec![Spans::default()];
        let mut used = 0;
        let mut space: Option<Word> = None;
        for word in self.words() {
            if word.newline {
                lines.push(Spans::default());
                (used, space) = (0, None);
                continue;
            }
            // A space is only drawn when a word follows it on the same line.
            if word.space {
                space = (used > 0).then_some(word);
                continue;
            }
            let before = space.take();
            let wide = word.width() + before.as_ref().map_or(0, Word::width);
            if used > 0 && used + wide > columns {
                lines.push(Spans::default());
                used = word.width();
            } else {
                used += wide;
                lines
                    .last_mut()
                    .expect("invariant: begun with one line")
                    .add(before);
            }
            lines
                .last_mut()
                .expect("invariant: begun with one line")
                .add(Some(word));
        }
        lines.iter().map(|line| line.line(colour)).collect()
    }

    fn add(&mut self, word: Option<Word>) {
        for (style, text) in word.into_iter().flat_map(|w| w.parts) {
            self.push(style, &text);
        }
    }

    /// Words and the spaces between them; a word may hold several styles.
    fn words(&self) -> Vec<Word> {
        let mut words: Vec<Word> = Vec::new();
        for (style, text) in &self.0 {
            for c in text.chars() {
                let (space, newline) = (c == ' ' || c == '\t', c == '\n');
                let fits = words.last().is_some_and(|w| w.space == space && !w.newline) && !newline;
                if !fits {
                    words.push(Word {
                        space,
                        newline,
                        parts: Vec::new(),
                    });
                }
                let word = words.last_mut().expect("invariant: just pushed");
                match word.parts.last_mut() {
                    Some((last, held)) if last == style => held.push(c),
                    _ => word.parts.push((*style, c.to_string())),
                }
            }
        }
        words
    }
}

struct Word {
    space: bool,
    newline: bool,
    parts: Vec<(Style, String)>,
}

impl Word {
    fn width(&self) -> usize {
        self.parts.iter().map(|(_, text)| width::of(text)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_wrap_and_styles_cross_the_break() {
        let mut spans = Spans::default();
        spans.push(Style::default(), "one two ");
        spans.push(Style::bold(), "three four");
        assert_eq!(spans.wrap(9, false), ["one two", "three", "four"]);
        assert_eq!(
            spans.wrap(9, true),
            [
                "one two",
                "\u{1b}[1mthree\u{1b}[0m",
                "\u{1b}[1mfour\u{1b}[0m"
            ]
            .map(str::to_owned)
            .to_vec()
        );
    }

    #[test]
    fn a_word_longer_than_the_line_is_kept_whole() {
        let mut spans = Spans::default();
        spans.push(Style::default(), "a verylongword b\nc");
        assert_eq!(spans.wrap(8, false), ["a", "verylongword", "b", "c"]);
    }
}
