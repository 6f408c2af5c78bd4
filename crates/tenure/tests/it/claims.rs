//! Who holds what, when whoever held it is gone and nobody is there to decide.

use crate::nodes::{Cluster, WAITS};
use crate::support::*;

#[test]
fn a_session_whose_owner_is_silent_is_listed_once_and_told_to_wait_for_the_next_node() {
    let Some(cluster) = Cluster::with(WAITS) else {
        return;
    };
    let node = cluster.node("a", &[]);
    let out = cluster.run(&["run", "go", "--detach"]).exits(0);
    let session = out.stdout.trim().to_owned();
    wait_for_file(&cluster.place.path("project/started"));
    let table = cluster.run(&["claims"]).exits(0).stdout;
    assert!(table.contains("owned, active"), "{table}");
    // Killed, and nobody is left who looks.
    drop(node);
    cluster.until("the end of the lease", || {
        cluster.state(&session) == "waiting"
    });
    let table = cluster.run(&["claims"]).exits(0).stdout;
    let lines: Vec<&str> = table.lines().filter(|l| l.contains(&session)).collect();
    assert_eq!(lines.len(), 1, "{table}");
    assert!(
        lines[0].contains("waiting")
            && lines[0].contains(" (a) ")
            && lines[0]
                .contains("its lease is over: the next node that looks takes the session over"),
        "{table}"
    );
    let nodes = cluster.run(&["nodes"]).exits(0).stdout;
    assert!(
        nodes.contains("silent") && nodes.contains("over for "),
        "{nodes}"
    );
    // The next one says what it found, at the level that a node has by itself.
    cluster.place.write("project/go", "");
    let next = cluster.node("b", &[]);
    cluster.until("its end", || cluster.state(&session) == "idle");
    let out = next.terminated().exits(0);
    for line in ["nodes are gone", "taken over from a node that is gone"] {
        let said = out.stderr.matches(line).count();
        assert_eq!(said, 1, "{line}: {}", out.stderr);
    }
}
