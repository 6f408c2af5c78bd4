//! Near names, for errors that say what was probably meant.

/// At most three names near to `wanted`, best first; all of them (up to 20) when none is near.
pub(crate) fn names<'a>(wanted: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let known: Vec<&str> = known.collect();
    let near = close(wanted, known.iter().copied(), 3);
    if near.is_empty() {
        known.iter().take(20).map(|k| (*k).to_owned()).collect()
    } else {
        near
    }
}

/// At most `count` names that are really near, best first.
pub(crate) fn close<'a>(
    wanted: &str,
    known: impl Iterator<Item = &'a str>,
    count: usize,
) -> Vec<String> {
    let wanted = crate::output::cut(wanted, 100).to_lowercase();
    let mut scored: Vec<(f64, &str)> = known
        .map(|name| (strsim::jaro_winkler(&wanted, &name.to_lowercase()), name))
        .filter(|(score, _)| *score >= 0.8)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored
        .into_iter()
        .take(count)
        .map(|(_, name)| name.to_owned())
        .collect()
}
