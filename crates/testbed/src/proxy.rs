//! A TCP proxy on loopback whose faults are switched while it runs: refused, cut, silent, slow; lost and late commits.
//!
//! It has a thread and a runtime of its own, so that a test that blocks does not block it.

mod commits;
mod connection;
mod door;
mod flow;
mod plan;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

pub use plan::{CommitFault, Counts, Door, Flow, Way};

use crate::{Error, wait};
use plan::Shared;

/// A running proxy. Dropped, it closes everything.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// A proxy before any TCP service.
    ///
    /// # Errors
    /// No port can be had on loopback.
    pub fn before(target: SocketAddr) -> Result<Self, Error> {
        Self::start(target, false)
    }

    /// A proxy before a PostgreSQL server. It reads the traffic where it is not encrypted, for [`CommitFault`].
    ///
    /// # Errors
    /// As [`Proxy::before`].
    pub fn before_postgres(target: SocketAddr) -> Result<Self, Error> {
        Self::start(target, true)
    }

    fn start(target: SocketAddr, postgres: bool) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::system("start a runtime"))?;
        let shared = Arc::new(Shared::new(target, postgres));
        let door = {
            let _inside = runtime.enter();
            door::Entrance::open().map_err(Error::system("listen on loopback"))?
        };
        let address = door.address();
        let serving = door::serve(door, Arc::clone(&shared));
        let thread = std::thread::Builder::new()
            .name("testbed-proxy".into())
            .spawn(move || runtime.block_on(serving))
            .map_err(Error::system("start a thread"))?;
        Ok(Proxy {
            address,
            shared,
            thread: Some(thread),
        })
    }

    /// Where it listens; the same for its whole life.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `url` with this proxy's address in place of the host and port.
    pub fn url(&self, url: &str) -> String {
        with_address(url, self.address)
    }

    /// Everything new goes to `target` from now on, as after a failover. Open connections stay where they are.
    pub fn retarget(&self, target: SocketAddr) {
        self.shared.change(|plan| plan.target = target);
    }

    /// How new connections are met. Returns when it is so.
    ///
    /// # Errors
    /// The port cannot be had back.
    pub fn door(&self, door: Door) -> Result<(), Error> {
        self.shared.change(|plan| plan.door = door);
        wait::until_true("the proxy's door", wait::PATIENCE, || {
            self.shared.door() == door
        })
    }

    /// What happens to bytes on their way, on open connections and new ones.
    pub fn flow(&self, way: Way, flow: Flow) {
        self.shared.change(|plan| *plan.flow_mut(way) = flow);
    }

    /// The same for both ways.
    pub fn flows(&self, flow: Flow) {
        self.shared.change(|plan| {
            plan.up = flow;
            plan.down = flow;
        });
    }

    /// What happens to the server's bytes on connections that have sent LISTEN, while other answers pass. Needs
    /// [`Proxy::before_postgres`].
    pub fn listeners(&self, flow: Flow) {
        self.shared.change(|plan| plan.listeners = flow);
    }

    /// Cuts every open connection, with a reset on both sides.
    pub fn cut(&self) {
        self.shared.change(|plan| plan.cuts += 1);
    }

    /// Refuses new connections and cuts the open ones: as if the process behind had died.
    ///
    /// # Errors
    /// As [`Proxy::door`].
    pub fn die(&self) -> Result<(), Error> {
        self.door(Door::Refuse)?;
        self.cut();
        Ok(())
    }

    /// No fault any more. Connections that swallowed something stay silent: what is lost cannot come.
    ///
    /// # Errors
    /// As [`Proxy::door`].
    pub fn heal(&self) -> Result<(), Error> {
        self.shared.disarm();
        self.flows(Flow::Pass);
        self.listeners(Flow::Pass);
        self.door(Door::Open)
    }

    /// The next COMMIT that any connection sends meets `fault`; only the next one.
    pub fn at_next_commit(&self, fault: CommitFault) {
        self.shared.arm(fault);
    }

    /// Waits until the fault of [`Proxy::at_next_commit`] has happened: until the client's connection is cut.
    ///
    /// # Errors
    /// [`Error::Late`] after `limit`.
    pub fn commit_met(&self, limit: Duration) -> Result<(), Error> {
        wait::until_true("a COMMIT that met its fault", limit, || {
            !self.shared.is_armed()
        })
    }

    /// Lets the commits held back by [`CommitFault::Late`] go to the server, and waits for its answers.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn deliver_late(&self) -> Result<(), Error> {
        self.shared.change(|plan| plan.deliveries += 1);
        wait::until_true("the late commits", wait::PATIENCE, || {
            self.shared.held.load(Ordering::SeqCst) == 0
        })
    }

    /// What has gone through so far.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.change(|plan| plan.over = true);
        if let Some(thread) = self.thread.take() {
            // A panic in it was shown when it happened.
            let _ = thread.join();
        }
    }
}

/// `url` with another host and port.
pub(crate) fn with_address(url: &str, address: SocketAddr) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let user = authority
        .rsplit_once('@')
        .map_or(String::new(), |(user, _)| format!("{user}@"));
    format!("{scheme}://{user}{address}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_keeps_all_but_its_address() {
        let address = SocketAddr::from(([127, 0, 0, 1], 7));
        assert_eq!(
            with_address("postgres://a:b@db:5432/x?sslmode=require", address),
            "postgres://a:b@127.0.0.1:7/x?sslmode=require"
        );
        assert_eq!(
            with_address("http://db?x=1", address),
            "http://127.0.0.1:7?x=1"
        );
    }
}
