//! Peers on one machine: a Unix socket beside the store.
//!
//! One request line of JSON per connection. `wake` is answered with a [`Woken`], `live` with a [`Relayed`] a line
//! until either side closes. Who may open the socket (mode 0600) may ask.

use super::{NodeService, Peer, Peers, Relayed, Unreached, Woken};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, stream};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tenure_core::id::{Incarnation, SessionId};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A request, or a wake's answer, is at most this long.
const LINE_MAX: u64 = 4096;
/// A line of live items is at most this long: live text comes in the pieces the model sends.
const LIVE_LINE_MAX: u64 = 4 * 1024 * 1024;
/// The kernel's limit for a socket's path, its end mark included.
const PATH_MAX: usize = 108;
/// How long a connection may take to say what it wants, and a wake to be delivered.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Ask {
    /// Look at this session now.
    Wake { session: SessionId },
    /// Send its live items.
    Live { session: SessionId },
}

/// Peers that are reached by the path of their socket.
#[derive(Debug, Clone, Default)]
pub struct UnixPeers {
    folder: Option<PathBuf>,
}

impl UnixPeers {
    /// Sockets stand in `folder`; without one this process asks others and is asked by none.
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self { folder }
    }

    fn path(&self, incarnation: &Incarnation) -> Option<PathBuf> {
        let path = self.folder.as_ref()?.join(format!("{incarnation}.sock"));
        (path.as_os_str().len() < PATH_MAX).then_some(path)
    }
}

impl Peers for UnixPeers {
    fn wake(&self, peer: &Peer, session: &SessionId) -> BoxFuture<'static, Woken> {
        let (address, session) = (peer.address.clone(), session.clone());
        let asking = async move {
            let stream = connect(&address, &Ask::Wake { session }).await?;
            let mut line = String::new();
            BufReader::new(stream.take(LINE_MAX))
                .read_line(&mut line)
                .await?;
            Ok::<Woken, io::Error>(serde_json::from_str(&line)?)
        };
        async move {
            match tokio::time::timeout(PATIENCE, asking).await {
                Ok(Ok(woken)) => woken,
                Ok(Err(error)) => Woken::Unreached(unreached(&error)),
                Err(_) => Woken::Unreached(Unreached::Silent),
            }
        }
        .boxed()
    }

    fn live(
        &self,
        peer: &Peer,
        session: &SessionId,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Relayed>, Unreached>> {
        let (address, session) = (peer.address.clone(), session.clone());
        async move {
            let ask = Ask::Live { session };
            let stream = tokio::time::timeout(PATIENCE, connect(&address, &ask))
                .await
                .map_err(|_| Unreached::Silent)?
                .map_err(|error| unreached(&error))?;
            Ok(relayed(BufReader::new(stream)))
        }
        .boxed()
    }

    fn probe(&self, peer: &Peer) -> BoxFuture<'static, Result<(), Unreached>> {
        let address = peer.address.clone();
        async move {
            match tokio::time::timeout(PATIENCE, UnixStream::connect(address)).await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(unreached(&error)),
                Err(_) => Err(Unreached::Silent),
            }
        }
        .boxed()
    }

    fn address(&self, incarnation: &Incarnation) -> Option<String> {
        self.path(incarnation)
            .map(|path| path.display().to_string())
    }

    fn serve(
        &self,
        incarnation: &Incarnation,
        service: NodeService,
        stop: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        match self.path(incarnation) {
            Some(path) => serve(service, path, stop).boxed(),
            None => futures::future::ready(()).boxed(),
        }
    }
}

/// What the node says, until the stream ends or a line has no end.
fn relayed(reader: BufReader<UnixStream>) -> BoxStream<'static, Relayed> {
    stream::unfold(reader, |mut reader| async move {
        loop {
            let mut line = Vec::new();
            let mut bounded = (&mut reader).take(LIVE_LINE_MAX);
            bounded.read_until(b'\n', &mut line).await.ok()?;
            if line.pop() != Some(b'\n') {
                return None;
            }
            // A newer program may say what this one does not know.
            if let Ok(said) = serde_json::from_slice(&line) {
                return Some((said, reader));
            }
        }
    })
    .boxed()
}

fn unreached(error: &io::Error) -> Unreached {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Unreached::Refused,
        _ => Unreached::Failed {
            reason: error.to_string(),
        },
    }
}

async fn connect(address: &str, ask: &Ask) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(address).await?;
    let mut line = serde_json::to_string(ask)?;
    line.push('\n');
    stream.write_all(line.as_bytes()).await?;
    Ok(stream)
}

/// Listens until `stop`; removes the socket at the end.
async fn serve(service: NodeService, path: PathBuf, stop: CancellationToken) {
    let listener = match bind(&path) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "no socket for peers; they poll");
            return;
        }
    };
    let _removed = Removed(path);
    // Dropped with this future: no connection outlives the life it asks.
    let mut asking = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = asking.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (service, stop) = (service.clone(), stop.clone());
                    asking.spawn(async move {
                        tokio::select! {
                            () = stop.cancelled() => {}
                            // A peer that goes away is nothing to report.
                            _ = answer(&service, stream) => {}
                        }
                    });
                }
                Err(error) => {
                    tracing::debug!(%error, "a peer could not be accepted");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }
}

/// Removes a socket, also when serving is dropped.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    use std::os::unix::fs::PermissionsExt;
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

async fn answer(service: &NodeService, stream: UnixStream) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    let mut reader = BufReader::new(read.take(LINE_MAX));
    let asked = tokio::time::timeout(PATIENCE, reader.read_line(&mut line)).await;
    if asked.is_err() {
        return Ok(());
    }
    let mut said = match serde_json::from_str::<Ask>(&line) {
        Ok(Ask::Wake { session }) => {
            let woken = serde_json::to_string(&service.wake(&session))?;
            return write.write_all(format!("{woken}\n").as_bytes()).await;
        }
        Ok(Ask::Live { session }) => service.live(&session),
        Err(error) => {
            let refusal = serde_json::json!({ "error": error.to_string() });
            return write.write_all(format!("{refusal}\n").as_bytes()).await;
        }
    };
    let mut rest = [0; 64];
    loop {
        let next = tokio::select! {
            next = said.next() => next,
            // A reader that is gone needs no item to be noticed.
            read = reader.read(&mut rest) => match read? {
                0 => return Ok(()),
                _ => continue,
            },
        };
        let Some(next) = next else { return Ok(()) };
        let mut text = serde_json::to_string(&next)?;
        text.push('\n');
        write.write_all(text.as_bytes()).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::LiveItem;

    const LAGGED: &str = "{\"say\":\"item\",\"item\":{\"live\":\"lagged\"}}\n";

    async fn said(text: Vec<u8>) -> Vec<Relayed> {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let writing = async move {
            // A reader that has had enough hangs up.
            let _ = ours.write_all(&text).await;
        };
        let reading = relayed(BufReader::new(theirs)).collect();
        tokio::join!(writing, reading).1
    }

    #[tokio::test]
    async fn what_a_newer_program_says_ends_no_stream() {
        let text = format!("{LAGGED}{{\"say\":\"news\"}}\n\n{LAGGED}{{\"say\":\"it");
        let lagged = Relayed::Item {
            item: LiveItem::Lagged,
        };
        assert_eq!(said(text.into_bytes()).await, [lagged.clone(), lagged]);
    }

    #[tokio::test]
    async fn a_line_without_end_is_not_kept() {
        let mut text = vec![b'x'; LIVE_LINE_MAX as usize + 1];
        text.extend_from_slice(b"\n");
        text.extend_from_slice(LAGGED.as_bytes());
        assert_eq!(said(text).await, []);
    }
}
