//! Limits on cost, tokens and time from the command line and the configuration.

use crate::support::*;

/// Calls a tool in every step, until it is told to stop.
const BUSY: &str = "version = 1\nselect = \"history\"\n[[turn]]\nwhen = \"stop\"\npart = [{ text = \"Stopped.\" }]\n\
[[turn]]\npart = [{ call = { name = \"bash\", input = { command = \"true\" } } }]\n";

fn spent(place: &Place, session: &str) -> serde_json::Value {
    place
        .run(&["limits", session, "--json"])
        .exits(0)
        .lines()
        .remove(0)
}

#[test]
fn a_limit_on_cost_ends_the_run_with_its_own_exit_code() {
    let place = Place::new(BUSY);
    let out = place
        .run(&["run", "work", "--max-cost", "0.000001", "--json"])
        .exits(4);
    let result = out.lines().pop().unwrap();
    assert_eq!(
        (&result["kind"], &result["outcome"]),
        (&"result".into(), &"failed".into())
    );
    assert_eq!(result["error"]["kind"], "budget");
    assert_eq!((&result["exit"], &result["steps"]), (&4.into(), &1.into()));
    let cost = result["cost"].as_u64().unwrap();
    assert!(cost > 1, "{result}");
    let session = place.only_session();
    let line = spent(&place, &session);
    assert_eq!(line["limits"]["max_cost"], 1);
    assert_eq!(line["spent"]["cost"], cost);
    // A further prompt is stored and waits, and nothing is sent.
    let requests = place.model().requests().len();
    let out = place.run(&["run", "please stop", "-s", &session]).exits(4);
    assert!(
        out.stderr.contains("The prompt waits.") && out.stderr.contains("tenure limits"),
        "{}",
        out.stderr
    );
    assert_eq!(place.model().requests().len(), requests);
    // With more allowed, it is delivered.
    let shown = place
        .run(&["limits", &session, "--max-cost", "2.50"])
        .exits(0);
    assert!(shown.stdout.contains("$2.50"), "{}", shown.stdout);
    let out = place.run(&["resume", &session]).exits(0);
    assert_eq!(out.stdout, "Stopped.\n");
}

#[test]
fn limits_of_the_configuration_hold_for_new_sessions_and_flags_win() {
    let more = "[permissions]\nbash = \"allow\"\n";
    let place = Place::with(BUSY, more);
    let text = std::fs::read_to_string(place.config()).unwrap();
    place.write_config(&format!(
        "max_cost = 1.5\nmax_tokens = \"2k\"\nmax_time = \"1h\"\n{text}"
    ));
    let listed = place.run(&["config"]).exits(0).stdout;
    assert!(
        listed.contains("$1.50") && listed.contains("2000") && listed.contains("1 h"),
        "{listed}"
    );
    place.run(&["run", "stop", "--max-tokens", "none"]).exits(0);
    let session = place.only_session();
    let line = spent(&place, &session);
    assert_eq!(
        line["limits"],
        serde_json::json!({"max_steps": 100, "max_cost": 1_500_000, "max_tokens": null, "max_wall_ms": 3_600_000})
    );
    // Others stay as they are.
    place
        .run(&["limits", &session, "--max-time", "90s"])
        .exits(0);
    let line = spent(&place, &session);
    assert_eq!(
        (&line["limits"]["max_wall_ms"], &line["limits"]["max_cost"]),
        (&90_000.into(), &1_500_000.into())
    );
    for bad in ["lots", "-1", "0.0000001"] {
        let flag = format!("--max-cost={bad}");
        place.run(&["run", "x", &flag]).exits(2);
    }
    place.write_config(&format!("max_time = \"soon\"\n{text}"));
    let out = place.run(&["config"]).exits(2);
    assert!(
        out.stderr.contains("tenure.toml:1") && out.stderr.contains("`soon` is no time"),
        "{}",
        out.stderr
    );
}

#[test]
fn an_unknown_price_and_a_limit_on_cost_do_not_go_together() {
    let place = Place::new(BUSY);
    let out = place
        .run(&["run", "stop", "-m", "local/m2", "--max-cost", "1"])
        .exits(4);
    assert!(
        out.stderr.contains("the price of local/m2 is not known"),
        "{}",
        out.stderr
    );
    assert_eq!(place.model().requests().len(), 0);
    // Without the limit it runs, and the listing says that the price is unknown.
    let session = place.only_session();
    place
        .run(&["limits", &session, "--max-cost", "none"])
        .exits(0);
    place.run(&["resume", &session]).exits(0);
    let out = place.run(&["sessions"]).exits(0);
    assert!(out.stdout.contains("price unknown"), "{}", out.stdout);
}

#[test]
fn a_turn_ends_when_its_time_is_over() {
    let place = Place::new(
        "version = 1\nselect = \"history\"\n[[turn]]\npart = [{ call = { name = \"bash\", input = { command = \"sleep 600\" } } }]\n",
    );
    let out = place.run(&["run", "work", "--max-time", "2s"]).exits(4);
    assert!(
        out.stderr.contains("this turn has lasted 2 s"),
        "{}",
        out.stderr
    );
    let session = place.only_session();
    let types = place.types(&session);
    assert!(
        types.contains(&"tool.failed".to_owned()) && types.contains(&"step.failed".to_owned()),
        "{types:?}"
    );
}

/// Waits once, then calls tools without end; sleeps when it is told to.
const GOES_ON: &str = r#"
version = 1
select = "history"
[[turn]]
when = "stop"
part = [{ text = "Stopped." }]
[[turn]]
when_request = "wait first"
skip_if_contains = "WAITED"
part = [{ call = { name = "bash", input = { command = "touch started; while [ ! -e go ]; do sleep 0.02; done; echo WAIT$(echo ED)" } } }]
[[turn]]
when_request = "sleep long"
part = [{ call = { name = "bash", input = { command = "sleep 600" } } }]
[[turn]]
part = [{ call = { name = "bash", input = { command = "true" } } }]
"#;

/// A limit: its flag and value, the prompt that runs into it, the error's kind and the exit code.
struct Limit {
    flag: &'static str,
    value: &'static str,
    prompt: &'static str,
    kind: &'static str,
    code: i32,
}

const LIMITS: [Limit; 4] = [
    Limit {
        flag: "--max-cost",
        value: "0.000001",
        prompt: "work",
        kind: "budget",
        code: 4,
    },
    Limit {
        flag: "--max-tokens",
        value: "1",
        prompt: "work",
        kind: "budget",
        code: 4,
    },
    Limit {
        flag: "--max-time",
        value: "1s",
        prompt: "sleep long",
        kind: "budget",
        code: 4,
    },
    Limit {
        flag: "--max-steps",
        value: "1",
        prompt: "work",
        kind: "step_limit",
        code: 1,
    },
];

fn kind_of(out: &Out) -> serde_json::Value {
    out.lines().pop().unwrap()["error"]["kind"].clone()
}

#[test]
fn every_limit_holds_in_a_new_session_and_in_one_that_exists() {
    for limit in &LIMITS {
        let place = Place::new(GOES_ON);
        let flags = [limit.flag, limit.value, "--json"];
        let out = place
            .run(&[&["run", limit.prompt], &flags[..]].concat())
            .exits(limit.code);
        assert_eq!(kind_of(&out), limit.kind, "{}", limit.flag);

        let place = Place::new(GOES_ON);
        place.run(&["run", "stop"]).exits(0);
        let session = place.only_session();
        let out = place
            .run(&[&["run", limit.prompt, "-s", &session], &flags[..]].concat())
            .exits(limit.code);
        assert_eq!(kind_of(&out), limit.kind, "{} --session", limit.flag);
    }
}

#[test]
fn every_limit_holds_in_the_background() {
    for limit in &LIMITS {
        let place = Place::new(GOES_ON);
        let out = place
            .run(&["run", limit.prompt, "--detach", limit.flag, limit.value])
            .exits(0);
        let session = out.stdout.trim();
        let events = place.wait_for_event(session, "execution.failed");
        let end = events.iter().find(|e| e["type"] == "execution.failed");
        assert_eq!(
            end.unwrap()["data"]["error"]["kind"],
            limit.kind,
            "{}",
            limit.flag
        );
    }
}

#[test]
fn every_limit_holds_when_a_session_is_resumed_and_may_be_changed_there() {
    for limit in &LIMITS {
        let place = Place::new(GOES_ON);
        let prompt = format!("wait first, then {}", limit.prompt);
        let child = place.start(&["run", &prompt]);
        wait_for_file(&place.path("project/started"));
        let session = place.only_session();
        // It lets go at the next boundary, and leaves the turn to whoever comes.
        signal(&child, "TERM");
        place.write("project/go", "");
        finish(child).exits(130);
        assert_eq!(place.row(&session)["state"], "claimable");
        let out = place
            .run(&["resume", &session, limit.flag, limit.value, "--json"])
            .exits(limit.code);
        assert_eq!(kind_of(&out), limit.kind, "{}", limit.flag);
        let types = place.types(&session);
        assert!(types.contains(&"limits.changed".to_owned()), "{types:?}");
    }
}
