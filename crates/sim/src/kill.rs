//! The kill run: real `tenure` processes are killed at random points of a task, others finish it, the log is checked.

mod child;
mod phase;
mod plan;
mod point;
mod table;
mod verify;

pub use phase::Phase;
pub use plan::{Killing, Plan, Way};
pub use point::Point;
pub use table::table;

use crate::place::{self, Place};
use crate::task;
use anyhow::{Context, Result, bail};
use point::Ground;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tenure_scripted::ScriptedModel;
use tokio::task::JoinSet;

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many points.
    pub points: u64,
    /// Makes the same points again.
    pub seed: u64,
    /// Only this point.
    pub only: Option<u64>,
    /// Points that run side by side, each against a model of its own.
    pub jobs: usize,
    /// Tell each point as it ends, on standard error.
    pub tell: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            points: 300,
            seed: 1,
            only: None,
            jobs: 2,
            tell: false,
        }
    }
}

/// Kills and checks. A broken promise is in the points' violations, not an error.
///
/// # Errors
/// There is no `tenure` to run, or the task fails without any kill.
pub async fn run(options: &Options) -> Result<Vec<Point>> {
    let tenure = place::tenure()?;
    let spoken: Arc<[&'static str]> = place::spoken(&tenure)?.into();
    let mut length = u64::MAX;
    for protocol in spoken.iter() {
        let events = undisturbed(&tenure, protocol)
            .await
            .with_context(|| format!("the task fails over {protocol} without any kill"))?;
        // Kills in all of them reach the end of the shortest.
        length = length.min(events);
    }
    let next = Arc::new(AtomicU64::new(0));
    let numbers: Arc<Vec<u64>> = Arc::new(match options.only {
        Some(only) => vec![only],
        None => (0..options.points).collect(),
    });
    let mut workers = JoinSet::new();
    for _ in 0..options.jobs.clamp(1, numbers.len().max(1)) {
        let (tenure, numbers, next) = (tenure.clone(), numbers.clone(), next.clone());
        let (seed, tell, spoken) = (options.seed, options.tell, spoken.clone());
        let plan = move |number| Plan::of(seed, number, length, &spoken);
        workers.spawn(async move { worker(&tenure, &numbers, &next, plan, tell).await });
    }
    let mut points = Vec::new();
    while let Some(done) = workers.join_next().await {
        points.extend(done.context("a worker of the kill run failed")??);
    }
    points.sort_by_key(|point| point.plan.number);
    Ok(points)
}

async fn worker(
    tenure: &PathBuf,
    numbers: &[u64],
    next: &AtomicU64,
    plan: impl Fn(u64) -> Plan,
    tell: bool,
) -> Result<Vec<Point>> {
    let model = model().await?;
    let ground = Ground {
        tenure,
        model: &model,
    };
    let mut points = Vec::new();
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed) as usize;
        let Some(number) = numbers.get(index) else {
            return Ok(points);
        };
        let point = point::run(&ground, plan(*number)).await;
        if tell {
            eprintln!("{point}");
        }
        points.push(point);
    }
}

async fn model() -> Result<tenure_scripted::Handle> {
    let loopback = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let builder = ScriptedModel::builder(task::script()).keep_bodies(false);
    builder
        .bind(loopback)
        .await
        .context("the scripted model cannot be served")
}

/// The task without a kill: how many durable events its log has. It must pass every check, too.
async fn undisturbed(tenure: &PathBuf, protocol: &'static str) -> Result<u64> {
    let model = model().await?;
    let ground = Ground {
        tenure,
        model: &model,
    };
    let plan = Plan::undisturbed(protocol);
    let point = point::run(&ground, plan).await;
    if !point.violations.is_empty() {
        bail!("{point}");
    }
    if point.steps < task::STEPS {
        bail!(
            "the task has {} steps instead of {}: {point}",
            point.steps,
            task::STEPS
        );
    }
    Ok(point.events)
}

/// A place against `model`, as every point has one.
fn place(ground: &Ground<'_>, protocol: &str) -> Result<Place> {
    Place::new(ground.tenure, &ground.model.base_url(), protocol)
}
