//! What images and documents of a request must be: known types, whole base64, sizes the vendors take.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The image types both first vendors take.
pub(super) const IMAGES: &[&str] = &["image/jpeg", "image/png", "image/gif", "image/webp"];

/// Why `data` is no picture that can be sent: not base64, or another format than it says.
pub(super) fn image_fault(media_type: &str, data: &str) -> Option<String> {
    if !IMAGES.contains(&media_type) {
        return Some(format!("{media_type:?} is none of {IMAGES:?}"));
    }
    match STANDARD.decode(data) {
        Err(_) => Some("the data is not valid base64".to_owned()),
        Ok(bytes) if !begins_as(media_type, &bytes) => {
            Some(format!("the data does not look like {media_type}"))
        }
        Ok(_) => None,
    }
}

/// Why `data` is no PDF that can be sent.
pub(super) fn pdf_fault(data: &str) -> Option<String> {
    match STANDARD.decode(data) {
        Err(_) => Some("the data is not valid base64".to_owned()),
        Ok(bytes) if !bytes.starts_with(b"%PDF-") => Some("the PDF has no PDF header".to_owned()),
        Ok(_) => None,
    }
}

fn begins_as(media_type: &str, bytes: &[u8]) -> bool {
    match media_type {
        "image/png" => bytes.starts_with(b"\x89PNG\r\n\x1a\n"),
        "image/jpeg" => bytes.starts_with(b"\xff\xd8\xff"),
        "image/gif" => bytes.starts_with(b"GIF8"),
        _ => bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP".as_slice()),
    }
}

/// Width and height of a PNG, the one format whose size lies at a fixed place near its beginning.
pub(super) fn png_size(data: &str) -> Option<(u32, u32)> {
    let head = STANDARD.decode(data.get(..32)?).ok()?;
    let number = |at: usize| -> Option<u32> {
        Some(u32::from_be_bytes(head.get(at..at + 4)?.try_into().ok()?))
    };
    (head.get(12..16)? == b"IHDR").then_some(())?;
    Some((number(16)?, number(20)?))
}

/// The type and the base64 of a data URL.
pub(super) fn data_url(url: &str) -> Option<(&str, &str)> {
    url.strip_prefix("data:")?.split_once(";base64,")
}
