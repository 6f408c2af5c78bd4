//! The fuzz targets in `fuzz/`: a workspace of their own, run by cargo-fuzz on a nightly toolchain.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{must, root};

/// Every target, by the name of its file in `fuzz/fuzz_targets`.
const TARGETS: [&str; 7] = [
    "sse",
    "openai_chat",
    "openai_responses",
    "anthropic_messages",
    "gemini",
    "bedrock",
    "errors",
];

/// What to run and for how long.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    seconds: u32,
    targets: Vec<String>,
}

impl Options {
    /// Reads `[--seconds N] [TARGET...]`; all targets when none is named.
    pub fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Options {
            seconds: 300,
            targets: Vec::new(),
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            if argument == "--seconds" {
                let value = arguments.next().and_then(|value| value.parse().ok());
                options.seconds = value.ok_or("`--seconds` needs a number")?;
            } else if TARGETS.contains(&argument.as_str()) {
                options.targets.push(argument.clone());
            } else {
                return Err(format!(
                    "there is no fuzz target `{argument}`; there are {}",
                    TARGETS.join(", ")
                ));
            }
        }
        if options.targets.is_empty() {
            options.targets = TARGETS.map(str::to_owned).to_vec();
        }
        Ok(options)
    }
}

/// Runs the targets one after the other; the first that finds something fails, and cargo-fuzz names the file.
pub fn run(options: &Options) -> Result<()> {
    let folder = root().join("fuzz");
    // Recorded streams make good beginnings, where they lie beside the repository.
    let recorded = root().join("../shared/corpus");
    for target in &options.targets {
        let own = folder.join("corpus").join(target);
        std::fs::create_dir_all(&own).with_context(|| format!("cannot make {}", own.display()))?;
        let mut command = Command::new("cargo");
        // The decoders hold no unsafe code: a sanitizer would only cost speed.
        command
            .args(["+nightly", "fuzz", "run", "--sanitizer", "none"])
            .arg(target)
            .arg(&own);
        for name in [target.clone(), target.replace('_', "-")] {
            let seeds = recorded.join(name);
            if seeds.is_dir() {
                command.arg(seeds);
            }
        }
        command
            .args(["--", "-max_len=16384", "-timeout=25", "-rss_limit_mb=1500"])
            .arg("-malloc_limit_mb=400")
            .arg("-dict=dictionaries/json.dict")
            .arg(format!("-max_total_time={}", options.seconds))
            .current_dir(&folder);
        if let Err(error) = must(&mut command) {
            bail!(
                "{error:#}\nA found input is in fuzz/artifacts/{target}: mend what it shows and keep it in \
                 crates/provider/tests/it/found. Without cargo-fuzz: `cargo install cargo-fuzz`, and \
                 `rustup toolchain install nightly`."
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Options::parse(&words)
    }

    #[test]
    fn all_targets_run_for_five_minutes_unless_said_otherwise() {
        let options = parse(&[]).unwrap();
        assert_eq!(
            (options.seconds, options.targets.len()),
            (300, TARGETS.len())
        );
        let options = parse(&["--seconds", "7", "sse"]).unwrap();
        assert_eq!(
            (options.seconds, options.targets),
            (7, vec!["sse".to_owned()])
        );
        assert!(parse(&["--seconds"]).is_err());
        assert!(parse(&["ssse"]).unwrap_err().contains("anthropic_messages"));
    }

    #[test]
    fn every_target_is_listed() {
        let mut files: Vec<String> = std::fs::read_dir(root().join("fuzz/fuzz_targets"))
            .unwrap()
            .map(|entry| {
                let path = entry.unwrap().path();
                path.file_stem().unwrap().to_string_lossy().into_owned()
            })
            .collect();
        files.sort();
        let mut listed = TARGETS.to_vec();
        listed.sort_unstable();
        assert_eq!(files, listed);
    }
}
