//! Server-sent events from bytes, however the network cut them: bounded, and lossless for UTF-8.

use std::borrow::Cow;

/// One dispatched event.
pub(crate) struct SseEvent<'a> {
    /// The `event:` field, empty when there was none.
    pub name: Cow<'a, str>,
    /// The `data:` lines, joined by line feeds.
    pub data: Cow<'a, str>,
}

/// An event grew beyond the limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge {
    /// The limit in bytes.
    pub limit: usize,
}

/// Reads lines that end in LF, CRLF or CR. Decoding to text happens for whole fields only, so a character
/// split between two reads is never damaged.
pub(crate) struct SseReader {
    line: Vec<u8>,
    data: Vec<u8>,
    name: Vec<u8>,
    has_data: bool,
    after_cr: bool,
    first_line: bool,
    limit: usize,
}

impl SseReader {
    /// A reader that refuses events whose text is longer than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            line: Vec::new(),
            data: Vec::new(),
            name: Vec::new(),
            has_data: false,
            after_cr: false,
            first_line: true,
            limit,
        }
    }

    /// Feeds bytes; `on` gets every event that they complete and says whether to read on.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        on: &mut dyn FnMut(SseEvent<'_>) -> bool,
    ) -> Result<(), TooLarge> {
        while !bytes.is_empty() {
            if self.after_cr {
                self.after_cr = false;
                if bytes[0] == b'\n' {
                    bytes = &bytes[1..];
                    continue;
                }
            }
            if let Some((data, line, rest)) = self.plain_event(bytes) {
                self.check(line)?;
                let go_on = on(SseEvent {
                    name: String::from_utf8_lossy(&self.name),
                    data: String::from_utf8_lossy(data),
                });
                self.name.clear();
                if !go_on {
                    return Ok(());
                }
                bytes = rest;
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) else {
                self.check(bytes.len())?;
                self.line.extend_from_slice(bytes);
                return Ok(());
            };
            self.check(end)?;
            self.after_cr = bytes[end] == b'\r';
            let go_on = if self.line.is_empty() {
                self.take_line(&bytes[..end], on)
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(&bytes[..end]);
                let go_on = self.take_line(&line, on);
                line.clear();
                self.line = line;
                go_on
            };
            if !go_on {
                return Ok(());
            }
            bytes = &bytes[end + 1..];
        }
        Ok(())
    }

    /// The data of an event whose one `data:` line and blank line lie whole in `bytes`, the length of that line, and
    /// what follows: what nearly every event is, read without a copy.
    fn plain_event<'a>(&self, bytes: &'a [u8]) -> Option<(&'a [u8], usize, &'a [u8])> {
        if !self.line.is_empty() || self.has_data || self.first_line {
            return None;
        }
        let value = bytes.strip_prefix(b"data:")?;
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let end = memchr::memchr2(b'\n', b'\r', value)?;
        let rest = match &value[end..] {
            [b'\n', b'\n', rest @ ..] | [b'\r', b'\n', b'\r', b'\n', rest @ ..] => rest,
            _ => return None,
        };
        Some((&value[..end], bytes.len() - value.len() + end, rest))
    }

    /// The stream is over: gives an event that lacks its closing blank line. The caller must judge whether
    /// its data is whole.
    pub fn end(&mut self, on: &mut dyn FnMut(SseEvent<'_>) -> bool) {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() && !self.take_line(&line, on) {
            return;
        }
        self.dispatch(on);
    }

    /// Bytes held for an event that is not complete.
    #[allow(dead_code, reason = "asked by fuzzing, which includes this file")]
    pub fn buffered(&self) -> usize {
        self.line.len() + self.data.len() + self.name.len()
    }

    fn check(&self, more: usize) -> Result<(), TooLarge> {
        if self.line.len() + self.data.len() + more > self.limit {
            return Err(TooLarge { limit: self.limit });
        }
        Ok(())
    }

    fn take_line(&mut self, line: &[u8], on: &mut dyn FnMut(SseEvent<'_>) -> bool) -> bool {
        let line = if std::mem::take(&mut self.first_line) {
            line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
        } else {
            line
        };
        if line.is_empty() {
            return self.dispatch(on);
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(0) => return true,
            Some(at) => {
                let value = &line[at + 1..];
                (&line[..at], value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &[][..]),
        };
        match field {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
            }
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            // Not in the standard, but llama-box ends a broken stream with such a line; without it the
            // reader would only see a cut.
            b"error" if value.first() == Some(&b'{') => {
                return on(SseEvent {
                    name: Cow::Borrowed("error"),
                    data: String::from_utf8_lossy(value),
                });
            }
            _ => {}
        }
        true
    }

    fn dispatch(&mut self, on: &mut dyn FnMut(SseEvent<'_>) -> bool) -> bool {
        let go_on = !self.has_data
            || on(SseEvent {
                name: String::from_utf8_lossy(&self.name),
                data: String::from_utf8_lossy(&self.data),
            });
        self.data.clear();
        self.name.clear();
        self.has_data = false;
        go_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(chunks: &[&[u8]]) -> Vec<(String, String)> {
        let mut reader = SseReader::new(1 << 20);
        let mut seen = Vec::new();
        let mut on = |event: SseEvent<'_>| {
            seen.push((event.name.into_owned(), event.data.into_owned()));
            true
        };
        for chunk in chunks {
            reader.feed(chunk, &mut on).unwrap();
        }
        reader.end(&mut on);
        seen
    }

    fn pair(name: &str, data: &str) -> (String, String) {
        (name.to_owned(), data.to_owned())
    }

    #[test]
    fn every_line_end_gives_the_same_events() {
        let lf = ": hi\nevent: a\ndata: one\ndata:two\nid: 7\nretry: 1\nodd\n\ndata: x\n\n\nevent: lonely\n\n";
        let want = vec![pair("a", "one\ntwo"), pair("", "x")];
        for text in [
            lf.to_owned(),
            lf.replace('\n', "\r\n"),
            lf.replace('\n', "\r"),
            format!("\u{feff}{lf}"),
        ] {
            assert_eq!(read(&[text.as_bytes()]), want);
        }
    }

    #[test]
    fn an_event_without_data_is_none_and_does_not_leak_its_name() {
        assert_eq!(read(&[b"event: a\n\ndata: x\n\n"]), vec![pair("", "x")]);
    }

    #[test]
    fn the_last_event_may_lack_its_blank_line_or_line_end() {
        assert_eq!(read(&[b"data: x\n"]), vec![pair("", "x")]);
        assert_eq!(read(&[b"data: x"]), vec![pair("", "x")]);
    }

    #[test]
    fn an_event_beyond_the_limit_is_refused_even_without_line_ends() {
        let mut reader = SseReader::new(16);
        let refused = reader.feed(b"data: 0123456789abcdef", &mut |_| true);
        assert_eq!(refused, Err(TooLarge { limit: 16 }));
        let mut reader = SseReader::new(16);
        let refused = reader.feed(b"data: 0123456\ndata: 789abcdef\n\n", &mut |_| true);
        assert_eq!(refused, Err(TooLarge { limit: 16 }));
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_events(cuts in proptest::collection::vec(0usize..90, 0..12)) {
            let text = "\u{feff}event: é\r\ndata: Привет 你好\r\ndata: 👩‍🚀\r\n\r\n: c\r\rdata: last\n\ndata: open".as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(text.len())).collect();
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut from = 0;
            for cut in cuts {
                chunks.push(&text[from..cut]);
                from = cut;
            }
            chunks.push(&text[from..]);
            prop_assert_eq!(read(&chunks), read(&[text]));
        }
    }
}
