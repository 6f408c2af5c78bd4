//! Lost answers, lost connections, a server that goes and comes back: nothing acknowledged is lost unnoticed, and
//! everything goes on by itself.

use crate::postgres_backend::{Bare, lasting, place};
use futures::FutureExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tenure_core::event::body::Delivery;
use tenure_core::id::*;
use tenure_store::conformance::World;
use tenure_store::conformance::world::*;
use tenure_store::postgres::{Options, PostgresStore};
use tenure_store::*;
use tenure_testbed::postgres::{Cluster, Database, Options as Servers, Stop, shared_or_skip};
use tenure_testbed::proxy::{CommitFault, Flow, Proxy};
use tenure_testbed::wait;

/// A store behind a proxy, as a world of the suite.
struct Behind {
    w: World,
    store: Arc<PostgresStore>,
    proxy: Proxy,
    database: Database,
}

fn behind() -> Option<Behind> {
    let database = shared_or_skip()?.database().unwrap();
    let address = database.server().address().unwrap();
    let proxy = Proxy::before_postgres(address).unwrap();
    let url = place(&proxy.url(database.url()), "tenure");
    let store = PostgresStore::open(&url, Options::default()).unwrap();
    Some(Behind {
        w: World::new(Box::new(Bare(Arc::clone(&store)))),
        store,
        proxy,
        database,
    })
}

impl Behind {
    /// Somebody's transaction that holds the head row of `session` and does not move.
    async fn holder(&self, session: &SessionId) -> tokio_postgres::Client {
        let url = self.database.server().url_of(self.database.name());
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
            .await
            .unwrap();
        tokio::spawn(connection);
        let lock = format!("BEGIN; SELECT 1 FROM tenure.session WHERE id = '{session}' FOR UPDATE");
        client.batch_execute(&lock).await.unwrap();
        client
    }

    /// A session whose owner wrote last: its next append needs no reading, so that its COMMIT is the next one.
    async fn owner(&self) -> (SessionId, Owner) {
        let (session, node) = (self.w.create().await, lasting(&self.w).await);
        let mut owner = self.w.acquire(&session, &node).await;
        let event = vec![self.w.renamed("first")];
        owner
            .append(Guard::Settling, event, Vec::new())
            .await
            .unwrap();
        (session, owner)
    }

    /// Blocks until one of the database's connections waits for a lock.
    fn until_it_waits_for_a_lock(&self) {
        let waiting = "SELECT count(*) FROM pg_stat_activity \
                       WHERE wait_event_type = 'Lock' AND datname = current_database()";
        tokio::task::block_in_place(|| {
            wait::until_true("a batch that waits for the lock", wait::PATIENCE, || {
                self.database.value(waiting).unwrap().as_deref() == Some("1")
            })
            .unwrap();
        });
    }

    async fn titles(&self, session: &SessionId) -> usize {
        self.w.log(session).await.len()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_met_a_fault_is_resolved_by_reading_either_way() {
    let Some(at) = behind() else { return };
    for (fault, there) in [
        (CommitFault::RequestLost, false),
        (CommitFault::AnswerLost, true),
    ] {
        let (session, mut owner) = at.owner().await;
        let before = at.titles(&session).await;
        let event = at.w.renamed("perhaps");
        let ids = [event.id.clone()];
        let (ran, seen) = std::sync::mpsc::channel();
        let mut append = owner.fenced(Guard::Settling, vec![event], Vec::new());
        append.after_commit = Some(Box::new(move |committed| {
            let _ = ran.send(committed.head);
        }));
        at.proxy.at_next_commit(fault);
        let unknown = at.store.append(append).await.unwrap_err();
        assert!(
            matches!(unknown, AppendError::Unknown { .. }),
            "{unknown:?}"
        );
        at.proxy.commit_met(wait::PATIENCE).unwrap();
        assert!(seen.try_recv().is_err(), "nobody knows yet");
        let found = at.store.resolve(&session, &owner.fence, &ids).await;
        let found = found.unwrap();
        assert_eq!(found.is_some(), there, "{fault:?}");
        assert_eq!(seen.try_iter().count(), usize::from(there), "{fault:?}");
        assert_eq!(at.titles(&session).await, before + usize::from(there));
        owner.resolved(found.as_ref());
        let on = vec![at.w.renamed("on")];
        owner.append(Guard::Settling, on, Vec::new()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_arrives_late_finds_its_fence_gone() {
    let Some(at) = behind() else { return };
    let (session, mut owner) = at.owner().await;
    let before = at.titles(&session).await;
    let event = at.w.renamed("ghost");
    let ids = [event.id.clone()];
    at.proxy.at_next_commit(CommitFault::WholeLate);
    let lost = owner.fenced(Guard::Settling, vec![event], Vec::new());
    assert!(at.store.append(lost).await.is_err());
    at.proxy.commit_met(wait::PATIENCE).unwrap();
    let found = at.store.resolve(&session, &owner.fence, &ids).await;
    assert!(found.unwrap().is_none());
    owner.resolved(None);
    at.proxy.deliver_late().unwrap();
    let on = vec![at.w.renamed("on")];
    owner.append(Guard::Settling, on, Vec::new()).await.unwrap();
    assert_eq!(
        at.titles(&session).await,
        before + 1,
        "the ghost wrote nothing"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_connections_are_made_again() {
    let Some(at) = behind() else { return };
    let (session, mut owner) = at.owner().await;
    for round in 0..3 {
        at.proxy.cut();
        // Whatever was cut is read again or made anew: a reader is not even told.
        let page = at.store.read(&session, None, 10).await.unwrap();
        assert!(!page.events.is_empty());
        let event = at.w.renamed(&round.to_string());
        let ids = [event.id.clone()];
        let again = vec![event.clone()];
        match owner.append(Guard::Settling, vec![event], Vec::new()).await {
            Ok(_) => {}
            Err(AppendError::Unknown { .. }) => {
                let found = at.store.resolve(&session, &owner.fence, &ids).await;
                let found = found.unwrap();
                owner.resolved(found.as_ref());
                if found.is_none() {
                    owner
                        .append(Guard::Settling, again, Vec::new())
                        .await
                        .unwrap();
                }
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(at.titles(&session).await, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_is_said_soon_and_found_again() {
    let Some(at) = behind() else { return };
    let (session, mut owner) = at.owner().await;
    let node = owner.fence.owner.clone();
    at.proxy.die().unwrap();
    let began = Instant::now();
    let refused = at.store.append(Append::unfenced(
        session.clone(),
        vec![at.w.renamed("away")],
    ));
    let refused = refused.await.unwrap_err();
    assert!(
        matches!(
            refused,
            AppendError::Unavailable { .. } | AppendError::Unknown { .. }
        ),
        "{refused:?}"
    );
    let read = at.store.read(&session, None, 10).await.unwrap_err();
    assert!(matches!(read, ReadError::Unavailable { .. }), "{read:?}");
    let renewed = at.store.renew(&node).await.unwrap_err();
    assert!(
        matches!(renewed, NodeError::Unavailable { .. }),
        "{renewed:?}"
    );
    assert!(began.elapsed() < wait::PATIENCE, "{began:?}");
    at.proxy.heal().unwrap();
    assert_eq!(at.store.renew(&node).await.unwrap(), Renewal::Renewed);
    let on = vec![at.w.renamed("back")];
    owner.append(Guard::Settling, on, Vec::new()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_swallows_everything_is_noticed() {
    let Some(at) = behind() else { return };
    let (session, mut owner) = at.owner().await;
    let event = at.w.renamed("into the dark");
    let ids = [event.id.clone()];
    at.proxy.flows(Flow::Swallow);
    let lost = owner.append(Guard::Settling, vec![event], Vec::new());
    let unknown = tokio::time::timeout(wait::PATIENCE, lost).await;
    let unknown = unknown.unwrap().unwrap_err();
    assert!(
        matches!(unknown, AppendError::Unknown { .. }),
        "{unknown:?}"
    );
    at.proxy.heal().unwrap();
    let found = at.store.resolve(&session, &owner.fence, &ids).await;
    assert!(found.unwrap().is_none(), "it never arrived");
    owner.resolved(None);
    let on = vec![at.w.renamed("on")];
    owner.append(Guard::Settling, on, Vec::new()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stuck_lock_harms_its_own_session_only() {
    let Some(at) = behind() else { return };
    let (stuck, free) = (at.w.create().await, at.w.create().await);
    let client = at.holder(&stuck).await;
    let hold = at.store.hold_writer();
    let append = |session: &SessionId| {
        at.store
            .append(Append::unfenced(session.clone(), vec![at.w.renamed("x")]))
    };
    let (mut refused, mut written) = (append(&stuck), append(&free));
    // Their first poll queues them: both are in the batch that begins when the writer is let go.
    assert!((&mut refused).now_or_never().is_none());
    assert!((&mut written).now_or_never().is_none());
    drop(hold);
    let (refused, written) = tokio::join!(refused, written);
    assert_eq!(written.unwrap().head, 1);
    let refused = refused.unwrap_err();
    assert!(
        matches!(&refused, AppendError::Unavailable { reason } if reason.contains("locked")),
        "{refused:?}"
    );
    // Known to be held, it is tried apart: the others wait for no lock of it. A sequence counts also what is undone.
    at.database
        .execute(
            "CREATE SEQUENCE tenure.tries; \
             CREATE FUNCTION tenure.try() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN \
             PERFORM nextval('tenure.tries'); RETURN NULL; END $$; \
             CREATE TRIGGER try BEFORE UPDATE ON tenure.session FOR EACH STATEMENT EXECUTE FUNCTION tenure.try(); \
             SELECT nextval('tenure.tries')",
        )
        .unwrap();
    let tries = || {
        let tries = "SELECT last_value FROM tenure.tries";
        let tries = at.database.value(tries).unwrap().unwrap();
        tries.parse::<u64>().unwrap()
    };
    for _ in 0..5 {
        let (hold, before) = (at.store.hold_writer(), tries());
        let (mut refused, mut written) = (append(&stuck), append(&free));
        assert!((&mut refused).now_or_never().is_none());
        assert!((&mut written).now_or_never().is_none());
        drop(hold);
        let (refused, written) = tokio::join!(refused, written);
        assert!(refused.is_err() && written.is_ok());
        assert_eq!(tries() - before, 2, "one for each");
    }
    client.batch_execute("ROLLBACK").await.unwrap();
    at.w.write(&stuck, at.w.renamed("y")).await;
}

/// What somebody holds keeps only its own batch waiting: the other writer goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_waits_for_a_lock_keeps_no_other_batch_waiting() {
    let Some(at) = behind() else { return };
    let free = at.w.create().await;
    for _ in 0..10 {
        let stuck = at.w.create().await;
        let client = at.holder(&stuck).await;
        let append = Append::unfenced(stuck.clone(), vec![at.w.renamed("x")]);
        let mut waits = at.store.append(append);
        assert!((&mut waits).now_or_never().is_none());
        at.until_it_waits_for_a_lock();
        at.w.write(&free, at.w.renamed("y")).await;
        let waiting = (&mut waits).now_or_never();
        client.batch_execute("ROLLBACK").await.unwrap();
        match waiting {
            None => {
                // It may still be told that it waited too long.
                let _ = waits.await;
                return;
            }
            // On a busy machine its patience was over before the other came; that is not always so.
            Some(over) => assert!(over.is_err(), "{over:?}"),
        }
    }
    panic!("the other batch never came before the one that waits was over");
}

/// The second writer only helps: one that reaches no server leaves the work to the first, whose connection is good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_helper_without_a_connection_leaves_the_work_to_the_first() {
    let Some(at) = behind() else { return };
    let (stuck, free) = (at.w.create().await, at.w.create().await);
    let client = at.holder(&stuck).await;
    // Whoever connects from now on is taken, and finds nobody behind the proxy.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    at.proxy.retarget(address);
    let append = |session: &SessionId| {
        let append = Append::unfenced(session.clone(), vec![at.w.renamed("x")]);
        let store = Arc::clone(&at.store);
        tokio::spawn(async move { store.append(append).await })
    };
    let keeps_the_first = append(&stuck);
    at.until_it_waits_for_a_lock();
    let tried = at.proxy.counts().connections;
    let left = append(&free);
    tokio::task::block_in_place(|| {
        wait::until_true("a helper that tries", wait::PATIENCE, || {
            left.is_finished() || at.proxy.counts().connections >= tried + 3
        })
        .unwrap();
    });
    client.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(left.await.unwrap().unwrap().head, 1);
    // On a machine that is busy enough its patience with the lock is over first.
    let _ = keeps_the_first.await.unwrap();
}

/// A whole table that somebody has is everybody's trouble: no session waits for it in its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_table_is_said_to_all_at_once_and_by_whom() {
    let Some(at) = behind() else { return };
    let mut sessions = Vec::new();
    for _ in 0..40 {
        sessions.push(at.w.create().await);
    }
    let mut config: tokio_postgres::Config = at.database.url().parse().unwrap();
    config.application_name("an administrator");
    let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    // What appends write, and what an admission reads first.
    for table in ["event", "inbox"] {
        let lock = format!("BEGIN; LOCK TABLE tenure.{table} IN ACCESS EXCLUSIVE MODE");
        client.batch_execute(&lock).await.unwrap();
        let hold = at.store.hold_writer();
        let appends = sessions.iter().map(|session| {
            let event = match table {
                "event" => at.w.renamed("x"),
                _ => at.w.event(admitted(&at.w.message(), Delivery::Steer)),
            };
            at.store
                .append(Append::unfenced(session.clone(), vec![event]))
        });
        let mut all = futures::future::join_all(appends);
        assert!((&mut all).now_or_never().is_none());
        drop(hold);
        let whose = format!("the whole table `{table}` is locked by the server's process");
        for answer in all.await {
            let refused = answer.unwrap_err().to_string();
            assert!(
                refused.contains(&whose) && refused.contains("(an administrator)"),
                "{refused}"
            );
        }
        client.batch_execute("ROLLBACK").await.unwrap();
        at.w.write(&sessions[0], at.w.renamed("on")).await;
    }
}

/// R12: a read that the server refuses for one session fails that session alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_the_server_cannot_read_fails_alone() {
    let Some(at) = behind() else { return };
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(at.w.create().await);
    }
    let bad = &sessions[1];
    // Reading the effects of one session raises an error; those of others are read as ever.
    at.database
        .execute(&format!(
            "CREATE FUNCTION tenure.refuse() RETURNS TEXT LANGUAGE plpgsql AS $$ BEGIN \
             RAISE EXCEPTION 'cannot be read' USING ERRCODE = '22023'; END $$; \
             ALTER TABLE tenure.effect RENAME TO effects; \
             CREATE VIEW tenure.effect AS SELECT * FROM tenure.effects UNION ALL \
             SELECT s.sid, tenure.refuse() COLLATE \"C\", NULL, 0, 0, NULL, NULL, NULL FROM tenure.session s \
             WHERE s.id = '{bad}'"
        ))
        .unwrap();
    let hold = at.store.hold_writer();
    let mut waiting = Vec::new();
    for session in &sessions {
        // An admission is decided on rows that are read for it.
        let event = at.w.event(admitted(&at.w.message(), Delivery::Steer));
        let append = Append::unfenced(session.clone(), vec![event]);
        let mut future = at.store.append(append);
        assert!((&mut future).now_or_never().is_none());
        waiting.push(future);
    }
    drop(hold);
    let answers = futures::future::join_all(waiting).await;
    for (answer, session) in answers.into_iter().zip(&sessions) {
        if session == bad {
            let refused = answer.unwrap_err();
            assert!(
                matches!(&refused, AppendError::Unavailable { reason } if reason.contains("cannot be read")),
                "{refused:?}"
            );
        } else {
            assert_eq!(answer.unwrap().head, 1);
        }
    }
}

/// R12: a batch that aborts is retried one by one, with the same ids.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_the_server_cannot_take_fails_alone() {
    let Some(at) = behind() else { return };
    at.database
        .execute(
            "CREATE FUNCTION tenure.refuse() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN \
             RAISE EXCEPTION 'not this one' USING ERRCODE = '22023'; END $$; \
             CREATE TRIGGER refuse BEFORE INSERT ON tenure.event FOR EACH ROW \
             WHEN (NEW.body LIKE '%poison%') EXECUTE FUNCTION tenure.refuse()",
        )
        .unwrap();
    let mut sessions = Vec::new();
    for _ in 0..6 {
        sessions.push(at.w.create().await);
    }
    let hold = at.store.hold_writer();
    let mut waiting = Vec::new();
    for (n, session) in sessions.iter().enumerate() {
        let title = if n == 2 { "poison" } else { "fine" };
        let append = Append::unfenced(session.clone(), vec![at.w.renamed(title)]);
        let mut future = at.store.append(append);
        assert!((&mut future).now_or_never().is_none());
        waiting.push(future);
    }
    drop(hold);
    let answers = futures::future::join_all(waiting).await;
    for (n, (answer, session)) in answers.into_iter().zip(&sessions).enumerate() {
        if n == 2 {
            let refused = answer.unwrap_err();
            assert!(
                matches!(&refused, AppendError::Unavailable { reason } if reason.contains("not this one")),
                "{refused:?}"
            );
        } else {
            assert_eq!(answer.unwrap().head, 1);
        }
        assert_eq!(at.titles(session).await, if n == 2 { 1 } else { 2 });
    }
}

fn interrupt(w: &World, session: &SessionId) -> Interrupt {
    Interrupt {
        session: session.clone(),
        interrupt: InterruptId::from_bits(w.bits()),
        execution: None,
        by: "test".to_owned(),
        now_ms: 1,
    }
}

/// Somebody's long transaction on one session's row stops the interrupts of no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupt_that_waits_for_a_lock_keeps_no_other_waiting() {
    let Some(at) = behind() else { return };
    let (free, _owner) = at.owner().await;
    for _ in 0..10 {
        let (stuck, _owner) = at.owner().await;
        let client = at.holder(&stuck).await;
        let mut waits = at.store.interrupt(interrupt(&at.w, &stuck));
        assert!((&mut waits).now_or_never().is_none());
        at.until_it_waits_for_a_lock();
        let other = at.store.interrupt(interrupt(&at.w, &free)).await;
        let waiting = (&mut waits).now_or_never();
        client.batch_execute("ROLLBACK").await.unwrap();
        assert!(
            matches!(other, Ok(Interrupted::Accepted { .. })),
            "{other:?}"
        );
        match waiting {
            None => {
                // It may still be told that it waited too long.
                let _ = waits.await;
                return;
            }
            // On a busy machine its patience was over before the other came; that is not always so.
            Some(told) => assert!(told.is_err()),
        }
    }
    panic!("the interrupt of a free session waited for the lock of another");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_session_is_told_by_whom_and_since_when() {
    let Some(at) = behind() else { return };
    let (stuck, _owner) = at.owner().await;
    let client = at.holder(&stuck).await;
    let who = "SELECT pg_backend_pid()::TEXT, to_char(xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') \
               FROM pg_stat_activity WHERE pid = pg_backend_pid()";
    let row = client.query_one(who, &[]).await.unwrap();
    let (pid, since): (&str, &str) = (row.get(0), row.get(1));
    let refused = at
        .store
        .interrupt(interrupt(&at.w, &stuck))
        .await
        .unwrap_err();
    let append = Append::unfenced(stuck.clone(), vec![at.w.renamed("x")]);
    for refused in [refused, at.store.append(append).await.unwrap_err()] {
        assert!(
            matches!(refused, AppendError::Unavailable { .. }),
            "{refused:?}"
        );
        let told = refused.to_string();
        for part in [
            format!("session {stuck} is locked by the server's process {pid}"),
            format!("since {since} UTC"),
            format!("pg_terminate_backend({pid})"),
        ] {
            assert!(told.contains(&part), "{part}: {told}");
        }
    }
    client.batch_execute("ROLLBACK").await.unwrap();
    let accepted = at.store.interrupt(interrupt(&at.w, &stuck)).await;
    assert!(matches!(accepted, Ok(Interrupted::Accepted { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_and_interrupts_wait_for_no_batch() {
    let Some(at) = behind() else { return };
    let (session, owner) = at.owner().await;
    let hold = at.store.hold_writer();
    let mut waiting = Vec::new();
    for n in 0..50 {
        let append = Append::unfenced(session.clone(), vec![at.w.renamed(&n.to_string())]);
        let store = Arc::clone(&at.store);
        waiting.push(tokio::spawn(async move { store.append(append).await }));
    }
    let renewed = at.store.renew(&owner.fence.owner).await.unwrap();
    assert_eq!(renewed, Renewal::Renewed);
    let interrupted = at.store.interrupt(Interrupt {
        session: session.clone(),
        interrupt: InterruptId::from_bits(at.w.bits()),
        execution: None,
        by: "test".to_owned(),
        now_ms: 1,
    });
    assert!(matches!(
        interrupted.await.unwrap(),
        Interrupted::Accepted { .. }
    ));
    drop(hold);
    for append in waiting {
        append.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_a_server_that_restarts_loses_nothing_it_acknowledged() {
    if shared_or_skip().is_none() {
        return;
    }
    let cluster = Cluster::start(&Servers::disposable()).unwrap();
    let database = cluster.database().unwrap();
    let url = place(database.url(), "tenure");
    let store = PostgresStore::open(&url, Options::default()).unwrap();
    let w = World::new(Box::new(Bare(Arc::clone(&store))));
    let session = w.create().await;
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let done = Arc::new(AtomicUsize::new(0));
    let some_more = || {
        let before = done.load(Ordering::SeqCst);
        tokio::task::block_in_place(|| {
            wait::until_true("acknowledged events", wait::PATIENCE, || {
                done.load(Ordering::SeqCst) > before + 20
            })
            .unwrap();
        });
    };
    let writer = {
        let done = Arc::clone(&done);
        let (store, session) = (Arc::clone(&store), session.clone());
        let events: Vec<_> = (0..100_000).map(|n| w.renamed(&n.to_string())).collect();
        tokio::spawn(async move {
            let mut acknowledged = Vec::new();
            for event in events {
                let id = event.id.clone();
                // The same event again is the same event: that is how an admission rides an outage out.
                loop {
                    let append = Append::unfenced(session.clone(), vec![event.clone()]);
                    match store.append(append).await {
                        Ok(_) => break,
                        Err(AppendError::Unavailable { .. } | AppendError::Unknown { .. }) => {
                            // tidy: sleep ok because it only paces the tries.
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                        Err(other) => panic!("{other:?}"),
                    }
                }
                acknowledged.push(id);
                done.fetch_add(1, Ordering::SeqCst);
                if stopped.try_recv().is_ok() {
                    break;
                }
            }
            acknowledged
        })
    };
    for how in [Stop::Fast, Stop::Immediate] {
        some_more();
        tokio::task::block_in_place(|| cluster.restart(how)).unwrap();
    }
    some_more();
    stop.send(()).unwrap();
    let acknowledged = writer.await.unwrap();
    let log = w.log(&session).await;
    let stored: Vec<_> = log[1..].iter().map(|event| event.id.clone()).collect();
    assert_eq!(stored, acknowledged, "each once, in order");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_whose_connection_went_silent_is_done_on_a_new_one() {
    let Some(at) = behind() else { return };
    let node = lasting(&at.w).await;
    assert_eq!(at.store.renew(&node).await.unwrap(), Renewal::Renewed);
    let before = at.proxy.counts().connections;
    at.proxy.flows(Flow::Swallow);
    let (store, id) = (Arc::clone(&at.store), node.clone());
    let renewal = tokio::spawn(async move { store.renew(&id).await });
    // It gave up on the silent connection and dials; that attempt is lost in the same silence.
    tokio::task::block_in_place(|| {
        wait::until_true("a new connection", wait::PATIENCE, || {
            at.proxy.counts().connections > before
        })
        .unwrap();
        at.proxy.heal().unwrap();
    });
    assert_eq!(renewal.await.unwrap().unwrap(), Renewal::Renewed);
}
