//! Runs seeds of the deterministic simulation and prints what they find: `cargo xtask sim`.

use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use tenure_sim::simulation::mutants::{self, Expected};
use tenure_sim::simulation::shrink::shrink;
use tenure_sim::simulation::{Outcome, Plan, Scenario, run};
use tenure_store::mutation::{Mutation, Mutations};

const USAGE: &str = "\
usage: cargo xtask sim [--seeds N] [--seed S] [--scenario NAME] [--mutant NAME] [--jobs J] [--keep-going] [--log]

  --seeds N        how many seeds to run (1000; with --seed alone: 1)
  --seed S         the first seed (1)
  --scenario NAME  mixed, interrupts, crashes, drains, outages, edges, silence, orphans, rests, places or
                   relays; else the seed chooses
  --mutant NAME    breaks a rule on purpose: the first seed that fails is a success
  --mutants        breaks each rule in turn and prints the first seed that shows it
  --only TEXT      with --mutants: only those whose names contain it
  --hinted         with --mutants: only seeds of the scenario that is said to show each
  --jobs J         threads (all cores)
  --keep-going     run all seeds, whatever they find
  --log            print the exported log of the seed, with --seed alone
  --trace          print what the engines say, with --seed alone
";

struct Options {
    first: u64,
    seeds: u64,
    scenario: Option<Scenario>,
    mutations: Mutations,
    mutant: Option<Mutation>,
    jobs: usize,
    mutants: bool,
    only: String,
    hinted: bool,
    keep_going: bool,
    log: bool,
}

fn parse(arguments: &[String]) -> anyhow::Result<Options> {
    let (mut first, mut seeds) = (None, None);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options = Options {
        first: 1,
        seeds: 1_000,
        scenario: None,
        mutations: Mutations::none(),
        mutant: None,
        jobs: cores,
        mutants: false,
        only: String::new(),
        hinted: false,
        keep_going: false,
        log: false,
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || {
            words
                .next()
                .with_context(|| format!("{word} wants a value\n\n{USAGE}"))
        };
        match word.as_str() {
            "--seeds" => seeds = Some(value()?.parse().context("--seeds wants a number")?),
            "--seed" => first = Some(value()?.parse().context("--seed wants a number")?),
            "--jobs" => options.jobs = value()?.parse().context("--jobs wants a number")?,
            "--scenario" => {
                let name = value()?;
                let named = Scenario::named(name);
                options.scenario = Some(named.with_context(|| format!("no scenario `{name}`"))?);
            }
            "--mutant" => {
                let name = value()?;
                let named = Mutation::ALL
                    .iter()
                    .find(|mutation| mutation.name() == name);
                let named = *named.with_context(|| format!("no mutant `{name}`"))?;
                options.mutations.set(named, true);
                options.mutant = Some(named);
            }
            "--mutants" => options.mutants = true,
            "--only" => options.only.clone_from(value()?),
            "--hinted" => options.hinted = true,
            "--keep-going" => options.keep_going = true,
            "--log" => options.log = true,
            "--trace" => {
                let filter = tracing_subscriber::EnvFilter::new("debug");
                tracing_subscriber::fmt().with_env_filter(filter).init();
            }
            "--help" | "-h" => bail!("{USAGE}"),
            other => bail!("what is `{other}`?\n\n{USAGE}"),
        }
    }
    options.first = first.unwrap_or(1);
    options.seeds = seeds.unwrap_or(if first.is_some() { 1 } else { 1_000 });
    Ok(options)
}

/// What all threads found together.
#[derive(Default)]
struct Found {
    failed: Vec<(u64, Plan, Outcome)>,
    counts: BTreeMap<&'static str, u64>,
    polls: u64,
    done: u64,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match parse(&arguments).map(|mut options| go(&mut options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

/// Breaks each rule in turn. True when each that the seeds are to find is found.
fn each_mutant(options: &mut Options) -> bool {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for mutant in mutants::all() {
        if !mutant.name.contains(&options.only) {
            continue;
        }
        let name = mutant.name;
        if let Expected::Elsewhere(why) = mutant.expected {
            *counts.entry("elsewhere").or_default() += 1;
            let by = mutant.witness.unwrap_or("nothing");
            println!("{name:<34} not visible here: {why}; caught by `{by}`");
            continue;
        }
        options.mutations = mutant.mutations();
        if options.hinted {
            options.scenario = mutant.shows_in;
        }
        let first = search(options).failed.into_iter().next();
        let verdict = match (&first, mutant.expected) {
            (Some(_), Expected::Caught) => "caught",
            (Some(_), _) => "CAUGHT, and said to be redundant",
            (None, Expected::Caught) => "SURVIVES (a defect)",
            (None, _) => "redundant",
        };
        *counts.entry(verdict).or_default() += 1;
        match first {
            Some((seed, plan, outcome)) => {
                let (why, scenario) = (&outcome.violations[0], plan.scenario.name());
                let message = cut(&why.message);
                println!(
                    "{name:<34} {verdict} by seed {seed:>6} {scenario:<10} {} {message}",
                    why.promise
                );
            }
            None => {
                let (why, by) = match (mutant.expected, mutant.witness) {
                    (Expected::Redundant(why), Some(by)) => (why, format!("; caught by `{by}`")),
                    _ => ("", String::new()),
                };
                println!("{name:<34} {verdict} in {} seeds {why}{by}", options.seeds);
            }
        }
    }
    println!("{counts:?}");
    counts
        .keys()
        .all(|verdict| ["caught", "redundant", "elsewhere"].contains(verdict))
}

/// Runs the seeds, until the first that fails unless told otherwise.
fn search(options: &Options) -> Found {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let found = Mutex::new(Found::default());
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| work(options, &next, &stop, &found));
        }
    });
    let mut found = found
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    found.failed.sort_by_key(|(seed, _, _)| *seed);
    found.done = next.load(Ordering::Relaxed).min(options.seeds);
    found
}

/// True when the run ended as it should.
fn go(options: &mut Options) -> bool {
    if options.mutants {
        return each_mutant(options);
    }
    let began = Instant::now();
    let found = search(options);
    let done = found.done;
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{done} seeds in {seconds:.1} s ({:.0}/s), {} polls each",
        done as f64 / seconds,
        found.polls / done.max(1)
    );
    let counts: Vec<String> = found
        .counts
        .iter()
        .map(|(what, n)| format!("{what}: {n}"))
        .collect();
    println!("{}", counts.join(", "));
    let first = found.failed.into_iter().next();
    match (options.mutant, first) {
        (None, None) => {
            println!("no violation");
            true
        }
        (Some(mutant), None) => {
            println!("mutant {} survives", mutant.name());
            false
        }
        (mutant, Some((seed, plan, outcome))) => {
            if let Some(mutant) = mutant {
                println!("mutant {} is caught by seed {seed}", mutant.name());
            }
            show(seed, &plan, outcome, options);
            mutant.is_some()
        }
    }
}

fn work(options: &Options, next: &AtomicU64, stop: &AtomicBool, found: &Mutex<Found>) {
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut polls = 0;
    while !stop.load(Ordering::Relaxed) {
        let at = next.fetch_add(1, Ordering::Relaxed);
        if at >= options.seeds {
            break;
        }
        let seed = options.first + at;
        let plan = Plan::of(seed, options.scenario);
        let outcome = run(&plan, &options.mutations);
        if options.log {
            print!("{}", outcome.export());
        }
        polls += outcome.polls;
        for (what, n) in &outcome.counts {
            *counts.entry(what).or_default() += n;
        }
        if !outcome.violations.is_empty() {
            if options.keep_going {
                let first = &outcome.violations[0];
                println!(
                    "seed {seed} ({}): {} {}",
                    plan.scenario.name(),
                    first.promise,
                    cut(&first.message)
                );
            } else {
                stop.store(true, Ordering::Relaxed);
            }
            let mut found = found
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            found.failed.push((seed, plan, outcome));
            found.failed.sort_by_key(|(seed, _, _)| *seed);
            found.failed.truncate(1);
        }
    }
    let mut found = found
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    found.polls += polls;
    for (what, n) in counts {
        *found.counts.entry(what).or_default() += n;
    }
}

fn cut(message: &str) -> String {
    message.chars().take(300).collect()
}

/// The smallest schedule that still fails, and the end of what happened in it.
fn show(seed: u64, plan: &Plan, outcome: Outcome, options: &Options) {
    println!("\nseed {seed}, scenario {}:", plan.scenario.name());
    for violation in outcome.violations.iter().take(5) {
        println!("  {} {}", violation.promise, cut(&violation.message));
    }
    let (small, outcome) = shrink(plan, outcome, &options.mutations);
    println!(
        "\nthe smallest schedule found: {} nodes, {} sessions, {} ms of drain budget",
        small.nodes,
        small.sessions,
        small.drain_budget / 1_000
    );
    for action in &small.actions {
        println!("  client: {action:?}");
    }
    for fault in &small.faults {
        println!("  fault: {fault}");
    }
    println!("it breaks:");
    for violation in outcome.violations.iter().take(5) {
        println!("  {} {}", violation.promise, cut(&violation.message));
    }
    println!("what happened:");
    let from = outcome.notes.len().saturating_sub(60);
    for (at, note) in &outcome.notes[from..] {
        println!(
            "  {:>4}.{:06} {}",
            at / 1_000_000,
            at % 1_000_000,
            cut(note)
        );
    }
    println!("the end of the logs:");
    for (session, events) in &outcome.logs {
        println!("  {session}");
        for event in events.iter().skip(events.len().saturating_sub(60)) {
            let epoch = event
                .epoch
                .map_or("-".to_owned(), |epoch| epoch.to_string());
            let data: String = event.body.encode().chars().take(150).collect();
            println!(
                "    {:>4} e{epoch} {} {data}",
                event.seq,
                event.body.type_name()
            );
        }
    }
    println!("\nagain: cargo xtask sim --seed {seed}");
}
