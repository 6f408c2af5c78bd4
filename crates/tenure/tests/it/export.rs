//! Export and import: secrets masked unless asked otherwise, a round trip, and nothing half imported.

use crate::support::*;

const SCRIPT: &str = r#"
version = 1
select = "history"
[[turn]]
skip_if_contains = "DB_PASSWORD"
part = [{ text = "Reading the settings." }, { call = { name = "read", input = { path = ".env" } } }]
[[turn]]
chunk_delay_ms = 1
chunk_size = 3
part = [{ text = "The key is sk-proj-abcdefghijklmnop1234 and that is all." }]
"#;

const ENV: &str = "OPENAI_API_KEY=sk-proj-abcdefghijklmnop1234\nDB_PASSWORD=hunter2hunter2\nAWS=AKIAIOSFODNN7EXAMPLE\n\
                   GH=ghp_abcdefghijklmnopqrstuvwxyz0123456789\nSLACK=xoxb-1234567890-abcdef\nURL=https://me:passw0rd@host/\n\
                   -----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\n-----END PRIVATE KEY-----\n";

const SECRETS: [&str; 7] = [
    "abcdefghijklmnop1234",
    "hunter2hunter2",
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_abcdef",
    "xoxb-12345",
    "passw0rd",
    "MIIEvQIBADANBg",
];

fn place_with_secrets() -> (Place, String) {
    let place = Place::new(SCRIPT);
    place.write("project/.env", ENV);
    place
        .run(&[
            "run",
            "what is in .env? mine is ghp_abcdefghijklmnopqrstuvwxyz0123456789",
            "--allow-all",
        ])
        .exits(0);
    let session = place.only_session();
    (place, session)
}

#[test]
fn bc_s_125_secrets_are_masked_with_a_count_and_the_export_stays_importable() {
    let (place, session) = place_with_secrets();
    let out = place.run(&["export", &session]).exits(0);
    for secret in SECRETS {
        assert!(!out.stdout.contains(secret), "{secret} in {}", out.stdout);
    }
    let header = out.lines().remove(0);
    assert_eq!(
        (header["tenure_export"].as_u64(), header["masked"].as_bool()),
        (Some(1), Some(true))
    );
    let count = header["masked_count"].as_u64().unwrap();
    assert!(count >= 9, "{count}");
    assert!(
        out.stderr.contains(&format!("{count} secrets masked")),
        "{}",
        out.stderr
    );
    let other = Place::new(HELLO);
    other.write("x.jsonl", &out.stdout);
    let file = other.path("x.jsonl");
    let imported = other.run(&["import", file.to_str().unwrap()]).exits(0);
    assert!(
        imported.stdout.contains("with secrets masked"),
        "{}",
        imported.stdout
    );
    let shown = other.run(&["show", &session]).exits(0);
    assert!(
        shown
            .stdout
            .contains("The key is [masked] and that is all."),
        "{}",
        shown.stdout
    );
    // It can be gone on with, in a folder that exists here.
    other
        .run(&["run", "on", "--session", &session, "--cwd", "."])
        .exits(0);
}

#[test]
fn a_raw_export_round_trips_exactly() {
    let (place, session) = place_with_secrets();
    let file = place.path("raw.jsonl");
    let out = place
        .run(&["export", &session, "--raw", "-o", file.to_str().unwrap()])
        .exits(0);
    assert!(out.stderr.contains("left as they are"), "{}", out.stderr);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(SECRETS.iter().all(|s| text.contains(s)), "{text}");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o077,
        0
    );
    let other = Place::new(HELLO);
    other.run(&["import", file.to_str().unwrap()]).exits(0);
    assert_eq!(other.events(&session), place.events(&session));
    assert_eq!(other.row(&session)["cost"], place.row(&session)["cost"]);
    // Importing starts nothing, and again is harmless.
    assert_eq!(other.model().requests().len(), 0);
    let again = other.run(&["import", file.to_str().unwrap()]).exits(0);
    assert!(again.stdout.contains("0 events new"), "{}", again.stdout);
}

#[test]
fn nothing_is_half_imported() {
    let (place, session) = place_with_secrets();
    let export = place.run(&["export", &session]).exits(0).stdout;
    let lines: Vec<&str> = export.lines().collect();
    let other = Place::new(HELLO);
    for (name, text) in [
        ("cut", lines[..lines.len() - 1].join("\n")),
        ("gap", [&lines[..3], &lines[4..]].concat().join("\n")),
        ("foreign", "hello\n".to_owned()),
        ("empty", String::new()),
    ] {
        other.write(name, &text);
        let out = other
            .run(&["import", other.path(name).to_str().unwrap()])
            .exits(2);
        assert!(
            out.stderr.contains("nothing was imported") || out.stderr.contains("export it again"),
            "{}",
            out.stderr
        );
        assert!(!other.store().exists(), "{name}");
    }
    other.run(&["import", "nowhere.jsonl"]).exits(2);
}

#[test]
fn a_conflict_names_the_file_the_line_and_what_to_do() {
    let place = Place::new(HELLO);
    place.run(&["run", "first words"]).exits(0);
    let session = place.only_session();
    let export = place.run(&["export", &session, "--raw"]).exits(0).stdout;
    let at = export
        .lines()
        .position(|l| l.contains("first words"))
        .unwrap()
        + 1;
    place.write(
        "changed.jsonl",
        &export.replace("first words", "other words"),
    );
    let file = place.path("changed.jsonl");
    let out = place.run(&["import", file.to_str().unwrap()]).exits(2);
    let place_of_it = format!("error: {}:{at}: seq ", file.display());
    assert!(out.stderr.starts_with(&place_of_it), "{}", out.stderr);
    assert!(
        out.stderr.contains(&session) && out.stderr.contains("another --store"),
        "{}",
        out.stderr
    );
    place.write("binary", "");
    std::fs::write(place.path("binary"), [0xff, 0xd8, 0, 1]).unwrap();
    let out = place
        .run(&["import", place.path("binary").to_str().unwrap()])
        .exits(2);
    assert!(
        out.stderr.contains("not an export of tenure"),
        "{}",
        out.stderr
    );
}

#[test]
fn an_export_goes_into_a_pipe_and_does_not_replace_it() {
    let place = Place::new(HELLO);
    place.run(&["run", "hello"]).exits(0);
    let session = place.only_session();
    let pipe = place.path("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read_to_string(pipe).unwrap()
    });
    let to = pipe.to_str().unwrap();
    place.run(&["export", &session, "-o", to]).exits(0);
    // Before the reader is joined: one that was replaced has no writer, and would be waited for without end.
    use std::os::unix::fs::FileTypeExt;
    assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
    assert_eq!(
        reader.join().unwrap().lines().count(),
        1 + place.events(&session).len()
    );
}

/// Spoils the body of an event where it lies in the file: behind its id and its type.
fn damage(file: &std::path::Path, event: &serde_json::Value) {
    let mut bytes = std::fs::read(file).unwrap();
    let find = |from: usize, what: &str| {
        let at = bytes[from..]
            .windows(what.len())
            .position(|found| found == what.as_bytes());
        at.map(|at| from + at)
    };
    let (id, name) = (
        event["id"].as_str().unwrap(),
        event["type"].as_str().unwrap(),
    );
    let mut from = 0;
    let body = loop {
        let at = find(from, id).expect("the event is in the file");
        match find(at, name) {
            Some(there) if there < at + 60 => break find(there, "{").unwrap(),
            // Its entry in the index.
            _ => from = at + 1,
        }
    };
    bytes[body] = b'!';
    std::fs::write(file, bytes).unwrap();
}

#[test]
fn what_stands_before_damage_can_be_exported_and_forked() {
    let place = Place::new(HELLO);
    place.run(&["run", "hello"]).exits(0);
    let session = place.only_session();
    let events = place.events(&session);
    // Brings the log into the file itself.
    place.run(&["gc"]).exits(0);
    damage(&place.store(), &events[5]);
    let out = place.run(&["export", &session]).exits(1);
    assert!(
        events.len() > 6 && out.lines().len() == 1 + 5,
        "{}",
        out.stdout
    );
    for words in [
        "5 events exported",
        &format!("tenure fork {session} --at 4"),
    ] {
        assert!(out.stderr.contains(words), "{words}: {}", out.stderr);
    }
    place.write("part.jsonl", &out.stdout);
    let other = Place::new(HELLO);
    let file = place.path("part.jsonl");
    other.run(&["import", file.to_str().unwrap()]).exits(0);
    let child = place.run(&["fork", &session, "--at", "4"]).exits(0);
    assert_eq!(place.events(child.stdout.trim()).len(), 6);
}

#[test]
fn an_export_of_nothing_is_refused() {
    let place = Place::new(HELLO);
    place.run(&["run", "hello"]).exits(0);
    let session = place.only_session();
    let out = place.run(&["export", &session]).exits(0);
    let mut header = out.lines().remove(0);
    header["events"] = 0.into();
    place.write("none.jsonl", &format!("{header}\n"));
    let file = place.path("none.jsonl");
    let out = place.run(&["import", file.to_str().unwrap()]).exits(2);
    assert!(out.stderr.contains("holds no event"), "{}", out.stderr);
}
