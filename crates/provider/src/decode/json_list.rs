//! Events, or one JSON list of what the events would hold: some servers of a protocol do not heed the wish for events.

use super::over_sse::{OverSse, Wire};
use super::sink::Sink;
use super::{Body, too_large};
use crate::sse::SseEvent;
use tenure_core::error::{ErrorClass, ProviderError};

/// Bytes of a byte order mark, which may stand in front of either form.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// A machine behind a reader of events or of a list, whichever the body turns out to be.
pub(super) struct SseOrList<W> {
    events: OverSse<W>,
    form: Form,
    limit: usize,
}

enum Form {
    /// Only white space came yet.
    Unknown,
    Events,
    /// A list, read element by element as it comes.
    List(Elements),
    /// One object: all of an answer, or no answer at all.
    Object(Elements),
}

impl<W: Wire> SseOrList<W> {
    /// Refuses single events and elements of more than `limit` bytes.
    pub fn new(wire: W, limit: usize) -> Self {
        Self {
            events: OverSse::new(wire, limit),
            form: Form::Unknown,
            limit,
        }
    }
}

impl<W: Wire> Body for SseOrList<W> {
    fn feed(&mut self, mut bytes: &[u8], sink: &mut Sink) {
        if matches!(self.form, Form::Unknown) {
            let white = |byte: &u8| byte.is_ascii_whitespace() || MARK.contains(byte);
            let Some(start) = bytes.iter().position(|byte| !white(byte)) else {
                return;
            };
            bytes = &bytes[start..];
            self.form = match bytes[0] {
                b'[' => {
                    bytes = &bytes[1..];
                    Form::List(Elements::default())
                }
                b'{' => Form::Object(Elements::default()),
                _ => Form::Events,
            };
        }
        let (Form::List(elements) | Form::Object(elements)) = &mut self.form else {
            return self.events.feed(bytes, sink);
        };
        let events = &mut self.events;
        let read = elements.feed(bytes, self.limit, &mut |element| {
            let event = SseEvent {
                name: "".into(),
                data: String::from_utf8_lossy(element),
            };
            events.event(&event, sink);
            !sink.ended()
        });
        if read.is_err() {
            self.events.close(sink);
            if !sink.ended() {
                sink.fail(too_large(self.limit));
            }
        }
    }

    fn end(&mut self, sink: &mut Sink) {
        match self.form {
            Form::Events => self.events.end(sink),
            Form::Object(_) if !sink.is_started() && !sink.ended() => {
                let text = "the endpoint answered with one JSON object and not with a stream: check base_url and protocol";
                sink.fail(ProviderError::new(ErrorClass::InvalidRequest, text));
            }
            // Half an element never counts.
            Form::Unknown | Form::List(_) | Form::Object(_) => {}
        }
    }

    fn close(&mut self, sink: &mut Sink) {
        self.events.close(sink);
    }

    fn finish_seen(&self) -> bool {
        self.events.finish_seen()
    }
}

/// An element grew beyond the limit.
#[derive(Debug, PartialEq, Eq)]
struct TooLarge;

/// Cuts the elements out of a list, however the network cut it. It judges nothing: that an element is JSON is for who
/// reads it to say.
#[derive(Default)]
struct Elements {
    /// The element at hand, as far as it came.
    element: Vec<u8>,
    /// Within an element.
    open: bool,
    /// Lists and objects that are open in it.
    depth: usize,
    /// Within a string, and behind a backslash in it.
    string: bool,
    escaped: bool,
    /// The list was closed.
    over: bool,
}

impl Elements {
    /// Takes the bytes behind the list's bracket; `on` gets every element they complete and says whether to read on.
    fn feed(
        &mut self,
        mut bytes: &[u8],
        limit: usize,
        on: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), TooLarge> {
        while let Some(first) = bytes.first().filter(|_| !self.over) {
            if !self.open {
                if first.is_ascii_whitespace() || *first == b',' {
                    bytes = &bytes[1..];
                    continue;
                }
                if *first == b']' {
                    self.over = true;
                    return Ok(());
                }
                self.open = true;
            }
            let (length, whole) = self.scan(bytes);
            if self.element.len() + length > limit {
                return Err(TooLarge);
            }
            let (now, rest) = bytes.split_at(length);
            bytes = rest;
            if !whole {
                self.element.extend_from_slice(now);
                continue;
            }
            self.open = false;
            let go_on = if self.element.is_empty() {
                on(now)
            } else {
                self.element.extend_from_slice(now);
                let go_on = on(&self.element);
                self.element.clear();
                go_on
            };
            if !go_on {
                return Ok(());
            }
        }
        Ok(())
    }

    /// How many of `bytes` belong to the element at hand, and whether it ends with them.
    fn scan(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if self.string {
                if self.escaped {
                    self.escaped = false;
                    at += 1;
                    continue;
                }
                let Some(found) = memchr::memchr2(b'"', b'\\', &bytes[at..]) else {
                    break;
                };
                at += found + 1;
                self.escaped = bytes[at - 1] == b'\\';
                self.string = self.escaped;
                continue;
            }
            match byte {
                b'"' => self.string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' if self.depth > 0 => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return (at + 1, true);
                    }
                }
                // Behind an element that is neither list nor object.
                b',' | b']' if self.depth == 0 => return (at, true),
                _ => {}
            }
            at += 1;
        }
        (bytes.len(), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(chunks: &[&[u8]]) -> Vec<String> {
        let mut elements = Elements::default();
        let mut seen = Vec::new();
        for chunk in chunks {
            let read = elements.feed(chunk, 1 << 20, &mut |element| {
                seen.push(String::from_utf8(element.to_vec()).unwrap());
                true
            });
            read.unwrap();
        }
        seen
    }

    const LIST: &str =
        "{\"a\":\"]},{\\\"\\\\\"} ,\r\n[1,[2]],\"b,]\\\"\",3 , null,{}] {\"behind\":1}";

    #[test]
    fn elements_are_cut_out_whatever_they_hold() {
        assert_eq!(
            read(&[LIST.as_bytes()]),
            [
                "{\"a\":\"]},{\\\"\\\\\"}",
                "[1,[2]]",
                "\"b,]\\\"\"",
                "3 ",
                "null",
                "{}"
            ]
        );
        assert_eq!(read(&[b"{\"half\":"]), [""; 0]);
        assert_eq!(read(&[b"]{}"]), [""; 0]);
        assert_eq!(read(&[b"},{}]"]), ["}", "{}"], "for the reader to refuse");
    }

    #[test]
    fn an_element_beyond_the_limit_is_refused() {
        let mut elements = Elements::default();
        assert_eq!(elements.feed(b"{\"a\":1},", 8, &mut |_| true), Ok(()));
        assert_eq!(elements.feed(b"{\"a\":", 8, &mut |_| true), Ok(()));
        assert_eq!(elements.feed(b"\"xyz", 8, &mut |_| true), Err(TooLarge));
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_elements(cuts in proptest::collection::vec(0usize..70, 0..9)) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(LIST.len())).collect();
            cuts.extend([0, LIST.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|w| &LIST.as_bytes()[w[0]..w[1]]).collect();
            prop_assert_eq!(read(&chunks), read(&[LIST.as_bytes()]));
        }
    }
}
