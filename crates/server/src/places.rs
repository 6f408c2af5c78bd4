//! Places for connections: when all are taken, the one that has been idle the longest gives way to who comes.
//!
//! Idle is who has nothing under way: no request yet, half of one's head, or an answer that is long over. Whoever reads an
//! answer, or has not yet read the end of one, keeps its place, however long that takes.

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// All places of a door.
#[derive(Debug)]
pub(crate) struct Places {
    most: usize,
    state: Mutex<State>,
    /// A place is free, or somebody who could give way is.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    /// Of those, told to go and not gone yet.
    leaving: usize,
    /// Numbers the moments at which connections became idle.
    turn: u64,
    /// Who is idle, the longest first.
    idle: BTreeMap<u64, CancellationToken>,
}

impl Places {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            state: Mutex::default(),
            changed: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection that was accepted: waits until one is free, and makes one free where somebody is idle. One
    /// caller at a time. Cancellation-safe: whoever was told to go by then goes.
    pub async fn take(self: &Arc<Self>) -> Arc<Seat> {
        loop {
            if let Some(seat) = self.try_take() {
                return seat;
            }
            self.changed.notified().await;
        }
    }

    fn try_take(self: &Arc<Self>) -> Option<Arc<Seat>> {
        let mut state = self.state();
        if state.taken < self.most {
            state.taken += 1;
            let seat = Seat {
                places: Arc::clone(self),
                leave: CancellationToken::new(),
                use_: Mutex::default(),
            };
            drop(state);
            seat.update(|_| {});
            return Some(Arc::new(seat));
        }
        // One goes for one who comes.
        if state.leaving == 0
            && let Some((_, leave)) = state.idle.pop_first()
        {
            state.leaving += 1;
            leave.cancel();
        }
        None
    }
}

/// What a connection is used for.
#[derive(Debug, Default)]
struct Use {
    /// A request that was let in, until its answer was given to the connection.
    answering: bool,
    /// Nobody knows yet whose request that is.
    unproven: bool,
    /// The end of an answer was given to the connection, which has not sent it yet: its reader may be slow.
    unsent: bool,
    /// Its number among the idle.
    turn: Option<u64>,
}

/// A connection's place. Dropped, it is free.
#[derive(Debug)]
pub(crate) struct Seat {
    places: Arc<Places>,
    leave: CancellationToken,
    use_: Mutex<Use>,
}

impl Seat {
    /// Resolves when it has to give way. Cancellation-safe.
    pub async fn given_away(&self) {
        self.leave.cancelled().await;
    }

    /// A request is under way until the guard is dropped. None: the place was given away before.
    pub fn answering(self: &Arc<Self>) -> Option<UnderWay> {
        self.update(|used| used.answering = true)
            .then(|| UnderWay(Arc::clone(self)))
    }

    /// All that was given to the connection is sent.
    fn flushed(&self) {
        let unsent = {
            let used = self.use_.lock().unwrap_or_else(PoisonError::into_inner);
            used.unsent
        };
        if unsent {
            self.update(|used| used.unsent = false);
        }
    }

    /// The request under way may be a stranger's until the guard says that this is over: the place may be given away.
    pub fn unproven(self: &Arc<Self>) -> Unproven {
        self.update(|used| used.unproven = true);
        Unproven(Arc::clone(self))
    }

    /// Changes what it is used for, and with it its place among the idle. False: it has to go.
    fn update(&self, change: impl FnOnce(&mut Use)) -> bool {
        let mut used = self.use_.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.places.state();
        change(&mut used);
        let idle = (!used.answering || used.unproven) && !used.unsent;
        match used.turn {
            Some(turn) if !idle => {
                used.turn = None;
                // Not there: it was chosen meanwhile.
                state.idle.remove(&turn).is_some()
            }
            None if idle => {
                state.turn += 1;
                used.turn = Some(state.turn);
                let turn = state.turn;
                state.idle.insert(turn, self.leave.clone());
                drop(state);
                self.places.changed.notify_one();
                true
            }
            _ => !self.leave.is_cancelled(),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let used = self.use_.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.places.state();
        state.taken -= 1;
        if let Some(turn) = used.turn {
            state.idle.remove(&turn);
        }
        if self.leave.is_cancelled() {
            state.leaving -= 1;
        }
        drop(state);
        self.places.changed.notify_one();
    }
}

/// A request that is under way.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<Seat>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.update(|used| {
            used.answering = false;
            used.unsent = true;
        });
    }
}

/// A request of which nobody knows yet whose it is.
#[derive(Debug)]
pub(crate) struct Unproven(Arc<Seat>);

impl Unproven {
    /// It has come as a whole, and is looked at. False: the place was given away before.
    pub fn over(self) -> bool {
        self.0.update(|used| used.unproven = false)
    }
}

impl Drop for Unproven {
    fn drop(&mut self) {
        self.0.update(|used| used.unproven = false);
    }
}

/// An answer's body: its request is under way until all of it was given to the connection.
pub(crate) struct Held {
    pub body: Body,
    pub _under_way: UnderWay,
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection's socket, which notices when all of an answer is out: the connection flushes it only then.
pub(crate) struct Watched<S> {
    pub stream: S,
    pub seat: Arc<Seat>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(cx);
        if done.is_ready() {
            self.seat.flushed();
        }
        done
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn taken(places: &Arc<Places>) -> Option<Arc<Seat>> {
        places.take().now_or_never()
    }

    fn goes(seat: &Seat) -> bool {
        seat.leave.is_cancelled()
    }

    #[test]
    fn who_is_idle_the_longest_gives_way_and_nobody_before_all_places_are_taken() {
        let places = Places::new(3);
        let seats: Vec<_> = (0..3).map(|_| taken(&places).unwrap()).collect();
        // The first one has just been answered: now it is idle for the shortest time.
        drop(seats[0].answering().unwrap());
        seats[0].flushed();
        assert!(seats.iter().all(|seat| !goes(seat)));
        assert!(taken(&places).is_none());
        // It goes once, however often the newcomer looks.
        assert!(taken(&places).is_none());
        assert_eq!([0, 1, 2].map(|n| goes(&seats[n])), [false, true, false]);
        let [first, second, third] = <[_; 3]>::try_from(seats).unwrap();
        drop(second);
        let fourth = taken(&places).unwrap();
        assert!(taken(&places).is_none());
        assert!(goes(&third) && !goes(&first) && !goes(&fourth));
    }

    #[test]
    fn what_is_under_way_stays_and_what_is_unread_too() {
        let places = Places::new(2);
        let (one, two) = (taken(&places).unwrap(), taken(&places).unwrap());
        let reading = one.answering().unwrap();
        drop(two.answering().unwrap());
        let mut waits = Box::pin(places.take());
        assert!((&mut waits).now_or_never().is_none());
        assert!(!goes(&one) && !goes(&two));
        // The end of an answer is not the end of what its reader has to read.
        drop(reading);
        assert!((&mut waits).now_or_never().is_none());
        assert!(!goes(&one));
        one.flushed();
        assert!((&mut waits).now_or_never().is_none());
        assert!(goes(&one) && !goes(&two));
        assert!(one.answering().is_none(), "a request that comes too late");
        drop(one);
        assert!(waits.now_or_never().is_some());
    }
}
