//! Failovers: what a process wrote is compared with what the new server has, once for all of its writers.

use crate::postgres_backend::{Bare, copy, lasting, place, set_back};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::event::body::Delivery;
use tenure_core::id::*;
use tenure_store::conformance::World;
use tenure_store::conformance::world::*;
use tenure_store::postgres::{Options, PostgresStore};
use tenure_store::*;
use tenure_testbed::postgres::{
    Cluster, Database, Options as Servers, Standby, Stop, shared_or_skip,
};
use tenure_testbed::proxy::Proxy;
use tenure_testbed::wait;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_a_failover_that_rewound_the_log_is_noticed_and_said() {
    if shared_or_skip().is_none() {
        return;
    }
    let primary = Cluster::start(&Servers::disposable()).unwrap();
    let database = primary.database().unwrap();
    let proxy = Proxy::before_postgres(primary.address()).unwrap();
    let url = place(&proxy.url(database.url()), "tenure");
    let store = PostgresStore::open(&url, Options::default()).unwrap();
    let w = World::new(Box::new(Bare(Arc::clone(&store))));
    let (kept, lost, idle) = (w.create().await, w.create().await, w.create().await);
    let node = lasting(&w).await;
    let mut first = w.acquire(&kept, &node).await;
    let mut second = w.acquire(&lost, &node).await;
    for owner in [&mut first, &mut second] {
        let event = vec![w.renamed("both have it")];
        owner
            .append(Guard::Settling, event, Vec::new())
            .await
            .unwrap();
    }
    // The writer of interrupts has its connection, too.
    store.interrupt(w.interrupt(&idle, None)).await.unwrap();
    let standby = tokio::task::block_in_place(|| primary.standby()).unwrap();
    tokio::task::block_in_place(|| {
        standby.catch_up(&primary).unwrap();
        // A standby is refused as a store.
        let refused = PostgresStore::open(
            &place(&standby.server().url_of(database.name()), "tenure"),
            Options::default(),
        );
        let refused = refused.unwrap_err();
        assert!(matches!(refused, OpenError::Standby { .. }), "{refused}");
        standby.hold_back().unwrap();
    });
    // An admission has no fence and changes none.
    let admission = w.admit(&lost).await;
    let had = w.log(&lost).await;
    let promoted = tokio::task::block_in_place(|| {
        primary.stop(Stop::Immediate).unwrap();
        let promoted = standby.promote().unwrap();
        proxy.retarget(promoted.address());
        proxy.cut();
        promoted
    });
    // Whoever worked from memory is stopped, whatever became of it; nothing of that memory is written.
    for (owner, what) in [(&mut second, "lost"), (&mut first, "kept")] {
        assert_eq!(
            refusal(&w, owner).await,
            AppendError::StaleClaim {
                session: if what == "lost" {
                    lost.clone()
                } else {
                    kept.clone()
                }
            }
        );
    }
    assert_eq!(w.log(&lost).await, had[..had.len() - 1]);
    assert!(store.inbox(&lost).await.unwrap().is_empty());
    let health = store.health().await.unwrap();
    assert_eq!(health.problems.len(), 1, "{:?}", health.problems);
    assert!(
        health.problems[0].contains(lost.as_str()),
        "{:?}",
        health.problems
    );
    // Their owner takes them up again from what there is, and is not charged.
    let mut owners = Vec::new();
    for session in [&kept, &lost] {
        let Acquire::Acquired(tenure) = store.adopt(session, &node).await.unwrap() else {
            panic!("not adopted");
        };
        assert!(!tenure.charged && tenure.attempts == 0, "{tenure:?}");
        assert_eq!(tenure.head, w.log(session).await.last().unwrap().seq);
        let mut owner = Owner::new(&w.store, session, tenure);
        let on = vec![w.renamed("on")];
        owner.append(Guard::Settling, on, Vec::new()).await.unwrap();
        owners.push(owner);
    }
    // Another writer, which comes to the new server only now, takes nothing out of their hands again.
    store.interrupt(w.interrupt(&idle, None)).await.unwrap();
    let on = vec![w.renamed("still on")];
    owners[0]
        .append(Guard::Settling, on, Vec::new())
        .await
        .unwrap();
    // The prompt is not there, and may be admitted again under its own id.
    let again = w.event(admitted(&admission, Delivery::Steer));
    w.write(&lost, again).await;
    assert_eq!(store.inbox(&lost).await.unwrap().len(), 1);
    drop(promoted);
}

/// The server is stopped and started from a copy: its timeline is the one it was. What this process owns is behind what
/// it wrote, which its next connection notices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_went_back_on_its_timeline_is_noticed_and_said() {
    let Some(server) = shared_or_skip() else {
        return;
    };
    let database = server.database().unwrap();
    let url = place(database.url(), "tenure");
    let store = PostgresStore::open(&url, Options::default()).unwrap();
    let w = World::new(Box::new(Bare(Arc::clone(&store))));
    let (kept, lost, gone) = (w.create().await, w.create().await, w.create().await);
    let (idle, node) = (w.create().await, lasting(&w).await);
    let mut first = w.acquire(&kept, &node).await;
    let mut second = w.acquire(&lost, &node).await;
    w.acquire(&gone, &node).await;
    copy(&database);
    // It has no fence, and changes none.
    w.admit(&lost).await;
    // Nothing went back: a connection that is made anew takes nothing out of anybody's hands, and what is not there was
    // deleted by somebody.
    let delete = format!("DELETE FROM tenure.session WHERE id = '{gone}'");
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE datname = current_database() AND pid <> pg_backend_pid()";
    database.execute(&format!("{delete}; {cut}")).unwrap();
    let event = w.renamed("over a new connection");
    let append = || Append::unfenced(idle.clone(), vec![event.clone()]);
    while let Err(refused) = store.append(append()).await {
        let away = matches!(
            refused,
            AppendError::Unavailable { .. } | AppendError::Unknown { .. }
        );
        assert!(away, "{refused:?}");
    }
    assert!(store.health().await.unwrap().problems.is_empty());
    second
        .append(Guard::Settling, vec![w.renamed("lost")], Vec::new())
        .await
        .unwrap();
    database.execute(&format!("{}; {cut}", set_back())).unwrap();
    for owner in [&mut second, &mut first] {
        let session = owner.session.clone();
        assert_eq!(
            refusal(&w, owner).await,
            AppendError::StaleClaim { session }
        );
    }
    let health = store.health().await.unwrap();
    assert_eq!(health.problems.len(), 1, "{:?}", health.problems);
    assert!(
        health.problems[0].contains(lost.as_str()),
        "{:?}",
        health.problems
    );
    let Acquire::Acquired(tenure) = store.adopt(&lost, &node).await.unwrap() else {
        panic!("not adopted");
    };
    let mut owner = Owner::new(&w.store, &lost, tenure);
    let on = vec![w.renamed("on")];
    owner.append(Guard::Settling, on, Vec::new()).await.unwrap();
}

/// What an owner's append is refused with, once there is a server that answers.
async fn refusal(w: &World, owner: &mut Owner) -> AppendError {
    loop {
        let event = w.renamed("from a memory of what is lost");
        let ids = [event.id.clone()];
        let session = owner.session.clone();
        match owner.append(Guard::Settling, vec![event], Vec::new()).await {
            Ok(committed) => panic!("{committed:?}"),
            Err(AppendError::Unavailable { .. }) => {}
            Err(AppendError::Unknown { .. }) => {
                match w.store.resolve(&session, &owner.fence, &ids).await {
                    Ok(found) => owner.resolved(found.as_ref()),
                    Err(AppendError::Unavailable { .. } | AppendError::Unknown { .. }) => {}
                    Err(refused) => return refused,
                }
            }
            Err(refused) => return refused,
        }
        // tidy: sleep ok because it only paces the tries.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A store behind a proxy before a primary that goes on after its standby was promoted: what a writer's connection
/// leads to depends on when it was made.
struct Split {
    w: World,
    store: Arc<PostgresStore>,
    node: Incarnation,
    /// A session on which nothing ever happens: interrupting it only makes that writer connect.
    idle: SessionId,
    proxy: Proxy,
    database: Database,
    primary: Cluster,
}

/// Connections of the server's that are the node's own, by their names.
type Pids = BTreeSet<String>;

impl Split {
    async fn start() -> Option<Self> {
        shared_or_skip()?;
        let primary = Cluster::start(&Servers::disposable()).unwrap();
        let database = primary.database().unwrap();
        let proxy = Proxy::before_postgres(primary.address()).unwrap();
        let url = place(&proxy.url(database.url()), "tenure");
        let store = PostgresStore::open(&url, Options::default()).unwrap();
        let w = World::new(Box::new(Bare(Arc::clone(&store))));
        let (idle, node) = (w.create().await, lasting(&w).await);
        Some(Self {
            w,
            store,
            node,
            idle,
            proxy,
            database,
            primary,
        })
    }

    /// The node's connections on `server`.
    fn pids(&self, server: &Cluster) -> Pids {
        let named = format!(
            "SELECT coalesce(string_agg(pid::TEXT, ','), '') FROM pg_stat_activity \
             WHERE application_name = 'tenure/{}' AND NOT EXISTS \
             (SELECT 1 FROM pg_locks l WHERE l.pid = pg_stat_activity.pid AND l.locktype = 'advisory')",
            self.node
        );
        let found = server.server().value(&named).unwrap().unwrap_or_default();
        let found = found.split(',').filter(|pid| !pid.is_empty());
        found.map(str::to_owned).collect()
    }

    /// The writer of interrupts makes sure of its connection; what it has on `server` that was not there `before`.
    async fn interrupts(&self, server: &Cluster, before: &Pids) -> Pids {
        loop {
            let asked = self.w.interrupt(&self.idle, None);
            match self.store.interrupt(asked).await {
                Ok(Interrupted::Idle) => break,
                Err(AppendError::Unavailable { .. } | AppendError::Unknown { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        &self.pids(server) - before
    }

    /// Ends connections, and waits until they are gone.
    fn end(&self, server: &Cluster, pids: &Pids) {
        assert!(!pids.is_empty());
        for pid in pids {
            let end = format!("SELECT pg_terminate_backend({pid})");
            server.server().value(&end).unwrap();
        }
        tokio::task::block_in_place(|| {
            wait::until_true("the end of connections", wait::PATIENCE, || {
                self.pids(server).is_disjoint(pids)
            })
            .unwrap();
        });
    }

    /// A standby that has everything up to now and is a server of its own; new connections lead to it.
    fn fail_over(&self) -> Cluster {
        tokio::task::block_in_place(|| {
            let standby: Standby = self.primary.standby().unwrap();
            standby.catch_up(&self.primary).unwrap();
            standby.hold_back().unwrap();
            let promoted = standby.promote().unwrap();
            self.proxy.retarget(promoted.address());
            promoted
        })
    }

    async fn owner(&self) -> Owner {
        let session = self.w.create().await;
        let mut owner = self.w.acquire(&session, &self.node).await;
        self.on(&mut owner).await;
        owner
    }

    async fn on(&self, owner: &mut Owner) {
        let event = vec![self.w.renamed("on")];
        owner
            .append(Guard::Settling, event, Vec::new())
            .await
            .unwrap();
    }

    /// What the owner remembers is refused; it takes its session up again.
    async fn anew(&self, owner: &mut Owner) {
        let session = owner.session.clone();
        let stale = AppendError::StaleClaim {
            session: session.clone(),
        };
        assert_eq!(refusal(&self.w, owner).await, stale);
        let adopted = self.store.adopt(&session, &self.node).await.unwrap();
        let Acquire::Acquired(tenure) = adopted else {
            panic!("{adopted:?}");
        };
        *owner = Owner::new(&self.w.store, &session, tenure);
        self.on(owner).await;
    }
}

/// Each writer finds a failover out by its own connection. The first that does fences everything; one that comes
/// later fences only what its old connection took meanwhile, and nothing a second time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_only_what_an_old_connection_took_later_is_fenced_once_more() {
    let Some(at) = Split::start().await else {
        return;
    };
    let (mut taken, mut other) = (at.owner().await, at.owner().await);
    let appends = at.pids(&at.primary);
    let interrupts = at.interrupts(&at.primary, &appends).await;
    let promoted = at.fail_over();
    at.end(&at.primary, &appends);
    at.anew(&mut taken).await;
    at.anew(&mut other).await;
    let appends = at.pids(&promoted);
    // The writer of interrupts is still with the old server, which takes this one and loses it.
    let interrupt = at.w.interrupt(&taken.session, None);
    let accepted = at.store.interrupt(interrupt).await.unwrap();
    assert!(matches!(accepted, Interrupted::Accepted { .. }));
    assert!(at.pids(&at.primary).is_superset(&interrupts));
    at.end(&at.primary, &interrupts);
    let interrupts = at.interrupts(&promoted, &appends).await;
    at.on(&mut other).await;
    at.anew(&mut taken).await;
    at.end(&promoted, &interrupts);
    at.interrupts(&promoted, &appends).await;
    at.on(&mut other).await;
    at.on(&mut taken).await;
}

/// A connection that is lost between noticing the failover and fencing leaves both to the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_a_fencing_that_was_interrupted_is_done_again() {
    let Some(at) = Split::start().await else {
        return;
    };
    let (mut held, mut other) = (at.owner().await, at.owner().await);
    let promoted = at.fail_over();
    let url = promoted.server().url_of(at.database.name());
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let lock = format!(
        "BEGIN; SELECT 1 FROM tenure.session WHERE id = '{}' FOR UPDATE",
        held.session
    );
    client.batch_execute(&lock).await.unwrap();
    // All that lead there: the second writer may have connected only now.
    at.end(&at.primary, &at.pids(&at.primary));
    let event = at.w.renamed("meets the failover");
    let idle = at.idle.clone();
    let append = move || Append::unfenced(idle.clone(), vec![event.clone()]);
    let store = Arc::clone(&at.store);
    // Its connection is not made before the fencing is done: until then it is tried again and again.
    let meets = tokio::spawn(async move {
        while let Err(refused) = store.append(append()).await {
            let soon = matches!(
                refused,
                AppendError::Unavailable { .. } | AppendError::Unknown { .. }
            );
            assert!(soon, "{refused:?}");
        }
    });
    let waiting = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE wait_event_type = 'Lock' AND query LIKE '%epoch + 1%'";
    tokio::task::block_in_place(|| {
        wait::until_true("a fencing that waits", wait::PATIENCE, || {
            promoted.server().value(waiting).unwrap().is_some()
        })
        .unwrap();
    });
    client.batch_execute("ROLLBACK").await.unwrap();
    meets.await.unwrap();
    at.anew(&mut held).await;
    at.anew(&mut other).await;
}

/// What an old connection put into the cache may look like what the new server has, number by number: the writer
/// that comes late forgets it, also when it has nothing to fence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_a_writer_that_comes_late_forgets_what_its_old_connection_saw() {
    let Some(at) = Split::start().await else {
        return;
    };
    let (mut owner, waiting) = (at.owner().await, at.w.create().await);
    at.w.admit(&waiting).await;
    let appends = at.pids(&at.primary);
    let interrupts = at.interrupts(&at.primary, &appends).await;
    let promoted = at.fail_over();
    at.end(&at.primary, &appends);
    at.anew(&mut owner).await;
    // On the old server what waits is stopped before it starts.
    let interrupt = at.w.interrupt(&waiting, None);
    let stopped = at.store.interrupt(interrupt).await.unwrap();
    assert!(
        matches!(stopped, Interrupted::StoppedBeforeStart { .. }),
        "{stopped:?}"
    );
    // On the new one as many writes make it the same number of another history.
    let url = place(&promoted.server().url_of(at.database.name()), "tenure");
    let elsewhere = PostgresStore::open(&url, Options::default()).unwrap();
    let there = Append::unfenced(waiting.clone(), vec![at.w.renamed("elsewhere")]);
    elsewhere.append(there).await.unwrap();
    at.end(&at.primary, &interrupts);
    at.interrupts(&promoted, &at.pids(&promoted)).await;
    at.w.write(&waiting, at.w.renamed("here")).await;
    let row = elsewhere.session(&waiting).await.unwrap().unwrap();
    assert!(
        matches!(row.state, SessionState::Claimable { .. }),
        "nobody stopped it in this history: {:?}",
        row.state
    );
}
