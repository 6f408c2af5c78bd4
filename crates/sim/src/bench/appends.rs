//! Durable appends of the store alone, beside bare writes of as many bytes with a flush each.

use super::median;
use super::owned::{Owned, joined, side_by_side};
use anyhow::{Context, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_core::Incarnation;
use tenure_store::*;
use tokio::sync::oneshot;

/// Appends of one session, each followed by a bare write.
const SINGLE: usize = 400;
/// How long many sessions append.
const MANY: Duration = Duration::from_millis(1_500);

/// What one round found.
pub(super) struct Appends {
    /// One session's append, the median, in microseconds.
    pub single_us: f64,
    /// A bare write and flush of the same bytes, the median, in microseconds.
    pub bare_us: f64,
    /// The same write and flush by a thread that is handed it and answers, the median, in microseconds.
    pub handed_us: f64,
    /// Bytes of the log file per append.
    pub bytes: f64,
    /// One session alone, appends a second.
    pub one: f64,
    /// 16 sessions, appends a second.
    pub sixteen: f64,
    /// 128 sessions, appends a second.
    pub many: f64,
}

pub(super) fn measure() -> Result<Appends> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let folder = tempfile::Builder::new().prefix("tn-").tempdir()?;
    runtime.block_on(async {
        let (single_us, bare_us, handed_us, bytes) = beside_bare(folder.path()).await?;
        Ok(Appends {
            single_us,
            bare_us,
            handed_us,
            bytes,
            one: rate(folder.path(), 1).await?,
            sixteen: rate(folder.path(), 16).await?,
            many: rate(folder.path(), 128).await?,
        })
    })
}

async fn opened(folder: &Path, name: &str) -> Result<(Arc<dyn Store>, Incarnation)> {
    let store: Arc<dyn Store> = SqliteStore::open(&folder.join(name), OpenOptions::default())?;
    let node = joined(&store).await?;
    Ok((store, node))
}

/// Appends and bare writes by turns: the same disk in the same moment. Medians in microseconds, and bytes.
async fn beside_bare(folder: &Path) -> Result<(f64, f64, f64, f64)> {
    let (store, node) = opened(folder, "single.db").await?;
    let mut owned = Owned::take(&store, &node, 1).await?;
    // The beginning of a log file is written into fresh blocks; what lasts is measured.
    for _ in 0..100 {
        owned.append().await?;
    }
    let bytes = bytes_per_append(&mut owned, folder).await?;
    let bare = Bare::new(&folder.join("bare"), bytes.round() as usize)?;
    let hand = Hand::new(Bare::new(&folder.join("handed"), bytes.round() as usize)?);
    let (mut singles, mut bares, mut handed) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..SINGLE {
        let began = Instant::now();
        owned.append().await?;
        singles.push(began.elapsed().as_secs_f64() * 1e6);
        bares.push(bare.write(index)?.as_secs_f64() * 1e6);
        handed.push(hand.write(index).await?.as_secs_f64() * 1e6);
    }
    Ok((median(&singles), median(&bares), median(&handed), bytes))
}

async fn bytes_per_append(owned: &mut Owned, folder: &Path) -> Result<f64> {
    const APPENDS: usize = 50;
    let wal = folder.join("single.db-wal");
    let before = frames(&wal)?;
    for _ in 0..APPENDS {
        owned.append().await?;
    }
    let after = frames(&wal)?;
    anyhow::ensure!(
        after > before,
        "the log file began again while it was measured"
    );
    Ok((after - before) as f64 * FRAME as f64 / APPENDS as f64)
}

/// Bytes of a frame: a page and its header.
const FRAME: usize = 4096 + 24;

/// Frames of the log file's present generation, told by the salts of its header.
fn frames(wal: &Path) -> Result<usize> {
    let file = std::fs::read(wal).context("the store's log file")?;
    let salts = file.get(16..24).context("the log file has a header")?;
    let valid = |frame: &&[u8]| frame.len() == FRAME && &frame[8..16] == salts;
    Ok(file[32..].chunks(FRAME).take_while(valid).count())
}

/// A file with room made ahead, as the store's log has.
struct Bare {
    file: File,
    block: Vec<u8>,
}

impl Bare {
    fn new(path: &Path, bytes: usize) -> Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        file.write_all_at(&vec![0; bytes * SINGLE], 0)?;
        file.sync_all()?;
        let block = vec![0x5a; bytes];
        Ok(Self { file, block })
    }

    fn write(&self, index: usize) -> Result<Duration> {
        let began = Instant::now();
        self.file
            .write_all_at(&self.block, (index * self.block.len()) as u64)?;
        self.file.sync_data()?;
        Ok(began.elapsed())
    }
}

/// A thread that does bare writes for others: what two hand-overs between threads add to a flush.
struct Hand(std::sync::mpsc::Sender<(usize, oneshot::Sender<Result<()>>)>);

impl Hand {
    fn new(bare: Bare) -> Self {
        let (sender, jobs) = std::sync::mpsc::channel::<(usize, oneshot::Sender<Result<()>>)>();
        std::thread::spawn(move || {
            for (index, reply) in jobs {
                let _ = reply.send(bare.write(index).map(drop));
            }
        });
        Self(sender)
    }

    async fn write(&self, index: usize) -> Result<Duration> {
        let began = Instant::now();
        let (reply, answer) = oneshot::channel();
        self.0.send((index, reply))?;
        answer.await??;
        Ok(began.elapsed())
    }
}

async fn rate(folder: &Path, sessions: u32) -> Result<f64> {
    let (store, node) = opened(folder, &format!("rate-{sessions}.db")).await?;
    side_by_side(&store, &node, sessions, MANY).await
}
