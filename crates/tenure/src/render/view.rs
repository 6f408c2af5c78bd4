//! One session as it is shown while it runs: as JSON lines, as plain text, or on a terminal.

use super::denials::Denials;
use super::escape::safe_line;
use super::json;
use super::markdown::Look;
use super::plain::Plain;
use super::spans::Style;
use super::status::Activity;
use super::terminal::Caps;
use super::transcript::{Detail, Drawing, Totals, Transcript, unseen_words};
use super::tty::Screen;
use std::io::{self, Write};
use std::time::Instant;
use tenure_core::event::body::RetryScheduled;
use tenure_core::event::{Event, EventBody};
use tenure_core::{MessageId, SessionId};
use tenure_engine::LiveItem;

/// The number of a step's second attempt.
const FIRST_RETRY: u32 = 2;

/// Shows a session. A reader that has gone away is noticed once, and then nothing more is written: the work
/// itself goes on.
pub struct View {
    session: SessionId,
    form: Form,
    screen: Screen,
    activity: Activity,
    totals: Totals,
    denials: Denials,
    caps: Caps,
    gone: bool,
    paused: bool,
    synced: bool,
}

enum Form {
    Json(Box<dyn Write + Send>),
    Plain(Plain<Box<dyn Write + Send>>),
    Terminal(Box<Transcript>),
}

impl View {
    /// A view on the process's own standard output.
    pub fn new(session: SessionId, as_json: bool, caps: Caps) -> Self {
        let out = || Box::new(io::stdout()) as Box<dyn Write + Send>;
        let form = if as_json {
            Form::Json(out())
        } else if caps.stdout {
            Form::Terminal(Box::new(Transcript::new(drawing(caps, Detail::Brief))))
        } else {
            Form::Plain(Plain::new(out()))
        };
        Self {
            session,
            form,
            screen: Screen::real(caps),
            activity: Activity::new(),
            totals: Totals::default(),
            denials: Denials::default(),
            caps,
            gone: false,
            paused: false,
            synced: false,
        }
    }

    /// Is there a status line that wants [`View::tick`]?
    pub fn ticks(&self) -> bool {
        self.screen.has_status() && !matches!(self.form, Form::Json(_))
    }

    /// Is it JSON lines?
    pub fn is_json(&self) -> bool {
        matches!(self.form, Form::Json(_))
    }

    /// Do live items make a difference here?
    pub fn wants_live(&self) -> bool {
        !matches!(self.form, Form::Plain(_))
    }

    /// Leaves a prompt out that whoever looks has just typed.
    pub fn hide_input(&mut self, input: &MessageId) {
        if let Form::Terminal(transcript) = &mut self.form {
            transcript.hide_input(input.clone());
        }
    }

    /// Names the session before anything else of it.
    pub fn session(&mut self, created: bool, input: Option<&MessageId>, model: &str) {
        let line = json::session(&self.session, created, input.map(MessageId::as_str));
        let words = format!("{} · {model}", self.session);
        let result = match &mut self.form {
            Form::Json(out) => write_line(out, &line),
            Form::Terminal(_) => {
                let line = Style::dim().paint(&words, self.caps.colour && self.caps.stderr);
                self.screen.error_line(&line)
            }
            Form::Plain(_) => Ok(()),
        };
        self.noticed(result);
    }

    /// A durable event.
    pub fn event(&mut self, event: &Event) {
        self.activity.event(&event.body, Instant::now());
        self.totals.event(&event.body);
        self.denials.event(&event.body);
        if self.gone {
            return;
        }
        let result = match &mut self.form {
            Form::Json(out) => write_line(out, &json::event(event)),
            Form::Plain(plain) => {
                if let EventBody::RetryScheduled(retry) = &event.body
                    && retry.attempt == FIRST_RETRY
                {
                    let _ = self.screen.error_line(&retry_words(retry));
                }
                if let EventBody::MediaWithheld(unseen) = &event.body {
                    let words = format!("notice: {}", safe_line(&unseen_words(unseen)));
                    let _ = self.screen.error_line(&words);
                }
                plain.event(&event.body)
            }
            Form::Terminal(transcript) => {
                let lines = transcript.event(event);
                self.activity.held(transcript.held());
                self.screen.lines(&lines)
            }
        };
        self.noticed(result);
    }

    /// A live item.
    pub fn live(&mut self, item: &LiveItem) {
        if let LiveItem::ToolOutput {
            call, total_bytes, ..
        } = item
        {
            self.activity.progress(call, *total_bytes);
        }
        if self.gone {
            return;
        }
        let result = match &mut self.form {
            Form::Json(out) => write_line(out, &json::live(&self.session, item)),
            Form::Plain(_) => Ok(()),
            Form::Terminal(transcript) => {
                let lines = transcript.live(item);
                self.activity.held(transcript.held());
                self.screen.lines(&lines)
            }
        };
        self.noticed(result);
    }

    /// Everything that was there has been shown.
    pub fn synced(&mut self, seq: Option<u64>) {
        self.synced = true;
        if let Form::Json(out) = &mut self.form {
            let result = write_line(out, &json::synced(&self.session, seq));
            self.noticed(result);
        }
    }

    /// Was everything that was there shown?
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// Keeps the status line alive.
    pub fn tick(&mut self) {
        if !self.paused && self.ticks() {
            let _ = self.screen.status(&mut self.activity, Instant::now());
        }
    }

    /// Takes the status line away while somebody types.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
        let _ = self.screen.clear();
    }

    /// Words for whoever is at the terminal; to standard error, and only if that is one.
    pub fn aside(&mut self, text: &str) {
        if self.caps.stderr {
            let line = Style::dim().paint(text, self.caps.colour);
            let _ = self.screen.error_line(&line);
        }
    }

    /// Ends the output: what is held back, then how it ended.
    pub fn finish(
        &mut self,
        outcome: &str,
        exit: u8,
        error: Option<json::ErrorWords>,
        began: Instant,
    ) {
        let totals = self.totals;
        let result = match &mut self.form {
            Form::Json(out) => write_line(
                out,
                &json::result(
                    &self.session,
                    outcome,
                    exit,
                    error,
                    &totals,
                    self.denials.count(),
                ),
            ),
            Form::Plain(plain) => plain.finish(),
            Form::Terminal(transcript) => {
                let lines = transcript.finish();
                self.screen.lines(&lines)
            }
        };
        self.noticed(result);
        let _ = self.screen.clear();
        // A program reads the count, and the events.
        if !self.is_json()
            && let Some(words) = self.denials.words(&self.session)
        {
            let _ = self.screen.error_line(&words);
        }
        if matches!(self.form, Form::Terminal(_)) {
            let time = super::human::elapsed(began.elapsed());
            self.aside(&format!("{outcome} in {time} · {}", totals.words()));
        }
    }

    fn noticed(&mut self, result: io::Result<()>) {
        if result.is_err() {
            self.gone = true;
        }
    }
}

/// The wait for further attempts is not passed in silence.
fn retry_words(retry: &RetryScheduled) -> String {
    let max = tenure_core::retry::RetryPolicy::default().max_retries;
    format!(
        "notice: {}; trying again, up to {max} times",
        safe_line(&retry.error.message)
    )
}

/// How a transcript is drawn on standard output.
pub fn drawing(caps: Caps, detail: Detail) -> Drawing {
    Drawing {
        look: Look {
            width: caps.width,
            colour: caps.colour && caps.stdout,
        },
        markdown: caps.stdout,
        detail,
    }
}

fn write_line(out: &mut dyn Write, line: &str) -> io::Result<()> {
    out.write_all(line.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}
