//! Ceilings: a file of at most 1,000 lines, a function of at most 100, and a list of exceptions with reasons.

use super::lexer::is_word;
use super::test_code::{closing, line_of};
use super::{Finding, Source};

/// The most lines a file may have, tests included.
const FILE_CEILING: usize = 1_000;
/// The most lines a function may have outside tests, signature and closing brace included.
const FUNCTION_CEILING: usize = 100;

/// A function that may be longer.
#[derive(Debug, Clone, Copy)]
struct Exception {
    path: &'static str,
    function: &'static str,
    /// Why it is better in one piece; shown when the exception is no longer needed.
    reason: &'static str,
}

/// Every exception there is. One that is not needed any more is a finding.
const EXCEPTIONS: &[Exception] = &[];

/// Checks all files.
pub fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    check_with(sources, EXCEPTIONS, findings);
}

fn check_with(sources: &[Source], exceptions: &[Exception], findings: &mut Vec<Finding>) {
    let mut used = vec![false; exceptions.len()];
    for source in sources {
        let lines = source.text.lines().count();
        if lines > FILE_CEILING {
            let message =
                format!("{lines} lines, the ceiling is {FILE_CEILING}: make two rooms of it");
            findings.push(Finding::in_file(&source.path, message));
        }
        for function in functions(&source.code) {
            if function.lines <= FUNCTION_CEILING || source.is_test(function.line) {
                continue;
            }
            let known = exceptions
                .iter()
                .position(|one| one.path == source.path && one.function == function.name);
            match known {
                Some(index) => used[index] = true,
                None => {
                    let Function { name, lines, .. } = &function;
                    let message = format!(
                        "`{name}` has {lines} lines, the ceiling is {FUNCTION_CEILING}: split it"
                    );
                    findings.push(Finding::at(&source.path, function.line, message));
                }
            }
        }
    }
    for (exception, _) in exceptions.iter().zip(&used).filter(|(_, used)| !**used) {
        let Exception {
            path,
            function,
            reason,
        } = exception;
        let message = format!("the exception for `{function}` ({reason}) is not needed: delete it");
        findings.push(Finding::in_file(path, message));
    }
}

struct Function {
    name: String,
    /// Where it begins, from 1.
    line: usize,
    lines: usize,
}

/// The functions with a body in `code`, by a scan of brackets; function pointers and trait signatures have none.
fn functions(code: &str) -> Vec<Function> {
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if at
            .checked_sub(1)
            .is_some_and(|before| is_word(bytes[before]))
        {
            continue;
        }
        let name: String = code[at + 3..]
            .chars()
            .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
            .collect();
        if name.is_empty() {
            continue;
        }
        if let Some(end) = body_end(bytes, at) {
            let first = line_of(bytes, at);
            found.push(Function {
                name,
                line: first + 1,
                lines: line_of(bytes, end - 1) - first + 1,
            });
        }
    }
    found
}

/// One past the closing brace of the function at `at`; `None` when it has no body.
fn body_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    while at < bytes.len() {
        match bytes[at] {
            b'{' => return closing(bytes, at),
            b';' => return None,
            b'(' | b'[' => at = closing(bytes, at)?,
            _ => at += 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: usize) -> String {
        format!(
            "//! x\nfn long(a: [u8; 2]) {{\n{}}}\n",
            "    f();\n".repeat(lines - 2)
        )
    }

    fn shown(path: &str, text: &str, exceptions: &[Exception]) -> Vec<String> {
        let mut findings = Vec::new();
        check_with(&[Source::new(path, text)], exceptions, &mut findings);
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_function_over_the_ceiling_is_found_and_one_at_it_is_not() {
        assert!(shown("a.rs", &function(100), &[]).is_empty());
        assert_eq!(
            shown("a.rs", &function(101), &[]),
            ["a.rs:2: `long` has 101 lines, the ceiling is 100: split it"]
        );
    }

    #[test]
    fn test_functions_and_braces_in_text_do_not_count() {
        assert!(
            shown(
                "a.rs",
                &format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function(300)),
                &[]
            )
            .is_empty()
        );
        let open = "fn short() {\n  f(\"{\"); // {\n}\n";
        assert!(
            shown(
                "a.rs",
                &format!("{open}{}", "const A: u8 = 1;\n".repeat(200)),
                &[]
            )
            .is_empty()
        );
    }

    #[test]
    fn signatures_and_pointers_have_no_body() {
        let found = functions(
            "trait T { fn a(&self); fn b(f: fn (u8) -> u8) { x } }\nstruct S { f: fn () }\n",
        );
        assert_eq!(
            found
                .iter()
                .map(|one| one.name.as_str())
                .collect::<Vec<_>>(),
            ["b"]
        );
    }

    #[test]
    fn an_exception_is_honoured_and_reported_when_idle() {
        let exception = Exception {
            path: "a.rs",
            function: "long",
            reason: "one table",
        };
        assert!(shown("a.rs", &function(150), &[exception]).is_empty());
        let idle = shown("a.rs", &function(50), &[exception]);
        assert_eq!(
            idle,
            ["a.rs: the exception for `long` (one table) is not needed: delete it"]
        );
    }

    #[test]
    fn a_file_over_the_ceiling_is_found() {
        assert!(shown("a.rs", &"// x\n".repeat(1_000), &[]).is_empty());
        assert_eq!(
            shown("a.rs", &"// x\n".repeat(1_001), &[]),
            ["a.rs: 1001 lines, the ceiling is 1000: make two rooms of it"]
        );
    }
}
