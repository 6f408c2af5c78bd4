//! The frames of an AWS event stream: a length, headers, a payload, and a checksum over each part.

use super::Frames;

/// The bytes of one frame. Headers are strings, which is all that Bedrock sends.
pub(crate) fn frame(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut named = Vec::new();
    for (name, value) in headers {
        // Names have one byte of length and values two; those sent here are far below that.
        named.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
        named.extend_from_slice(name.as_bytes());
        named.push(7);
        named.extend_from_slice(&u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
        named.extend_from_slice(value.as_bytes());
    }
    let word = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_be_bytes();
    let mut bytes = Vec::with_capacity(16 + named.len() + payload.len());
    bytes.extend_from_slice(&word(16 + named.len() + payload.len()));
    bytes.extend_from_slice(&word(named.len()));
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
    bytes.extend_from_slice(&named);
    bytes.extend_from_slice(payload);
    let sum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&sum.to_be_bytes());
    bytes
}

/// One event of an AWS event stream as bytes: `payload` is its JSON, `kind` the event's type.
pub fn event(kind: &str, payload: &[u8]) -> Vec<u8> {
    let headers = [
        (":event-type", kind),
        (":content-type", "application/json"),
        (":message-type", "event"),
    ];
    frame(&headers, payload)
}

/// An exception, which ends the stream.
pub(crate) fn exception(kind: &str, payload: &[u8]) -> Vec<u8> {
    let headers = [
        (":exception-type", kind),
        (":content-type", "application/json"),
        (":message-type", "exception"),
    ];
    frame(&headers, payload)
}

impl Frames {
    /// Adds a frame that is made already.
    pub(crate) fn binary(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        if self.track {
            self.ends.push(self.bytes.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_nothing_has_the_published_bytes() {
        // The example of the format's description: no headers, no payload.
        let empty = [
            0, 0, 0, 0x10, 0, 0, 0, 0, 5, 0xc2, 0x48, 0xeb, 0x7d, 0x98, 0xc8, 0xff,
        ];
        assert_eq!(frame(&[], b""), empty);
    }

    #[test]
    fn lengths_and_headers_stand_where_they_belong() {
        let bytes = frame(&[("a", "xyz")], b"{}");
        assert_eq!(bytes.len(), 16 + 8 + 2);
        assert_eq!(bytes[..4], 26_u32.to_be_bytes());
        assert_eq!(bytes[4..8], 8_u32.to_be_bytes());
        assert_eq!(bytes[12..19], [1, b'a', 7, 0, 3, b'x', b'y']);
    }
}
