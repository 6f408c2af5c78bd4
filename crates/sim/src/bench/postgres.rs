//! Appends of many sessions on a PostgreSQL that flushes, beside one transaction per event on the same server.

use super::owned::{all_at_once, joined, taken};
use anyhow::{Context, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_store::Store;
use tenure_store::postgres::{Options, PostgresStore};
use tenure_testbed::postgres::{Cluster, Database, Options as Servers, SERVER, Server, shared};
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
    /// A transaction of several statements per event, as it is usually written, on one connection.
    pub usual: f64,
    /// A transaction of one statement per event on one connection.
    pub single: f64,
    /// A transaction of one statement per event on 16 connections.
    pub many: f64,
    /// Whether the server flushes what it has committed.
    pub flushes: bool,
    /// CPU time of one of the many sessions' appends, in microseconds: this process's, and the server's where it is on
    /// this machine.
    pub cpu_us: (f64, Option<f64>),
}

/// The server named by [`SERVER`] as it is, else one of our own with its defaults: every commit is flushed.
enum Place {
    Lent(&'static Server),
    Own(Box<Cluster>),
}

impl Place {
    fn find() -> Result<Self, String> {
        if std::env::var_os(SERVER).is_some_and(|url| !url.is_empty()) {
            return shared().map(Self::Lent).map_err(|error| error.to_string());
        }
        let own = Cluster::start(&Servers::default()).map_err(|error| error.to_string())?;
        Ok(Self::Own(Box::new(own)))
    }

    fn database(&self) -> Result<Database> {
        let server = match self {
            Self::Lent(server) => server,
            Self::Own(cluster) => cluster.server(),
        };
        Ok(server.database()?)
    }
}

/// None where PostgreSQL is not installed.
pub(super) fn measure() -> Result<Option<Shared>> {
    let server = match Place::find() {
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
    let asked =
        "SELECT current_setting('fsync') = 'on' AND current_setting('synchronous_commit') <> 'off'";
    let flushes = server.database()?.value(asked)?.as_deref() == Some("t");
    let single = runtime.block_on(transactions(&server.database()?, 1, Way::Least))?;
    let (grouped, cpu_us) = runtime.block_on(grouped(&server.database()?, SESSIONS))?;
    let usual = runtime.block_on(transactions(&server.database()?, 1, Way::Usual))?;
    let many = runtime.block_on(transactions(&server.database()?, CONNECTIONS, Way::Least))?;
    let (one, _) = runtime.block_on(self::grouped(&server.database()?, 1))?;
    Ok(Some(Shared {
        grouped,
        one,
        usual,
        single,
        many,
        flushes,
        cpu_us,
    }))
}

/// Appends a second, and what one costs in CPU time.
async fn grouped(database: &Database, sessions: u32) -> Result<(f64, (f64, Option<f64>))> {
    let url = database.url().to_owned();
    let store: Arc<dyn Store> =
        tokio::task::spawn_blocking(move || PostgresStore::open(&url, Options::default()))
            .await??;
    let node = joined(&store).await?;
    let (monitor, task) = connect(database).await?;
    let owned = taken(&store, &node, sessions).await?;
    let before = (own_cpu()?, servers_cpu(&monitor).await?);
    let rate = all_at_once(owned, TIME).await?;
    let after = (own_cpu()?, servers_cpu(&monitor).await?);
    task.abort();
    let appends = rate * TIME.as_secs_f64();
    let each = |before: Duration, after: Duration| {
        after.saturating_sub(before).as_secs_f64() * 1e6 / appends
    };
    let servers = before.1.zip(after.1);
    let cpu_us = (
        each(before.0, after.0),
        servers.map(|(before, after)| each(before, after)),
    );
    Ok((rate, cpu_us))
}

/// CPU time of this process so far.
fn own_cpu() -> Result<Duration> {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF)?;
    let of = |time: nix::sys::time::TimeVal| {
        Duration::new(
            u64::try_from(time.tv_sec()).unwrap_or(0),
            u32::try_from(time.tv_usec()).unwrap_or(0) * 1_000,
        )
    };
    Ok(of(usage.user_time()) + of(usage.system_time()))
}

/// CPU time so far of the server's processes for this database, and of those that work for all. None where they are
/// on another machine.
async fn servers_cpu(monitor: &Client) -> Result<Option<Duration>> {
    let rows = monitor
        .query(
            "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
             AND (datname = current_database() OR datname IS NULL)",
            &[],
        )
        .await?;
    let mut sum = Duration::ZERO;
    for row in rows {
        let pid: i32 = row.get(0);
        // Nanoseconds on a core, of the one thread such a process has.
        let Ok(spent) = std::fs::read_to_string(format!("/proc/{pid}/schedstat")) else {
            return Ok(None);
        };
        let spent = spent.split(' ').next().and_then(|text| text.parse().ok());
        sum += Duration::from_nanos(spent.unwrap_or(0));
    }
    Ok(Some(sum))
}

/// How an event is written by a transaction of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The least such a log can do: one statement that checks the fence, moves the head and inserts.
    Least,
    /// BEGIN, read and lock the head, check the fence, insert, move the head, COMMIT, each after the other's answer.
    Usual,
}

const APPEND: &str = "WITH h AS (UPDATE bare_head SET head = head + 1, write_no = write_no + 1 \
     WHERE sid = $1 AND epoch = 1 AND owner = 'me' AND write_no = $2 RETURNING head) \
     INSERT INTO bare_event(sid, seq, id, epoch, created_ms, type, version, body) \
     SELECT $1, head, $3, 1, 0, 'fragment.chunk', 1, $4 FROM h";
const LOOK: &str = "SELECT head, epoch, owner, write_no FROM bare_head WHERE sid = $1 FOR UPDATE";
const INSERT: &str = "INSERT INTO bare_event(sid, seq, id, epoch, created_ms, type, version, body) \
     VALUES ($1, $2, $3, 1, 0, 'fragment.chunk', 1, $4)";
const MOVE: &str = "UPDATE bare_head SET head = $2, write_no = $3 WHERE sid = $1";
const TABLES: &str = "CREATE TABLE bare_head(sid BIGINT PRIMARY KEY, head BIGINT NOT NULL, \
     epoch BIGINT NOT NULL, owner TEXT NOT NULL, write_no BIGINT NOT NULL) WITH (fillfactor = 70); \
     CREATE TABLE bare_event(sid BIGINT NOT NULL, seq BIGINT NOT NULL, id TEXT COLLATE \"C\" NOT NULL, \
     epoch BIGINT, created_ms BIGINT NOT NULL, type TEXT NOT NULL, version BIGINT NOT NULL, \
     body TEXT NOT NULL, PRIMARY KEY(sid, seq)); CREATE INDEX ON bare_event(id)";
const BODY: &str = "{\"message\":\"msg_00000000000000000000000001\",\"part\":0,\"text\":\"A hundred characters of an \
     answer, as a checkpoint of a stream brings them: no more, and no less. \"}";

/// A connection with a session of its own.
struct Line {
    sid: i64,
    client: Client,
    append: Statement,
    look: Statement,
    insert: Statement,
    go_on: Statement,
    task: tokio::task::JoinHandle<()>,
}

impl Line {
    async fn open(database: &Database, sid: i64) -> Result<Self> {
        let (client, task) = connect(database).await?;
        Ok(Self {
            sid,
            append: client.prepare(APPEND).await?,
            look: client.prepare(LOOK).await?,
            insert: client.prepare(INSERT).await?,
            go_on: client.prepare(MOVE).await?,
            client,
            task,
        })
    }

    /// Events written until then.
    async fn write(&self, way: Way, until: Instant) -> Result<i64> {
        let mut done = 0_i64;
        while Instant::now() < until {
            let id = format!("evt_{:04}{done:022}", self.sid);
            match way {
                Way::Least => self.least(done, &id).await?,
                Way::Usual => self.usual(done, &id).await?,
            }
            done += 1;
        }
        Ok(done)
    }

    async fn least(&self, write_no: i64, id: &str) -> Result<()> {
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&self.sid, &write_no, &id, &BODY];
        let written = self.client.execute(&self.append, &values).await?;
        anyhow::ensure!(written == 1, "the comparison's own fence failed");
        Ok(())
    }

    async fn usual(&self, write_no: i64, id: &str) -> Result<()> {
        let client = &self.client;
        client.batch_execute("BEGIN").await?;
        let row = client.query_one(&self.look, &[&self.sid]).await?;
        let (head, epoch): (i64, i64) = (row.get(0), row.get(1));
        let holds = epoch == 1 && row.get::<_, &str>(2) == "me" && row.get::<_, i64>(3) == write_no;
        anyhow::ensure!(holds, "the comparison's own fence failed");
        let (seq, next) = (head + 1, write_no + 1);
        client
            .execute(&self.insert, &[&self.sid, &seq, &id, &BODY])
            .await?;
        client
            .execute(&self.go_on, &[&self.sid, &seq, &next])
            .await?;
        client.batch_execute("COMMIT").await?;
        Ok(())
    }
}

/// Events a second on so many connections, each with a session of its own and a transaction per event.
async fn transactions(database: &Database, connections: i64, way: Way) -> Result<f64> {
    let (setup, task) = connect(database).await?;
    setup.batch_execute(TABLES).await?;
    let mut lines = Vec::new();
    for sid in 1..=connections {
        let insert = "INSERT INTO bare_head VALUES ($1, -1, 1, 'me', 0)";
        setup.execute(insert, &[&sid]).await?;
        lines.push(Line::open(database, sid).await?);
    }
    let began = Instant::now();
    let until = began + TIME;
    let work = lines.iter().map(|line| line.write(way, until));
    let mut total = 0;
    for done in futures::future::join_all(work).await {
        total += done?;
    }
    let rate = total as f64 / began.elapsed().as_secs_f64();
    lines.iter().for_each(|line| line.task.abort());
    task.abort();
    Ok(rate)
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
