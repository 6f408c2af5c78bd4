//! Markdown as it streams: each block is drawn when it is complete, code line by line.

use super::markdown::{self, Look};

/// Holds text back until it can be drawn for good; what was drawn is never drawn again.
#[derive(Debug)]
pub struct MarkdownStream {
    look: Look,
    /// The line that is not complete.
    line: String,
    /// Complete lines of a block that is not.
    block: String,
    /// The fence that closes the open code block.
    fence: Option<(char, usize)>,
    /// A blank line came after a list; what follows decides whether the list goes on.
    after_list: bool,
    /// Something was drawn, so that the next block wants an empty line before it.
    drawn: bool,
}

impl MarkdownStream {
    /// An empty stream.
    pub fn new(look: Look) -> Self {
        Self {
            look,
            line: String::new(),
            block: String::new(),
            fence: None,
            after_list: false,
            drawn: false,
        }
    }

    /// More text; gives the lines that are final now.
    pub fn push(&mut self, text: &str) -> Vec<String> {
        let mut out = Vec::new();
        let mut rest = text;
        while let Some(end) = rest.find('\n') {
            self.line.push_str(&rest[..end]);
            let line = std::mem::take(&mut self.line);
            self.complete(line.strip_suffix('\r').unwrap_or(&line), &mut out);
            rest = &rest[end + 1..];
        }
        self.line.push_str(rest);
        out
    }

    /// The text is over; gives the lines that were held back.
    pub fn finish(&mut self) -> Vec<String> {
        let mut out = Vec::new();
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.complete(&line, &mut out);
        }
        self.flush(&mut out);
        self.fence = None;
        self.drawn = false;
        out
    }

    /// What is held back, as it would be drawn if nothing more came. Nothing is changed by looking.
    pub fn preview(&self) -> Vec<String> {
        if self.fence.is_some() {
            return match self.line.as_str() {
                "" => Vec::new(),
                line => vec![markdown::code_line(line, self.look)],
            };
        }
        let held = format!("{}{}", self.block, self.line);
        let mut lines = markdown::lines(&held, self.look);
        if self.drawn && !lines.is_empty() {
            lines.insert(0, String::new());
        }
        lines
    }

    /// Bytes that are held back.
    pub fn held(&self) -> usize {
        self.block.len() + self.line.len()
    }

    fn complete(&mut self, line: &str, out: &mut Vec<String>) {
        if let Some((mark, count)) = self.fence {
            let trimmed = line.trim();
            let closes = trimmed.chars().all(|c| c == mark) && trimmed.chars().count() >= count;
            if closes {
                self.fence = None;
                self.drawn = true;
            } else {
                out.push(markdown::code_line(line, self.look));
            }
            return;
        }
        if self.after_list && !line.trim().is_empty() {
            let goes_on = line.starts_with("  ") || line.starts_with('\t') || is_item(line);
            if goes_on {
                self.block.push('\n');
            } else {
                self.flush(out);
            }
            self.after_list = false;
        }
        if let Some((mark, count, name)) = opening_fence(line).filter(|_| !self.in_list()) {
            self.flush(out);
            self.gap(out);
            self.fence = Some((mark, count));
            if !name.is_empty() {
                let name = super::escape::safe_line(name);
                out.push(super::spans::Style::dim().paint(&format!("  {name}"), self.look.colour));
            }
            return;
        }
        if line.trim().is_empty() {
            if self.in_list() {
                self.after_list = true;
            } else {
                self.flush(out);
            }
            return;
        }
        let heading = self.block.is_empty() && line.starts_with('#');
        self.block.push_str(line);
        self.block.push('\n');
        if heading {
            self.flush(out);
        }
    }

    fn in_list(&self) -> bool {
        is_item(&self.block)
    }

    fn flush(&mut self, out: &mut Vec<String>) {
        self.after_list = false;
        let block = std::mem::take(&mut self.block);
        if block.trim().is_empty() {
            return;
        }
        let lines = markdown::lines(&block, self.look);
        if lines.is_empty() {
            return;
        }
        self.gap(out);
        out.extend(lines);
        self.drawn = true;
    }

    fn gap(&mut self, out: &mut Vec<String>) {
        if self.drawn {
            out.push(String::new());
            self.drawn = false;
        }
    }
}

fn opening_fence(line: &str) -> Option<(char, usize, &str)> {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let line = line.trim_start_matches(' ');
    let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let count = line.chars().take_while(|c| *c == mark).count();
    let name = line[count..].trim();
    (indent < 4 && count >= 3 && !(mark == '`' && name.contains('`')))
        .then_some((mark, count, name))
}

fn is_item(line: &str) -> bool {
    let line = line.trim_start();
    if ["- ", "* ", "+ "]
        .iter()
        .any(|bullet| line.starts_with(bullet))
    {
        return true;
    }
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    (1..=9).contains(&digits)
        && (line[digits..].starts_with(". ") || line[digits..].starts_with(") "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Look = Look {
        width: 40,
        colour: false,
    };

    fn in_pieces(text: &str, size: usize) -> Vec<String> {
        let mut stream = MarkdownStream::new(LOOK);
        let mut out = Vec::new();
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(size) {
            out.extend(stream.push(&piece.iter().collect::<String>()));
        }
        out.extend(stream.finish());
        out
    }

    const TEXT: &str = "# Title\nFirst paragraph\nin two lines.\n\nSecond.\n\n- a\n- b\n\n  more of b\n\n1. x\n\nAfter.\n```rust\nfn main() {}\n\n// end\n```\nLast";

    #[test]
    fn the_same_lines_come_out_however_the_text_is_cut() {
        let whole = in_pieces(TEXT, usize::MAX);
        for size in [1, 2, 3, 7, 20] {
            assert_eq!(in_pieces(TEXT, size), whole, "pieces of {size}");
        }
        assert_eq!(
            whole,
            [
                "# Title",
                "",
                "First paragraph in two lines.",
                "",
                "Second.",
                "",
                "• a",
                "• b",
                "  more of b",
                "",
                "1. x",
                "",
                "After.",
                "",
                "  rust",
                "  fn main() {}",
                "  ",
                "  // end",
                "",
                "Last"
            ]
        );
    }

    #[test]
    fn a_code_block_behind_a_list_ends_where_it_ends() {
        let text = "- a\n\n```rust\nfn f() {}\n```\nEnd.";
        let whole = ["• a", "", "  rust", "  fn f() {}", "", "End."];
        for size in [1, 4, usize::MAX] {
            assert_eq!(in_pieces(text, size), whole, "pieces of {size}");
        }
    }

    #[test]
    fn what_is_held_can_be_looked_at_as_often_as_one_likes() {
        let mut stream = MarkdownStream::new(LOOK);
        stream.push("First.\n\nsome **bo");
        assert_eq!(stream.preview(), ["", "some **bo"]);
        stream.push("ld** text\nand");
        assert_eq!(stream.preview(), ["", "some bold text and"]);
        assert_eq!(stream.preview(), stream.preview());
        assert_eq!(stream.push("\n\n"), ["", "some bold text and"]);
        assert!(stream.preview().is_empty());
        stream.push("```\nlet x");
        assert_eq!(stream.preview(), ["  let x"]);
    }

    #[test]
    fn a_paragraph_is_drawn_at_its_end_and_code_at_once() {
        let mut stream = MarkdownStream::new(LOOK);
        assert!(stream.push("some text\n").is_empty());
        assert_eq!(stream.push("\n"), ["some text"]);
        assert!(stream.push("```\n").len() <= 1);
        assert_eq!(stream.push("x = 1\n"), ["  x = 1"]);
        assert_eq!(stream.held(), 0);
    }
}
