//! The files of the repository, as git sees them: tracked ones and new ones that are not ignored.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// Text files by their path from the root, with `/` between folders. What is not UTF-8 is left out.
pub type Tree = BTreeMap<String, String>;

/// Reads the tree below `root`.
pub fn read(root: &Path) -> Result<Tree> {
    let names = match listed_by_git(root) {
        Some(names) => names,
        // A source archive has no git folder.
        None => walked(root)?,
    };
    let mut tree = Tree::new();
    for name in names {
        let path = root.join(&name);
        // Listed but gone: deleted and not yet committed.
        if !path.is_file() {
            continue;
        }
        let bytes =
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if let Ok(text) = String::from_utf8(bytes) {
            tree.insert(name, text);
        }
    }
    Ok(tree)
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8(output.stdout).ok()?;
    Some(
        text.split('\0')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
    )
}

fn walked(root: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)
            .with_context(|| format!("cannot list {}", folder.display()))?
        {
            let entry = entry?;
            let path = entry.path();
            let name = entry.file_name();
            if entry.file_type()?.is_dir() {
                if name != "target" && name != ".git" {
                    folders.push(path);
                }
            } else if let Some(relative) = path.strip_prefix(root).ok().and_then(Path::to_str) {
                names.push(relative.to_owned());
            }
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_git_the_folder_is_walked_and_builds_are_left_out() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path();
        for name in ["a.md", "src/b.rs", "target/c.rs"] {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
            std::fs::write(path, "text").expect("a file");
        }
        std::fs::write(root.join("binary"), [0xff, 0xfe]).expect("a file");
        assert_eq!(
            walked(root).expect("a list"),
            ["a.md", "binary", "src/b.rs"]
        );
    }

    #[test]
    fn git_lists_tracked_and_new_files_but_no_ignored_ones() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path();
        let git = |arguments: &[&str]| {
            let done = Command::new("git")
                .args(arguments)
                .current_dir(root)
                .output()
                .expect("git");
            assert!(done.status.success(), "{done:?}");
        };
        git(&["init", "-q"]);
        std::fs::write(root.join(".gitignore"), "/ignored\n").expect("a file");
        for name in ["tracked", "deleted", "new", "ignored"] {
            std::fs::write(root.join(name), "text").expect("a file");
        }
        git(&["add", "tracked", "deleted", ".gitignore"]);
        std::fs::remove_file(root.join("deleted")).expect("removed");
        let tree = read(root).expect("a tree");
        assert_eq!(
            tree.keys().collect::<Vec<_>>(),
            [".gitignore", "new", "tracked"]
        );
    }
}
