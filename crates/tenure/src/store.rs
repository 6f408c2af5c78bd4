//! Opening the store and finding sessions in it, with errors that say what to do.

pub mod password;
mod postgres;

use crate::config::{Config, StoreUrl};
use crate::exit::{CliError, CliResult, Kind, mistyped};
use std::path::Path;
use std::sync::Arc;
use tenure_core::SessionId;
use tenure_engine::{Client, EngineError, SystemEnvironment};
use tenure_server::{ClusterSecret, HttpPeers};
use tenure_store::{
    AppendError, DeleteError, OpenError, OpenOptions, Opening, ReadError, ReplayError,
    SessionQuery, SessionRow, SqliteStore, Store,
};

/// Opens the store for what begins something in it: a missing one is made, an older one is brought up to date.
///
/// # Errors
/// What is wrong with it, and what to do.
pub async fn open(config: &Config) -> CliResult<Arc<dyn Store>> {
    opened(config, Opening::Make).await
}

/// Opens a store that must be there for what runs in it; an older one is brought up to date.
///
/// # Errors
/// It is not there, or as [`open`].
pub async fn open_to_run(config: &Config) -> CliResult<Arc<dyn Store>> {
    opened(config, Opening::Update).await
}

/// Opens a store for who looks, or acts on a session that is there: nothing of the place is changed.
///
/// # Errors
/// It is not there, or older, or as [`open`].
pub async fn open_existing(config: &Config) -> CliResult<Arc<dyn Store>> {
    opened(config, Opening::Look).await
}

async fn opened(config: &Config, opening: Opening) -> CliResult<Arc<dyn Store>> {
    look(config, opening)
        .await?
        .map_err(|e| open_error(&e, config))
}

/// As [`open_existing`], with the store's own error for whoever tells the kinds apart.
///
/// # Errors
/// The password cannot be had.
pub async fn try_existing(config: &Config) -> CliResult<Result<Arc<dyn Store>, OpenError>> {
    look(config, Opening::Look).await
}

async fn look(config: &Config, opening: Opening) -> CliResult<Result<Arc<dyn Store>, OpenError>> {
    match &config.store.value {
        StoreUrl::Sqlite(path) => Ok(sqlite(path, opening)),
        StoreUrl::Postgres(url) => postgres::open(config, url, opening).await,
    }
}

/// As [`open`], for a process that is to stay: a server that is away is waited for.
///
/// # Errors
/// What no waiting mends.
pub async fn wait_for(config: &Config) -> CliResult<Arc<dyn Store>> {
    match &config.store.value {
        StoreUrl::Sqlite(_) => open_to_run(config).await,
        StoreUrl::Postgres(url) => postgres::wait(config, url).await,
    }
}

fn sqlite(path: &Path, opening: Opening) -> Result<Arc<dyn Store>, OpenError> {
    let options = OpenOptions {
        opening,
        ..OpenOptions::default()
    };
    Ok(SqliteStore::open(path, options)?)
}

/// A client of the store: what needs no ownership.
pub async fn client(config: &Config, store: Arc<dyn Store>) -> Client {
    let env = Arc::new(SystemEnvironment);
    match peers(config, store.as_ref()).await {
        Some(peers) => Client::with_peers(store, env, Arc::new(peers)),
        None => Client::new(store, env),
    }
}

/// The way to nodes of other machines, where the store has them. Without it everything works by the poll.
pub async fn peers(config: &Config, store: &dyn Store) -> Option<HttpPeers> {
    match secret(store).await {
        Ok(secret) => peers_by(config, secret?),
        Err(error) => {
            tracing::warn!(%error, "the cluster's secret cannot be read; other nodes are not asked directly");
            None
        }
    }
}

/// As [`peers`], with the secret in hand.
pub fn peers_by(config: &Config, secret: ClusterSecret) -> Option<HttpPeers> {
    match HttpPeers::new(secret, &config.node.host_label.value) {
        Ok(peers) => Some(peers),
        Err(error) => {
            tracing::warn!(%error, "other nodes are not asked directly");
            None
        }
    }
}

/// The secret that the store's nodes share; none where it has no nodes of other machines, or it cannot be used.
///
/// # Errors
/// The store cannot be read.
pub async fn secret(store: &dyn Store) -> Result<Option<ClusterSecret>, ReadError> {
    let Some(bytes) = store.cluster_secret().await? else {
        return Ok(None);
    };
    let bytes = <[u8; 32]>::try_from(bytes);
    if bytes.is_err() {
        tracing::warn!(
            "the cluster's secret in the store is not 32 bytes long; other nodes are not asked directly"
        );
    }
    Ok(bytes.ok().map(ClusterSecret::new))
}

/// An error of opening, with what to do next.
pub fn open_error(error: &OpenError, config: &Config) -> CliError {
    let told = match error {
        OpenError::BadUrl { .. } | OpenError::Older { .. } => CliError::usage(error.to_string()),
        OpenError::Missing { others, grant, .. } => missing(error, others, grant.as_deref()),
        _ => CliError::failed(error.to_string()),
    };
    let told = match error {
        OpenError::NotAdmitted { .. } => {
            let told = match &config.store.value {
                StoreUrl::Postgres(url) => told.hint(config.store_password.source(url)),
                StoreUrl::Sqlite(_) => told,
            };
            told.hint(
                "looked at are the URL, store_password_file, PGPASSWORD, then PGPASSFILE or ~/.pgpass, and the first \
                 that is there counts",
            )
        }
        _ => told,
    };
    told.hint(format!("the store comes from {}", config.store.origin))
}

/// There is no store, and whoever only looks makes none.
fn missing(error: &OpenError, others: &[String], grant: Option<&str>) -> CliError {
    let told = CliError::usage(format!("there are no sessions: {error}"));
    let told = match others {
        [] => told,
        some => {
            let named: Vec<String> = some
                .iter()
                .map(|name| format!("`?schema={name}`"))
                .collect();
            told.hint(format!(
                "this database has one in {}: is that the one you mean?",
                named.join(", ")
            ))
        }
    };
    match grant {
        Some(grant) => told.hint(format!(
            "this user may not make one; the owner of the database can give the right: {grant}"
        )),
        None => told.hint("`tenure run \"…\"` starts a session, and makes the store"),
    }
}

/// The session that `text` names: its id, or the beginning of exactly one.
pub async fn find(store: &dyn Store, text: &str) -> CliResult<SessionRow> {
    if let Ok(id) = SessionId::parse(text)
        && let Some(row) = store.session(&id).await?
    {
        return Ok(row);
    }
    let query = SessionQuery {
        limit: 10_000,
        ..SessionQuery::default()
    };
    let rows = store.sessions(query).await?;
    let given = if text.starts_with(SessionId::PREFIX) {
        text.to_owned()
    } else {
        format!("{}{text}", SessionId::PREFIX)
    };
    let mut near: Vec<&SessionRow> = rows
        .iter()
        .filter(|row| row.id.as_str().starts_with(&given))
        .collect();
    match near.len() {
        1 if given.len() > SessionId::PREFIX.len() => Ok(near.remove(0).clone()),
        n if n > 1 => Err(
            CliError::usage(format!("`{text}` is the beginning of {n} session ids"))
                .hint("give more of it; `tenure sessions` lists them"),
        ),
        _ => {
            let told = CliError::usage(format!(
                "there is no session `{}`",
                crate::render::escape::safe_line(text)
            ));
            let told = match mistyped(text, rows.iter().map(|row| row.id.as_str())) {
                Some(id) => told.hint(format!("did you mean `{id}`?")),
                None => told,
            };
            Err(told.hint("`tenure sessions` lists them"))
        }
    }
}

impl From<ReadError> for CliError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::UnknownSession(_) | ReadError::CursorBeyondHead { .. } => {
                Self::usage(error.to_string())
            }
            ReadError::Damaged { .. } => Self::failed(error.to_string())
                .hint("`tenure doctor` checks the store; nothing was changed"),
            ReadError::Unavailable { .. } | ReadError::Outdated { .. } => {
                Self::failed(error.to_string()).hint("`tenure doctor` says more")
            }
        }
    }
}

impl From<AppendError> for CliError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::UnknownSession(_)
            | AppendError::SessionExists(_)
            | AppendError::Rejected { .. } => Self::usage(error.to_string()),
            AppendError::Unavailable { .. } | AppendError::Unknown { .. } => {
                Self::failed(error.to_string()).hint("`tenure doctor` says more")
            }
            _ => Self::failed(error.to_string()),
        }
    }
}

impl From<DeleteError> for CliError {
    fn from(error: DeleteError) -> Self {
        match error {
            DeleteError::UnknownSession(_) => {
                Self::usage(error.to_string()).hint("`tenure sessions` lists them")
            }
            DeleteError::Owned { session, .. } => {
                Self::failed(format!("session {session} is running, and was not deleted"))
                    .hint(format!("`tenure show {session}` tells where"))
            }
            DeleteError::Unavailable { .. } => Self::failed(error.to_string()),
        }
    }
}

impl From<ReplayError> for CliError {
    fn from(error: ReplayError) -> Self {
        let kind = match error {
            ReplayError::Unavailable { .. } => Kind::Failed,
            _ => Kind::Usage,
        };
        Self::new(kind, error.to_string()).hint("nothing was imported")
    }
}

impl From<EngineError> for CliError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Append(error) => error.into(),
            EngineError::Read(error) => error.into(),
            EngineError::Config(error) => Self::usage(error.to_string()),
            error @ (EngineError::InputExists { .. }
            | EngineError::Media(_)
            | EngineError::Schema { .. }) => Self::usage(error.to_string()),
            other => Self::failed(other.to_string()).hint("`tenure doctor` says more"),
        }
    }
}
