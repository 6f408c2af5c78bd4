//! The store that the nodes share, and how the harness and each node reach it.

use anyhow::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tenure_store::postgres::{self, PostgresStore};
use tenure_store::{OpenOptions, SqliteStore, Store};
use tenure_testbed::pgbouncer::Pooler;
use tenure_testbed::postgres::Database;
use tenure_testbed::proxy::Proxy;

/// A store for several nodes.
#[derive(Debug)]
pub enum Ground {
    /// One file, all nodes on this machine.
    Sqlite,
    /// One database; each node reaches it through a fault proxy of its own, and the proxies through a pooler if there
    /// is one.
    Postgres {
        /// The database.
        database: Box<Database>,
        /// What stands before its server.
        pooler: Option<Pooler>,
    },
}

impl Ground {
    /// A database of a server that tests share, or of one that the test itself mistreats.
    pub fn postgres(database: Database) -> Self {
        Ground::Postgres {
            database: Box::new(database),
            pooler: None,
        }
    }

    /// The same behind a pooler. The harness itself does without it.
    pub fn pooled(database: Database, pooler: Pooler) -> Self {
        Ground::Postgres {
            database: Box::new(database),
            pooler: Some(pooler),
        }
    }

    /// The file of a store in `folder`.
    fn file(folder: &Path) -> PathBuf {
        folder.join("tenure.db")
    }

    /// Opens it for the harness itself, making what is not there.
    pub(super) async fn open(&self, folder: &Path) -> Result<Arc<dyn Store>> {
        match self {
            Ground::Sqlite => {
                let store = SqliteStore::open(&Self::file(folder), OpenOptions::default())?;
                Ok(store)
            }
            Ground::Postgres { database, .. } => {
                let url = database.url().to_owned();
                let opening = move || PostgresStore::open(&url, postgres::Options::default());
                Ok(tokio::task::spawn_blocking(opening).await??)
            }
        }
    }

    /// A proxy for one node; none where there is no connection to go wrong. For figures, `TENURE_FLEET_DIRECT` leaves
    /// it out: each of its round trips costs as much as the server's own work.
    pub(super) fn proxy(&self) -> Result<Option<Proxy>> {
        match self {
            Ground::Sqlite => Ok(None),
            Ground::Postgres { pooler: None, .. }
                if std::env::var_os("TENURE_FLEET_DIRECT").is_some() =>
            {
                Ok(None)
            }
            Ground::Postgres { database, pooler } => {
                let target = match pooler {
                    Some(pooler) => pooler.address(),
                    None => database.server().address()?,
                };
                Ok(Some(Proxy::before_postgres(target)?))
            }
        }
    }

    /// Can the store be written within `limit`? Of one file, that nobody sits on its write lock; a database orders
    /// its writers by itself.
    pub(super) fn takes_writes(&self, folder: &Path, limit: Duration) -> Result<bool> {
        let Ground::Sqlite = self else {
            return Ok(true);
        };
        let mut probe = rusqlite::Connection::open(Self::file(folder))?;
        probe.busy_timeout(limit)?;
        let taken = probe.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate);
        match taken {
            Ok(transaction) => transaction.rollback().map(|()| true).map_err(Into::into),
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The store's URL for a node behind `proxy`.
    pub(super) fn url(&self, folder: &Path, proxy: Option<&Proxy>) -> String {
        match self {
            Ground::Sqlite => format!("sqlite:{}", Self::file(folder).display()),
            Ground::Postgres { database, .. } => match proxy {
                Some(proxy) => proxy.url(database.url()),
                None => database.url().to_owned(),
            },
        }
    }
}
