//! A project's own `.tenure/config.toml`: finding it, and what of it counts before the user trusts it.

use super::raw::{Decision, RawConfig};
use super::read;
use super::trust::{Trust, digest};
use crate::exit::{CliError, CliResult};
use std::path::{Path, PathBuf};

/// Larger project files are refused: they are configuration, not data.
const MAX_BYTES: u64 = 256 * 1024;

/// A project's file as it was read, once: what is judged is what is used.
#[derive(Debug, Clone, PartialEq)]
pub struct Project {
    /// The folder that holds `.tenure`, canonical.
    pub folder: PathBuf,
    /// The file.
    pub file: PathBuf,
    /// Digest of the content that was read.
    pub digest: String,
    /// The user trusts exactly this content.
    pub trusted: bool,
    /// The user trusted another content of this file.
    pub changed: bool,
    /// What it says.
    pub raw: RawConfig,
}

impl Project {
    /// The file that applies to `cwd`: in it or in a folder above it, up to the root of its repository.
    ///
    /// # Errors
    /// When a file is there and cannot be read or understood: it may hold rules that narrow permissions, and
    /// those are not to be lost.
    pub fn find(cwd: &Path, trust: &Trust) -> CliResult<Option<Self>> {
        for folder in candidates(cwd) {
            let file = folder.join(".tenure").join("config.toml");
            if let Some(content) = content(&file)? {
                let digest = digest(content.as_bytes());
                return Ok(Some(Self {
                    raw: read::parse(&file, &content)?,
                    trusted: trust.covers(folder, &digest),
                    changed: trust.knows(folder) && !trust.covers(folder, &digest),
                    folder: folder.to_owned(),
                    file,
                    digest,
                }));
            }
        }
        Ok(None)
    }

    /// What the file asks for that counts only when it is trusted, as words for people.
    pub fn wants_trust(&self) -> Vec<String> {
        let mut wants = Vec::new();
        for name in self.raw.providers.keys() {
            wants.push(format!("the provider `{name}`"));
        }
        if self.raw.store.is_some() {
            wants.push("another store".to_owned());
        }
        let widening = |r: &&super::raw::RawRule| r.decision == Decision::Allow;
        for rule in self.raw.permissions.iter().filter(widening) {
            let what = rule.pattern.as_deref().unwrap_or("everything");
            wants.push(format!("permission for `{}` to do `{what}`", rule.tool));
        }
        let lease = &self.raw.lease;
        if lease.renew_ms.is_some() || lease.duration_ms.is_some() || lease.margin_ms.is_some() {
            wants.push("other lease times".to_owned());
        }
        if self.raw.max_steps.is_some() || self.raw.max_parallel_tools.is_some() {
            wants.push("other limits".to_owned());
        }
        wants
    }

    /// What to tell the user when part of the file is ignored.
    pub fn notice(&self) -> Option<String> {
        let wants = self.wants_trust();
        if self.trusted || wants.is_empty() {
            return None;
        }
        let why = if self.changed {
            "it changed since you trusted it"
        } else {
            "you have not trusted it"
        };
        Some(format!(
            "{} asks for {}; ignored, since {why}. Read it, then `tenure trust {}`",
            self.file.display(),
            wants.join(", "),
            self.folder.display()
        ))
    }
}

/// `cwd` and the folders above it up to its repository's root; only `cwd` when it is in no repository.
fn candidates(cwd: &Path) -> Vec<&Path> {
    match cwd
        .ancestors()
        .position(|folder| folder.join(".git").exists())
    {
        Some(root) => cwd.ancestors().take(root + 1).collect(),
        None => vec![cwd],
    }
}

fn content(file: &Path) -> CliResult<Option<String>> {
    use std::io::Read;
    let cannot = |e: std::io::Error| {
        CliError::usage(format!(
            "the project file {} cannot be read: {e}",
            file.display()
        ))
        .hint("correct or remove it")
    };
    let open = match std::fs::File::open(file) {
        Ok(open) => open,
        Err(e)
            if matches!(
                e.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(None);
        }
        Err(e) => return Err(cannot(e)),
    };
    if !open.metadata().map_err(cannot)?.is_file() {
        return Err(CliError::usage(format!("{} is not a file", file.display())).hint("remove it"));
    }
    let mut text = String::new();
    open.take(MAX_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(cannot)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(
            CliError::usage(format!("{} is larger than 256 KiB", file.display()))
                .hint("a project file is configuration: make it smaller or remove it"),
        );
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Folders;

    fn trust(base: &Path) -> Trust {
        Trust::load(&Folders {
            config: base.join("c"),
            data: base.join("d"),
            state: base.join("s"),
        })
        .unwrap()
    }

    fn write(folder: &Path, text: &str) {
        std::fs::create_dir_all(folder.join(".tenure")).unwrap();
        std::fs::write(folder.join(".tenure/config.toml"), text).unwrap();
    }

    #[test]
    fn the_file_is_looked_for_up_to_the_repository_root_and_no_further() {
        let base = tempfile::tempdir().unwrap();
        let repo = base.path().join("repo");
        let deep = repo.join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        write(base.path(), "default_model = \"out/side\"");
        let trust = trust(base.path());
        assert_eq!(Project::find(&deep, &trust).unwrap(), None);
        std::fs::create_dir(repo.join(".git")).unwrap();
        assert_eq!(Project::find(&deep, &trust).unwrap(), None);
        write(&repo, "default_model = \"in/side\"");
        let found = Project::find(&deep, &trust).unwrap().unwrap();
        assert_eq!(found.raw.default_model.unwrap().value, "in/side");
        assert_eq!(found.folder, repo);
    }

    #[test]
    fn a_notice_names_what_is_ignored_and_disappears_with_trust() {
        let base = tempfile::tempdir().unwrap();
        write(
            base.path(),
            "[providers.evil]\nprotocol = \"openai-chat\"\nbase_url = \"http://e\"\n[permissions]\nbash = \"allow\"\nwrite = \"deny\"\n",
        );
        let mut trust = trust(base.path());
        let project = Project::find(base.path(), &trust).unwrap().unwrap();
        let notice = project.notice().unwrap();
        assert!(
            notice.contains("`evil`") && notice.contains("`bash`"),
            "{notice}"
        );
        assert!(!notice.contains("`write`"), "{notice}");
        trust
            .grant(&project.folder, project.digest.clone())
            .unwrap();
        assert_eq!(
            Project::find(base.path(), &trust)
                .unwrap()
                .unwrap()
                .notice(),
            None
        );
        write(base.path(), "store = \"sqlite:x\"\n");
        let changed = Project::find(base.path(), &trust).unwrap().unwrap();
        assert!(changed.notice().unwrap().contains("changed"), "{changed:?}");
    }

    #[test]
    fn an_unreadable_project_file_is_an_error_since_it_may_narrow() {
        let base = tempfile::tempdir().unwrap();
        write(base.path(), "[permissions\n");
        let error = Project::find(base.path(), &trust(base.path())).unwrap_err();
        assert!(error.message.contains("config.toml:1"), "{error}");
    }
}
