//! Where the old text may have been meant, when it is not in the file.

use crate::output::{clean, cut};

/// Lines looked at; a hint is not worth more time.
const LINES: usize = 20_000;
const SHOWN: usize = 160;

/// A sentence that begins with a space. It never leads to a change by itself.
pub(super) fn nearest(text: &str, old: &str) -> String {
    let wanted: Vec<&str> = old.lines().collect();
    let first = wanted
        .iter()
        .copied()
        .find(|l| !l.trim().is_empty())
        .unwrap_or_default();
    if let Some(line) = same_but_for_space(text, &wanted) {
        return format!(
            " The same text with other white space is at line {line}; read those lines and copy them exactly."
        );
    }
    if let Some((at, line)) = text
        .lines()
        .enumerate()
        .take(LINES)
        .find(|(_, l)| l.trim() == first.trim())
    {
        return format!(
            " Its first line is at line {} (`{}`), but what follows differs; read from there.",
            at + 1,
            short(line)
        );
    }
    let mut best: Option<(f64, usize, &str)> = None;
    for (at, line) in text.lines().enumerate().take(LINES) {
        let (a, b) = (cut(line.trim(), SHOWN), cut(first.trim(), SHOWN));
        let longer = a.len().max(b.len());
        if longer == 0 || a.len().abs_diff(b.len()) * 2 > longer {
            continue;
        }
        let score = strsim::normalized_levenshtein(a, b);
        if score >= 0.6 && best.is_none_or(|(found, ..)| score > found) {
            best = Some((score, at + 1, line));
        }
    }
    match best {
        Some((_, at, line)) => format!(" The nearest line is {at}: `{}`.", short(line)),
        None => " No line is near to it; read the file again.".to_owned(),
    }
}

fn short(line: &str) -> String {
    clean(cut(line.trim_end(), SHOWN)).into_owned()
}

/// The line where the same lines stand, if only white space at their ends differs.
fn same_but_for_space(text: &str, wanted: &[&str]) -> Option<usize> {
    let wanted: Vec<&str> = wanted.iter().map(|l| l.trim()).collect();
    if wanted.iter().all(|l| l.is_empty()) {
        return None;
    }
    let lines: Vec<&str> = text.lines().take(LINES).map(str::trim).collect();
    lines
        .windows(wanted.len())
        .position(|window| window == wanted)
        .map(|at| at + 1)
}
