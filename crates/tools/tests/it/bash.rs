//! The bash tool: results, limits, interrupts, output that nobody closes.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use tenure_tools::guardian::{boot_id, pid_start};
use tenure_tools::{ProgressSink, SpawnSink, ToolError};

use crate::support::{Place, alive, eventually, run};

#[tokio::test]
async fn output_and_exit_code() {
    let place = Place::new();
    let ok = place
        .run("bash", json!({"command": "echo out; echo err >&2; pwd"}))
        .await
        .unwrap();
    assert_eq!(
        ok.text,
        format!("out\nerr\n{}\n", place.workspace().display())
    );
    assert_eq!(ok.metadata["exit_code"], 0);
    let bad = place
        .run("bash", json!({"command": "echo no; exit 3"}))
        .await
        .unwrap();
    assert_eq!(bad.text, "no\n[exit code 3]");
    let silent = place.run("bash", json!({"command": "true"})).await.unwrap();
    assert_eq!(silent.text, "(no output, exit code 0)");
    let signal = place
        .run("bash", json!({"command": "kill -9 $$"}))
        .await
        .unwrap();
    assert_eq!(signal.text, "[ended by SIGKILL]");
}

#[tokio::test]
async fn workdir_is_resolved_and_must_be_inside() {
    let place = Place::new();
    place.put("sub/f", "");
    let ok = place
        .run("bash", json!({"command": "pwd", "workdir": "sub"}))
        .await
        .unwrap();
    assert_eq!(ok.text, format!("{}\n", place.path("sub").display()));
    let out = place
        .run("bash", json!({"command": "pwd", "workdir": "../outside"}))
        .await;
    assert!(matches!(out, Err(ToolError::Refused { .. })), "{out:?}");
    let missing = place
        .run("bash", json!({"command": "pwd", "workdir": "nowhere"}))
        .await;
    assert!(
        matches!(missing, Err(ToolError::NotFound { .. })),
        "{missing:?}"
    );
}

#[tokio::test]
async fn the_environment_loses_secrets_and_the_shell_has_no_terminal_and_no_blocked_signals() {
    let place = Place::new();
    let mut cx = place.cx();
    // Set for every process of this kind: only its removal can hide it.
    cx.env_remove = vec!["PATH_TO_NOWHERE".into(), "CARGO_MANIFEST_DIR".into()];
    let command = "echo \"[$CARGO_MANIFEST_DIR]\"; read x; echo \"read $?\"; grep SigBlk /proc/self/status; \
                   tr '\\0' '\\n' </proc/$PPID/environ | grep -c CARGO_MANIFEST_DIR";
    let out = run(&cx, "bash", json!({"command": command})).await.unwrap();
    assert_eq!(
        out.text,
        "[]\nread 1\nSigBlk:\t0000000000000000\n0\n[exit code 1]"
    );
}

#[tokio::test]
async fn the_guardian_is_reported_before_the_command_begins() {
    let place = Place::new();
    let mut cx = place.cx();
    let mark = place.path("began");
    let seen = Arc::new(Mutex::new(None));
    let (store, path) = (Arc::clone(&seen), mark.clone());
    cx.spawned = Some(SpawnSink::new(move |spawned| {
        let (store, path) = (Arc::clone(&store), path.clone());
        async move {
            assert_eq!(pid_start(spawned.pid), Some(spawned.pid_start));
            for _ in 0..50 {
                tokio::task::yield_now().await;
                // tidy: sleep ok because it gives a command that does not wait the chance to be noticed.
                std::thread::sleep(Duration::from_millis(1));
            }
            *store.lock().unwrap() = Some((spawned, path.exists()));
            Ok(())
        }
    }));
    run(&cx, "bash", json!({"command": "touch began"}))
        .await
        .unwrap();
    let (spawned, began_early) = seen.lock().unwrap().take().unwrap();
    assert!(!began_early && mark.exists());
    assert_eq!(spawned.boot_id, boot_id().unwrap());
    eventually("the guardian to be gone", || {
        pid_start(spawned.pid) != Some(spawned.pid_start)
    })
    .await;
}

#[tokio::test]
async fn a_refused_start_runs_nothing() {
    let place = Place::new();
    let mut cx = place.cx();
    cx.spawned = Some(SpawnSink::new(|_| async {
        Err("the claim is stale".to_owned())
    }));
    let result = run(&cx, "bash", json!({"command": "touch began"})).await;
    let text = result.unwrap_err().to_string();
    assert!(
        text.contains("not begun") && text.contains("the claim is stale"),
        "{text}"
    );
    assert!(!place.path("began").exists());
}

#[tokio::test]
async fn an_interrupt_before_the_start_runs_nothing() {
    let place = Place::new();
    let mut cx = place.cx();
    let cancel = cx.cancel.clone();
    cx.spawned = Some(SpawnSink::new(move |_| {
        cancel.cancel();
        std::future::pending()
    }));
    let error = run(&cx, "bash", json!({"command": "touch began"}))
        .await
        .unwrap_err();
    assert!(matches!(error, ToolError::Interrupted { .. }), "{error:?}");
    assert!(!place.path("began").exists());
}

#[tokio::test]
async fn bc_s_092_background_children_do_not_hold_the_call() {
    let place = Place::new();
    for command in [
        "sleep 600 & echo $! >pid; echo ok",
        "setsid sleep 600 >/dev/null & echo $! >pid; echo ok",
        "nohup sleep 600 & echo $! >pid; echo ok",
        "(setsid sh -c 'echo $$ >pid; exec sleep 600' &) ; while ! [ -s pid ]; do :; done; echo ok",
    ] {
        let _ = std::fs::remove_file(place.path("pid"));
        let began = Instant::now();
        let out = place
            .run("bash", json!({"command": command, "timeout_s": 120}))
            .await
            .unwrap();
        let took = began.elapsed();
        // They would hold it for ten minutes.
        assert!(took < Duration::from_secs(60), "{command}: {took:?}");
        assert!(out.text.contains("ok\n"), "{command}: {}", out.text);
        assert!(
            out.text.contains("still running after the shell"),
            "{command}: {}",
            out.text
        );
        assert!(out.text.contains("sleep 600"), "{command}: {}", out.text);
        assert!(!alive(place.pid("pid").await), "{command}");
    }
}

#[tokio::test]
async fn bc_s_092_the_limit_also_ends_what_left_the_group() {
    let place = Place::new();
    let command =
        "setsid sh -c 'echo $$ >pid; trap \"\" TERM; while :; do sleep 1; done' & echo ok; wait";
    let began = Instant::now();
    let error = place
        .run("bash", json!({"command": command, "timeout_s": 1}))
        .await
        .unwrap_err();
    assert!(matches!(error, ToolError::TimedOut { .. }), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(3));
    assert!(!alive(place.pid("pid").await));
}

#[tokio::test]
async fn late_writers_that_end_by_themselves_are_waited_for() {
    let place = Place::new();
    let out = place
        .run(
            "bash",
            json!({"command": "(sleep 0.05; echo late) & echo early"}),
        )
        .await
        .unwrap();
    assert_eq!(out.text, "early\nlate\n");
}

#[tokio::test]
async fn bc_s_093_a_stopped_program_says_by_whom_how_and_what_it_printed() {
    let place = Place::new();
    let command = "echo ready; echo $$ >pid; exec sleep 600";
    let error = place
        .run("bash", json!({"command": command, "timeout_s": 1}))
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ToolError::TimedOut { .. }));
    for part in ["time limit of 1.0 s", "SIGTERM", "ready"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert_eq!(error.metadata().unwrap()["stopped_by"], "time_limit");

    std::fs::remove_file(place.path("pid")).unwrap();
    let cx = place.cx();
    let running = tokio::spawn({
        let cx = cx.clone();
        async move { run(&cx, "bash", json!({"command": command})).await }
    });
    let pid = place.pid("pid").await;
    cx.cancel.cancel();
    let error = running.await.unwrap().unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ToolError::Interrupted { .. }));
    for part in ["interrupt", "SIGTERM", "ready"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert!(!alive(pid));
}

#[tokio::test]
async fn bc_s_094_an_interrupt_ends_a_family_with_a_deaf_child() {
    let place = Place::new();
    let script = "import os,signal,socket,sys,time\n\
                  signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
                  s=socket.socket(); s.bind(('127.0.0.1',0)); s.listen()\n\
                  open('port','w').write(str(s.getsockname()[1])+'\\n')\n\
                  open('deaf','w').write(str(os.getpid())+'\\n')\n\
                  time.sleep(600)\n";
    place.put("deaf.py", script);
    let command = "python3 deaf.py & sleep 600 & echo $! >mild; wait";
    let cx = place.cx();
    let running = tokio::spawn({
        let cx = cx.clone();
        async move { run(&cx, "bash", json!({"command": command})).await }
    });
    let (deaf, mild, port) = (
        place.pid("deaf").await,
        place.pid("mild").await,
        place.pid("port").await,
    );
    let began = Instant::now();
    cx.cancel.cancel();
    let error = running.await.unwrap().unwrap_err();
    let took = began.elapsed();
    assert!(!alive(deaf) && !alive(mild));
    assert!(took < Duration::from_millis(300), "{took:?}");
    std::net::TcpListener::bind(("127.0.0.1", u16::try_from(port).unwrap())).unwrap();
    let text = error.to_string();
    assert!(
        text.contains("deaf.py") && text.contains("by SIGKILL") && text.contains("sleep 600"),
        "{text}"
    );
    let killed = error.metadata().unwrap()["killed"]
        .as_array()
        .unwrap()
        .clone();
    let hard = |name: &str| {
        killed
            .iter()
            .find(|k| k["command"].as_str().unwrap().contains(name))
            .unwrap()["hard"]
            .as_bool()
            .unwrap()
    };
    assert!(hard("deaf.py") && !hard("sleep 600"));
}

#[tokio::test]
async fn dropping_the_call_ends_the_command() {
    let place = Place::new();
    let cx = place.cx();
    let running = tokio::spawn(async move {
        run(
            &cx,
            "bash",
            json!({"command": "setsid sleep 600 & echo $! >child; echo $$ >pid; sleep 600"}),
        )
        .await
    });
    let (pid, child) = (place.pid("pid").await, place.pid("child").await);
    running.abort();
    eventually("both to be dead", || !alive(pid) && !alive(child)).await;
}

#[tokio::test]
async fn a_command_that_kills_its_guardian_is_ended_all_the_same() {
    let place = Place::new();
    let command = "setsid sleep 600 & echo $! >child; kill -9 $PPID; sleep 600";
    let error = place
        .run("bash", json!({"command": command}))
        .await
        .unwrap_err();
    assert!(matches!(error, ToolError::Failed { .. }), "{error:?}");
    assert!(error.to_string().contains("was killed"), "{error}");
    let child = place.pid("child").await;
    eventually("the child to be dead", || !alive(child)).await;
}

#[tokio::test]
async fn bc_s_100_ten_megabytes_on_both_outputs_do_not_hang() {
    let place = Place::new();
    let command = "head -c 10000000 /dev/zero | tr '\\0' e >&2 & head -c 10000000 /dev/zero | tr '\\0' o; wait";
    let out = place
        .run("bash", json!({"command": command}))
        .await
        .unwrap();
    let cut = out.truncation.unwrap();
    assert_eq!(cut.total_bytes, 20_000_000);
    let kept = std::fs::read(cut.full_path.unwrap()).unwrap();
    assert_eq!(kept.len(), 20_000_000);
    assert_eq!(kept.iter().filter(|b| **b == b'e').count(), 10_000_000);
    assert!(out.text.len() < 31 * 1024);
    assert!(out.text.contains("of 20000000 bytes shown"));
}

#[tokio::test]
async fn bc_s_091_utf_16_and_binary_output_hold_no_nul() {
    let place = Place::new();
    let marked = r"printf '\xff\xfeh\0e\0l\0l\0o\0'";
    assert_eq!(
        place
            .run("bash", json!({"command": marked}))
            .await
            .unwrap()
            .text,
        "hello"
    );
    let plain = r"printf 'h\0e\0l\0l\0o\0'";
    assert_eq!(
        place
            .run("bash", json!({"command": plain}))
            .await
            .unwrap()
            .text,
        r"h\0e\0l\0l\0o\0"
    );
    let binary = place
        .run("bash", json!({"command": "head -c 200000 /dev/urandom"}))
        .await
        .unwrap();
    assert!(
        !binary
            .text
            .chars()
            .any(|c| c.is_control() && c != '\n' && c != '\t')
    );
    assert_eq!(binary.truncation.unwrap().total_bytes, 200_000);
}

#[tokio::test]
async fn progress_is_told_while_the_command_runs() {
    let place = Place::new();
    let mut cx = place.cx();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    cx.progress = Some(ProgressSink::new(move |p| drop(tell.send(p))));
    let go = place.path("go");
    let running = tokio::spawn({
        let cx = cx.clone();
        async move {
            run(
                &cx,
                "bash",
                json!({"command": "echo one; until [ -e go ]; do sleep 0.01; done"}),
            )
            .await
        }
    });
    assert_eq!(told.recv().await.unwrap().text, "one\n");
    std::fs::write(go, "").unwrap();
    assert_eq!(running.await.unwrap().unwrap().text, "one\n");
}

#[tokio::test]
async fn commands_that_cannot_run_are_refused_before_anything_starts() {
    let place = Place::new();
    for (command, part) in [
        ("", "empty"),
        ("a\0b", "NUL"),
        (&"x".repeat(200_000), "Write a script"),
    ] {
        let error = place
            .run("bash", json!({"command": command}))
            .await
            .unwrap_err();
        assert!(
            matches!(error, ToolError::InvalidInput { .. }) && error.to_string().contains(part),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_command_that_stops_its_guardian_is_ended_all_the_same() {
    let place = Place::new();
    let cx = place.cx();
    let running = tokio::spawn({
        let cx = cx.clone();
        let command =
            "kill -STOP $PPID; setsid sleep 600 & echo $! >child; echo $$ >pid; sleep 600";
        async move { run(&cx, "bash", json!({ "command": command })).await }
    });
    let (pid, child) = (place.pid("pid").await, place.pid("child").await);
    cx.cancel.cancel();
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(error, ToolError::Interrupted { .. }), "{error:?}");
    assert!(!alive(pid) && !alive(child));
}

/// Drops the call's future at each of its first polls: whatever was begun ends, what was not never begins.
#[tokio::test]
async fn dropped_at_any_poll_nothing_is_left() {
    let place = Place::new();
    for last in 1..=12 {
        let mut cx = place.cx();
        let told = Arc::new(Mutex::new(None));
        let store = Arc::clone(&told);
        cx.spawned = Some(SpawnSink::new(move |spawned| {
            *store.lock().unwrap() = Some(spawned);
            async { Ok(()) }
        }));
        let name = format!("pid{last}");
        // Prints without end, so that there is always a next poll.
        let command = format!("echo $$ >{name}; while :; do echo x; sleep 0.002; done");
        let mut call = Box::pin(run(&cx, "bash", json!({ "command": command })));
        let mut polls = 0;
        std::future::poll_fn(|context| {
            polls += 1;
            let poll = call.as_mut().poll(context);
            assert!(poll.is_pending());
            if polls == last {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
        drop(call);
        let guardian = told.lock().unwrap().take();
        if let Some(guardian) = guardian {
            let gone =
                || pid_start(guardian.pid) != Some(guardian.pid_start) || !alive(guardian.pid);
            eventually("the guardian to be gone", gone).await;
        }
        // Nothing can write the file any more: either it is there, or the command never began.
        if let Ok(text) = std::fs::read_to_string(place.path(&name)) {
            assert!(
                text.trim().parse().map_or(true, |pid| !alive(pid)),
                "poll {last}: {text}"
            );
        }
    }
}
