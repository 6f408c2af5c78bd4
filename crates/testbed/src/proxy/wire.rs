//! PostgreSQL's messages in a byte stream: enough to tell where each begins and which statement it runs.

use std::collections::HashMap;

/// The code of a request for TLS, in place of a version.
const SSL_REQUEST: u32 = 80_877_103;
/// The same for GSSAPI.
const GSS_REQUEST: u32 = 80_877_104;
/// How a TLS handshake begins, where a message would begin with its length.
const TLS_HANDSHAKE: u8 = 0x16;
/// No sane message is longer.
const LONGEST: usize = 1 << 30;

/// Messages cut out of a stream.
#[derive(Debug, Default)]
pub(super) struct Frames {
    pending: Vec<u8>,
}

impl Frames {
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// Everything that is not a whole message yet.
    pub fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.pending)
    }

    /// The next message, its type byte (if `typed`) and length included.
    fn next(&mut self, typed: bool) -> Option<Vec<u8>> {
        let kind = usize::from(typed);
        let length: [u8; 4] = self.pending.get(kind..kind + 4)?.try_into().ok()?;
        let whole = kind + (u32::from_be_bytes(length) as usize).clamp(4, LONGEST);
        if self.pending.len() < whole {
            return None;
        }
        let rest = self.pending.split_off(whole);
        Some(std::mem::replace(&mut self.pending, rest))
    }
}

/// The client's side of one connection.
#[derive(Debug, Default)]
pub(super) struct Upward {
    frames: Frames,
    phase: Phase,
    /// Prepared statements and portals, and what each runs.
    statements: HashMap<Vec<u8>, Statement>,
    portals: HashMap<Vec<u8>, Statement>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Before the login message: no type bytes.
    #[default]
    Greeting,
    /// Messages with a type byte.
    Talking,
    /// Encrypted: nothing can be told apart.
    Opaque,
}

/// What a message does to the transaction.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Statement {
    Begin,
    Commit,
    Rollback,
    Listen,
    #[default]
    Other,
}

/// One message of the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub bytes: Vec<u8>,
    pub runs: Statement,
}

impl Upward {
    pub fn push(&mut self, bytes: &[u8]) {
        self.frames.push(bytes);
    }

    /// Is the stream encrypted?
    pub fn is_opaque(&self) -> bool {
        self.phase == Phase::Opaque
    }

    /// The next whole message, or whatever came of an encrypted stream.
    pub fn next(&mut self) -> Option<Message> {
        if self.phase == Phase::Greeting && self.frames.pending.first() == Some(&TLS_HANDSHAKE) {
            self.phase = Phase::Opaque;
        }
        if self.phase == Phase::Opaque {
            let bytes = self.frames.rest();
            let runs = Statement::Other;
            return (!bytes.is_empty()).then_some(Message { bytes, runs });
        }
        let bytes = self.frames.next(self.phase == Phase::Talking)?;
        let runs = match self.phase {
            Phase::Talking => self.effect(&bytes),
            Phase::Greeting | Phase::Opaque => {
                let code = bytes.get(4..8).and_then(|code| code.try_into().ok());
                let code = code.map_or(0, u32::from_be_bytes);
                if code != SSL_REQUEST && code != GSS_REQUEST {
                    self.phase = Phase::Talking;
                }
                Statement::Other
            }
        };
        Some(Message { bytes, runs })
    }

    fn effect(&mut self, bytes: &[u8]) -> Statement {
        let mut words = bytes[5..].split(|byte| *byte == 0).map(<[u8]>::to_vec);
        let mut word = || words.next().unwrap_or_default();
        match bytes[0] {
            b'Q' => statement(&word()),
            b'P' => {
                let name = word();
                let runs = statement(&word());
                self.statements.insert(name, runs);
                Statement::Other
            }
            b'B' => {
                let portal = word();
                let runs = self.statements.get(&word()).copied().unwrap_or_default();
                self.portals.insert(portal, runs);
                Statement::Other
            }
            b'E' => self.portals.get(&word()).copied().unwrap_or_default(),
            _ => Statement::Other,
        }
    }
}

/// What a text runs; of several statements, the most consequential.
fn statement(text: &[u8]) -> Statement {
    let text = String::from_utf8_lossy(text).to_ascii_uppercase();
    let mut runs = Statement::Other;
    for one in text.split(';') {
        match one.split_whitespace().next() {
            Some("COMMIT" | "END") => return Statement::Commit,
            Some("ROLLBACK" | "ABORT") => runs = Statement::Rollback,
            Some("BEGIN" | "START") => runs = Statement::Begin,
            Some("LISTEN") => runs = Statement::Listen,
            _ => {}
        }
    }
    runs
}

/// The server's side: only how many transactions it has answered the end of.
#[derive(Debug, Default)]
pub(super) struct Downward {
    frames: Frames,
    /// Answers to requests for encryption still to come: one byte each, without a frame.
    bare: usize,
    failed: bool,
}

impl Downward {
    /// The client has asked for encryption.
    pub fn expect_bare_answer(&mut self) {
        self.bare += 1;
    }

    /// Takes what the server sent; how many ends of transactions it holds: committed, rolled back, or refused.
    pub fn ends(&mut self, bytes: &[u8]) -> usize {
        let mut ends = 0;
        self.frames.push(bytes);
        loop {
            if self.bare > 0 {
                if self.frames.pending.is_empty() {
                    return ends;
                }
                self.frames.pending.remove(0);
                self.bare -= 1;
                continue;
            }
            let Some(frame) = self.frames.next(true) else {
                return ends;
            };
            match frame[0] {
                b'C' => {
                    let tag = frame[5..].split(|byte| *byte == 0).next();
                    ends += usize::from(matches!(tag, Some(b"COMMIT" | b"ROLLBACK")));
                }
                b'E' => self.failed = true,
                // After an error the transaction is over only if the server says that it is idle.
                b'Z' => {
                    ends += usize::from(std::mem::take(&mut self.failed) && frame[5..] == *b"I")
                }
                _ => {}
            }
        }
    }
}

impl Message {
    /// Does the client ask for encryption with it?
    pub fn asks_for_encryption(&self) -> bool {
        let code = self.bytes.get(4..8).and_then(|code| code.try_into().ok());
        let code = code.map_or(0, u32::from_be_bytes);
        self.bytes.len() == 8 && (code == SSL_REQUEST || code == GSS_REQUEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: &str, body: &[u8]) -> Vec<u8> {
        let mut bytes = kind.as_bytes().to_vec();
        bytes.extend_from_slice(&u32::try_from(body.len() + 4).unwrap().to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    fn effects(upward: &mut Upward, bytes: &[u8]) -> Vec<Statement> {
        // Byte by byte: where a read ends must not matter.
        let mut runs = Vec::new();
        for byte in bytes {
            upward.push(&[*byte]);
            runs.extend(std::iter::from_fn(|| upward.next()).map(|message| message.runs));
        }
        runs
    }

    fn logged_in() -> Upward {
        let mut upward = Upward::default();
        let ssl = message("", &SSL_REQUEST.to_be_bytes());
        let login = message("", b"\0\x03\0\0user\0me\0\0");
        assert_eq!(effects(&mut upward, &ssl), [Statement::Other]);
        assert_eq!(effects(&mut upward, &login), [Statement::Other]);
        upward
    }

    #[test]
    fn plain_statements_are_told_apart() {
        let mut upward = logged_in();
        for (text, runs) in [
            (&b"begin\0"[..], Statement::Begin),
            (
                b"START TRANSACTION ISOLATION LEVEL SERIALIZABLE\0",
                Statement::Begin,
            ),
            (b" COMMIT ;\0", Statement::Commit),
            (b"BEGIN; SELECT 1; commit\0", Statement::Commit),
            (b"SELECT 'COMMIT'\0", Statement::Other),
        ] {
            assert_eq!(effects(&mut upward, &message("Q", text)), [runs]);
        }
    }

    #[test]
    fn prepared_statements_run_when_they_are_executed() {
        let mut upward = logged_in();
        let mut bytes = message("P", b"s1\0COMMIT\0\0\0");
        bytes.extend(message("P", b"s2\0SELECT 1\0\0\0"));
        bytes.extend(message("B", b"p\0s2\0\0\0\0\0\0\0"));
        bytes.extend(message("E", b"p\0\0\0\0\0"));
        bytes.extend(message("B", b"\0s1\0\0\0\0\0\0\0"));
        bytes.extend(message("E", b"\0\0\0\0\0"));
        let runs = effects(&mut upward, &bytes);
        assert_eq!(runs.len(), 6);
        assert_eq!(
            runs.iter().position(|runs| *runs == Statement::Commit),
            Some(5)
        );
    }

    #[test]
    fn an_encrypted_stream_passes_as_it_is() {
        let mut upward = Upward::default();
        upward.push(&message("", &SSL_REQUEST.to_be_bytes()));
        let request = upward.next().unwrap();
        assert!(request.asks_for_encryption());
        upward.push(&[TLS_HANDSHAKE, 3, 1]);
        assert_eq!(upward.next().unwrap().bytes, [TLS_HANDSHAKE, 3, 1]);
        upward.push(b"Q");
        assert_eq!(upward.next().unwrap().bytes, b"Q");
    }

    #[test]
    fn the_answer_to_a_commit_is_seen_also_when_it_is_a_refusal() {
        let mut downward = Downward::default();
        downward.expect_bare_answer();
        assert_eq!(downward.ends(b"N"), 0);
        assert_eq!(downward.ends(&message("C", b"INSERT 0 1\0")), 0);
        assert_eq!(downward.ends(&message("E", b"SERROR\0\0")), 0);
        assert_eq!(
            downward.ends(&message("Z", b"E")),
            0,
            "only the statement failed"
        );
        let answer = message("C", b"COMMIT\0");
        assert_eq!(downward.ends(&answer[..7]), 0);
        assert_eq!(downward.ends(&answer[7..]), 1);
        assert_eq!(downward.ends(&message("C", b"ROLLBACK\0")), 1);
        assert_eq!(downward.ends(&message("E", b"SERROR\0\0")), 0);
        assert_eq!(downward.ends(&message("Z", b"I")), 1);
    }
}
