//! The scripted model as a server: bound to an address, observed and shut down through its handle.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::answer::serve;
use crate::http::Conn;
use crate::issue::Issuer;
use crate::record::{Recorded, Recorder};
use crate::script::Script;
use crate::select::Selector;
use crate::validate::ChatDialect;

/// What all connections of a server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) script: Script,
    pub(crate) selector: Selector,
    pub(crate) issuer: Issuer,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) api_key: Option<String>,
    pub(crate) strict_seals: bool,
    pub(crate) dialect: ChatDialect,
}

/// A model that follows a script, served over HTTP.
#[derive(Debug)]
pub struct ScriptedModel;

impl ScriptedModel {
    /// Begins the set-up of a server for a script.
    pub fn builder(script: Script) -> Builder {
        Builder {
            script,
            api_key: None,
            log: None,
            keep_bodies: true,
            strict_seals: false,
            dialect: ChatDialect::Any,
        }
    }
}

/// The set-up of a server.
#[derive(Debug)]
pub struct Builder {
    script: Script,
    api_key: Option<String>,
    log: Option<PathBuf>,
    keep_bodies: bool,
    strict_seals: bool,
    dialect: ChatDialect,
}

impl Builder {
    /// Requires this key, as `Authorization: Bearer`, `x-api-key` or `x-goog-api-key`; anything else is
    /// answered with 401, or as the vendor does.
    #[must_use]
    pub fn api_key(mut self, key: impl Into<String>) -> Self {
        self.api_key = Some(key.into());
        self
    }

    /// Appends one JSON line per request, before the first byte of its answer, and one at its end.
    #[must_use]
    pub fn log(mut self, path: impl Into<PathBuf>) -> Self {
        self.log = Some(path.into());
        self
    }

    /// Whether records keep request bodies; switched off for long runs. Default: yes.
    #[must_use]
    pub fn keep_bodies(mut self, keep: bool) -> Self {
        self.keep_bodies = keep;
        self
    }

    /// Whether replayed reasoning that no scripted model issued is refused too. Default: no.
    #[must_use]
    pub fn strict_seals(mut self, strict: bool) -> Self {
        self.strict_seals = strict;
        self
    }

    /// Which server of Chat Completions `/v1/chat/completions` plays. Default: none in particular.
    #[must_use]
    pub fn chat_dialect(mut self, dialect: ChatDialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Binds the address and serves on tasks of the current runtime until the handle is dropped or shut down. Port 0
    /// picks a free port.
    ///
    /// # Errors
    /// The script contradicts itself (`InvalidInput`), the log cannot be opened, or the address cannot be bound.
    ///
    /// # Cancellation
    /// Dropped before it returns, nothing is served.
    pub async fn bind(self, addr: SocketAddr) -> io::Result<Handle> {
        self.script
            .check()
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        let recorder = Arc::new(Recorder::new(self.log.as_deref(), self.keep_bodies)?);
        let listener = TcpListener::bind(addr).await?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            selector: Selector::new(&self.script),
            script: self.script,
            issuer: Issuer::new(),
            recorder: Arc::clone(&recorder),
            api_key: self.api_key,
            strict_seals: self.strict_seals,
            dialect: self.dialect,
        });
        let task = tokio::spawn(accept(listener, shared));
        Ok(Handle {
            addr,
            recorder,
            task: Some(task),
        })
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => spawn(&mut connections, &shared, socket),
                // Out of file descriptors, most likely: one that closes makes room.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

fn spawn(connections: &mut JoinSet<()>, shared: &Arc<Shared>, socket: TcpStream) {
    connections.spawn(serve(Arc::clone(shared), Conn::new(socket)));
}

/// A running scripted model. Dropped, it stops serving.
#[derive(Debug)]
pub struct Handle {
    addr: SocketAddr,
    recorder: Arc<Recorder>,
    task: Option<JoinHandle<()>>,
}

impl Handle {
    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The base of all wire forms' paths, `http://ADDR/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.addr)
    }

    /// The base of the paths of one server of Chat Completions, `http://ADDR/dialect/WORD/v1`.
    pub fn dialect_url(&self, dialect: ChatDialect) -> String {
        format!("http://{}/dialect/{}/v1", self.addr, dialect.as_str())
    }

    /// All requests so far, in the order of their arrival.
    pub fn requests(&self) -> Vec<Recorded> {
        self.recorder.requests()
    }

    /// The most requests that were under way at once.
    pub fn max_concurrent(&self) -> usize {
        self.recorder.max_concurrent()
    }

    /// The pairs of requests, by number, of which the second arrived while the first was under way. A client that
    /// closed its connection has ended its request.
    pub fn overlaps(&self) -> Vec<(u64, u64)> {
        self.recorder.overlaps()
    }

    /// Waits until at least `n` requests have arrived, and returns all. Sets no time limit. Cancellation-safe.
    pub async fn wait_for(&self, n: u64) -> Vec<Recorded> {
        let mut counts = self.recorder.counts();
        // The sender lives in the recorder this handle holds, so waiting cannot fail.
        let _ = counts.wait_for(|(received, _)| *received >= n).await;
        self.requests()
    }

    /// Waits until at least `n` requests have ended, and returns all. Sets no time limit. Cancellation-safe.
    pub async fn wait_ended(&self, n: u64) -> Vec<Recorded> {
        let mut counts = self.recorder.counts();
        let _ = counts.wait_for(|(_, ended)| *ended >= n).await;
        self.requests()
    }

    /// Stops serving: closes the listener and all connections, and waits until they are closed.
    pub async fn shutdown(mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            let _ = task.await;
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
