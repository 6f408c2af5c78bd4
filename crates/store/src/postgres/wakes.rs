//! Wakes between processes: one connection that notifies, one that listens, and the poll that is always on.

use super::Shared;
use super::conn::{Conn, Use};
use super::sql::params;
use super::trouble::Trouble;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tenure_core::id::SessionId;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Between two notifications: what is to be told meanwhile goes into one.
const EVERY: Duration = Duration::from_millis(5);
/// Bytes of a payload, below the server's limit of 8000.
const PAYLOAD: usize = 7_900;
/// Notifications one turn sends at most; beyond it everybody is told to look for themselves.
const MOST: usize = 4;
/// Between pings through the listener.
const PING: Duration = Duration::from_secs(5);
/// How long a ping may take to come back.
const DEAF: Duration = Duration::from_secs(5);
/// The poll.
const POLL: Duration = Duration::from_secs(1);
/// The longest pause before a listener tries again.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How soon a listener that has not begun is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What the listener is like, for `health` and the log.
#[derive(Default)]
pub(super) struct Hearing {
    /// It listens, and heard its last ping.
    pub(super) listening: AtomicBool,
    /// How often it had to begin again.
    pub(super) gaps: AtomicU64,
}

impl Hearing {
    /// Does it listen, at the latest after `patience`? A store that was just opened needs a moment.
    pub(super) async fn begins(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        while !self.listening.load(Ordering::Relaxed) {
            if Instant::now() >= until {
                return false;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        true
    }
}

/// What the notifier is told.
pub(super) enum Tell {
    Sessions(Vec<SessionId>),
    /// Something that touches many sessions, like the death of a node.
    Everybody,
    Ping(u64),
}

/// Sends what it is told, coalesced. It ends with the store.
pub(super) async fn notify(shared: Arc<Shared>, mut told: mpsc::UnboundedReceiver<Tell>) {
    let mut conn: Option<Conn> = None;
    while let Some(first) = told.recv().await {
        let mut news = News::default();
        news.add(first);
        while let Ok(more) = told.try_recv() {
            news.add(more);
        }
        if shared.maker.pooled {
            continue;
        }
        if conn.as_ref().is_none_or(Conn::is_closed) {
            conn = shared
                .maker
                .connect(Use::Idle, "tenure notifier")
                .await
                .ok();
        }
        // What cannot be sent is lost: the poll finds it.
        if let Some(open) = &conn
            && let Err(trouble) = news.send(open, &shared).await
        {
            tracing::debug!(reason = trouble.words(), "a notification was not sent");
            if trouble.is_lost() {
                conn = None;
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

#[derive(Default)]
struct News {
    sessions: BTreeSet<SessionId>,
    everybody: bool,
    ping: Option<u64>,
}

impl News {
    fn add(&mut self, tell: Tell) {
        match tell {
            Tell::Sessions(sessions) => self.sessions.extend(sessions),
            Tell::Everybody => self.everybody = true,
            Tell::Ping(number) => self.ping = Some(number),
        }
    }

    /// The payloads: who sends, then what.
    fn payloads(&self, origin: &str) -> Vec<String> {
        let mut payloads = Vec::new();
        if let Some(number) = self.ping {
            payloads.push(format!("{origin} ping {number}"));
        }
        let begin = format!("{origin} woke");
        let mut text = begin.clone();
        for session in &self.sessions {
            if text.len() + 1 + session.as_str().len() > PAYLOAD {
                payloads.push(std::mem::replace(&mut text, begin.clone()));
            }
            text.push(' ');
            text.push_str(session.as_str());
        }
        if text.len() > begin.len() {
            payloads.push(text);
        }
        if self.everybody || payloads.len() > MOST {
            payloads.retain(|payload| payload.contains(" ping "));
            payloads.push(format!("{origin} all"));
        }
        payloads
    }

    async fn send(&self, conn: &Conn, shared: &Shared) -> Result<(), Trouble> {
        let payloads = self.payloads(&shared.origin);
        let channel = shared.maker.place.channel();
        conn.rows(
            "SELECT pg_notify($1, p) FROM unnest($2) u(p)",
            params![TEXT: channel, TEXT_ARRAY: payloads],
        )
        .await?;
        Ok(())
    }
}

/// Listens to what other processes tell. After every gap everybody looks for themselves. It ends with the store.
pub(super) async fn listen(shared: Arc<Shared>) {
    let mut failures = 0_u32;
    loop {
        let began = Instant::now();
        let reason = match hear(&shared).await {
            Ok(()) => return,
            Err(reason) => reason,
        };
        if began.elapsed() > Duration::from_secs(30) {
            failures = 0;
        }
        let was = shared.hearing.listening.swap(false, Ordering::Relaxed);
        if was || failures == 0 {
            tracing::warn!(
                reason,
                "deaf to other processes' wakes; the poll of 1 s goes on"
            );
        }
        shared.hearing.gaps.fetch_add(1, Ordering::Relaxed);
        failures += 1;
        // Nodes that lost the same server must not come back in step.
        let jitter = u64::from(uuid::Uuid::new_v4().as_bytes()[0]);
        let pause = Duration::from_millis(50 << failures.min(7)).min(LONGEST_PAUSE);
        tokio::time::sleep(pause + Duration::from_millis(jitter)).await;
    }
}

async fn hear(shared: &Arc<Shared>) -> Result<(), String> {
    let (heard, mut news) = mpsc::unbounded_channel();
    let conn = shared
        .maker
        .connect_listening(Use::Idle, "tenure listener", Some(heard))
        .await
        .map_err(|error| error.to_string())?;
    conn.batch(&format!("LISTEN \"{}\"", shared.maker.place.channel()))
        .await
        .map_err(|trouble| trouble.words())?;
    shared.hearing.listening.store(true, Ordering::Relaxed);
    // Whatever happened while nobody listened.
    shared.cache.clear();
    shared.watchers.wake_everybody();
    let (mut number, mut sent, mut answered) = (0_u64, Instant::now(), true);
    let mut tick = tokio::time::interval(PING);
    tick.tick().await;
    loop {
        tokio::select! {
            notification = news.recv() => {
                let Some(notification) = notification else {
                    return Err("the listener's connection ended".to_owned());
                };
                if shared.heard(notification.payload(), number) {
                    answered = true;
                }
            }
            _ = tick.tick() => {
                if !answered && sent.elapsed() > DEAF {
                    return Err("a ping did not come back".to_owned());
                }
                if answered {
                    number += 1;
                    (sent, answered) = (Instant::now(), false);
                }
                if shared.tell.send(Tell::Ping(number)).is_err() {
                    return Ok(());
                }
            }
        }
    }
}

impl Shared {
    /// Tells everybody, here and in other processes. In other processes it is a hint that may be lost.
    pub(super) fn wake(&self, sessions: &[SessionId]) {
        if sessions.is_empty() {
            return;
        }
        self.watchers.wake(sessions);
        let _ = self.tell.send(Tell::Sessions(sessions.to_vec()));
    }

    /// What touches many sessions.
    pub(super) fn wake_everybody(&self) {
        self.watchers.wake_everybody();
        let _ = self.tell.send(Tell::Everybody);
    }

    /// A notification. Is it this process's own last ping?
    fn heard(&self, payload: &str, ping: u64) -> bool {
        let mut words = payload.split(' ');
        let own = words.next() == Some(self.origin.as_str());
        match (words.next(), own) {
            (Some("ping"), true) => words.next() == Some(ping.to_string().as_str()),
            (Some("woke"), false) => {
                let ids: Vec<SessionId> =
                    words.filter_map(|id| SessionId::parse(id).ok()).collect();
                self.cache.forget(ids.iter());
                self.watchers.wake(&ids);
                false
            }
            (Some("all"), false) => {
                self.watchers.wake_everybody();
                false
            }
            _ => false,
        }
    }
}

/// Looks at the watched rows every second, whatever else works or does not. It ends with the store.
pub(super) async fn poll(shared: std::sync::Weak<Shared>) {
    let mut late: Option<Duration> = None;
    loop {
        let pause = late.take().unwrap_or(POLL);
        tokio::time::sleep(pause).await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let Some(watched) = shared.watchers.watched() else {
            continue;
        };
        let result = match shared.upkeep.get().await {
            Ok(conn) => {
                let looked = shared.watchers.poll(&conn, &watched).await;
                conn.ended(looked)
            }
            Err(trouble) => Err(trouble),
        };
        if let Err(trouble) = result {
            tracing::debug!(reason = trouble.words(), "the poll failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_fits_and_too_much_becomes_a_word() {
        let mut news = News::default();
        news.add(Tell::Sessions((0..700).map(SessionId::from_bits).collect()));
        news.add(Tell::Ping(7));
        let payloads = news.payloads("me");
        assert!(payloads.iter().all(|payload| payload.len() < 8_000));
        assert_eq!(payloads[0], "me ping 7");
        let told: usize = payloads[1..]
            .iter()
            .map(|payload| payload.split(' ').count() - 2)
            .sum();
        assert_eq!(told, 700);
        news.add(Tell::Sessions(
            (0..9_000).map(SessionId::from_bits).collect(),
        ));
        assert_eq!(news.payloads("me"), ["me ping 7", "me all"]);
    }
}
