//! The screen: transcript lines on standard output, the status line on standard error, never in each other's way.

use super::status::Activity;
use super::terminal::Caps;
use std::io::{self, Write};
use std::time::Instant;

/// Writes lines and keeps one line that is rewritten below them.
pub struct Screen {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    caps: Caps,
    /// A status line is on the screen.
    shown: bool,
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
            shown: false,
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

    /// Rewrites the status line.
    pub fn status(&mut self, activity: &mut Activity, now: Instant) -> io::Result<()> {
        if !self.has_status() {
            return Ok(());
        }
        match activity.line(now, self.caps.width) {
            Some(line) => {
                write!(self.err, "{CLEAR}{line}")?;
                self.shown = true;
                self.err.flush()
            }
            None => self.clear(),
        }
    }

    /// Takes the status line away.
    pub fn clear(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.shown) {
            self.err.write_all(CLEAR.as_bytes())?;
            self.err.flush()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use tenure_core::ExecutionId;
    use tenure_core::event::body::ExecutionStarted;

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

    fn text(both: &Shared) -> String {
        String::from_utf8(both.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn lines_never_run_into_the_status() {
        let caps = Caps {
            stdout: true,
            stderr: true,
            cursor: true,
            ..Caps::piped()
        };
        let (mut screen, both) = screen(caps);
        let now = Instant::now();
        let mut activity = Activity::new();
        activity.event(
            &ExecutionStarted {
                execution: ExecutionId::from_bits(1),
            }
            .into(),
            now,
        );
        screen.status(&mut activity, now).unwrap();
        screen.lines(&["a line".into()]).unwrap();
        let text = text(&both);
        assert!(text.ends_with("\r\u{1b}[2Ka line\n"), "{text:?}");
    }

    #[test]
    fn nothing_extra_is_written_to_a_pipe() {
        let (mut screen, both) = screen(Caps::piped());
        let now = Instant::now();
        let mut activity = Activity::new();
        activity.event(
            &ExecutionStarted {
                execution: ExecutionId::from_bits(1),
            }
            .into(),
            now,
        );
        screen.status(&mut activity, now).unwrap();
        screen.clear().unwrap();
        assert_eq!(text(&both), "");
    }
}
