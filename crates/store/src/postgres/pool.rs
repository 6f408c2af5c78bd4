//! Connections that are shared: a few for reading, and slots of one for what must never wait behind others.

use super::conn::{Conn, Maker, Use};
use super::trouble::Trouble;
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};
use tokio::sync::{Mutex as Slotted, MutexGuard, Semaphore, SemaphorePermit};

/// Readers' connections, made when they are first needed.
pub(super) struct Pool {
    maker: Maker,
    idle: Mutex<Vec<Conn>>,
    permits: Semaphore,
}

/// A connection lent; it goes back unless it was lost.
pub(super) struct Lent<'a> {
    conn: Option<Conn>,
    pool: &'a Pool,
    /// It was lying idle: what fails on it may only be stale.
    pub(super) used: bool,
    _permit: SemaphorePermit<'a>,
}

impl Pool {
    pub(super) fn new(maker: Maker) -> Self {
        Self {
            permits: Semaphore::new(maker.place.pool),
            maker,
            idle: Mutex::default(),
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Conn>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection of its own, waiting for one to be free.
    pub(super) async fn get(&self) -> Result<Lent<'_>, Trouble> {
        let permit = self
            .permits
            .acquire()
            .await
            .map_err(|_| Trouble::lost("the store is closed"))?;
        loop {
            let idle = self.idle().pop();
            let (conn, used) = match idle {
                Some(conn) if conn.is_closed() => continue,
                Some(conn) => (conn, true),
                None => {
                    let made = self.maker.connect(Use::Read, "tenure").await;
                    (made?, false)
                }
            };
            return Ok(Lent {
                conn: Some(conn),
                pool: self,
                used,
                _permit: permit,
            });
        }
    }
}

impl Lent<'_> {
    /// Does not go back.
    pub(super) fn discard(mut self) {
        if let Some(conn) = self.conn.take() {
            conn.cut();
        }
    }
}

impl Deref for Lent<'_> {
    type Target = Conn;
    fn deref(&self) -> &Conn {
        match &self.conn {
            Some(conn) => conn,
            None => unreachable!("invariant: a lent connection is there until it is discarded"),
        }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take()
            && !conn.is_closed()
        {
            self.pool.idle().push(conn);
        }
    }
}

/// One connection, one user at a time.
pub(super) struct Slot {
    maker: Maker,
    purpose: Use,
    conn: Slotted<Option<Conn>>,
}

/// The slot's connection while it is used.
pub(super) struct Used<'a>(MutexGuard<'a, Option<Conn>>);

impl Slot {
    pub(super) fn new(maker: Maker, purpose: Use) -> Self {
        Self {
            maker,
            purpose,
            conn: Slotted::new(None),
        }
    }

    /// The connection if there is one already: what it was used for last says nothing about whether it still stands.
    pub(super) async fn standing(&self) -> Option<Used<'_>> {
        let slot = self.conn.lock().await;
        let stands = slot.as_ref().is_some_and(|conn| !conn.is_closed());
        stands.then_some(Used(slot))
    }

    /// The connection, made anew when it was lost.
    pub(super) async fn get(&self) -> Result<Used<'_>, Trouble> {
        let mut slot = self.conn.lock().await;
        if slot.as_ref().is_none_or(Conn::is_closed) {
            *slot = None;
            let made = self.maker.connect(self.purpose, "tenure").await;
            *slot = Some(made?);
        }
        Ok(Used(slot))
    }
}

impl Used<'_> {
    /// What came of its use: a connection whose answer was lost is not used again.
    pub(super) fn ended<T>(mut self, result: Result<T, Trouble>) -> Result<T, Trouble> {
        if matches!(&result, Err(trouble) if trouble.is_lost())
            && let Some(conn) = self.0.take()
        {
            conn.cut();
        }
        result
    }
}

impl Deref for Used<'_> {
    type Target = Conn;
    fn deref(&self) -> &Conn {
        match &*self.0 {
            Some(conn) => conn,
            None => unreachable!("invariant: a slot in use holds its connection"),
        }
    }
}
