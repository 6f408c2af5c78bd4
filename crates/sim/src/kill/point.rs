//! One point: processes that are killed as planned, one that finishes, and everything that is checked then.

use super::child::{self, Ended, Told};
use super::phase::Phase;
use super::plan::{Plan, Way};
use super::verify;
use crate::place::Place;
use anyhow::{Context, Result, bail};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{MessageId, SessionId};
use tenure_engine::{Client, Prompt, SystemEnvironment};
use tenure_scripted::Handle;
use tenure_store::{OpenOptions, SessionQuery, SessionState, SqliteStore, Store};
use tokio::task::JoinHandle;

/// The prompt of the task.
const PROMPT: &str = "Do all twelve steps.";
/// After how many processes a point gives up.
const MOST_PROCESSES: usize = 12;

/// What points of one worker share.
pub(super) struct Ground<'a> {
    pub tenure: &'a Path,
    pub model: &'a Handle,
}

/// What one kill hit and what came of it.
#[derive(Debug, Clone)]
pub struct Hit {
    /// What it was in the middle of.
    pub phase: Phase,
    /// Another owner wrote behind it.
    pub taken_over: bool,
    /// Calls the takeover settled as not executed.
    pub not_executed: usize,
    /// Calls the takeover settled as of unknown outcome.
    pub unknown: usize,
}

/// A point and what came of it.
#[derive(Debug, Clone)]
pub struct Point {
    /// What was planned.
    pub plan: Plan,
    /// The kills that hit a living process.
    pub hits: Vec<Hit>,
    /// Takeovers that were charged (R8).
    pub charged: usize,
    /// It was set aside, released, and finished then.
    pub quarantined: bool,
    /// Acknowledged prompts.
    pub prompts: usize,
    /// Requests the model received.
    pub requests: usize,
    /// Spawns recorded in the log.
    pub tools: usize,
    /// Steps of the log.
    pub steps: usize,
    /// Durable events of the log.
    pub events: u64,
    /// Every broken promise. The folder is kept then, and named.
    pub violations: Vec<String>,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan {
            number,
            protocol,
            kills,
            prompt_after,
            ..
        } = &self.plan;
        write!(f, "point {number} ({protocol}")?;
        for kill in kills {
            write!(
                f,
                ", kill after {} events + {:?}",
                kill.after_events, kill.delay
            )?;
        }
        if let Some(after) = prompt_after {
            write!(f, ", prompt after {after}")?;
        }
        write!(
            f,
            "): {} kills hit, {} events",
            self.hits.len(),
            self.events
        )?;
        if self.quarantined {
            write!(f, ", quarantined and released")?;
        }
        self.violations
            .iter()
            .try_for_each(|violation| write!(f, "\n  VIOLATION {violation}"))
    }
}

/// Runs one point to its verdict. Whatever goes wrong on the way is a violation: nothing may.
pub(super) async fn run(ground: &Ground<'_>, plan: Plan) -> Point {
    let mut point = Point {
        plan,
        hits: Vec::new(),
        charged: 0,
        quarantined: false,
        prompts: 0,
        requests: 0,
        tools: 0,
        steps: 0,
        events: 0,
        violations: Vec::new(),
    };
    match super::place(ground, point.plan.protocol) {
        Ok(mut place) => {
            if let Err(error) = lives(ground, &place, &mut point).await {
                point.violations.push(format!("{error:#}"));
            }
            if !point.violations.is_empty() {
                let kept = place.keep().display().to_string();
                point.violations.push(format!("(kept: {kept})"));
            }
        }
        Err(error) => point
            .violations
            .push(format!("no place to run in: {error:#}")),
    }
    point
}

/// The lives of the session: one process after the other.
struct Lives<'a> {
    ground: &'a Ground<'a>,
    place: &'a Place,
    session: Option<SessionId>,
    /// Inputs that somebody was told are accepted.
    acknowledged: Vec<MessageId>,
    /// Heads of the log when a process had been killed.
    cuts: Vec<Option<u64>>,
    /// It was released from quarantine, which ended its execution: only another prompt goes on with the task.
    released: bool,
    store: Option<Arc<SqliteStore>>,
}

async fn lives(ground: &Ground<'_>, place: &Place, point: &mut Point) -> Result<()> {
    let first_request = ground.model.requests().len();
    let first_overlap = ground.model.overlaps().len();
    let mut lives = Lives {
        ground,
        place,
        session: None,
        acknowledged: Vec::new(),
        cuts: Vec::new(),
        released: false,
        store: None,
    };
    let plan = point.plan.clone();
    for process in 0..MOST_PROCESSES {
        let told = lives.process(&plan, process).await?;
        if told.ended == Ended::Killed {
            let head = lives.head().await?;
            lives.cuts.push(head);
            continue;
        }
        match told.code()? {
            0 => {
                // A planned kill that came too late hit nobody.
                return verify::all(
                    &lives.into_evidence(first_request, first_overlap).await?,
                    point,
                )
                .await;
            }
            3 => {
                point.quarantined = true;
                let session = lives
                    .session
                    .clone()
                    .context("a session that is set aside has a name")?;
                place.output(&["release", session.as_str()]).await?;
                lives.released = true;
            }
            code => bail!(
                "process {process} ended with {code}: {}",
                told.stderr.trim()
            ),
        }
    }
    bail!("{MOST_PROCESSES} processes did not finish the task")
}

impl<'a> Lives<'a> {
    async fn process(&mut self, plan: &Plan, number: usize) -> Result<Told> {
        let planned = plan
            .ways
            .get(number.saturating_sub(1))
            .copied()
            .unwrap_or(Way::Resume);
        let way = if std::mem::take(&mut self.released) {
            Way::Run
        } else {
            planned
        };
        if number > 0 {
            self.look().await?;
        }
        let id = self
            .session
            .as_ref()
            .map(|session| session.as_str().to_owned());
        let has_input = !self.acknowledged.is_empty() || self.waits().await?;
        let arguments: Vec<&str> = match (&id, way) {
            (None, _) => vec!["run", "--json", "--allow-all", PROMPT],
            (Some(id), _) if !has_input => {
                vec!["run", "--json", "--allow-all", "--session", id, PROMPT]
            }
            (Some(id), Way::Run) if number > 0 => vec!["run", "--json", "--session", id, "Go on."],
            (Some(id), _) => vec!["resume", "--json", id],
        };
        let mut prompting: Option<JoinHandle<Result<MessageId>>> = None;
        let path = self.place.store();
        let prompt_after = plan.prompt_after.filter(|_| number == 0);
        let mut on_event = |events: u64, session: &SessionId| {
            if prompt_after == Some(events) {
                prompting = Some(tokio::spawn(admit(path.clone(), session.clone())));
            }
        };
        let command = self.place.command(&arguments);
        let told = child::run(
            command,
            plan.kills.get(number),
            self.place.mark(),
            &mut on_event,
        )
        .await?;
        if let Some(prompting) = prompting {
            self.acknowledged.push(prompting.await??);
        }
        if let Some(session) = &told.session {
            self.session = Some(session.clone());
        }
        if let Some(input) = told.input.as_deref() {
            self.acknowledged.push(MessageId::parse(input)?);
        }
        Ok(told)
    }

    async fn store(&mut self) -> Result<Option<Arc<SqliteStore>>> {
        let path = self.place.store();
        if self.store.is_none() && path.exists() {
            let opened = tokio::task::spawn_blocking(move || {
                SqliteStore::open(&path, OpenOptions::default())
            });
            self.store = Some(opened.await??);
        }
        Ok(self.store.clone())
    }

    /// Finds the session of a process that was killed before it could name it.
    async fn look(&mut self) -> Result<()> {
        if self.session.is_none()
            && let Some(store) = self.store().await?
        {
            let rows = store.sessions(SessionQuery::default()).await?;
            self.session = rows.into_iter().next().map(|row| row.id);
        }
        Ok(())
    }

    /// Does the session have an input that nobody was told of?
    async fn waits(&mut self) -> Result<bool> {
        let (Some(session), Some(store)) = (self.session.clone(), self.store().await?) else {
            return Ok(false);
        };
        let page = store.read(&session, None, 1_000).await?;
        let admits = |e: &tenure_core::Event| e.body.type_name() == "input.admitted";
        Ok(page.events.iter().any(admits))
    }

    async fn head(&mut self) -> Result<Option<u64>> {
        self.look().await?;
        let (Some(session), Some(store)) = (self.session.clone(), self.store().await?) else {
            return Ok(None);
        };
        Ok(store.session(&session).await?.map(|row| row.head))
    }

    /// What is left when the last process has ended.
    async fn into_evidence(
        mut self,
        first_request: usize,
        first_overlap: usize,
    ) -> Result<verify::Evidence> {
        let session = self
            .session
            .clone()
            .context("a process that finished names its session")?;
        let store = self.store().await?.context("a session has a store")?;
        let row = store
            .session(&session)
            .await?
            .context("the session is in the store")?;
        if !matches!(row.state, SessionState::Idle) {
            // A background node may still be letting go.
            wait_idle(store.as_ref(), &session).await?;
        }
        let overlaps = self.ground.model.overlaps().split_off(first_overlap);
        Ok(verify::Evidence {
            events: self.place.exported(&session).await?,
            requests: self.ground.model.requests().split_off(first_request),
            overlaps,
            claims: store.claims().await?.len(),
            effects: store.effects(&session).await?.len(),
            workspace: self.place.workspace(),
            mark: self.place.mark().to_owned(),
            acknowledged: self.acknowledged,
            cuts: self.cuts,
        })
    }
}

/// Another client's prompt, admitted while the session runs.
async fn admit(store: std::path::PathBuf, session: SessionId) -> Result<MessageId> {
    let store =
        tokio::task::spawn_blocking(move || SqliteStore::open(&store, OpenOptions::default()))
            .await??;
    let client = Client::new(store, Arc::new(SystemEnvironment));
    let admission = client
        .admit(&session, Prompt::steer("And be careful."))
        .await?;
    Ok(admission.input)
}

async fn wait_idle(store: &SqliteStore, session: &SessionId) -> Result<()> {
    let mut changes = store.watch(session);
    let idle = async {
        loop {
            changes.borrow_and_update();
            let row = store
                .session(session)
                .await?
                .context("the session is in the store")?;
            if row.state == SessionState::Idle {
                return Ok::<(), anyhow::Error>(());
            }
            // The value is a hint; the look after it is the truth.
            let _ = tokio::time::timeout(Duration::from_millis(200), changes.changed()).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), idle)
        .await
        .context("the session did not come to rest")?
}
