//! House tasks, run as `cargo xtask TASK`: tests, house rules, the bug-case table, benchmarks, kill runs.

mod cases;
mod command;
mod fuzz;
mod lint;
mod measure;
mod models;
mod postgres;
mod testing;
mod tidy;
mod tree;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  test [--ci] [--cases N] [--seed S] [--optimised] [-p CRATE] [FILTER...] [-- RUNNER-ARGS...]
              house rules, documentation tests, then all tests (cargo-nextest where installed, else cargo test);
              starts one PostgreSQL for all of them, unless TENURE_TEST_PG names one
              --ci       the runner's CI profile: every failure is shown, not the first only
              --cases N  how many cases each property test draws (PROPTEST_CASES)
              --seed S   where property tests draw from: a number, or `random`; always the same when left out
              --optimised
                         built for speed, with all assertions left on: for many cases
  tidy        house rules: floors, ceilings, banned calls, documents (also a test of this crate)
  lint        fmt --check, clippy, tidy, the case table, cargo deny where installed (required when CI is set)
  ci          lint, then test --ci
  cases [--write] [--strict]
              docs/cases.md lists every bug case, and every test it names exists
              --write    fill the test column from the sources
              --strict   fail on a case that has neither a test nor an issue it waits for
  bench ...   benchmarks in release mode; arguments go to the benchmark program
  kill [--points N] ...
              kills a real process at N random points and checks what is left; arguments go to the program
  sim [--seeds N] [--seed S] [--scenario NAME] [--mutant NAME] [--mutants [--only TEXT] [--hinted]] [--jobs J]
              runs the simulation: each seed is a schedule of faults; prints the smallest one that breaks a promise
              --mutants  breaks each rule in turn and prints the first seed that shows it
  fuzz [--seconds N] [TARGET...]
              feeds made-up bytes to the decoders, five minutes each; needs cargo-fuzz and a nightly toolchain
  models --from FILE --version V --date YYYY-MM-DD
              writes the built-in table of models from model_prices_and_context_window_backup.json of the PyPI package
              litellm (`pip download --no-deps litellm`, version V; the file lies in the wheel)
  mutants [FILTER]
              breaks each rule once by a switch and prints which test noticed
";

/// What went wrong, by exit code: a wrong command line is 2, a failed task 1.
enum Failure {
    Usage(String),
    Task(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Failure::Task(error)
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => {
            eprintln!("{message}\n\n{USAGE}");
            ExitCode::from(2)
        }
        Err(Failure::Task(error)) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), Failure> {
    let Some((task, rest)) = arguments.split_first() else {
        return Err(Failure::Usage("which task?".into()));
    };
    match task.as_str() {
        "test" => {
            let options = testing::Options::parse(rest).map_err(Failure::Usage)?;
            testing::run(&options)?;
        }
        "fuzz" => {
            let options = fuzz::Options::parse(rest).map_err(Failure::Usage)?;
            fuzz::run(&options)?;
        }
        "tidy" => {
            nothing_more(task, rest)?;
            tidy::run()?;
        }
        "lint" => {
            nothing_more(task, rest)?;
            lint::run()?;
        }
        "ci" => {
            nothing_more(task, rest)?;
            lint::run()?;
            testing::run(&testing::Options {
                ci: true,
                ..testing::Options::default()
            })?;
        }
        "cases" => {
            let options = cases::Options::parse(rest).map_err(Failure::Usage)?;
            cases::run(&options)?;
        }
        "bench" => measure::run("bench", rest)?,
        "kill" => measure::run("kill", rest)?,
        "sim" => measure::simulate(rest)?,
        "mutants" => measure::check("mutants", rest)?,
        "models" => {
            let options = models::Options::parse(rest).map_err(Failure::Usage)?;
            models::run(&options)?;
        }
        "help" | "--help" | "-h" => print!("{USAGE}"),
        _ => return Err(Failure::Usage(format!("there is no task `{task}`"))),
    }
    Ok(())
}

fn nothing_more(task: &str, rest: &[String]) -> Result<(), Failure> {
    match rest.first() {
        None => Ok(()),
        Some(argument) => Err(Failure::Usage(format!(
            "`{task}` takes no argument, and got `{argument}`"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage_of(line: &str) -> Option<String> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match run(&arguments) {
            Err(Failure::Usage(message)) => Some(message),
            _ => None,
        }
    }

    #[test]
    fn a_wrong_command_line_is_a_usage_error_that_names_the_word() {
        assert_eq!(usage_of("").as_deref(), Some("which task?"));
        assert_eq!(usage_of("tset").as_deref(), Some("there is no task `tset`"));
        assert_eq!(
            usage_of("tidy now").as_deref(),
            Some("`tidy` takes no argument, and got `now`")
        );
        assert!(usage_of("test --fast").is_some_and(|message| message.contains("--fast")));
        assert!(usage_of("cases --wirte").is_some_and(|message| message.contains("--wirte")));
        assert!(usage_of("help").is_none());
    }
}
