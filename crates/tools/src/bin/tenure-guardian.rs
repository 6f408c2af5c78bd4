//! The guardian as a program of its own, for tests and for programs that cannot start themselves again.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tenure_tools::guardian::{GuardianCommand, LeaseDeadline, maybe_run, since_boot};
use tenure_tools::{SpawnSink, ToolCx, ToolSet};

fn main() -> ExitCode {
    maybe_run();
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        // For tests: a parent that can be killed while it runs commands.
        Some("__test-parent") => test_parent(args.get(2..).unwrap_or_default()),
        _ => {
            eprintln!("tenure-guardian is started by Tenure, not by hand");
            ExitCode::from(2)
        }
    }
}

/// The test parent's lease, which it renews.
const LEASE: Duration = Duration::from_secs(2);

/// Runs each of the commands after the first argument, the workspace, at the same time; prints each guardian's
/// identity as a line of JSON before its command begins, and the results at the end.
fn test_parent(args: &[String]) -> ExitCode {
    let Some((workspace, commands)) = args.split_first() else {
        return ExitCode::from(2);
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    else {
        return ExitCode::FAILURE;
    };
    let Ok(guardian) = GuardianCommand::current_exe() else {
        return ExitCode::FAILURE;
    };
    let workspace = Path::new(workspace);
    let Ok(mut cx) = ToolCx::new("ses", "call", workspace, workspace.join("out"), guardian) else {
        return ExitCode::FAILURE;
    };
    cx.spawned = Some(SpawnSink::new(|spawned| async move {
        let line = serde_json::to_string(&spawned).map_err(|e| e.to_string())?;
        writeln!(std::io::stdout(), "{line}").map_err(|e| e.to_string())
    }));
    let lease = LeaseDeadline::after(LEASE);
    cx.guardian.lease = Some(lease.clone());
    let tools = ToolSet::builtin();
    runtime.block_on(async {
        // Renewed for as long as this process runs at all.
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(LEASE / 10).await;
                lease.set(since_boot() + LEASE);
            }
        });
        let mut running = tokio::task::JoinSet::new();
        for command in commands {
            let (tools, cx, input) = (
                tools.clone(),
                cx.clone(),
                serde_json::json!({ "command": command }),
            );
            running.spawn(async move { tools.run("bash", cx, &input).await });
        }
        for result in running.join_all().await {
            match result {
                Ok(output) => println!("ok {}", output.text),
                Err(error) => println!("error {error}"),
            }
        }
    });
    ExitCode::SUCCESS
}
