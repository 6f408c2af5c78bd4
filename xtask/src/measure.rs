//! Benchmarks and kill runs: programs of `tenure-sim` that drive the release build of `tenure`.

use anyhow::Result;

use crate::command::{cargo, must, target_directory};

/// Builds `tenure`, then runs the program `name` of `tenure-sim` on it; `arguments` go to that program.
///
/// The program finds the binary under test in `TENURE_BIN`.
pub fn run(name: &str, arguments: &[String]) -> Result<()> {
    if arguments != ["--only", "decode"] {
        let tenure = ["build", "--release", "-p", "tenure", "--bin", "tenure"];
        let mut build = cargo();
        build.args(tenure);
        // Kills hit whatever can be spoken; what is measured is the usual build.
        if name == "kill" {
            build.args(["--features", "bedrock"]);
        }
        must(&mut build)?;
    }
    let binary = target_directory()?.join("release/tenure");
    must(
        cargo()
            .args([
                "run",
                "--release",
                "-p",
                "tenure-sim",
                "--features",
                "bedrock",
            ])
            .args(["--bin", name, "--"])
            .args(arguments)
            .env("TENURE_BIN", binary),
    )
}

/// Runs seeds of the simulation, optimised; `arguments` go to it.
pub fn simulate(arguments: &[String]) -> Result<()> {
    let run = [
        "run",
        "--profile",
        "sim",
        "-p",
        "tenure-sim",
        "--features",
        "simulation",
        "--bin",
        "sim",
        "--",
    ];
    must(cargo().args(run).args(arguments))
}

/// Runs the program `name` of `tenure-sim` in the profile tests are built in.
pub fn check(name: &str, arguments: &[String]) -> Result<()> {
    must(
        cargo()
            .args([
                "run",
                "-p",
                "tenure-sim",
                "--features",
                "simulation",
                "--bin",
                name,
                "--",
            ])
            .args(arguments),
    )
}
