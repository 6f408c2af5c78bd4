//! One Rust file as the rules see it: code, comments and literals apart, with a flag per line for test code.

use std::collections::BTreeSet;

use super::lexer::{self, Kind, is_word};
use super::test_code::{self, TestCode};
use crate::tree::Tree;

/// A Rust file of the tree. The masked texts have the length and lines of the original, with the rest blanked.
#[derive(Debug)]
pub struct Source {
    /// From the root.
    pub path: String,
    /// The file as it is.
    pub text: String,
    /// Code only.
    pub code: String,
    /// Comments only.
    pub comments: String,
    /// Literals only.
    pub literals: String,
    tests: TestCode,
}

impl Source {
    /// Takes a file apart.
    pub fn new(path: &str, text: &str) -> Self {
        let kinds = lexer::classify(text);
        let code = masked(text, &kinds, Kind::Code);
        let mut tests = test_code::find(&code);
        if path
            .split('/')
            .any(|part| part == "tests" || part == "tests.rs" || part == "benches")
        {
            tests.lines.fill(true);
        }
        Source {
            path: path.to_owned(),
            text: text.to_owned(),
            comments: masked(text, &kinds, Kind::Comment),
            literals: masked(text, &kinds, Kind::Literal),
            code,
            tests,
        }
    }

    /// Whether the line (from 1) is test code.
    pub fn is_test(&self, line: usize) -> bool {
        line.checked_sub(1)
            .and_then(|index| self.tests.lines.get(index))
            .copied()
            .unwrap_or(false)
    }

    /// Every place in the code where `needle` stands as whole words, by line (from 1).
    pub fn lines_with(&self, needle: &str) -> Vec<usize> {
        numbered(&self.code)
            .filter(|(_, line)| has(line, needle))
            .map(|(number, _)| number)
            .collect()
    }

    /// Paths (files or folders) that this file declares to be test modules.
    fn test_module_paths(&self) -> Vec<String> {
        let folder = self.path.strip_suffix(".rs").unwrap_or(&self.path);
        let folder = match folder.rsplit_once('/') {
            Some((parent, "lib" | "main")) => parent,
            _ => folder,
        };
        self.tests
            .modules
            .iter()
            .map(|name| format!("{folder}/{name}"))
            .collect()
    }
}

/// All Rust files of the tree.
pub fn all(tree: &Tree) -> Vec<Source> {
    let rust = tree.iter().filter(|(path, _)| path.ends_with(".rs"));
    let mut sources: Vec<Source> = rust.map(|(path, text)| Source::new(path, text)).collect();
    let tests: BTreeSet<String> = sources.iter().flat_map(Source::test_module_paths).collect();
    for source in &mut sources {
        let path = source.path.strip_suffix(".rs").unwrap_or(&source.path);
        let below = |module: &String| {
            path == module
                || path
                    .strip_prefix(module.as_str())
                    .is_some_and(|rest| rest.starts_with('/'))
        };
        if tests.iter().any(below) {
            source.tests.lines.fill(true);
        }
    }
    sources
}

/// Lines with their numbers, from 1.
pub fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line))
}

/// Whether `needle` stands in `line` without a letter, digit or `_` glued to either side of it.
pub fn has(line: &str, needle: &str) -> bool {
    let bytes = line.as_bytes();
    let glued = |at: Option<usize>, edge: Option<u8>| {
        edge.is_some_and(is_word)
            && at
                .and_then(|at| bytes.get(at))
                .is_some_and(|byte| is_word(*byte))
    };
    line.match_indices(needle).any(|(at, _)| {
        let first = needle.bytes().next();
        let last = needle.bytes().last();
        !glued(at.checked_sub(1), first) && !glued(Some(at + needle.len()), last)
    })
}

fn masked(text: &str, kinds: &[Kind], kept: Kind) -> String {
    let mut masked = String::with_capacity(text.len());
    for (at, letter) in text.char_indices() {
        if letter == '\n' || kinds[at] == kept {
            masked.push(letter);
        } else {
            // One blank per byte keeps offsets equal in all masks.
            masked.extend(std::iter::repeat_n(' ', letter.len_utf8()));
        }
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_keep_lines_and_offsets() {
        let source = Source::new("a.rs", "let é = \"ü // x\"; // ö\nf();\n");
        let (literal, comment) = (" ".repeat("\"ü // x\"".len()), " ".repeat("// ö".len()));
        assert_eq!(source.code, format!("let é = {literal}; {comment}\nf();\n"));
        assert!(source.comments.contains("// ö") && source.literals.contains("ü // x"));
        for mask in [&source.code, &source.comments, &source.literals] {
            assert_eq!(mask.len(), source.text.len());
        }
    }

    #[test]
    fn whole_words_are_found() {
        assert!(has("let x = rand::random();", "rand::"));
        assert!(!has("operand::x", "rand::"));
        assert!(has("x.await?", ".await"));
        assert!(!has("x.awaiting", ".await"));
    }

    #[test]
    fn files_of_declared_test_modules_are_test_code() {
        let mut tree = Tree::new();
        tree.insert(
            "c/src/lib.rs".into(),
            "#[cfg(test)]\nmod fixtures;\nmod real;\n".into(),
        );
        tree.insert("c/src/fixtures.rs".into(), "fn a() {}\n".into());
        tree.insert("c/src/fixtures/deep.rs".into(), "fn a() {}\n".into());
        tree.insert(
            "c/src/real.rs".into(),
            "#[cfg(test)]\nmod cases;\nfn a() {}\n".into(),
        );
        tree.insert("c/src/real/cases.rs".into(), "fn a() {}\n".into());
        tree.insert("c/src/fixtures_of_old.rs".into(), "fn a() {}\n".into());
        tree.insert("c/tests/it/main.rs".into(), "fn a() {}\n".into());
        let tests: Vec<String> = all(&tree)
            .into_iter()
            .filter(|source| source.is_test(1))
            .map(|source| source.path)
            .collect();
        assert_eq!(
            tests,
            [
                "c/src/fixtures.rs",
                "c/src/fixtures/deep.rs",
                "c/src/lib.rs",
                "c/src/real.rs",
                "c/src/real/cases.rs",
                "c/tests/it/main.rs"
            ]
        );
    }
}
