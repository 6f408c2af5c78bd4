//! The screen: transcript lines on standard output; below them, on standard error, what is rewritten: text that is
//! not complete yet, and the status line. Never in each other's way.

use super::terminal::Caps;
use std::io::{self, Write};

/// Writes lines and keeps a few lines that are rewritten below them.
pub struct Screen {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    caps: Caps,
    /// The lines that are on the screen to be rewritten.
    shown: Vec<String>,
}

const CLEAR: &str = "\r\u{1b}[2K";

impl Screen {
    /// The process's own standard output and standard error.
    pub fn real(caps: Caps) -> Self {
        Self::new(Box::new(io::stdout()), Box::new(io::stderr()), caps)
    }

    /// Other writers.
    pub fn new(out: Box<dyn Write + Send>, err: Box<dyn Write + Send>, caps: Caps) -> Self {
        Self {
            out,
            err,
            caps,
            shown: Vec::new(),
        }
    }

    /// Can a status line be shown?
    pub fn has_status(&self) -> bool {
        self.caps.stderr && self.caps.cursor
    }

    /// Writes lines to standard output.
    pub fn lines(&mut self, lines: &[String]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        self.clear()?;
        let mut text = lines.join("\n");
        text.push('\n');
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Writes a line to standard error.
    pub fn error_line(&mut self, line: &str) -> io::Result<()> {
        self.clear()?;
        writeln!(self.err, "{line}")?;
        self.err.flush()
    }

    /// How many lines of text may stand above the status line: what has left the screen cannot be taken away.
    pub fn room(&self) -> usize {
        if self.has_status() && self.caps.stdout {
            self.caps.height.saturating_sub(2)
        } else {
            0
        }
    }

    /// Rewrites the lines below: text that is not complete, and the status line. Each is shorter than the screen is wide.
    pub fn below(&mut self, lines: Vec<String>) -> io::Result<()> {
        if !self.has_status() || lines == self.shown {
            return Ok(());
        }
        let Some(last) = lines.last() else {
            return self.clear();
        };
        let text = &lines[..lines.len() - 1];
        let same = self.shown.len() == lines.len() && self.shown.starts_with(text);
        let drawn = if same {
            format!("{CLEAR}{last}")
        } else {
            format!("{}{}", self.taken_away(), lines.join("\n"))
        };
        self.shown = lines;
        self.err.write_all(drawn.as_bytes())?;
        self.err.flush()
    }

    /// Takes the lines below away.
    pub fn clear(&mut self) -> io::Result<()> {
        if self.shown.is_empty() {
            return Ok(());
        }
        let text = self.taken_away();
        self.shown.clear();
        self.err.write_all(text.as_bytes())?;
        self.err.flush()
    }

    fn taken_away(&self) -> String {
        match self.shown.len() {
            0 | 1 => CLEAR.to_owned(),
            n => format!("\r\u{1b}[{}A\u{1b}[J", n - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn screen(caps: Caps) -> (Screen, Shared) {
        let both = Shared::default();
        (
            Screen::new(Box::new(both.clone()), Box::new(both.clone()), caps),
            both,
        )
    }

    /// What can be drawn on.
    fn terminal() -> Caps {
        Caps {
            stdout: true,
            stderr: true,
            cursor: true,
            ..Caps::piped()
        }
    }

    fn text(both: &Shared) -> String {
        String::from_utf8(both.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn lines_never_run_into_the_status() {
        let (mut screen, both) = screen(terminal());
        screen.below(vec!["working".into()]).unwrap();
        screen.lines(&["a line".into()]).unwrap();
        let text = text(&both);
        assert_eq!(text, "\r\u{1b}[2Kworking\r\u{1b}[2Ka line\n");
    }

    #[test]
    fn text_that_grows_is_rewritten_and_then_taken_away() {
        let (mut screen, both) = screen(terminal());
        let mut since = 0;
        let mut new = |screen: &mut Screen, lines: &[&str]| {
            let lines = lines.iter().map(|line| (*line).to_owned()).collect();
            screen.below(lines).unwrap();
            let all = text(&both);
            let new = all[since..].to_owned();
            since = all.len();
            new
        };
        assert_eq!(new(&mut screen, &["some", "s1"]), "\r\u{1b}[2Ksome\ns1");
        assert_eq!(new(&mut screen, &["some", "s1"]), "", "nothing new");
        assert_eq!(new(&mut screen, &["some", "s2"]), "\r\u{1b}[2Ks2");
        assert_eq!(
            new(&mut screen, &["some", "more", "s3"]),
            "\r\u{1b}[1A\u{1b}[Jsome\nmore\ns3"
        );
        screen.lines(&["some more".into()]).unwrap();
        assert!(text(&both).ends_with("\r\u{1b}[2A\u{1b}[Jsome more\n"));
    }

    #[test]
    fn nothing_extra_is_written_to_a_pipe() {
        let (mut screen, both) = screen(Caps::piped());
        screen.below(vec!["working".into()]).unwrap();
        screen.clear().unwrap();
        assert_eq!(text(&both), "");
    }
}
