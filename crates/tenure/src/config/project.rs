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
    /// Why it cannot be read or understood; then it says nothing, and nothing may be begun in its folder: it may
    /// hold rules that narrow permissions, and those are not to be lost.
    pub broken: Option<CliError>,
}

impl Project {
    /// The file that applies to `cwd`: in it or in a folder above it, up to the root of its repository.
    ///
    /// A file that is there and cannot be read or understood is told in [`Project::broken`]: it is no obstacle
    /// for what needs no rules of the project.
    pub fn find(cwd: &Path, trust: &Trust) -> Option<Self> {
        candidates(cwd).into_iter().find_map(|folder| {
            let file = folder.join(".tenure").join("config.toml");
            let found = content(&file).transpose()?;
            let of = |digest: String, read: CliResult<RawConfig>| {
                let (raw, broken) = match read {
                    Ok(raw) => (raw, None),
                    Err(error) => (RawConfig::default(), Some(error)),
                };
                Self {
                    raw,
                    trusted: broken.is_none() && trust.covers(folder, &digest),
                    changed: trust.knows(folder) && !trust.covers(folder, &digest),
                    folder: folder.to_owned(),
                    file: file.clone(),
                    digest,
                    broken,
                }
            };
            Some(match found {
                Ok(content) => {
                    let digest = digest(content.as_bytes());
                    // What is ignored anyway need not be right.
                    let read = if trust.covers(folder, &digest) {
                        read::parse(&file, &content)
                    } else {
                        read::parse_untrusted(&file, &content)
                    };
                    of(digest, read)
                }
                Err(error) => of(String::new(), Err(error)),
            })
        })
    }

    /// Reads the file again as one that is to be trusted: all of it has to be right.
    ///
    /// # Errors
    /// It changed since it was found, or is not right.
    pub fn check_for_trust(&self) -> CliResult {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let content = content(&self.file)?.unwrap_or_default();
        if digest(content.as_bytes()) != self.digest {
            return Err(
                CliError::failed(format!("{} changed just now", self.file.display()))
                    .hint("read it again"),
            );
        }
        read::parse(&self.file, &content).map(drop)
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
        if self.raw.store_password_file.is_some() {
            wants.push("another password file".to_owned());
        }
        if self.raw.node != super::raw::RawNode::default() {
            wants.push("other settings of nodes".to_owned());
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
        let raw = &self.raw;
        let budget = [&raw.max_cost, &raw.max_tokens, &raw.max_time];
        if raw.max_steps.is_some()
            || raw.max_parallel_tools.is_some()
            || raw.auto_compaction.is_some()
            || budget.into_iter().any(Option::is_some)
        {
            wants.push("other limits".to_owned());
        }
        wants
    }

    /// What to tell the user when part of the file is ignored.
    pub fn notice(&self) -> Option<String> {
        if let Some(error) = &self.broken {
            let first = error.message.lines().next().unwrap_or_default();
            return Some(format!(
                "{first}; the project's file is left out, and nothing is begun in {} until it is corrected",
                self.folder.display()
            ));
        }
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
        assert_eq!(Project::find(&deep, &trust), None);
        std::fs::create_dir(repo.join(".git")).unwrap();
        assert_eq!(Project::find(&deep, &trust), None);
        write(&repo, "default_model = \"in/side\"");
        let found = Project::find(&deep, &trust).unwrap();
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
        let project = Project::find(base.path(), &trust).unwrap();
        let notice = project.notice().unwrap();
        assert!(
            notice.contains("`evil`") && notice.contains("`bash`"),
            "{notice}"
        );
        assert!(!notice.contains("`write`"), "{notice}");
        trust
            .grant(&project.folder, project.digest.clone())
            .unwrap();
        assert_eq!(Project::find(base.path(), &trust).unwrap().notice(), None);
        write(base.path(), "store = \"sqlite:x\"\n");
        let changed = Project::find(base.path(), &trust).unwrap();
        assert!(changed.notice().unwrap().contains("changed"), "{changed:?}");
    }

    #[test]
    fn an_unreadable_project_file_is_told_since_it_may_narrow() {
        let base = tempfile::tempdir().unwrap();
        write(base.path(), "[permissions\n");
        let project = Project::find(base.path(), &trust(base.path())).unwrap();
        let error = project.broken.clone().unwrap();
        assert!(error.message.contains("config.toml:1"), "{error}");
        assert!(project.notice().unwrap().contains("config.toml:1"));
        assert!(project.check_for_trust().is_err());
    }

    #[test]
    fn what_is_ignored_without_trust_has_to_be_right_only_with_it() {
        let base = tempfile::tempdir().unwrap();
        write(
            base.path(),
            "[providers.local]\nbase_url = \"http://e\"\n[permissions]\nread = \"deny\"\n",
        );
        let mut trust = trust(base.path());
        let project = Project::find(base.path(), &trust).unwrap();
        assert_eq!(project.broken, None);
        assert!(project.notice().unwrap().contains("`local`"));
        assert_eq!(project.raw.permissions.len(), 1);
        let error = project.check_for_trust().unwrap_err();
        assert!(error.message.contains("protocol` is missing"), "{error}");
        trust
            .grant(&project.folder, project.digest.clone())
            .unwrap();
        assert!(Project::find(base.path(), &trust).unwrap().broken.is_some());
    }
}
