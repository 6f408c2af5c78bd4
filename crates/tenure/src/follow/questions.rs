//! The permission questions of a session that are open, asked one after the other.

use crate::ask::Asking;
use crate::waiting::settled;
use std::collections::VecDeque;
use tenure_core::event::EventBody;
use tenure_core::event::body::{PermissionAnswer, PermissionAsked};
use tenure_core::{CallId, MessageId};

/// An answer typed here.
pub struct Answered {
    /// The step's message.
    pub message: MessageId,
    /// The call.
    pub call: CallId,
    /// The answer; none when the terminal could not be read.
    pub answer: Option<PermissionAnswer>,
}

/// Open questions. While a replay goes on nothing is asked: what was answered since would be asked again.
pub struct Questions {
    interactive: bool,
    synced: bool,
    open: VecDeque<PermissionAsked>,
    asking: Option<(PermissionAsked, Asking)>,
}

impl Questions {
    /// None open.
    pub fn new(interactive: bool) -> Self {
        Self {
            interactive,
            synced: false,
            open: VecDeque::new(),
            asking: None,
        }
    }

    /// The replay is over.
    pub fn synced(&mut self) {
        self.synced = true;
    }

    /// Is a question on the screen?
    pub fn asking(&self) -> bool {
        self.asking.is_some()
    }

    /// Learns from an event. True when the question on the screen was taken away by it.
    pub fn event(&mut self, body: &EventBody) -> bool {
        if let EventBody::PermissionAsked(asked) = body
            && self.interactive
        {
            self.open.push_back(asked.clone());
        }
        let Some(over) = settled(body) else {
            return false;
        };
        let same = |q: &PermissionAsked| (&q.message, &q.call) == over;
        self.open.retain(|q| !same(q));
        let shown = self.asking.as_ref().is_some_and(|(q, _)| same(q));
        if shown {
            self.asking = None;
        }
        shown
    }

    /// Asks the next open question, if none is on the screen. True when one is now.
    pub fn ask(&mut self) -> bool {
        if !self.synced || self.asking.is_some() {
            return false;
        }
        let Some(next) = self.open.pop_front() else {
            return false;
        };
        match Asking::begin(&next) {
            Ok(asking) => {
                self.asking = Some((next, asking));
                true
            }
            Err(error) => {
                tracing::warn!(%error, "the terminal cannot be opened; the question waits for another client");
                false
            }
        }
    }

    /// Takes all questions away: nobody wants the answers any more.
    pub fn take_away(&mut self) {
        self.open.clear();
        self.asking = None;
    }

    /// The answer to the question on the screen. Cancellation safe.
    pub async fn answered(&mut self) -> Answered {
        let Some((_, asking)) = &mut self.asking else {
            return std::future::pending().await;
        };
        let answer = asking.answer().await;
        let (asked, _) = self.asking.take().expect("invariant: it is on the screen");
        Answered {
            message: asked.message,
            call: asked.call,
            answer,
        }
    }
}
