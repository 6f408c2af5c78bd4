//! HTTP/1.1 on a bare socket: reads requests, writes answers, notices a client that leaves.
//!
//! A web framework would hide what this crate must control: where a write ends, a body cut in the middle, a reset.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;

const MAX_HEAD: usize = 64 * 1024;
const MAX_BODY: usize = 256 * 1024 * 1024;
const READ_SIZE: usize = 64 * 1024;

/// One request, read to its end.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// The path without its query.
    pub(crate) path: String,
    /// What follows the `?`; empty when there is none.
    pub(crate) query: String,
    /// Names in lower case, in the order received.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) keep_alive: bool,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }
}

fn find<'h>(headers: &'h [(String, String)], name: &str) -> Option<&'h str> {
    headers
        .iter()
        .find(|(n, _)| n == name)
        .map(|(_, value)| value.as_str())
}

/// Why no request was read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The client closed between two requests: nothing is wrong.
    Closed,
    /// The client left in the middle of a request.
    Incomplete,
    /// What came is not HTTP as this server reads it.
    Malformed(&'static str),
}

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) socket: Arc<TcpStream>,
    /// Bytes read and not yet used.
    inbox: Vec<u8>,
}

impl Conn {
    pub(crate) fn new(socket: TcpStream) -> Self {
        // Streams are made of small writes; none may wait for the answer to the one before.
        let _ = socket.set_nodelay(true);
        Self {
            socket: Arc::new(socket),
            inbox: Vec::new(),
        }
    }

    /// Reads more into the inbox; 0 at the end. Cancellation-safe: what was read is in the inbox.
    async fn fill(&mut self) -> io::Result<usize> {
        loop {
            self.socket.readable().await?;
            let old = self.inbox.len();
            self.inbox.resize(old + READ_SIZE, 0);
            let read = self.socket.try_read(&mut self.inbox[old..]);
            self.inbox.truncate(old + *read.as_ref().unwrap_or(&0));
            match read {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
        }
    }

    /// Waits until the client closes its side. Cancellation-safe.
    pub(crate) async fn left(&mut self) {
        loop {
            if self.inbox.len() > MAX_HEAD {
                // Somebody pipelines without end; that is no reason to buffer without end.
                return;
            }
            match self.fill().await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    /// Writes everything. Not cancellation-safe: a dropped call leaves part of the bytes written.
    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.socket.try_write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.socket.writable().await?,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Makes the coming close a reset.
    pub(crate) fn reset_on_close(&self) {
        let _ = self.socket.set_zero_linger();
    }

    async fn more(&mut self) -> Result<(), ReadError> {
        match self.fill().await {
            Ok(0) | Err(_) => Err(ReadError::Incomplete),
            Ok(_) => Ok(()),
        }
    }

    /// Reads the next request.
    pub(crate) async fn read_request(&mut self) -> Result<Request, ReadError> {
        let head_len = loop {
            if let Some(at) = self.inbox.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            if self.inbox.len() > MAX_HEAD {
                return Err(ReadError::Malformed("the head of the request is too long"));
            }
            let fresh = self.inbox.is_empty();
            self.more()
                .await
                .map_err(|e| if fresh { ReadError::Closed } else { e })?;
        };
        let head: Vec<u8> = self.inbox.drain(..head_len).collect();
        let mut request = parse_head(&head)?;
        if request
            .header("expect")
            .is_some_and(|e| e.eq_ignore_ascii_case("100-continue"))
        {
            let _ = self.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await;
        }
        let chunked = request
            .header("transfer-encoding")
            .is_some_and(|t| t.to_ascii_lowercase().contains("chunked"));
        request.body = if chunked {
            self.read_chunks().await?
        } else {
            let length = request.header("content-length").unwrap_or("0").trim();
            let length: usize = length
                .parse()
                .map_err(|_| ReadError::Malformed("content-length is not a number"))?;
            self.take(length).await?
        };
        Ok(request)
    }

    async fn take(&mut self, length: usize) -> Result<Vec<u8>, ReadError> {
        if length > MAX_BODY {
            return Err(ReadError::Malformed("the body is too long"));
        }
        while self.inbox.len() < length {
            self.more().await?;
        }
        let rest = self.inbox.split_off(length);
        Ok(std::mem::replace(&mut self.inbox, rest))
    }

    async fn take_line(&mut self) -> Result<Vec<u8>, ReadError> {
        loop {
            if let Some(at) = self.inbox.windows(2).position(|w| w == b"\r\n") {
                return self.take(at + 2).await;
            }
            if self.inbox.len() > MAX_HEAD {
                return Err(ReadError::Malformed(
                    "a line of the chunked body is too long",
                ));
            }
            self.more().await?;
        }
    }

    async fn read_chunks(&mut self) -> Result<Vec<u8>, ReadError> {
        let mut body = Vec::new();
        loop {
            let line = self.take_line().await?;
            let text = String::from_utf8_lossy(&line);
            let digits = text.split(';').next().unwrap_or("").trim();
            let size = usize::from_str_radix(digits, 16)
                .map_err(|_| ReadError::Malformed("a chunk size is not a number"))?;
            if size == 0 {
                while self.take_line().await?.len() > 2 {}
                return Ok(body);
            }
            if size.saturating_add(body.len()) > MAX_BODY {
                return Err(ReadError::Malformed("the body is too long"));
            }
            body.extend(self.take(size).await?);
            self.take(2).await?;
        }
    }
}

fn parse_head(head: &[u8]) -> Result<Request, ReadError> {
    let head =
        std::str::from_utf8(head).map_err(|_| ReadError::Malformed("the head is not UTF-8"))?;
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or("").split(' ');
    let (Some(method), Some(target), Some(version)) = (words.next(), words.next(), words.next())
    else {
        return Err(ReadError::Malformed(
            "the request line is not METHOD TARGET VERSION",
        ));
    };
    if !version.starts_with("HTTP/1.") {
        return Err(ReadError::Malformed(
            "only HTTP/1.0 and HTTP/1.1 are served",
        ));
    }
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let connection = find(&headers, "connection")
        .unwrap_or("")
        .to_ascii_lowercase();
    let keep_alive = if version == "HTTP/1.0" {
        connection.contains("keep-alive")
    } else {
        !connection.contains("close")
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Ok(Request {
        method: method.to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        headers,
        body: Vec::new(),
        keep_alive,
    })
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Payload Too Large",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        529 => "Overloaded",
        _ => "Scripted",
    }
}

/// The head of an answer. Header values lose line breaks, which would forge further headers.
pub(crate) fn head(status: u16, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} {}\r\n", reason(status));
    for (name, value) in headers {
        let clean = |s: &str| s.replace(['\r', '\n'], " ");
        text.push_str(&format!("{}: {}\r\n", clean(name), clean(value)));
    }
    text.push_str("\r\n");
    text.into_bytes()
}

/// A whole answer with a body of known length; headers given later replace the defaults of the same name.
pub(crate) fn answer(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let length = body.len().to_string();
    let mut all: Vec<(&str, &str)> = vec![
        ("content-type", "application/json"),
        ("content-length", &length),
    ];
    all.retain(|(name, _)| {
        !headers
            .iter()
            .any(|(given, _)| given.eq_ignore_ascii_case(name))
    });
    all.extend_from_slice(headers);
    let mut bytes = head(status, &all);
    bytes.extend_from_slice(body);
    bytes
}
