//! One piece of streamed text: what was seen of it, whichever of live or durable text came first.

use super::Drawing;
use crate::render::escape::safe;
use crate::render::markdown::Look;
use crate::render::spans::Style;
use crate::render::stream::MarkdownStream;
use crate::render::width;
use tenure_core::event::body::FragmentKind;

/// A fragment that has not ended.
pub struct Fragment {
    kind: FragmentKind,
    sink: Sink,
    /// Bytes that were handed on.
    seen: u64,
    /// Bytes that are durable.
    durable: u64,
}

enum Sink {
    Markdown(MarkdownStream),
    Lines {
        held: String,
        style: Style,
        look: Look,
    },
}

impl Fragment {
    /// A fragment of which nothing was seen.
    pub fn new(kind: FragmentKind, drawing: &Drawing) -> Self {
        let sink = match kind {
            FragmentKind::Text if drawing.markdown => {
                Sink::Markdown(MarkdownStream::new(drawing.look))
            }
            FragmentKind::Text => Sink::Lines {
                held: String::new(),
                style: Style::default(),
                look: drawing.look,
            },
            FragmentKind::Reasoning => Sink::Lines {
                held: String::new(),
                style: Style {
                    dim: true,
                    italic: true,
                    ..Style::default()
                },
                look: drawing.look,
            },
        };
        Self {
            kind,
            sink,
            seen: 0,
            durable: 0,
        }
    }

    /// What it holds.
    pub fn kind(&self) -> FragmentKind {
        self.kind
    }

    /// Something of it was handed on.
    pub fn shown(&self) -> bool {
        self.seen > 0
    }

    /// What waits to be drawn, as it would be now, in lines of at most `columns`.
    pub fn preview(&self, columns: usize) -> Vec<String> {
        match &self.sink {
            Sink::Markdown(stream) => stream
                .preview()
                .iter()
                .map(|line| width::cut_painted(line, columns))
                .collect(),
            Sink::Lines { held, .. } if held.trim().is_empty() => Vec::new(),
            Sink::Lines { held, style, look } => width::pieces(&safe(held), columns)
                .into_iter()
                .map(|line| style.paint(&line, look.colour))
                .collect(),
        }
    }

    /// Bytes that wait to be drawn.
    pub fn held(&self) -> usize {
        match &self.sink {
            Sink::Markdown(stream) => stream.held(),
            Sink::Lines { held, .. } => held.len(),
        }
    }

    /// The next durable text. What live text has shown of it already is not shown again.
    pub fn durable(&mut self, text: &str) -> Vec<String> {
        let from = self.durable;
        self.durable += text.len() as u64;
        self.take(from, text)
    }

    /// Live text at an offset. A gap before it is left to the durable text that will fill it.
    pub fn live(&mut self, offset: u64, text: &str) -> Vec<String> {
        if offset > self.seen {
            return Vec::new();
        }
        self.take(offset, text)
    }

    /// How many bytes beyond `from` were handed on.
    pub fn beyond(&self, from: u64) -> Option<u64> {
        self.seen.checked_sub(from).filter(|lost| *lost > 0)
    }

    /// Draws what is held back, though more may come.
    pub fn draw(&mut self) -> Vec<String> {
        match &mut self.sink {
            Sink::Markdown(stream) => stream.finish(),
            Sink::Lines { held, .. } if held.trim().is_empty() => Vec::new(),
            Sink::Lines { held, style, look } => {
                let text = std::mem::take(held);
                painted(text.trim_end_matches('\n'), *style, *look)
            }
        }
    }

    fn take(&mut self, from: u64, text: &str) -> Vec<String> {
        let known = usize::try_from(self.seen.saturating_sub(from)).unwrap_or(usize::MAX);
        // Both sides cut at characters; text that does not would be another text, and is left alone.
        let Some(new) = text
            .get(known.min(text.len())..)
            .filter(|new| !new.is_empty())
        else {
            return Vec::new();
        };
        self.seen = from + text.len() as u64;
        match &mut self.sink {
            Sink::Markdown(stream) => stream.push(new),
            Sink::Lines { held, style, look } => {
                held.push_str(new);
                match held.rfind('\n') {
                    Some(end) => {
                        let rest = held.split_off(end + 1);
                        let whole = std::mem::replace(held, rest);
                        painted(whole.strip_suffix('\n').unwrap_or(&whole), *style, *look)
                    }
                    None => Vec::new(),
                }
            }
        }
    }

    /// What is left to draw.
    pub fn finish(mut self) -> Vec<String> {
        self.draw()
    }
}

fn painted(text: &str, style: Style, look: Look) -> Vec<String> {
    safe(text)
        .split('\n')
        .map(|line| style.paint(line, look.colour))
        .collect()
}
