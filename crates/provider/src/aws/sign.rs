//! Signature Version 4 of a request, over a time that comes in from the caller.

use super::AwsKeys;
use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings};
use aws_sigv4::sign::v4;
use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use std::time::SystemTime;

/// The name that signatures are made for.
const SERVICE: &str = "bedrock";

/// The headers that sign a POST of `body` to `url`, made at `time`. `headers` are those it goes out with: the
/// content type and every `x-amz-` header among them are signed. Pure: equal arguments give equal headers.
///
/// # Errors
/// What cannot be signed, in words that hold no key.
pub fn sign(
    keys: &AwsKeys,
    region: &str,
    time: SystemTime,
    url: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<HeaderMap, String> {
    let identity = Credentials::new(
        keys.id.expose(),
        keys.secret.expose(),
        keys.token.as_ref().map(|token| token.expose().to_owned()),
        None,
        "tenure",
    )
    .into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name(SERVICE)
        .time(time)
        .settings(SigningSettings::default())
        .build()
        .map_err(|error| error.to_string())?
        .into();
    let signed = headers
        .iter()
        .filter(|(name, _)| **name == CONTENT_TYPE || name.as_str().starts_with("x-amz-"))
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let request = SignableRequest::new("POST", url, signed, SignableBody::Bytes(body))
        .map_err(|error| error.to_string())?;
    let (instructions, _) = aws_sigv4::http_request::sign(request, &params)
        .map_err(|error| error.to_string())?
        .into_parts();
    let mut made = HeaderMap::new();
    for header in instructions.into_parts().0 {
        let mut value = HeaderValue::from_str(header.value())
            .map_err(|_| "a key holds a character that HTTP cannot carry".to_owned())?;
        value.set_sensitive(true);
        made.insert(HeaderName::from_static(header.name()), value);
    }
    Ok(made)
}
