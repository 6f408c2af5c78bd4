//! Appends of many sessions on PostgreSQL, beside one transaction per event on the same server.

use super::owned::{joined, side_by_side};
use anyhow::{Context, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_store::Store;
use tenure_store::postgres::{Options, PostgresStore};
use tenure_testbed::postgres::{Database, shared};
use tokio_postgres::{Client, NoTls, Statement};

/// How long each is measured.
const TIME: Duration = Duration::from_millis(2_000);
/// Sessions that append side by side.
const SESSIONS: u32 = 256;
/// Connections of the comparison that has many.
const CONNECTIONS: i64 = 16;

/// What one round found, in events a second.
pub(super) struct Shared {
    /// Through the store, so many sessions at once.
    pub grouped: f64,
    /// Through the store, one session alone.
    pub one: f64,
    /// One transaction per event on one connection.
    pub single: f64,
    /// One transaction per event on 16 connections.
    pub many: f64,
}

/// None where PostgreSQL is not installed.
pub(super) fn measure() -> Result<Option<Shared>> {
    let server = match shared() {
        Ok(server) => server,
        Err(error) => {
            eprintln!("PostgreSQL is left out: {error}");
            return Ok(None);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let single = runtime.block_on(transactions(&server.database()?, 1))?;
    let grouped = runtime.block_on(grouped(&server.database()?, SESSIONS))?;
    let many = runtime.block_on(transactions(&server.database()?, CONNECTIONS))?;
    let one = runtime.block_on(self::grouped(&server.database()?, 1))?;
    Ok(Some(Shared {
        grouped,
        one,
        single,
        many,
    }))
}

async fn grouped(database: &Database, sessions: u32) -> Result<f64> {
    let url = database.url().to_owned();
    let store: Arc<dyn Store> =
        tokio::task::spawn_blocking(move || PostgresStore::open(&url, Options::default()))
            .await??;
    let node = joined(&store).await?;
    side_by_side(&store, &node, sessions, TIME).await
}

/// The least such a log can do per event: one statement that checks the fence, moves the head and inserts.
const APPEND: &str = "WITH h AS (UPDATE bare_head SET head = head + 1, write_no = write_no + 1 \
     WHERE sid = $1 AND epoch = 1 AND owner = 'me' AND write_no = $2 RETURNING head) \
     INSERT INTO bare_event(sid, seq, id, epoch, created_ms, type, version, body) \
     SELECT $1, head, $3, 1, 0, 'fragment.chunk', 1, $4 FROM h";
const TABLES: &str = "CREATE TABLE bare_head(sid BIGINT PRIMARY KEY, head BIGINT NOT NULL, \
     epoch BIGINT NOT NULL, owner TEXT NOT NULL, write_no BIGINT NOT NULL) WITH (fillfactor = 70); \
     CREATE TABLE bare_event(sid BIGINT NOT NULL, seq BIGINT NOT NULL, id TEXT COLLATE \"C\" NOT NULL, \
     epoch BIGINT, created_ms BIGINT NOT NULL, type TEXT NOT NULL, version BIGINT NOT NULL, \
     body TEXT NOT NULL, PRIMARY KEY(sid, seq)); CREATE INDEX ON bare_event(id)";
const BODY: &str = "{\"message\":\"msg_00000000000000000000000001\",\"part\":0,\"text\":\"A hundred characters of an \
     answer, as a checkpoint of a stream brings them: no more, and no less. \"}";

/// Events a second on so many connections, each with a session of its own and a transaction per event.
async fn transactions(database: &Database, connections: i64) -> Result<f64> {
    let (setup, task) = connect(database).await?;
    setup.batch_execute(TABLES).await?;
    let mut clients = Vec::new();
    for sid in 1..=connections {
        let insert = "INSERT INTO bare_head VALUES ($1, -1, 1, 'me', 0)";
        setup.execute(insert, &[&sid]).await?;
        let (client, task) = connect(database).await?;
        let append = client.prepare(APPEND).await?;
        clients.push((sid, client, append, task));
    }
    let began = Instant::now();
    let until = began + TIME;
    let work = clients
        .iter()
        .map(|(sid, client, append, _)| one_by_one(*sid, client, append, until));
    let mut total = 0;
    for done in futures::future::join_all(work).await {
        total += done?;
    }
    let rate = total as f64 / began.elapsed().as_secs_f64();
    clients.iter().for_each(|(_, _, _, task)| task.abort());
    task.abort();
    Ok(rate)
}

async fn one_by_one(sid: i64, client: &Client, append: &Statement, until: Instant) -> Result<i64> {
    let mut done = 0_i64;
    while Instant::now() < until {
        let id = format!("evt_{sid:04}{done:022}");
        let written = client.execute(append, &[&sid, &done, &id, &BODY]).await?;
        anyhow::ensure!(written == 1, "the comparison's own fence failed");
        done += 1;
    }
    Ok(done)
}

async fn connect(database: &Database) -> Result<(Client, tokio::task::JoinHandle<()>)> {
    let (client, connection) = tokio_postgres::connect(database.url(), NoTls)
        .await
        .context("the database of the comparison")?;
    let task = tokio::spawn(async move {
        // Its end is seen by whoever asks next.
        let _ = connection.await;
    });
    Ok((client, task))
}
