//! The proxy's port: listening, or held without listening so that connecting is refused.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::connection;
use super::plan::{Door, Shared};

const BACKLOG: u32 = 1024;

/// The port, in one of its two states.
#[derive(Debug)]
pub(super) struct Entrance {
    address: SocketAddr,
    state: State,
}

#[derive(Debug)]
enum State {
    Listening(TcpListener),
    /// Bound, so that nobody else gets the port.
    Held(TcpSocket),
    /// Neither, after a failure; tried again.
    Lost,
}

impl Entrance {
    /// Takes a free port and listens. Needs to be inside a runtime.
    pub fn open() -> io::Result<Self> {
        let socket = bound((Ipv4Addr::LOCALHOST, 0).into())?;
        let listener = socket.listen(BACKLOG)?;
        Ok(Entrance {
            address: listener.local_addr()?,
            state: State::Listening(listener),
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Brings the port into the state that is wanted.
    fn turn(&mut self, door: Door) -> io::Result<()> {
        let fits = match &self.state {
            State::Listening(_) => door == Door::Open,
            State::Held(_) => door == Door::Refuse,
            State::Lost => false,
        };
        if fits {
            return Ok(());
        }
        let socket = match std::mem::replace(&mut self.state, State::Lost) {
            State::Held(socket) => socket,
            // A port cannot be bound a second time while somebody listens on it.
            State::Listening(listener) => {
                drop(listener);
                bound(self.address)?
            }
            State::Lost => bound(self.address)?,
        };
        self.state = match door {
            Door::Open => State::Listening(socket.listen(BACKLOG)?),
            Door::Refuse => State::Held(socket),
        };
        Ok(())
    }

    async fn accept(&self) -> io::Result<TcpStream> {
        match &self.state {
            State::Listening(listener) => listener.accept().await.map(|(stream, _)| stream),
            State::Held(_) | State::Lost => std::future::pending().await,
        }
    }
}

fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    // The port is taken again while old connections on it are still being forgotten.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Takes connections until the proxy is over; then everything is closed with the runtime.
pub(super) async fn serve(mut entrance: Entrance, shared: Arc<Shared>) {
    let mut plan = shared.plan.subscribe();
    loop {
        let (door, over) = {
            let plan = plan.borrow_and_update();
            (plan.door, plan.over)
        };
        if over {
            return;
        }
        match entrance.turn(door) {
            Ok(()) => shared.door_stands(door),
            // The handle sees that the door does not stand as ordered, and says so.
            Err(error) => eprintln!("the proxy's port {}: {error}", entrance.address),
        }
        tokio::select! {
            changed = plan.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            taken = entrance.accept() => {
                if let Ok(client) = taken {
                    shared.connections.fetch_add(1, Ordering::SeqCst);
                    shared.open.fetch_add(1, Ordering::SeqCst);
                    tokio::spawn(connection::run(client, Arc::clone(&shared)));
                }
            }
        }
    }
}
