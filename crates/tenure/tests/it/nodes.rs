//! The command line over PostgreSQL: nodes, what they hold, where sessions are placed, and what is said when the
//! store cannot be used. The password is in none of it.

use crate::support::*;
use serde_json::Value;
use std::io::Read;
use std::process::{Child, Command};
use std::time::Instant;
use tenure_testbed::postgres::Database;

/// A place whose store is a database of its own.
pub struct Cluster {
    pub place: Place,
    pub database: Database,
}

impl Cluster {
    pub fn new() -> Option<Self> {
        Self::with(HELLO)
    }

    /// One whose configuration says nothing of permissions.
    pub fn asking(script: &str) -> Option<Self> {
        let server = tenure_testbed::postgres::shared_or_skip()?;
        Some(Self {
            place: Place::with(script, ""),
            database: server.database().unwrap(),
        })
    }

    /// One whose model follows a script.
    pub fn with(script: &str) -> Option<Self> {
        let server = tenure_testbed::postgres::shared_or_skip()?;
        Some(Self {
            place: Place::new(script),
            database: server.database().unwrap(),
        })
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.place.command(args);
        command.env("TENURE_STORE", self.database.url());
        command
    }

    pub fn run(&self, args: &[&str]) -> Out {
        let out = finish(self.command(args).spawn().unwrap());
        self.tells_no_password(&out);
        out
    }

    fn tells_no_password(&self, out: &Out) {
        let (_, password) = self.database.server().credentials().unwrap();
        for text in [&out.stdout, &out.stderr] {
            assert!(!text.contains(&password), "{text}");
        }
    }

    pub fn lines(&self, args: &[&str]) -> Vec<Value> {
        self.run(args).exits(0).lines()
    }

    pub fn node(&self, name: &str, more: &[&str]) -> Node {
        let args = [&["node", "--name", name], more].concat();
        let node = Node(Some(self.command(&args).spawn().unwrap()));
        self.until(&format!("node {name}"), || {
            self.nodes().iter().any(|node| node["name"] == name)
        });
        node
    }

    /// None before the first node has made the store.
    pub fn nodes(&self) -> Vec<Value> {
        let out = self.run(&["nodes", "--json"]);
        match out.stderr.contains("there is no store") {
            true => Vec::new(),
            false => out.exits(0).lines(),
        }
    }

    pub fn until(&self, what: &str, mut seen: impl FnMut() -> bool) {
        let began = Instant::now();
        while !seen() {
            assert!(began.elapsed() < PATIENCE, "no {what}");
        }
    }

    pub fn state(&self, session: &str) -> Value {
        self.lines(&["show", session, "--json"]).remove(0)["state"].clone()
    }
}

/// A node's process; killed when the test fails.
pub struct Node(Option<Child>);

impl Node {
    pub fn of(child: Child) -> Self {
        Self(Some(child))
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.as_ref().unwrap().id()).unwrap()
    }

    fn ends(mut self) -> Out {
        finish(self.0.take().unwrap())
    }

    pub fn terminated(self) -> Out {
        let pid = nix::unistd::Pid::from_raw(self.pid());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        self.ends()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn a_prompt_is_answered_and_everything_reads_it_over_postgresql() {
    let Some(cluster) = Cluster::new() else {
        return;
    };
    let out = cluster.run(&["run", "hi"]).exits(0);
    assert_eq!(out.stdout.trim(), "Hello from the model.");
    let rows = cluster.lines(&["sessions", "--json"]);
    let session = rows[0]["id"].as_str().unwrap().to_owned();
    assert_eq!((rows.len(), &rows[0]["state"]), (1, &Value::from("idle")));
    let own = rows[0]["location"]["requires"][0].as_str().unwrap();
    assert!(
        own.starts_with("host="),
        "its folder is on this machine alone: {own}"
    );
    let log = cluster.lines(&["log", &session, "--json"]);
    assert!(log.iter().any(|e| e["type"] == "execution.succeeded"));
    let shown = cluster.run(&["show", &session]).exits(0).stdout;
    assert!(shown.contains("Hello from the model."), "{shown}");
    assert!(cluster.run(&["nodes"]).exits(0).stdout.contains("no nodes"));
    assert!(
        cluster
            .run(&["claims"])
            .exits(0)
            .stdout
            .contains("nothing is held")
    );
    // The server of these tests does not flush, which is said.
    let doctor = cluster.run(&["doctor", "--offline"]).exits(1).stdout;
    assert!(doctor.contains("✓ store          postgresql"), "{doctor}");
}

#[test]
fn a_node_is_listed_runs_what_it_serves_and_ends_when_it_is_drained_from_afar() {
    let Some(cluster) = Cluster::new() else {
        return;
    };
    // With no node at all, whoever comes may turn out to serve it: one that does not is there.
    let other = cluster.node("other", &[]);
    let out = cluster
        .run(&["run", "--requires", "gpu=yes", "--detach", "hi"])
        .exits(0);
    assert!(
        out.stderr.contains("waits: ") && out.stderr.contains("gpu=yes"),
        "{}",
        out.stderr
    );
    let session = out.stdout.trim().to_owned();
    cluster.until("unplaceable session", || {
        cluster.state(&session) == "unplaceable"
    });
    let unheld = cluster.lines(&["claims", "--json"]);
    let line = unheld
        .iter()
        .find(|l| l["session"] == session.as_str())
        .unwrap();
    assert_eq!(
        (&line["kind"], &line["state"]),
        (&Value::from("unheld"), &Value::from("unplaceable"))
    );
    assert!(
        line["reason"].as_str().unwrap().contains("gpu=yes"),
        "{line}"
    );
    let listed = cluster.run(&["sessions"]).exits(0).stdout;
    assert!(
        listed.contains("unplaceable") && listed.contains("gpu=yes"),
        "{listed}"
    );

    let node = cluster.node("with-gpu", &["--label", "gpu=yes", "--root", "/"]);
    cluster.until("answer", || cluster.state(&session) == "idle");
    let nodes = cluster.lines(&["nodes", "--json"]);
    let row = nodes.iter().find(|n| n["name"] == "with-gpu").unwrap();
    assert_eq!(
        (&row["kind"], &row["state"]),
        (&Value::from("node_row"), &Value::from("active"))
    );
    let address = row["address"].as_str().unwrap();
    assert!(address.starts_with("http://127.0.0.1:"), "{address}");
    assert_eq!(row["roots"][0], "/");
    let labels = row["labels"].to_string();
    assert!(
        labels.contains("gpu=yes") && labels.contains("host="),
        "{labels}"
    );
    let table = cluster.run(&["nodes"]).exits(0).stdout;
    assert!(
        table.contains("with-gpu") && table.contains("gpu=yes"),
        "{table}"
    );

    let wrong = cluster.run(&["drain", "with-gpv"]).exits(2).stderr;
    assert!(wrong.contains("did you mean `with-gpu`?"), "{wrong}");
    let drained = cluster.lines(&["drain", "with-gpu", "--json"]);
    assert_eq!(drained[0]["name"], "with-gpu");
    let out = node.ends().exits(0);
    assert!(out.stderr.contains("drained from afar"), "{}", out.stderr);
    cluster.tells_no_password(&out);
    other.terminated().exits(0);
    cluster.until("its end", || {
        let nodes = cluster.lines(&["nodes", "--json"]);
        nodes.iter().all(|node| node["name"] != "with-gpu")
    });
}

/// Waits in its folder for a file, then is done.
pub const WAITS: &str = r#"
version = 1
select = "history"
[[turn]]
when_request = "Summarise the conversation below"
part = [{ text = "In short: WAITED." }]
[[turn]]
skip_if_contains = "WAITED"
part = [{ call = { name = "bash", input = { command = "touch started; while [ ! -e go ]; do sleep 0.02; done; echo WAIT$(echo ED)" } } }]
[[turn]]
part = [{ text = "Finished in the background. ", deltas = 50 }]
"#;

fn names(nodes: &[Value]) -> Vec<&str> {
    nodes.iter().map(|n| n["name"].as_str().unwrap()).collect()
}

#[test]
fn real_detached_work_is_left_to_the_clusters_nodes() {
    let Some(cluster) = Cluster::with(WAITS) else {
        return;
    };
    let node = cluster.node("a", &[]);
    let out = cluster.run(&["run", "go", "--detach"]).exits(0);
    let session = out.stdout.trim().to_owned();
    wait_for_file(&cluster.place.path("project/started"));
    let claims = cluster.lines(&["claims", "--json"]);
    assert_eq!(
        (&claims[0]["node"], claims.len()),
        (&Value::from("a"), 1),
        "{claims:?}"
    );
    // No process was started beside it.
    assert_eq!(names(&cluster.lines(&["nodes", "--json"])), ["a"]);
    let log = cluster.place.path("home/.local/state/tenure/node.log");
    assert!(!log.exists());
    // The same for a control input, while the node has the session.
    cluster
        .run(&["resume", &session, "--compact", "--detach"])
        .exits(0);
    cluster.place.write("project/go", "");
    cluster.until("its end", || cluster.state(&session) == "idle");
    let log = cluster.lines(&["log", &session, "--json"]);
    let types: Vec<_> = log.iter().map(|e| e["type"].as_str().unwrap()).collect();
    assert!(types.contains(&"compaction.started"), "{types:?}");
    assert!(!types.contains(&"recovery.started"), "{types:?}");
    assert_eq!(types.iter().filter(|t| **t == "tool.started").count(), 1);
    assert_eq!(names(&cluster.lines(&["nodes", "--json"])), ["a"]);
    node.terminated().exits(0);
}

#[test]
fn real_detached_work_without_a_node_gets_a_process_that_takes_nothing_else() {
    let Some(cluster) = Cluster::with(WAITS) else {
        return;
    };
    let out = cluster.run(&["run", "go", "--detach"]).exits(0);
    let first = out.stdout.trim().to_owned();
    wait_for_file(&cluster.place.path("project/started"));
    let nodes = cluster.lines(&["nodes", "--json"]);
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    // Another session that anybody could run: its command is told to go, and lets go at the next boundary.
    std::fs::create_dir(cluster.place.path("other")).unwrap();
    let other = cluster.place.path("other").display().to_string();
    let child = cluster
        .command(&["run", "go", "--cwd", &other, "--json"])
        .spawn()
        .unwrap();
    wait_for_file(&cluster.place.path("other/started"));
    signal(&child, "TERM");
    cluster.until("its drain", || {
        let nodes = cluster.lines(&["nodes", "--json"]);
        let row = nodes.iter().find(|node| node["name"] == "run");
        row.is_some_and(|row| row["state"] == "draining")
    });
    cluster.place.write("other/go", "");
    let out = finish(child).exits(130);
    let second = out.lines()[0]["session"].as_str().unwrap().to_owned();
    cluster.place.write("project/go", "");
    cluster.until("the end of the first", || cluster.state(&first) == "idle");
    cluster.until("the end of its process", || {
        cluster.lines(&["nodes", "--json"]).is_empty()
    });
    assert_eq!(cluster.state(&second), "claimable");
    // A node takes it, and what is detached from then on.
    let node = cluster.node("a", &[]);
    cluster.until("the end of the second", || cluster.state(&second) == "idle");
    node.terminated().exits(0);
}

/// A name of a variable, and a key that only some processes of a test have.
const KEY: (&str, &str) = ("MODEL_KEY", "k-1234567890");

/// The configuration of `place`, whose provider now wants that key.
fn wants_key(place: &Place) {
    let config = std::fs::read_to_string(place.config()).unwrap();
    place.write_config(&config.replace(
        "protocol = \"openai-chat\"",
        "protocol = \"openai-chat\"\napi_key_env = \"MODEL_KEY\"",
    ));
}

/// The owner has the key of the session's provider. The others have another configuration, or no key: they leave the
/// session alone, and it goes on where a node comes that can.
#[test]
fn real_a_takeover_leaves_a_session_to_nodes_with_its_provider_and_key() {
    let Some(cluster) = Cluster::with(WAITS) else {
        return;
    };
    wants_key(&cluster.place);
    let node = |name: &str, with_key: bool, config: Option<&str>| {
        let mut args = vec!["node", "--name", name];
        args.extend(config.into_iter().flat_map(|file| ["--config", file]));
        let mut command = cluster.command(&args);
        if with_key {
            command.env(KEY.0, KEY.1);
        }
        let node = Node(Some(command.spawn().unwrap()));
        cluster.until(name, || names(&cluster.nodes()).contains(&name));
        node
    };
    let mut owner = node("owner", true, None);
    let mut run = cluster.command(&["run", "go", "--detach"]);
    let out = finish(run.env(KEY.0, KEY.1).spawn().unwrap()).exits(0);
    let session = out.stdout.trim().to_owned();
    wait_for_file(&cluster.place.path("project/started"));
    let keyless = node("keyless", false, None);
    cluster.place.write(
        "other.toml",
        "[providers.elsewhere]\nprotocol = \"openai-chat\"\nbase_url = \"http://127.0.0.1:1/v1\"\n",
    );
    let other = cluster.place.path("other.toml").display().to_string();
    let elsewhere = node("elsewhere", true, Some(&other));
    let mut owner = owner.0.take().unwrap();
    owner.kill().unwrap();
    owner.wait().unwrap();
    cluster.until("a session that no node serves", || {
        cluster.state(&session) == "unplaceable"
    });
    let claims = cluster.lines(&["claims", "--json"]);
    let unheld = claims.iter().find(|line| line["kind"] == "unheld").unwrap();
    let why = unheld["reason"].as_str().unwrap();
    assert!(
        why.contains("no node serves this model (local/m1)") && why.contains("provider `local`"),
        "{why}"
    );
    let table = cluster.run(&["claims"]).exits(0).stdout;
    assert!(table.contains("no node serves this model"), "{table}");
    // Whoever looks on is told, and sees it go on.
    let mut follower = cluster
        .command(&["log", &session, "--follow"])
        .spawn()
        .unwrap();
    let told = until_told(&mut follower, "waits: no node serves this model");
    let follower = Node(Some(follower));
    assert!(told.contains(&session), "{told}");
    cluster.place.write("project/go", "");
    let able = node("able", true, None);
    cluster.until("its end", || cluster.state(&session) == "idle");
    let log = cluster.lines(&["log", &session, "--json"]);
    let count = |word: &str| log.iter().filter(|e| e["type"] == word).count();
    assert_eq!(
        (count("execution.succeeded"), count("execution.failed")),
        (1, 0)
    );
    let epochs: Vec<u64> = log.iter().filter_map(|e| e["epoch"].as_u64()).collect();
    assert_eq!(epochs.last(), Some(&2), "nobody took it in between");
    drop(follower);
    let told = elsewhere.terminated().exits(0).stderr;
    assert!(told.contains("models=elsewhere"), "{told}");
    let told = keyless.terminated().exits(0).stderr;
    assert!(told.contains("MODEL_KEY is not set"), "{told}");
    able.terminated().exits(0);
}

/// Reads what a process says of itself until it has said this.
fn until_told(child: &mut Child, words: &str) -> String {
    let mut stderr = child.stderr.take().unwrap();
    let mut told = Vec::new();
    let mut buffer = [0; 512];
    loop {
        let text = String::from_utf8_lossy(&told);
        if text.contains(words) {
            return text.into_owned();
        }
        let n = stderr.read(&mut buffer).unwrap();
        assert!(n > 0, "it ended: {text}");
        told.extend_from_slice(&buffer[..n]);
    }
}

#[test]
fn how_long_a_session_is_held_is_told_by_the_servers_clock() {
    let Some(cluster) = Cluster::with(WAITS) else {
        return;
    };
    if let Err(missing) = tenure_testbed::faketime::library() {
        assert!(std::env::var_os("CI").is_none(), "{missing}");
        eprintln!("skipped: {missing}");
        return;
    }
    let off = |args: &[&str], seconds| {
        let mut command = cluster.command(args);
        tenure_testbed::faketime::shift(&mut command, seconds).unwrap();
        command.spawn().unwrap()
    };
    // The owner lives in yesterday, who looks in tomorrow.
    let node = Node(Some(off(&["node", "--name", "a"], -90_000)));
    cluster.until("the node", || names(&cluster.nodes()) == ["a"]);
    let out = cluster.run(&["run", "go", "--detach"]).exits(0);
    let session = out.stdout.trim().to_owned();
    wait_for_file(&cluster.place.path("project/started"));
    let with = |args: &[&str]| finish(off(args, 90_000)).exits(0);
    let held = with(&["claims", "--json"]).lines().remove(0);
    assert!(held["held_ms"].as_u64().unwrap() < 60_000, "{held}");
    let table = with(&["claims"]).stdout;
    let row = table.lines().find(|l| l.contains(&session)).unwrap();
    let seconds = regex::Regex::new(r" \d\d?s ").unwrap();
    assert!(seconds.is_match(row), "{table}");
    cluster.place.write("project/go", "");
    cluster.until("its end", || cluster.state(&session) == "idle");
    node.terminated().exits(0);
}

#[test]
fn a_node_says_what_it_is_and_leaves_on_sigterm() {
    let Some(cluster) = Cluster::new() else {
        return;
    };
    let node = cluster.node(
        "a",
        &["--listen", "127.0.0.1:0", "--advertise", "localhost"],
    );
    let out = node.terminated().exits(0);
    for words in [
        "node ",
        "`a`",
        "listening on 127.0.0.1:",
        "told as http://localhost:",
        "(its own machine)",
        "any folder",
        "host=",
        "draining",
    ] {
        assert!(out.stderr.contains(words), "{words}: {}", out.stderr);
    }
    assert_eq!(cluster.lines(&["nodes", "--json"]), [] as [Value; 0]);
}

#[test]
fn a_session_under_a_shared_root_requires_nothing() {
    let Some(cluster) = Cluster::new() else {
        return;
    };
    let config = std::fs::read_to_string(cluster.place.config()).unwrap();
    let root = cluster.place.path("project").display().to_string();
    cluster
        .place
        .write_config(&format!("{config}\n[node]\nroots = [\"{root}\"]\n"));
    cluster.run(&["run", "hi"]).exits(0);
    let rows = cluster.lines(&["sessions", "--json"]);
    assert_eq!(
        rows[0]["location"]["requires"]
            .as_array()
            .map_or(0, Vec::len),
        0,
        "{}",
        rows[0]
    );
}

#[test]
fn a_store_that_cannot_be_used_is_told_apart_and_its_password_never_told() {
    let Some(cluster) = Cluster::new() else {
        return;
    };
    cluster.run(&["run", "x"]).exits(0);
    let (user, password) = cluster.database.server().credentials().unwrap();
    let url = cluster.database.url();
    let with = |url: &str| {
        let mut command = cluster.place.command(&["sessions"]);
        command.env("TENURE_STORE", url);
        let out = finish(command.spawn().unwrap());
        cluster.tells_no_password(&out);
        out
    };
    let wrong = with(&url.replace(&password, "not-the-secret"))
        .exits(1)
        .stderr;
    assert!(
        wrong.contains("does not let this user in") && wrong.contains("PGPASSWORD"),
        "{wrong}"
    );
    assert!(
        !wrong.contains("not-the-secret") && wrong.contains("environment TENURE_STORE"),
        "{wrong}"
    );
    let none = with(&url.replace(&format!(":{password}@"), "@"))
        .exits(1)
        .stderr;
    assert!(
        none.contains("wants a password") && none.contains("PGPASSWORD"),
        "{none}"
    );
    let nowhere = format!("postgres://{user}:{password}@127.0.0.1:1/d");
    let away = with(&nowhere).exits(1).stderr;
    assert!(
        away.contains("cannot be reached") && away.contains("is the server running"),
        "{away}"
    );
    let absent = url.replace(cluster.database.name(), "no_such_database");
    let absent = with(&absent).exits(1).stderr;
    assert!(
        absent.contains("no_such_database") && absent.contains("createdb"),
        "{absent}"
    );
    let typo = with(&url.replace("postgres://", "postgre://"))
        .exits(2)
        .stderr;
    assert!(typo.contains("did you mean `postgres://…`?"), "{typo}");
    let nothing = with(&format!("postgres://{user}:{password}@h"))
        .exits(2)
        .stderr;
    assert!(nothing.contains("names no database"), "{nothing}");
    with(url).exits(0);
}

#[test]
fn the_password_may_stand_elsewhere_and_the_configuration_shows_none() {
    let Some(cluster) = Cluster::new() else {
        return;
    };
    let (_, password) = cluster.database.server().credentials().unwrap();
    let bare = cluster
        .database
        .url()
        .replace(&format!(":{password}@"), "@");
    let run = |place: &Place, args: &[&str], vars: &[(&str, &str)]| {
        let mut command = place.command(args);
        command
            .env("TENURE_STORE", &bare)
            .envs(vars.iter().copied());
        let out = finish(command.spawn().unwrap());
        cluster.tells_no_password(&out);
        out
    };
    cluster.run(&["run", "x"]).exits(0);
    run(&cluster.place, &["sessions"], &[("PGPASSWORD", &password)]).exits(0);
    cluster
        .place
        .write("home/.pgpass", &format!("*:*:*:*:{password}\n"));
    let path = cluster.place.path("home/.pgpass");
    let mode = |mode| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0o600);
    run(&cluster.place, &["sessions"], &[]).exits(0);
    mode(0o644);
    run(&cluster.place, &["sessions"], &[]).exits(1);
    let config = cluster.run(&["config"]).exits(0).stdout;
    assert!(
        config.contains("store ") && config.contains("postgres://"),
        "{config}"
    );
    // On the command line it is taken, and said to be in the open.
    let url = cluster.database.url();
    let node = cluster
        .place
        .command(&["node", "--until-idle", "--store", url])
        .spawn()
        .unwrap();
    let out = finish(node).exits(0);
    assert!(
        out.stderr
            .contains("every user of this machine can read it"),
        "{}",
        out.stderr
    );
    cluster.tells_no_password(&out);
}

#[test]
fn a_node_waits_for_a_server_that_is_away_and_a_command_does_not() {
    let place = Place::new(HELLO);
    let mut command = place.command(&["node"]);
    command.env("TENURE_STORE", "postgres://me:s3cret@127.0.0.1:1/d");
    let mut child = command.spawn().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let mut told = String::new();
    let mut buffer = [0; 512];
    while told.matches("Trying again").count() < 2 {
        let n = stderr.read(&mut buffer).unwrap();
        assert!(n > 0, "it ended: {told}");
        told += &String::from_utf8_lossy(&buffer[..n]);
    }
    assert!(
        told.contains("cannot be reached") && !told.contains("s3cret"),
        "{told}"
    );
    let node = Node(Some(child));
    node.terminated().exits(0);
}

#[test]
fn a_node_says_at_its_start_what_sessions_would_miss_there() {
    let Some(cluster) = Cluster::new() else {
        return;
    };
    let config = std::fs::read_to_string(cluster.place.config()).unwrap();
    cluster.place.write_config(&config.replace(
        "protocol = \"openai-chat\"",
        "protocol = \"openai-chat\"\napi_key_env = \"NOT_SET_HERE\"",
    ));
    let node = cluster.node("a", &["--root", "/no/such/folder"]);
    let told = node.terminated().exits(0).stderr;
    for words in [
        "NOT_SET_HERE is not set",
        "left to other nodes",
        "there is no folder /no/such/folder here",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
}

#[test]
fn flags_that_cannot_work_are_refused_before_anything_is_begun() {
    let place = Place::new(HELLO);
    let store = ["--store", "postgres://me@127.0.0.1:1/d"];
    let with = |args: &[&str]| {
        place
            .run(&[&["node"], args, &store].concat())
            .exits(2)
            .stderr
    };
    assert!(with(&["--label", "gpu"]).contains("KEY=VALUE"));
    assert!(with(&["--root", "here"]).contains("absolute path"));
    let sqlite = place.run(&["node", "--label", "a=b"]).exits(2).stderr;
    assert!(sqlite.contains("PostgreSQL"), "{sqlite}");
    let requires = place.run(&[&["run", "x", "--requires", "gpu"], &store[..]].concat());
    assert!(requires.stderr.contains("error:"), "{}", requires.stderr);
}
