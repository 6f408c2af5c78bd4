//! Commands that follow what another node runs: how they end, what they answer, and what they say of it.

use crate::nodes::{Cluster, WAITS};
use crate::support::*;

/// The node has the session before anything here can take it: it is left to it, and then followed.
fn held_by_a_node(cluster: &Cluster, prompt: &[&str]) -> String {
    let out = cluster
        .run(&[&["run", "--detach"], prompt].concat())
        .exits(0);
    out.stdout.trim().to_owned()
}

#[test]
fn a_resume_that_a_node_carries_out_ends_as_the_work_does_however_quick_it_was() {
    let Some(cluster) = Cluster::new() else {
        return;
    };
    let node = cluster.node("a", &[]);
    let session = held_by_a_node(&cluster, &["hi"]);
    cluster.until("its end", || cluster.state(&session) == "idle");
    cluster
        .run(&["limits", &session, "--max-tokens", "1"])
        .exits(0);
    cluster.run(&["run", "-s", &session, "more"]).exits(4);
    for _ in 0..4 {
        let out = cluster.run(&["resume", &session]).exits(4);
        assert!(out.stderr.contains("error: "), "{}", out.stderr);
        let out = cluster.run(&["resume", &session, "--json"]).exits(4);
        let end = out.lines().pop().unwrap();
        assert_eq!(
            (&end["outcome"], &end["exit"]),
            (&"failed".into(), &4.into()),
            "{end}"
        );
    }
    let doctor = cluster.run(&["doctor", "--offline"]).stdout;
    assert!(doctor.contains("tries again"), "{doctor}");
    cluster
        .run(&["limits", &session, "--max-tokens", "none"])
        .exits(0);
    let out = cluster.run(&["resume", &session]).exits(0);
    assert_eq!(out.stdout.trim(), "Hello from the model.");
    node.terminated().exits(0);
}

#[test]
fn real_who_leaves_work_that_a_node_does_says_so() {
    let Some(cluster) = Cluster::with(WAITS) else {
        return;
    };
    let node = cluster.node("a", &[]);
    let session = held_by_a_node(&cluster, &["--allow-all", "go"]);
    wait_for_file(&cluster.place.path("project/started"));
    let follows = cluster
        .command(&["run", "-s", &session, "more"])
        .spawn()
        .unwrap();
    cluster.until("the prompt", || {
        let log = cluster.lines(&["log", &session, "--json"]);
        log.iter().filter(|e| e["type"] == "input.admitted").count() == 2
            && cluster.lines(&["nodes", "--json"]).len() == 2
    });
    signal(&follows, "TERM");
    let out = finish(follows).exits(130);
    assert!(
        out.stderr.contains("node `a` goes on") && !out.stderr.contains("free to be taken over"),
        "{}",
        out.stderr
    );
    cluster.place.write("project/go", "");
    cluster.until("its end", || cluster.state(&session) == "idle");
    node.terminated().exits(0);
}

#[test]
fn sessions_that_no_node_can_run_are_named_by_resume_all_and_doctor() {
    let Some(cluster) = Cluster::new() else {
        return;
    };
    let node = cluster.node("a", &["--root", "/nowhere"]);
    let mut requires = vec!["--requires", "gpu=yes"];
    requires.push("hi");
    let session = held_by_a_node(&cluster, &requires);
    cluster.until("its state", || cluster.state(&session) == "unplaceable");
    let out = cluster.run(&["resume", "--all"]).exits(1);
    let line = out.stdout.lines().find(|l| l.contains(&session)).unwrap();
    assert!(
        line.contains("unplaceable") && line.contains("gpu=yes"),
        "{line}"
    );
    assert!(
        !out.stderr.contains("no session has anything to do"),
        "{}",
        out.stderr
    );
    let doctor = cluster.run(&["doctor", "--offline"]).stdout;
    assert!(doctor.contains("gpu=yes"), "{doctor}");
    node.terminated().exits(0);
}
