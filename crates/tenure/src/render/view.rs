//! One session as it is shown while it runs: as JSON lines, as its events, as the model's text, or on a terminal.

use super::denials::Denials;
use super::escape::safe_line;
use super::json;
use super::log_line;
use super::markdown::Look;
use super::plain::Plain;
use super::spans::Style;
use super::status::Activity;
use super::terminal::Caps;
use super::transcript::{Detail, Drawing, Totals, Transcript, unseen_words};
use super::tty::Screen;
use crate::answer::Answer;
use crate::exit::{CliError, CliResult};
use crate::form::Form as AnswerForm;
use serde_json::Value;
use std::io::{self, Write};
use std::time::{Duration, Instant};
use tenure_core::event::body::RetryScheduled;
use tenure_core::event::{Event, EventBody};
use tenure_core::{MessageId, SessionError, SessionId};
use tenure_engine::LiveItem;

/// Text that streams is drawn at most this often.
const REDRAW: Duration = Duration::from_millis(40);
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
    form_asked: Option<FormAsked>,
    /// Text from before the delivery of this prompt is nothing for a pipe.
    begins_with: Option<MessageId>,
    caps: Caps,
    gone: bool,
    /// Why the output took no more, when somebody wants it.
    unwritten: Option<io::Error>,
    paused: bool,
    synced: bool,
    /// The last event that was shown, or after which showing begins.
    seen: Option<u64>,
    /// When the lines that are rewritten were drawn last.
    drawn: Option<Instant>,
}

/// A form that the answer to one prompt must have.
struct FormAsked {
    answer: Answer,
    form: AnswerForm,
    /// The answer that has it: as it was written, and its value.
    right: Option<(String, Value)>,
}

enum Form {
    Json(Box<dyn Write + Send>),
    Events(Box<dyn Write + Send>),
    Plain(Plain<Box<dyn Write + Send>>),
    Terminal(Box<Transcript>),
}

impl View {
    /// A view on the process's own standard output.
    pub fn new(session: SessionId, as_json: bool, caps: Caps) -> Self {
        let form = if as_json {
            Form::Json(Box::new(io::stdout()))
        } else if caps.stdout {
            Form::Terminal(Box::new(Transcript::new(drawing(caps, Detail::Brief))))
        } else {
            Form::Plain(Plain::new(Box::new(io::stdout())))
        };
        Self::of(session, form, caps)
    }

    /// As [`Self::new`], for whoever looks on: a pipe gets the events, one a line, instead of the model's text.
    pub fn of_log(session: SessionId, as_json: bool, caps: Caps) -> Self {
        if as_json || caps.stdout {
            return Self::new(session, as_json, caps);
        }
        Self::of(session, Form::Events(Box::new(io::stdout())), caps)
    }

    fn of(session: SessionId, form: Form, caps: Caps) -> Self {
        Self {
            session,
            form,
            screen: Screen::real(caps),
            activity: Activity::new(),
            totals: Totals::default(),
            denials: Denials::default(),
            form_asked: None,
            begins_with: None,
            caps,
            gone: false,
            unwritten: None,
            paused: false,
            synced: false,
            seen: None,
            drawn: None,
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
        !matches!(self.form, Form::Plain(_) | Form::Events(_))
    }

    /// The answer to this prompt must have a form. A pipe gets that answer alone, once it was found to have it.
    pub fn ask_form(&mut self, input: MessageId, form: AnswerForm) {
        self.form_asked = Some(FormAsked {
            answer: Answer::new(input),
            form,
            right: None,
        });
    }

    /// Judges the answer, where a form was asked for.
    ///
    /// # Errors
    /// It does not have the form.
    pub fn judge(&mut self) -> Result<(), SessionError> {
        if let Some(asked) = &mut self.form_asked {
            let (text, value) = asked.answer.checked(&asked.form)?;
            asked.right = Some((text.to_owned(), value));
        }
        Ok(())
    }

    /// Whoever looks has asked for an interrupt: how it ended is said once, at the end.
    pub fn interrupting(&mut self) {
        if let Form::Terminal(transcript) = &mut self.form {
            transcript.leave_out_interrupt();
        }
        self.aside("interrupting… (Ctrl-C again leaves the session as it is)");
    }

    /// Whoever looks has just given this prompt: a terminal need not show it, and a pipe is for the words behind it.
    pub fn gave(&mut self, input: &MessageId) {
        self.begins_with = Some(input.clone());
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
            Form::Plain(_) | Form::Events(_) => Ok(()),
        };
        self.noticed(result);
    }

    /// Nothing up to this event is shown.
    pub fn begins_after(&mut self, seq: Option<u64>) {
        self.seen = seq;
    }

    /// The last event that was shown, or after which showing begins.
    pub fn seen(&self) -> Option<u64> {
        self.seen
    }

    /// A durable event.
    pub fn event(&mut self, event: &Event) {
        self.seen = Some(event.seq);
        self.activity.event(&event.body, Instant::now());
        self.totals.event(&event.body);
        self.denials.event(&event.body);
        if let Some(asked) = &mut self.form_asked {
            asked.answer.event(&event.body);
        }
        if let EventBody::InputPromoted(promoted) = &event.body {
            self.begins_with.take_if(|input| *input == promoted.input);
        }
        if self.gone {
            return;
        }
        let result = match &mut self.form {
            Form::Json(out) => write_line(out, &json::event(event)),
            Form::Events(out) => write_line(out, &log_line::line(event, self.caps)),
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
                match (&self.form_asked, &self.begins_with) {
                    (None, None) => plain.event(&event.body),
                    _ => Ok(()),
                }
            }
            Form::Terminal(transcript) => {
                let lines = transcript.event(event);
                self.activity.held(transcript.held());
                if !lines.is_empty() {
                    // The lines below were taken away with it.
                    self.drawn = None;
                }
                self.screen.lines(&lines)
            }
        };
        self.noticed(result);
        self.soon();
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
            Form::Plain(_) | Form::Events(_) => Ok(()),
            Form::Terminal(transcript) => {
                let lines = transcript.live(item);
                self.activity.held(transcript.held());
                if !lines.is_empty() {
                    self.drawn = None;
                }
                self.screen.lines(&lines)
            }
        };
        self.noticed(result);
        self.soon();
    }

    /// Everything that was there has been shown.
    pub fn synced(&mut self, seq: Option<u64>) {
        self.synced = true;
        if let Form::Json(out) = &mut self.form {
            let result = write_line(out, &json::synced(&self.session, seq));
            self.noticed(result);
        }
    }

    /// Is there nobody any more who reads the output, or can it take no more?
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// Was everything that was there shown?
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// Keeps the status line alive.
    pub fn tick(&mut self) {
        if self.paused || !self.ticks() {
            return;
        }
        let now = Instant::now();
        self.drawn = Some(now);
        let room = self.screen.room();
        let mut lines = match &self.form {
            // The last column is left free: a full line would move the cursor in some terminals.
            Form::Terminal(transcript) if room > 0 => transcript.preview(self.caps.width - 1, room),
            _ => Vec::new(),
        };
        lines.extend(self.activity.line(now, self.caps.width));
        let _ = self.screen.below(lines);
    }

    /// Text is drawn as it comes, but no more often than eyes can follow.
    fn soon(&mut self) {
        let fresh = self.drawn.is_some_and(|drawn| drawn.elapsed() < REDRAW);
        if !fresh && self.screen.room() > 0 {
            self.tick();
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

    /// As [`Self::aside`], wherever standard error goes.
    pub fn notice(&mut self, text: &str) {
        // Nobody can be told that standard error is gone.
        let _ = self.screen.error_line(&format!("notice: {text}"));
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
        let right = self.form_asked.as_ref().and_then(|a| a.right.as_ref());
        let seen = json::Seen {
            totals: &totals,
            denied: self.denials.count(),
            answer: right.map(|(_, value)| value),
        };
        let result = match &mut self.form {
            Form::Json(out) => write_line(
                out,
                &json::result(&self.session, outcome, exit, error, &seen),
            ),
            Form::Events(_) => Ok(()),
            Form::Plain(plain) => right
                .map_or(Ok(()), |(text, _)| plain.write(text))
                .and_then(|()| plain.finish()),
            Form::Terminal(transcript) => {
                let lines = transcript.finish();
                self.screen.lines(&lines)
            }
        };
        self.noticed(result);
        let _ = self.screen.clear();
        // Who reads the events has the denials with them.
        if matches!(self.form, Form::Plain(_) | Form::Terminal(_))
            && let Some(words) = self.denials.words(&self.session)
        {
            let _ = self.screen.error_line(&words);
        }
        if matches!(self.form, Form::Terminal(_)) {
            let time = super::human::elapsed(began.elapsed());
            // What went wrong is said by the error behind it.
            let words = if exit == 0 {
                format!("{outcome} in {time}")
            } else {
                format!("after {time}")
            };
            self.aside(&format!("{words} · {}", totals.words()));
        }
    }

    fn noticed(&mut self, result: io::Result<()>) {
        let Err(error) = result else {
            return;
        };
        self.gone = true;
        // A reader that has had enough is no fault; a full disk is.
        if error.kind() != io::ErrorKind::BrokenPipe && self.unwritten.is_none() {
            self.unwritten = Some(error);
        }
    }

    /// Was all of it written, or was there nobody to read it?
    ///
    /// # Errors
    /// The output could not take it: what is missing stands in the log.
    pub fn written(&mut self) -> CliResult {
        match self.unwritten.take() {
            None => Ok(()),
            Some(error) => Err(CliError::failed(format!(
                "the output could not be written: {error}"
            ))
            .hint(format!(
                "nothing of it is lost: `tenure show {}` has it",
                self.session
            ))),
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
