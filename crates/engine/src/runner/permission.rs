//! May a call run? Rules first; a question becomes an event and waits for anybody's answer.

use super::tools::{Asking, CallTask};
use crate::config::Approvals;
use crate::error::DrainError;
use crate::load;
use crate::writer::Batch;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use tenure_core::event::EventBody;
use tenure_core::event::body::*;
use tenure_store::ReadError;
use tenure_tools::permission::{
    Access, Place, Proposal, Question, Rules, Verdict, deny_headless, evaluate_at,
};
use tenure_tools::{ToolCx, ToolError, path};

/// What may be touched, or the settlement that says why not.
type Granted = Result<Vec<Access>, EventBody>;

/// What the rules say of a call.
pub(super) enum Judged {
    /// Decided.
    Now(Granted),
    /// Somebody has to be asked what may be touched.
    Ask(Question, Vec<Access>),
}

impl CallTask {
    /// Judges what the call would touch by the session's own rules.
    pub(super) fn permission(&self, cx: &ToolCx, input: &serde_json::Value) -> Judged {
        let tools = &self.cx.shared.tools;
        let accesses = match tools.access(self.name(), cx, input) {
            Ok(accesses) => accesses,
            Err(error) => {
                let failure = match error {
                    ToolError::InvalidInput { .. } | ToolError::UnknownTool { .. } => {
                        ToolFailure::NotExecuted
                    }
                    _ => ToolFailure::Failed,
                };
                return Judged::Now(Err(self.failure(failure, &error.to_string())));
            }
        };
        let denied = |reason: &str| {
            let text = format!("Denied: {reason}");
            Judged::Now(Err(self.failure(ToolFailure::Denied, &text)))
        };
        match self.judge(cx, &accesses) {
            Verdict::Allow => Judged::Now(Ok(accesses)),
            Verdict::Deny { reason } => denied(&reason),
            Verdict::Ask { question } => match self.cx.shared.config.approvals {
                Approvals::Headless => denied(&deny_headless(&question)),
                Approvals::Wait => Judged::Ask(question, accesses),
            },
        }
    }

    /// Redirections of a command are resolved like a tool's own paths: a link cannot lead out unseen.
    fn judge(&self, cx: &ToolCx, accesses: &[Access]) -> Verdict {
        let home = std::env::home_dir();
        let resolver = |path: &Path| -> Option<PathBuf> {
            let text = path.to_str()?;
            path::resolve(&cx.workspace, text)
                .ok()
                .map(|resolved| resolved.real)
        };
        let mut place = Place::new(&cx.workspace)
            .with_extra_roots(&cx.extra_roots)
            .with_resolver(&resolver);
        if let Some(home) = &home {
            place = place.with_home(home);
        }
        evaluate_at(&self.rules(), self.name(), accesses, &place)
    }

    /// Makes the question durable and waits for its answer.
    pub(super) async fn ask(
        &self,
        question: &Question,
        accesses: Vec<Access>,
    ) -> Result<Granted, DrainError> {
        let asking = Asking::begin(&self.counts);
        let answer = match self.known_answer() {
            Some(Some(answer)) => Some(answer),
            // Asked by the owner before: the question stands.
            Some(None) => self.answer(self.cx.cursor).await?,
            None => {
                let head = self.put(question).await?;
                self.answer(Some(head)).await?
            }
        };
        asking.go_on().await;
        match answer {
            None => Ok(Err(self.failure(
                ToolFailure::NotExecuted,
                "Not executed: interrupted while waiting for permission",
            ))),
            Some(PermissionAnswer::Once) => Ok(Ok(accesses)),
            Some(PermissionAnswer::Always { rule }) => {
                self.remember(rule).await?;
                Ok(Ok(accesses))
            }
            Some(PermissionAnswer::No { nobody: true, .. }) => {
                let text = format!("Denied: {}", deny_headless(question));
                Ok(Err(self.failure(ToolFailure::Denied, &text)))
            }
            Some(PermissionAnswer::No { note, .. }) => {
                let note = note.map(|n| format!(" They say: {n}")).unwrap_or_default();
                let text = format!("Denied: the user did not allow this call.{note}");
                Ok(Err(self.failure(ToolFailure::Denied, &text)))
            }
        }
    }

    /// What the log held of the question when the session was loaded: asked and perhaps answered; none when it was
    /// not asked.
    fn known_answer(&self) -> Option<Option<PermissionAnswer>> {
        let turn = self.writer.turn();
        let call = turn.call(&self.call).filter(|call| call.asked)?;
        Some(call.answer.clone())
    }

    /// Makes the question durable; its seq.
    async fn put(&self, question: &Question) -> Result<u64, DrainError> {
        let asked = PermissionAsked {
            message: self.message.clone(),
            call: self.call.clone(),
            question: format!("{}{}", question.text(), preview(&self.input())),
            proposals: question
                .proposals
                .iter()
                .filter_map(|p| serde_json::to_value(p).ok())
                .collect(),
        };
        let committed = self
            .writer
            .append(Batch::start(vec![asked.into()], Vec::new()))
            .await?;
        // Not the head: an append that was found by a resolution may have the answer behind it already.
        Ok(committed.events.last().map_or(0, |event| event.seq))
    }

    /// The first answer behind `after` counts, whoever gives it (R11). `None` when the call is cancelled.
    async fn answer(&self, after: Option<u64>) -> Result<Option<PermissionAnswer>, DrainError> {
        let shared = &self.cx.shared;
        let mut changes = shared.store.watch(&self.cx.session);
        // The poll for all sessions that wait: it tells when the log has grown.
        let mut news = shared.board.watch(&self.cx.session, &self.writer.fence());
        let mut cursor = after;
        loop {
            changes.borrow_and_update();
            news.borrow_and_update();
            let again = match self.find_answer(&mut cursor).await {
                Ok(None) => None,
                Ok(found) => return Ok(found),
                Err(error) if error.is_unreadable() => {
                    tracing::warn!(session = %self.cx.session, %error, "waiting for the store");
                    Some(shared.config.env.sleep(shared.config.poll))
                }
                Err(error) => return Err(error.into()),
            };
            let again = async {
                match again {
                    Some(again) => again.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Ok(None),
                changed = changes.changed() => if changed.is_err() { return Ok(None) },
                changed = news.changed() => if changed.is_err() {
                    news = shared.board.watch(&self.cx.session, &self.writer.fence());
                },
                () = again => {}
            }
        }
    }

    async fn find_answer(
        &self,
        cursor: &mut Option<u64>,
    ) -> Result<Option<PermissionAnswer>, ReadError> {
        loop {
            let page = self
                .cx
                .shared
                .store
                .read(&self.cx.session, *cursor, 256)
                .await?;
            if page.events.is_empty() {
                return Ok(None);
            }
            for event in page.events {
                *cursor = Some(event.seq);
                if let EventBody::PermissionAnswered(answered) = event.body
                    && answered.call == self.call
                    && answered.message == self.message
                {
                    return Ok(Some(answered.answer));
                }
            }
            if *cursor >= page.head {
                return Ok(None);
            }
        }
    }

    /// "Always": the rule becomes part of the session's own rules.
    async fn remember(&self, rule: serde_json::Value) -> Result<(), DrainError> {
        let Ok(proposal) = serde_json::from_value::<Proposal>(rule) else {
            tracing::warn!(session = %self.cx.session, "the remembered rule cannot be read; allowed once only");
            return Ok(());
        };
        // Somebody may have changed the rules since this step began: remember on top of those in force.
        let loaded = load::load(self.cx.shared.store.as_ref(), &self.cx.session).await?;
        let mut rules: Rules = loaded
            .state
            .settings
            .and_then(|settings| serde_json::from_value(settings.permissions).ok())
            .unwrap_or_default();
        rules.remember(&proposal);
        let permissions = serde_json::to_value(&rules).unwrap_or_default();
        *self.cx.rules.lock().unwrap_or_else(PoisonError::into_inner) = rules;
        self.writer
            .append(Batch::settle(
                vec![PermissionsChanged { permissions }.into()],
                Vec::new(),
            ))
            .await?;
        Ok(())
    }
}

/// Lines of a change shown with its question.
const PREVIEW_LINES: usize = 12;

/// What an edit or a write would put where, so that nobody answers blind. Empty for calls whose question says all.
fn preview(input: &str) -> String {
    let Ok(input) = serde_json::from_str::<serde_json::Value>(input) else {
        return String::new();
    };
    let text = |key: &str| input.get(key).and_then(serde_json::Value::as_str);
    let mut out = String::new();
    let mut show = |mark: char, text: &str| {
        let lines: Vec<&str> = text.lines().collect();
        for line in lines.iter().take(PREVIEW_LINES) {
            let cut = &line[..line.floor_char_boundary(160)];
            out.push_str(&format!("\n{mark} {cut}"));
        }
        if lines.len() > PREVIEW_LINES {
            out.push_str(&format!(
                "\n{mark} … {} more lines",
                lines.len() - PREVIEW_LINES
            ));
        }
    };
    match (text("old_string"), text("new_string"), text("content")) {
        (Some(old), Some(new), _) => {
            show('-', old);
            show('+', new);
        }
        (_, _, Some(content)) => show('+', content),
        _ => {}
    }
    out
}

#[cfg(test)]
mod tests {
    use super::preview;

    #[test]
    fn a_change_is_shown_with_its_question_and_cut() {
        let edit = r#"{"path":"a","old_string":"one\ntwo","new_string":"three"}"#;
        assert_eq!(preview(edit), "\n- one\n- two\n+ three");
        let long = serde_json::json!({ "path": "a", "content": "x\n".repeat(20) });
        let shown = preview(&long.to_string());
        assert!(shown.ends_with("\n+ … 8 more lines"), "{shown}");
        assert_eq!(preview(r#"{"command":"ls"}"#), "");
        assert_eq!(preview("not json"), "");
    }
}
