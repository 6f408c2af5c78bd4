//! Whoever follows a session over an absence of its store: waits, says so, and goes on from the last event it was given.

use crate::support::*;
use crate::weather::{Sky, Weather};
use futures::StreamExt;
use futures::stream::BoxStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tenure_core::event::NewEvent;
use tenure_core::event::body::SessionRenamed;
use tenure_core::id::{EventId, SessionId};
use tenure_engine::*;
use tenure_store::{Append, FollowItem, ReadError};

type Reader = BoxStream<'static, Result<Followed, ReadError>>;

/// More than is read at a time.
const MANY: u64 = 600;

async fn next(reader: &mut Reader) -> Option<Result<Followed, ReadError>> {
    tokio::time::timeout(Duration::from_secs(30), reader.next())
        .await
        .expect("it goes on")
}

/// Names the session `count` times, in one commit.
async fn named(bed: &Bed, session: &SessionId, from: u64, count: u64) {
    let named = (from..from + count).map(|number| {
        let body = SessionRenamed {
            title: number.to_string(),
            automatic: false,
        };
        NewEvent {
            id: EventId::derived(&["named", session.as_str(), &number.to_string()]),
            created_ms: 1,
            body: body.into(),
        }
    });
    let append = Append::unfenced(session.clone(), named.collect());
    bed.store.append(append).await.unwrap();
}

/// What a reader was given, in short.
#[derive(Debug, Default, PartialEq)]
struct Given {
    seqs: Vec<u64>,
    synced: Vec<u64>,
    away: usize,
    back: usize,
}

impl Given {
    fn take(&mut self, item: Followed) {
        match item {
            Followed::Item(FollowItem::Event(event)) => self.seqs.push(event.seq),
            Followed::Item(FollowItem::Synced { head }) => self.synced.extend(head),
            Followed::Away { reason } => {
                assert!(reason.contains("a storm"), "{reason}");
                self.away += 1;
            }
            Followed::Back { .. } => self.back += 1,
        }
    }

    async fn until(&mut self, reader: &mut Reader, enough: impl Fn(&Self) -> bool) {
        while !enough(self) {
            self.take(next(reader).await.unwrap().unwrap());
        }
    }

    fn last(&self) -> u64 {
        *self.seqs.last().unwrap()
    }
}

/// A session, and a client whose store has weather.
async fn under_a_sky(bed: &Bed) -> (SessionId, Client, Arc<Sky>) {
    let session = bed.session().await;
    let (store, sky) = Weather::over(&bed.store);
    (session, Client::new(store, bed.config.env.clone()), sky)
}

/// A reader that was given all there was.
async fn synced(client: &Client, session: &SessionId) -> (Reader, Given) {
    let mut reader = client.follow_telling(session, None);
    let mut given = Given::default();
    given
        .until(&mut reader, |given| !given.synced.is_empty())
        .await;
    (reader, given)
}

/// Reads that failed since the last time, until there were as many.
async fn asked_again(sky: &Sky, reads: u64) {
    let mut seen = 0;
    eventually("it is asked again", async || {
        seen += sky.take_asked().get("read").copied().unwrap_or(0);
        seen >= reads
    })
    .await;
}

#[tokio::test]
async fn a_follower_waits_for_its_store_and_is_given_each_event_once() {
    let bed = Bed::new([]);
    let (session, client, sky) = under_a_sky(&bed).await;
    let (mut reader, mut given) = synced(&client, &session).await;
    let head = given.last();
    for round in 0..3 {
        sky.away.store(true, Ordering::SeqCst);
        named(&bed, &session, round * 4, 2).await;
        given
            .until(&mut reader, |given| given.away > given.back)
            .await;
        sky.take_asked();
        let waits = tokio::spawn(async move {
            let item = next(&mut reader).await;
            (reader, item)
        });
        // It does not give up at the second try, and does not say so again.
        asked_again(&sky, 2).await;
        named(&bed, &session, round * 4 + 2, 2).await;
        sky.away.store(false, Ordering::SeqCst);
        let (waited, item) = waits.await.unwrap();
        reader = waited;
        given.take(item.unwrap().unwrap());
        assert_eq!(given.back as u64, round + 1, "{given:?}");
        let all = head + (round + 1) * 4;
        given.until(&mut reader, |given| given.last() == all).await;
    }
    let every: Vec<u64> = (given.seqs[0]..=head + 12).collect();
    assert_eq!(given.seqs, every, "each once, in order");
    assert_eq!((given.away, given.back), (3, 3));
    assert_eq!(given.synced, [head], "the mark comes once");
}

#[tokio::test]
async fn an_absence_in_the_middle_of_the_replay_neither_repeats_nor_leaves_out() {
    let bed = Bed::new([]);
    let (session, client, sky) = under_a_sky(&bed).await;
    named(&bed, &session, 0, MANY).await;
    let mut reader = client.follow_telling(&session, None);
    let mut given = Given::default();
    given
        .until(&mut reader, |given| !given.seqs.is_empty())
        .await;
    sky.away.store(true, Ordering::SeqCst);
    given.until(&mut reader, |given| given.away > 0).await;
    assert!(given.synced.is_empty(), "there is more");
    sky.away.store(false, Ordering::SeqCst);
    given
        .until(&mut reader, |given| !given.synced.is_empty())
        .await;
    let every: Vec<u64> = (given.seqs[0]..=given.last()).collect();
    assert_eq!(given.seqs, every);
    assert_eq!(given.synced, [given.last()]);
    assert!(given.seqs.len() as u64 > MANY);
}

#[tokio::test]
async fn who_follows_and_reads_in_the_plain_manner_is_spared_the_absence() {
    let bed = Bed::new([]);
    let (session, client, sky) = under_a_sky(&bed).await;
    let mut plain = client.follow(&session, None);
    let mut read = client.read(&session, None);
    while !matches!(plain.next().await, Some(Ok(FollowItem::Synced { .. }))) {}
    while !matches!(
        read.next().await,
        Some(Ok(Shown::Log(FollowItem::Synced { .. })))
    ) {}
    sky.away.store(true, Ordering::SeqCst);
    sky.take_asked();
    let waits = tokio::spawn(async move {
        let (plain, read) = tokio::join!(plain.next(), read.next());
        (plain.unwrap().unwrap(), read.unwrap().unwrap())
    });
    named(&bed, &session, 0, 1).await;
    asked_again(&sky, 6).await;
    sky.away.store(false, Ordering::SeqCst);
    let (plain, read) = waits.await.unwrap();
    assert!(matches!(plain, FollowItem::Event(_)), "{plain:?}");
    assert_eq!(read, Shown::Log(plain));
}

#[tokio::test]
async fn patience_with_a_store_that_stays_away_ends() {
    let bed = Bed::new([]);
    let (session, client, sky) = under_a_sky(&bed).await;
    for (patience, told) in [(Duration::ZERO, 0), (Duration::from_millis(5), 1)] {
        let patient = client.clone().reading_for(patience);
        let (mut reader, mut given) = synced(&patient, &session).await;
        sky.away.store(true, Ordering::SeqCst);
        named(&bed, &session, told, 1).await;
        for _ in 0..told {
            given.take(next(&mut reader).await.unwrap().unwrap());
        }
        assert_eq!(given.away as u64, told);
        let end = next(&mut reader).await;
        assert!(
            matches!(end, Some(Err(ReadError::Unavailable { .. }))),
            "{end:?}"
        );
        assert_eq!(next(&mut reader).await, None);
        sky.away.store(false, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_store_that_does_not_answer_at_the_start_is_told_at_once() {
    let bed = Bed::new([]);
    let (session, client, sky) = under_a_sky(&bed).await;
    sky.away.store(true, Ordering::SeqCst);
    let mut reader = client.follow_telling(&session, None);
    let end = next(&mut reader).await;
    assert!(
        matches!(end, Some(Err(ReadError::Unavailable { .. }))),
        "{end:?}"
    );
    assert_eq!(next(&mut reader).await, None);
}

#[tokio::test]
async fn what_no_waiting_mends_ends_it_also_behind_an_absence() {
    let bed = Bed::new([]);
    let (session, client, sky) = under_a_sky(&bed).await;
    let (mut reader, mut given) = synced(&client, &session).await;
    sky.away.store(true, Ordering::SeqCst);
    named(&bed, &session, 0, 1).await;
    given.until(&mut reader, |given| given.away > 0).await;
    bed.store.delete(&session).await.unwrap();
    sky.away.store(false, Ordering::SeqCst);
    let end = next(&mut reader).await;
    assert_eq!(end, Some(Err(ReadError::UnknownSession(session))));
    assert_eq!(next(&mut reader).await, None);
}

#[tokio::test]
async fn who_waits_for_an_outcome_waits_for_the_store_too() {
    let gate = Gate::shut();
    let rest = text("done");
    let mut bed = Bed::new([Play::Gated(Vec::new(), gate.clone(), rest)]);
    // It looks at the row, too.
    bed.config.poll = Duration::from_millis(20);
    let (store, sky) = Weather::over(&bed.store);
    let engine = bed.engine_on(store, bed.config.clone()).await;
    let session = bed.session().await;
    let admission = bed.admit(&session, Prompt::steer("go")).await;
    let waits = tokio::spawn({
        let (engine, session) = (engine.clone(), session.clone());
        async move { engine.outcome(&session, &admission.input, None).await }
    });
    engine.run(&session);
    bed.until(&session, "attempt.started").await;
    sky.away.store(true, Ordering::SeqCst);
    named(&bed, &session, 0, 1).await;
    let mut seen = (0, 0);
    eventually("both reads failed", async || {
        let asked = sky.take_asked();
        seen.0 += asked.get("read").copied().unwrap_or(0);
        seen.1 += asked.get("session").copied().unwrap_or(0);
        seen.0 >= 2 && seen.1 >= 2
    })
    .await;
    sky.away.store(false, Ordering::SeqCst);
    gate.open();
    let outcome = waits.await.unwrap();
    assert_eq!(outcome, Ok(Outcome::Succeeded));
    engine.shutdown().await.unwrap();
}
