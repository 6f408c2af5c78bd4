//! Exit codes are honest: done 0, failed 1, usage 2, quarantined 3, interrupted 130.

use crate::support::*;

#[test]
fn a_refused_key_fails_with_the_endpoints_words() {
    let place = Place::new(
        "version = 1\n[[turn]]\nfault = { kind = \"status\", status = 401, message = \"bad key\" }\n",
    );
    let out = place.run(&["run", "hi"]).exits(1);
    assert!(
        out.stderr.starts_with("error: ") && out.stderr.contains("bad key"),
        "{}",
        out.stderr
    );
    assert!(out.stderr.contains("tenure show ses_"), "{}", out.stderr);
    assert_eq!(out.stdout, "");
}

#[test]
fn a_refused_key_is_named_by_its_place_and_never_shown() {
    let script = "version = 1\nselect = \"history\"\n[[turn]]\nfault = { kind = \"status\", status = 401, message = \"bad key\" }\n";
    let place = Place::new(script);
    let out = place.run(&["run", "hi"]).exits(1);
    assert!(
        out.stderr
            .contains("provider local has no key: set api_key_env"),
        "{}",
        out.stderr
    );
    let config = std::fs::read_to_string(place.config()).unwrap();
    let config = config.replace(
        "protocol = \"openai-chat\"",
        "protocol = \"openai-chat\"\napi_key_env = \"THE_KEY\"",
    );
    place.write_config(&config);
    let mut command = place.command(&["run", "hi"]);
    command.env("THE_KEY", "sk-not-to-be-seen-1234");
    let out = finish(command.spawn().unwrap()).exits(1);
    let line = config.lines().position(|l| l.contains("THE_KEY")).unwrap() + 1;
    let place_words = format!("tenure.toml:{line}");
    assert!(
        out.stderr.contains("bad key")
            && out.stderr.contains("THE_KEY")
            && out.stderr.contains(&place_words),
        "{}",
        out.stderr
    );
    assert!(!out.stderr.contains("sk-not-to-be-seen"), "{}", out.stderr);
    let doctor = place.run(&["sessions"]).exits(0).stdout;
    assert!(
        doctor.contains("failed") && doctor.contains("✗ "),
        "{doctor}"
    );
}

#[test]
fn bc_s_010_after_a_failure_the_session_is_not_running_and_goes_on() {
    let place = Place::new(
        "version = 1\n[[turn]]\nfault = { kind = \"status\", status = 401 }\n[[turn]]\npart = [{ text = \"Better.\" }]\n",
    );
    place.run(&["run", "hi"]).exits(1);
    let session = place.only_session();
    let row = place.row(&session);
    assert_eq!(
        (row["state"].as_str(), row["last_outcome"].as_str()),
        (Some("idle"), Some("failed"))
    );
    assert_eq!(row["last_error"]["kind"], "auth", "{row}");
    let out = place.run(&["run", "again", "--session", &session]).exits(0);
    assert_eq!(out.stdout, "Better.\n");
    assert!(place.row(&session).get("last_error").is_none());
}

#[test]
fn an_endpoint_that_refuses_connections_or_speaks_no_http() {
    let place = Place::bare();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let config = format!(
        "default_model = \"p/m\"\n[providers.p]\nprotocol = \"openai-chat\"\nbase_url = \"http://127.0.0.1:{port}/v1\"\n"
    );
    place.write_config(&config);
    drop(listener);
    let out = place.run(&["doctor"]).exits(1);
    assert!(out.stdout.contains("127.0.0.1"), "{}", out.stdout);
}

const WAITS: &str = r#"
version = 1
select = "history"
[[turn]]
when = "wait"
part = [{ call = { name = "bash", input = { command = "touch started; sleep 600 & sleep 600" } } }]
[[turn]]
part = [{ text = "Going on." }]
"#;

#[test]
fn an_interrupt_from_another_process_ends_the_run_with_130() {
    let place = Place::new(WAITS);
    let child = place.start(&["run", "wait", "--json"]);
    wait_for_file(&place.path("project/started"));
    let session = place.only_session();
    let receipt = place
        .run(&["interrupt", &session, "--json"])
        .exits(0)
        .lines()
        .remove(0);
    assert_eq!(receipt["receipt"], "accepted");
    let out = finish(child).exits(130);
    let result = out.lines().pop().unwrap();
    assert_eq!(
        (result["outcome"].as_str(), result["exit"].as_u64()),
        (Some("interrupted"), Some(130))
    );
    assert!(out.stderr.contains("interrupted"), "{}", out.stderr);
    // Nothing is left to interrupt, and the next prompt works.
    let receipt = place
        .run(&["interrupt", &session, "--json"])
        .exits(0)
        .lines()
        .remove(0);
    assert_eq!(receipt["receipt"], "idle");
    let out = place.run(&["run", "on", "--session", &session]).exits(0);
    assert_eq!(out.stdout, "Going on.\n");
}

#[test]
fn resuming_an_idle_session_says_that_there_is_nothing_to_do() {
    let place = Place::new(HELLO);
    place.run(&["run", "x"]).exits(0);
    let session = place.only_session();
    let before = place.events(&session).len();
    let out = place.run(&["resume", &session]).exits(0);
    assert!(out.stderr.contains("nothing to do"), "{}", out.stderr);
    assert_eq!(place.events(&session).len(), before);
    let all = place.run(&["resume", "--all"]).exits(0);
    assert!(
        all.stderr.contains("no session has anything to do"),
        "{}",
        all.stderr
    );
    assert_eq!(place.model().requests().len(), 1);
}

#[test]
fn usage_errors_of_the_grammar_end_with_2() {
    let place = Place::bare();
    for args in [
        &["frobnicate"][..],
        &["run", "x", "--max-steps", "0"],
        &["resume"],
        &["log", "x", "--until-idle"],
    ] {
        place.run(args).exits(2);
    }
    place.run(&["--version"]).exits(0);
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let place = Place::new(HELLO);
    place.run(&["run", "x"]).exits(0);
    let session = place.only_session();
    let script = format!(
        "{} log {session} --json | head -n 1; exit 0",
        env!("CARGO_BIN_EXE_tenure")
    );
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", &script])
        .env("HOME", place.path("home"))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let out = finish(command.spawn().unwrap()).exits(0);
    assert_eq!(out.stderr, "");
    assert_eq!(out.stdout.lines().count(), 1);
}

const CUT_IN_A_CALL: &str = r#"
version = 1
[[turn]]
part = [{ text = "DRAFT" }, { call = { name = "bash", input = { command = "true; true; true; true" } } }]
fault = { kind = "cut", after_events = 6 }
[fallback]
part = [{ text = "FINAL" }]
"#;

#[test]
fn text_of_an_attempt_that_was_given_up_does_not_count() {
    let place = Place::new(CUT_IN_A_CALL);
    let out = place.run(&["run", "x"]).exits(0);
    assert_eq!(out.stdout, "FINAL\n");
    let session = place.only_session();
    let types = place.types(&session);
    assert!(types.contains(&"retry.scheduled".to_owned()), "{types:?}");
    let out = place.run(&["show", &session]).exits(0);
    assert!(
        out.stdout.contains("FINAL") && !out.stdout.contains("DRAFT"),
        "{}",
        out.stdout
    );
    // The call that never arrived whole has its tool's name.
    assert!(out.stdout.contains("✗ bash"), "{}", out.stdout);
}

#[test]
fn the_first_retry_is_told_also_in_a_pipe() {
    let place = Place::new(
        "version = 1\n[[turn]]\nfault = { kind = \"status\", status = 503, message = \"busy now\" }\n[[turn]]\npart = [{ text = \"Late.\" }]\n",
    );
    let out = place.run(&["run", "hi"]).exits(0);
    assert_eq!(out.stdout, "Late.\n");
    assert!(
        out.stderr.starts_with("notice: ")
            && out.stderr.contains("busy now")
            && out.stderr.contains("trying again, up to 4 times"),
        "{}",
        out.stderr
    );
    assert_eq!(out.stderr.lines().count(), 1, "{}", out.stderr);
}

/// A full disk is not a reader that has had enough: somebody wants the answer.
#[test]
#[cfg(target_os = "linux")]
fn an_answer_that_could_not_be_written_is_no_success() {
    let place = Place::new(HELLO);
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let child = place
        .command(&["run", "hello"])
        .stdout(full)
        .spawn()
        .unwrap();
    let out = finish(child).exits(1);
    let session = place.only_session();
    assert!(
        out.stderr.contains("No space left")
            && out.stderr.contains(&format!("tenure show {session}")),
        "{}",
        out.stderr
    );
    assert_eq!(place.types(&session).last().unwrap(), "execution.succeeded");
}
