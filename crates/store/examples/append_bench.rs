//! Measures durable appends beside a bare write and `fdatasync` of as many bytes, in interleaved rounds.
//!
//! `cargo run --release -p tenure-store --example append_bench [rounds] [folder]`
#![allow(
    clippy::unwrap_used,
    reason = "a measuring program stops at the first surprise"
)]

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_core::event::NewEvent;
use tenure_core::event::body::*;
use tenure_core::id::*;
use tenure_core::model::ModelRef;
use tenure_store::*;

/// Bytes of text in each event.
const TEXT: usize = 600;
/// Bytes of one WAL frame.
const FRAME: u64 = 4096 + 24;

fn bits() -> u128 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    u128::from(NEXT.fetch_add(1, Ordering::Relaxed)) << 20
}

fn event(body: impl Into<tenure_core::EventBody>) -> NewEvent {
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

async fn owned(store: &Arc<SqliteStore>, node: &Incarnation) -> (SessionId, Fence) {
    let session = SessionId::from_bits(bits());
    let created = event(SessionCreated {
        title: None,
        location: Location::at("/w"),
        model: ModelRef {
            provider: "p".into(),
            model: "m".into(),
        },
        limits: Limits::default(),
        permissions: serde_json::Value::Null,
    });
    store
        .append(Append::unfenced(session.clone(), vec![created]))
        .await
        .unwrap();
    match store.acquire(&session, node, true).await.unwrap() {
        Acquire::Acquired(tenure) => (session, tenure.fence),
        other => unreachable!("{other:?}"),
    }
}

/// Appends one after the other until `until`; the time each took.
async fn drive(
    store: Arc<SqliteStore>,
    session: SessionId,
    mut fence: Fence,
    until: Instant,
) -> Vec<Duration> {
    let message = MessageId::from_bits(bits());
    let mut times = Vec::new();
    while Instant::now() < until {
        let started = Instant::now();
        let mut append = Append::unfenced(session.clone(), vec![chunk(&message)]);
        append.fence = Some(fence.clone());
        fence.write_no = store.append(append).await.unwrap().write_no;
        times.push(started.elapsed());
    }
    times
}

/// Frames one append of one session leaves in the WAL.
async fn frames_per_commit(store: &Arc<SqliteStore>, db: &Path, node: &Incarnation) -> usize {
    let conn = rusqlite::Connection::open(db).unwrap();
    let sum = |mode: &str| -> i64 {
        let sql = format!("PRAGMA wal_checkpoint({mode})");
        conn.query_row(&sql, [], |row| row.get(1)).unwrap()
    };
    let (session, fence) = owned(store, node).await;
    let before = sum("NOOP");
    let until = Instant::now() + Duration::from_millis(100);
    let count = drive(Arc::clone(store), session, fence, until).await.len() as i64;
    usize::try_from((sum("NOOP") - before).max(0) / count.max(1))
        .unwrap()
        .max(1)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Median of a bare write and flush of `bytes`, in a file that has its room already.
fn bare(folder: &Path, bytes: usize, seconds: f64) -> Duration {
    let path = folder.join("bare");
    let file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .unwrap();
    let room = 32 << 20;
    if file.metadata().unwrap().len() < room {
        file.write_all_at(&vec![1; room as usize], 0).unwrap();
        file.sync_all().unwrap();
    }
    let data = vec![7_u8; bytes];
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let (mut at, mut times) = (0, Vec::new());
    while Instant::now() < until {
        let started = Instant::now();
        file.write_all_at(&data, at).unwrap();
        file.sync_data().unwrap();
        times.push(started.elapsed());
        at = (at + bytes as u64) % (room - bytes as u64);
    }
    median(times)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut args = std::env::args().skip(1);
    let rounds: usize = args.next().map_or(5, |n| n.parse().unwrap());
    let parent = args
        .next()
        .unwrap_or_else(|| std::env::temp_dir().display().to_string());
    let folder = Path::new(&parent).join(format!("append-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let db = folder.join("t.db");
    let started = Instant::now();
    let store = SqliteStore::open(&db, OpenOptions::default()).unwrap();
    println!("fresh store opened in {:?}", started.elapsed());
    let node = Incarnation::from_bits(bits());
    let info = NodeInfo {
        incarnation: node.clone(),
        name: "bench".into(),
        address: None,
        serves: tenure_core::placement::Serves::everywhere(),
        lease: Duration::from_secs(600),
    };
    store.join(info).await.unwrap();
    let seconds = 1.0;
    println!("round  bare(us)  1 p50(us)  ratio    1/s   16/s  128/s   frames/commit");
    let mut columns: Vec<Vec<f64>> = vec![Vec::new(); 5];
    for round in 0..rounds {
        let frames = frames_per_commit(&store, &db, &node).await;
        let bare = bare(&folder, frames * FRAME as usize, seconds);
        let mut rates = Vec::new();
        let mut single = Duration::ZERO;
        for sessions in [1, 16, 128] {
            let mut owners = Vec::new();
            for _ in 0..sessions {
                owners.push(owned(&store, &node).await);
            }
            let until = Instant::now() + Duration::from_secs_f64(seconds);
            let running: Vec<_> = owners
                .into_iter()
                .map(|(session, fence)| {
                    tokio::spawn(drive(Arc::clone(&store), session, fence, until))
                })
                .collect();
            let mut times = Vec::new();
            for run in running {
                times.extend(run.await.unwrap());
            }
            rates.push(times.len() as f64 / seconds);
            if sessions == 1 {
                single = median(times);
            }
        }
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let ratio = micros(single) / micros(bare);
        println!(
            "{round:>5}  {:>8.0}  {:>9.0}  {ratio:>5.2}  {:>5.0}  {:>5.0}  {:>5.0}  {frames:>5}",
            micros(bare),
            micros(single),
            rates[0],
            rates[1],
            rates[2]
        );
        let row = [
            micros(bare),
            micros(single),
            ratio,
            rates[1] / rates[0],
            rates[2] / rates[0],
        ];
        for (column, value) in columns.iter_mut().zip(row) {
            column.push(value);
        }
    }
    let medians: Vec<f64> = columns
        .into_iter()
        .map(|mut column| {
            column.sort_by(f64::total_cmp);
            column[column.len() / 2]
        })
        .collect();
    println!(
        "median: bare {:.0} us, one session {:.0} us ({:.2} x), 16 sessions {:.1} x, 128 sessions {:.1} x",
        medians[0], medians[1], medians[2], medians[3], medians[4]
    );
    drop(store);
    std::fs::remove_dir_all(&folder).unwrap();
}
