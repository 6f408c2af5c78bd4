//! Opening a PostgreSQL store: its errors with what to do, and waiting for a server that is away.

use crate::config::Config;
use crate::exit::CliResult;
use std::sync::Arc;
use std::time::Duration;
use tenure_store::postgres::{Options, PostgresStore};
use tenure_store::{OpenError, Opening, Store};

/// The longest wait between two tries to reach a server.
const LONGEST: Duration = Duration::from_secs(10);

/// Opens it once.
///
/// # Errors
/// The password cannot be had.
pub(super) async fn open(
    config: &Config,
    url: &str,
    opening: Opening,
) -> CliResult<Result<Arc<dyn Store>, OpenError>> {
    let complete = config.store_password.complete(url)?;
    Ok(attempt(&complete, opening).await)
}

/// Opens it, and waits for a server that is away: a node that starts before its database is no failure.
///
/// # Errors
/// What no waiting mends.
pub(super) async fn wait(config: &Config, url: &str) -> CliResult<Arc<dyn Store>> {
    let complete = config.store_password.complete(url)?;
    let mut pause = Duration::from_millis(500);
    loop {
        match attempt(&complete, Opening::Make).await {
            Err(error @ (OpenError::Unreachable { .. } | OpenError::Crowded { .. })) => {
                crate::commands::notice(&format!(
                    "{error} Trying again in {} s",
                    pause.as_secs_f64()
                ));
            }
            other => return other.map_err(|e| super::open_error(&e, config)),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
}

async fn attempt(url: &str, opening: Opening) -> Result<Arc<dyn Store>, OpenError> {
    let url = url.to_owned();
    let options = Options {
        opening,
        ..Options::default()
    };
    let opened = tokio::task::spawn_blocking(move || PostgresStore::open(&url, options));
    match opened.await {
        Ok(opened) => opened.map(|store| store as Arc<dyn Store>),
        Err(_) => Err(OpenError::Other {
            path: "the store".to_owned(),
            detail: "opening it failed by a fault of Tenure's own".to_owned(),
        }),
    }
}
