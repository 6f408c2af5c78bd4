//! Commands that follow a session while the database is away for longer than a lease: they say so, wait, and show what
//! comes after it as if nothing had been.

use crate::detach::WAITS;
use crate::looking_on::written;
use crate::nodes::Cluster;
use crate::support::*;
use serde_json::Value;
use std::fs::File;
use std::path::PathBuf;
use std::process::Child;
use tenure_testbed::postgres::{Cluster as Server, Options, Stop};

const AWAY: &str = "notice: the store is away: ";
const BACK: &str = "notice: the store is back after ";

/// A lease that ends soon.
const LEASE: &str = "[lease]\nrenew_ms = 200\nduration_ms = 2000\nmargin_ms = 800\n";

/// A place on a server of its own.
pub fn cluster() -> Option<(Server, Cluster)> {
    tenure_testbed::postgres::shared_or_skip()?;
    let server = Server::start(&Options::disposable()).unwrap();
    let place = Place::new(WAITS);
    let config = std::fs::read_to_string(place.config()).unwrap();
    place.write_config(&format!("{config}\n{LEASE}"));
    let database = server.database().unwrap();
    Some((server, Cluster { place, database }))
}

/// A command whose output goes to files; killed when the test fails.
struct Heard {
    child: Option<Child>,
    output: PathBuf,
    errors: PathBuf,
}

impl Heard {
    fn start(cluster: &Cluster, name: &str, args: &[&str]) -> Self {
        let output = cluster.place.path(&format!("{name}.out"));
        let errors = cluster.place.path(&format!("{name}.err"));
        let mut command = cluster.command(args);
        command
            .stdout(File::create(&output).unwrap())
            .stderr(File::create(&errors).unwrap())
            .env("TENURE_LOG", "tenure_engine=warn");
        let child = Some(command.spawn().unwrap());
        Self {
            child,
            output,
            errors,
        }
    }

    /// One that prints JSON, once it has read all that was there.
    fn following(cluster: &Cluster, name: &str, args: &[&str]) -> Self {
        let started = Self::start(cluster, name, args);
        written(&started.output, r#""kind":"synced""#);
        started
    }

    fn hears(&self, words: &str) {
        written(&self.errors, words);
    }

    fn told(&self, name: &str) {
        signal(self.child.as_ref().unwrap(), name);
    }

    /// Ctrl-C again and again: two that come together count as one.
    fn left(mut self) -> Out {
        wait("its end", || {
            self.told("INT");
            self.child.as_mut().unwrap().try_wait().unwrap()
        });
        self.ends(130)
    }

    fn ends(mut self, code: i32) -> Out {
        let out = finish(self.child.take().unwrap());
        let read = |path: &PathBuf| std::fs::read_to_string(path).unwrap();
        let (stdout, stderr) = (read(&self.output), read(&self.errors));
        Out {
            code: out.code,
            stdout,
            stderr,
        }
        .exits(code)
    }

    /// As [`Self::ends`], and was the outage told once, and its end?
    fn outlives(self) -> Out {
        let out = self.ends(0);
        once(&out, &[AWAY, BACK]);
        out
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[track_caller]
fn once(out: &Out, words: &[&str]) {
    for words in words {
        let times = out.stderr.matches(words).count();
        assert_eq!(times, 1, "{words:?} in {}", out.stderr);
    }
}

/// What was printed of the log.
fn events(out: &Out) -> Vec<Value> {
    let lines = out.lines().into_iter();
    lines.filter(|line| line["kind"] == "event").collect()
}

/// The server goes, and the node that wrote to `log` stops its work because of that.
fn outage(server: &Server, node: &Heard, more: &[&Heard]) {
    server.stop(Stop::Fast).unwrap();
    node.hears("stopping all work");
    more.iter().for_each(|command| command.hears(AWAY));
}

#[test]
fn real_what_a_command_runs_itself_goes_on_after_an_outage() {
    let Some((server, cluster)) = cluster() else {
        return;
    };
    let run = Heard::start(&cluster, "run", &["run", "go"]);
    wait_for_file(&cluster.place.path("project/started"));
    outage(&server, &run, &[&run]);
    cluster.place.write("project/go", "");
    server.start_again().unwrap();
    assert_eq!(run.outlives().stdout, "Finished in the background.\n");
}

#[test]
fn real_who_follows_another_nodes_session_misses_nothing_in_an_outage() {
    let Some((server, cluster)) = cluster() else {
        return;
    };
    let there = &["--label", "gpu=yes"];
    let node = Heard::start(
        &cluster,
        "node",
        &[&["node", "--name", "a"], &there[..]].concat(),
    );
    cluster.until("node a", || !cluster.nodes().is_empty());
    let run = ["run", "--requires", "gpu=yes", "--json", "go"];
    let run = Heard::following(&cluster, "run", &run);
    wait_for_file(&cluster.place.path("project/started"));
    let rows = cluster.lines(&["sessions", "--json"]);
    let session = rows[0]["id"].as_str().unwrap();
    let resume = Heard::following(&cluster, "resume", &["resume", session, "--json"]);
    let follow = ["log", session, "--follow", "--json"];
    let until_idle = [&follow[..], &["--until-idle"]].concat();
    let ends = Heard::following(&cluster, "until idle", &until_idle);
    let all = Heard::following(&cluster, "log", &follow);
    let leaves = Heard::following(&cluster, "left", &follow);
    outage(&server, &node, &[&run, &resume, &ends, &all, &leaves]);
    // Who looks on may leave in the middle of it.
    leaves.told("INT");
    leaves.ends(0);
    cluster.place.write("project/go", "");
    server.start_again().unwrap();
    let run = run.outlives();
    let resume = resume.outlives();
    let ends = ends.outlives();
    let log = cluster.lines(&["log", session, "--json"]);
    written(&all.output, "execution.succeeded");
    all.told("INT");
    for out in [run, ends, all.outlives()] {
        let shown = events(&out);
        assert_eq!(shown, log[..shown.len()], "each event once, in order");
        assert!(shown.iter().any(|e| e["type"] == "execution.succeeded"));
    }
    let shown = events(&resume);
    let from = usize::try_from(shown[0]["seq"].as_u64().unwrap()).unwrap();
    assert_eq!(shown, log[from..from + shown.len()]);
    node.told("TERM");
    node.ends(0);
}

#[test]
fn real_all_that_is_resumed_waits_for_the_database() {
    let Some((server, cluster)) = cluster() else {
        return;
    };
    let node = Heard::start(&cluster, "node", &["node", "--name", "a"]);
    cluster.until("node a", || !cluster.nodes().is_empty());
    cluster.run(&["run", "--detach", "go"]).exits(0);
    wait_for_file(&cluster.place.path("project/started"));
    // It leaves the session at once, and charged with nothing.
    node.told("TERM");
    node.hears("draining");
    node.told("TERM");
    node.ends(0);
    std::fs::remove_file(cluster.place.path("project/started")).unwrap();
    let resume = Heard::start(&cluster, "resume", &["resume", "--all"]);
    wait_for_file(&cluster.place.path("project/started"));
    outage(&server, &resume, &[]);
    resume.hears("waited for");
    cluster.place.write("project/go", "");
    server.start_again().unwrap();
    let out = resume.ends(0);
    assert!(out.stdout.contains(" ended\n"), "{}", out.stdout);
    assert!(!out.stderr.contains("no session"), "{}", out.stderr);
    once(&out, &["waited for", "the store is back"]);
}

#[test]
fn real_what_a_killed_run_left_is_resumed_with_all_once_it_may_be() {
    let Some((_server, cluster)) = cluster() else {
        return;
    };
    let run = Heard::start(&cluster, "run", &["run", "go"]);
    wait_for_file(&cluster.place.path("project/started"));
    run.told("KILL");
    run.ends(-1);
    cluster.place.write("project/go", "");
    // Its lease is good for a while yet.
    let out = cluster.run(&["resume", "--all"]).exits(0);
    assert!(out.stdout.contains(" ended\n"), "{out:?}");
    assert!(!out.stderr.contains("no session"), "{out:?}");
}

#[test]
fn real_a_command_that_is_told_to_end_in_an_outage_says_how_it_left() {
    let Some((server, cluster)) = cluster() else {
        return;
    };
    let run = Heard::start(&cluster, "run", &["run", "go"]);
    wait_for_file(&cluster.place.path("project/started"));
    outage(&server, &run, &[&run]);
    run.told("TERM");
    let out = run.ends(130);
    once(
        &out,
        &[
            "the store was not told that this process has ended",
            "left; ",
        ],
    );
}

#[test]
fn real_ctrl_c_in_an_outage_stops_the_work_once_it_is_over_or_leaves() {
    let Some((server, cluster)) = cluster() else {
        return;
    };
    let stops = Heard::start(&cluster, "stops", &["run", "--title", "stops", "go"]);
    let leaves = Heard::start(&cluster, "leaves", &["run", "--title", "leaves", "go"]);
    cluster.until("both calls", || {
        // Before the first there is no store.
        let rows = cluster.run(&["sessions", "--json"]);
        let rows = if rows.code == 0 {
            rows.lines()
        } else {
            Vec::new()
        };
        let called = rows.iter().filter(|row| {
            let log = cluster.run(&["log", row["id"].as_str().unwrap()]);
            log.stdout.contains("tool.started")
        });
        called.count() == 2
    });
    outage(&server, &stops, &[&stops, &leaves]);
    stops.told("INT");
    let errors = leaves.left().stderr;
    assert!(errors.contains("left; "), "{errors}");
    server.start_again().unwrap();
    let errors = stops.ends(130).stderr;
    assert!(errors.contains("interrupted"), "{errors}");
    let rows = cluster.lines(&["sessions", "--json"]);
    let stopped = rows.iter().find(|row| row["title"] == "stops").unwrap();
    assert_eq!(stopped["last_outcome"], "interrupted", "{stopped}");
}
