//! Documents: each can be found from the front door, no link leads nowhere, and no path of one machine is written down.

use super::Finding;
use super::source::numbered;
use crate::tree::Tree;

/// The documents a reader starts from.
const FRONT_DOORS: &[&str] = &["README.md", "ARCHITECTURE.md"];
/// Folders of single machines, written in halves so that this file does not break its own rule.
const LOCAL_FOLDERS: &[&str] = &[
    concat!("/wo", "rk/main"),
    concat!("/wo", "rk/shared"),
    concat!("/wo", "rk/."),
    concat!("/fa", "rm/"),
    concat!("/tmp/", "bash_jobs"),
];

/// Checks all text files.
pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in tree {
        local_folders(path, text, findings);
        if path.ends_with(".md") {
            links(tree, path, text, findings);
        }
    }
    let doors = || FRONT_DOORS.iter().filter_map(|door| tree.get(*door));
    for path in tree
        .keys()
        .filter(|path| path.starts_with("docs/") && path.ends_with(".md"))
    {
        if !doors().any(|text| text.contains(path.as_str())) {
            let message = format!("nobody finds it: link it from {}", FRONT_DOORS.join(" or "));
            findings.push(Finding::in_file(path, message));
        }
    }
}

fn local_folders(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (number, line) in numbered(text) {
        let absolute = |folder: &&&str| {
            line.match_indices(**folder).any(|(at, _)| {
                // `a/x/` is a folder somewhere below, `/x/` is one of this machine.
                !line[..at].ends_with(|letter: char| {
                    letter.is_alphanumeric() || "_-.~$}/*".contains(letter)
                })
            })
        };
        if let Some(folder) = LOCAL_FOLDERS.iter().find(absolute) {
            findings.push(Finding::at(
                path,
                number,
                format!("`{folder}` is a folder of one machine"),
            ));
        }
    }
}

/// Relative links of a Markdown file must lead to a file or folder of the tree.
fn links(tree: &Tree, path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (number, line) in numbered(text) {
        for (at, _) in line.match_indices("](") {
            let target = &line[at + 2..];
            let Some(end) = target.find(')') else {
                continue;
            };
            let target = target[..end].split('#').next().unwrap_or("");
            if target.is_empty() || target.contains(':') {
                continue;
            }
            let leads = resolved(path, target).is_some_and(|name| {
                tree.keys()
                    .any(|known| *known == name || known.starts_with(&format!("{name}/")))
            });
            if !leads {
                findings.push(Finding::at(
                    path,
                    number,
                    format!("the link to `{target}` leads nowhere"),
                ));
            }
        }
    }
}

/// The path from the root that `target` means in the file `from`; `None` when it leaves the tree.
fn resolved(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(files: &[(&str, &str)]) -> Vec<String> {
        let tree: Tree = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
            .collect();
        let mut findings = Vec::new();
        check(&tree, &mut findings);
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_document_nobody_links_is_found() {
        let found = shown(&[
            ("README.md", "see [x](docs/x.md)"),
            ("docs/x.md", ""),
            ("docs/y.md", ""),
        ]);
        assert_eq!(
            found,
            ["docs/y.md: nobody finds it: link it from README.md or ARCHITECTURE.md"]
        );
        assert!(shown(&[("ARCHITECTURE.md", "[y](docs/y.md)"), ("docs/y.md", "")]).is_empty());
    }

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let good = "[a](docs/a.md#part) [b](https://example.org) [c](#here) [d](docs)";
        assert!(shown(&[("README.md", good), ("docs/a.md", "[up](../README.md)")]).is_empty());
        let found = shown(&[
            ("README.md", "docs/a.md [b](docs/b.md)"),
            ("docs/a.md", "[out](../../x.md)"),
        ]);
        assert_eq!(
            found,
            [
                "README.md:1: the link to `docs/b.md` leads nowhere",
                "docs/a.md:1: the link to `../../x.md` leads nowhere"
            ]
        );
    }

    #[test]
    fn folders_of_one_machine_are_found() {
        for folder in LOCAL_FOLDERS {
            assert_eq!(
                shown(&[("a.toml", &format!("x\npath = \"{folder}x\"\n"))]).len(),
                1,
                "{folder}"
            );
            assert!(
                shown(&[("a.toml", &format!("path = \"home{folder}x\"\n"))]).is_empty(),
                "{folder}"
            );
        }
    }
}
