//! Durable appends of the store alone, beside bare writes of as many bytes with a flush each.

use super::median;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_core::event::body::*;
use tenure_core::event::{EventBody, NewEvent};
use tenure_core::*;
use tenure_store::*;

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
        let (single_us, bare_us, bytes) = beside_bare(folder.path()).await?;
        Ok(Appends {
            single_us,
            bare_us,
            bytes,
            one: rate(folder.path(), 1).await?,
            sixteen: rate(folder.path(), 16).await?,
            many: rate(folder.path(), 128).await?,
        })
    })
}

/// A session that is owned, with its pen.
struct Owned {
    store: Arc<SqliteStore>,
    session: SessionId,
    fence: Fence,
    next: u128,
}

impl Owned {
    async fn take(store: &Arc<SqliteStore>, node: &Incarnation, number: u128) -> Result<Self> {
        let session = SessionId::from_bits(number);
        let created = SessionCreated {
            title: None,
            location: Location::at("/".to_owned()),
            model: ModelRef {
                provider: "p".to_owned(),
                model: "m".to_owned(),
            },
            limits: Limits { max_steps: 0 },
            permissions: serde_json::Value::Null,
        };
        let mut owned = Self {
            store: store.clone(),
            session: session.clone(),
            fence: Fence {
                claim: ClaimId::from_bits(0),
                epoch: 0,
                owner: node.clone(),
                write_no: 0,
            },
            next: number << 64,
        };
        let first = owned.event(created);
        store
            .append(Append::unfenced(session.clone(), vec![first]))
            .await?;
        match store.acquire(&session, node, true).await? {
            Acquire::Acquired(tenure) => owned.fence = tenure.fence,
            other => bail!("a fresh session was not acquired: {other:?}"),
        }
        Ok(owned)
    }

    fn event(&mut self, body: impl Into<EventBody>) -> NewEvent {
        self.next += 1;
        NewEvent {
            id: EventId::from_bits(self.next),
            created_ms: 0,
            body: body.into(),
        }
    }

    /// One fenced append of one small event.
    async fn append(&mut self) -> Result<()> {
        let chunk = FragmentChunk {
            message: MessageId::from_bits(1),
            part: 0,
            text: "A hundred characters of an answer, as a checkpoint of a stream brings them: no more, and no less. ".to_owned(),
        };
        let event = self.event(chunk);
        let mut append = Append::unfenced(self.session.clone(), vec![event]);
        append.fence = Some(self.fence.clone());
        append.guard = Guard::Running;
        self.fence.write_no = self.store.append(append).await?.write_no;
        Ok(())
    }
}

async fn opened(folder: &Path, name: &str) -> Result<(Arc<SqliteStore>, Incarnation)> {
    let store = SqliteStore::open(&folder.join(name), OpenOptions::default())?;
    let node = Incarnation::from_bits(1);
    let info = NodeInfo {
        incarnation: node.clone(),
        name: "bench".to_owned(),
        address: None,
        serves: tenure_core::placement::Serves::everywhere(),
        lease: Duration::from_secs(600),
    };
    store.join(info).await?;
    Ok((store, node))
}

/// Appends and bare writes by turns: the same disk in the same moment. Medians in microseconds, and bytes.
async fn beside_bare(folder: &Path) -> Result<(f64, f64, f64)> {
    let (store, node) = opened(folder, "single.db").await?;
    let mut owned = Owned::take(&store, &node, 1).await?;
    // The beginning of a log file is written into fresh blocks; what lasts is measured.
    for _ in 0..100 {
        owned.append().await?;
    }
    let bytes = bytes_per_append(&mut owned, folder).await?;
    let bare = Bare::new(&folder.join("bare"), bytes.round() as usize)?;
    let (mut singles, mut bares) = (Vec::new(), Vec::new());
    for index in 0..SINGLE {
        let began = Instant::now();
        owned.append().await?;
        singles.push(began.elapsed().as_secs_f64() * 1e6);
        bares.push(bare.write(index)?.as_secs_f64() * 1e6);
    }
    Ok((median(&singles), median(&bares), bytes))
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

/// Appends a second of so many sessions side by side, each with one append under way at a time.
async fn rate(folder: &Path, sessions: u32) -> Result<f64> {
    let (store, node) = opened(folder, &format!("rate-{sessions}.db")).await?;
    let mut owned = Vec::new();
    for number in 0..sessions {
        owned.push(Owned::take(&store, &node, u128::from(number) + 1).await?);
    }
    let began = Instant::now();
    let until = began + MANY;
    let work = owned.into_iter().map(|mut one| {
        tokio::spawn(async move {
            let mut done = 0_u64;
            while Instant::now() < until {
                one.append().await?;
                done += 1;
            }
            Ok::<u64, anyhow::Error>(done)
        })
    });
    let mut total = 0;
    for one in futures::future::join_all(work).await {
        total += one??;
    }
    Ok(total as f64 / began.elapsed().as_secs_f64())
}
