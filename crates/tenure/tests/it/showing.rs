//! `show`, `sessions` and `log` for people.

use crate::support::*;

const SCRIPT: &str = r##"
version = 1
select = "history"
[[turn]]
skip_if_contains = "x1b[31moutput"
part = [{ reasoning = "I should look." }, { text = "I look.\n\n- a *list*\n- of **two**" }, { call = { name = "bash", input = { command = "printf 'the \\033[31moutput\\n'" } } }]
usage = { input = 100, output = 10 }
[[turn]]
part = [{ text = "# Done\n\nAll is well." }]
usage = { input = 200, output = 5 }
"##;

#[test]
fn a_transcript_reads_well() {
    let place = Place::new(SCRIPT);
    place.run(&["run", "look at it\nclosely"]).exits(0);
    let session = place.only_session();
    let out = place.run(&["show", &session]).exits(0);
    assert!(!out.stdout.contains('\u{1b}'), "{:?}", out.stdout);
    insta::assert_snapshot!(normalised(&out.stdout));
}

#[test]
fn sessions_are_a_table() {
    let place = Place::new(SCRIPT);
    place.run(&["run", "look", "--title", "My title"]).exits(0);
    let out = place.run(&["sessions"]).exits(0);
    insta::assert_snapshot!(normalised(&out.stdout));
    assert_eq!(
        place
            .run(&["sessions", "--search", "nothing like it"])
            .exits(0)
            .stdout,
        "no sessions\n"
    );
    assert_eq!(
        place
            .run(&["sessions", "--here", "--json"])
            .exits(0)
            .lines()
            .len(),
        1
    );
}

#[test]
fn bc_s_069_an_unknown_price_is_shown_as_unknown() {
    let place = Place::new(HELLO);
    place.run(&["run", "x", "--model", "local/m2"]).exits(0);
    let out = place.run(&["sessions"]).exits(0);
    assert!(
        out.stdout.contains("price unknown") && !out.stdout.contains("$0"),
        "{}",
        out.stdout
    );
    let session = place.only_session();
    let out = place.run(&["show", &session]).exits(0);
    assert!(out.stdout.contains("price unknown"), "{}", out.stdout);
}

#[test]
fn the_log_is_one_line_an_event() {
    let place = Place::new(HELLO);
    place.run(&["run", "x\ny"]).exits(0);
    let session = place.only_session();
    let out = place.run(&["log", &session]).exits(0);
    let events = place.events(&session);
    assert_eq!(out.stdout.lines().count(), events.len());
    let after = place.run(&["log", &session, "--after", "3"]).exits(0);
    assert_eq!(after.stdout.lines().count(), events.len() - 4);
    assert!(
        after.stdout.trim_start().starts_with('4'),
        "{}",
        after.stdout
    );
}

const WAITS: &str = r#"
version = 1
select = "history"
[[turn]]
part = [{ call = { name = "bash", input = { command = "touch started; sleep 600" } } }]
"#;

#[test]
fn a_session_that_runs_shows_its_tool_its_node_and_no_price_yet() {
    let place = Place::new(WAITS);
    let child = place.start(&["run", "wait"]);
    wait_for_file(&place.path("project/started"));
    let session = place.only_session();
    let out = place.run(&["show", &session]).exits(0).stdout;
    assert!(
        out.contains("⋯ bash  touch started; sleep 600  running"),
        "{out}"
    );
    let node = format!("running on node `run` (pid {})", child.id());
    assert!(out.contains(&node), "{out}");
    let out = place.run(&["delete", &session]).exits(1).stderr;
    assert!(out.contains("is running") && !out.contains("inc_"), "{out}");
    place.run(&["interrupt", &session]).exits(0);
    finish(child).exits(130);
    let out = place.run(&["show", &session]).exits(0).stdout;
    assert!(!out.contains('⋯'), "{out}");
}
