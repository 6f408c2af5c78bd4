//! Permission questions where nobody sits at a terminal: those of the own prompt are denied, whoever runs the
//! session; those of others are told, with the command that answers them.

use crate::looking_on::written;
use crate::nodes::Cluster;
use crate::support::*;
use crate::terminal::OnTerminal;
use serde_json::Value;
use std::fs::File;

/// A call that is asked about for each prompt that says so, and one that holds the session until there is a file.
const ASKS: &str = r#"
version = 1
select = "history"
[[turn]]
when = "please hold"
part = [{ call = { name = "bash", input = { command = "touch started; while [ ! -e go ]; do sleep 0.02; done" } } }]
[[turn]]
when = "please write"
part = [{ call = { name = "write", input = { path = "made", content = "x" } } }]
[[turn]]
part = [{ text = "Went on." }]
"#;

const ALLOWED: &str = "[permissions]\nbash = \"allow\"\n";

fn cluster() -> Option<Cluster> {
    let server = tenure_testbed::postgres::shared_or_skip()?;
    Some(Cluster {
        place: Place::with(ASKS, ALLOWED),
        database: server.database().unwrap(),
    })
}

/// A session that the node has, and that no command can have.
fn at_the_node(cluster: &Cluster, prompt: &str) -> String {
    let out = cluster.run(&["run", "--requires", "gpu=yes", "--detach", prompt]);
    out.exits(0).stdout.trim().to_owned()
}

/// The data of a session's events of a type.
fn of_type(cluster: &Cluster, session: &str, name: &str) -> Vec<Value> {
    let log = cluster.lines(&["log", session, "--json"]);
    let found = log.into_iter().filter(|event| event["type"] == name);
    found.map(|mut event| event["data"].take()).collect()
}

/// Was the question answered by nobody, and is the rule that would allow it told?
#[track_caller]
fn denied_by_nobody(answers: &[Value], failures: &[Value], times: usize) {
    assert_eq!((answers.len(), failures.len()), (times, times));
    for answer in answers {
        assert_eq!(
            (&answer["answer"], &answer["nobody"]),
            (&"no".into(), &true.into()),
            "{answer}"
        );
    }
    for failed in failures {
        let text = failed["text"].as_str().unwrap();
        assert_eq!(failed["failure"], "denied");
        assert!(
            text.contains("nobody can be asked here") && text.contains("[permissions.write]"),
            "{text}"
        );
    }
}

#[test]
fn bc_s_103_what_a_node_asks_for_a_prompt_from_a_pipe_is_denied_with_the_rule() {
    let Some(cluster) = cluster() else {
        return;
    };
    let node = cluster.node("a", &["--label", "gpu=yes"]);
    // Only the node can run it: it asks from the start.
    let out = cluster.run(&["run", "--requires", "gpu=yes", "please write"]);
    let out = out.exits(0);
    assert_eq!(out.stdout, "Went on.\n");
    assert!(
        out.stderr
            .contains("denied by a rule: write made — allow it with [permissions.write]"),
        "{}",
        out.stderr
    );
    let session = cluster.lines(&["sessions", "--json"])[0]["id"].clone();
    let session = session.as_str().unwrap();
    let log = cluster.run(&["log", session]).exits(0).stdout;
    assert!(log.contains("no (nobody can be asked)"), "{log}");
    // In a session that is there, and for a program.
    let out = cluster
        .run(&["run", "-s", session, "please write"])
        .exits(0);
    assert!(out.stderr.contains("denied by a rule"), "{}", out.stderr);
    let out = cluster.run(&["run", "-s", session, "--json", "please write"]);
    assert_eq!(out.exits(0).lines().pop().unwrap()["denied"], 1);
    denied_by_nobody(
        &of_type(&cluster, session, "permission.answered"),
        &of_type(&cluster, session, "tool.failed"),
        3,
    );
    assert!(!cluster.place.path("project/made").exists());
    node.terminated().exits(0);
}

#[test]
fn a_question_of_another_prompt_is_told_once_with_its_answers_and_not_answered() {
    let Some(cluster) = cluster() else {
        return;
    };
    let node = cluster.node("a", &["--label", "gpu=yes"]);
    let session = at_the_node(&cluster, "please write");
    cluster.until("its question", || {
        cluster.lines(&["show", &session, "--json"])[0]["asks"] == 1
    });
    let call = cluster.lines(&["answer", &session, "--json"])[0]["call"].clone();
    let call = call.as_str().unwrap();
    let commands: [&[&str]; 4] = [
        &["run", "-s", &session, "--queue", "more"],
        &["run", "-s", &session, "--queue", "--json", "still more"],
        &["resume", &session],
        &["log", &session, "--follow", "--until-idle"],
    ];
    let command = format!("tenure answer {session} --call {call} y");
    let started = commands.map(|args| {
        let told = cluster.place.path(&args.join("-").replace(' ', "-"));
        let mut child = cluster.command(args);
        let child = child.stderr(File::create(&told).unwrap()).spawn().unwrap();
        written(&told, &command);
        (child, told)
    });
    let answers = || of_type(&cluster, &session, "permission.answered");
    assert_eq!(answers(), [] as [Value; 0], "it is another's to answer");
    let told = written(&started[0].1, &command);
    assert!(told.contains("\n? write made"), "{told}");
    // The command as it is told.
    let args: Vec<&str> = command.split(' ').skip(1).collect();
    cluster.run(&args).exits(0);
    for (child, told) in started {
        finish(child).exits(0);
        let told = std::fs::read_to_string(told).unwrap();
        assert_eq!(told.matches(&command).count(), 1, "{told}");
    }
    assert_eq!(answers().len(), 1);
    assert!(cluster.place.path("project/made").exists());
    node.terminated().exits(0);
}

#[test]
fn a_question_whose_command_was_killed_stays_and_anybody_answers_it() {
    let Some(cluster) = cluster() else {
        return;
    };
    let node = cluster.node("a", &["--label", "gpu=yes"]);
    let session = at_the_node(&cluster, "please hold");
    wait_for_file(&cluster.place.path("project/started"));
    let mut killed = cluster
        .command(&["run", "-s", &session, "please write"])
        .spawn()
        .unwrap();
    cluster.until("its prompt", || {
        of_type(&cluster, &session, "input.admitted").len() == 2
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    cluster.place.write("project/go", "");
    cluster.until("its question", || {
        cluster.lines(&["show", &session, "--json"])[0]["asks"] == 1
    });
    cluster
        .run(&["answer", &session, "n", "not", "now"])
        .exits(0);
    cluster.until("its end", || cluster.state(&session) == "idle");
    let failed = of_type(&cluster, &session, "tool.failed");
    let text = failed[0]["text"].as_str().unwrap();
    assert!(text.ends_with("They say: not now"), "{text}");
    node.terminated().exits(0);
}

#[test]
fn real_a_prompt_from_a_pipe_is_denied_what_a_terminal_that_runs_the_session_would_ask() {
    let place = Place::with(ASKS, ALLOWED);
    let terminal = OnTerminal::start(&place, &["run", "please hold"], &[]);
    wait_for_file(&place.path("project/started"));
    let session = place.only_session();
    let piped = place.start(&["run", "-s", &session, "please write"]);
    wait("the prompt", || {
        let admitted = |t: &&String| *t == "input.admitted";
        (place.types(&session).iter().filter(admitted).count() == 2).then_some(())
    });
    place.write("project/go", "");
    let out = finish(piped).exits(0);
    assert_eq!(out.stdout, "Went on.\n");
    let (code, screen) = terminal.end();
    assert_eq!(code, 0, "{screen}");
    let log = place.events(&session);
    let of_type = |name: &str| -> Vec<Value> {
        let found = log.iter().filter(|event| event["type"] == name);
        found.map(|event| event["data"].clone()).collect()
    };
    denied_by_nobody(&of_type("permission.answered"), &of_type("tool.failed"), 1);
}
