//! `tenure trust`: lets a folder's own configuration take full effect, for exactly its present content.

use super::{Context, print};
use crate::args::TrustArgs;
use crate::config::project::Project;
use crate::config::trust::Trust;
use crate::environment::working_folder;
use crate::exit::{CliError, CliResult};
use crate::render::escape::safe;

/// Trusts, shows or revokes.
pub fn run(cx: &Context, args: &TrustArgs) -> CliResult {
    let folder = working_folder(args.folder.as_deref())?;
    let mut trust = Trust::load(&cx.env.folders()?)?;
    if args.revoke {
        return revoke(&mut trust, &folder);
    }
    let Some(project) = Project::find(&folder, &trust) else {
        return Err(CliError::usage(format!(
            "there is no .tenure/config.toml in {} or above it in its repository",
            folder.display()
        ))
        .hint("there is nothing to trust"));
    };
    let wants = project.wants_trust();
    if args.show {
        let state = if project.trusted {
            "trusted"
        } else {
            "not trusted"
        };
        let mut text = format!("{} ({state})\n", project.file.display());
        if wants.is_empty() {
            text.push_str("asks for nothing that needs trust\n");
        }
        for want in &wants {
            text.push_str(&format!("  asks for {}\n", safe(want)));
        }
        if let Err(error) = project.check_for_trust() {
            text.push_str(&format!("cannot be trusted: {}\n", safe(&error.message)));
        }
        return print(&text);
    }
    project.check_for_trust()?;
    trust.grant(&project.folder, project.digest.clone())?;
    let mut text = format!("trusted {}\n", project.file.display());
    for want in &wants {
        text.push_str(&format!("  now in force: {}\n", safe(want)));
    }
    text.push_str("a later change of the file will not be trusted\n");
    print(&text)
}

fn revoke(trust: &mut Trust, folder: &std::path::Path) -> CliResult {
    for candidate in folder.ancestors() {
        if trust.revoke(candidate)? {
            return print(&format!("{} is trusted no longer\n", candidate.display()));
        }
    }
    print(&format!("{} was not trusted\n", folder.display()))
}
