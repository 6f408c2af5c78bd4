//! `cargo xtask mutants`: breaks each rule once and prints which test noticed.

use std::process::ExitCode;
use tenure_sim::mutants::{Row, run, table};

const USAGE: &str = "usage: mutants [FILTER]   FILTER: part of a switch's name, for example R7";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let filter = match arguments.as_slice() {
        [] => "",
        [filter] if !filter.starts_with('-') => filter,
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(filter) {
        Ok(rows) => {
            println!("{}", table(&rows));
            if rows.iter().all(Row::is_caught) {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("mutants: {error:#}");
            ExitCode::from(2)
        }
    }
}
