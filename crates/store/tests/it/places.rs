//! Places and files a store refuses, each in its own words; what it makes, and with which modes.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Barrier};
use tenure_store::conformance::World;
use tenure_store::*;

use crate::sqlite_backend::fresh;

fn open(path: &Path) -> Result<Arc<SqliteStore>, OpenError> {
    SqliteStore::open(path, OpenOptions::default())
}

/// A closed store with one session, its WAL folded back.
async fn written(path: &Path) {
    let store = open(path).unwrap();
    let world = World::new(fresh());
    for n in 0..40 {
        let session = tenure_core::SessionId::from_bits(n);
        let append = Append::unfenced(session, vec![world.created()]);
        store.append(append).await.unwrap();
    }
    store.gc().await.unwrap();
}

#[test]
fn bc_s_071_the_embedded_sqlite_is_sound() {
    assert!(
        rusqlite::version_number() >= 3_051_003,
        "{}",
        rusqlite::version()
    );
}

#[tokio::test]
async fn bc_s_075_a_newer_file_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    written(&path).await;
    rusqlite::Connection::open(&path)
        .unwrap()
        .pragma_update(None, "user_version", 99)
        .unwrap();
    let before = std::fs::read(&path).unwrap();
    let refused = open(&path).unwrap_err();
    assert!(
        matches!(refused, OpenError::Newer { found: 99, .. }),
        "{refused}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn bc_s_075_damage_is_an_error_never_an_empty_list() {
    let dir = tempfile::tempdir().unwrap();
    let garbage = dir.path().join("garbage.db");
    std::fs::write(&garbage, vec![b'x'; 9_000]).unwrap();
    let refused = open(&garbage).unwrap_err();
    assert!(matches!(refused, OpenError::Corrupt { .. }), "{refused}");
    assert!(
        refused.to_string().contains("recover"),
        "a way to salvage is named"
    );
    assert_eq!(std::fs::read(&garbage).unwrap(), vec![b'x'; 9_000]);

    let empty = dir.path().join("empty.db");
    std::fs::write(&empty, b"").unwrap();
    let refused = open(&empty).unwrap_err();
    assert!(refused.to_string().contains("empty"), "{refused}");
    assert_eq!(std::fs::metadata(&empty).unwrap().len(), 0);

    let damaged = dir.path().join("damaged.db");
    written(&damaged).await;
    let mut bytes = std::fs::read(&damaged).unwrap();
    // Every page but the first, which holds the header and the schema.
    bytes[4096..].fill(0xa5);
    std::fs::write(&damaged, &bytes).unwrap();
    let said = match open(&damaged) {
        Err(refused) => refused.to_string(),
        Ok(store) => store
            .sessions(SessionQuery::default())
            .await
            .unwrap_err()
            .to_string(),
    };
    assert!(
        said.contains("malformed") || said.contains("damaged"),
        "{said}"
    );
    assert_eq!(std::fs::read(&damaged).unwrap(), bytes);
}

#[test]
fn another_programs_database_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.db");
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch("CREATE TABLE mine(x)")
        .unwrap();
    let refused = open(&path).unwrap_err();
    assert!(refused.to_string().contains("another program"), "{refused}");
}

#[test]
fn a_network_file_system_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let options = OpenOptions {
        file_system: Some((0x6969, String::new())),
        ..OpenOptions::default()
    };
    let refused = SqliteStore::open(&path, options).unwrap_err();
    assert!(refused.to_string().contains("nfs"), "{refused}");
    assert!(!path.exists());
}

#[test]
fn a_place_that_cannot_be_a_folder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), b"x").unwrap();
    let refused = open(&dir.path().join("file/t.db")).unwrap_err();
    assert!(matches!(refused, OpenError::ReadOnly { .. }), "{refused}");
    let refused = open(dir.path()).unwrap_err();
    assert!(refused.to_string().contains("folder"), "{refused}");
}

#[tokio::test]
async fn bc_s_075_a_file_without_rights_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    written(&path).await;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
    // Root may do anything, so the test becomes somebody else where it is root.
    let said = crate::processes::as_nobody(dir.path(), "open", &path);
    assert!(said.contains("cannot be written"), "{said}");
}

#[tokio::test]
async fn what_it_makes_is_for_its_user_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/folder/t.db");
    let store = open(&path).unwrap();
    let world = World::new(fresh());
    let info = NodeInfo {
        incarnation: tenure_core::Incarnation::from_bits(1),
        name: "n".into(),
        address: None,
        serves: tenure_core::placement::Serves::everywhere(),
        lease: std::time::Duration::from_secs(6),
    };
    store.join(info).await.unwrap();
    let session = tenure_core::SessionId::from_bits(1);
    store
        .append(Append::unfenced(session, vec![world.created()]))
        .await
        .unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    let mut files = 0;
    for entry in std::fs::read_dir(path.parent().unwrap()).unwrap() {
        let entry = entry.unwrap().path();
        let expected = if entry.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&entry), expected, "{}", entry.display());
        files += 1;
        for lock in std::fs::read_dir(&entry).into_iter().flatten() {
            assert_eq!(mode(&lock.unwrap().path()), 0o600);
        }
    }
    assert_eq!(files, 4, "the file, its WAL, its shared memory, the locks");
}

#[test]
fn a_race_for_a_fresh_file_has_one_result() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let barrier = Arc::new(Barrier::new(8));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (path, barrier) = (path.clone(), Arc::clone(&barrier));
            std::thread::spawn(move || {
                barrier.wait();
                open(&path).map(drop)
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), Ok(()));
    }
    let left: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains(".new-"))
        .collect();
    assert_eq!(left, [""; 0]);
}

/// A newer program has changed the file while this one had it open.
#[tokio::test]
async fn a_node_of_a_file_that_a_newer_program_changed_stops() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let store = SqliteStore::open(&path, OpenOptions::default()).unwrap();
    let node = tenure_store::NodeInfo {
        incarnation: tenure_core::id::Incarnation::from_bits(1),
        name: "old".to_owned(),
        address: None,
        serves: Default::default(),
        lease: std::time::Duration::from_secs(3_600),
    };
    let id = node.incarnation.clone();
    store.join(node).await.unwrap();
    assert_eq!(store.renew(&id).await, Ok(tenure_store::Renewal::Renewed));
    let newer = rusqlite::Connection::open(&path).unwrap();
    newer.pragma_update(None, "user_version", 99).unwrap();
    let refused = store.renew(&id).await.unwrap_err();
    assert!(
        matches!(&refused, tenure_store::NodeError::Outdated { reason } if reason.contains("schema 99")),
        "{refused:?}"
    );
}
