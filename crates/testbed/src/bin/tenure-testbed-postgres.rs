//! One PostgreSQL for a whole test run: prints `TENURE_TEST_PG=URL` and lives until its input ends.

use std::io::{Read, Write};
use std::process::ExitCode;

use tenure_testbed::postgres::{Cluster, SERVER};

/// The exit code that says PostgreSQL is not installed.
const MISSING: u8 = 3;

fn main() -> ExitCode {
    let cluster = match Cluster::lending() {
        Ok(cluster) => cluster,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(if error.is_missing() { MISSING } else { 1 });
        }
    };
    let mut output = std::io::stdout();
    let told =
        writeln!(output, "{SERVER}={}", cluster.server().url()).and_then(|()| output.flush());
    if told.is_err() {
        // Nobody reads, so nobody will use it.
        return ExitCode::FAILURE;
    }
    let mut input = std::io::stdin();
    let mut ignored = [0; 256];
    while input.read(&mut ignored).is_ok_and(|read| read > 0) {}
    ExitCode::SUCCESS
}
