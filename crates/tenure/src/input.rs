//! What a person gives: prompts, attached files and forms of answers, checked before anything is changed.

use crate::exit::{CliError, CliResult};
use crate::form::Form;
use crate::render::human;
use std::io::Read;
use std::path::Path;
use tenure_core::event::body::AttachedFile;
use tenure_core::request::{Media, OutputSchema};
use tenure_engine::media;

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

/// The longest JSON Schema of an answer, in bytes.
const MAX_SCHEMA: usize = 256 * 1024;

/// What is attached to a prompt.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Attached {
    /// Text files.
    pub files: Vec<AttachedFile>,
    /// Images and documents.
    pub media: Vec<Media>,
}

/// Reads the files to attach. Images and PDFs are told by their content.
///
/// # Errors
/// Usage errors: missing, a folder, too long, neither text nor an image nor a PDF.
pub fn files(paths: &[impl AsRef<Path>]) -> CliResult<Attached> {
    let mut attached = Attached::default();
    let mut total = 0;
    for path in paths {
        let (name, bytes) = file(path.as_ref())?;
        if media::media_type(&bytes).is_some() {
            let medium = media::attach(name, &bytes).map_err(of_media)?;
            attached.media.push(medium);
            continue;
        }
        if bytes.len() > MAX_FILE {
            return Err(too_long(&name, Some(bytes.len())));
        }
        total += bytes.len();
        if total > MAX_FILES {
            return Err(
                CliError::usage("the attached files are longer than 4 MiB together")
                    .hint("attach fewer, and name the paths of the others in the prompt"),
            );
        }
        let text = text_of(&bytes, &name)?;
        attached.files.push(AttachedFile { name, text });
    }
    media::check(&attached.media).map_err(of_media)?;
    Ok(attached)
}

fn of_media(error: media::MediaError) -> CliError {
    CliError::usage(error.to_string())
}

/// Reads the form an answer must have.
///
/// # Errors
/// Usage errors: missing, too long, no JSON Schema.
pub fn schema(path: &Path) -> CliResult<Form> {
    let name = path.display().to_string();
    let wrong = |what: String| {
        CliError::usage(format!("the schema {name} cannot be used: {what}")).hint(
            "give a file that holds one JSON Schema, an object such as {\"type\": \"object\", …}",
        )
    };
    let open = std::fs::File::open(path).map_err(|e| wrong(e.to_string()))?;
    let bytes = bounded(open, MAX_SCHEMA, &name)?;
    let schema: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|e| wrong(e.to_string()))?;
    if !schema.is_object() {
        return Err(wrong("it is no JSON object".to_owned()));
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name: String = stem
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '-' {
                c
            } else {
                '_'
            }
        })
        .take(64)
        .collect();
    Form::new(OutputSchema { name, schema }).map_err(wrong)
}

/// A file's name and content.
fn file(path: &Path) -> CliResult<(String, Vec<u8>)> {
    let name = path.display().to_string();
    let cannot = |e: std::io::Error| {
        CliError::usage(format!("the file {name} cannot be attached: {e}"))
            .hint("check the path given to --file")
    };
    let meta = std::fs::metadata(path).map_err(cannot)?;
    if !meta.is_file() {
        return Err(CliError::usage(format!("{name} is not a file"))
            .hint("--file attaches single files; name folders in the prompt"));
    }
    let open = std::fs::File::open(path).map_err(cannot)?;
    let bytes = bounded(open, media::MAX_MEDIA, &name)?;
    Ok((name, bytes))
}

fn bounded(source: impl Read, limit: usize, what: &str) -> CliResult<Vec<u8>> {
    let mut bytes = Vec::new();
    source
        .take(limit as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| CliError::usage(format!("{what} cannot be read: {e}")))?;
    if bytes.len() > limit {
        return Err(match limit {
            MAX_PROMPT => too_long(what, None),
            _ => {
                let most = human::bytes(limit as u64);
                CliError::usage(format!(
                    "{what} is longer than {most}, the most that can be given"
                ))
                .hint("give a smaller file, or name its path in the prompt")
            }
        });
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
        "prompts and attached files are UTF-8 text, images or PDFs; name the path of other files in the prompt",
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
        let picture = folder.path().join("p");
        std::fs::write(&picture, b"\x89PNG\r\n\x1a\n\0\0\0\0").unwrap();
        let read = files(&[&good, &picture]).unwrap();
        assert_eq!(
            (read.files[0].name.as_str(), read.files[0].text.as_str()),
            (good.to_str().unwrap(), "text")
        );
        assert_eq!(read.media[0].media_type, "image/png");
        let binary = folder.path().join("b");
        std::fs::write(&binary, [0, 1]).unwrap();
        let missing = folder.path().join("c");
        for bad in [binary.as_path(), missing.as_path(), folder.path()] {
            assert_eq!(files(&[bad]).unwrap_err().kind.code(), 2);
        }
        let long = folder.path().join("d.pdf");
        std::fs::write(
            &long,
            [&b"%PDF-1.7"[..], &vec![b'x'; media::MAX_MEDIA]].concat(),
        )
        .unwrap();
        assert_eq!(files(&[&long]).unwrap_err().kind.code(), 2);
    }

    #[test]
    fn a_form_of_answers_is_a_json_object() {
        let folder = tempfile::tempdir().unwrap();
        let good = folder.path().join("my answer.json");
        std::fs::write(&good, r#"{"type": "object"}"#).unwrap();
        let read = schema(&good).unwrap();
        let read = read.asked();
        assert_eq!(
            (read.name.as_str(), read.schema["type"].as_str()),
            ("my_answer", Some("object"))
        );
        for bad in ["[1]", "{", "", r#"{"type": "objekt"}"#] {
            std::fs::write(&good, bad).unwrap();
            assert_eq!(schema(&good).err().unwrap().kind.code(), 2);
        }
    }
}
