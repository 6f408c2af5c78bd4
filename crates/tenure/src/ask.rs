//! Permission questions on a terminal: once, always this, no. The answer becomes an event of the session.

use crate::render::escape::safe;
use serde_json::Value;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tenure_core::event::body::{PermissionAnswer, PermissionAsked};

/// A question that is on the screen. Dropped, it is taken away.
pub struct Asking {
    cancelled: Arc<AtomicBool>,
    answer: tokio::sync::oneshot::Receiver<Option<PermissionAnswer>>,
}

impl Asking {
    /// Shows the question and begins to wait for an answer typed on the controlling terminal.
    pub fn begin(asked: &PermissionAsked) -> io::Result<Self> {
        let terminal = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/tty")?;
        let cancelled = Arc::new(AtomicBool::new(false));
        let (send, answer) = tokio::sync::oneshot::channel();
        let question = question(asked);
        let proposals = asked.proposals.clone();
        let stop = cancelled.clone();
        std::thread::Builder::new()
            .name("ask".into())
            .spawn(move || {
                let answer = converse(terminal, &question, &proposals, &stop);
                // The asker may have gone: then nobody wants the answer.
                let _ = send.send(answer.ok().flatten());
            })?;
        Ok(Self { cancelled, answer })
    }

    /// The answer; none when the terminal is gone. Cancellation safe.
    pub async fn answer(&mut self) -> Option<PermissionAnswer> {
        (&mut self.answer).await.ok().flatten()
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Release);
    }
}

/// Can questions be asked here at all?
pub fn possible() -> bool {
    use std::io::IsTerminal;
    io::stderr().is_terminal()
        && std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/tty")
            .is_ok()
}

fn question(asked: &PermissionAsked) -> String {
    let mut text = String::from("\n? may this be done?\n");
    for line in safe(&asked.question).lines() {
        text.push_str(&format!("    {line}\n"));
    }
    for (key, words) in choices(asked) {
        text.push_str(&format!("  {key:<2} {words}\n"));
    }
    text.push_str("> ");
    text
}

/// What may be answered, each with what it means; an empty key only says why something is not offered.
pub fn choices(asked: &PermissionAsked) -> Vec<(String, String)> {
    let mut choices = vec![("y".to_owned(), "once".to_owned())];
    for (number, proposal) in asked.proposals.iter().enumerate() {
        let key = if number == 0 {
            "a".to_owned()
        } else {
            format!("a{}", number + 1)
        };
        choices.push((key, format!("always: {}", safe(label(proposal)))));
    }
    if asked.proposals.is_empty() {
        let why = "  (always is not offered: no single rule would cover this)";
        choices.push((String::new(), why.to_owned()));
    }
    let no = "no (words after it are told to the model)";
    choices.push(("n".to_owned(), no.to_owned()));
    choices
}

fn label(proposal: &Value) -> &str {
    proposal
        .get("label")
        .and_then(Value::as_str)
        .unwrap_or("this")
}

fn converse(
    mut terminal: std::fs::File,
    question: &str,
    proposals: &[Value],
    stop: &AtomicBool,
) -> io::Result<Option<PermissionAnswer>> {
    terminal.write_all(question.as_bytes())?;
    loop {
        let Some(line) = read_line(&mut terminal, stop)? else {
            return Ok(None);
        };
        match parse(&line, proposals) {
            Some(answer) => return Ok(Some(answer)),
            None => terminal.write_all(reminder(proposals.len()).as_bytes())?,
        }
    }
}

/// What may be answered, and nothing else.
fn reminder(proposals: usize) -> String {
    format!("  answer {}\n> ", keys(proposals))
}

/// The answers there are to a question with so many proposals, in words.
pub fn keys(proposals: usize) -> String {
    let always = match proposals {
        0 => return "y or n".to_owned(),
        1 => "a".to_owned(),
        n => format!("a, a2 … a{n}").replace("a2 … a2", "a2"),
    };
    format!("y, {always} or n")
}

/// One typed line; none when the question was taken away or the terminal ended.
fn read_line(terminal: &mut std::fs::File, stop: &AtomicBool) -> io::Result<Option<String>> {
    use std::io::Read;
    let mut line = Vec::new();
    loop {
        if stop.load(Ordering::Acquire) {
            return Ok(None);
        }
        if !readable(terminal)? {
            continue;
        }
        let mut byte = [0u8; 1];
        match terminal.read(&mut byte) {
            Ok(0) => return Ok(None),
            Ok(_) if byte[0] == b'\n' => {
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
            Ok(_) => line.push(byte[0]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

#[cfg(unix)]
fn readable(terminal: &std::fs::File) -> io::Result<bool> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;
    let mut fds = [PollFd::new(terminal.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::from(100u8)) {
        Ok(n) => Ok(n > 0),
        Err(nix::errno::Errno::EINTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

#[cfg(not(unix))]
fn readable(_terminal: &std::fs::File) -> io::Result<bool> {
    Ok(true)
}

/// What a typed line means; none when it is no answer to a question with these proposals.
pub fn parse(line: &str, proposals: &[Value]) -> Option<PermissionAnswer> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let word = word.to_lowercase();
    match word.as_str() {
        "y" | "yes" | "once" => Some(PermissionAnswer::Once),
        "n" | "no" => {
            let note = rest.trim();
            let note = (!note.is_empty()).then(|| note.to_owned());
            Some(PermissionAnswer::No {
                note,
                nobody: false,
            })
        }
        "always" => always(proposals, 1),
        word => {
            let number = word.strip_prefix('a')?;
            let number = if number.is_empty() {
                1
            } else {
                number.parse().ok()?
            };
            always(proposals, number)
        }
    }
}

fn always(proposals: &[Value], number: usize) -> Option<PermissionAnswer> {
    let rule = proposals.get(number.checked_sub(1)?)?.clone();
    Some(PermissionAnswer::Always { rule })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tenure_core::{CallId, MessageId};

    #[test]
    fn answers_are_understood_and_others_asked_again() {
        let proposals = [json!({"label": "one"}), json!({"label": "two"})];
        assert_eq!(parse(" Y ", &proposals), Some(PermissionAnswer::Once));
        assert_eq!(
            parse("a2", &proposals),
            Some(PermissionAnswer::Always {
                rule: proposals[1].clone()
            })
        );
        assert_eq!(
            parse("always", &proposals),
            Some(PermissionAnswer::Always {
                rule: proposals[0].clone()
            })
        );
        assert_eq!(
            parse("n use cargo instead", &proposals),
            Some(PermissionAnswer::No {
                note: Some("use cargo instead".into()),
                nobody: false,
            })
        );
        for other in ["", "a3", "a0", "x", "a"] {
            let none: &[Value] = if other == "a" { &[] } else { &proposals };
            assert_eq!(parse(other, none), None, "{other}");
        }
    }

    #[test]
    fn only_what_is_offered_is_named() {
        assert_eq!(reminder(0), "  answer y or n\n> ");
        assert_eq!(reminder(1), "  answer y, a or n\n> ");
        assert_eq!(reminder(2), "  answer y, a, a2 or n\n> ");
        assert_eq!(reminder(3), "  answer y, a, a2 … a3 or n\n> ");
        let asked = PermissionAsked {
            message: MessageId::from_bits(1),
            call: CallId::new("c"),
            question: "eval $x".into(),
            proposals: Vec::new(),
        };
        let text = question(&asked);
        assert!(
            text.contains("always is not offered") && !text.contains("a  always"),
            "{text}"
        );
    }

    #[test]
    fn the_whole_question_is_shown_safely() {
        let asked = PermissionAsked {
            message: MessageId::from_bits(1),
            call: CallId::new("c"),
            question: "rm -rf x\u{1b}[2J".into(),
            proposals: vec![json!({"label": "the command `rm -rf x`"})],
        };
        let text = question(&asked);
        assert!(
            text.contains("    rm -rf x␛[2J\n") && text.contains("a  always: the command"),
            "{text}"
        );
    }
}
