//! What may not be written: clocks, chance and IO on floor 0, unfinished code anywhere, SQL outside the store.

use super::source::{has, numbered};
use super::{Finding, Source};

/// The lowest floor's folder: pure, so time, ids and randomness come in as arguments.
const FLOOR_0: &str = "crates/core/src/";
/// What floor 0 may not call, and why.
const NOT_ON_FLOOR_0: &[(&str, &str)] = &[
    ("SystemTime::now", "time comes in as an argument"),
    ("Instant::now", "time comes in as an argument"),
    ("Uuid::now_v7", "ids come in as arguments"),
    ("Uuid::new_v4", "ids come in as arguments"),
    ("rand::", "randomness comes in as an argument"),
    ("getrandom", "randomness comes in as an argument"),
    ("std::env", "it reads nothing of its surroundings"),
    ("std::fs", "it does no IO"),
    ("std::net", "it does no IO"),
    ("std::process", "it does no IO"),
    ("std::thread", "it starts no thread"),
    ("tokio", "it is not asynchronous"),
    ("async fn", "it is not asynchronous"),
    (".await", "it is not asynchronous"),
    ("println!", "it does no IO"),
    ("eprintln!", "it does no IO"),
    ("print!", "it does no IO"),
    ("eprint!", "it does no IO"),
];
/// The same modules of `std`, for imports in braces.
const NOT_FROM_STD: &[&str] = &["env", "fs", "net", "process", "thread"];
/// Marks of unfinished code.
const UNFINISHED: &[&str] = &["todo!", "unimplemented!", "dbg!"];
/// The folders that may hold SQL: the store; the testbed, which runs the database server but knows no table of ours; and
/// the benchmark that does by hand what the store is compared with. The rules themselves have to name it.
const SQL_ROOMS: &[&str] = &[
    "crates/store/",
    "crates/testbed/",
    "crates/sim/src/bench/postgres.rs",
    "xtask/src/tidy/",
];
/// How SQL statements begin, in the case everyone writes them; the second word keeps prose out.
const SQL: &[(&str, &str)] = &[
    ("SELECT ", " FROM "),
    ("INSERT ", "INTO "),
    ("UPDATE ", " SET "),
    ("DELETE ", "FROM "),
    ("CREATE ", "TABLE "),
    ("CREATE ", "INDEX "),
    ("ALTER ", "TABLE "),
    ("DROP ", "TABLE "),
    ("BEGIN ", "IMMEDIATE"),
    ("PRAGMA ", ""),
];

/// Checks one file.
pub fn check(source: &Source, findings: &mut Vec<Finding>) {
    if source.path.starts_with(FLOOR_0) {
        floor_0(source, findings);
    }
    for mark in UNFINISHED {
        for line in source.lines_with(mark) {
            findings.push(Finding::at(
                &source.path,
                line,
                format!("`{mark}` is unfinished code"),
            ));
        }
    }
    if !SQL_ROOMS.iter().any(|room| source.path.starts_with(room)) {
        sql(source, findings);
    }
}

fn floor_0(source: &Source, findings: &mut Vec<Finding>) {
    for (call, why) in NOT_ON_FLOOR_0 {
        for line in source.lines_with(call) {
            if !source.is_test(line) {
                findings.push(Finding::at(
                    &source.path,
                    line,
                    format!("`{call}` on floor 0: {why}"),
                ));
            }
        }
    }
    for (start, _) in source.code.match_indices("std::{") {
        let group = &source.code[start + 6..];
        let group = &group[..group.find(';').unwrap_or(group.len())];
        let line = super::test_code::line_of(source.code.as_bytes(), start) + 1;
        for module in NOT_FROM_STD.iter().filter(|module| has(group, module)) {
            if !source.is_test(line) {
                findings.push(Finding::at(
                    &source.path,
                    line,
                    format!("`std::{module}` on floor 0: it does no IO"),
                ));
            }
        }
    }
}

fn sql(source: &Source, findings: &mut Vec<Finding>) {
    for (number, line) in numbered(&source.literals) {
        let statement = SQL.iter().find(|(first, second)| {
            // Glued to a letter it is the end of another word.
            has(line, first.trim_end())
                && line
                    .split_once(first)
                    .is_some_and(|(_, rest)| format!(" {rest}").contains(second))
        });
        if let Some((first, _)) = statement {
            let message = format!(
                "SQL (`{}`) outside crates/store: ask the store",
                first.trim_end()
            );
            findings.push(Finding::at(&source.path, number, message));
        }
    }
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
    fn every_banned_call_is_found_on_floor_0_and_only_there() {
        for (call, _) in NOT_ON_FLOOR_0 {
            let text = format!("//! Pure.\nfn f() {{ {call} (1); }}\n");
            let found = shown("crates/core/src/a.rs", &text);
            assert!(
                found
                    .iter()
                    .any(|line| line.starts_with(&format!("crates/core/src/a.rs:2: `{call}`"))),
                "{call}: {found:?}"
            );
            assert!(shown("crates/engine/src/a.rs", &text).is_empty(), "{call}");
            let test = format!("//! Pure.\n#[cfg(test)]\nmod tests {{\n{text}}}\n");
            assert!(shown("crates/core/src/a.rs", &test).is_empty(), "{call}");
        }
    }

    #[test]
    fn grouped_imports_are_seen_through() {
        let found = shown(
            "crates/core/src/a.rs",
            "//! Pure.\nuse std::{\n    collections::BTreeMap,\n    fs,\n};\n",
        );
        assert_eq!(
            found,
            ["crates/core/src/a.rs:2: `std::fs` on floor 0: it does no IO"]
        );
        assert!(
            shown(
                "crates/core/src/a.rs",
                "use std::{collections::BTreeMap, fmt};\n"
            )
            .is_empty()
        );
    }

    #[test]
    fn words_in_comments_and_longer_names_are_no_calls() {
        assert!(
            shown(
                "crates/core/src/a.rs",
                "//! No tokio.\nfn f() { operand::x(\"std::fs\"); }\n"
            )
            .is_empty()
        );
    }

    #[test]
    fn unfinished_code_is_found_in_tests_too() {
        for mark in UNFINISHED {
            let text = format!("#[cfg(test)]\nmod tests {{\nfn f() {{ {mark}(); }}\n}}\n");
            assert_eq!(shown("crates/a/src/b.rs", &text).len(), 1, "{mark}");
        }
        assert!(
            shown(
                "crates/a/src/b.rs",
                "// todo!() later\nfn f() { x(\"dbg!\"); }\n"
            )
            .is_empty()
        );
    }

    #[test]
    fn sql_lives_in_the_store() {
        for statement in [
            "SELECT seq FROM event",
            "INSERT INTO event VALUES (1)",
            "UPDATE claim SET epoch = 1",
            "DELETE FROM claim",
            "CREATE TABLE a (b)",
            "PRAGMA integrity_check",
            "BEGIN IMMEDIATE",
        ] {
            let text = format!("fn f() {{ run(\"{statement}\"); }}\n");
            assert_eq!(shown("crates/sim/src/a.rs", &text).len(), 1, "{statement}");
            assert!(shown("crates/store/src/a.rs", &text).is_empty());
        }
        for prose in [
            "CREATE a file",
            "please UPDATE it",
            "SELECTED FROM a list",
            "delete from",
        ] {
            assert!(
                shown(
                    "crates/sim/src/a.rs",
                    &format!("fn f() {{ say(\"{prose}\"); }}\n")
                )
                .is_empty(),
                "{prose}"
            );
        }
    }
}
