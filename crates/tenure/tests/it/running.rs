//! `tenure run` end to end: text out, sessions continued, prompts queued, two processes on one session.

use crate::support::*;

const SLOW: &str = r#"
version = 1
select = "history"
[[turn]]
skip_if_contains = "WAITED"
part = [{ text = "I wait." }, { call = { name = "bash", input = { command = "touch started; while [ ! -e go ]; do sleep 0.02; done; echo WAIT$(echo ED)" } } }]
[[turn]]
when = "third"
part = [{ text = "Third answer." }]
[[turn]]
when = "second"
part = [{ text = "Second answer." }]
[[turn]]
part = [{ text = "First answer." }]
"#;

#[test]
fn piped_output_is_the_models_text_and_nothing_else() {
    let place = Place::new(
        "version = 1\n[[turn]]\npart = [{ reasoning = \"hm\" }, { text = \"# Title\\n\\nSome **text**.\" }]\n",
    );
    let out = place.run(&["run", "hi"]).exits(0);
    assert_eq!(out.stdout, "# Title\n\nSome **text**.\n");
    assert_eq!(out.stderr, "");
}

#[test]
fn the_prompt_may_come_from_standard_input_with_files() {
    let place = Place::new(HELLO);
    place.write("project/notes.txt", "the notes say so");
    place
        .run_with_stdin(&["run", "-", "--file", "notes.txt"], b"read them")
        .exits(0);
    let requests = place.model().requests();
    let body = requests[0].body.to_string();
    assert!(
        body.contains("read them")
            && body.contains("the notes say so")
            && body.contains("notes.txt"),
        "{body}"
    );
}

#[test]
fn bc_s_081_continue_takes_the_session_last_used_in_this_folder() {
    let place = Place::new(HELLO);
    std::fs::create_dir(place.path("other")).unwrap();
    let first = place.run(&["run", "one", "--json"]).exits(0).lines()[0]["session"].clone();
    let second = place.run(&["run", "two", "--json"]).exits(0).lines()[0]["session"].clone();
    place
        .run(&[
            "run",
            "elsewhere",
            "--cwd",
            place.path("other").to_str().unwrap(),
        ])
        .exits(0);
    // The first one is used again, so it is the last.
    place
        .run(&["run", "three", "--session", first.as_str().unwrap()])
        .exits(0);
    let out = place.run(&["run", "four", "--continue", "--json"]).exits(0);
    assert_eq!(out.lines()[0]["session"], first);
    assert_ne!(first, second);
    assert_eq!(out.lines()[0]["created"], false);
    let nowhere = place.path("nothing-yet");
    std::fs::create_dir(&nowhere).unwrap();
    let out = place
        .run(&["run", "x", "--continue", "--cwd", nowhere.to_str().unwrap()])
        .exits(2);
    assert!(
        out.stderr.contains("no session was used in"),
        "{}",
        out.stderr
    );
}

#[test]
fn a_session_is_found_by_the_beginning_of_its_id() {
    let place = Place::new(HELLO);
    place.run(&["run", "x"]).exits(0);
    let session = place.only_session();
    let shown = place.run(&["show", &session[..20]]).exits(0);
    assert!(shown.stdout.contains(&session), "{}", shown.stdout);
}

#[test]
fn flags_change_a_session_that_exists() {
    let place = Place::new(HELLO);
    place.run(&["run", "x"]).exits(0);
    let session = place.only_session();
    place
        .run(&[
            "run",
            "y",
            "-s",
            &session,
            "--model",
            "local/m2",
            "--max-steps",
            "5",
        ])
        .exits(0);
    assert_eq!(place.row(&session)["model"]["model"], "m2");
    let events = place.events(&session);
    let limits = events
        .iter()
        .find(|e| e["type"] == "limits.changed")
        .unwrap();
    assert_eq!(limits["data"]["limits"]["max_steps"], 5);
}

#[test]
fn two_processes_on_one_session_own_and_follow() {
    let place = Place::new(SLOW);
    let first = place.start(&["run", "first", "--json"]);
    wait_for_file(&place.path("project/started"));
    let session = place.only_session();
    assert_eq!(place.row(&session)["state"], "owned");
    // Queued and steered while another process owns the session.
    let third = place.start(&["run", "third", "--session", &session, "--queue", "--json"]);
    wait("the queued prompt", || {
        (place.row(&session)["pending"] == 1).then_some(())
    });
    let second = place.start(&["run", "second", "--session", &session, "--json"]);
    wait("both prompts", || {
        (place.row(&session)["pending"] == 2).then_some(())
    });
    let shown = place.run(&["show", &session]).exits(0);
    assert!(
        shown.stdout.contains("pending, joins at the next boundary"),
        "{}",
        shown.stdout
    );
    assert!(
        shown
            .stdout
            .contains("pending, waits for the session to be idle"),
        "{}",
        shown.stdout
    );
    place.write("project/go", "");
    for child in [first, second, third] {
        let out = finish(child).exits(0);
        assert_eq!(out.lines().last().unwrap()["outcome"], "succeeded");
    }
    // One set of requests, none while another was under way: the call, the steered prompt, the queued one.
    assert_eq!(place.model().requests().len(), 3);
    assert_eq!(place.model().overlaps(), []);
    let texts: Vec<_> = place
        .run(&["show", &session])
        .exits(0)
        .stdout
        .lines()
        .map(str::to_owned)
        .collect();
    let at = |text: &str| {
        texts
            .iter()
            .position(|l| l == text)
            .unwrap_or_else(|| panic!("{text} in {texts:#?}"))
    };
    assert!(at("› second") < at("Second answer.") && at("Second answer.") < at("› third"));
    assert!(at("› third") < at("Third answer."));
}

#[test]
fn an_input_that_waits_can_be_taken_back() {
    let place = Place::new(SLOW);
    let first = place.start(&["run", "first"]);
    wait_for_file(&place.path("project/started"));
    let session = place.only_session();
    let queued = place.start(&["run", "third", "--session", &session, "--queue"]);
    let row = wait("the queued prompt", || {
        let row = place.row(&session);
        (row["pending"] == 1).then_some(row)
    });
    let input = row["inputs"][0]["input"].as_str().unwrap();
    place.run(&["cancel", &session, input]).exits(0);
    let out = finish(queued).exits(130);
    assert!(
        out.stderr.contains("taken back by tenure cancel"),
        "{}",
        out.stderr
    );
    place.write("project/go", "");
    finish(first).exits(0);
    assert!(
        !place
            .types(&session)
            .contains(&"input.delivery_changed".to_owned())
    );
}

#[test]
fn following_shows_what_another_process_does() {
    let place = Place::new(SLOW);
    let first = place.start(&["run", "first"]);
    wait_for_file(&place.path("project/started"));
    let session = place.only_session();
    let follower = place.start(&["log", &session, "--follow", "--until-idle", "--json"]);
    place.write("project/go", "");
    finish(first).exits(0);
    let out = finish(follower).exits(0);
    let lines = out.lines();
    let seqs: Vec<u64> = lines
        .iter()
        .filter(|l| l["kind"] == "event")
        .map(|l| l["seq"].as_u64().unwrap())
        .collect();
    let head = place.row(&session)["head"].as_u64().unwrap();
    assert_eq!(seqs, (0..=head).collect::<Vec<_>>());
    assert_eq!(lines.iter().filter(|l| l["kind"] == "synced").count(), 1);
}

#[test]
fn a_fork_in_mid_turn_says_what_stays_with_its_parent() {
    let place = Place::new(SLOW);
    let first = place.start(&["run", "first"]);
    wait_for_file(&place.path("project/started"));
    let parent = place.only_session();
    let queued = place.start(&["run", "third", "--session", &parent, "--queue"]);
    wait("the queued prompt", || {
        (place.row(&parent)["pending"] == 1).then_some(())
    });
    let head = place.row(&parent)["head"].to_string();
    let out = place.run(&["fork", &parent]).exits(0);
    for words in [
        "in the middle of a turn",
        &format!("1 input that waited there stays with {parent}"),
    ] {
        assert!(out.stderr.contains(words), "{words}: {}", out.stderr);
    }
    let child = out.stdout.trim().to_owned();
    let shown = place.run(&["show", &child]).exits(0).stdout;
    assert!(
        shown.contains(&format!("forked from {parent} at {head}"))
            && shown.contains("waiting there stayed with it"),
        "{shown}"
    );
    // The same is told of a place in the past, by the log.
    let at = place.run(&["fork", &parent, "--at", &head]).exits(0);
    assert_eq!(at.stderr, out.stderr);
    assert_eq!(
        place
            .run(&["fork", &parent, "--at", "1"])
            .exits(0)
            .stderr
            .lines()
            .count(),
        1
    );
    place.write("project/go", "");
    finish(first).exits(0);
    finish(queued).exits(0);
    // At rest there is nothing to say.
    assert_eq!(place.run(&["fork", &parent]).exits(0).stderr, "");
}

#[test]
fn a_fork_goes_its_own_way_and_its_parent_may_be_deleted() {
    let place = Place::new(HELLO);
    place.run(&["run", "one"]).exits(0);
    let parent = place.only_session();
    let child = place
        .run(&["fork", &parent])
        .exits(0)
        .stdout
        .trim()
        .to_owned();
    place.run(&["run", "two", "--session", &child]).exits(0);
    place.run(&["delete", &parent]).exits(0);
    place.run(&["show", &parent]).exits(2);
    let shown = place.run(&["show", &child]).exits(0);
    assert!(
        shown.stdout.contains("› one") && shown.stdout.contains("› two"),
        "{}",
        shown.stdout
    );
    place.run(&["gc"]).exits(0);
    assert_eq!(place.run(&["show", &child]).exits(0).stdout, shown.stdout);
    let out = place.run(&["fork", &child, "--at", "9999"]).exits(2);
    assert!(out.stderr.contains("ends at"), "{}", out.stderr);
}

const LIMITS: &str = r#"
version = 1
[[turn]]
part = [{ call = { name = "bash", input = { command = "(ulimit -Sn; env | grep -c ^TENURE_OPEN) >limits; touch told; while [ ! -e go ]; do sleep 0.02; done" } } }]
[fallback]
part = [{ text = "Done." }]
"#;

/// A node of hundreds of sessions needs more than the usual 1,024; a command is given what the user has.
#[test]
#[cfg(target_os = "linux")]
fn the_limit_on_open_files_is_raised_and_commands_get_their_own() {
    let place = Place::new(LIMITS);
    let plain = place.command(&["run", "x", "--allow-all"]);
    let mut limited = std::process::Command::new("sh");
    limited
        .args(["-c", "ulimit -Sn 300; exec \"$@\"", "sh"])
        .arg(plain.get_program())
        .args(plain.get_args())
        .env_clear()
        .envs(
            plain
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .current_dir(place.path("project"))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let child = limited.spawn().unwrap();
    wait_for_file(&place.path("project/told"));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    place.write("project/go", "");
    finish(child).exits(0);
    let soft = limits
        .lines()
        .find_map(|line| {
            line.strip_prefix("Max open files")?
                .split_whitespace()
                .next()
        })
        .unwrap();
    assert!(soft.parse::<u64>().unwrap() > 300, "{limits}");
    let told = std::fs::read_to_string(place.path("project/limits")).unwrap();
    assert_eq!(told, "300\n0\n");
}
