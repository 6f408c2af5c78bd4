//! Everything that judges the sources without running them: format, clippy, house rules, case table, dependencies.

use anyhow::{Result, bail};

use crate::command::{cargo, has_cargo_tool, must};
use crate::{cases, tidy};

/// Runs all of it, cheapest first; the first failure ends it.
pub fn run() -> Result<()> {
    tidy::run()?;
    cases::run(&cases::Options::default())?;
    must(cargo().args(["fmt", "--all", "--check"]))?;
    deny()?;
    // With what is behind features, and the one crate that has them without, too.
    for selection in [
        &["--workspace", "--features", "tenure/bedrock"][..],
        &["-p", "tenure-provider"],
    ] {
        let mut clippy = cargo();
        clippy.arg("clippy").args(selection);
        must(clippy.args(["--all-targets", "--", "-D", "warnings"]))?;
    }
    Ok(())
}

/// Licences, banned crates and sources. Advisories need a database from the network and are left to the maintainers.
fn deny() -> Result<()> {
    if has_cargo_tool("deny") {
        return must(cargo().args(["deny", "check", "bans", "licenses", "sources"]));
    }
    if std::env::var_os("CI").is_some() {
        bail!("cargo-deny is not installed: `cargo install cargo-deny --locked`");
    }
    eprintln!(
        "SKIPPED: licences, bans and sources of dependencies (`cargo install cargo-deny --locked`)"
    );
    Ok(())
}
