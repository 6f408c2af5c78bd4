//! A text file as its bytes say it is: encoding, byte-order mark and line ends are kept.

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};

/// Files longer than this are neither edited nor remembered by content.
pub(crate) const LARGEST_FILE: u64 = 16 * 1024 * 1024;

/// A file's text and how to write it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextFile {
    /// Without the byte-order mark.
    pub(crate) text: String,
    encoding: &'static Encoding,
    mark: bool,
}

impl TextFile {
    /// `None` when the bytes are not text in UTF-8 or, with a byte-order mark, UTF-16: then writing the rest back
    /// unchanged could not be promised.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (encoding, mark_len) = Encoding::for_bom(bytes).unwrap_or((UTF_8, 0));
        let text =
            encoding.decode_without_bom_handling_and_without_replacement(bytes.get(mark_len..)?)?;
        if encoding == UTF_8 && text.contains('\0') {
            return None;
        }
        Some(Self {
            text: text.into_owned(),
            encoding,
            mark: mark_len > 0,
        })
    }

    /// The bytes of `text` in this file's form.
    pub(crate) fn encode(&self, text: &str) -> Vec<u8> {
        let marked = if self.mark { "\u{feff}" } else { "" };
        let units = marked.encode_utf16().chain(text.encode_utf16());
        if self.encoding == UTF_16LE {
            units.flat_map(u16::to_le_bytes).collect()
        } else if self.encoding == UTF_16BE {
            units.flat_map(u16::to_be_bytes).collect()
        } else {
            [marked.as_bytes(), text.as_bytes()].concat()
        }
    }
}

/// The line number (from 1) of a byte position.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    1 + text
        .as_bytes()
        .iter()
        .take(at)
        .filter(|b| **b == b'\n')
        .count()
}

/// Whether bytes look like anything but text: a NUL, unless a byte-order mark says UTF-16.
pub(crate) fn is_binary(prefix: &[u8]) -> bool {
    Encoding::for_bom(prefix).is_none_or(|(e, _)| e == UTF_8) && prefix.contains(&0)
}
