//! Tests wait for what they wait for: a `sleep` in test code needs a remark that says why it is right.

use super::source::numbered;
use super::{Finding, Source};

/// The remark that allows one, on the same line or on one of the lines before it.
const REMARK: &str = "// tidy: sleep ok because ";
/// How many lines above the call the remark may stand.
const REACH: usize = 3;

/// Checks one file's test code.
pub fn check(source: &Source, findings: &mut Vec<Finding>) {
    let comments: Vec<&str> = source.comments.lines().collect();
    for (number, line) in numbered(&source.code) {
        let calls = line.contains("::sleep(")
            || line.trim_start().starts_with("sleep(")
            || line.contains(" sleep(");
        let declares = line.contains("fn sleep(");
        if !calls || declares || !source.is_test(number) {
            continue;
        }
        let nearby = &comments[number.saturating_sub(REACH + 1)..number];
        if !nearby.iter().any(|comment| comment.contains(REMARK)) {
            let message = format!("a test sleeps: wait for the event itself, or say `{REMARK}…`");
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
    fn a_sleep_in_a_test_is_found() {
        for call in [
            "std::thread::sleep(d);",
            "tokio::time::sleep(d).await;",
            "sleep(d).await;",
        ] {
            let text = format!("//! Tests.\nfn a() {{\n    {call}\n}}\n");
            let found = shown("crates/a/tests/it/b.rs", &text);
            assert_eq!(found.len(), 1, "{call}");
            assert!(
                found[0].starts_with("crates/a/tests/it/b.rs:3: a test sleeps"),
                "{found:?}"
            );
            assert!(
                shown("crates/a/src/b.rs", &text).is_empty(),
                "not a test: {call}"
            );
        }
    }

    #[test]
    fn a_remark_with_a_reason_allows_it() {
        let text = "fn a() {\n    // tidy: sleep ok because the clock itself is tested\n    sleep(d);\n}\n";
        assert!(shown("crates/a/tests/it/b.rs", text).is_empty());
        assert_eq!(
            shown(
                "crates/a/tests/it/b.rs",
                "fn a() {\n    // tidy: sleep ok\n    sleep(d);\n}\n"
            )
            .len(),
            1
        );
        let far = format!(
            "// tidy: sleep ok because x\n{}sleep(d);\n",
            "f();\n".repeat(9)
        );
        assert_eq!(shown("crates/a/tests/it/b.rs", &far).len(), 1);
    }

    #[test]
    fn shell_commands_and_names_are_no_calls() {
        assert!(
            shown(
                "crates/a/tests/it/b.rs",
                "fn a() { run(\"sleep(5)\"); no_sleep(d); }\n"
            )
            .is_empty()
        );
    }
}
