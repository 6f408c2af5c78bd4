//! `log --follow` where nobody sits at a terminal: the events, as `log` prints them, as they come.

use crate::detach::WAITS;
use crate::support::*;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// What a file holds once it holds `words`.
pub fn written(path: &Path, words: &str) -> String {
    wait(&format!("{words:?} in {}", path.display()), || {
        let text = std::fs::read_to_string(path).ok()?;
        text.contains(words).then_some(text)
    })
}

/// A session whose tool waits for a file named `go`.
fn waiting(place: &Place) -> String {
    let out = place.run(&["run", "go", "--detach"]).exits(0);
    wait_for_file(&place.path("project/started"));
    out.stdout.trim().to_owned()
}

#[test]
fn a_log_that_is_followed_in_a_pipe_is_the_events_each_as_it_comes() {
    let place = Place::new(WAITS);
    let session = waiting(&place);
    let lines = place.path("lines");
    let follower = place
        .command(&["log", &session, "--follow", "--until-idle"])
        .stdout(File::create(&lines).unwrap())
        .spawn()
        .unwrap();
    // Nothing more happens now, and it is all there: what it waits for can be seen.
    let shown = written(&lines, "tool.started");
    let printed = place.run(&["log", &session]).exits(0).stdout;
    assert_eq!(shown, printed);
    place.write("project/go", "");
    finish(follower).exits(0);
    let printed = place.run(&["log", &session]).exits(0).stdout;
    assert!(printed.contains("execution.succeeded"), "{printed}");
    assert_eq!(std::fs::read_to_string(&lines).unwrap(), printed);
    // From the middle on: what `log` prints from there, and nothing twice.
    let after = ["log", &session, "--after", "5"];
    let followed = place.run(&[&after[..], &["--follow", "--until-idle"]].concat());
    let printed = place.run(&after).exits(0).stdout;
    assert!(printed.lines().count() > 5, "{printed}");
    assert_eq!(followed.exits(0).stdout, printed);
}

#[test]
fn following_ends_with_its_reader_also_while_nothing_happens() {
    let place = Place::new(WAITS);
    let session = waiting(&place);
    for json in [&[][..], &["--json"]] {
        let args = [&["log", &session, "--follow"], json].concat();
        let mut follower = place.start(&args);
        let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
        lines.find(|line| line.as_ref().unwrap().contains("tool.started"));
        drop(lines);
        let out = finish(follower).exits(0);
        assert_eq!(out.stderr, "");
    }
    place.write("project/go", "");
    place.wait_for_event(&session, "execution.succeeded");
}
