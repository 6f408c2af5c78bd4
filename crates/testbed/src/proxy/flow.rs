//! One way through a connection: reads, lets the switches decide, writes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::commits::{End, Talk};
use super::plan::{Flow, Shared, Way};

/// How much is read at once.
const CHUNK: usize = 64 * 1024;
/// How many reads may be under way to the other side: with them, a delay costs no throughput.
const UNDER_WAY: usize = 1024;

/// What the reader hands to the writer.
enum Piece {
    Bytes(Vec<u8>, Instant),
    /// The peer has closed its side.
    Close,
    Stop(End),
}

/// Carries bytes until the sender closes its side. An error ends the whole connection.
pub(super) async fn carry(
    way: Way,
    from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
    talk: &Talk,
    shared: &Shared,
) -> Result<(), End> {
    let (pieces, queue) = mpsc::channel(UNDER_WAY);
    let reading = async {
        read(way, from, pieces, talk, shared).await;
        Ok(())
    };
    let ((), ()) = tokio::try_join!(reading, write(way, to, queue, shared))?;
    Ok(())
}

async fn read(
    way: Way,
    mut from: impl AsyncRead + Unpin,
    pieces: mpsc::Sender<Piece>,
    talk: &Talk,
    shared: &Shared,
) {
    let mut plan = shared.plan.subscribe();
    let mut buffer = vec![0; CHUNK];
    let mut flow = Flow::Pass;
    let mut budget = u64::MAX;
    let mut has_lost = false;
    loop {
        let ordered = plan.borrow_and_update().flow(way, talk.listens());
        if ordered != flow {
            flow = ordered;
            budget = match flow {
                Flow::CutAfter(bytes) => bytes,
                _ => u64::MAX,
            };
        }
        let read = tokio::select! {
            biased;
            changed = plan.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
            read = from.read(&mut buffer), if flow != Flow::Stall => read,
        };
        let bytes = match read {
            Ok(0) if has_lost || flow == Flow::Swallow => return std::future::pending().await,
            Ok(0) => &[][..],
            Ok(length) => &buffer[..length],
            Err(_) => {
                // The writer may have stopped first.
                let _ = pieces.send(Piece::Stop(End::Cut)).await;
                return;
            }
        };
        // Whether it listens may have shown while this was awaited.
        has_lost |=
            flow == Flow::Swallow || plan.borrow().flow(way, talk.listens()) == Flow::Swallow;
        if has_lost {
            continue;
        }
        let delay = match flow {
            Flow::Delay(delay) => delay,
            _ => Duration::ZERO,
        };
        for piece in cut_up(
            way,
            bytes,
            Instant::now() + delay,
            &mut budget,
            talk,
            shared,
        ) {
            let is_last = !matches!(piece, Piece::Bytes(..));
            if pieces.send(piece).await.is_err() || is_last {
                return;
            }
        }
    }
}

/// What becomes of one read; nothing read is the end of the stream.
fn cut_up(
    way: Way,
    bytes: &[u8],
    due: Instant,
    budget: &mut u64,
    talk: &Talk,
    shared: &Shared,
) -> Vec<Piece> {
    if bytes.is_empty() {
        return vec![Piece::Close];
    }
    let passed = match way {
        _ if !shared.postgres => Ok(bytes.to_vec()),
        Way::Up => talk.up(bytes, shared),
        Way::Down => talk.down(bytes).map(<[u8]>::to_vec),
    };
    let mut passed = match passed {
        Ok(passed) => passed,
        Err(end) => return vec![Piece::Stop(end)],
    };
    let length = passed.len() as u64;
    if length < *budget {
        *budget = budget.saturating_sub(length);
        return vec![Piece::Bytes(passed, due)];
    }
    passed.truncate(usize::try_from(*budget).unwrap_or(usize::MAX));
    vec![Piece::Bytes(passed, due), Piece::Stop(End::Cut)]
}

async fn write(
    way: Way,
    mut to: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<Piece>,
    shared: &Shared,
) -> Result<(), End> {
    let count = match way {
        Way::Up => &shared.up,
        Way::Down => &shared.down,
    };
    while let Some(piece) = queue.recv().await {
        match piece {
            Piece::Bytes(bytes, due) => {
                tokio::time::sleep_until(due).await;
                // Before, so that whoever has the bytes finds them counted.
                count.fetch_add(bytes.len() as u64, Ordering::SeqCst);
                to.write_all(&bytes).await.map_err(|_| End::Cut)?;
            }
            Piece::Close => {
                // The other side may be gone altogether.
                let _ = to.shutdown().await;
                return Ok(());
            }
            Piece::Stop(end) => return Err(end),
        }
    }
    Ok(())
}
