//! Calls whose future is dropped: their mark of being at work stays until the last of their processes is gone.

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::json;
use tenure_tools::AtWork;

use crate::support::{Place, alive, eventually, run};

/// A call's mark of being at work. When it is dropped it tells which processes live that are named in `pids`.
struct Mark {
    pids: PathBuf,
    tell: mpsc::Sender<Vec<u32>>,
}

impl Drop for Mark {
    fn drop(&mut self) {
        let alive: Vec<u32> = pids(&self.pids).into_iter().filter(|p| alive(*p)).collect();
        // A test that failed already listens no more.
        let _ = self.tell.send(alive);
    }
}

fn pids(file: &PathBuf) -> Vec<u32> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Runs a command that names `count` processes in `pids`, drops its future by `stop`, and waits for the mark.
fn ended(command: &str, count: usize, stop: impl FnOnce(tokio::runtime::Runtime)) {
    let place = Place::new();
    let file = place.path("pids");
    let (tell, told) = mpsc::channel();
    let mut cx = place.cx();
    cx.at_work = Some(AtWork::new(Mark {
        pids: file.clone(),
        tell,
    }));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let input = json!({ "command": command });
    runtime.spawn(async move { run(&cx, "bash", input).await });
    let all = || pids(&file).len() == count;
    runtime.block_on(eventually("the command to be at work", all));
    stop(runtime);
    // Far more than it may take.
    let left = told.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(left, Vec::<u32>::new(), "{command}");
    assert_eq!(pids(&file).len(), count, "{command}");
}

/// A family that does not hear the gentle signal.
const DEAF: &str = "trap '' TERM; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do \
                    (setsid sh -c 'echo $$ >>pids; while :; do sleep 1; done' &); done; \
                    echo $$ >>pids; while :; do sleep 1; done";
/// One that stops its guardian, once or again and again, or kills it.
const STOPS: &str = "trap '' TERM; kill -STOP $PPID; (setsid sleep 600 & echo $! >>pids); echo $$ >>pids; sleep 600";
const KEEPS_STOPPING: &str = "trap '' TERM; (setsid sleep 600 & echo $! >>pids); echo $$ >>pids; \
                              while kill -STOP $PPID; do :; done; while :; do sleep 1; done";
const KILLS: &str = "trap '' TERM; (setsid sleep 600 & echo $! >>pids); echo $$ >>pids; kill -KILL $PPID; sleep 600";

#[test]
fn a_dropped_call_is_at_work_until_its_last_process_is_gone() {
    for (command, count) in [(DEAF, 21), (STOPS, 2), (KEEPS_STOPPING, 2)] {
        ended(command, count, |runtime| {
            // Ends the one task, and with it the call's future.
            runtime.shutdown_background();
        });
    }
}

#[test]
fn so_it_is_when_its_runtime_ends_in_order() {
    for (command, count) in [(DEAF, 21), (STOPS, 2)] {
        ended(command, count, drop);
    }
}

#[test]
fn a_call_whose_guardian_was_killed_is_at_work_until_its_last_process_is_gone() {
    // Noticed and ended by the call itself.
    ended(KILLS, 2, |runtime| {
        runtime.shutdown_timeout(Duration::from_secs(5));
    });
}
