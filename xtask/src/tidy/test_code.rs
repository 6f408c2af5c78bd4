//! Which lines of a source file are test code: items behind `#[cfg(test)]` or a test attribute.

use super::lexer::is_word;

/// What of one file is test code.
#[derive(Debug, Default, PartialEq)]
pub struct TestCode {
    /// One flag per line.
    pub lines: Vec<bool>,
    /// Names of modules declared as `#[cfg(test)] mod name;`, whose files are test code as a whole.
    pub modules: Vec<String>,
}

/// Finds test code in `code`, the file's text with comments and literals blanked.
pub fn find(code: &str) -> TestCode {
    let bytes = code.as_bytes();
    let mut found = TestCode {
        lines: vec![false; code.lines().count()],
        modules: Vec::new(),
    };
    let mut at = 0;
    while let Some(attribute) = next_attribute(bytes, at) {
        at = attribute.end;
        if !is_test(&attribute.content) {
            continue;
        }
        if attribute.inner {
            found.lines.fill(true);
            return found;
        }
        let item = item_start(bytes, attribute.end);
        let end = item_end(bytes, item);
        found.modules.extend(declared_module(&code[item..end]));
        let first = line_of(bytes, attribute.start);
        let last = line_of(bytes, end.saturating_sub(1));
        for line in found.lines.iter_mut().take(last + 1).skip(first) {
            *line = true;
        }
        at = end;
    }
    found
}

struct Attribute {
    start: usize,
    end: usize,
    inner: bool,
    content: String,
}

fn next_attribute(bytes: &[u8], from: usize) -> Option<Attribute> {
    let mut at = from;
    while at < bytes.len() {
        let inner = bytes[at..].starts_with(b"#![");
        if inner || bytes[at..].starts_with(b"#[") {
            let open = at + 1 + usize::from(inner);
            let end = closing(bytes, open)?;
            let content = bytes[open + 1..end - 1]
                .iter()
                .filter(|byte| !byte.is_ascii_whitespace());
            let content = content.map(|byte| char::from(*byte)).collect();
            return Some(Attribute {
                start: at,
                end,
                inner,
                content,
            });
        }
        at += 1;
    }
    None
}

/// Whether an attribute, written without spaces, makes its item test code.
fn is_test(content: &str) -> bool {
    if let Some(condition) = content.strip_prefix("cfg(") {
        return !condition.contains("not(test)") && has_word(condition, "test");
    }
    let path = content.split('(').next().unwrap_or(content);
    path == "test" || path.ends_with("::test") || path.ends_with("::test_case") || path == "rstest"
}

fn has_word(text: &str, word: &str) -> bool {
    let bytes = text.as_bytes();
    text.match_indices(word).any(|(at, _)| {
        let before = at
            .checked_sub(1)
            .is_some_and(|before| is_word(bytes[before]));
        let after = bytes
            .get(at + word.len())
            .is_some_and(|byte| is_word(*byte));
        !before && !after
    })
}

/// The start of the item behind an attribute: blanks and further attributes are passed over.
fn item_start(bytes: &[u8], mut at: usize) -> usize {
    loop {
        while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        if !bytes[at.min(bytes.len())..].starts_with(b"#[") {
            return at;
        }
        match closing(bytes, at + 1) {
            Some(end) => at = end,
            None => return bytes.len(),
        }
    }
}

/// The end of the item at `at`: its block, or its semicolon.
fn item_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b';' => return at + 1,
            b'{' => return closing(bytes, at).unwrap_or(bytes.len()),
            b'(' | b'[' => at = closing(bytes, at).unwrap_or(bytes.len()),
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of the group that opens at `open`, one past its closing bracket.
pub fn closing(bytes: &[u8], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (offset, byte) in bytes[open..].iter().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(open + offset + 1);
                }
            }
            _ => {}
        }
    }
    None
}

fn declared_module(item: &str) -> Option<String> {
    let declaration = item.strip_suffix(';')?;
    let (_, name) = declaration.rsplit_once("mod ")?;
    let name = name.trim();
    name.bytes().all(is_word).then(|| name.to_owned())
}

/// The line of the byte at `at`, from 0.
pub fn line_of(bytes: &[u8], at: usize) -> usize {
    bytes[..at.min(bytes.len())]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(code: &str) -> String {
        find(code)
            .lines
            .iter()
            .map(|test| if *test { 't' } else { '.' })
            .collect()
    }

    #[test]
    fn modules_and_functions_behind_test_attributes_are_test_code() {
        assert_eq!(
            flags("fn a() {\n}\n#[cfg(test)]\nmod tests {\n  fn b() {}\n}\nfn c() {}\n"),
            "..tttt."
        );
        assert_eq!(
            flags(
                "#[tokio::test(flavor = x)]\n#[ignore]\nasync fn a(x: [u8; 2]) {\n}\nfn b() {}\n"
            ),
            "tttt."
        );
        assert_eq!(
            flags("#[cfg(all(test, unix))]\nconst A: [u8; 1] = [0];\nfn b() {}\n"),
            "tt."
        );
    }

    #[test]
    fn other_attributes_are_not() {
        assert_eq!(
            flags("#[cfg(not(test))]\nfn a() {}\n#[derive(Debug)]\nstruct Tested;\n"),
            "...."
        );
        assert_eq!(flags("#[cfg(feature = latest)]\nfn a() {}\n"), "..");
    }

    #[test]
    fn an_inner_attribute_makes_the_whole_file_test_code() {
        assert_eq!(flags("#![cfg(test)]\nfn a() {}\n"), "tt");
    }

    #[test]
    fn declared_test_modules_are_named() {
        let found =
            find("#[cfg(test)]\npub(crate) mod fixtures;\nmod real;\n#[cfg(test)]\nmod tests {}\n");
        assert_eq!(found.modules, ["fixtures"]);
    }
}
