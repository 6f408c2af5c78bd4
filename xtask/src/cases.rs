//! The table of bug cases, `docs/cases.md`: every case is there, and every test that it names exists.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};

use crate::command::root;
use crate::tidy::Source;
use crate::tree::{self, Tree};

/// The table, from the root.
const TABLE: &str = "docs/cases.md";
/// The list of cases, which stands beside the repository where the project is developed.
const LIST: &str = "../shared/cases/bug-cases.jsonl";
/// How the name of a test begins: then three digits, and some words on what it shows.
const TEST_PREFIX: &str = "bc_s_";
/// In the test column: neither a test nor an issue yet.
const NOTHING: &str = "—";

/// What `cargo xtask cases` was asked to do.
#[derive(Debug, Default)]
pub struct Options {
    write: bool,
    strict: bool,
}

impl Options {
    /// Reads the arguments after `cases`; the error is one sentence for the user.
    pub fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Options::default();
        for argument in arguments {
            match argument.as_str() {
                "--write" => options.write = true,
                "--strict" => options.strict = true,
                other => return Err(format!("`cases` has no option `{other}`")),
            }
        }
        Ok(options)
    }
}

/// Checks the table, or fills its test column.
pub fn run(options: &Options) -> Result<()> {
    let root = root();
    let tree = tree::read(&root)?;
    let tests = tests_by_case(&tree);
    let mut table = tree
        .get(TABLE)
        .with_context(|| format!("{TABLE} is missing"))?
        .clone();
    if options.write {
        table = filled(&table, &tests);
        std::fs::write(root.join(TABLE), &table)
            .with_context(|| format!("cannot write {TABLE}"))?;
    }
    let listed = match std::fs::read_to_string(root.join(LIST)) {
        Ok(list) => Some(ids(&list)?),
        Err(_) => None,
    };
    let report = check(&table, &tests, listed.as_ref());
    if !report.broken.is_empty() {
        bail!("{TABLE} is not true:\n{}", report.broken.join("\n"));
    }
    eprintln!(
        "cases: {} in the table, {} with tests, {} open",
        report.rows,
        report.tested,
        report.open.len()
    );
    if options.strict && !report.open.is_empty() {
        bail!("no test and no issue: {}", report.open.join(", "));
    }
    Ok(())
}

/// What the table says and where it is wrong.
#[derive(Debug, Default)]
struct Report {
    rows: usize,
    tested: usize,
    open: Vec<String>,
    broken: Vec<String>,
}

fn check(table: &str, tests: &Tests, listed: Option<&BTreeSet<String>>) -> Report {
    let mut report = Report::default();
    let mut seen = BTreeSet::new();
    for row in rows(table) {
        report.rows += 1;
        if !seen.insert(row.id.to_owned()) {
            report.broken.push(format!("{} is listed twice", row.id));
        }
        let there = tests.get(row.id);
        let named: BTreeSet<&str> = row
            .tests
            .split('`')
            .filter(|word| word.starts_with(TEST_PREFIX))
            .collect();
        for name in &named {
            if !there.is_some_and(|there| there.contains_key(*name)) {
                report.broken.push(format!(
                    "{} names the test `{name}`, which does not exist",
                    row.id
                ));
            }
        }
        for name in there
            .into_iter()
            .flat_map(BTreeMap::keys)
            .filter(|name| !named.contains(name.as_str()))
        {
            let advice = "run `cargo xtask cases --write`";
            report.broken.push(format!(
                "{} does not name its test `{name}`: {advice}",
                row.id
            ));
        }
        if !named.is_empty() {
            report.tested += 1;
        } else if !row.tests.contains("issue:") {
            report.open.push(row.id.to_owned());
        }
    }
    for id in tests.keys().filter(|id| !seen.contains(*id)) {
        report.broken.push(format!(
            "there are tests for {id}, which is not in the table"
        ));
    }
    for id in listed
        .into_iter()
        .flatten()
        .filter(|id| !seen.contains(*id))
    {
        report.broken.push(format!("{id} is not in the table"));
    }
    report
}

struct Row<'t> {
    id: &'t str,
    tests: &'t str,
}

/// The rows of cases: `| id | area | behaviour | test |`.
fn rows(table: &str) -> impl Iterator<Item = Row<'_>> {
    table.lines().filter_map(row)
}

fn row(line: &str) -> Option<Row<'_>> {
    let mut cells = line
        .strip_prefix('|')?
        .strip_suffix('|')?
        .split('|')
        .map(str::trim);
    let id = cells.next().filter(|id| id.starts_with("bc-s-"))?;
    Some(Row {
        id,
        tests: cells.next_back()?,
    })
}

/// The tests of each case: name of the function, folder of its crate.
type Tests = BTreeMap<String, BTreeMap<String, String>>;

fn tests_by_case(tree: &Tree) -> Tests {
    let mut tests = Tests::new();
    for (path, text) in tree
        .iter()
        .filter(|(path, text)| path.ends_with(".rs") && text.contains(TEST_PREFIX))
    {
        let folder = path
            .split('/')
            .nth(usize::from(path.starts_with("crates/")))
            .unwrap_or(path);
        let code = Source::new(path, text).code;
        for (at, _) in code.match_indices("fn bc_s_") {
            let letters = code[at + 3..]
                .chars()
                .take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_');
            let name: String = letters.collect();
            if let Some(id) = case_of(&name) {
                tests.entry(id).or_default().insert(name, folder.to_owned());
            }
        }
    }
    tests
}

fn case_of(test: &str) -> Option<String> {
    let digits = test.strip_prefix(TEST_PREFIX)?.get(..3)?;
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| format!("bc-s-{digits}"))
}

/// The table with its last column filled from the sources; what it says of issues stays.
fn filled(table: &str, tests: &Tests) -> String {
    let fill = |line: &str| {
        let Some(Row { id, tests: old }) = row(line) else {
            return line.to_owned();
        };
        let issue = old.find("issue:").map(|at| &old[at..]);
        let found = tests
            .get(id)
            .into_iter()
            .flatten()
            .map(|(name, folder)| format!("`{name}` ({folder})"));
        let mut parts: Vec<String> = found.collect();
        parts.extend(issue.map(str::to_owned));
        let cell = if parts.is_empty() {
            NOTHING.to_owned()
        } else {
            parts.join(", ")
        };
        let before = &line[..line.trim_end_matches('|').rfind('|').unwrap_or(0)];
        format!("{before}| {cell} |")
    };
    let mut text: String = table.lines().map(fill).collect::<Vec<_>>().join("\n");
    text.push('\n');
    text
}

/// The ids of the list, one JSON object a line.
fn ids(list: &str) -> Result<BTreeSet<String>> {
    let id = |line: &str| -> Result<String> {
        let case: serde_json::Value =
            serde_json::from_str(line).with_context(|| format!("{LIST}: {line}"))?;
        Ok(case["id"]
            .as_str()
            .with_context(|| format!("{LIST}: a case without an id"))?
            .to_owned())
    };
    list.lines()
        .filter(|line| !line.trim().is_empty())
        .map(id)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE_TEXT: &str = "# Cases\n\n| id | area | behaviour | test |\n|---|---|---|---|\n\
        | bc-s-001 | a | b | `bc_s_001_x` (core) |\n| bc-s-002 | a | b | issue: many nodes |\n| bc-s-003 | a | b | — |\n";

    fn tests_in(code: &str) -> Tests {
        tests_by_case(&Tree::from([(
            "crates/core/src/a.rs".to_owned(),
            code.to_owned(),
        )]))
    }

    #[test]
    fn a_true_table_is_counted() {
        let tests = tests_in("#[test]\nfn bc_s_001_x() {}\n");
        let listed = ids("{\"id\":\"bc-s-001\"}\n{\"id\":\"bc-s-003\"}\n").expect("a list");
        let report = check(TABLE_TEXT, &tests, Some(&listed));
        assert_eq!(report.broken, Vec::<String>::new());
        assert_eq!((report.rows, report.tested), (3, 1));
        assert_eq!(report.open, ["bc-s-003"]);
    }

    #[test]
    fn every_kind_of_untruth_is_found() {
        let tests =
            tests_in("fn bc_s_003_y() {}\nfn bc_s_009_z() {}\n// fn bc_s_002_comment() {}\n");
        let listed = BTreeSet::from(["bc-s-004".to_owned()]);
        let table = format!("{TABLE_TEXT}| bc-s-002 | a | b | — |\n");
        assert_eq!(
            check(&table, &tests, Some(&listed)).broken,
            [
                "bc-s-001 names the test `bc_s_001_x`, which does not exist",
                "bc-s-003 does not name its test `bc_s_003_y`: run `cargo xtask cases --write`",
                "bc-s-002 is listed twice",
                "there are tests for bc-s-009, which is not in the table",
                "bc-s-004 is not in the table",
            ]
        );
    }

    #[test]
    fn the_test_column_is_filled_and_issues_stay() {
        let tests =
            tests_in("async fn bc_s_002_half() {}\nfn bc_s_003_b() {}\nfn bc_s_003_a() {}\n");
        let filled = filled(TABLE_TEXT, &tests);
        assert!(filled.contains("| bc-s-001 | a | b | — |\n"), "{filled}");
        assert!(
            filled.contains("| bc-s-002 | a | b | `bc_s_002_half` (core), issue: many nodes |\n"),
            "{filled}"
        );
        assert!(
            filled.contains("| bc-s-003 | a | b | `bc_s_003_a` (core), `bc_s_003_b` (core) |\n"),
            "{filled}"
        );
        assert_eq!(check(&filled, &tests, None).broken, Vec::<String>::new());
    }
}
