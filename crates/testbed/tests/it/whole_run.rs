//! The program that lends one server to a whole test run, and what is left when it ends, in whatever way.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use tenure_testbed::postgres::{SERVER, Server};
use tenure_testbed::{postgres_or_skip, wait};

fn start() -> (Child, Server) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tenure-testbed-postgres"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let url = line
        .trim()
        .strip_prefix(&format!("{SERVER}="))
        .expect(&line);
    (child, Server::at(url).unwrap())
}

fn folder_of(server: &Server) -> std::path::PathBuf {
    let folder = server.value("SHOW data_directory").unwrap().unwrap();
    std::path::Path::new(&folder)
        .parent()
        .unwrap()
        .to_path_buf()
}

#[test]
fn real_the_server_ends_with_the_programs_input() {
    let _server = postgres_or_skip!();
    let (mut child, server) = start();
    let database = server.database().unwrap();
    assert_eq!(database.value("SELECT 1").unwrap().as_deref(), Some("1"));
    let folder = folder_of(&server);
    drop(database);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(!folder.exists());
    assert!(server.value("SELECT 1").is_err());
}

#[test]
fn real_the_server_ends_with_the_killed_program() {
    let _server = postgres_or_skip!();
    let (mut child, server) = start();
    let folder = folder_of(&server);
    let pid = std::fs::read_to_string(folder.join("data/postmaster.pid")).unwrap();
    let process = format!("/proc/{}/cmdline", pid.lines().next().unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
    wait::until_true("the server's end", wait::PATIENCE, || {
        // Where nobody collects orphans, a dead one remains without a command line.
        !folder.exists() && std::fs::read(&process).map_or(true, |line| line.is_empty())
    })
    .unwrap();
}
