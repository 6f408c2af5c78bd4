//! Compaction from the command line: by hand, also while another process runs the session; by itself, and switched
//! off; and the meter that shows how full the context is.

use crate::support::*;
use serde_json::Value;

const SCRIPT: &str = r#"
version = 1
select = "history"
[[turn]]
when_request = "Summarise the conversation below"
part = [{ text = "THE-SUMMARY of it." }]
[[turn]]
when = "too much"
skip_if_contains = "THE-SUMMARY"
fault = { kind = "overflow" }
[[turn]]
when = "wait"
part = [{ call = { name = "bash", input = { command = "touch started; while [ ! -e go ]; do sleep 0.02; done" } } }]
[[turn]]
when = "old"
skip_if_contains = "THE-SUMMARY"
part = [{ text = "OLD-WORDS ", deltas = 300 }]
usage = { input = 1000, output = 200 }
[[turn]]
part = [{ text = "Done." }]
usage = { input = 700, output = 50 }
"#;

/// A session that has something to compact.
fn with_history(place: &Place) -> String {
    place.run(&["run", "an old question"]).exits(0);
    place.only_session()
}

fn of_type<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|e| e["type"] == name).collect()
}

fn last_request(place: &Place) -> String {
    place.model().requests().last().unwrap().body.to_string()
}

#[test]
fn by_hand_a_session_at_rest_is_compacted_and_goes_on_from_the_summary() {
    let place = Place::new(SCRIPT);
    let session = with_history(&place);
    let shown = place.run(&["show", &session]).exits(0).stdout;
    assert!(
        shown.contains("context 1200 of 200000 tokens"),
        "measured: {shown}"
    );
    let out = place.run(&["resume", &session, "--compact"]).exits(0);
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("", ""));
    let events = place.events(&session);
    let asked = of_type(&events, "input.admitted")[1];
    assert_eq!(asked["data"]["kind"], "compaction", "{asked}");
    let started = of_type(&events, "compaction.started");
    assert_eq!(started.len(), 1);
    assert_eq!(started[0]["data"]["reason"], "manual");
    assert_eq!(started[0]["data"]["input"], asked["data"]["input"]);
    assert_eq!(of_type(&events, "compaction.ended").len(), 1);
    let shown = place.run(&["show", &session]).exits(0).stdout;
    assert!(
        shown.contains("the history was compacted") && shown.contains("context about "),
        "an estimate: {shown}"
    );
    place.run(&["run", "and now", "-s", &session]).exits(0);
    let sent = last_request(&place);
    assert!(
        sent.contains("THE-SUMMARY") && !sent.contains("OLD-WORDS"),
        "{sent}"
    );
    // The session's meter and its bill hold the summary's request, too.
    let shown = place.run(&["show", &session]).exits(0).stdout;
    assert!(shown.contains("context 750 of 200000 tokens"), "{shown}");
    let cost = |event: &&Value| event["data"]["cost"].as_u64().unwrap();
    let events = place.events(&session);
    let steps: u64 = of_type(&events, "step.ended").iter().map(cost).sum();
    let summary = cost(&of_type(&events, "compaction.ended")[0]);
    assert!(summary > 0);
    assert_eq!(place.row(&session)["cost"].as_u64(), Some(steps + summary));
}

#[test]
fn by_hand_while_another_process_owns_the_session_its_owner_compacts_at_a_boundary() {
    let place = Place::new(SCRIPT);
    let session = with_history(&place);
    let owner = place.start(&["run", "wait", "-s", &session]);
    wait_for_file(&place.path("project/started"));
    let asking = place.start(&["resume", &session, "--compact", "--json"]);
    wait("the control input", || {
        let row = place.row(&session);
        (row["inputs"][0]["kind"] == "compaction").then_some(())
    });
    assert_eq!(place.types(&session).last().unwrap(), "input.admitted");
    place.write("project/go", "");
    finish(owner).exits(0);
    let out = finish(asking).exits(0);
    let result = out.lines().pop().unwrap();
    assert_eq!(result["outcome"], "succeeded", "{result}");
    let events = place.events(&session);
    let seq = |name: &str| of_type(&events, name).last().unwrap()["seq"].as_u64();
    assert!(seq("tool.succeeded") < seq("compaction.started"));
    let epoch = |name: &str| of_type(&events, name).last().unwrap()["epoch"].clone();
    assert_eq!(epoch("compaction.ended"), epoch("tool.succeeded"));
    assert_eq!(of_type(&events, "recovery.started").len(), 0);
    assert_eq!(place.row(&session)["state"], "idle");
}

#[test]
fn by_hand_in_the_background() {
    let place = Place::new(SCRIPT);
    let session = with_history(&place);
    place
        .run(&["resume", &session, "--compact", "--detach"])
        .exits(0);
    place.wait_for_event(&session, "compaction.ended");
}

#[test]
fn a_compaction_that_fails_or_has_nothing_to_do_says_so() {
    let refusing = SCRIPT.replace(
        "part = [{ text = \"THE-SUMMARY of it.\" }]",
        "fault = { kind = \"status\", status = 400, message = \"no summaries here\" }",
    );
    let place = Place::new(&refusing);
    let session = with_history(&place);
    let out = place.run(&["resume", &session, "--compact"]).exits(1);
    assert!(
        out.stderr.contains("the history was not compacted")
            && out.stderr.contains("no summaries here"),
        "{}",
        out.stderr
    );
    let out = place
        .run(&["resume", &session, "--compact", "--json"])
        .exits(1);
    assert_eq!(out.lines().pop().unwrap()["outcome"], "failed");
    // It stops nothing: the history is as it was.
    place.run(&["run", "and now", "-s", &session]).exits(0);
    assert!(last_request(&place).contains("OLD-WORDS"));

    let place = Place::new(SCRIPT);
    let session = with_history(&place);
    place.run(&["resume", &session, "--compact"]).exits(0);
    let requests = place.model().requests().len();
    let out = place.run(&["resume", &session, "--compact"]).exits(0);
    assert!(out.stderr.starts_with("notice: "), "{}", out.stderr);
    assert_eq!(place.model().requests().len(), requests);
}

#[test]
fn what_cannot_run_here_is_refused_before_a_compaction_is_asked_for() {
    let place = Place::new(SCRIPT);
    let session = with_history(&place);
    let before = place.events(&session).len();
    let config = std::fs::read_to_string(place.config()).unwrap();
    place.write_config(
        &config
            .replace("[providers.local]", "[providers.other]")
            .replace("[providers.local.", "[providers.other."),
    );
    let out = place.run(&["resume", &session, "--compact"]).exits(2);
    assert!(out.stderr.contains("`local`"), "{}", out.stderr);
    assert_eq!(place.events(&session).len(), before);
    let out = place.run(&["resume", "--all", "--max-cost", "1"]).exits(2);
    assert!(out.stderr.contains("--all"), "{}", out.stderr);
}

#[test]
fn auto_compaction_may_be_switched_off_and_the_hint_names_the_command() {
    let place = Place::new(SCRIPT);
    let session = with_history(&place);
    place.run(&["run", "too much", "-s", &session]).exits(0);
    let events = place.events(&session);
    let reasons: Vec<_> = of_type(&events, "compaction.started")
        .iter()
        .map(|e| e["data"]["reason"].clone())
        .collect();
    assert_eq!(reasons, ["overflow"]);

    let place = Place::new(SCRIPT);
    let config = std::fs::read_to_string(place.config()).unwrap();
    place.write_config(&format!("auto_compaction = false\n{config}"));
    let listed = place.run(&["config"]).exits(0).stdout;
    assert!(listed.contains("auto_compaction"), "{listed}");
    let session = with_history(&place);
    let out = place.run(&["run", "too much", "-s", &session]).exits(1);
    let command = format!("tenure resume {session} --compact");
    assert!(out.stderr.contains(&command), "{}", out.stderr);
    assert_eq!(
        of_type(&place.events(&session), "compaction.started").len(),
        0
    );
    place.run(&["resume", &session, "--compact"]).exits(0);
    place.run(&["run", "too much", "-s", &session]).exits(0);
}

#[test]
fn a_window_that_fills_is_compacted_before_the_next_step_unless_that_is_switched_off() {
    for (auto, reasons) in [(true, vec!["threshold"]), (false, vec![])] {
        let script = SCRIPT.replace("input = 1000, output = 200", "input = 3800, output = 100");
        let place = Place::new(&script);
        let config = std::fs::read_to_string(place.config()).unwrap();
        let config = config.replace("context = 200000", "context = 4000\noutput = 500");
        place.write_config(&format!("auto_compaction = {auto}\n{config}"));
        let session = with_history(&place);
        place.run(&["run", "and now", "-s", &session]);
        let events = place.events(&session);
        let found: Vec<_> = of_type(&events, "compaction.started")
            .iter()
            .map(|e| e["data"]["reason"].as_str().unwrap())
            .collect();
        assert_eq!(found, reasons, "auto_compaction = {auto}");
    }
}
