//! Guardians whose parent dies, whose lease ends, and what a crash leaves behind.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tenure_tools::guardian::{
    LeaseDeadline, Leftover, boot_id, kill_leftover, pid_start, since_boot,
};
use tenure_tools::{SpawnSink, Spawned, ToolCx, ToolError};

use crate::support::{Place, alive, eventually, guardian_program, run};

/// A parent process that runs commands, and the guardians it told of.
fn parent(place: &Place, commands: &[&str]) -> (Child, Vec<Spawned>) {
    let mut child = Command::new(guardian_program())
        .arg("__test-parent")
        .arg(place.workspace())
        .args(commands)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let told = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .take(commands.len());
    let spawned = told
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect();
    (child, spawned)
}

fn is_there(spawned: &Spawned) -> bool {
    pid_start(spawned.pid) == Some(spawned.pid_start) && alive(spawned.pid)
}

#[tokio::test]
async fn bc_s_095_a_killed_parent_leaves_nothing_behind() {
    let place = Place::new();
    let (mut child, spawned) = parent(
        &place,
        &[
            "echo $$ >a; sleep 600",
            "trap '' TERM; (setsid sh -c 'echo $$ >b; sleep 600' &); echo $$ >c; while :; do sleep 1; done",
            "nohup sh -c 'setsid sh -c \"echo \\$\\$ >d; trap \\\"\\\" TERM; while :; do sleep 1; done\"' & sleep 600",
        ],
    );
    let mut pids = Vec::new();
    for name in ["a", "b", "c", "d"] {
        pids.push(place.pid(name).await);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("all to be dead", || {
        !pids.iter().any(|p| alive(*p)) && !spawned.iter().any(is_there)
    })
    .await;
    // What the next process does with the stored identities.
    for guardian in &spawned {
        let left = kill_leftover(guardian.pid, guardian.pid_start, &guardian.boot_id).unwrap();
        assert_eq!(left, Leftover::Gone);
    }
}

#[tokio::test]
async fn bc_s_095_leftovers_are_found_when_the_guardian_died_too() {
    let place = Place::new();
    let command = "(setsid sh -c 'echo $$ >deep; sleep 600' &); echo $$ >shell; sleep 600";
    let (mut child, spawned) = parent(&place, &[command]);
    let (deep, shell) = (place.pid("deep").await, place.pid("shell").await);
    let guardian = &spawned[0];
    // The parent is stopped, so that it cannot clean up when its guardian dies.
    signal(child.id(), "STOP");
    signal(guardian.pid, "KILL");
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the guardian to be dead", || !is_there(guardian)).await;
    assert!(alive(deep) && alive(shell));
    let (pid, start, boot) = (guardian.pid, guardian.pid_start, guardian.boot_id.clone());
    let left = tokio::task::spawn_blocking(move || kill_leftover(pid, start, &boot))
        .await
        .unwrap()
        .unwrap();
    assert!(
        matches!(left, Leftover::Ended { swept } if swept >= 2),
        "{left:?}"
    );
    assert!(!alive(deep) && !alive(shell));
}

#[tokio::test]
async fn a_guardian_that_does_not_answer_is_ended_with_all_below_it() {
    let place = Place::new();
    let (mut child, spawned) = parent(
        &place,
        &["echo $$ >shell; trap '' TERM; while :; do sleep 1; done"],
    );
    let shell = place.pid("shell").await;
    let guardian = spawned[0].clone();
    signal(child.id(), "STOP");
    let left = tokio::task::spawn_blocking(move || {
        kill_leftover(guardian.pid, guardian.pid_start, &guardian.boot_id)
    });
    assert!(matches!(
        left.await.unwrap().unwrap(),
        Leftover::Ended { .. }
    ));
    assert!(!alive(shell) && !is_there(&spawned[0]));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn another_process_under_a_known_id_is_never_touched() {
    let mut bystander = Command::new("sleep").arg("600").spawn().unwrap();
    let start = pid_start(bystander.id()).unwrap();
    let boot = boot_id().unwrap();
    assert_eq!(
        kill_leftover(bystander.id(), start + 1, &boot).unwrap(),
        Leftover::Gone
    );
    assert_eq!(
        kill_leftover(bystander.id(), start, "another-boot").unwrap(),
        Leftover::OtherBoot
    );
    assert!(alive(bystander.id()));
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[tokio::test]
async fn a_lease_that_is_not_renewed_ends_the_command() {
    let place = Place::new();
    let mut cx = place.cx();
    cx.guardian = cx
        .guardian
        .with_lease(LeaseDeadline::after(Duration::from_millis(500)));
    let running = tokio::spawn({
        let cx = cx.clone();
        async move { run(&cx, "bash", json!({"command": "echo $$ >pid; sleep 600"})).await }
    });
    let pid = place.pid("pid").await;
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(error, ToolError::Interrupted { .. }), "{error:?}");
    assert!(error.to_string().contains("lost its lease"), "{error}");
    assert!(!alive(pid));
}

#[tokio::test]
async fn a_renewed_lease_lets_the_command_go_on_and_an_ended_one_stops_it() {
    let place = Place::new();
    let lease = LeaseDeadline::after(Duration::from_millis(800));
    let first = lease.get();
    let mut cx = place.cx();
    cx.guardian = cx.guardian.with_lease(lease.clone());
    let running = tokio::spawn(async move {
        run(&cx, "bash", json!({"command": "echo $$ >pid; sleep 600"})).await
    });
    let pid = place.pid("pid").await;
    lease.set(since_boot() + Duration::from_secs(600));
    eventually("the first deadline to pass", || {
        since_boot() > first + Duration::from_millis(300)
    })
    .await;
    assert!(alive(pid) && !running.is_finished());
    lease.set(since_boot());
    assert_eq!(
        running.await.unwrap().unwrap_err().metadata().unwrap()["stopped_by"],
        "lease"
    );
    assert!(!alive(pid));
}

#[tokio::test]
async fn a_lease_that_has_ended_starts_nothing() {
    let place = Place::new();
    let mut cx = place.cx();
    cx.guardian = cx
        .guardian
        .with_lease(LeaseDeadline::at(Duration::from_nanos(1)));
    let error = run(&cx, "bash", json!({"command": "touch began"}))
        .await
        .unwrap_err();
    assert!(
        matches!(error, ToolError::Failed { .. }) && error.to_string().contains("Not executed"),
        "{error:?}"
    );
    assert!(!place.path("began").exists());
}

#[tokio::test]
async fn a_parent_that_is_stopped_renews_nothing_and_the_command_ends() {
    let place = Place::new();
    let (mut child, spawned) = parent(
        &place,
        &["(setsid sh -c 'echo $$ >deep; sleep 600' &); echo $$ >pid; sleep 600"],
    );
    let (pid, deep) = (place.pid("pid").await, place.pid("deep").await);
    // Its pipe stays open all the time.
    signal(child.id(), "STOP");
    eventually("the command to be dead", || {
        !alive(pid) && !alive(deep) && !is_there(&spawned[0])
    })
    .await;
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Runs a command; its result, and the process that forked its guardian.
async fn run_and_tell(cx: &ToolCx, command: &str) -> (String, u32) {
    let (tell, told) = tokio::sync::oneshot::channel();
    let tell = Arc::new(Mutex::new(Some(tell)));
    let mut cx = cx.clone();
    cx.spawned = Some(SpawnSink::new(move |spawned| {
        let tell = tell.lock().unwrap().take().unwrap();
        async move {
            tell.send(parent_of(spawned.pid)).unwrap();
            Ok(())
        }
    }));
    let ran = run(&cx, "bash", json!({ "command": command })).await;
    (ran.unwrap().text, told.await.unwrap())
}

fn parent_of(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn guardians_come_from_one_nursery_that_ends_with_its_last_user() {
    let place = Place::new();
    let cx = place.cx();
    let (_, first) = run_and_tell(&cx, "true").await;
    let (_, second) = run_and_tell(&cx, "true").await;
    assert_eq!(first, second);
    assert!(first != std::process::id() && parent_of(first) == std::process::id());
    assert!(alive(first));
    drop(cx);
    assert!(!alive(first));
}

#[tokio::test]
async fn a_nursery_that_is_killed_takes_no_command_along_and_is_replaced() {
    let place = Place::new();
    let cx = place.cx();
    // Its parent's parent is the nursery.
    let command = "read _ _ _ above _ </proc/$PPID/stat; echo $above >nursery; until test -e go; do sleep 0.01; done; echo done";
    let running = tokio::spawn({
        let cx = cx.clone();
        async move { run(&cx, "bash", json!({ "command": command })).await }
    });
    let nursery = place.pid("nursery").await;
    signal(nursery, "KILL");
    eventually("the nursery to be dead", || !alive(nursery)).await;
    place.put("go", "");
    assert_eq!(running.await.unwrap().unwrap().text, "done\n");
    let (text, another) = run_and_tell(&cx, "echo again").await;
    assert_eq!(text, "again\n");
    assert!(another != nursery && another != std::process::id());
}

#[tokio::test]
async fn a_nursery_that_hangs_is_given_up() {
    let place = Place::new();
    let cx = place.cx();
    let (_, first) = run_and_tell(&cx, "true").await;
    signal(first, "STOP");
    let (text, parent) = run_and_tell(&cx, "echo on").await;
    assert_eq!(text, "on\n");
    assert_eq!(parent, std::process::id(), "started directly");
    assert!(!alive(first));
    let (_, next) = run_and_tell(&cx, "true").await;
    assert!(next != first && next != std::process::id());
}

#[tokio::test]
async fn a_call_that_hides_other_variables_has_another_nursery() {
    let place = Place::new();
    let mut cx = place.cx();
    let command = "echo \"[$CARGO_MANIFEST_DIR]\"";
    let (open, first) = run_and_tell(&cx, command).await;
    assert!(open.len() > 3, "{open}");
    cx.env_remove = vec!["CARGO_MANIFEST_DIR".into()];
    let (hidden, second) = run_and_tell(&cx, command).await;
    assert_eq!(hidden, "[]\n");
    assert!(first != second && !alive(first));
}

#[tokio::test]
async fn a_stopped_nursery_ends_with_its_parent() {
    let place = Place::new();
    let (mut child, spawned) = parent(&place, &["echo $$ >pid; sleep 600"]);
    let pid = place.pid("pid").await;
    let nursery = parent_of(spawned[0].pid);
    assert_ne!(nursery, child.id());
    signal(nursery, "STOP");
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("all to be dead", || {
        !alive(nursery) && !alive(pid) && !is_there(&spawned[0])
    })
    .await;
}

fn signal(pid: u32, name: &str) {
    let status = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}
