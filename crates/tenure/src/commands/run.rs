//! `tenure run`: admit a prompt, run the session or follow whoever runs it, and say how it ended.

mod place;

use super::{Context, notice, print};
use crate::amounts::LimitsChange;
use crate::args::{Global, RunArgs};
use crate::background::Worker;
use crate::config::{Config, Flags, load, permissions};
use crate::environment::working_folder;
use crate::exit::{CliError, CliResult, Kind};
use crate::follow::{ANSWERS_WITHIN, End, Follow, Until, catch_up, left_behind, told, waits};
use crate::form::Form;
use crate::node::{self, Role};
use crate::render::view::View;
use crate::{ask, background, input, providers, store};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_core::event::body::Delivery;
use tenure_core::{MessageId, ModelRef, SessionId};
use tenure_engine::{
    Admission, Approvals, Client, Engine, EngineError, NewSession, Outcome, Prompt, Scope,
};
use tenure_store::{ReadError, SessionQuery, SessionRow, SessionState, Store};
use tenure_tools::permission::Rules;

/// After a second Ctrl-C nobody waits longer than this.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

/// Everything that was asked for, checked; nothing is changed yet.
struct Asked {
    config: Config,
    text: String,
    attached: input::Attached,
    form: Option<Form>,
    title: Option<String>,
    cwd: PathBuf,
    rules: Rules,
    interactive: bool,
}

/// Runs it; gives the exit code.
pub async fn run(cx: &Context, global: &Global, args: RunArgs) -> CliResult<u8> {
    let began = Instant::now();
    let mut asked = check(cx, global, &args)?;
    let target = target(&asked, &args).await?;
    let client = store::client(&asked.config, target.store.clone()).await;
    let (session, created) = prepare(&asked, &args, &client, &target).await?;
    let prompt = Prompt {
        id: None,
        text: asked.text.clone(),
        files: asked.attached.files.clone(),
        media: asked.attached.media.clone(),
        schema: asked.form.as_ref().map(|form| form.asked().clone()),
        effort: args.effort,
        delivery: if args.queue {
            Delivery::Queue
        } else {
            Delivery::Steer
        },
    };
    let admission = client.admit(&session, prompt).await?;
    let mut view = View::new(session.clone(), args.json, cx.caps);
    view.gave(&admission.input);
    if let Some(form) = asked.form.take() {
        view.ask_form(admission.input.clone(), form);
    }
    view.session(created, Some(&admission.input), &target.model.to_string());
    if args.detach {
        if let Some(error) = set_aside(target.existing.as_ref()) {
            view.finish("quarantined", error.kind.code(), None, began);
            return Err(error);
        }
        let store = target.store.as_ref();
        return detach(cx, &asked.config, store, &session, &mut view, began).await;
    }
    let approvals = if asked.interactive {
        Approvals::Wait
    } else {
        Approvals::Headless
    };
    let role = Role::command("run", Scope::Asked, approvals);
    let engine = node::start(&asked.config, target.store.clone(), &role)
        .await
        .map_err(|error| {
            error.hint(format!(
                "the prompt is stored: `tenure resume {session}` goes on with it"
            ))
        })?;
    let follow = Follow {
        client: engine.client(),
        engine: Some(&engine),
        session: session.clone(),
        after: after(&admission, created),
        until: Until::Input(admission.input.clone()),
        interactive: asked.interactive,
    };
    let end = follow.run(&mut view).await?;
    let ended = Ended {
        session: &session,
        input: Some(&admission.input),
        end,
        began,
    };
    finish(&asked.config, &engine, ended, &mut view).await
}

/// The events of this prompt, and of the session when it is new.
fn after(admission: &Admission, created: bool) -> Option<u64> {
    if created {
        None
    } else {
        admission.seq.checked_sub(1)
    }
}

/// Checks all that is given before anything is changed.
fn check(cx: &Context, global: &Global, args: &RunArgs) -> CliResult<Asked> {
    if args.detach && args.output_schema.is_some() {
        // Who checks the answer is who waits for it.
        return Err(CliError::usage(
            "--output-schema does not go with --detach: the answer is checked by the command that waits for it",
        )
        .hint("leave --detach out, or ask for the form in the prompt and check the answer of `tenure show`"));
    }
    let mut text = input::prompt(args.prompt.as_deref(), std::io::stdin())?;
    let mut attached = input::files(&args.files)?;
    let form = args
        .output_schema
        .as_deref()
        .map(input::schema)
        .transpose()?;
    let cwd = working_folder(args.cwd.as_deref())?;
    let flags = Flags {
        model: args.model.clone(),
        max_steps: args.limits.max_steps,
        limits: LimitsChange::from(&args.limits),
        allow_all: args.allow_all,
        ..Flags::from(global)
    };
    let config = load(&flags, &cx.env, &cwd)?;
    config.sound()?;
    config.warnings().iter().for_each(|text| notice(text));
    // Whatever is admitted is stored, and told to the model: the keys of the endpoints are neither's business.
    let secrets = providers::known_secrets(&config);
    let mut title = args.title.clone();
    let texts = std::iter::once(&mut text)
        .chain(attached.files.iter_mut().map(|file| &mut file.text))
        .chain(&mut title);
    let found = texts.filter_map(|text| providers::mask(text, &secrets).then_some(()));
    if found.count() > 0 {
        notice("the prompt held the key of a configured provider; [key] stands in its place");
    }
    let rules = permissions::rules(&config)?;
    let interactive = cx.caps.stderr && !args.json && !args.detach && ask::possible();
    Ok(Asked {
        config,
        text,
        attached,
        form,
        title,
        cwd,
        rules,
        interactive,
    })
}

struct Target {
    store: Arc<dyn Store>,
    existing: Option<SessionRow>,
    model: ModelRef,
}

/// Finds the session to go on with, or makes sure that a new one could run. Makes no session.
async fn target(asked: &Asked, args: &RunArgs) -> CliResult<Target> {
    let config = &asked.config;
    if args.session.is_none() && !args.continue_last {
        let model = config.model()?;
        providers::check(config, &model)?;
        return Ok(Target {
            store: store::open(config).await?,
            existing: None,
            model,
        });
    }
    let store = store::open_to_run(config).await?;
    let row = match &args.session {
        Some(text) => store::find(store.as_ref(), text).await?,
        None => last_used(store.as_ref(), &asked.cwd).await?,
    };
    let model = match &args.model {
        Some(_) => config.model()?,
        None => row.model.clone(),
    };
    providers::check(config, &model)?;
    let place = row.destination();
    if args.cwd.is_none() && !Path::new(&place.directory).is_dir() {
        return Err(
            CliError::usage(format!("the session's folder {} is gone", place.directory))
                .hint("bring it back, or move the session with --cwd DIR"),
        );
    }
    Ok(Target {
        store,
        existing: Some(row),
        model,
    })
}

/// The session last used in this folder, by user activity in the store.
async fn last_used(store: &dyn Store, cwd: &Path) -> CliResult<SessionRow> {
    let query = SessionQuery {
        directory: Some(cwd.to_string_lossy().into_owned()),
        limit: 1,
        ..SessionQuery::default()
    };
    store
        .sessions(query)
        .await?
        .into_iter()
        .next()
        .ok_or_else(|| {
            CliError::usage(format!("no session was used in {} yet", cwd.display()))
                .hint("leave --continue out to start one, or name a session with --session")
        })
}

/// Makes the session, or changes what the flags ask to change. True when it was made.
async fn prepare(
    asked: &Asked,
    args: &RunArgs,
    client: &Client,
    target: &Target,
) -> CliResult<(SessionId, bool)> {
    let Some(row) = &target.existing else {
        let new = NewSession {
            id: None,
            directory: asked.cwd.to_string_lossy().into_owned(),
            model: target.model.clone(),
            title: asked.title.clone(),
            limits: asked.config.limits(),
            permissions: asked.rules.clone(),
        };
        let requires = place::requires(asked, args, target.store.as_ref()).await?;
        let session = client.create_requiring(new, requires).await?;
        return Ok((session, true));
    };
    let session = row.id.clone();
    if target.model != row.model {
        client.select_model(&session, target.model.clone()).await?;
    }
    let change = LimitsChange::from(&args.limits);
    if !change.is_empty() {
        let limits = client.limits(&session).await?;
        client.set_limits(&session, change.apply(&limits)).await?;
    }
    if args.allow_all {
        client.set_permissions(&session, &asked.rules).await?;
    }
    if let Some(location) = place::moved(asked, args, target.store.as_ref(), row).await? {
        client.relocate_to(&session, location).await?;
    }
    Ok((session, false))
}

/// No node runs a session that is set aside: its prompt waits.
fn set_aside(row: Option<&SessionRow>) -> Option<CliError> {
    let row = row?;
    matches!(row.state, SessionState::Quarantined { .. }).then(|| {
        CliError::new(
            Kind::Quarantined,
            "the session is set aside: the prompt is stored, and nothing runs until it is released",
        )
        .hint(format!(
            "`tenure show {}` tells how it came to that",
            row.id
        ))
        .hint(format!(
            "`tenure release {}`, then `tenure resume {}`, lets it go on",
            row.id, row.id
        ))
    })
}

async fn detach(
    cx: &Context,
    config: &Config,
    store: &dyn Store,
    session: &SessionId,
    view: &mut View,
    began: Instant,
) -> CliResult<u8> {
    let worker = background::leave_to(config, store, session).await?;
    view.finish("detached", 0, None, began);
    let follow = format!("`tenure log --follow {session}` shows it");
    match worker {
        Worker::Nobody { reason } => notice(&waits(session, &reason)),
        // A script wants the id, and nothing else.
        _ if !cx.caps.stdout => {}
        Worker::Node => notice(&format!("runs on a node of the store; {follow}")),
        Worker::Process => notice(&format!("runs in the background; {follow}")),
    }
    if !cx.caps.stdout {
        return print_id(view, session);
    }
    Ok(0)
}

fn print_id(view: &View, session: &SessionId) -> CliResult<u8> {
    if !view.is_json() {
        print(&format!("{session}\n"))?;
    }
    Ok(0)
}

/// What was done, and how it ended.
pub struct Ended<'a> {
    /// The session.
    pub session: &'a SessionId,
    /// The prompt that was given.
    pub input: Option<&'a MessageId>,
    /// The end.
    pub end: End,
    /// When it was begun.
    pub began: Instant,
}

/// Lets go in the way the end asks for, and tells how it ended.
pub async fn finish(
    config: &Config,
    engine: &Engine,
    ended: Ended<'_>,
    view: &mut View,
) -> CliResult<u8> {
    let Ended {
        session,
        input,
        mut end,
        began,
    } = ended;
    let left = matches!(end, End::Left | End::Terminate);
    let own = engine.incarnation();
    match end {
        End::Left => {
            node::leave(engine, LEAVE_WITHIN).await;
            // The interrupt may have been settled before, or by letting go.
            let row = row_now(engine, session).await?;
            end = left_behind(row.as_ref(), &own);
        }
        End::HangUp => {
            // The drain begins first, so that nothing new starts here once the node is there.
            let (left, ()) = tokio::join!(engine.shutdown(), async {
                if let Err(error) = background::spawn_for(config, session) {
                    tracing::error!(%error, "no background node; the session stays claimable");
                }
            });
            signed_off(left)?;
        }
        End::Terminate => {
            signed_off(engine.shutdown().await)?;
            // The work may have come to its end meanwhile.
            let row = row_now(engine, session).await?;
            end = left_behind(row.as_ref(), &own);
        }
        _ => signed_off(engine.shutdown().await)?,
    }
    // What was done while letting go is part of the answer, which is to have its form however its end was learned.
    if left && matches!(end, End::Outcome(_)) {
        catch_up(engine.client().store().as_ref(), session, view).await?;
    }
    if end == End::Outcome(Outcome::Succeeded)
        && let Err(error) = view.judge()
    {
        end = End::Outcome(Outcome::Failed(error));
    }
    let (word, error, words) = told(&end, session, input);
    let code = error.as_ref().map_or(0, |e| e.kind.code());
    view.finish(word, code, words, began);
    match error {
        Some(error) => Err(error),
        None => view.written().map(|()| 0),
    }
}

/// The session's row; none while the store is away: what became of the session is not known then.
async fn row_now(engine: &Engine, session: &SessionId) -> CliResult<Option<SessionRow>> {
    let row = engine.client().store().session(session);
    match tokio::time::timeout(ANSWERS_WITHIN, row).await {
        Err(_) | Ok(Err(ReadError::Unavailable { .. })) => Ok(None),
        Ok(row) => Ok(row?),
    }
}

/// That the store was not told of this process's end changes nothing of how the work ended.
fn signed_off(left: Result<(), EngineError>) -> CliResult {
    match left {
        Err(error) if error.is_unavailable() => {
            notice(&format!(
                "the store was not told that this process has ended ({error}); others learn it from its lease"
            ));
            Ok(())
        }
        left => Ok(left?),
    }
}
