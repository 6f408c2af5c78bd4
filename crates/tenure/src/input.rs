//! What a person gives: prompts and attached files, checked before anything is changed.

use crate::exit::{CliError, CliResult};
use std::io::Read;
use std::path::Path;
use tenure_core::event::body::AttachedFile;

/// The longest prompt, in bytes. More belongs in a file that the model can read in parts.
pub const MAX_PROMPT: usize = 1024 * 1024;
/// The longest attached file, in bytes.
pub const MAX_FILE: usize = 1024 * 1024;
/// All attached files together, in bytes.
pub const MAX_FILES: usize = 4 * 1024 * 1024;

/// The prompt as given on the command line, or from `stdin` when it is `-`.
///
/// # Errors
/// Usage errors: nothing given, empty, too long, not text.
pub fn prompt(given: Option<&str>, stdin: impl Read) -> CliResult<String> {
    let text = match given {
        None => {
            return Err(CliError::usage("there is no prompt").hint(
                "write `tenure run \"…\"`, or `tenure run -` to read it from standard input",
            ));
        }
        Some("-") => text_of(&bounded(stdin, MAX_PROMPT, "the prompt")?, "standard input")?,
        Some(text) if text.len() > MAX_PROMPT => {
            return Err(too_long("the prompt", Some(text.len())));
        }
        Some(text) => {
            if text.contains('\0') {
                return Err(not_text("the prompt", "a NUL byte"));
            }
            text.to_owned()
        }
    };
    if text.trim().is_empty() {
        return Err(CliError::usage("the prompt is empty").hint("say what is to be done"));
    }
    Ok(text)
}

/// Reads the files to attach.
///
/// # Errors
/// Usage errors: missing, a folder, too long, not text.
pub fn files(paths: &[impl AsRef<Path>]) -> CliResult<Vec<AttachedFile>> {
    let mut total = 0;
    paths
        .iter()
        .map(|path| {
            let file = file(path.as_ref())?;
            total += file.text.len();
            if total > MAX_FILES {
                return Err(
                    CliError::usage("the attached files are longer than 4 MiB together")
                        .hint("attach fewer, and name the paths of the others in the prompt"),
                );
            }
            Ok(file)
        })
        .collect()
}

fn file(path: &Path) -> CliResult<AttachedFile> {
    let name = path.display().to_string();
    let cannot = |e: std::io::Error| {
        CliError::usage(format!("the file {name} cannot be attached: {e}"))
            .hint("check the path given to --file")
    };
    let meta = std::fs::metadata(path).map_err(cannot)?;
    if !meta.is_file() {
        return Err(CliError::usage(format!("{name} is not a file"))
            .hint("--file attaches single text files; name folders in the prompt"));
    }
    let open = std::fs::File::open(path).map_err(cannot)?;
    let bytes = bounded(open, MAX_FILE, &name)?;
    Ok(AttachedFile {
        text: text_of(&bytes, &name)?,
        name,
    })
}

fn bounded(source: impl Read, limit: usize, what: &str) -> CliResult<Vec<u8>> {
    let mut bytes = Vec::new();
    source
        .take(limit as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| CliError::usage(format!("{what} cannot be read: {e}")))?;
    if bytes.len() > limit {
        return Err(too_long(what, None));
    }
    Ok(bytes)
}

fn too_long(what: &str, len: Option<usize>) -> CliError {
    let size = len.map_or_else(String::new, |len| format!(" ({} bytes)", len));
    CliError::usage(format!("{what} is longer than 1 MiB{size}"))
        .hint("put the text in a file and name its path in the prompt: the model reads it in parts")
        .hint("attach shorter files with --file")
}

fn text_of(bytes: &[u8], what: &str) -> CliResult<String> {
    if bytes.contains(&0) {
        return Err(not_text(what, "a NUL byte"));
    }
    std::str::from_utf8(bytes)
        .map(|text| text.strip_prefix('\u{feff}').unwrap_or(text).to_owned())
        .map_err(|e| not_text(what, &format!("invalid UTF-8 at byte {}", e.valid_up_to())))
}

fn not_text(what: &str, why: &str) -> CliError {
    CliError::usage(format!("{what} is not text: it holds {why}")).hint(
        "prompts and attached files are UTF-8 text; name the path of other files in the prompt",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_stdin(bytes: &[u8]) -> CliResult<String> {
        prompt(Some("-"), bytes)
    }

    #[test]
    fn good_prompts_are_kept_as_they_are() {
        assert_eq!(prompt(Some(" hi\n"), &b""[..]).unwrap(), " hi\n");
        assert_eq!(from_stdin("\u{feff}é\n".as_bytes()).unwrap(), "é\n");
    }

    #[test]
    fn bad_prompts_are_usage_errors_with_a_next_step() {
        let long = vec![b'a'; 5_000_000];
        for error in [
            prompt(None, &b""[..]),
            prompt(Some("  \n"), &b""[..]),
            from_stdin(b""),
            from_stdin(b"a\0b"),
            from_stdin(&[0xff, 0xfe, b'a']),
            from_stdin(&long),
            prompt(Some(&"a".repeat(5_000_000)), &b""[..]),
        ] {
            let error = error.unwrap_err();
            assert_eq!(error.kind.code(), 2, "{error}");
            assert!(!error.hints.is_empty(), "{error}");
        }
    }

    #[test]
    fn files_are_attached_by_name_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let good = folder.path().join("a.txt");
        std::fs::write(&good, "text").unwrap();
        let read = files(&[&good]).unwrap();
        assert_eq!(
            (read[0].name.as_str(), read[0].text.as_str()),
            (good.to_str().unwrap(), "text")
        );
        let binary = folder.path().join("b");
        std::fs::write(&binary, [0, 1]).unwrap();
        let missing = folder.path().join("c");
        for bad in [binary.as_path(), missing.as_path(), folder.path()] {
            assert_eq!(files(&[bad]).unwrap_err().kind.code(), 2);
        }
    }
}
