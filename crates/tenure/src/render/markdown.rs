//! One complete Markdown block as terminal lines.

use super::escape::safe;
use super::spans::{Spans, Style};
use super::{table, width};
use pulldown_cmark::{Alignment, CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

/// How to draw.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Columns.
    pub width: usize,
    /// Colours may be used.
    pub colour: bool,
}

/// The lines of `text`, without a line end each. Control characters of the text are shown, not sent.
pub fn lines(text: &str, look: Look) -> Vec<String> {
    let text = safe(text);
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut draw = Draw {
        look,
        out: Vec::new(),
        spans: Spans::default(),
        style: Vec::new(),
        indent: Vec::new(),
        lists: Vec::new(),
        code: None,
        table: None,
        links: Vec::new(),
    };
    for event in Parser::new_ext(&text, options) {
        draw.event(event);
    }
    draw.flush();
    while draw.out.last().is_some_and(String::is_empty) {
        draw.out.pop();
    }
    draw.out
}

/// A line of a code block.
pub fn code_line(line: &str, look: Look) -> String {
    let line = safe(line).replace('\t', "    ");
    format!("  {}", Style::colour(Style::CYAN).paint(&line, look.colour))
}

struct Draw {
    look: Look,
    out: Vec<String>,
    spans: Spans,
    style: Vec<Style>,
    /// What stands before each line: the first time, and after that.
    indent: Vec<(String, String)>,
    /// Next number of each open list; none for bullets.
    lists: Vec<Option<u64>>,
    code: Option<String>,
    table: Option<Table>,
    links: Vec<(String, String)>,
}

#[derive(Default)]
struct Table {
    align: Vec<Alignment>,
    rows: Vec<Vec<Spans>>,
    row: Vec<Spans>,
}

impl Draw {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.text(&text),
            Event::Code(text) => {
                let style = Style {
                    colour: Style::CYAN,
                    ..self.now()
                };
                // Without colours, code is told apart by its own marks.
                if self.look.colour {
                    self.push(style, &text);
                } else {
                    self.push(style, &format!("`{text}`"));
                }
            }
            Event::Html(text) | Event::InlineHtml(text) => self.text(&text),
            Event::SoftBreak => self.push(self.now(), " "),
            Event::HardBreak => self.push(self.now(), "\n"),
            Event::Rule => {
                self.flush();
                let rule = "─".repeat(self.room().min(40));
                self.line(&Style::dim().paint(&rule, self.look.colour));
                self.gap();
            }
            Event::TaskListMarker(done) => {
                self.push(self.now(), if done { "[x] " } else { "[ ] " })
            }
            _ => {}
        }
    }

    fn now(&self) -> Style {
        self.style.last().copied().unwrap_or_default()
    }

    fn push(&mut self, style: Style, text: &str) {
        self.spans.push(style, text);
        if let Some((_, shown)) = self.links.last_mut() {
            shown.push_str(text);
        }
    }

    fn text(&mut self, text: &str) {
        match &mut self.code {
            Some(code) => code.push_str(text),
            None => self.push(self.now(), text),
        }
    }

    fn with(&mut self, change: impl Fn(&mut Style)) {
        let mut style = self.now();
        change(&mut style);
        self.style.push(style);
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { level, .. } => {
                self.flush();
                self.gap();
                self.with(|s| {
                    s.bold = true;
                    s.underline = level == HeadingLevel::H1;
                });
                if !self.look.colour {
                    self.push(
                        Style::default(),
                        &format!("{} ", "#".repeat(level as usize)),
                    );
                }
            }
            Tag::Emphasis => self.with(|s| s.italic = true),
            Tag::Strong => self.with(|s| s.bold = true),
            Tag::Strikethrough => self.with(|s| s.strike = true),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.with(|s| s.underline = true);
                self.links.push((dest_url.to_string(), String::new()));
            }
            Tag::BlockQuote(_) => {
                self.flush();
                let bar = Style::dim().paint("│ ", self.look.colour);
                self.indent.push((bar.clone(), bar));
                self.with(|s| s.dim = true);
            }
            Tag::List(first) => {
                self.flush();
                self.lists.push(first);
            }
            Tag::Item => {
                self.flush();
                let marker = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    _ => "• ".to_owned(),
                };
                let hang = " ".repeat(width::of(&marker));
                self.indent.push((marker, hang));
            }
            Tag::CodeBlock(kind) => {
                self.flush();
                self.code = Some(String::new());
                if let CodeBlockKind::Fenced(name) = kind
                    && !name.is_empty()
                {
                    let name = Style::dim().paint(&format!("  {name}"), self.look.colour);
                    self.line(&name);
                }
            }
            Tag::Table(align) => {
                self.flush();
                self.table = Some(Table {
                    align,
                    ..Table::default()
                });
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph => {
                self.flush();
                self.gap();
            }
            TagEnd::Heading(_) => {
                self.style.pop();
                self.flush();
                self.gap();
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.style.pop();
            }
            TagEnd::Link | TagEnd::Image => {
                self.style.pop();
                if let Some((url, shown)) = self.links.pop()
                    && !url.is_empty()
                    && url != shown
                    && url != format!("mailto:{shown}")
                {
                    self.push(Style::dim(), &format!(" ({url})"));
                }
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.style.pop();
                self.indent.pop();
                self.gap();
            }
            TagEnd::List(_) => {
                self.flush();
                self.lists.pop();
                if self.lists.is_empty() {
                    self.gap();
                }
            }
            TagEnd::Item => {
                self.flush();
                self.indent.pop();
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.spans);
                if let Some(table) = &mut self.table {
                    table.row.push(cell);
                }
            }
            TagEnd::TableHead | TagEnd::TableRow => {
                if let Some(table) = &mut self.table {
                    let row = std::mem::take(&mut table.row);
                    table.rows.push(row);
                }
            }
            TagEnd::Table => self.end_table(),
            _ => {}
        }
    }

    fn end_code(&mut self) {
        let code = self.code.take().unwrap_or_default();
        for line in code.strip_suffix('\n').unwrap_or(&code).split('\n') {
            self.line(&code_line(line, self.look));
        }
        self.gap();
    }

    fn end_table(&mut self) {
        let Some(drawn) = self.table.take() else {
            return;
        };
        for line in table::spans(&drawn.rows, &drawn.align, self.room(), self.look.colour) {
            self.line(&line);
        }
        self.gap();
    }

    fn room(&self) -> usize {
        let used: usize = self.indent.iter().map(|(_, rest)| plain_width(rest)).sum();
        self.look.width.saturating_sub(used).max(16)
    }

    fn flush(&mut self) {
        if self.spans.is_empty() {
            return;
        }
        let spans = std::mem::take(&mut self.spans);
        for line in spans.wrap(self.room(), self.look.colour) {
            self.line(&line);
        }
    }

    fn line(&mut self, line: &str) {
        let mut out = String::new();
        for (first, rest) in &mut self.indent {
            out.push_str(first);
            first.clone_from(rest);
        }
        out.push_str(line);
        self.out.push(out);
    }

    /// One empty line, if there is none yet. Inside a list or a quote, blocks stay together.
    fn gap(&mut self) {
        if self.indent.is_empty() && self.out.last().is_some_and(|last| !last.is_empty()) {
            self.out.push(String::new());
        }
    }
}

/// Columns of text that may hold our own colour codes.
fn plain_width(text: &str) -> usize {
    let mut inside = false;
    let mut columns = 0;
    for c in text.chars() {
        match c {
            '\u{1b}' => inside = true,
            'm' if inside => inside = false,
            _ if inside => {}
            c => columns += width::of_char(c),
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Vec<String> {
        lines(
            text,
            Look {
                width: 30,
                colour: false,
            },
        )
    }

    #[test]
    fn blocks_are_drawn_as_lines() {
        assert_eq!(
            plain(
                "# Head\n\nSome *nice* `code` and text that wraps.\n\n- one\n- two\n  1. a\n  2. b\n\n> quoted"
            ),
            [
                "# Head",
                "",
                "Some nice `code` and text that",
                "wraps.",
                "",
                "• one",
                "• two",
                "  1. a",
                "  2. b",
                "",
                "│ quoted"
            ]
        );
    }

    #[test]
    fn code_keeps_its_spaces_and_links_show_where_they_lead() {
        assert_eq!(
            plain("```sh\nif x\n    y\n```"),
            ["  sh", "  if x", "      y"]
        );
        assert_eq!(plain("[t](http://u)"), ["t (http://u)"]);
        assert_eq!(plain("<http://u>"), ["http://u"]);
    }

    #[test]
    fn tables_are_aligned() {
        assert_eq!(
            plain("| a | bb |\n|---|---:|\n| xyz | 1 |"),
            ["a    bb", "───  ──", "xyz   1"]
        );
    }

    #[test]
    fn colours_are_only_ours() {
        let drawn = lines(
            "**b** \u{1b}[2J",
            Look {
                width: 30,
                colour: true,
            },
        );
        assert_eq!(drawn, ["\u{1b}[1mb\u{1b}[0m ␛[2J"]);
        assert!(
            lines(
                "**b** `c`",
                Look {
                    width: 30,
                    colour: false
                }
            )
            .iter()
            .all(|l| !l.contains('\u{1b}'))
        );
    }
}
