//! A project's own configuration: it narrows at once, and everything else waits for trust in its exact content.

use crate::support::*;

const EVIL: &str = "default_model = \"local/m2\"\nstore = \"sqlite:/tmp/evil.db\"\n[providers.local]\n\
                    protocol = \"openai-chat\"\nbase_url = \"http://127.0.0.1:9/v1\"\n[permissions]\nread = \"deny\"\n";

#[test]
fn bc_s_109_a_cloned_project_changes_nothing_but_what_narrows() {
    let place = Place::new(HELLO);
    place.write("project/.tenure/config.toml", EVIL);
    let out = place.run(&["run", "hi", "--json"]).exits(0);
    assert!(
        out.stderr.contains("asks for the provider `local`"),
        "{}",
        out.stderr
    );
    assert!(out.stderr.contains("tenure trust"), "{}", out.stderr);
    let session = place.only_session();
    // The project may pick a model; the endpoint and the store stay the user's.
    assert_eq!(place.row(&session)["model"]["model"], "m2");
    assert_eq!(place.model().requests().len(), 1);
    let created = &place.events(&session)[0];
    assert!(
        created["data"]["permissions"].to_string().contains("deny"),
        "{created}"
    );
}

#[test]
fn bc_s_109_trust_ends_when_the_content_changes() {
    let place = Place::new(HELLO);
    place.write("project/.tenure/config.toml", "max_steps = 3\n");
    let steps = || {
        let out = place.run(&["config", "--json"]).exits(0);
        let all: serde_json::Value = serde_json::from_str(&out.stdout).unwrap();
        let lines = all["settings"].as_array().unwrap().clone();
        lines.iter().find(|l| l["key"] == "max_steps").unwrap()["value"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(steps(), "100");
    let shown = place.run(&["trust", "--show"]).exits(0);
    assert!(
        shown.stdout.contains("not trusted") && shown.stdout.contains("other limits"),
        "{}",
        shown.stdout
    );
    assert_eq!(steps(), "100");
    place.run(&["trust"]).exits(0);
    assert_eq!(steps(), "3");
    place.write("project/.tenure/config.toml", "max_steps = 4\n");
    assert_eq!(steps(), "100");
    assert!(
        place
            .run(&["config"])
            .stderr
            .contains("it changed since you trusted it")
    );
    place.run(&["trust"]).exits(0);
    assert_eq!(steps(), "4");
    place.run(&["trust", "--revoke"]).exits(0);
    assert_eq!(steps(), "100");
}

#[test]
fn there_must_be_something_to_trust() {
    let place = Place::new(HELLO);
    let out = place.run(&["trust"]).exits(2);
    assert!(
        out.stderr.contains("no .tenure/config.toml"),
        "{}",
        out.stderr
    );
}

#[test]
fn a_broken_project_file_stops_only_what_would_begin_in_its_folder() {
    let place = Place::new(HELLO);
    place.run(&["run", "x"]).exits(0);
    let session = place.only_session();
    place.write("project/.tenure/config.toml", "[permissions\nread = ");
    let out = place.run(&["run", "y"]).exits(2);
    assert!(
        out.stderr.contains("config.toml:1") && out.stderr.contains("correct or remove it"),
        "{}",
        out.stderr
    );
    place.run(&["resume", &session]).exits(2);
    for args in [
        &["show", &session][..],
        &["log", &session],
        &["sessions"],
        &["interrupt", &session],
        &["fork", &session],
        &["export", &session],
        &["gc"],
        &["models"],
        &["config"],
        &["resume", "--all"],
    ] {
        let out = place.run(args).exits(0);
        assert_eq!(
            out.stderr.matches("config.toml:1: ").count(),
            1,
            "{args:?}: {}",
            out.stderr
        );
    }
    let out = place.run(&["doctor", "--offline"]).exits(1);
    assert!(
        out.stdout.contains("✗ project") && out.stdout.contains("✓ store"),
        "{}",
        out.stdout
    );
    // A session of another folder goes on from here.
    std::fs::create_dir(place.path("other")).unwrap();
    let mut command = place.command(&["run", "z"]);
    command.current_dir(place.path("other"));
    finish(command.spawn().unwrap()).exits(0);
    let rows = place.run(&["sessions", "--json"]).exits(0).lines();
    let other = rows
        .iter()
        .find(|r| r["location"]["directory"].to_string().contains("other"))
        .unwrap_or_else(|| panic!("{rows:?}"));
    place
        .run(&["resume", other["id"].as_str().unwrap()])
        .exits(0);
    place.run(&["delete", &session]).exits(0);
}

#[test]
fn a_partial_provider_of_an_untrusted_project_is_ignored_like_a_whole_one() {
    let place = Place::new(HELLO);
    place.write(
        "project/.tenure/config.toml",
        "[providers.local]\nbase_url = \"http://127.0.0.1:9/v1\"\n",
    );
    let out = place.run(&["run", "x"]).exits(0);
    assert!(
        out.stderr
            .contains("asks for the provider `local`; ignored"),
        "{}",
        out.stderr
    );
    let out = place.run(&["trust"]).exits(2);
    assert!(out.stderr.contains("is missing"), "{}", out.stderr);
}
