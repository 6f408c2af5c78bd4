//! One connection: made with its limits, statements prepared once, lost for good when it is lost.

use super::place::{CONNECT, Place};
use super::sql::{Dialect, Param};
use super::tls::Tls;
use super::trouble::{Trouble, not_connected};
use crate::error::OpenError;
use futures::StreamExt;
use futures::stream::poll_fn;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio_postgres::error::Severity;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, Notification, Row, Statement};

/// Longer than the server lets any statement of ours run: beyond it the connection counts as lost.
const ANSWER: Duration = Duration::from_secs(12);

/// What a connection is for, which says how long it may take over something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Use {
    /// Batches of appends.
    Write,
    /// Renewals and interrupts.
    Control,
    Read,
    /// Notifications, presence.
    Idle,
    /// Migrations.
    Build,
}

impl Use {
    /// How long one address may take to be reached, and all of it until the server is ready. A renewal has to get
    /// through, over a second try if need be, before its node must stop.
    pub(super) fn dialling(self) -> (Duration, Duration) {
        match self {
            Self::Control => (Duration::from_millis(600), Duration::from_millis(1_500)),
            _ => (CONNECT, CONNECT * 2),
        }
    }

    /// The limits of a session. `local`: of a transaction, where a pooler hands sessions around.
    pub(super) fn limits(self, local: bool) -> String {
        let (statement, lock) = match self {
            Self::Write => ("10s", "2s"),
            Self::Control => ("4s", "2s"),
            Self::Read => ("10s", "2s"),
            Self::Idle => ("10s", "10s"),
            Self::Build => ("10min", "2min"),
        };
        let local = if local { "LOCAL " } else { "" };
        let mut text = format!(
            "SET {local}statement_timeout = '{statement}'; SET {local}lock_timeout = '{lock}'; \
             SET {local}idle_in_transaction_session_timeout = '1s'; SET {local}jit = off; \
             SET {local}search_path = pg_catalog, pg_temp; "
        );
        if local.is_empty() {
            // What a role or a database may have been given for its own programs. Names are looked up where nobody but
            // the server puts any; a statement sees what was committed before it; what waits for news may wait.
            text.push_str(
                "SET default_transaction_isolation = 'read committed'; SET default_transaction_deferrable = off; \
                 SET idle_session_timeout = 0; ",
            );
            // So that the server, too, lets go soon of a client whose machine is gone, and of its locks.
            text.push_str(
                "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; ",
            );
        }
        if self == Self::Write || self == Self::Control {
            // Plans are made once, when tables may still be empty, and must be right when they are large: rows are found
            // by an index, never by a scan, and batches are joined by hashing. Where a row is looked up for each of
            // a batch, the statement leaves no other way.
            text.push_str(&format!(
                "SET {local}plan_cache_mode = force_generic_plan; SET {local}enable_seqscan = off; \
                 SET {local}enable_nestloop = off; SET {local}enable_mergejoin = off; \
                 SET {local}enable_bitmapscan = off; SET {local}random_page_cost = 1; "
            ));
        }
        text
    }
}

/// `remote_apply` and the like stay as they are: only what promises less than a flush is raised. It is set whatever it
/// is, so that no later change of the server's configuration lowers it. `local`: for this transaction.
macro_rules! synchronous {
    ($local:literal) => {
        concat!(
            "SELECT set_config('synchronous_commit', CASE WHEN s IN ('off', 'local') THEN 'on' ELSE s END, ",
            $local,
            ") FROM current_setting('synchronous_commit') s"
        )
    };
}

/// How connections of this store are made.
#[derive(Clone)]
pub(super) struct Maker {
    pub(super) place: Arc<Place>,
    pub(super) tls: Tls,
    pub(super) dialect: Arc<Dialect>,
    /// A transaction-mode pooler stands between: no session state, unnamed statements.
    pub(super) pooled: bool,
}

/// An open connection.
pub(super) struct Conn {
    client: Client,
    dialect: Arc<Dialect>,
    pooled: bool,
    prepared: Mutex<HashMap<Arc<str>, Statement>>,
    driver: AbortHandle,
    /// Its other half goes with the driver, however that ends.
    driven: watch::Receiver<()>,
}

impl Maker {
    /// Makes a connection; its work is done on the runtime of the caller.
    pub(super) async fn connect(&self, purpose: Use, name: &str) -> Result<Conn, OpenError> {
        self.connect_listening(purpose, name, None).await
    }

    /// As [`Maker::connect`]; what the server notifies goes to `heard`.
    pub(super) async fn connect_listening(
        &self,
        purpose: Use,
        name: &str,
        heard: Option<mpsc::UnboundedSender<Notification>>,
    ) -> Result<Conn, OpenError> {
        let mut config = self.place.config.clone();
        let (each, all) = purpose.dialling();
        config.application_name(name).connect_timeout(each);
        let unreachable = |detail: String| OpenError::Unreachable {
            path: self.place.shown.clone(),
            detail,
        };
        let connected = tokio::time::timeout(all, config.connect(self.tls.clone()))
            .await
            .map_err(|_| unreachable("no answer".to_owned()))?;
        let (client, mut connection) =
            connected.map_err(|error| not_connected(&self.place, &error))?;
        let (driving, driven) = watch::channel(());
        let driver = tokio::spawn(async move {
            let _driving = driving;
            let mut messages = poll_fn(move |cx| connection.poll_message(cx));
            while let Some(message) = messages.next().await {
                match message {
                    Ok(AsyncMessage::Notification(notification)) => {
                        if let Some(heard) = &heard {
                            let _ = heard.send(notification);
                        }
                    }
                    // For example that a commit is not yet on the synchronous standby.
                    Ok(AsyncMessage::Notice(notice))
                        if notice.parsed_severity() == Some(Severity::Warning) =>
                    {
                        tracing::warn!(warning = notice.message(), "the server warns");
                    }
                    Ok(AsyncMessage::Notice(notice)) => {
                        tracing::debug!(notice = notice.message(), "the server says");
                    }
                    Ok(_) => {}
                    Err(error) => {
                        tracing::debug!(error = %Trouble::from(error).words(), "a connection ended");
                        return;
                    }
                }
            }
        });
        let conn = Conn {
            client,
            dialect: Arc::clone(&self.dialect),
            pooled: self.pooled,
            prepared: Mutex::default(),
            driver: driver.abort_handle(),
            driven,
        };
        if !self.pooled {
            let settings = format!("{}{}", purpose.limits(false), synchronous!("false"));
            conn.batch(&settings)
                .await
                .map_err(|trouble| super::trouble::not_opened(&self.place, &trouble))?;
        }
        if purpose != Use::Build {
            super::migrate::refuse_newer(&conn, &self.place).await?;
        }
        Ok(conn)
    }
}

async fn answered<T>(
    work: impl Future<Output = Result<T, tokio_postgres::Error>>,
    patience: Duration,
) -> Result<T, Trouble> {
    match tokio::time::timeout(patience, work).await {
        Ok(done) => done.map_err(Trouble::from),
        Err(_) => Err(Trouble::lost("the server does not answer")),
    }
}

impl Conn {
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Resolves once the connection is gone, without asking anybody. Cancellation-safe.
    pub(super) async fn closed(&self) {
        let mut driven = self.driven.clone();
        // Nothing is ever sent: what changes is that the other half is gone.
        while driven.changed().await.is_ok() {}
    }

    pub(super) fn dialect(&self) -> &Dialect {
        &self.dialect
    }

    /// Drops the connection as a lost one is: at once and without a word to the server.
    pub(super) fn cut(&self) {
        self.driver.abort();
    }

    /// Several statements without values or rows.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), Trouble> {
        answered(self.client.batch_execute(sql), ANSWER).await
    }

    /// Under which name others find this connection on the server.
    pub(super) async fn rename(&self, name: &str) -> Result<(), Trouble> {
        // A setting of the session: not for one that is shared with others.
        if self.pooled {
            return Ok(());
        }
        let params = super::sql::params![TEXT: name];
        self.rows("SELECT set_config('application_name', $1, false)", params)
            .await?;
        Ok(())
    }

    /// As [`Conn::batch`], for what may take minutes.
    pub(super) async fn long_batch(&self, sql: &str) -> Result<(), Trouble> {
        let patience = Duration::from_secs(900);
        answered(self.client.batch_execute(sql), patience).await
    }

    /// The rows of a statement. Polled together, several leave in one flush, in the order of their first poll,
    /// once each was prepared.
    pub(super) async fn rows(
        &self,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Trouble> {
        let text = self.dialect.text(sql);
        self.rows_of(&text, params).await
    }

    /// As [`Conn::rows`], for text made at run time, the schema already in it.
    pub(super) async fn rows_of(
        &self,
        text: &Arc<str>,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Trouble> {
        if self.pooled {
            return answered(self.client.query_typed(text, params), ANSWER).await;
        }
        let statement = self
            .statement(text, params.iter().map(|(_, kind)| kind))
            .await?;
        let values: Vec<_> = params.iter().map(|(value, _)| *value).collect();
        answered(self.client.query(&statement, &values), ANSWER).await
    }

    /// The first row, if any.
    pub(super) async fn first(
        &self,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Option<Row>, Trouble> {
        Ok(self.rows(sql, params).await?.into_iter().next())
    }

    /// What a transaction that writes begins with.
    pub(super) fn begin(&self, purpose: Use) -> String {
        // Whatever the role's default is: what waited for a lock must see what it waited for.
        const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
        match self.pooled {
            true => format!("{BEGIN}; {}{}", purpose.limits(true), synchronous!("true")),
            false => BEGIN.to_owned(),
        }
    }

    pub(super) fn is_pooled(&self) -> bool {
        self.pooled
    }

    /// Makes sure that [`Conn::rows`] will not have to prepare it first: only then do statements polled together
    /// keep their order.
    pub(super) async fn ready(
        &self,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<(), Trouble> {
        if self.pooled {
            return Ok(());
        }
        let text = self.dialect.text(sql);
        self.statement(&text, params.iter().map(|(_, kind)| kind))
            .await?;
        Ok(())
    }

    /// As [`Conn::ready`], for text made at run time.
    pub(super) async fn ready_of(
        &self,
        text: &Arc<str>,
        params: &[Param<'_>],
    ) -> Result<(), Trouble> {
        if self.pooled {
            return Ok(());
        }
        self.statement(text, params.iter().map(|(_, kind)| kind))
            .await?;
        Ok(())
    }

    async fn statement(
        &self,
        text: &Arc<str>,
        kinds: impl Iterator<Item = &Type>,
    ) -> Result<Statement, Trouble> {
        let known = self.known(text);
        if let Some(statement) = known {
            return Ok(statement);
        }
        let kinds: Vec<Type> = kinds.cloned().collect();
        let statement = answered(self.client.prepare_typed(text, &kinds), ANSWER).await?;
        self.prepared
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(Arc::clone(text), statement.clone());
        Ok(statement)
    }

    fn known(&self, text: &Arc<str>) -> Option<Statement> {
        let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        prepared.get(text).cloned()
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        // The client's own goodbye is said by the driver once it sees that the client is gone.
        self.prepared
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}
