//! `tenure config`: the configuration in force, and where each value comes from.

use super::{Context, notice, print};
use crate::args::{ConfigArgs, Global};
use crate::config::{Flags, load, show};
use crate::environment::working_folder;
use crate::exit::CliResult;

/// Prints it.
pub fn run(cx: &Context, global: &Global, args: &ConfigArgs) -> CliResult {
    if args.example {
        return print(show::EXAMPLE);
    }
    let cwd = working_folder(args.cwd.as_deref())?;
    let config = load(&Flags::from(global), &cx.env, &cwd)?;
    let lines = show::lines(&config, &cx.env);
    if args.json {
        return print(&format!("{}\n", show::json(&lines)));
    }
    match &config.file {
        Some(file) => print(&format!("# {}\n", file.display()))?,
        None => print(&format!(
            "# there is no {}\n",
            config.folders.config.join("tenure.toml").display()
        ))?,
    }
    if let Some(project) = &config.project {
        let trust = if project.trusted {
            "trusted"
        } else {
            "not trusted"
        };
        print(&format!("# {} ({trust})\n", project.file.display()))?;
    }
    print(&show::text(&lines))?;
    config.warnings().iter().for_each(|text| notice(text));
    Ok(())
}
