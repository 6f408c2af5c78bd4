//! `tenure demo`.
use super::Context;
use crate::args::DemoArgs;
use crate::exit::CliResult;
/// Runs it.
pub async fn run(_cx: &Context, _args: &DemoArgs) -> CliResult {
    Ok(())
}
