//! Where sessions may run, over PostgreSQL and several machines: what their folders require, and moving them.

use crate::nodes::{Cluster, Node, WAITS};
use crate::support::*;
use serde_json::Value;
use std::process::Command;

/// One machine of a cluster: the place's configuration under another machine's name.
pub struct Machine<'a> {
    cluster: &'a Cluster,
    name: &'static str,
}

impl<'a> Machine<'a> {
    pub fn new(cluster: &'a Cluster, name: &'static str) -> Self {
        let config = std::fs::read_to_string(cluster.place.config()).unwrap();
        cluster.place.write(
            &format!("{name}.toml"),
            &format!("{config}\n[node]\nhost_label = \"{name}\"\n"),
        );
        Self { cluster, name }
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let config = self.cluster.place.path(&format!("{}.toml", self.name));
        let config = config.display().to_string();
        self.cluster
            .command(&[&["--config", &config], args].concat())
    }

    pub fn run(&self, args: &[&str]) -> Out {
        finish(self.command(args).spawn().unwrap())
    }

    /// A node of this machine, by its name.
    pub fn node(&self, more: &[&str]) -> Node {
        let args = [&["node", "--name", self.name], more].concat();
        let node = Node::of(self.command(&args).spawn().unwrap());
        self.cluster.until(&format!("node {}", self.name), || {
            let nodes = self.cluster.nodes();
            nodes.iter().any(|node| node["name"] == self.name)
        });
        node
    }
}

fn requires(cluster: &Cluster, session: &str) -> Vec<Value> {
    let row = cluster.lines(&["show", session, "--json"]).remove(0);
    let requires = row["location"]["requires"].as_array();
    requires.cloned().unwrap_or_default()
}

const NOTICE: &str = "only this machine's nodes may run this session";

#[test]
fn real_a_root_that_a_node_of_this_machine_was_given_is_shared_for_all_who_work_there() {
    let Some(cluster) = Cluster::with(WAITS) else {
        return;
    };
    let (one, two) = (Machine::new(&cluster, "m1"), Machine::new(&cluster, "m2"));
    let root = cluster.place.path("project").display().to_string();
    cluster.place.write("own/go", "");
    let own = cluster.place.path("own").display().to_string();
    let mut nodes = vec![("m1", one.node(&["--root", &root]))];
    // Of this machine alone nothing is to be said: there is no other.
    let out = one.run(&["run", "--detach", "--cwd", &own, "hi"]).exits(0);
    assert_eq!(requires(&cluster, out.stdout.trim()), ["host=m1"]);
    assert!(!out.stderr.contains(NOTICE), "{}", out.stderr);
    nodes.push(("m2", two.node(&["--root", &root])));
    let out = one.run(&["run", "--detach", "--cwd", &own, "hi"]).exits(0);
    assert_eq!(requires(&cluster, out.stdout.trim()), ["host=m1"]);
    let told = out.stderr.matches(NOTICE).count();
    assert!(
        told == 1 && out.stderr.contains("`[node] roots`"),
        "{}",
        out.stderr
    );
    // What a machine without such a node has is its own.
    let three = Machine::new(&cluster, "m3");
    let out = three
        .run(&["run", "--detach", "--cwd", &own, "hi"])
        .exits(0);
    assert_eq!(requires(&cluster, out.stdout.trim()), ["host=m3"]);

    let out = one.run(&["run", "--detach", "--allow-all", "hi"]).exits(0);
    let session = out.stdout.trim().to_owned();
    assert_eq!(requires(&cluster, &session), [] as [Value; 0]);
    assert!(!out.stderr.contains(NOTICE), "{}", out.stderr);
    wait_for_file(&cluster.place.path("project/started"));
    let claims = cluster.lines(&["claims", "--json"]);
    let held = claims.iter().find(|c| c["session"] == session.as_str());
    let owner = held.unwrap()["node"].as_str().unwrap().to_owned();
    // Dropping it is SIGKILL: the other machine goes on.
    nodes.retain(|(name, _)| *name != owner);
    cluster.place.write("project/go", "");
    cluster.until("the takeover", || cluster.state(&session) == "idle");
    let log = cluster.lines(&["log", &session, "--json"]);
    assert!(log.iter().any(|e| e["type"] == "recovery.started"));
}

#[test]
fn real_a_session_whose_machine_is_gone_is_moved_by_who_asks_for_it() {
    let Some(cluster) = Cluster::with(WAITS) else {
        return;
    };
    let (one, two) = (Machine::new(&cluster, "m1"), Machine::new(&cluster, "m2"));
    let lost = one.node(&[]);
    let stays = two.node(&[]);
    // One that is at work when its machine goes, and one that rests.
    let own = cluster.place.path("rests").display().to_string();
    cluster.place.write("rests/go", "");
    let out = one
        .run(&["run", "--allow-all", "--cwd", &own, "hi"])
        .exits(0);
    assert!(out.stdout.contains("Finished"), "{}", out.stdout);
    let rests = cluster.lines(&["sessions", "--json"]).remove(0)["id"].clone();
    let rests = rests.as_str().unwrap();
    let out = one.run(&["run", "--detach", "--allow-all", "hi"]).exits(0);
    let works = out.stdout.trim().to_owned();
    assert_eq!(requires(&cluster, &works), ["host=m1"]);
    wait_for_file(&cluster.place.path("project/started"));
    drop(lost);
    cluster.until("that nobody has its place", || {
        cluster.state(&works) == "unplaceable"
    });
    cluster.place.write("project/go", "");
    // Moved by a command, whose own process has the place; and left to the nodes.
    let moved = ["run", "--session", rests, "--requires", "none"];
    two.run(&[&moved[..], &["more"]].concat()).exits(0);
    assert_eq!(requires(&cluster, rests), [] as [Value; 0]);
    let same = two.run(&[&moved[..], &["again"]].concat()).exits(0);
    assert!(
        same.stderr.contains("--requires changes nothing"),
        "{}",
        same.stderr
    );
    let project = cluster.place.path("project").display().to_string();
    let mut moved = vec!["run", "--session", &works, "--cwd", &project];
    moved.extend(["--requires", "host=m2", "--detach", "more"]);
    two.run(&moved).exits(0);
    cluster.until("its end", || cluster.state(&works) == "idle");
    assert_eq!(requires(&cluster, &works), ["host=m2"]);
    let types: Vec<_> = cluster
        .lines(&["log", &works, "--json"])
        .iter()
        .map(|e| e["type"].as_str().unwrap().to_owned())
        .collect();
    let place = |name: &str| types.iter().position(|t| t == name).unwrap();
    assert!(
        place("recovery.started") < place("attachment.replaced"),
        "{types:?}"
    );
    stays.terminated().exits(0);
}
