//! Downloads a table of models within limits of size and time.

use crate::http::{self, failure};
use crate::settings::{Protocol, ProviderSettings};
use futures::StreamExt;
use reqwest::Url;
use std::time::Duration;

/// The largest file that is taken: the real one is about two megabytes.
pub const MOST_BYTES: usize = 32 << 20;
/// How long a download may take.
pub const MOST_TIME: Duration = Duration::from_secs(60);

/// Why a download failed.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// Not an address that is downloaded from.
    #[error(
        "`{0}` is no address to download from: it must begin with https:// (http:// on this machine alone)"
    )]
    Address(String),
    /// The address was not reached, or the connection broke.
    #[error("{url} could not be downloaded: {reason}")]
    Connection {
        /// The address.
        url: String,
        /// What happened.
        reason: String,
    },
    /// It answered with something else than the file.
    #[error("{url} answered with status {status}")]
    Status {
        /// The address.
        url: String,
        /// The status.
        status: u16,
    },
    /// The file is larger than is taken.
    #[error("{url} is larger than {MOST_BYTES} bytes: this is no table of models")]
    TooLarge {
        /// The address.
        url: String,
    },
    /// It took too long.
    #[error("{url} could not be downloaded within {} seconds", MOST_TIME.as_secs())]
    TooSlow {
        /// The address.
        url: String,
    },
}

/// Downloads the file at `url`. Redirects are not followed. Cancellation safe: nothing is stored.
///
/// # Errors
/// The address is not taken, not reached, or does not give a file within the limits.
pub async fn download(url: &str) -> Result<Vec<u8>, DownloadError> {
    let address = || DownloadError::Address(url.to_owned());
    let parsed = Url::parse(url).map_err(|_| address())?;
    let takes = match parsed.scheme() {
        "https" => true,
        "http" => http::is_loopback(&parsed),
        _ => false,
    };
    if !takes {
        return Err(address());
    }
    match tokio::time::timeout(MOST_TIME, fetch(url, parsed)).await {
        Ok(fetched) => fetched,
        Err(_) => Err(DownloadError::TooSlow {
            url: url.to_owned(),
        }),
    }
}

async fn fetch(url: &str, parsed: Url) -> Result<Vec<u8>, DownloadError> {
    let broken = |reason: String| DownloadError::Connection {
        url: url.to_owned(),
        reason,
    };
    let too_large = || DownloadError::TooLarge {
        url: url.to_owned(),
    };
    let settings = ProviderSettings::new("models", Protocol::OpenaiChat, url);
    let client = http::client(&settings, &parsed).map_err(|e| broken(e.to_string()))?;
    let answer = client
        .get(parsed)
        .send()
        .await
        .map_err(|e| broken(failure::chain(&e)))?;
    if answer.status() != 200 {
        return Err(DownloadError::Status {
            url: url.to_owned(),
            status: answer.status().as_u16(),
        });
    }
    if answer
        .content_length()
        .is_some_and(|n| n > MOST_BYTES as u64)
    {
        return Err(too_large());
    }
    let mut body = Vec::new();
    let mut stream = answer.bytes_stream();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|e| broken(failure::chain(&e)))?;
        if body.len() + chunk.len() > MOST_BYTES {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
