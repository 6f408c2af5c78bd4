//! Manifests: every crate takes the workspace's lints, and versions stand in the root manifest only.

use super::Finding;
use super::source::numbered;
use crate::tree::Tree;

/// Checks the manifests of all members.
pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in tree {
        if path == "Cargo.toml" || !path.ends_with("/Cargo.toml") {
            continue;
        }
        if !section(text, "[lints]").any(|(_, line)| is_workspace(line)) {
            findings.push(Finding::in_file(path, "no `[lints] workspace = true`"));
        }
        for header in [
            "[dependencies]",
            "[dev-dependencies]",
            "[build-dependencies]",
        ] {
            for (line, entry) in section(text, header) {
                let entry_packed = entry.replace(' ', "");
                // A crate's tests may use the crate itself with its testing feature on.
                let itself = header == "[dev-dependencies]" && entry_packed.contains("path=\".\"");
                if !itself && !entry_packed.contains("workspace=true") {
                    let message = format!(
                        "`{entry}`: versions stand in the root manifest, say `workspace = true`"
                    );
                    findings.push(Finding::at(path, line, message));
                }
            }
        }
    }
}

/// The entries of one section, by line.
fn section<'t>(text: &'t str, header: &'t str) -> impl Iterator<Item = (usize, &'t str)> {
    numbered(text)
        .skip_while(move |(_, line)| line.trim() != header)
        .skip(1)
        .take_while(|(_, line)| !line.starts_with('['))
        .map(|(number, line)| (number, line.split('#').next().unwrap_or("").trim()))
        .filter(|(_, line)| !line.is_empty())
}

fn is_workspace(line: &str) -> bool {
    line.replace(' ', "") == "workspace=true"
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n\n[dependencies]\nserde.workspace = true\n# why\nnix = { workspace = true, features = [\"x\"] }\n\n[[bin]]\nname = \"b\"\n";

    fn shown(text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check(
            &Tree::from([("crates/a/Cargo.toml".to_owned(), text.to_owned())]),
            &mut findings,
        );
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_member_takes_the_workspaces_lints() {
        assert!(shown(GOOD).is_empty());
        let without = GOOD.replace("[lints]\nworkspace = true\n", "");
        assert_eq!(
            shown(&without),
            ["crates/a/Cargo.toml: no `[lints] workspace = true`"]
        );
        assert_eq!(
            shown(&GOOD.replace("\nworkspace = true", "\nworkspace = false")).len(),
            1
        );
    }

    #[test]
    fn a_version_of_its_own_is_found() {
        let own = GOOD.replace("serde.workspace = true", "serde = \"1\"");
        let found = shown(&own);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("crates/a/Cargo.toml:8: `serde = \"1\"`"),
            "{found:?}"
        );
    }
}
