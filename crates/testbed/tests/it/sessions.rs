//! A client's connection for tests: runs statements, and says what went wrong in the server's words.

use std::time::Duration;

use tokio::runtime::Runtime;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

/// A connection and the runtime it lives in.
pub struct Session {
    runtime: Runtime,
    client: Client,
}

impl Session {
    pub fn open(url: &str) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let mut config: Config = url.parse().unwrap();
        config.connect_timeout(Duration::from_secs(30));
        let client = runtime.block_on(async {
            let (client, connection) =
                config.connect(NoTls).await.map_err(|error| words(&error))?;
            tokio::spawn(connection);
            Ok::<_, String>(client)
        })?;
        Ok(Session { runtime, client })
    }

    /// The first column of the last row.
    pub fn run(&self, statements: &str) -> Result<Option<String>, String> {
        let rows = self
            .runtime
            .block_on(self.client.simple_query(statements))
            .map_err(|error| words(&error))?;
        Ok(rows.iter().rev().find_map(|row| match row {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        }))
    }

    /// Runs one statement as a prepared one.
    pub fn run_prepared(&self, statement: &str) -> Result<u64, String> {
        self.runtime.block_on(async {
            let prepared = self
                .client
                .prepare(statement)
                .await
                .map_err(|error| words(&error))?;
            self.client
                .execute(&prepared, &[])
                .await
                .map_err(|error| words(&error))
        })
    }

    /// Does the answer fail to come while everything else does?
    pub fn is_silent(&self, statements: &str, limit: Duration) -> bool {
        self.runtime.block_on(async {
            tokio::time::timeout(limit, self.client.simple_query(statements))
                .await
                .is_err()
        })
    }
}

fn words(error: &tokio_postgres::Error) -> String {
    let source = std::error::Error::source(error);
    format!(
        "{error}: {}",
        source.map(ToString::to_string).unwrap_or_default()
    )
}
