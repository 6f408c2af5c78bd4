//! One PostgreSQL server for a whole test run, lent by a program of the testbed and ended with it.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

/// The crate whose program lends the server.
pub const CRATE: &str = "tenure-testbed";
/// The environment variable by which tests find the server.
pub const SERVER: &str = "TENURE_TEST_PG";
/// The program's exit code when PostgreSQL is not installed.
const MISSING: i32 = 3;

/// A running server. Dropped, it is stopped. Should we be killed, the program sees its input end and stops it as well.
#[derive(Debug)]
pub struct Postgres {
    program: Child,
    url: String,
}

impl Postgres {
    /// Starts a server; none when [`SERVER`] names one already, or when PostgreSQL is not installed and `CI` is not set.
    pub fn start(program: &Path) -> Result<Option<Self>> {
        let given = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        if given(SERVER) {
            eprintln!("postgres: tests use the server that {SERVER} names");
            return Ok(None);
        }
        start(program, given("CI"))
    }

    /// Where tests reach it.
    pub fn url(&self) -> &str {
        &self.url
    }
}

fn start(program: &Path, required: bool) -> Result<Option<Postgres>> {
    let mut child = Command::new(program)
        // A terminal's Ctrl-C is for us and the tests; the server ends after them.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let mut line = String::new();
    let output = child.stdout.take().context("the program has no output")?;
    BufReader::new(output).read_line(&mut line)?;
    let url = line.trim().strip_prefix(SERVER);
    if let Some(url) = url.and_then(|rest| rest.strip_prefix('=')) {
        let url = url.to_owned();
        eprintln!("postgres: one server for this run");
        return Ok(Some(Postgres {
            program: child,
            url,
        }));
    }
    let status = child.wait()?;
    if status.code() != Some(MISSING) || required {
        bail!(
            "no PostgreSQL server for the tests (`{}`: {status})",
            program.display()
        );
    }
    eprintln!("postgres: tests that need a server are skipped");
    Ok(None)
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.program.stdin.take());
        // It ends by itself, after the server.
        let _ = self.program.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A stand-in for the program.
    fn program(folder: &Path, script: &str) -> std::path::PathBuf {
        let path = folder.join("program");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a script");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its mode");
        path
    }

    #[test]
    fn the_server_is_there_until_it_is_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let mark = folder.path().join("ended");
        let script = format!("echo {SERVER}=postgres://db/x; cat; : > {}", mark.display());
        let server = start(&program(folder.path(), &script), true)
            .expect("it starts")
            .expect("a server");
        assert_eq!(server.url(), "postgres://db/x");
        assert!(!mark.exists());
        drop(server);
        assert!(mark.exists());
    }

    #[test]
    fn a_missing_server_is_a_failure_only_where_it_is_required() {
        let folder = tempfile::tempdir().expect("a folder");
        let missing = program(folder.path(), "exit 3");
        assert!(start(&missing, false).expect("no failure").is_none());
        assert!(start(&missing, true).is_err());
        let broken = program(folder.path(), "exit 1");
        assert!(start(&broken, false).is_err(), "installed and broken");
    }
}
