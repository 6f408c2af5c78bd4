//! What dead nodes leave beside the store is removed; what the living hold stays.

use crate::sqlite_backend::fresh;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tenure_core::id::Incarnation;
use tenure_store::conformance::World;
use tenure_store::*;

struct Node {
    incarnation: Incarnation,
    address: PathBuf,
    _listener: UnixListener,
}

async fn node(store: &Arc<SqliteStore>, folder: &Path, bits: u128) -> Node {
    let incarnation = Incarnation::from_bits(bits);
    let address = folder.join(format!("{incarnation}.sock"));
    let listener = UnixListener::bind(&address).unwrap();
    store
        .join(NodeInfo {
            incarnation: incarnation.clone(),
            name: "test".to_owned(),
            address: Some(address.display().to_string()),
            serves: tenure_core::placement::Serves::everywhere(),
            lease: Duration::from_secs(60),
        })
        .await
        .unwrap();
    Node {
        incarnation,
        address,
        _listener: listener,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sockets_and_locks_of_dead_nodes_are_removed_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let store = SqliteStore::open(&path, OpenOptions::default()).unwrap();
    let lock = |node: &Node| {
        let name = format!("{}.lock", node.incarnation);
        dir.path().join("t.db.nodes").join(name)
    };
    let (living, crashed, left) = (
        node(&store, dir.path(), 1).await,
        node(&store, dir.path(), 2).await,
        node(&store, dir.path(), 3).await,
    );
    store.crash_node(&crashed.incarnation);
    let buried = store.reap(&living.incarnation).await.unwrap();
    assert_eq!(buried, std::slice::from_ref(&crashed.incarnation));
    assert!(!crashed.address.exists() && !lock(&crashed).exists());
    store.leave(&left.incarnation).await.unwrap();
    // A node that died before its row was there, and a path that is no socket any more.
    let unrelated = dir.path().join("t.db.nodes").join("unrelated.lock");
    let stillborn = dir
        .path()
        .join("t.db.nodes")
        .join(format!("{}.lock", Incarnation::from_bits(9)));
    std::fs::write(&unrelated, "").unwrap();
    std::fs::write(&stillborn, "").unwrap();
    std::fs::write(&crashed.address, "somebody's file").unwrap();
    store.gc().await.unwrap();
    assert!(!left.address.exists() && !lock(&left).exists());
    assert!(!stillborn.exists());
    assert!(unrelated.exists(), "not the lock of a node");
    assert!(crashed.address.exists(), "not a socket");
    assert!(living.address.exists() && lock(&living).exists());
    assert!(store.reap(&living.incarnation).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_incarnation_joins_once() {
    let w = World::new(fresh());
    let incarnation = w.join().await;
    let again = NodeInfo {
        incarnation: incarnation.clone(),
        name: "again".to_owned(),
        address: None,
        serves: tenure_core::placement::Serves::everywhere(),
        lease: Duration::from_secs(60),
    };
    let refused = w.store.join(again).await;
    assert_eq!(refused, Err(NodeError::NotLive(incarnation)));
    assert_eq!(w.store.nodes().await.unwrap().len(), 1);
}
