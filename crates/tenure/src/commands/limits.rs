//! `tenure limits`: what a session may take, what it has taken, and changing the former.

use super::{Context, open, print};
use crate::amounts::{LimitsChange, Money, Time};
use crate::args::{Global, LimitsArgs};
use crate::exit::CliResult;
use crate::render::human;
use crate::store;
use serde_json::{Value, json};
use tenure_core::event::body::Limits;
use tenure_store::SessionRow;

/// Shows them, after changing them when anything is given.
pub async fn run(cx: &Context, global: &Global, args: &LimitsArgs) -> CliResult {
    let config = open(cx, global)?;
    let store = store::open_existing(&config).await?;
    let row = store::find(store.as_ref(), &args.session).await?;
    let client = store::client(&config, store).await;
    let mut limits = client.limits(&row.id).await?;
    let change = LimitsChange::from(&args.limits);
    if !change.is_empty() {
        limits = change.apply(&limits);
        client.set_limits(&row.id, limits.clone()).await?;
    }
    let steps = match limits.max_steps {
        0 => config.max_steps.value,
        steps => steps,
    };
    if args.json {
        return print(&format!("{}\n", line(&row, &limits, steps)));
    }
    print(&text(&row, &limits, steps))
}

fn line(row: &SessionRow, limits: &Limits, steps: u32) -> Value {
    json!({
        "v": 1, "kind": "limits", "session": row.id,
        "limits": {"max_steps": steps, "max_cost": limits.max_cost, "max_tokens": limits.max_tokens,
            "max_wall_ms": limits.max_wall_ms},
        "spent": {"cost": row.cost, "cost_incomplete": row.cost_incomplete, "tokens": row.usage.total()},
    })
}

fn text(row: &SessionRow, limits: &Limits, steps: u32) -> String {
    let none = || "no limit".to_owned();
    let cost = limits.max_cost.map_or_else(none, |n| Money(n).to_string());
    let tokens = limits.max_tokens.map_or_else(none, |n| n.to_string());
    let time = limits
        .max_wall_ms
        .map_or_else(none, |n| Time(n).to_string());
    format!(
        "cost    {cost}; spent: {}\ntokens  {tokens}; used: {}\ntime    {time} for a turn\nsteps   {steps} without new input\n",
        human::cost(row.cost, row.cost_incomplete),
        row.usage.total(),
    )
}
