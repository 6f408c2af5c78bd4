//! Every file says in its first line what it is for, and its name says it too.

use super::{Finding, Source};

/// Names that say nothing of what is inside.
const EMPTY_NAMES: &[&str] = &[
    "util", "utils", "common", "helper", "helpers", "manager", "misc",
];

/// Checks one file's first line and name, and the modules written in it.
pub fn check(source: &Source, findings: &mut Vec<Finding>) {
    let path = &source.path;
    if !says_its_purpose(source.text.lines().next().unwrap_or("")) {
        findings.push(Finding::at(
            path,
            1,
            "the first line says what the file is for: `//! …`",
        ));
    }
    if path.ends_with("/mod.rs") {
        findings.push(Finding::in_file(
            path,
            "no `mod.rs`: `foo.rs` stands beside `foo/`",
        ));
    }
    let parts = path
        .split('/')
        .map(|part| part.strip_suffix(".rs").unwrap_or(part));
    for part in parts.filter(|part| is_empty_name(part)) {
        findings.push(Finding::in_file(
            path,
            format!("`{part}` says nothing: name the module after what it holds"),
        ));
    }
    for (line, name) in inline_modules(&source.code) {
        if is_empty_name(name) {
            let message = format!("`mod {name}` says nothing: name the module after what it holds");
            findings.push(Finding::at(path, line, message));
        }
    }
}

/// A comment with some words in it, and not a stand-in for them.
fn says_its_purpose(line: &str) -> bool {
    let Some(comment) = line.strip_prefix("//") else {
        return false;
    };
    let comment = comment.trim_start_matches(['!', '/']).trim();
    comment.len() >= 10 && !comment.eq_ignore_ascii_case("placeholder")
}

fn is_empty_name(name: &str) -> bool {
    EMPTY_NAMES.iter().any(|empty| {
        name == *empty
            || name
                .strip_suffix(empty)
                .is_some_and(|rest| rest.ends_with('_'))
    })
}

fn inline_modules(code: &str) -> impl Iterator<Item = (usize, &str)> {
    super::source::numbered(code).filter_map(|(number, line)| {
        let (visibility, rest) = line.split_once("mod ")?;
        let visibility = visibility.trim();
        let name = rest.strip_suffix('{')?.trim();
        (visibility.is_empty() || visibility.starts_with("pub")).then_some(())?;
        Some((number, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(path: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check(&Source::new(path, text), &mut findings);
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_file_without_a_purpose_is_found() {
        assert!(shown("a/b.rs", "//! Reads clocks.\n").is_empty());
        assert!(shown("a/main.rs", "// Starts the program.\n").is_empty());
        for first in [
            "use std::fmt;\n",
            "",
            "//!\n",
            "//! placeholder\n",
            "\n//! Late.\n",
            "#![allow(x)]\n",
        ] {
            assert_eq!(
                shown("a/b.rs", first),
                ["a/b.rs:1: the first line says what the file is for: `//! …`"],
                "{first:?}"
            );
        }
    }

    #[test]
    fn names_that_say_nothing_are_found() {
        for path in [
            "a/utils.rs",
            "a/common/x.rs",
            "a/session_manager.rs",
            "a/test_helpers.rs",
        ] {
            assert_eq!(shown(path, "//! Reads clocks.\n").len(), 1, "{path}");
        }
        assert!(shown("a/command.rs", "//! Reads clocks.\n").is_empty());
        assert_eq!(
            shown("a/b.rs", "//! Reads clocks.\nmod helpers {\n}\n").len(),
            1
        );
    }

    #[test]
    fn mod_rs_is_found() {
        assert_eq!(
            shown("a/b/mod.rs", "//! Reads clocks.\n"),
            ["a/b/mod.rs: no `mod.rs`: `foo.rs` stands beside `foo/`"]
        );
    }
}
