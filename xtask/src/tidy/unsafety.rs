//! Every `unsafe` says why it is sound, in a `SAFETY:` comment right before it.

use super::source::has;
use super::{Finding, Source};

/// How many lines above the word the comment may end: attributes and a long signature fit between.
const REACH: usize = 8;

/// Checks one file.
pub fn check(source: &Source, findings: &mut Vec<Finding>) {
    let comments: Vec<&str> = source.comments.lines().collect();
    for line in source.lines_with("unsafe") {
        let code = source.code.lines().nth(line - 1).unwrap_or("");
        // The attribute marker `#[unsafe(no_mangle)]` and function pointer types state no proof of their own.
        if !has(&code.replace("unsafe(", ""), "unsafe") {
            continue;
        }
        let nearby = &comments[line.saturating_sub(REACH + 1)..line];
        if !nearby.iter().any(|comment| comment.contains("SAFETY:")) {
            let message =
                "`unsafe` without a `// SAFETY:` comment before it that says why it is sound";
            findings.push(Finding::at(&source.path, line, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        let mut findings = Vec::new();
        check(&Source::new("crates/a/src/b.rs", text), &mut findings);
        findings.len()
    }

    #[test]
    fn unsafe_without_a_reason_is_found() {
        assert_eq!(count("fn f() {\n    unsafe { g() }\n}\n"), 1);
        assert_eq!(count("unsafe impl Send for A {}\n"), 1);
        assert_eq!(
            count("// SAFETY: far away\n\n\n\n\n\n\n\n\n\nunsafe fn f() {}\n"),
            1
        );
        assert_eq!(
            count("fn f() {\n    g(\"SAFETY: x\");\n    unsafe { g() }\n}\n"),
            1
        );
    }

    #[test]
    fn a_reason_before_it_is_enough() {
        assert_eq!(
            count("fn f() {\n    // SAFETY: g has no conditions\n    unsafe { g() }\n}\n"),
            0
        );
        assert_eq!(
            count("#![allow(unsafe_code)]\n// unsafe is not used\nfn f() { g(\"unsafe\"); }\n"),
            0
        );
    }
}
