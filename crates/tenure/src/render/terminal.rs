//! What the terminal behind standard output and standard error can do.

use crate::environment::Environment;
use std::io::IsTerminal;

/// What may be written where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Standard output is a terminal.
    pub stdout: bool,
    /// Standard error is a terminal.
    pub stderr: bool,
    /// Colours and weights may be used.
    pub colour: bool,
    /// The cursor may be moved and lines rewritten.
    pub cursor: bool,
    /// Columns.
    pub width: usize,
    /// Lines; 0 where it is too narrow to rewrite several of them.
    pub height: usize,
}

impl Caps {
    /// Asks the system and the environment.
    pub fn detect(env: &Environment) -> Self {
        let stdout = std::io::stdout().is_terminal();
        let stderr = std::io::stderr().is_terminal();
        Self::of(env, stdout, stderr, size())
    }

    fn of(env: &Environment, stdout: bool, stderr: bool, size: Option<(usize, usize)>) -> Self {
        let (columns, lines) = size.unwrap_or((80, 24));
        let dumb = env.var("TERM") == Some("dumb");
        Self {
            stdout,
            stderr,
            colour: !dumb && env.var("NO_COLOR").is_none(),
            cursor: !dumb,
            width: columns.clamp(NARROW, 120),
            height: if columns < NARROW { 0 } else { lines },
        }
    }

    /// Text for a file or a pipe.
    #[cfg(test)]
    pub fn piped() -> Self {
        Self {
            stdout: false,
            stderr: false,
            colour: false,
            cursor: false,
            width: 80,
            height: 24,
        }
    }
}

/// Text is drawn for at least so many columns.
const NARROW: usize = 20;

/// Columns and lines.
#[cfg(unix)]
fn size() -> Option<(usize, usize)> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    for fd in [libc::STDOUT_FILENO, libc::STDERR_FILENO] {
        // SAFETY: TIOCGWINSZ writes one `winsize` to the pointer, which is valid for the call.
        #[allow(
            unsafe_code,
            reason = "the size of the terminal is only had by this request"
        )]
        let answer = unsafe { libc::ioctl(fd, libc::TIOCGWINSZ, &raw mut size) };
        if answer == 0 && size.ws_col > 0 {
            return Some((usize::from(size.ws_col), usize::from(size.ws_row)));
        }
    }
    None
}

#[cfg(not(unix))]
fn size() -> Option<(usize, usize)> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_and_dumb_terminals_are_honoured() {
        let caps =
            |vars: &[(&str, &str)]| Caps::of(&Environment::of(vars), true, true, Some((300, 50)));
        assert!(caps(&[("TERM", "xterm")]).colour);
        let narrow = Caps::of(&Environment::default(), true, true, Some((10, 50)));
        assert_eq!((narrow.width, narrow.height), (20, 0));
        let plain = caps(&[("TERM", "xterm"), ("NO_COLOR", "1")]);
        assert_eq!((plain.colour, plain.cursor), (false, true));
        let dumb = caps(&[("TERM", "dumb")]);
        assert_eq!((dumb.colour, dumb.cursor, dumb.width), (false, false, 120));
    }
}
