//! Writes the built-in table of models anew from a public package's data.

use anyhow::{Context, Result, bail};

use crate::command;

/// The table, from the workspace's root.
const TABLE: &str = "crates/provider/src/catalogue/built_in.tsv";

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    from: String,
    version: String,
    date: String,
}

impl Options {
    /// Reads `--from FILE --version V --date YYYY-MM-DD`.
    pub fn parse(rest: &[String]) -> Result<Self, String> {
        let (mut from, mut version, mut date) = (None, None, None);
        let mut words = rest.iter();
        while let Some(word) = words.next() {
            let slot = match word.as_str() {
                "--from" => &mut from,
                "--version" => &mut version,
                "--date" => &mut date,
                other => return Err(format!("`models` has no option `{other}`")),
            };
            let value = words.next().ok_or(format!("`{word}` wants a value"))?;
            *slot = Some(value.clone());
        }
        match (from, version, date) {
            (Some(from), Some(version), Some(date)) if is_date(&date) => Ok(Self {
                from,
                version,
                date,
            }),
            (Some(_), Some(_), Some(date)) => Err(format!("`{date}` is no date: YYYY-MM-DD")),
            _ => Err("`models` wants --from FILE --version V --date YYYY-MM-DD: no figure without a source".into()),
        }
    }
}

fn is_date(text: &str) -> bool {
    let shape = |(place, byte): (usize, u8)| match place {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    text.len() == 10 && text.bytes().enumerate().all(shape)
}

/// Writes the table. The conversion is the provider crate's, whose table it is.
pub fn run(options: &Options) -> Result<()> {
    let mut convert = command::cargo();
    convert
        .args([
            "run",
            "--quiet",
            "-p",
            "tenure-provider",
            "--example",
            "built_in_models",
            "--",
        ])
        .args([&options.from, &options.version, &options.date]);
    let output = convert.output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let table = command::root().join(TABLE);
    let models = output.stdout.iter().filter(|byte| **byte == b'\n').count();
    std::fs::write(&table, &output.stdout).with_context(|| format!("cannot write {TABLE}"))?;
    println!("{TABLE}: {models} lines");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&words)
    }

    #[test]
    fn every_figure_wants_its_source_and_date() {
        assert!(parse("--from f --version 1 --date 2026-01-02").is_ok());
        assert!(parse("--from f --version 1").is_err());
        assert!(parse("--from f --version 1 --date yesterday").is_err());
        assert!(parse("--from").is_err());
        assert!(parse("--form f").is_err_and(|message| message.contains("--form")));
    }
}
