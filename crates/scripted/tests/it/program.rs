//! The program: prints its address, serves in a process of its own, stops on SIGTERM.
#![cfg(unix)]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tenure_scripted::{CliOptions, serve_cli};

use crate::client::{CHAT, Client, ask, fold, loopback};

const CHILD: &str = "TENURE_SCRIPTED_TEST_SCRIPT";

/// Not a test of its own: what the child process of the test below runs.
#[test]
#[ignore = "run by the test below in a child process"]
fn child() {
    let Some(script) = std::env::var_os(CHILD) else {
        return;
    };
    let options = CliOptions {
        log: Some(std::path::Path::new(&script).with_extension("jsonl")),
        script: script.into(),
        addr: loopback(),
        api_key: None,
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(serve_cli(options)).unwrap();
}

#[tokio::test]
async fn it_serves_until_it_is_told_to_stop() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script.toml");
    std::fs::write(
        &script,
        "version = 1\n[[turn]]\npart = [{ text = \"hello\" }]\n",
    )
    .unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["program::child", "--exact", "--ignored", "--nocapture"])
        .env(CHILD, &script)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The test harness of the child prints lines of its own around the one we want.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines
        .by_ref()
        .map(Result::unwrap)
        .find(|line| line.contains('{'))
        .unwrap();
    let ready: Value = serde_json::from_str(&line[line.find('{').unwrap()..]).unwrap();
    assert_eq!(ready["kind"], "scripted_model");
    let addr: std::net::SocketAddr = ready["addr"].as_str().unwrap().parse().unwrap();
    assert_eq!(ready["base_url"], format!("http://{addr}/v1"));

    let mut client = Client::connect(addr).await;
    client
        .send(CHAT, &[], ask(CHAT, "x").to_string().as_bytes())
        .await;
    assert_eq!(
        fold(CHAT, &client.answer().await.unwrap().events()).text,
        "hello"
    );
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    assert!(child.wait().unwrap().success());
    let log = std::fs::read_to_string(script.with_extension("jsonl")).unwrap();
    assert_eq!(
        log.lines().count(),
        2,
        "one line for the request, one for its end"
    );
}

#[tokio::test]
async fn an_unusable_script_or_address_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script.toml");
    let options = |addr| CliOptions {
        script: script.clone(),
        addr,
        log: None,
        api_key: None,
    };
    assert!(
        serve_cli(options(loopback()))
            .await
            .unwrap_err()
            .to_string()
            .contains("script.toml")
    );
    std::fs::write(&script, "version = 1\n").unwrap();
    let taken = tokio::net::TcpListener::bind(loopback()).await.unwrap();
    let addr = taken.local_addr().unwrap();
    assert!(
        serve_cli(options(addr))
            .await
            .unwrap_err()
            .to_string()
            .contains(&addr.to_string())
    );
}
