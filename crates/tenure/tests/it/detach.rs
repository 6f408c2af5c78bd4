//! Background nodes: `--detach`, and a terminal that closes.

use crate::support::*;
use tenure_testbed::postgres::Stop;

pub const WAITS: &str = r#"
version = 1
select = "history"
[[turn]]
skip_if_contains = "WAITED"
part = [{ call = { name = "bash", input = { command = "touch started; while [ ! -e go ]; do sleep 0.02; done; echo WAIT$(echo ED)" } } }]
[[turn]]
part = [{ text = "Finished in the background." }]
"#;

/// A node that has left holds no socket beside the store.
fn sockets(place: &Place) -> usize {
    let folder = place.path("home/.local/share/tenure/tenure.db.nodes");
    let files = std::fs::read_dir(folder).unwrap().filter_map(Result::ok);
    files
        .filter(|e| e.path().extension().is_some_and(|x| x == "sock"))
        .count()
}

fn nodes_gone(place: &Place) {
    wait("the background node's end", || {
        (sockets(place) == 0).then_some(())
    });
}

#[test]
fn real_detach_returns_at_once_and_a_node_finishes() {
    let place = Place::new(WAITS);
    let out = place.run(&["run", "go", "--detach"]).exits(0);
    let session = out.stdout.trim().to_owned();
    assert_eq!(session, place.only_session());
    wait_for_file(&place.path("project/started"));
    assert_eq!(place.row(&session)["state"], "owned");
    assert_eq!(place.row(&session)["node"], "node");
    let follower = place.start(&["log", &session, "--follow", "--until-idle"]);
    place.write("project/go", "");
    let out = finish(follower).exits(0);
    assert!(
        out.stdout.contains("Finished in the background."),
        "{}",
        out.stdout
    );
    nodes_gone(&place);
    use std::os::unix::fs::PermissionsExt;
    let log = std::fs::metadata(place.path("home/.local/state/tenure/node.log")).unwrap();
    assert_eq!(log.permissions().mode() & 0o777, 0o600);
}

const TWO_STEPS: &str = r#"
version = 1
select = "history"
[[turn]]
skip_if_contains = "STEP-ONE"
part = [{ call = { name = "bash", input = { command = "touch started; while [ ! -e go ]; do sleep 0.02; done; echo STEP-$(echo ONE)" } } }]
[[turn]]
skip_if_contains = "STEP-TWO"
part = [{ call = { name = "bash", input = { command = "while [ ! -e on ]; do sleep 0.02; done; echo STEP-$(echo TWO)" } } }]
[[turn]]
part = [{ text = "Finished after the hang-up." }]
"#;

#[test]
fn real_a_closed_terminal_hands_over_to_a_node() {
    let place = Place::new(TWO_STEPS);
    let child = place.start(&["run", "go"]);
    wait_for_file(&place.path("project/started"));
    let session = place.only_session();
    signal(&child, "HUP");
    // The node is started once nothing new starts here.
    wait("the node's socket", || (sockets(&place) == 2).then_some(()));
    // The safe boundary comes when the call under way has ended.
    place.write("project/go", "");
    let out = finish(child).exits(0);
    assert_eq!(out.stdout, "");
    wait("the node", || {
        (place.row(&session)["node"] == "node").then_some(())
    });
    place.write("project/on", "");
    place.wait_for_event(&session, "execution.succeeded");
    // A hand-over is no crash: nothing was repeated, nothing is unknown.
    let events = place.events(&session);
    assert!(
        !events
            .iter()
            .any(|e| e["data"]["failure"] == "outcome_unknown"),
        "{events:?}"
    );
    let types: Vec<_> = events
        .iter()
        .map(|e| (e["epoch"].as_u64(), e["type"].as_str()))
        .collect();
    let started = types
        .iter()
        .filter(|(_, t)| *t == Some("tool.started"))
        .count();
    assert_eq!(started, 2, "{types:#?}");
    nodes_gone(&place);
}

#[test]
fn real_a_node_knows_what_a_trusted_project_configures() {
    let place = Place::new(HELLO);
    let config = std::fs::read_to_string(place.config()).unwrap();
    place.write_config("max_steps = 9\n");
    place.write("project/.tenure/config.toml", &config);
    let out = place.run(&["run", "go", "--detach"]).exits(2);
    assert!(out.stderr.contains("tenure trust"), "{}", out.stderr);
    place.run(&["trust"]).exits(0);
    let session = place
        .run(&["run", "go", "--detach"])
        .exits(0)
        .stdout
        .trim()
        .to_owned();
    place.wait_for_event(&session, "execution.succeeded");
    nodes_gone(&place);
}

/// What was left to work on its own is nobody's when its process ends.
#[test]
fn real_a_background_node_outlives_an_outage_of_its_database() {
    let Some((server, cluster)) = crate::outages::cluster() else {
        return;
    };
    let mut detach = cluster.command(&["run", "go", "--detach"]);
    detach.env("TENURE_LOG", "tenure=debug");
    let out = finish(detach.spawn().unwrap()).exits(0);
    let session = out.stdout.trim().to_owned();
    wait_for_file(&cluster.place.path("project/started"));
    server.stop(Stop::Fast).unwrap();
    let log = cluster.place.path("home/.local/state/tenure/node.log");
    let told = |what: &str| std::fs::read_to_string(&log).unwrap().matches(what).count();
    cluster.until("its fence", || told("stopping all work") > 0);
    // Nothing runs in it now, and it looks at a store that is away.
    let looks = "what is left to do cannot be read";
    cluster.until("looks at a store that is away", || told(looks) >= 2);
    cluster.place.write("project/go", "");
    server.start_again().unwrap();
    cluster.until("its answer", || {
        let log = cluster.lines(&["log", &session, "--json"]);
        log.iter().any(|e| e["type"] == "execution.succeeded")
    });
    // And then it ends, as it was told to.
    cluster.until("the node's end", || {
        cluster.lines(&["nodes", "--json"]).is_empty()
    });
}
