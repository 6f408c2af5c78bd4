//! What is going on right now, on one line that is rewritten: only for a terminal.

use super::escape::safe_line;
use super::{human, width};
use std::time::{Duration, Instant};
use tenure_core::CallId;
use tenure_core::event::EventBody;

/// What the session is doing, as far as its events tell.
#[derive(Debug)]
pub struct Activity {
    began: Option<Instant>,
    tools: Vec<Running>,
    retry: Option<Retry>,
    model: bool,
    asking: bool,
    compacting: bool,
    held: usize,
    frame: usize,
}

#[derive(Debug)]
struct Running {
    call: CallId,
    name: String,
    since: Instant,
    progress: Option<u64>,
}

#[derive(Debug)]
struct Retry {
    due: Instant,
    attempt: u32,
    why: String,
}

const FRAMES: [&str; 8] = ["⠋", "⠙", "⠸", "⠴", "⠦", "⠧", "⠇", "⠏"];

impl Activity {
    /// Nothing going on.
    pub fn new() -> Self {
        Self {
            began: None,
            tools: Vec::new(),
            retry: None,
            model: false,
            asking: false,
            compacting: false,
            held: 0,
            frame: 0,
        }
    }

    /// Learns from an event that happened now.
    pub fn event(&mut self, body: &EventBody, now: Instant) {
        match body {
            EventBody::ExecutionStarted(_) | EventBody::RecoveryStarted(_) => {
                self.began.get_or_insert(now);
            }
            EventBody::ExecutionSucceeded(_)
            | EventBody::ExecutionFailed(_)
            | EventBody::ExecutionInterrupted(_)
            | EventBody::SessionQuarantined(_) => *self = Self::new(),
            EventBody::AttemptStarted(_) => {
                self.model = true;
                self.retry = None;
            }
            EventBody::AttemptEnded(_) => self.model = false,
            EventBody::RetryScheduled(retry) => {
                self.retry = Some(Retry {
                    due: now + Duration::from_millis(retry.delay_ms),
                    attempt: retry.attempt,
                    why: retry.error.class.as_str().replace('_', " "),
                });
            }
            EventBody::ToolCalled(call) if !call.executed => self.tools.push(Running {
                call: call.call.clone(),
                name: call.name.clone(),
                since: now,
                progress: None,
            }),
            EventBody::ToolSucceeded(done) => self.tools.retain(|t| t.call != done.call),
            EventBody::ToolFailed(done) => self.tools.retain(|t| t.call != done.call),
            EventBody::PermissionAsked(_) => self.asking = true,
            EventBody::PermissionAnswered(_) => self.asking = false,
            EventBody::CompactionStarted(_) => self.compacting = true,
            EventBody::CompactionEnded(_) | EventBody::CompactionFailed(_) => {
                self.compacting = false
            }
            EventBody::StepEnded(_) | EventBody::StepFailed(_) => {
                self.tools.clear();
                self.model = false;
                self.retry = None;
            }
            _ => {}
        }
    }

    /// Learns how much a tool has written so far.
    pub fn progress(&mut self, call: &CallId, total_bytes: u64) {
        if let Some(tool) = self.tools.iter_mut().find(|t| &t.call == call) {
            tool.progress = Some(total_bytes);
        }
    }

    /// Learns how many bytes of text wait to be drawn.
    pub fn held(&mut self, bytes: usize) {
        self.held = bytes;
    }

    /// The line to show now, if there is anything to say; each call moves the spinner.
    pub fn line(&mut self, now: Instant, columns: usize) -> Option<String> {
        let began = self.began?;
        let since = |then: Instant| human::elapsed(now.saturating_duration_since(then));
        let what = if let Some(retry) = &self.retry {
            let left = retry.due.saturating_duration_since(now);
            format!(
                "{}; attempt {} in {}",
                retry.why,
                retry.attempt,
                human::elapsed(left)
            )
        } else if self.asking {
            "waiting for your answer".to_owned()
        } else if let Some(tool) = self.tools.first() {
            let more = match self.tools.len() {
                1 => String::new(),
                n => format!(" and {} more", n - 1),
            };
            let progress = tool
                .progress
                .map_or(String::new(), |n| format!(", {}", human::bytes(n)));
            format!(
                "{}{more} running {}{progress}",
                safe_line(&tool.name),
                since(tool.since)
            )
        } else if self.compacting {
            "compacting the history".to_owned()
        } else if self.held > 0 {
            format!("writing, {}", human::bytes(self.held as u64))
        } else if self.model {
            "waiting for the model".to_owned()
        } else {
            "working".to_owned()
        };
        self.frame = (self.frame + 1) % FRAMES.len();
        let line = format!("{} {what} · {}", FRAMES[self.frame], since(began));
        Some(width::cut(&line, columns.saturating_sub(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::event::body::*;
    use tenure_core::{ErrorClass, ExecutionId, MessageId, ProviderError};

    fn started() -> EventBody {
        ExecutionStarted {
            execution: ExecutionId::from_bits(1),
        }
        .into()
    }

    #[test]
    fn the_line_says_what_runs_and_for_how_long() {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let mut activity = Activity::new();
        assert_eq!(activity.line(zero, 80), None);
        activity.event(&started(), zero);
        let call = ToolCalled {
            message: MessageId::from_bits(1),
            part: 0,
            attempt: 1,
            call: CallId::new("c1"),
            name: "bash".into(),
            input: "{}".into(),
            executed: false,
            native: None,
        };
        activity.event(&call.into(), at(1000));
        let line = activity.line(at(13_000), 80).unwrap();
        assert!(line.ends_with("bash running 12s · 13s"), "{line}");
        activity.event(
            &ExecutionSucceeded {
                execution: ExecutionId::from_bits(1),
            }
            .into(),
            at(14_000),
        );
        assert_eq!(activity.line(at(14_000), 80), None);
    }

    #[test]
    fn a_retry_counts_down() {
        let zero = Instant::now();
        let mut activity = Activity::new();
        activity.event(&started(), zero);
        let retry = RetryScheduled {
            message: MessageId::from_bits(1),
            attempt: 2,
            at_ms: 0,
            delay_ms: 5_000,
            error: ProviderError::new(ErrorClass::RateLimit, "slow down"),
        };
        activity.event(&retry.into(), zero);
        let line = activity
            .line(zero + Duration::from_millis(1_500), 80)
            .unwrap();
        assert!(line.contains("rate limit; attempt 2 in 3.5s"), "{line}");
        assert!(width::of(&activity.line(zero, 20).unwrap()) <= 19);
    }
}
