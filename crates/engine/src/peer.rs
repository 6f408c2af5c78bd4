//! Node to node on one machine: a Unix socket beside the store, for wakes and live items. Hints only.
//!
//! One request line of JSON per connection. `wake` makes the owner look at a session at once; `live` is
//! answered with a [`LiveItem`] a line until either side closes. The log is never sent here.

use crate::engine::Shared;
use crate::hub::LiveItem;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tenure_core::id::SessionId;
use tenure_store::{SessionState, Store};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{broadcast, mpsc};
use tokio_util::sync::CancellationToken;

/// A request is at most this long.
const LINE_MAX: u64 = 4096;
/// The kernel's limit for a socket's path, its end mark included.
const PATH_MAX: usize = 108;
/// Items a remote reader may be behind.
const REMOTE_CAPACITY: usize = 256;
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

/// The socket of an incarnation, if the path is one the kernel takes.
pub(crate) fn socket_path(dir: &Path, incarnation: &str) -> Option<PathBuf> {
    let path = dir.join(format!("{incarnation}.sock"));
    (path.as_os_str().len() < PATH_MAX).then_some(path)
}

/// Listens until `stop`; removes the socket at the end.
pub(crate) async fn serve(shared: Arc<Shared>, path: PathBuf, stop: CancellationToken) {
    let listener = match bind(&path) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "no socket for peers; they poll");
            return;
        }
    };
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (shared, stop) = (shared.clone(), stop.clone());
                    let env = shared.config.env.clone();
                    env.spawn(Box::pin(async move {
                        tokio::select! {
                            () = stop.cancelled() => {}
                            // A peer that goes away is nothing to report.
                            _ = answer(&shared, stream) => {}
                        }
                    }));
                }
                Err(error) => {
                    tracing::debug!(%error, "a peer could not be accepted");
                    shared.config.env.sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }
    // Already gone is as good.
    let _ = std::fs::remove_file(&path);
}

fn bind(path: &Path) -> std::io::Result<UnixListener> {
    use std::os::unix::fs::PermissionsExt;
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

async fn answer(shared: &Arc<Shared>, stream: UnixStream) -> std::io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    let mut reader = BufReader::new(read.take(LINE_MAX));
    let asked = tokio::time::timeout(PATIENCE, reader.read_line(&mut line)).await;
    if asked.is_err() {
        return Ok(());
    }
    match serde_json::from_str::<Ask>(&line) {
        Ok(Ask::Wake { session }) => {
            shared.nudge(&session);
            write.write_all(b"{}\n").await
        }
        Ok(Ask::Live { session }) => {
            let mut items = shared.hub.subscribe(&session);
            let mut rest = [0; 64];
            loop {
                let received = tokio::select! {
                    received = items.recv() => received,
                    // A reader that is gone needs no item to be noticed.
                    read = reader.read(&mut rest) => match read? {
                        0 => return Ok(()),
                        _ => continue,
                    },
                };
                let item = match received {
                    Ok(item) => item,
                    Err(broadcast::error::RecvError::Lagged(_)) => LiveItem::Lagged,
                    Err(broadcast::error::RecvError::Closed) => return Ok(()),
                };
                let mut text = serde_json::to_string(&item).unwrap_or_default();
                text.push('\n');
                write.write_all(text.as_bytes()).await?;
            }
        }
        Err(error) => {
            let refusal = serde_json::json!({ "error": error.to_string() });
            write.write_all(format!("{refusal}\n").as_bytes()).await
        }
    }
}

/// Tells a node to look at a session. False when it could not be reached: its poll will notice.
pub(crate) async fn wake(address: &str, session: &SessionId) -> bool {
    let ask = async {
        let mut stream = connect(
            address,
            &Ask::Wake {
                session: session.clone(),
            },
        )
        .await?;
        let mut answer = [0; 1];
        stream.read_exact(&mut answer).await
    };
    matches!(tokio::time::timeout(PATIENCE, ask).await, Ok(Ok(_)))
}

async fn connect(address: &str, ask: &Ask) -> std::io::Result<UnixStream> {
    let mut stream = UnixStream::connect(address).await?;
    let mut line = serde_json::to_string(ask)?;
    line.push('\n');
    stream.write_all(line.as_bytes()).await?;
    Ok(stream)
}

/// The address of the node that owns the session now.
pub(crate) async fn owner_address(store: &dyn Store, session: &SessionId) -> Option<String> {
    let row = store.session(session).await.ok()??;
    let SessionState::Owned { owner, .. } = row.state else {
        return None;
    };
    let nodes = store.nodes().await.ok()?;
    nodes
        .into_iter()
        .find(|node| node.incarnation == owner)?
        .address
}

/// Live items of a session, whichever process of this machine runs it, across changes of owner. The task
/// behind it ends when the receiver is dropped.
pub(crate) fn follow_live(
    store: Arc<dyn Store>,
    env: Arc<dyn crate::environment::Environment>,
    session: SessionId,
) -> mpsc::Receiver<LiveItem> {
    let (sender, receiver) = mpsc::channel(REMOTE_CAPACITY);
    let task_env = env.clone();
    env.spawn(Box::pin(async move {
        let mut changes = store.watch(&session);
        loop {
            changes.borrow_and_update();
            if let Some(address) = owner_address(store.as_ref(), &session).await {
                tokio::select! {
                    () = sender.closed() => return,
                    // Its end, good or bad, only means: look who owns it now.
                    _ = relay(&address, &session, &sender) => {}
                }
            }
            tokio::select! {
                () = sender.closed() => return,
                changed = changes.changed() => if changed.is_err() { return },
                () = task_env.sleep(Duration::from_secs(1)) => {}
            }
            task_env.sleep(Duration::from_millis(10)).await;
        }
    }));
    receiver
}

async fn relay(
    address: &str,
    session: &SessionId,
    sender: &mpsc::Sender<LiveItem>,
) -> std::io::Result<()> {
    let stream = connect(
        address,
        &Ask::Live {
            session: session.clone(),
        },
    )
    .await?;
    let mut lines = BufReader::new(stream).lines();
    let mut missed = false;
    while let Some(line) = lines.next_line().await? {
        let Ok(item) = serde_json::from_str::<LiveItem>(&line) else {
            continue;
        };
        // A slow reader is told, not waited for: the owner must not be held up.
        if missed {
            match sender.try_send(LiveItem::Lagged) {
                Ok(()) => missed = false,
                Err(mpsc::error::TrySendError::Full(_)) => continue,
                Err(mpsc::error::TrySendError::Closed(_)) => return Ok(()),
            }
        }
        match sender.try_send(item) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => missed = true,
            Err(mpsc::error::TrySendError::Closed(_)) => return Ok(()),
        }
    }
    Ok(())
}
