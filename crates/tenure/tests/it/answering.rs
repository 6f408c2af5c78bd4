//! Questions answered by a command, from another process than the one that asks, and where they are seen.

use crate::nodes::{Cluster, Node};
use crate::support::*;
use crate::terminal::OnTerminal;

/// Two commands at once that a rule asks about; what became of them is told in the end.
const ASKS_TWICE: &str = r#"
version = 1
select = "history"
[[turn]]
skip_if_contains = "use cargo"
part = [
    { call = { name = "bash", input = { command = "touch made" } } },
    { call = { name = "bash", input = { command = "touch other" } } },
]
[[turn]]
part = [{ text = "Done." }]
"#;

const ASKS_ONCE: &str = r#"
version = 1
select = "history"
[[turn]]
skip_if_contains = "made-it"
part = [{ call = { name = "bash", input = { command = "touch made; echo made-it" } } }]
[[turn]]
part = [{ text = "Done." }]
"#;

#[test]
fn a_question_on_a_nodes_session_is_found_and_answered_by_commands() {
    let Some(cluster) = Cluster::asking(ASKS_TWICE) else {
        return;
    };
    let _node: Node = cluster.node("a", &[]);
    let out = cluster.run(&["run", "go", "--detach"]).exits(0);
    let session = out.stdout.trim().to_owned();
    let asks = |args: &[&str]| cluster.lines(args)[0]["asks"].clone();
    cluster.until("two questions", || asks(&["sessions", "--json"]) == 2);
    assert_eq!(asks(&["show", &session, "--json"]), 2);
    assert_eq!(asks(&["claims", "--json"]), 2);
    let table = cluster.run(&["sessions"]).exits(0).stdout;
    assert!(table.contains("asks (2)"), "{table}");
    let table = cluster.run(&["claims"]).exits(0).stdout;
    assert!(table.contains("owned, asks (2)"), "{table}");
    assert!(
        table.contains(&format!("`tenure answer {session}`")),
        "{table}"
    );

    // Each is named by its call, and shown with the command that answers it.
    let questions = cluster.lines(&["answer", &session, "--json"]);
    // They are asked at the same time, in either order.
    let about = |what: &str| {
        let asked = |q: &&serde_json::Value| q["question"].as_str().unwrap().contains(what);
        questions.iter().find(asked).unwrap()["call"]
            .as_str()
            .unwrap()
    };
    let calls = [about("touch made"), about("touch other")];
    let shown = cluster.run(&["show", &session]).exits(0).stdout;
    let listed = cluster.run(&["answer", &session]).exits(0).stdout;
    for call in &calls {
        let command = format!("`tenure answer {session} --call {call} y`  once");
        assert!(shown.contains(&command), "{shown}");
        assert!(listed.contains(&command), "{listed}");
    }
    let out = cluster.run(&["answer", &session, "y"]).exits(2);
    assert!(out.stderr.contains("asks 2 questions"), "{}", out.stderr);
    let out = cluster
        .run(&["answer", &session, "--call", calls[0], "maybe"])
        .exits(2);
    assert!(out.stderr.contains("answer y, a"), "{}", out.stderr);
    assert_eq!(
        asks(&["show", &session, "--json"]),
        2,
        "nothing was changed"
    );

    let out = cluster
        .run(&["answer", &session, "--call", calls[0], "y"])
        .exits(0);
    assert_eq!(out.stdout, "answered: once\n");
    cluster.until("one question", || asks(&["show", &session, "--json"]) == 1);
    // Only one is left: it needs no name, and the words go to the model.
    let out = cluster
        .run(&["answer", &session, "n", "use", "cargo"])
        .exits(0);
    assert_eq!(out.stdout, "answered: no\n");
    cluster.until("its end", || cluster.state(&session) == "idle");
    assert!(cluster.place.path("project/made").exists());
    assert!(!cluster.place.path("project/other").exists());
    let log = cluster.run(&["log", &session, "--json"]).exits(0).stdout;
    assert!(log.contains("They say: use cargo"), "{log}");
    let out = cluster.run(&["answer", &session, "y"]).exits(2);
    assert!(out.stderr.contains("asks nothing now"), "{}", out.stderr);
    assert_eq!(
        cluster.run(&["answer", &session]).exits(0).stdout,
        "it asks nothing\n"
    );
}

#[test]
fn real_a_question_on_another_terminal_is_answered_from_here() {
    let place = Place::with(ASKS_ONCE, "");
    let run = OnTerminal::start(&place, &["run", "go"], &[]);
    run.wait_for("may this be done?");
    let session = place.only_session();
    let out = place.run(&["answer", &session, "a"]).exits(0);
    assert_eq!(out.stdout, "answered: always\n");
    let (code, screen) = run.end();
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("Done."), "{screen}");
    assert!(place.path("project/made").exists());
    let changed = place.types(&session);
    assert!(
        changed.iter().any(|t| t == "permissions.changed"),
        "{changed:?}"
    );
}
