//! Bad input gets one clear message with the next step, the right exit code, and changes nothing.

use crate::support::*;

/// One line that begins with `error:`, then next steps; and no store was made.
#[track_caller]
fn refused(place: &Place, out: Out, what: &str) {
    let out = out.exits(2);
    let first = out.stderr.lines().next().unwrap_or_default();
    assert!(
        first.starts_with("error: ") && first.contains(what),
        "{what}\n{}",
        out.stderr
    );
    assert!(
        out.stderr.lines().count() >= 2,
        "no next step: {}",
        out.stderr
    );
    assert_eq!(out.stdout, "");
    assert!(!place.store().exists(), "a store was made");
}

#[test]
fn prompts_that_cannot_be_used() {
    let place = Place::new(HELLO);
    refused(&place, place.run(&["run"]), "no prompt");
    refused(&place, place.run(&["run", "  "]), "empty");
    refused(&place, place.run_with_stdin(&["run", "-"], b""), "empty");
    refused(
        &place,
        place.run_with_stdin(&["run", "-"], b"a\0b"),
        "not text",
    );
    refused(
        &place,
        place.run_with_stdin(&["run", "-"], &[0xff, 0xfe]),
        "not text",
    );
    refused(
        &place,
        place.run_with_stdin(&["run", "-"], &vec![b'a'; 5_000_000]),
        "longer than 1 MiB",
    );
    assert_eq!(place.model().requests().len(), 0);
}

#[test]
fn files_that_cannot_be_attached() {
    let place = Place::new(HELLO);
    place.write("project/binary", "a\0b");
    refused(
        &place,
        place.run(&["run", "x", "--file", "missing.txt"]),
        "missing.txt",
    );
    refused(
        &place,
        place.run(&["run", "x", "--file", "binary"]),
        "not text",
    );
    refused(
        &place,
        place.run(&["run", "x", "--file", "."]),
        "not a file",
    );
}

#[test]
fn forms_of_answers_that_cannot_be_used() {
    let place = Place::new(HELLO);
    for (form, words) in [
        ("{bad", "cannot be used"),
        ("[1]", "no JSON object"),
        (r#"{"type": "objekt"}"#, "/type"),
        (
            r##"{"properties": {"a": {"$ref": "#/nowhere"}}}"##,
            "nowhere",
        ),
        (r#"{"$ref": "file:///etc/hostname"}"#, "nothing is fetched"),
    ] {
        place.write("project/form.json", form);
        let out = place.run(&["run", "x", "--output-schema", "form.json"]);
        refused(&place, out, words);
    }
    let out = place.run(&["run", "x", "--output-schema", "missing.json"]);
    refused(&place, out, "missing.json");
}

#[test]
fn files_that_are_too_large_say_how_large_they_may_be() {
    let place = Place::new(HELLO);
    let png = [b"\x89PNG\r\n\x1a\n".as_slice(), &vec![0; 8 << 20]].concat();
    std::fs::write(place.path("project/big.png"), png).unwrap();
    refused(
        &place,
        place.run(&["run", "x", "--file", "big.png"]),
        "big.png is longer than 7.0 MiB",
    );
    std::fs::write(place.path("project/big.txt"), vec![b'x'; 2 << 20]).unwrap();
    refused(
        &place,
        place.run(&["run", "x", "--file", "big.txt"]),
        "big.txt is longer than 1 MiB",
    );
}

#[test]
fn models_and_providers_that_are_not_configured() {
    let place = Place::new(HELLO);
    let out = place.run(&["run", "x", "--model", "locla/m1"]);
    assert!(
        out.stderr.contains("did you mean `local`?"),
        "{}",
        out.stderr
    );
    refused(&place, out, "there is no provider `locla`");
    let out = place.run(&["run", "x", "--model", "local/m11"]);
    assert!(out.stderr.contains("did you mean `m1`?"), "{}", out.stderr);
    refused(&place, out, "has no model `m11`");
    let bare = Place::bare();
    let out = bare.run(&["run", "x"]);
    assert!(
        out.stderr.contains("tenure config --example"),
        "{}",
        out.stderr
    );
    refused(&bare, out, "no model is chosen");
}

#[test]
fn keys_that_are_missing() {
    let place = Place::bare();
    let config = |line: &str| {
        format!(
            "default_model = \"p/m\"\n[providers.p]\nprotocol = \"openai-chat\"\nbase_url = \"http://127.0.0.1:9/v1\"\n{line}\n"
        )
    };
    place.write_config(&config("api_key_env = \"NOT_SET_HERE\""));
    refused(&place, place.run(&["run", "x"]), "NOT_SET_HERE is not set");
    place.write("key", "sk-secret-secret-secret");
    place.write_config(&config(&format!(
        "api_key_file = \"{}\"",
        place.path("key").display()
    )));
    let out = place.run(&["run", "x"]);
    assert!(
        out.stderr.contains("chmod 600") && !out.stderr.contains("sk-secret"),
        "{}",
        out.stderr
    );
    refused(&place, out, "can be read by other users");
}

#[test]
fn folders_that_are_gone() {
    let place = Place::new(HELLO);
    refused(
        &place,
        place.run(&["run", "x", "--cwd", "nowhere"]),
        "nowhere",
    );
    let gone = place.path("gone");
    std::fs::create_dir(&gone).unwrap();
    let mut command = std::process::Command::new("sh");
    let script = "cd \"$1\" && rmdir \"$1\" && exec \"$2\" run x";
    command
        .args([
            "-c",
            script,
            "sh",
            gone.to_str().unwrap(),
            env!("CARGO_BIN_EXE_tenure"),
        ])
        .env("HOME", place.path("home"))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    refused(&place, finish(command.spawn().unwrap()), "current folder");
}

#[test]
fn a_session_whose_folder_is_gone_is_not_run() {
    let place = Place::new(HELLO);
    std::fs::create_dir(place.path("other")).unwrap();
    let other = place.path("other");
    place
        .run(&["run", "x", "--cwd", other.to_str().unwrap()])
        .exits(0);
    std::fs::remove_dir(&other).unwrap();
    let session = place.only_session();
    let before = place.events(&session).len();
    let out = place.run(&["run", "y", "--session", &session]).exits(2);
    assert!(
        out.stderr.contains("is gone") && out.stderr.contains("--cwd"),
        "{}",
        out.stderr
    );
    assert_eq!(place.events(&session).len(), before);
    let moved = place
        .run(&["run", "y", "--session", &session, "--cwd", "."])
        .exits(0);
    assert_eq!(moved.stdout, "Hello from the model.\n");
    assert_eq!(
        place.row(&session)["location"]["directory"],
        place.path("project").to_str().unwrap()
    );
}

#[test]
fn unknown_sessions_name_the_nearest_and_change_nothing() {
    let place = Place::new(HELLO);
    refused(
        &place,
        place.run(&["show", "ses_1"]),
        "there are no sessions",
    );
    place.run(&["run", "x"]).exits(0);
    let session = place.only_session();
    let before = place.events(&session);
    let mut typo = session.clone();
    typo.replace_range(10..11, "u");
    let commands: [&[&str]; 9] = [
        &["show", &typo],
        &["log", &typo],
        &["run", "x", "--session", &typo],
        &["resume", &typo],
        &["interrupt", &typo],
        &["fork", &typo],
        &["delete", &typo],
        &["release", &typo],
        &["export", &typo],
    ];
    for args in commands {
        let out = place.run(args).exits(2);
        assert!(
            out.stderr.contains(&format!("did you mean `{session}`?")),
            "{args:?}: {}",
            out.stderr
        );
    }
    assert_eq!(place.events(&session), before);
    let out = place.run(&["log", &session, "--after", "999"]).exits(2);
    assert!(out.stderr.contains("nothing after 999"), "{}", out.stderr);
    let out = place.run(&["cancel", &session, "msg_1"]).exits(2);
    assert!(out.stderr.contains("does not wait"), "{}", out.stderr);
    let out = place.run(&["release", &session]).exits(2);
    assert!(out.stderr.contains("not quarantined"), "{}", out.stderr);
}

#[test]
fn bc_s_075_stores_that_cannot_be_used_are_told_apart() {
    let place = Place::new(HELLO);
    place.write(
        "bad.db",
        "this is not a database, whatever its name says. It is long enough to be looked at.",
    );
    let bad = format!("sqlite:{}", place.path("bad.db").display());
    let out = place.run(&["sessions", "--store", &bad]).exits(1);
    assert!(
        out.stderr.contains("is damaged") && out.stdout.is_empty(),
        "{}",
        out.stderr
    );
    assert!(
        std::fs::read_to_string(place.path("bad.db"))
            .unwrap()
            .starts_with("this is not")
    );
    place.write("file", "");
    let below = format!("sqlite:{}", place.path("file/x.db").display());
    let out = place.run(&["run", "x", "--store", &below]);
    assert_ne!(out.code, 0);
    assert!(out.stderr.starts_with("error: "), "{}", out.stderr);
}

#[test]
fn broken_configuration_stops_every_command() {
    let place = Place::new(HELLO);
    place.write_config("defualt_model = \"x/y\"\n");
    for args in [&["run", "x"][..], &["sessions"], &["config"], &["models"]] {
        let out = place.run(args).exits(2);
        assert!(
            out.stderr
                .contains("tenure.toml:1: unknown key `defualt_model`"),
            "{}",
            out.stderr
        );
        assert!(
            out.stderr.contains("did you mean `default_model`?"),
            "{}",
            out.stderr
        );
    }
    place.write_config("a = = 1\n");
    refused(
        &place,
        place.run(&["run", "x"]),
        "tenure.toml:1: this is not valid TOML",
    );
}

#[test]
fn an_unknown_execution_a_file_that_exists_and_roots_beside_a_file_are_refused() {
    let place = Place::new(HELLO);
    place.run(&["run", "x"]).exits(0);
    let session = place.only_session();
    let out = place
        .run(&[
            "interrupt",
            &session,
            "--execution",
            "exe_00000000000000000000000001",
        ])
        .exits(2);
    assert!(
        out.stderr.contains("has no execution exe_"),
        "{}",
        out.stderr
    );
    let execution = place
        .events(&session)
        .iter()
        .find(|e| e["type"] == "execution.started")
        .unwrap()["data"]["execution"]
        .as_str()
        .unwrap()
        .to_owned();
    let out = place
        .run(&["interrupt", &session, "--execution", &execution])
        .exits(0);
    assert!(out.stdout.contains("over already"), "{}", out.stdout);
    place.write("project/s.jsonl", "mine");
    let out = place.run(&["export", &session, "-o", "s.jsonl"]).exits(2);
    assert!(out.stderr.contains("is not overwritten"), "{}", out.stderr);
    let kept = std::fs::read_to_string(place.path("project/s.jsonl")).unwrap();
    assert_eq!(kept, "mine");
    let out = place.run(&["node", "--root", "/nonexist"]).exits(2);
    assert!(!out.stderr.contains("there is no folder"), "{}", out.stderr);
}

#[test]
fn a_deleted_session_is_not_taken_for_another_of_the_same_moment() {
    let place = Place::new(HELLO);
    place.run(&["run", "x"]).exits(0);
    let session = place.only_session();
    // The time in front is the same, the rest is not.
    let other = format!("{}0000000000000000", &session[..session.len() - 16]);
    let out = place.run(&["delete", &other]).exits(2);
    assert!(!out.stderr.contains("did you mean"), "{}", out.stderr);
    let mut slip = session.clone();
    let last = if slip.pop() == Some('0') { '1' } else { '0' };
    slip.push(last);
    let out = place.run(&["show", &slip]).exits(2);
    assert!(
        out.stderr.contains(&format!("did you mean `{session}`?")),
        "{}",
        out.stderr
    );
}
