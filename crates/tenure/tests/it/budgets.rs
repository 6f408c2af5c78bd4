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
