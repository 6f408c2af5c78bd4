//! Runs the tests: house rules first, then documentation tests, then everything else, ending with one summary.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::command::{cargo, has_cargo_tool, must, shown, target_directory};
use crate::postgres::{self, Postgres};
use crate::tidy;

/// The crate whose tests drive the built `tenure` binary without cargo building it for them.
const DRIVES_THE_BINARY: &str = "tenure-sim";
/// Tests of real processes, told by their name: run one at a time, because they measure time and kill groups.
const ALONE: &str = "real_";

/// The optimised profile that leaves assertions and overflow checks on.
const CHECKED: &str = "checked";

/// What `cargo xtask test` was asked to do.
#[derive(Debug, Default, PartialEq)]
pub struct Options {
    /// Use the runner's CI profile.
    pub ci: bool,
    /// How many cases each property test draws; the environment's `PROPTEST_CASES`, else proptest's own, when absent.
    pub cases: Option<u32>,
    /// Where property tests draw from; the environment's `PROPTEST_RNG_SEED`, else the one of `.cargo/config.toml`, when
    /// absent.
    pub seed: Option<u64>,
    /// Built optimised, with everything that checks itself left on: for many cases.
    pub optimised: bool,
    /// Only these crates; all when empty.
    pub packages: Vec<String>,
    /// Only tests whose name contains one of these; all when empty.
    pub filters: Vec<String>,
    /// Handed to the runner as they are.
    pub runner: Vec<String>,
}

impl Options {
    /// Reads the arguments after `test`; the error is one sentence for the user.
    pub fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Options::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--ci" => options.ci = true,
                "--cases" => {
                    let count = rest.next().ok_or("`--cases` needs a number")?;
                    let count = count
                        .parse()
                        .map_err(|_| format!("`--cases` needs a number, and got `{count}`"))?;
                    options.cases = Some(count);
                }
                "--seed" => {
                    let seed = rest.next().ok_or("`--seed` needs a number, or `random`")?;
                    options.seed = Some(read_seed(seed)?);
                }
                "--optimised" => options.optimised = true,
                "-p" | "--package" => {
                    let name = rest
                        .next()
                        .ok_or_else(|| format!("`{argument}` needs the name of a crate"))?;
                    options.packages.push(name.clone());
                }
                "--" => {
                    options.runner = rest.cloned().collect();
                    break;
                }
                flag if flag.starts_with('-') => {
                    return Err(format!("`test` has no option `{flag}`"));
                }
                filter => options.filters.push(filter.to_owned()),
            }
        }
        Ok(options)
    }

    /// The packages, and Bedrock's feature where one of them has it: what is behind it is tested like all else.
    fn selection(&self) -> Vec<&str> {
        if self.packages.is_empty() {
            return vec!["--workspace", "--features", "tenure/bedrock"];
        }
        let mut words: Vec<&str> = self
            .packages
            .iter()
            .flat_map(|name| ["-p", name.as_str()])
            .collect();
        for (package, feature) in [
            ("tenure", "tenure/bedrock"),
            ("tenure-provider", "tenure-provider/bedrock"),
            ("tenure-engine", "tenure-engine/bedrock"),
            ("tenure-sim", "tenure-sim/bedrock"),
        ] {
            if self.packages.iter().any(|name| name == package) {
                words.extend(["--features", feature]);
            }
        }
        words
    }

    /// The arguments that choose a profile where it is not the usual one, behind the word that takes it.
    fn profile(&self, word: &'static str) -> Vec<&'static str> {
        if self.optimised {
            vec![word, CHECKED]
        } else {
            Vec::new()
        }
    }

    /// The folder in which that profile's programs lie.
    fn folder(&self) -> &'static str {
        if self.optimised { CHECKED } else { "debug" }
    }

    fn is_whole(&self) -> bool {
        self.packages.is_empty() && self.filters.is_empty()
    }
}

/// The seed that was asked for; a random one is said, so that its run can be repeated.
fn read_seed(word: &str) -> Result<u64, String> {
    if word != "random" {
        let wrong = |_| format!("`--seed` needs a number, or `random`, and got `{word}`");
        return word.parse().map_err(wrong);
    }
    let seed = std::time::UNIX_EPOCH
        .elapsed()
        .map_or(1, |since| since.as_nanos() as u64);
    eprintln!("property tests draw from seed {seed}: `--seed {seed}` draws the same again");
    Ok(seed)
}

/// Runs house rules and tests; the first stage that fails ends it.
pub fn run(options: &Options) -> Result<()> {
    tidy::run()?;
    build(options)?;
    let programs = target_directory()?.join(options.folder());
    // Stopped when it is dropped, whatever comes of the tests.
    let postgres = Postgres::start(&programs.join("tenure-testbed-postgres"))?;
    let environment = Environment {
        cases: options.cases,
        seed: options.seed,
        binary: programs.join("tenure"),
        postgres: postgres.as_ref().map(|server| server.url().to_owned()),
    };
    if options.is_whole() {
        must(environment.apply(cargo().args(["test", "--workspace", "--doc", "--quiet"])))?;
    }
    if has_cargo_tool("nextest") {
        nextest(options, &environment)
    } else {
        cargo_test(options, &environment)
    }
}

/// What tests are told by their environment.
struct Environment {
    cases: Option<u32>,
    seed: Option<u64>,
    binary: std::path::PathBuf,
    /// The server for this run; absent where one is given from outside or none can be had.
    postgres: Option<String>,
}

impl Environment {
    fn apply<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("TENURE_BIN", &self.binary);
        if let Some(cases) = self.cases {
            command.env("PROPTEST_CASES", cases.to_string());
        }
        if let Some(seed) = self.seed {
            command.env("PROPTEST_RNG_SEED", seed.to_string());
        }
        if let Some(url) = &self.postgres {
            command.env(postgres::SERVER, url);
        }
        command
    }
}

/// Builds tests and binaries with one selection, so that dependencies get the same features and are built once.
fn build(options: &Options) -> Result<()> {
    let mut command = cargo();
    command
        .arg("build")
        .args(options.profile("--profile"))
        .args(options.selection())
        .args(["--bins", "--tests"]);
    must(&mut command)?;
    if options
        .packages
        .iter()
        .any(|name| name == DRIVES_THE_BINARY)
    {
        // With what the tests speak: they ask it.
        let tenure = ["-p", "tenure", "--bin", "tenure", "--features", "bedrock"];
        must(
            cargo()
                .arg("build")
                .args(options.profile("--profile"))
                .args(tenure),
        )?;
    }
    if !options.packages.is_empty() {
        must(
            cargo()
                .arg("build")
                .args(options.profile("--profile"))
                .args(["-p", postgres::CRATE, "--bins"]),
        )?;
    }
    Ok(())
}

fn nextest(options: &Options, environment: &Environment) -> Result<()> {
    let mut command = cargo();
    command
        .args(["nextest", "run"])
        .args(options.profile("--cargo-profile"))
        .args(options.selection());
    command.args(["--profile", if options.ci { "ci" } else { "default" }]);
    command.args(&options.filters).args(&options.runner);
    must(environment.apply(&mut command))
}

/// Without nextest: the same tests by `cargo test`, whose many small summaries are added up into one.
fn cargo_test(options: &Options, environment: &Environment) -> Result<()> {
    let mut total = Summary::default();
    let mut failed = Vec::new();
    for harness in harness_arguments(options) {
        let mut command = cargo();
        command
            .arg("test")
            .args(options.profile("--profile"))
            .args(options.selection())
            .arg("--tests");
        if options.ci {
            command.arg("--no-fail-fast");
        }
        command.arg("--").args(harness);
        if !streamed(environment.apply(&mut command), &mut total)? {
            failed.push(shown(&command));
            if !options.ci {
                break;
            }
        }
    }
    println!(
        "tests: {} passed, {} failed, {} skipped",
        total.passed, total.failed, total.ignored
    );
    if !failed.is_empty() {
        bail!("`{}` failed", failed.join("` and `"));
    }
    if total.passed == 0 {
        bail!("no test ran: no name contains {:?}", options.filters);
    }
    Ok(())
}

/// The arguments of each pass: with no filter, tests of real processes get a pass of their own, one at a time.
fn harness_arguments(options: &Options) -> Vec<Vec<String>> {
    let words = |first: &[&str]| {
        let mut all: Vec<String> = first.iter().map(|word| (*word).to_owned()).collect();
        all.extend(options.runner.iter().cloned());
        all
    };
    if options.filters.is_empty() {
        vec![
            words(&["--skip", ALONE]),
            words(&[ALONE, "--test-threads=1"]),
        ]
    } else {
        let filters: Vec<&str> = options.filters.iter().map(String::as_str).collect();
        vec![words(&filters)]
    }
}

/// Runs `command`, shows its output as it comes and adds up its summaries; `false` when it failed.
fn streamed(command: &mut Command, total: &mut Summary) -> Result<bool> {
    let line = shown(command);
    eprintln!("$ {line}");
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{line}`"))?;
    let output = child.stdout.take().context("the child has no output")?;
    for line in BufReader::new(output).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        println!("{line}");
        total.add(&line);
    }
    Ok(child.wait()?.success())
}

/// Counts of all test binaries together.
#[derive(Debug, Default, PartialEq)]
struct Summary {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Summary {
    /// Adds the counts of one `test result:` line; any other line changes nothing.
    fn add(&mut self, line: &str) {
        let Some(counts) = line.strip_prefix("test result: ") else {
            return;
        };
        let counts = counts.split_once(". ").map_or(counts, |(_, counts)| counts);
        for part in counts.split(';') {
            let mut words = part.split_whitespace();
            let (Some(number), Some(what)) = (words.next(), words.next()) else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&arguments)
    }

    #[test]
    fn options_filters_and_the_runners_own_arguments_are_told_apart() {
        let options = parse("--ci inbox -p tenure-core --cases 9 --seed 3 claim -- --no-capture")
            .expect("good arguments");
        assert_eq!(options.filters, ["inbox", "claim"]);
        assert_eq!(options.packages, ["tenure-core"]);
        assert_eq!(options.runner, ["--no-capture"]);
        assert_eq!((options.ci, options.cases), (true, Some(9)));
        assert_eq!((options.seed, options.optimised), (Some(3), false));
        assert_eq!(options.profile("--profile"), [] as [&str; 0]);
        let optimised = parse("--optimised --seed random").expect("good arguments");
        assert!(optimised.seed.is_some());
        assert_eq!(
            optimised.profile("--cargo-profile"),
            ["--cargo-profile", "checked"]
        );
        assert_eq!(options.selection(), ["-p", "tenure-core"]);
        assert_eq!(
            Options::default().selection(),
            ["--workspace", "--features", "tenure/bedrock"]
        );
    }

    #[test]
    fn wrong_options_are_named() {
        assert_eq!(
            parse("--quick").expect_err("wrong"),
            "`test` has no option `--quick`"
        );
        assert_eq!(
            parse("--seed often").expect_err("wrong"),
            "`--seed` needs a number, or `random`, and got `often`"
        );
        assert_eq!(
            parse("--cases many").expect_err("wrong"),
            "`--cases` needs a number, and got `many`"
        );
        assert_eq!(
            parse("-p").expect_err("wrong"),
            "`-p` needs the name of a crate"
        );
    }

    #[test]
    fn summaries_of_many_binaries_are_added_up() {
        let mut total = Summary::default();
        total.add("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s");
        total.add("test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.2s");
        total.add("test a ... ok");
        assert_eq!(
            total,
            Summary {
                passed: 7,
                failed: 2,
                ignored: 1
            }
        );
    }

    #[test]
    fn tests_of_true_processes_get_a_pass_of_their_own_unless_filtered() {
        let passes = harness_arguments(&Options::default());
        assert_eq!(
            passes,
            [vec!["--skip", "real_"], vec!["real_", "--test-threads=1"]]
        );
        let options = Options {
            filters: vec!["inbox".into()],
            ..Options::default()
        };
        assert_eq!(harness_arguments(&options), [vec!["inbox"]]);
    }

    #[test]
    fn property_case_counts_and_the_server_reach_the_tests() {
        let environment = Environment {
            cases: Some(7),
            seed: Some(5),
            binary: "tenure".into(),
            postgres: Some("postgres://db/x".into()),
        };
        let mut command = Command::new("true");
        let set: Vec<_> = environment.apply(&mut command).get_envs().collect();
        for one in [
            ("PROPTEST_CASES", "7"),
            ("PROPTEST_RNG_SEED", "5"),
            ("TENURE_TEST_PG", "postgres://db/x"),
        ] {
            assert!(
                set.contains(&(one.0.as_ref(), Some(one.1.as_ref()))),
                "{set:?}"
            );
        }
    }
}
