//! `tenure scripted-model`: the scripted model as a server.

use crate::args::ScriptedArgs;
use crate::exit::{CliError, CliResult};
use tenure_scripted::{CliOptions, serve_cli};

/// Serves until it is told to stop.
///
/// Cancellation: dropped, it stops serving.
pub async fn run(args: ScriptedArgs) -> CliResult {
    let options = CliOptions {
        script: args.script,
        addr: args.addr,
        log: args.log,
        api_key: args.api_key,
    };
    serve_cli(options).await.map_err(|e| {
        CliError::usage(e.to_string()).hint("docs/scripted-model.md describes the script")
    })
}
