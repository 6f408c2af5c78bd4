//! What the server saw: every request with its verdict, the turn that answered it, how it ended, and what overlapped.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::select::TurnId;
use crate::validate::Broken;
use crate::vendor::Vendor;

/// What the server made of a request.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Valid, and answered by a turn.
    Accepted,
    /// Valid, but no turn of the script applies; answered with 400.
    NoTurn,
    /// Breaks these rules; answered with 400.
    Invalid(Vec<Broken>),
    /// The body is not JSON; answered with 400.
    Unreadable(String),
    /// The key is missing or wrong; answered with 401.
    Unauthorized,
    /// The script does not serve that model; answered with 404.
    UnknownModel,
    /// Valid, and larger than the script's window; answered as the vendor does.
    TooLong {
        /// Tokens of the prompt, by the server's measure.
        input: u64,
        /// The limit on generated tokens that was asked for, when it is the sum that does not fit.
        output: Option<u64>,
    },
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// All of it was handed to the connection.
    Finished,
    /// The script cut it.
    Cut,
    /// The client left, or the server was shut down, before its end.
    Aborted,
}

/// One request as the server saw it.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Its place in the order of arrival, from 0.
    pub number: u64,
    /// Its wire form.
    pub vendor: Vendor,
    /// Its path.
    pub path: String,
    /// Its headers, names in lower case, without those that carry keys.
    pub headers: Vec<(String, String)>,
    /// Its body; null when it was not JSON or bodies are not kept.
    pub body: Arc<Value>,
    /// Its body as it came, byte for byte; empty when bodies are not kept.
    pub bytes: Arc<[u8]>,
    /// What the server made of it.
    pub verdict: Verdict,
    /// The turn that answered it.
    pub turn: Option<TurnId>,
    /// When it was read to its end, since the server's start.
    pub started: Duration,
    /// When and how its answer ended.
    pub ended: Option<(Duration, Ended)>,
}

impl Recorded {
    /// The first value of a header, its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.as_str())
    }
}

#[derive(Debug, Default)]
struct Inner {
    requests: Vec<Recorded>,
    open: Vec<(u64, Weak<TcpStream>)>,
    max_concurrent: usize,
    overlaps: Vec<(u64, u64)>,
}

/// Keeps the records and writes the log.
#[derive(Debug)]
pub(crate) struct Recorder {
    inner: Mutex<Inner>,
    log: Option<Mutex<File>>,
    keep_bodies: bool,
    since: Instant,
    /// (received, ended) counts.
    counts: watch::Sender<(u64, u64)>,
}

/// What is known of a request when its record is made.
pub(crate) struct Arrival<'a> {
    pub(crate) vendor: Vendor,
    pub(crate) path: &'a str,
    pub(crate) headers: &'a [(String, String)],
    pub(crate) body: Arc<Value>,
    pub(crate) bytes: &'a [u8],
    pub(crate) verdict: Verdict,
    pub(crate) turn: Option<TurnId>,
    pub(crate) turn_name: Option<&'a str>,
}

impl Recorder {
    pub(crate) fn new(log: Option<&Path>, keep_bodies: bool) -> io::Result<Self> {
        let log = log
            .map(|path| OpenOptions::new().create(true).append(true).open(path))
            .transpose()?;
        Ok(Self {
            inner: Mutex::default(),
            log: log.map(Mutex::new),
            keep_bodies,
            since: Instant::now(),
            counts: watch::Sender::new((0, 0)),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One write per line, so that lines of several servers on one file do not mix.
    fn write_line(&self, line: &impl serde::Serialize) {
        let Some(log) = &self.log else { return };
        let mut text = match serde_json::to_vec(line) {
            Ok(text) => text,
            Err(error) => {
                return eprintln!("scripted model: a log line cannot be written: {error}");
            }
        };
        text.push(b'\n');
        let mut file = log.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(&text) {
            eprintln!("scripted model: the request log cannot be written: {error}");
        }
    }

    /// Records a request and writes its log line, both before any byte of its answer.
    pub(crate) fn begin(self: &Arc<Self>, arrival: Arrival<'_>, socket: &Arc<TcpStream>) -> Flight {
        let headers: Vec<(String, String)> = arrival
            .headers
            .iter()
            .filter(|(name, _)| !is_secret(name))
            .cloned()
            .collect();
        let mut inner = self.lock();
        let number = inner.requests.len() as u64;
        self.drop_dead(&mut inner);
        let others: Vec<u64> = inner.open.iter().map(|(other, _)| *other).collect();
        inner
            .overlaps
            .extend(others.iter().map(|other| (*other, number)));
        inner.open.push((number, Arc::downgrade(socket)));
        inner.max_concurrent = inner.max_concurrent.max(inner.open.len());
        self.write_line(&RequestLine {
            kind: "request",
            number,
            time_ms: now_ms(),
            vendor: arrival.vendor,
            path: arrival.path,
            headers: headers
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect(),
            verdict: &arrival.verdict,
            turn: arrival.turn,
            turn_name: arrival.turn_name,
            overlaps: &others,
            body: &arrival.body,
        });
        inner.requests.push(Recorded {
            number,
            vendor: arrival.vendor,
            path: arrival.path.to_owned(),
            headers,
            body: if self.keep_bodies {
                arrival.body
            } else {
                Arc::new(Value::Null)
            },
            bytes: if self.keep_bodies {
                arrival.bytes.into()
            } else {
                Arc::default()
            },
            verdict: arrival.verdict,
            turn: arrival.turn,
            started: self.since.elapsed(),
            ended: None,
        });
        drop(inner);
        self.counts.send_modify(|(received, _)| *received += 1);
        Flight {
            recorder: Arc::clone(self),
            number,
            ended: false,
        }
    }

    /// A request whose sender is gone does not overlap with the next one, though its task may not know yet.
    fn drop_dead(&self, inner: &mut Inner) {
        let dead: Vec<u64> = inner
            .open
            .iter()
            .filter(|(_, socket)| !is_alive(socket))
            .map(|(number, _)| *number)
            .collect();
        inner.open.retain(|(number, _)| !dead.contains(number));
    }

    fn leave(&self, number: u64) {
        self.lock().open.retain(|(open, _)| *open != number);
    }

    fn end(&self, number: u64, how: Ended) {
        let mut inner = self.lock();
        inner.open.retain(|(open, _)| *open != number);
        let at = self.since.elapsed();
        // Requests are numbered by their place.
        if let Some(recorded) = inner.requests.get_mut(number as usize) {
            recorded.ended = Some((at, how));
        }
        self.write_line(&json!({"kind": "end", "number": number, "time_ms": now_ms(), "how": how}));
        drop(inner);
        self.counts.send_modify(|(_, ended)| *ended += 1);
    }

    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.lock().requests.clone()
    }

    pub(crate) fn max_concurrent(&self) -> usize {
        self.lock().max_concurrent
    }

    pub(crate) fn overlaps(&self) -> Vec<(u64, u64)> {
        self.lock().overlaps.clone()
    }

    pub(crate) fn counts(&self) -> watch::Receiver<(u64, u64)> {
        self.counts.subscribe()
    }
}

/// One request under way. Dropped without an end, it counts as aborted.
#[derive(Debug)]
pub(crate) struct Flight {
    recorder: Arc<Recorder>,
    number: u64,
    ended: bool,
}

impl Flight {
    /// Says that the last bytes are about to leave: who has read them may send the next request.
    pub(crate) fn closing(&self) {
        self.recorder.leave(self.number);
    }

    pub(crate) fn end(mut self, how: Ended) {
        self.ended = true;
        self.recorder.end(self.number, how);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.ended {
            self.recorder.end(self.number, Ended::Aborted);
        }
    }
}

fn is_secret(header: &str) -> bool {
    [
        "authorization",
        "x-api-key",
        "x-goog-api-key",
        "api-key",
        "proxy-authorization",
        "cookie",
    ]
    .contains(&header)
}

/// A request's line in the log.
#[derive(serde::Serialize)]
struct RequestLine<'a> {
    kind: &'static str,
    number: u64,
    time_ms: u64,
    vendor: Vendor,
    path: &'a str,
    headers: BTreeMap<&'a str, &'a str>,
    verdict: &'a Verdict,
    turn: Option<TurnId>,
    turn_name: Option<&'a str>,
    /// The requests that were under way when this one arrived.
    overlaps: &'a [u64],
    body: &'a Value,
}

fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

/// Looks at the socket itself: the runtime may not have been told yet that the client is gone.
#[cfg(unix)]
fn is_alive(socket: &Weak<TcpStream>) -> bool {
    use std::os::fd::AsRawFd as _;

    use nix::errno::Errno;
    use nix::sys::socket::{MsgFlags, recv};

    let Some(socket) = socket.upgrade() else {
        return false;
    };
    let mut byte = [0_u8];
    match recv(
        socket.as_raw_fd(),
        &mut byte,
        MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT,
    ) {
        Ok(read) => read > 0,
        Err(error) => error == Errno::EAGAIN || error == Errno::EINTR,
    }
}

#[cfg(not(unix))]
fn is_alive(socket: &Weak<TcpStream>) -> bool {
    socket.strong_count() > 0
}
