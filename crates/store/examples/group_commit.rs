//! Measures appends by group commit beside one transaction per event, on the same PostgreSQL, in interleaved rounds.
//!
//! `cargo run --release -p tenure-store --example group_commit [rounds] [url]`; without a URL a server is started for it,
//! with its flushes on.
#![allow(
    clippy::unwrap_used,
    reason = "a measuring program stops at the first surprise"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tenure_core::event::body::*;
use tenure_core::event::{EventBody, NewEvent};
use tenure_core::id::*;
use tenure_core::model::ModelRef;
use tenure_store::postgres::{Options, PostgresStore};
use tenure_store::*;
use tenure_testbed::postgres::Cluster;
use tokio_postgres::types::Type;

/// Bytes of text in each event.
const TEXT: usize = 600;
/// How long each way runs in a round.
const SPAN: Duration = Duration::from_secs(2);

fn bits() -> u128 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    static RUN: std::sync::OnceLock<u128> = std::sync::OnceLock::new();
    let run = *RUN.get_or_init(|| uuid::Uuid::new_v4().as_u128() << 40);
    run | u128::from(NEXT.fetch_add(1, Ordering::Relaxed))
}

fn event(body: impl Into<EventBody>) -> NewEvent {
    NewEvent {
        id: EventId::from_bits(bits()),
        created_ms: 1,
        body: body.into(),
    }
}

fn chunk(message: &MessageId) -> NewEvent {
    event(FragmentChunk {
        message: message.clone(),
        part: 0,
        text: "t".repeat(TEXT),
    })
}

async fn owned(store: &Arc<PostgresStore>, node: &Incarnation) -> (SessionId, Fence) {
    let session = SessionId::from_bits(bits());
    let created = event(SessionCreated {
        title: None,
        location: Location::at("/w"),
        model: ModelRef {
            provider: "p".into(),
            model: "m".into(),
        },
        limits: Limits { max_steps: 0 },
        permissions: serde_json::Value::Null,
    });
    let append = Append::unfenced(session.clone(), vec![created]);
    store.append(append).await.unwrap();
    match store.acquire(&session, node, true).await.unwrap() {
        Acquire::Acquired(tenure) => (session, tenure.fence),
        other => unreachable!("{other:?}"),
    }
}

/// One owner that appends one event after the other; how long each took.
async fn drive(
    store: Arc<PostgresStore>,
    session: SessionId,
    mut fence: Fence,
    until: Instant,
) -> Vec<Duration> {
    let message = MessageId::from_bits(bits());
    let mut took = Vec::new();
    while Instant::now() < until {
        let began = Instant::now();
        let append = Append {
            fence: Some(fence.clone()),
            lane: Lane::Text,
            ..Append::unfenced(session.clone(), vec![chunk(&message)])
        };
        fence.write_no = store.append(append).await.unwrap().write_no;
        took.push(began.elapsed());
    }
    took
}

/// Events per second by group commit, and the median and 99th percentile of one append.
async fn grouped(
    store: &Arc<PostgresStore>,
    node: &Incarnation,
    sessions: usize,
) -> (f64, Duration, Duration) {
    let mut owners = Vec::new();
    for _ in 0..sessions {
        owners.push(owned(store, node).await);
    }
    let began = Instant::now();
    let running: Vec<_> = owners
        .into_iter()
        .map(|(session, fence)| {
            tokio::spawn(drive(Arc::clone(store), session, fence, began + SPAN))
        })
        .collect();
    let mut took = Vec::new();
    for one in running {
        took.extend(one.await.unwrap());
    }
    let rate = took.len() as f64 / began.elapsed().as_secs_f64();
    took.sort();
    (rate, took[took.len() / 2], took[took.len() * 99 / 100])
}

/// The same head row and event in one fenced transaction of its own, as plainly as it can be written: one prepared
/// statement per event, no rules, no hooks.
const PLAIN: &str = "WITH won AS (UPDATE plain.session SET head = head + 1, write_no = write_no + 1 \
     WHERE sid = $1 AND epoch = 1 AND write_no = $2 RETURNING sid, head) \
     INSERT INTO plain.event(sid, seq, id, epoch, created_ms, type, version, body) \
     SELECT sid, head, $3, 1, 1, 'fragment.chunk', 1, $4 FROM won";

async fn plain(url: &str, connections: usize) -> f64 {
    let mut running = Vec::new();
    let began = Instant::now();
    for sid in 0..connections as i64 {
        let url = url.to_owned();
        running.push(tokio::spawn(async move {
            let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
                .await
                .unwrap();
            tokio::spawn(connection);
            let kinds = [Type::INT8, Type::INT8, Type::TEXT, Type::TEXT];
            let statement = client.prepare_typed(PLAIN, &kinds).await.unwrap();
            client
                .execute(
                    "INSERT INTO plain.session VALUES ($1, -1, 1, 0) \
                     ON CONFLICT (sid) DO UPDATE SET write_no = 0",
                    &[&sid],
                )
                .await
                .unwrap();
            let message = MessageId::from_bits(bits());
            let mut write_no = 0_i64;
            while began.elapsed() < SPAN {
                let event = chunk(&message);
                let (id, body) = (event.id.as_str().to_owned(), event.body.encode());
                let done = client
                    .execute(&statement, &[&sid, &write_no, &id, &body])
                    .await
                    .unwrap();
                assert_eq!(done, 1);
                write_no += 1;
            }
            write_no
        }));
    }
    let mut events = 0;
    for one in running {
        events += one.await.unwrap();
    }
    events as f64 / began.elapsed().as_secs_f64()
}

async fn plain_tables(url: &str) {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    client
        .batch_execute(
            "DROP SCHEMA IF EXISTS plain CASCADE; CREATE SCHEMA plain; CREATE TABLE plain.session( \
             sid INT8 PRIMARY KEY, head INT8 NOT NULL, epoch INT8 NOT NULL, write_no INT8 NOT NULL); \
             CREATE TABLE plain.event(sid INT8, seq INT8, id TEXT COLLATE \"C\", epoch INT8, created_ms INT8, \
             type TEXT, version INT8, body TEXT, PRIMARY KEY(sid, seq)); CREATE INDEX ON plain.event(id)",
        )
        .await
        .unwrap();
}

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let rounds: usize = args.next().map_or(3, |n| n.parse().unwrap());
    let (url, _cluster) = match args.next() {
        Some(url) => (url, None),
        None => {
            // Flushes are on, as where it counts.
            let options = tenure_testbed::postgres::Options::default();
            let cluster = Cluster::start(&options).unwrap();
            (cluster.server().url(), Some(cluster))
        }
    };
    let store = PostgresStore::open(&url, Options::default()).unwrap();
    println!("{}", store.health().await.unwrap().durability);
    plain_tables(&url).await;
    let node = Incarnation::from_bits(bits());
    let info = NodeInfo {
        incarnation: node.clone(),
        name: "bench".into(),
        address: None,
        serves: tenure_core::placement::Serves::everywhere(),
        lease: Duration::from_secs(600),
    };
    store.join(info).await.unwrap();
    println!(
        "events per second; a transaction each on 1 and 16 connections, then group commit of n sessions"
    );
    println!(
        "round   plain 1  plain 16     1 (p50, p99)           32 (p50, p99)          256 (p50, p99)     256/plain 1"
    );
    for round in 0..rounds {
        let one = plain(&url, 1).await;
        let sixteen = plain(&url, 16).await;
        let mut line = format!("{round:5} {one:9.0} {sixteen:9.0}");
        let mut last = 0.0;
        for sessions in [1, 32, 256] {
            let (rate, p50, p99) = grouped(&store, &node, sessions).await;
            line.push_str(&format!(" {rate:9.0} ({p50:6.1?}, {p99:6.1?})"));
            last = rate;
        }
        println!("{line} {:8.1}", last / one);
    }
}
