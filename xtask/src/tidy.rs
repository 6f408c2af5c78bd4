//! House rules, checked: each rule looks at the tree or at the crates' dependencies and reports what breaks it.

mod banned;
mod documents;
mod floors;
mod lexer;
mod manifests;
mod naming;
mod patience;
mod size;
mod source;
mod test_code;
mod unsafety;

pub use source::Source;

use std::fmt;

use anyhow::{Context, Result, bail};

use crate::command::root;
use crate::tree::{self, Tree};

/// One broken rule at one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, from the root.
    pub path: String,
    /// The line, from 1; absent when the whole file is meant.
    pub line: Option<usize>,
    /// What is wrong and what to do.
    pub message: String,
}

impl Finding {
    fn in_file(path: &str, message: impl Into<String>) -> Self {
        Finding {
            path: path.to_owned(),
            line: None,
            message: message.into(),
        }
    }

    fn at(path: &str, line: usize, message: impl Into<String>) -> Self {
        Finding {
            path: path.to_owned(),
            line: Some(line),
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.message),
            None => write!(f, "{}: {}", self.path, self.message),
        }
    }
}

/// Checks the workspace we run in; the error lists every finding.
pub fn run() -> Result<()> {
    let root = root();
    let tree = tree::read(&root)?;
    let metadata = cargo_metadata::MetadataCommand::new()
        .current_dir(&root)
        .no_deps()
        .exec()
        .context("cargo metadata failed")?;
    let findings = check(&tree, &floors::crates(&metadata));
    if findings.is_empty() {
        eprintln!("tidy: {} files, no finding", tree.len());
        return Ok(());
    }
    let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
    bail!(
        "the house rules are broken in {} places:\n{}",
        lines.len(),
        lines.join("\n")
    );
}

/// All rules on one tree, findings in the order of files and lines.
fn check(tree: &Tree, crates: &[floors::Crate]) -> Vec<Finding> {
    let sources = source::all(tree);
    let mut findings = Vec::new();
    floors::check(crates, &mut findings);
    manifests::check(tree, &mut findings);
    documents::check(tree, &mut findings);
    for source in &sources {
        naming::check(source, &mut findings);
        banned::check(source, &mut findings);
        patience::check(source, &mut findings);
        unsafety::check(source, &mut findings);
    }
    size::check(&sources, &mut findings);
    findings.sort();
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_workspace_is_tidy() {
        if let Err(error) = run() {
            panic!("{error}");
        }
    }

    #[test]
    fn findings_of_every_kind_of_rule_come_sorted() {
        let mut tree = Tree::new();
        tree.insert("crates/b/src/lib.rs".into(), "fn f() { dbg!(1); }\n".into());
        tree.insert(
            "crates/a/Cargo.toml".into(),
            "[package]\nname = \"a\"\n".into(),
        );
        let shown: Vec<String> = check(&tree, &[])
            .iter()
            .map(|finding| finding.path.clone())
            .collect();
        let mut sorted = shown.clone();
        sorted.sort();
        assert_eq!(shown, sorted);
        assert!(
            shown.contains(&"crates/a/Cargo.toml".to_owned()),
            "{shown:?}"
        );
        assert!(
            shown.contains(&"crates/b/src/lib.rs".to_owned()),
            "{shown:?}"
        );
    }
}
