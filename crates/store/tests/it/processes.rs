//! Several processes on one file: fencing, takeover, wakes, locks, kills.
//!
//! A child is this test binary again, running the ignored test `child` with its part in the environment.

use futures::StreamExt;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tenure_core::id::*;
use tenure_store::conformance::World;
use tenure_store::conformance::world::eventually;
use tenure_store::*;

const PART: &str = "TENURE_STORE_TEST_PART";
const PATIENCE: Duration = Duration::from_secs(60);

fn command(part: &str, path: &Path, number: u32) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "processes::child",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(PART, format!("{part}\n{number}\n{}", path.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

/// Starts a child and waits until it says `line`.
pub fn child_at(part: &str, path: &Path, number: u32, line: &str) -> Child {
    let mut child = command(part, path, number).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(
        said.any(|text| text.unwrap().ends_with(line)),
        "the child never said {line}"
    );
    // The pipe stays open for as long as the child needs it.
    std::thread::spawn(move || said.for_each(drop));
    child
}

/// What a child that is not root says; as this user where that is nobody special.
pub fn as_nobody(folder: &Path, part: &str, path: &Path) -> String {
    let mut command = command(part, path, 0);
    if nix::unistd::geteuid().is_root() {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder, open).unwrap();
        command.uid(65_534).gid(65_534);
    }
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

fn open(path: &Path) -> Arc<SqliteStore> {
    SqliteStore::open(path, OpenOptions::default()).unwrap()
}

async fn join(store: &SqliteStore, number: u32) -> Incarnation {
    let incarnation = Incarnation::from_bits(u128::from(number) + 1_000_000);
    let info = NodeInfo {
        incarnation: incarnation.clone(),
        name: format!("child {number}"),
        address: None,
        serves: tenure_core::placement::Serves::everywhere(),
        lease: Duration::from_secs(6),
    };
    store.join(info).await.unwrap();
    incarnation
}

/// Ids of one child never meet those of another.
fn world_of(number: u32) -> World {
    let world = World::new(crate::sqlite_backend::fresh());
    for _ in 0..number * 1_000 {
        world.bits();
    }
    world
}

#[test]
#[ignore = "a part of other tests"]
fn child() {
    let Ok(part) = std::env::var(PART) else {
        return;
    };
    let mut words = part.splitn(3, '\n');
    let (part, number) = (
        words.next().unwrap(),
        words.next().unwrap().parse().unwrap(),
    );
    let path = Path::new(words.next().unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    match part {
        "open" => match SqliteStore::open(path, OpenOptions::default()) {
            Ok(_) => println!("opened"),
            Err(error) => println!("{error}"),
        },
        "own" => runtime.block_on(own(path, number)),
        "append" => runtime.block_on(append_many(path, number)),
        "admit" => runtime.block_on(admit(path)),
        "full" => runtime.block_on(fill(path)),
        "stop" => runtime.block_on(stop_inside(path)),
        other => panic!("no such part: {other}"),
    }
}

/// Owns session 1 and writes to it until it is killed.
async fn own(path: &Path, number: u32) {
    let (store, world) = (open(path), world_of(number));
    let node = join(&store, number).await;
    let session = SessionId::from_bits(1);
    let Acquire::Acquired(tenure) = store.acquire(&session, &node, true).await.unwrap() else {
        panic!("not acquired");
    };
    println!("owned");
    let mut fence = tenure.fence;
    for n in 0.. {
        let mut append = Append::unfenced(session.clone(), vec![world.renamed(&n.to_string())]);
        append.fence = Some(fence.clone());
        fence.write_no = store.append(append).await.unwrap().write_no;
        if n == 20 {
            println!("wrote");
        }
    }
}

/// Writes 500 events to its own session, ten at a time, and reads it whole now and then.
async fn append_many(path: &Path, number: u32) {
    let (store, world) = (open(path), world_of(number));
    let session = SessionId::from_bits(u128::from(number) + 500);
    store
        .append(Append::unfenced(session.clone(), vec![world.created()]))
        .await
        .unwrap();
    for round in 0..50 {
        let appends = (0..10).map(|n| {
            store.append(Append::unfenced(
                session.clone(),
                vec![world.renamed(&n.to_string())],
            ))
        });
        for done in futures::future::join_all(appends).await {
            done.unwrap();
        }
        if number < 2 || round % 25 == 0 {
            store.read(&session, None, 10_000).await.unwrap();
        }
    }
    println!("appended");
}

/// Accepts a prompt and waits to be killed.
async fn admit(path: &Path) {
    let store = with_session(path).await;
    let world = world_of(3);
    let input = world.event(tenure_store::conformance::world::admitted(
        &world.message(),
        tenure_core::event::body::Delivery::Steer,
    ));
    store
        .append(Append::unfenced(SessionId::from_bits(1), vec![input]))
        .await
        .unwrap();
    println!("admitted");
    std::future::pending().await
}

/// Runs a child on a file system of its own of 4 MB; what it said. None where none can be mounted.
pub fn as_full_disk(folder: &Path) -> Option<String> {
    let script = "mount -t tmpfs -o size=4m tmpfs \"$1\" || exit 42; shift; exec \"$@\"";
    let child = command("full", &folder.join("t.db"), 0);
    let mut outer = Command::new("unshare");
    outer
        .args(["-rm", "sh", "-c", script, "sh"])
        .arg(folder)
        .arg(child.get_program())
        .args(child.get_args());
    for (name, value) in child.get_envs() {
        outer.env(name, value.unwrap_or_default());
    }
    let output = outer.output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code() != Some(42) && said.contains("running 1 test")).then_some(said)
}

/// Writes until the disk is full, frees some room, goes on.
async fn fill(path: &Path) {
    let filler = path.with_file_name("filler");
    std::fs::write(&filler, vec![1; 1 << 20]).unwrap();
    let store = with_session(path).await;
    let (world, session) = (world_of(9), SessionId::from_bits(1));
    let text = "f".repeat(50_000);
    let mut acknowledged = 1;
    let refused = loop {
        let append = Append::unfenced(session.clone(), vec![world.renamed(&text)]);
        match store.append(append).await {
            Ok(_) => acknowledged += 1,
            Err(refused) => break refused,
        }
    };
    println!("refused: {refused}");
    assert_eq!(
        store
            .read(&session, None, 10_000)
            .await
            .unwrap()
            .events
            .len(),
        acknowledged
    );
    println!("as acknowledged");
    let new = SqliteStore::open(&path.with_file_name("new.db"), OpenOptions::default());
    println!(
        "opening: {}",
        new.map(|_| "opened".to_owned())
            .unwrap_or_else(|error| error.to_string())
    );
    std::fs::remove_file(&filler).unwrap();
    store
        .append(Append::unfenced(session, vec![world.renamed("small")]))
        .await
        .unwrap();
    sound(&store).await;
    println!("went on");
}

/// Stops itself in the middle of a write transaction.
async fn stop_inside(path: &Path) {
    static ARMED: AtomicBool = AtomicBool::new(false);
    struct Stopper;
    impl StoreClock for Stopper {
        fn boottime_ms(&self) -> i64 {
            SystemClock.boottime_ms()
        }
        fn wall_ms(&self) -> i64 {
            if ARMED.load(Ordering::SeqCst) {
                println!("stopping");
                nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP).unwrap();
            }
            SystemClock.wall_ms()
        }
        fn boot_id(&self) -> String {
            SystemClock.boot_id()
        }
    }
    let options = OpenOptions {
        clock: Arc::new(Stopper),
        ..OpenOptions::default()
    };
    let store = SqliteStore::open(path, options).unwrap();
    ARMED.store(true, Ordering::SeqCst);
    let world = world_of(7);
    let _ = store
        .append(Append::unfenced(
            SessionId::from_bits(9),
            vec![world.created()],
        ))
        .await;
}

async fn with_session(path: &Path) -> Arc<SqliteStore> {
    let store = open(path);
    let append = Append::unfenced(SessionId::from_bits(1), vec![world_of(50).created()]);
    store.append(append).await.unwrap();
    store
}

async fn sound(store: &SqliteStore) {
    assert_eq!(store.health().await.unwrap().problems, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_071_a_killed_owner_is_taken_over_at_once_and_the_file_is_sound() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let store = with_session(&path).await;
    let session = SessionId::from_bits(1);
    let me = join(&store, 99).await;
    for number in 0..4 {
        let mut child = child_at("own", &path, number, "wrote");
        let held = store.acquire(&session, &me, true).await.unwrap();
        assert!(matches!(held, Acquire::Held { .. }), "{held:?}");
        assert_eq!(store.reap(&me).await.unwrap(), []);
        child.kill().unwrap();
        child.wait().unwrap();
        // The list already shows that its owner is gone; nobody waits for a lease.
        let row = store.session(&session).await.unwrap().unwrap();
        assert!(
            matches!(row.state, SessionState::Claimable { .. }),
            "{:?}",
            row.state
        );
        assert_eq!(store.reap(&me).await.unwrap().len(), 1);
        let Acquire::Acquired(tenure) = store.acquire(&session, &me, true).await.unwrap() else {
            panic!("not acquired");
        };
        assert!(tenure.charged, "it was loading");
        let mut release = Append::unfenced(session.clone(), Vec::new());
        release.fence = Some(tenure.fence);
        release.ops = vec![HookOp::Release {
            only_when_idle: false,
            park: false,
        }];
        store.append(release).await.unwrap();
        sound(&store).await;
    }
    let page = store.read(&session, None, 1_000_000).await.unwrap();
    assert_eq!(page.events.len() as u64, page.head.unwrap() + 1);
    let epochs: Vec<_> = page.events.iter().filter_map(|event| event.epoch).collect();
    assert!(
        epochs.is_sorted(),
        "no event of an older epoch follows a newer one"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_sees_another_processs_commits() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let store = with_session(&path).await;
    let everything = store.watch_all();
    let mut follow = follow(
        Arc::<SqliteStore>::clone(&store),
        SessionId::from_bits(1),
        None,
    );
    let mut child = child_at("own", &path, 1, "owned");
    let mut next = 0;
    while next < 20 {
        let item = tokio::time::timeout(PATIENCE, follow.next()).await;
        if let FollowItem::Event(event) = item.expect("an event comes").unwrap().unwrap() {
            assert_eq!(event.seq, next);
            next += 1;
        }
    }
    assert!(everything.has_changed().unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_070_sixteen_processes_append_without_loss() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let store = with_session(&path).await;
    let children: Vec<_> = (0..16)
        .map(|n| command("append", &path, n).spawn().unwrap())
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
    for number in 0..16_u128 {
        let page = store
            .read(&SessionId::from_bits(number + 500), None, 10_000)
            .await
            .unwrap();
        assert_eq!((page.events.len(), page.head), (501, Some(500)));
    }
    sound(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_holder_of_the_write_lock_is_ended_after_a_lease() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let store = with_session(&path).await;
    let mut child = child_at("stop", &path, 0, "stopping");
    let started = std::time::Instant::now();
    let append = Append::unfenced(SessionId::from_bits(1), vec![world_of(60).renamed("on")]);
    store.append(append).await.unwrap();
    assert!(
        started.elapsed() >= Duration::from_secs(5),
        "not before a lease has passed"
    );
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(9));
    sound(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checkpoint_lock_passes_on_when_its_holder_goes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let first = with_session(&path).await;
    let second = open(&path);
    let lock = dir.path().join("t.db.nodes/checkpoint.lock");
    // Read from the kernel's table: a probe that takes the lock would be in the way.
    let held = || {
        let Ok(meta) = std::fs::metadata(&lock) else {
            return false;
        };
        let inode = format!(":{} ", std::os::unix::fs::MetadataExt::ino(&meta));
        let table = std::fs::read_to_string("/proc/locks").unwrap();
        table
            .lines()
            .any(|line| line.contains("FLOCK") && line.contains(&inode))
    };
    let world = world_of(70);
    let text = "c".repeat(100_000);
    let write = async |store: &SqliteStore| {
        for _ in 0..50 {
            let append = Append::unfenced(SessionId::from_bits(1), vec![world.renamed(&text)]);
            store.append(append).await.unwrap();
        }
    };
    assert!(!held());
    write(&first).await;
    eventually("the first to checkpoint", held).await;
    write(&second).await;
    drop(first);
    eventually("the lock to be free", || !held()).await;
    write(&second).await;
    eventually("the second to checkpoint", held).await;
    // The log is folded back and begins again instead of growing without end.
    for _ in 0..3 {
        write(&second).await;
    }
    let wal = std::fs::metadata(dir.path().join("t.db-wal"))
        .unwrap()
        .len();
    assert!(wal < 60_000_000, "{wal}");
    sound(&second).await;
}
