//! Children: their lines, their signals, and that none outlives whoever started it.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use tenure_testbed::signals::{Running, is_stopped};
use tenure_testbed::wait::{self, PATIENCE};

fn shell(script: &str) -> Running {
    Running::start("a shell", Command::new("sh").args(["-c", script])).unwrap()
}

#[test]
fn lines_of_both_streams_are_waited_for_in_order() {
    let mut child = shell("echo one; echo two >&2; read -r _ < /dev/null; echo three; exit 3");
    assert_eq!(child.line_with("two", PATIENCE).unwrap(), "two");
    let (at, _) = child
        .line_from(0, "one", PATIENCE, |line| line == "one")
        .unwrap();
    child
        .line_from(at + 1, "three", PATIENCE, |line| line == "three")
        .unwrap();
    assert_eq!(child.end(PATIENCE).unwrap().code(), Some(3));
    let late = child.line_with("four", PATIENCE).unwrap_err().to_string();
    assert!(
        late.contains("`four` of a shell") && late.contains("three"),
        "{late}"
    );
}

#[test]
fn real_a_paused_child_stands_still_and_goes_on() {
    let mut child = shell("trap 'echo told; exit 0' TERM; echo ready; while :; do :; done");
    child.line_with("ready", PATIENCE).unwrap();
    child.pause().unwrap();
    assert!(is_stopped(child.pid()));
    child.terminate().unwrap();
    assert!(
        child.end(Duration::from_millis(100)).is_err(),
        "it cannot hear it"
    );
    child.resume().unwrap();
    child.line_with("told", PATIENCE).unwrap();
    assert!(child.end(PATIENCE).unwrap().success());
}

#[test]
fn real_a_stopped_child_can_be_killed_and_a_dropped_one_is() {
    let mut child = shell("echo ready; while :; do :; done");
    child.line_with("ready", PATIENCE).unwrap();
    child.pause().unwrap();
    let status = child.kill().unwrap();
    assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));
    assert!(child.signal(Signal::SIGTERM).is_err());

    let child = shell("echo ready; while :; do :; done");
    child.line_with("ready", PATIENCE).unwrap();
    let pid = child.pid();
    drop(child);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
#[ignore = "a child of another test"]
fn child_starts_a_grandchild_and_waits() {
    let grandchild = shell("echo ready; while :; do :; done");
    grandchild.line_with("ready", PATIENCE).unwrap();
    println!("grandchild {}", grandchild.pid());
    let _ = grandchild.line_with("never", PATIENCE);
}

#[test]
fn real_a_child_does_not_outlive_the_killed_test_process() {
    let mut process = Running::start(
        "a test process",
        Command::new(std::env::current_exe().unwrap()).args([
            "--exact",
            "processes::child_starts_a_grandchild_and_waits",
            "--ignored",
            "--nocapture",
        ]),
    )
    .unwrap();
    let line = process.line_with("grandchild ", PATIENCE).unwrap();
    let (_, pid) = line.split_once("grandchild ").unwrap();
    let grandchild = format!("/proc/{}/stat", pid.trim());
    assert!(std::path::Path::new(&grandchild).exists());
    process.kill().unwrap();
    wait::until_true("the grandchild's end", PATIENCE, || {
        // Where nobody collects orphans, a dead one remains as a name.
        std::fs::read_to_string(&grandchild).map_or(true, |stat| stat.contains(") Z "))
    })
    .unwrap();
}
