//! On a terminal: rendered Markdown, a status line, questions, and nothing of that under NO_COLOR or in a pipe.

use crate::support::*;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The program on a terminal of its own.
pub struct OnTerminal {
    child: Child,
    keys: std::fs::File,
    screen: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl OnTerminal {
    #[allow(
        unsafe_code,
        reason = "the controlling terminal can only be set in the child itself"
    )]
    pub fn start(place: &Place, args: &[&str], vars: &[(&str, &str)]) -> Self {
        let pty = nix::pty::openpty(None, None).unwrap();
        let side = |fd: &OwnedFd| Stdio::from(fd.try_clone().unwrap());
        let mut command = place.command(args);
        command.env("TERM", "xterm").envs(vars.iter().copied());
        command
            .stdin(side(&pty.slave))
            .stdout(side(&pty.slave))
            .stderr(side(&pty.slave));
        // SAFETY: only async-signal-safe calls between fork and exec.
        unsafe {
            command.pre_exec(|| {
                nix::unistd::setsid()?;
                libc::ioctl(0, libc::TIOCSCTTY as _, 0);
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        drop(command);
        drop(pty.slave);
        let keys = std::fs::File::from(pty.master);
        let mut reader = keys.try_clone().unwrap();
        let screen = Arc::new(Mutex::new(Vec::new()));
        let seen = screen.clone();
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                seen.lock().unwrap().extend_from_slice(&buffer[..n]);
            }
        });
        Self {
            child,
            keys,
            screen,
            reader: Some(reader),
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    pub fn wait_for(&self, text: &str) {
        wait(&format!("{text:?} on the screen"), || {
            self.text().contains(text).then_some(())
        });
    }

    pub fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    pub fn end(mut self) -> (i32, String) {
        let status = wait("the end of the program", || self.child.try_wait().unwrap());
        // The terminal ends with the last process on it, after all that was written.
        self.reader.take().unwrap().join().unwrap();
        (status.code().unwrap_or(-1), self.text())
    }
}

const MARKDOWN: &str = "version = 1\nselect = \"history\"\n[[turn]]\npart = [{ text = \"# Title\\n\\nSome **bold** text.\\n\\n- item\\n\\u001b[2Jend\" }]\n";

#[test]
fn real_markdown_is_rendered_and_control_sequences_are_not_sent() {
    let place = Place::new(MARKDOWN);
    let (code, screen) = OnTerminal::start(&place, &["run", "hi"], &[]).end();
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("\u{1b}[1mbold\u{1b}[0m"), "{screen:?}");
    assert!(
        screen.contains("• item") && screen.contains("␛[2J"),
        "{screen:?}"
    );
    assert!(!screen.contains("\u{1b}[2Jend"), "{screen:?}");
    assert!(
        screen.contains("succeeded in") && screen.contains("1 step"),
        "{screen:?}"
    );
}

#[test]
fn real_text_is_drawn_word_by_word_and_rewritten_when_its_block_is_complete() {
    let place = Place::new(
        "version = 1\nselect = \"history\"\n[[turn]]\nchunk_delay_ms = 150\npart = [{ text = \"one two three four five six\\n\\nseven\" }]\n",
    );
    let (code, screen) = OnTerminal::start(&place, &["run", "hi"], &[]).end();
    assert_eq!(code, 0, "{screen}");
    // Before the paragraph is over, its beginning stands above the status line.
    let early = screen
        .find("one two\r\n")
        .or(screen.find("one two three\r\n"));
    let whole = screen.find("one two three four five six\r\n").unwrap();
    assert!(early.is_some_and(|early| early < whole), "{screen:?}");
    // What is written for good comes behind the last of them was taken away.
    let last = screen.rfind("one two three four five six\r\n").unwrap();
    assert!(screen[..last].ends_with("\u{1b}[J"), "{screen:?}");
    // Where nothing can be rewritten a paragraph is drawn once, when it is complete.
    let dumb = OnTerminal::start(&place, &["run", "hi"], &[("TERM", "dumb")]);
    let (_, screen) = dumb.end();
    assert_eq!(screen.matches("one two").count(), 1, "{screen}");
}

#[test]
fn real_no_color_and_dumb_terminals_get_no_colours() {
    let place = Place::new(MARKDOWN);
    let sgr = regex::Regex::new("\u{1b}\\[[0-9;]+m").unwrap();
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let (code, screen) = OnTerminal::start(&place, &["run", "hi"], &[(name, value)]).end();
        assert_eq!(code, 0, "{screen}");
        assert!(!sgr.is_match(&screen), "{name}: {screen:?}");
        if name == "TERM" {
            assert!(!screen.contains('\u{1b}'), "{screen:?}");
        }
        assert!(screen.contains("# Title"), "{screen:?}");
    }
}

const ASKS: &str = r#"
version = 1
select = "history"
[[turn]]
skip_if_contains = "MADE-ONE"
part = [{ call = { name = "bash", input = { command = "touch one; echo MADE-ONE" } } }]
[[turn]]
skip_if_contains = "use your head"
part = [{ call = { name = "bash", input = { command = "touch two" } } }]
[[turn]]
part = [{ text = "All asked." }]
"#;

#[test]
fn real_questions_are_asked_and_answers_are_events() {
    let place = Place::with(
        &ASKS.replace("MADE-ONE\" } }", "MADE-$(echo ONE)\" } }"),
        "",
    );
    let mut terminal = OnTerminal::start(&place, &["run", "go"], &[]);
    terminal.wait_for("touch one");
    terminal.wait_for("> ");
    terminal.types("what\ny\n");
    terminal.wait_for("    touch two");
    terminal.types("n use your head\n");
    let (code, screen) = terminal.end();
    assert_eq!(code, 0, "{screen}");
    // A substitution is in the first command, and no rule of words covers that.
    assert!(screen.contains("always is not offered"), "{screen}");
    assert!(screen.contains("answer y or n"), "{screen}");
    assert!(place.path("project/one").exists() && !place.path("project/two").exists());
    let session = place.only_session();
    let events = place.events(&session);
    let answers: Vec<_> = events
        .iter()
        .filter(|e| e["type"] == "permission.answered")
        .map(|e| e["data"]["answer"].clone())
        .collect();
    assert_eq!(answers, ["once", "no"]);
}

const ASKS_TWICE: &str = r#"
version = 1
select = "history"
[[turn]]
skip_if_contains = "123457"
part = [{ call = { name = "bash", input = { command = "expr 123456 + 1" } } }]
[[turn]]
times = 1
part = [{ call = { name = "bash", input = { command = "expr 123456 + 1" } } }]
[[turn]]
part = [{ text = "Asked once." }]
"#;

#[test]
fn real_always_is_asked_once_and_holds_for_the_session() {
    let place = Place::with(ASKS_TWICE, "");
    let mut terminal = OnTerminal::start(&place, &["run", "go"], &[]);
    terminal.wait_for("  a  always: ");
    terminal.types("a\n");
    let (code, screen) = terminal.end();
    assert_eq!(code, 0, "{screen}");
    assert_eq!(screen.matches("may this be done?").count(), 1, "{screen}");
    let types = place.types(&place.only_session());
    assert_eq!(types.iter().filter(|t| *t == "tool.succeeded").count(), 2);
    assert!(types.contains(&"permissions.changed".to_owned()));
}

const WAITS: &str = r#"
version = 1
select = "history"
[[turn]]
when = "wait"
part = [{ call = { name = "bash", input = { command = "touch started; sleep 600" } } }]
[[turn]]
part = [{ text = "Later." }]
"#;

#[test]
fn real_ctrl_c_on_the_terminal_interrupts_and_the_status_line_says_what_runs() {
    let place = Place::new(WAITS);
    let mut terminal = OnTerminal::start(&place, &["run", "wait"], &[]);
    wait_for_file(&place.path("project/started"));
    terminal.wait_for("bash running");
    terminal.types("\u{3}");
    let (code, screen) = terminal.end();
    assert_eq!(code, 130, "{screen}");
    assert!(screen.contains("interrupting"), "{screen}");
    // Said once, beside the tool's own line.
    assert!(!screen.contains('■'), "{screen}");
    assert!(!screen.contains("interrupted in"), "{screen}");
    assert_eq!(screen.matches("error: interrupted").count(), 1, "{screen}");
    let session = place.only_session();
    assert_eq!(place.row(&session)["last_outcome"], "interrupted");
}

#[test]
fn real_text_that_was_shown_and_given_up_is_marked() {
    let place = Place::new(
        "version = 1\n[[turn]]\npart = [{ text = \"DRAFT\" }, { call = { name = \"bash\", input = { command = \"true; true; true; true\" } } }]\n\
         fault = { kind = \"cut\", after_events = 6 }\n[fallback]\npart = [{ text = \"FINAL\" }]\n",
    );
    let terminal = OnTerminal::start(&place, &["run", "x"], &[]);
    let (code, screen) = terminal.end();
    assert_eq!(code, 0, "{screen}");
    let at = |words: &str| {
        screen
            .find(words)
            .unwrap_or_else(|| panic!("{words}: {screen}"))
    };
    assert!(
        at("DRAFT") < at("superseded") && at("superseded") < at("FINAL"),
        "{screen}"
    );
}
