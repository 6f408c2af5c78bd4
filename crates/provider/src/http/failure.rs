//! What a failed connection means, in words that name the next step and never a key.

use reqwest::Url;
use std::error::Error;
use tenure_core::error::{ErrorClass, ProviderError};

/// The kinds of failure a person can act upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Nobody listens there.
    Refused,
    /// The name does not resolve.
    Name,
    /// The certificate or the handshake is not accepted.
    Tls,
    /// What listens there does not speak HTTP.
    NotHttp,
    /// No connection in time.
    Slow,
    /// The connection broke.
    Broken,
}

/// Judges an error of the HTTP client by its causes.
pub(crate) fn kind(error: &reqwest::Error) -> Failure {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    let mut text = String::new();
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            match io.kind() {
                std::io::ErrorKind::ConnectionRefused => return Failure::Refused,
                std::io::ErrorKind::TimedOut => return Failure::Slow,
                _ => {}
            }
            // TLS errors hide inside an IO error.
            if io
                .get_ref()
                .is_some_and(|inner| inner.is::<rustls::Error>())
            {
                return Failure::Tls;
            }
        }
        if error.is::<rustls::Error>() {
            return Failure::Tls;
        }
        text.push_str(&error.to_string().to_ascii_lowercase());
        text.push('\n');
        cause = error.source();
    }
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if has(&[
        "dns error",
        "failed to lookup",
        "name or service not known",
        "no such host",
    ]) {
        Failure::Name
    } else if has(&["certificate", "tls handshake", "corrupt message"]) {
        Failure::Tls
    } else if has(&[
        "invalid http version",
        "invalid http",
        "parsing",
        "parse error",
        "message header",
        "http2 error",
    ]) {
        Failure::NotHttp
    } else if error.is_timeout() {
        Failure::Slow
    } else {
        Failure::Broken
    }
}

/// Host and port, for people.
pub(crate) fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or("the endpoint");
    match url.port_or_known_default() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// The error of a request that got no answer.
pub(crate) fn of_send(error: &reqwest::Error, url: &Url) -> ProviderError {
    let class = if error.is_connect() {
        ErrorClass::Unsent
    } else {
        ErrorClass::Transport
    };
    ProviderError::new(class, say(kind(error), error, url))
}

/// The sentence for a failure.
pub(crate) fn say(kind: Failure, error: &reqwest::Error, url: &Url) -> String {
    let host = host(url);
    match kind {
        Failure::Refused => format!(
            "connection to {host} refused: nothing listens there; check base_url and that the server runs"
        ),
        Failure::Name => {
            format!("{host} cannot be found: check the host in base_url, and the network")
        }
        Failure::Tls if url.scheme() == "https" => format!(
            "no trusted TLS connection to {host} ({}): set ca_file if it uses its own authority, or http:// if it has no TLS",
            chain(error)
        ),
        Failure::Tls | Failure::NotHttp => {
            format!("{host} does not speak HTTP: check scheme and port of base_url")
        }
        Failure::Slow => {
            format!("no connection to {host} in time: check the network and the proxy settings")
        }
        Failure::Broken => format!("the connection to {host} broke: {}", chain(error)),
    }
}

/// Adds what caused an error, leaving out what the words before already hold.
pub(crate) fn add_causes(parts: &mut Vec<String>, error: &dyn Error) {
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if parts.last().is_none_or(|last| !last.contains(&text)) {
            parts.push(text);
        }
        cause = error.source();
    }
}

/// An error with its causes in one line, without the URL, whose query may hold a key.
pub(crate) fn chain(error: &reqwest::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    add_causes(&mut parts, error);
    if parts.is_empty() {
        return "no further reason given".to_owned();
    }
    let mut text = parts.join(": ");
    crate::classify::shorten(&mut text, 500);
    text
}
