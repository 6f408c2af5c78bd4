//! `tenure resume`: go on with one session, or with every one that has something to do.

mod compacted;

use super::run::{Ended, finish};
use super::{Context, claims, notice, print};
use crate::amounts::LimitsChange;
use crate::args::{Global, ResumeArgs};
use crate::background::Worker;
use crate::config::{Config, Flags, load};
use crate::environment::working_folder;
use crate::exit::{CliError, CliResult, Kind};
use crate::follow::{End, Follow, Until, too_old, waits};
use crate::node::{self, Role};
use crate::render::view::View;
use crate::{ask, background, providers, store};
use compacted::Compacted;
use serde_json::json;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_core::placement::Serves;
use tenure_core::{Incarnation, SessionId};
use tenure_engine::{Approvals, Engine, Outcome, Owned, Scope};
use tenure_store::{ReadError, SessionRow, SessionState, Store};
use tokio::sync::broadcast;

/// A node whose process is gone is noticed by the others within this.
const FOUND_OUT: Duration = Duration::from_secs(1);

/// Resumes; gives the exit code.
pub async fn run(cx: &Context, global: &Global, args: ResumeArgs) -> CliResult<u8> {
    if args.all && !LimitsChange::from(&args.limits).is_empty() {
        return Err(
            CliError::usage("limits are those of one session: they do not go with --all")
                .hint("`tenure limits ID` changes them, session by session"),
        );
    }
    let cwd = working_folder(None)?;
    let config = load(&Flags::from(global), &cx.env, &cwd)?;
    config.warnings().iter().for_each(|text| notice(text));
    let store = store::open_to_run(&config).await?;
    match &args.session {
        Some(text) => {
            let row = store::find(store.as_ref(), text).await?;
            begins_here(&config, &row)?;
            one(cx, &config, store, &row, &args).await
        }
        None => all(&config, store, &args).await,
    }
}

/// A project's file that cannot be understood stops what works in its folder, and nothing else.
fn begins_here(config: &Config, row: &SessionRow) -> CliResult {
    match &config.project {
        Some(project) if Path::new(&row.location.directory).starts_with(&project.folder) => {
            config.sound()
        }
        _ => Ok(()),
    }
}

async fn one(
    cx: &Context,
    config: &Config,
    store: Arc<dyn Store>,
    row: &SessionRow,
    args: &ResumeArgs,
) -> CliResult<u8> {
    let began = Instant::now();
    let mut view = View::new(row.id.clone(), args.json, cx.caps);
    view.session(false, None, &row.model.to_string());
    let over = match &row.state {
        SessionState::Quarantined { reason } => {
            if limit(config, &store, row, args).await? {
                notice("its limits are changed; they hold from when it is released");
            }
            let error = tenure_core::SessionError::new("quarantined", reason.clone());
            Some(End::Outcome(Outcome::Quarantined(error)))
        }
        SessionState::Idle if !args.compact => {
            limit(config, &store, row, args).await?;
            Some(End::Idle)
        }
        _ => None,
    };
    if let Some(end) = over {
        let (word, error, words) = crate::follow::told(&end, &row.id, None);
        let code = error.as_ref().map_or(0, |e| e.kind.code());
        view.finish(word, code, words, began);
        if end == End::Idle && !args.json {
            notice(&format!(
                "there is nothing to do in this session; `tenure run --session {} \"…\"` gives it work",
                row.id
            ));
        }
        return error.map_or(Ok(0), Err);
    }
    can_run(config, store.as_ref(), row).await?;
    limit(config, &store, row, args).await?;
    let client = store::client(config, store.clone()).await;
    let compaction = match args.compact {
        true => Some(client.compact(&row.id).await?),
        false => None,
    };
    if matches!(row.state, SessionState::Parked { .. }) {
        client.unpark(&row.id).await?;
    }
    if args.detach {
        if let Worker::Nobody { reason } =
            background::leave_to(config, store.as_ref(), &row.id).await?
        {
            notice(&waits(&row.id, &reason));
        }
        view.finish("detached", 0, None, began);
        return Ok(0);
    }
    let interactive = cx.caps.stderr && !args.json && ask::possible();
    let approvals = if interactive {
        Approvals::Wait
    } else {
        Approvals::Headless
    };
    let role = Role::command("resume", Scope::Asked, approvals);
    let engine = node::start(config, store.clone(), &role).await?;
    let follow = Follow {
        client: engine.client(),
        engine: Some(&engine),
        session: row.id.clone(),
        after: Some(row.head),
        until: Until::Idle,
        interactive,
    };
    let mut end = follow.run(&mut view).await?;
    if let Some(asked) = &compaction
        && matches!(end, End::Idle | End::Outcome(Outcome::Succeeded))
    {
        match compacted::read(store.as_ref(), &row.id, &asked.input, asked.seq).await? {
            Compacted::Done | Compacted::Open => {}
            Compacted::Nothing(why) => notice(&why.message),
            Compacted::Failed(mut why) => {
                why.message = format!("the history was not compacted: {}", why.message);
                end = End::Outcome(Outcome::Failed(why));
            }
        }
    }
    let ended = Ended {
        session: &row.id,
        input: None,
        end,
        began,
    };
    finish(config, &engine, ended, &mut view).await
}

/// Changes the limits that were given. False when none was.
async fn limit(
    config: &Config,
    store: &Arc<dyn Store>,
    row: &SessionRow,
    args: &ResumeArgs,
) -> CliResult<bool> {
    let change = LimitsChange::from(&args.limits);
    if change.is_empty() {
        return Ok(false);
    }
    let client = store::client(config, store.clone()).await;
    let limits = client.limits(&row.id).await?;
    client.set_limits(&row.id, change.apply(&limits)).await?;
    Ok(true)
}

/// Could this process run the session, should nobody have it?
async fn can_run(config: &Config, store: &dyn Store, row: &SessionRow) -> CliResult {
    if !matches!(row.state, SessionState::Owned { .. }) {
        providers::check(config, &row.model)?;
        let place = row.destination();
        if !Path::new(&place.directory).is_dir() {
            return Err(CliError::usage(format!(
                "the session's folder {} is gone",
                place.directory
            ))
            .hint(format!(
                "bring it back, or move the session with `tenure run --session {} --cwd DIR \"…\"`",
                row.id
            )));
        }
    }
    if let Some(reason) = node::unplaced(config, store, &row.id).await? {
        return Err(
            CliError::failed(format!("{} cannot run here: {reason}", row.id)).hint(
                "start `tenure node` where it can run; `tenure nodes` shows what each serves",
            ),
        );
    }
    Ok(())
}

async fn all(config: &Config, store: Arc<dyn Store>, args: &ResumeArgs) -> CliResult<u8> {
    if args.detach {
        background::spawn(config, &[], false).map_err(|e| {
            CliError::failed(format!("the background node could not be started: {e}"))
        })?;
        return Ok(0);
    }
    let mut waiting: Vec<SessionRow> = store.claimable(10_000).await?;
    // Those that no node can run now are named, unless this process turns out to be one that can.
    let unheld = claims::unheld(store.as_ref()).await?;
    let kept = |row: &SessionRow| {
        matches!(
            row.state,
            SessionState::Unplaceable { .. } | SessionState::Waiting { .. }
        )
    };
    waiting.extend(unheld.into_iter().filter(kept));
    // Whoever holds a session may have died just now: that is found out in a moment, and not before.
    let held = !store.claims().await?.is_empty();
    let ids: Vec<_> = waiting.iter().map(|row| row.id.clone()).collect();
    let role = Role::command("resume", Scope::Any, Approvals::Headless);
    let engine = node::start(config, store.clone(), &role).await?;
    let mut signals = crate::follow::Signals::new()?;
    let mut results = engine.results();
    let drained = async {
        if held {
            tokio::time::sleep(FOUND_OUT).await;
        }
        drained(config, &engine, store.as_ref(), &waiting).await
    };
    let mut any = !waiting.is_empty();
    tokio::pin!(drained);
    loop {
        tokio::select! {
            biased;
            // What ended is told before the end of all is noticed.
            Ok((session, owned)) = results.recv() => {
                any |= report(args.json, session.as_str(), &owned)?;
            }
            why = engine.outdated() => return Err(too_old(why)),
            done = &mut drained => {
                done?;
                while let Ok((session, owned)) = results.try_recv() {
                    any |= report(args.json, session.as_str(), &owned)?;
                }
                break;
            }
            _ = signals.next() => {
                engine.shutdown_now().await?;
                return Err(CliError::new(Kind::Interrupted, "stopped; what was not finished is free to be taken over")
                    .hint("`tenure resume --all` goes on"));
            }
        }
    }
    if !any && !args.json {
        notice(
            "no session has anything to do that nobody does (`tenure claims` shows who holds which)",
        );
    }
    let unserved = unserved(args.json, store.as_ref(), &ids).await?;
    engine.shutdown().await?;
    let code = verdict(store.as_ref(), &ids).await?;
    Ok(if unserved {
        code.max(Kind::Failed.code())
    } else {
        code
    })
}

/// Waits until nothing runs here and nothing could, also while the store is away.
async fn drained(
    config: &Config,
    engine: &Engine,
    store: &dyn Store,
    waiting: &[SessionRow],
) -> CliResult {
    let mut changes = store.watch_all();
    let serves = node::serves(config, &Scope::Any);
    let silent = waiting.iter().filter(|row| {
        matches!(row.state, SessionState::Waiting { .. })
            && serves.check(&row.location, &row.model).is_ok()
    });
    let mut awaited = Awaited::new(engine, silent.map(|row| row.id.clone()).collect());
    let mut away = false;
    loop {
        changes.borrow_and_update();
        engine.idle().await;
        match is_left(&serves, store, &mut awaited).await {
            Ok(left) => {
                if std::mem::take(&mut away) {
                    notice("the store is back");
                }
                if !left && engine.running() == 0 {
                    return Ok(());
                }
            }
            Err(error @ ReadError::Unavailable { .. }) => {
                if !std::mem::replace(&mut away, true) {
                    notice(&format!("{error}; it is waited for (Ctrl-C leaves)"));
                }
            }
            Err(error) => return Err(error.into()),
        }
        // A hint may be lost; the second look is not.
        let _ = tokio::time::timeout(Duration::from_millis(500), changes.changed()).await;
    }
}

/// Is there anything that this process could do, now or when a lease has ended?
async fn is_left(
    serves: &Serves,
    store: &dyn Store,
    awaited: &mut Awaited<'_>,
) -> Result<bool, ReadError> {
    let waiting = store.claimable(10_000).await?;
    let more = waiting
        .iter()
        .any(|row| row.cancelling || serves.check(&row.location, &row.model).is_ok());
    Ok(awaited.is_nobodys(store).await? || more)
}

/// Sessions of an owner that may be gone: silent when this process came, or this process itself, as in an outage that
/// is longer than its lease. They can be taken only when that lease has ended, and are this process's to do until then.
struct Awaited<'a> {
    engine: &'a Engine,
    results: broadcast::Receiver<(SessionId, Owned)>,
    /// All that this process was.
    lives: HashSet<Incarnation>,
    sessions: HashSet<SessionId>,
}

impl<'a> Awaited<'a> {
    fn new(engine: &'a Engine, sessions: HashSet<SessionId>) -> Self {
        Self {
            engine,
            results: engine.results(),
            lives: HashSet::new(),
            sessions,
        }
    }

    /// Is one of them in nobody's hands?
    async fn is_nobodys(&mut self, store: &dyn Store) -> Result<bool, ReadError> {
        self.lives.insert(self.engine.incarnation());
        loop {
            match self.results.try_recv() {
                Ok((session, Owned::Lost)) => {
                    self.sessions.insert(session);
                }
                // Whoever is silent still holds it.
                Ok((_, Owned::Held { .. })) | Err(broadcast::error::TryRecvError::Lagged(_)) => {}
                Ok((session, _)) => {
                    self.sessions.remove(&session);
                }
                Err(_) => break,
            }
        }
        if self.sessions.is_empty() {
            return Ok(false);
        }
        // Nodes that cannot be read now are read later.
        let nodes = store.nodes().await.unwrap_or_default();
        let lives = |owner: &Incarnation| {
            !self.lives.contains(owner)
                && nodes
                    .iter()
                    .any(|node| &node.incarnation == owner && node.lease_ms > 0)
        };
        let mut any = false;
        for session in &self.sessions {
            let row = store.session(session).await?;
            any |= row.is_some_and(|row| match &row.state {
                SessionState::Owned { owner, .. } => !lives(owner),
                SessionState::Waiting { .. } | SessionState::Claimable { .. } => true,
                _ => false,
            });
        }
        Ok(any)
    }
}

/// Says what came of a session. False when there is nothing to say.
fn report(as_json: bool, session: &str, owned: &Owned) -> CliResult<bool> {
    let (word, why) = match owned {
        Owned::Ended => ("ended", String::new()),
        Owned::Quarantined { reason } => ("quarantined", reason.clone()),
        Owned::Lost => ("lost", "it is not this process's any more".to_owned()),
        Owned::Unplaceable { reason } => ("unplaceable", reason.clone()),
        Owned::Isolated => (
            "isolated",
            "it runs in a process of its own only".to_owned(),
        ),
        Owned::Idle | Owned::Held { .. } => return Ok(false),
    };
    if as_json {
        print(&format!(
            "{}\n",
            json!({"v": 1, "kind": "resumed", "session": session, "outcome": word, "why": why})
        ))?;
        return Ok(true);
    }
    let why = if why.is_empty() {
        String::new()
    } else {
        format!(": {why}")
    };
    print(&format!("{session} {word}{why}\n"))?;
    Ok(true)
}

/// Says which of the sessions that waited are not for this process, nor for any other. True when there was one.
async fn unserved(as_json: bool, store: &dyn Store, ids: &[SessionId]) -> CliResult<bool> {
    let mut any = false;
    for id in ids {
        let row = store.session(id).await?;
        if let Some(SessionState::Unplaceable { reason }) = row.map(|row| row.state) {
            report(as_json, id.as_str(), &Owned::Unplaceable { reason })?;
            any = true;
        }
    }
    Ok(any)
}

/// The worst of what came of the sessions that waited.
async fn verdict(store: &dyn Store, ids: &[SessionId]) -> CliResult<u8> {
    let mut code = 0;
    for id in ids {
        let Some(row) = store.session(id).await? else {
            continue;
        };
        let own = match (&row.state, row.last_outcome.as_deref()) {
            (SessionState::Quarantined { .. }, _) => Kind::Quarantined.code(),
            (_, Some("failed")) => Kind::Failed.code(),
            _ => 0,
        };
        code = code.max(own);
    }
    Ok(code)
}
