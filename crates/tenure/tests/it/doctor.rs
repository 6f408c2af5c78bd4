//! `tenure doctor` finds what is broken and says what to do.

use crate::nodes::{Cluster, Node};
use crate::support::*;

#[test]
fn everything_is_well_in_a_good_place() {
    let place = Place::new(HELLO);
    place.run(&["run", "x"]).exits(0);
    let out = place.run(&["doctor", "--json"]).exits(0);
    let checks = out.lines().remove(0)["checks"].as_array().unwrap().clone();
    assert!(
        checks.iter().all(|c| c["result"] == "good"),
        "{}",
        out.stdout
    );
    let names: Vec<_> = checks
        .iter()
        .map(|c| c["check"].as_str().unwrap())
        .collect();
    for name in [
        "configuration",
        "permissions",
        "model",
        "store",
        "provider",
        "tools",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    // It costs nothing: no request that a model would answer.
    assert_eq!(
        place
            .model()
            .requests()
            .iter()
            .filter(|r| r.turn.is_some())
            .count(),
        1
    );
}

#[test]
fn what_is_broken_is_said_with_the_next_step() {
    let place = Place::bare();
    let out = place.run(&["doctor"]).exits(1);
    assert!(
        out.stdout.contains("tenure config --example"),
        "{}",
        out.stdout
    );
    place.write_config(
        "default_model = \"p/m\"\n[providers.p]\nprotocol = \"openai-chat\"\nbase_url = \"http://127.0.0.1:9/v1\"\napi_key_env = \"UNSET\"\n",
    );
    let out = place.run(&["doctor", "--offline"]).exits(1);
    assert!(out.stdout.contains("UNSET is not set"), "{}", out.stdout);
    place.write_config("nonsense = 1\n");
    let out = place.run(&["doctor"]).exits(1);
    assert!(
        out.stdout.contains("unknown key `nonsense`"),
        "{}",
        out.stdout
    );
    assert!(!place.store().exists());
}

#[test]
fn a_wrong_path_and_a_refused_connection_are_told_apart() {
    let place = Place::new(HELLO);
    let config = std::fs::read_to_string(place.config()).unwrap();
    place.write_config(&config.replace("/v1\"", "/v9\""));
    let out = place.run(&["doctor"]).exits(1);
    assert!(out.stdout.contains("/v1"), "{}", out.stdout);
    place.write_config(&config.replace(&place.model().addr().port().to_string(), "9"));
    let out = place.run(&["doctor"]).exits(1);
    assert!(out.stdout.contains("✗ provider"), "{}", out.stdout);
}

#[test]
fn bc_s_126_files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new(HELLO);
    place.run(&["run", "x"]).exits(0);
    let mode =
        |path: std::path::PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(place.store()), 0o600);
    assert_eq!(mode(place.store().parent().unwrap().to_owned()), 0o700);
}

#[test]
fn a_store_that_was_overwritten_in_part_is_said_once_with_a_next_step() {
    use std::os::unix::fs::FileExt;
    let place = Place::new(HELLO);
    place.run(&["run", "x"]).exits(0);
    // Nothing of it may stand in the log beside it.
    place.run(&["gc"]).exits(0);
    for beside in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{beside}", place.store().display()));
    }
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(place.store())
        .unwrap();
    let len = file.metadata().unwrap().len();
    file.write_all_at(&vec![0x5a; usize::try_from(len - 4096).unwrap()], 4096)
        .unwrap();
    let out = place.run(&["doctor", "--offline"]).exits(1);
    let all = format!("{}{}", out.stdout, out.stderr);
    assert!(!all.contains("`tenure doctor` says more"), "{all}");
    assert!(
        all.contains("✗ store") && (all.contains("keep a copy") || all.contains("Keep a copy")),
        "{all}"
    );
}

/// A server that does not flush breaks the first promise, and a database that only reads runs nothing: both are found,
/// and whoever writes there is told at the start.
#[test]
fn a_server_that_does_not_flush_or_only_reads_is_broken_and_said_at_the_start() {
    let Some(cluster) = Cluster::new() else {
        return;
    };
    let out = cluster.run(&["run", "hi"]).exits(0);
    let told = |text: &str| text.matches("notice: NOT DURABLE").count();
    assert_eq!(told(&out.stderr), 1, "{}", out.stderr);
    let node = Node::of(cluster.command(&["node", "--name", "a"]).spawn().unwrap());
    cluster.until("node a", || !cluster.nodes().is_empty());
    let out = node.terminated().exits(0);
    assert_eq!(told(&out.stderr), 1, "{}", out.stderr);
    // Who only looks is not told.
    let out = cluster.run(&["sessions"]).exits(0);
    assert_eq!(told(&out.stderr), 0, "{}", out.stderr);
    let doctor = || cluster.run(&["doctor", "--offline"]).exits(1).stdout;
    let found = doctor();
    assert!(
        found.contains(
            "✗ store          NOT DURABLE: the server has fsync = off and full_page_writes = off"
        ) && found.contains("→ set fsync = on and full_page_writes = on"),
        "{found}"
    );
    assert!(!found.contains("only reads"), "{found}");
    let name = cluster.database.name();
    let only_reads = format!("ALTER DATABASE \"{name}\" SET default_transaction_read_only = on");
    cluster.database.execute(&only_reads).unwrap();
    let found = doctor();
    assert!(
        found.contains("✗ store          the database only reads") && found.contains("ALTER ROLE"),
        "{found}"
    );
}
