//! Collects a stream of unknown length: beginning and end in memory, the whole in a file.

use std::collections::VecDeque;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use encoding_rs::Encoding;

use super::{OutputLimits, Truncation, clean, cut, cut_tail};

/// Held at both ends beyond what is shown, so that a cut can see the whole of the character it falls on. Even, as
/// UTF-16 wants it.
const MARGIN: usize = 512;

/// Collects output. Memory use is bounded by little more than [`OutputLimits::shown_bytes`].
///
/// Nothing is written to disk until the output is longer than what is shown. Dropping it leaves the file as far as
/// it was written.
#[derive(Debug)]
pub struct Collector {
    limits: OutputLimits,
    dir: PathBuf,
    stem: String,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    newlines: u64,
    last: Option<u8>,
    file: FileState,
}

#[derive(Debug)]
enum FileState {
    NotYet,
    Open {
        file: File,
        path: PathBuf,
        written: u64,
    },
    Failed(String),
}

/// What a [`Collector`] ends with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collected {
    /// Safe text of bounded length; with a note in the middle when something was left out.
    pub text: String,
    /// Bytes received.
    pub total_bytes: u64,
    /// Set when something was left out.
    pub truncation: Option<Truncation>,
}

impl Collector {
    /// A collector whose file, if one is needed, is named after `call` in `output_dir`.
    #[must_use]
    pub fn new(limits: OutputLimits, output_dir: &Path, call: &str) -> Self {
        Self {
            limits,
            dir: output_dir.to_owned(),
            stem: file_stem(call),
            head: Vec::new(),
            tail: VecDeque::new(),
            total: 0,
            newlines: 0,
            last: None,
            file: FileState::NotYet,
        }
    }

    /// Takes the next piece. The file is written to synchronously: pieces are small and go to the page cache.
    pub fn push(&mut self, bytes: &[u8]) {
        let Some(&last) = bytes.last() else { return };
        self.total += bytes.len() as u64;
        self.newlines += bytes.iter().filter(|b| **b == b'\n').count() as u64;
        self.last = Some(last);
        // Until the file is open, head and tail together hold everything, so that it can be written from them.
        if matches!(self.file, FileState::NotYet) && self.total > self.capacity() as u64 {
            self.open_file();
        }
        self.write_file(bytes);
        let end = self.half() + MARGIN;
        let room = end.saturating_sub(self.head.len()).min(bytes.len());
        let (first, rest) = bytes.split_at(room);
        self.head.extend_from_slice(first);
        self.tail
            .extend(rest.iter().skip(rest.len().saturating_sub(end)));
        let excess = self.tail.len().saturating_sub(end);
        self.tail.drain(..excess);
    }

    /// Bytes received so far.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total
    }

    /// Renders what was collected.
    #[must_use]
    pub fn finish(mut self) -> Collected {
        let whole = self.total <= self.capacity() as u64;
        let tail: Vec<u8> = std::mem::take(&mut self.tail).into();
        if whole {
            let mut all = std::mem::take(&mut self.head);
            all.extend_from_slice(&tail);
            let decoded = super::decode(&all);
            let text = clean(&decoded);
            if text.len() <= self.limits.shown_bytes {
                return Collected {
                    text: text.into_owned(),
                    total_bytes: self.total,
                    truncation: None,
                };
            }
            // Escapes made it longer than may be shown.
            self.open_file();
            self.write_file(&all);
            return self.render(&text, &text);
        }
        let encoding = Encoding::for_bom(&self.head);
        let head = clean(&super::decode(&self.head)).into_owned();
        let tail_start = self.total - tail.len() as u64;
        let tail = clean(&decode_tail(&tail, tail_start, encoding.map(|(e, _)| e))).into_owned();
        self.render(&head, &tail)
    }

    fn render(self, head: &str, tail: &str) -> Collected {
        let half = self.half();
        let (head, tail) = (cut(head, half), cut_tail(tail, half));
        let (full_path, file_cut_at, problem) = match self.file {
            FileState::Open { path, written, .. } => {
                (Some(path), (written < self.total).then_some(written), None)
            }
            FileState::Failed(problem) => (None, None, Some(problem)),
            FileState::NotYet => (None, None, None),
        };
        let truncation = Truncation {
            total_bytes: self.total,
            total_lines: self.newlines + u64::from(self.last.is_some_and(|b| b != b'\n')),
            shown_bytes: (head.len() + tail.len()) as u64,
            full_path,
            file_cut_at,
        };
        let problem = problem.map(|p| format!(" ({p})")).unwrap_or_default();
        let text = format!("{head}\n[… {truncation}{problem} …]\n{tail}");
        Collected {
            text,
            total_bytes: self.total,
            truncation: Some(truncation),
        }
    }

    fn half(&self) -> usize {
        // Even, so that the beginning of UTF-16 text ends on a whole unit.
        (self.limits.shown_bytes / 2) & !1
    }

    fn capacity(&self) -> usize {
        (self.half() + MARGIN) * 2
    }

    fn open_file(&mut self) {
        match create_private(&self.dir, &self.stem) {
            Ok((file, path)) => {
                self.file = FileState::Open {
                    file,
                    path,
                    written: 0,
                };
                let (head, (a, b)) = (std::mem::take(&mut self.head), self.tail.as_slices());
                let held = [a, b].concat();
                self.write_file(&head);
                self.write_file(&held);
                self.head = head;
            }
            Err(error) => {
                self.file =
                    FileState::Failed(format!("cannot keep it in {}: {error}", self.dir.display()));
            }
        }
    }

    fn write_file(&mut self, bytes: &[u8]) {
        let FileState::Open {
            file,
            path,
            written,
        } = &mut self.file
        else {
            return;
        };
        let room =
            usize::try_from(self.limits.file_bytes.saturating_sub(*written)).unwrap_or(usize::MAX);
        let piece = &bytes[..bytes.len().min(room)];
        match file.write_all(piece) {
            Ok(()) => *written += piece.len() as u64,
            Err(error) => {
                let problem = format!("cannot keep it in {}: {error}", path.display());
                self.file = FileState::Failed(problem);
            }
        }
    }
}

/// Decodes an end that may begin inside a character.
fn decode_tail(bytes: &[u8], start: u64, encoding: Option<&'static Encoding>) -> String {
    match encoding {
        Some(encoding) if encoding != encoding_rs::UTF_8 => {
            let skip = usize::from(start % 2 == 1).min(bytes.len());
            encoding
                .decode_without_bom_handling(&bytes[skip..])
                .0
                .into_owned()
        }
        _ => {
            let skip = bytes
                .iter()
                .take(3)
                .take_while(|b| (0x80..0xc0).contains(*b))
                .count();
            String::from_utf8_lossy(&bytes[skip..]).into_owned()
        }
    }
}

/// Call ids come from model vendors: only harmless characters may become part of a file name.
fn file_stem(call: &str) -> String {
    let stem: String = call
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') {
                c
            } else {
                '_'
            }
        })
        .take(80)
        .collect();
    if stem.is_empty() {
        "call".to_owned()
    } else {
        stem
    }
}

fn create_private(dir: &Path, stem: &str) -> io::Result<(File, PathBuf)> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
        builder.mode(0o700);
        options.mode(0o600);
    }
    builder.create(dir)?;
    // A call id is unique in one step only; an earlier file is never overwritten.
    for n in 1..10_000 {
        let name = if n == 1 {
            format!("{stem}.txt")
        } else {
            format!("{stem}-{n}.txt")
        };
        let path = dir.join(name);
        match options.open(&path) {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        "too many outputs under one name",
    ))
}
