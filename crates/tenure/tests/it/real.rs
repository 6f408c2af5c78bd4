//! Real processes and real signals: kill, takeover, Ctrl-C, and the demonstration.

use crate::support::*;
use std::process::Command;

const WAITS: &str = r#"
version = 1
select = "history"
[[turn]]
skip_if_contains = "Outcome unknown:"
part = [{ text = "I begin." }, { call = { name = "bash", input = { command = "echo $$ > pid; sleep 600 & sleep 600" } } }]
[[turn]]
part = [{ text = "Recovered." }]
"#;

fn alive(pid: &str) -> bool {
    Command::new("kill")
        .args(["-0", pid])
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap()
        .success()
}

fn pid(place: &Place) -> String {
    wait("the command's pid", || {
        let text = std::fs::read_to_string(place.path("project/pid")).ok()?;
        text.ends_with('\n').then(|| text.trim().to_owned())
    })
}

/// Whoever takes all that waits leaves what it has no key for, and says so; nothing is failed for that.
#[test]
fn real_what_all_of_them_cannot_ask_is_left_and_told() {
    let place = Place::new(WAITS);
    let config = std::fs::read_to_string(place.config()).unwrap();
    place.write_config(&config.replace(
        "protocol = \"openai-chat\"",
        "protocol = \"openai-chat\"\napi_key_env = \"MODEL_KEY\"",
    ));
    let with_key = |args: &[&str]| {
        let mut command = place.command(args);
        command.env("MODEL_KEY", "k-1234567890").spawn().unwrap()
    };
    let mut child = with_key(&["run", "go"]);
    let pid = pid(&place);
    let session = place.only_session();
    child.kill().unwrap();
    child.wait().unwrap();
    wait("the death of the killed run's tools", || {
        (!alive(&pid)).then_some(())
    });
    let out = place.run(&["resume", "--all"]).exits(1);
    assert!(
        out.stdout.contains(&format!(
            "{session} unplaceable: no node serves this model (local/m1)"
        )),
        "{}",
        out.stdout
    );
    // One that is told to run it fails at once, in the words of before.
    let out = place.run(&["resume", &session]).exits(2);
    assert!(
        out.stderr.contains("MODEL_KEY is not set"),
        "{}",
        out.stderr
    );
    let types = place.types(&session);
    assert!(!types.iter().any(|t| t == "execution.failed"), "{types:?}");
    let out = finish(with_key(&["resume", "--all"])).exits(0);
    assert!(out.stdout.contains("ended"), "{}", out.stdout);
    assert!(
        place
            .types(&session)
            .iter()
            .any(|t| t == "execution.succeeded")
    );
}

#[test]
fn real_a_killed_run_is_resumed_by_another_process() {
    let place = Place::new(WAITS);
    let mut child = place.start(&["run", "go"]);
    let pid = pid(&place);
    let session = place.only_session();
    child.kill().unwrap();
    child.wait().unwrap();
    wait("the death of the killed run's tools", || {
        (!alive(&pid)).then_some(())
    });
    let row = place.row(&session);
    assert!(
        row["state"] == "claimable" || row["state"] == "waiting",
        "{row}"
    );
    let out = place.run(&["resume", &session]).exits(0);
    assert_eq!(out.stdout, "Recovered.\n");
    let events = place.events(&session);
    let started = events
        .iter()
        .filter(|e| e["type"] == "tool.started")
        .count();
    assert_eq!(started, 1);
    assert!(
        events
            .iter()
            .any(|e| e["data"]["failure"] == "outcome_unknown")
    );
    assert_eq!(place.row(&session)["state"], "idle");
}

#[test]
fn real_resume_all_takes_what_was_left_behind() {
    let place = Place::new(WAITS);
    let mut child = place.start(&["run", "go"]);
    pid(&place);
    let session = place.only_session();
    child.kill().unwrap();
    child.wait().unwrap();
    let out = place.run(&["resume", "--all"]).exits(0);
    assert!(
        out.stdout.contains(&format!("{session} ended")),
        "{}",
        out.stdout
    );
    assert_eq!(place.row(&session)["last_outcome"], "succeeded");
}

#[test]
fn real_an_interrupt_of_a_dead_owners_session_is_settled() {
    let place = Place::new(WAITS);
    let mut child = place.start(&["run", "go"]);
    pid(&place);
    let session = place.only_session();
    child.kill().unwrap();
    child.wait().unwrap();
    let out = place.run(&["interrupt", &session]).exits(0);
    assert_eq!(
        out.stdout,
        "interrupt accepted; its owner was gone: taken over and settled\n"
    );
    let row = wait("the settlement", || {
        let row = place.row(&session);
        (row["state"] == "idle").then_some(row)
    });
    assert_eq!(row["last_outcome"], "interrupted");
    assert_eq!(place.model().requests().len(), 1);
}

#[test]
fn real_ctrl_c_interrupts_durably_and_kills_the_tool() {
    let place = Place::new(WAITS);
    let child = place.start(&["run", "go"]);
    let pid = pid(&place);
    let session = place.only_session();
    signal(&child, "INT");
    finish(child).exits(130);
    assert!(!alive(&pid), "the tool's process lives on");
    let types = place.types(&session);
    assert_eq!(
        types.last().map(String::as_str),
        Some("execution.interrupted")
    );
    assert!(types.contains(&"interrupt.requested".to_owned()));
}

#[test]
fn real_a_second_ctrl_c_says_what_is_true_of_the_session() {
    let place = Place::new(WAITS);
    let child = place.start(&["run", "go"]);
    pid(&place);
    let session = place.only_session();
    signal(&child, "INT");
    place.wait_for_event(&session, "interrupt.requested");
    // It may be over by now: then the signal has nobody to reach.
    let _ = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    let out = finish(child).exits(130);
    let state = place.row(&session)["state"].clone();
    assert_eq!(
        out.stderr.contains("free to be taken over"),
        state != "idle",
        "{state}: {}",
        out.stderr
    );
}

const ENDS_WHEN_TOLD: &str = r#"
version = 1
select = "history"
[[turn]]
skip_if_contains = "TOLD-TO"
part = [{ call = { name = "bash", input = { command = "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; echo TOLD-$(echo TO)" } } }]
[[turn]]
part = [{ text = "Recovered." }]
"#;

#[test]
fn real_a_terminated_run_leaves_the_session_to_others() {
    let place = Place::new(ENDS_WHEN_TOLD);
    let child = place.start(&["run", "go"]);
    pid(&place);
    let session = place.only_session();
    signal(&child, "TERM");
    place.write("project/go", "");
    let out = finish(child).exits(130);
    assert!(out.stderr.contains("tenure resume"), "{}", out.stderr);
    assert_eq!(place.row(&session)["state"], "claimable");
    let out = place.run(&["resume", &session]).exits(0);
    assert_eq!(out.stdout, "Recovered.\n");
}

/// Each time the model is asked, it asks for a command that kills the process that runs the session: above the
/// guardian is what forked it, and that is a child of the process meant.
const POISON: &str = r#"
version = 1
select = "history"
[[turn]]
when_request = "be good"
part = [{ text = "I am good." }]
[[turn]]
part = [{ call = { name = "bash", input = { command = "n=$(cut -d' ' -f4 /proc/$PPID/stat); kill -9 $(cut -d' ' -f4 /proc/$n/stat)" } } }]
"#;

#[test]
fn real_a_session_that_kills_its_owners_is_set_aside_until_it_is_released() {
    let place = Place::new(POISON);
    let out = place.run(&["run", "go"]);
    assert_eq!(out.code, -1, "killed by its own tool: {out:?}");
    let session = place.only_session();
    let mut last = None;
    let codes: Vec<i32> = (0..4)
        .map(|_| {
            let out = place.run(&["resume", &session]);
            let code = out.code;
            last = Some(out);
            code
        })
        .take_while(|code| *code == -1)
        .collect();
    assert!(codes.len() <= 2, "{codes:?}");
    let out = last.unwrap();
    assert_eq!(out.code, 3, "the resume that sets it aside: {out:?}");
    let out = place.run(&["resume", &session]).exits(3);
    assert!(
        out.stderr.contains("set aside") && out.stderr.contains("tenure release"),
        "{}",
        out.stderr
    );
    assert_eq!(place.row(&session)["state"], "quarantined");
    assert!(
        place.model().requests().len() <= 3,
        "a turn was paid for after it was set aside"
    );
    // So are limits, and that is said.
    let limits = ["--max-cost", "2.5", "--max-steps", "7"];
    let out = place
        .run(&[&["resume", &session], &limits[..]].concat())
        .exits(3);
    assert!(
        out.stderr.contains("limits are changed") && out.stderr.contains("set aside"),
        "{}",
        out.stderr
    );
    let kept = place.run(&["limits", &session, "--json"]).exits(0).lines();
    assert_eq!(
        (
            &kept[0]["limits"]["max_cost"],
            &kept[0]["limits"]["max_steps"]
        ),
        (&serde_json::json!(2_500_000), &serde_json::json!(7))
    );
    // What is said to it meanwhile is kept, and delivered once it is released.
    let out = place
        .run(&["run", "be good", "--session", &session])
        .exits(3);
    assert!(out.stderr.contains("set aside"), "{}", out.stderr);
    assert_eq!(place.row(&session)["pending"], 1);
    // Whoever detaches or interrupts is told, too, that nothing runs before that.
    let out = place
        .run(&["run", "be good", "--session", &session, "--detach"])
        .exits(3);
    assert!(
        out.stderr.contains("nothing runs until") && out.stderr.contains("tenure release"),
        "{}",
        out.stderr
    );
    assert_eq!(place.row(&session)["pending"], 2);
    let out = place.run(&["interrupt", &session]).exits(0);
    assert!(
        out.stdout.contains("tenure release") && !out.stdout.contains("tenure resume"),
        "{}",
        out.stdout
    );
    place.run(&["release", &session]).exits(0);
    let out = place.run(&["resume", &session]).exits(0);
    assert_eq!(out.stdout, "I am good.\n");
}

#[test]
fn real_the_demonstration_keeps_all_promises() {
    let place = Place::bare();
    let out = place.run(&["demo"]).exits(0);
    assert!(out.stdout.contains("scripted"), "{}", out.stdout);
    for promise in [
        "✓ P1",
        "✓ P2",
        "✓ P3",
        "✓ P4",
        "✓ P5",
        "SIGKILL",
        "All promises kept",
    ] {
        assert!(out.stdout.contains(promise), "{promise} in {}", out.stdout);
    }
    assert!(
        !place.path("home").exists(),
        "the demonstration touched the user's own folders"
    );
}

#[test]
fn real_a_demonstration_whose_reader_has_gone_leaves_nothing_behind() {
    use std::io::{BufRead, BufReader};
    let place = Place::bare();
    // The reader goes at once, and when the first process is at work and is about to be killed.
    for last in [None, Some("1 a process works on")] {
        let folder = place.path(last.unwrap_or("at once"));
        std::fs::create_dir(&folder).unwrap();
        let mut command = place.command(&["demo"]);
        let mut child = command.env("TMPDIR", &folder).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        if let Some(last) = last {
            let read = lines.find(|line| line.as_ref().unwrap().starts_with(last));
            assert!(read.is_some());
        }
        drop(lines);
        let out = finish(child).exits(0);
        assert_eq!(out.stderr, "");
        let left: Vec<_> = std::fs::read_dir(&folder).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn real_the_scripted_model_serves_until_it_is_told_to_stop() {
    use std::io::{BufRead, BufReader};
    let place = Place::bare();
    place.write("s.toml", HELLO);
    let mut child = place.start(&[
        "scripted-model",
        "--script",
        place.path("s.toml").to_str().unwrap(),
    ]);
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    place.write_config(&format!(
        "default_model = \"p/m\"\n[providers.p]\nprotocol = \"openai-responses\"\nbase_url = \"{}\"\n",
        line["base_url"].as_str().unwrap()
    ));
    let out = place.run(&["run", "hi"]).exits(0);
    assert_eq!(out.stdout, "Hello from the model.\n");
    signal(&child, "TERM");
    finish(child).exits(0);
}

/// Stops its guardian again and again, so that nothing but the node sees to its end; then looks whether it lives.
const STOPS_ITS_GUARDIAN: &str = r#"
version = 1
select = "history"
[[turn]]
when = "begin"
part = [{ call = { name = "bash", input = { command = "trap '' TERM; echo $$ > pid; while kill -STOP $PPID; do :; done; while :; do sleep 1; done" } } }]
[[turn]]
when = "look"
part = [{ call = { name = "bash", input = { command = "if grep -q '^State:.*[RSDTt] ' /proc/$(cat pid)/status 2>/dev/null; then echo OUTLIVED; else echo ENDED; fi" } } }]
[[turn]]
part = [{ text = "Looked." }]
"#;

/// Interrupted, and its node killed before the command was ended: what it left is found by its row.
fn outlives_its_node(place: &Place) -> Option<(String, String)> {
    let _ = std::fs::remove_file(place.path("project/pid"));
    let mut child = place.start(&["run", "begin"]);
    let pid = pid(place);
    let session = place.only_session();
    place.run(&["interrupt", &session]).exits(0);
    place.wait_for_event(&session, "execution.interrupted");
    child.kill().unwrap();
    child.wait().unwrap();
    at_work(&pid).then_some((session, pid))
}

/// Does the process live, also when nobody collects the dead here?
fn at_work(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .map(|(_, rest)| rest.starts_with(['Z', 'X']));
    state == Some(false)
}

#[test]
fn real_no_process_outlives_its_call_whoever_is_killed() {
    // Its guardian may have been quick.
    let (place, session, pid) = (0..10)
        .find_map(|_| {
            let place = Place::new(STOPS_ITS_GUARDIAN);
            let (session, pid) = outlives_its_node(&place)?;
            Some((place, session, pid))
        })
        .expect("a command that is alive when its node is killed");
    let out = place.run(&["run", "look", "--session", &session]).exits(0);
    assert_eq!(out.stdout, "Looked.\n");
    assert!(!at_work(&pid));
    let told = place.events(&session);
    let told = told.iter().filter(|e| e["type"] == "tool.succeeded");
    let told: Vec<&str> = told.filter_map(|e| e["data"]["text"].as_str()).collect();
    assert_eq!(told, ["ENDED\n"]);
}
