//! Images and documents of a request: which can be shown, and what stands for the others.
//!
//! A picture that its endpoint would refuse makes every later request of the session fail with it, so
//! nothing goes out that is not known to be taken: the type, the size, the pixels and the sum are checked.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::HashMap;
use tenure_core::request::{Media, Request, RequestMessage, UserPart};

/// What an endpoint takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Media types.
    pub types: &'static [&'static str],
    /// Longest base64 of one image.
    pub image: usize,
    /// Longest base64 of one document.
    pub document: usize,
    /// Pixels on a side.
    pub side: u32,
    /// Pixels on a side when there are more than [`Limits::many`] images.
    pub side_of_many: u32,
    /// How many images count as many.
    pub many: usize,
    /// Most images of a request.
    pub images: usize,
    /// All base64 of a request together.
    pub sum: usize,
}

/// The types of [`kind`], for endpoints that take all of them.
pub(super) const TYPES: &[&str] = &[
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "application/pdf",
];

/// What a medium is to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A picture.
    Image,
    /// A PDF.
    Pdf,
}

/// The kind of a medium; `None` when no endpoint takes it.
pub(super) fn kind(media: &Media) -> Option<Kind> {
    match media.media_type.as_str() {
        "image/png" | "image/jpeg" | "image/gif" | "image/webp" => Some(Kind::Image),
        "application/pdf" => Some(Kind::Pdf),
        _ => None,
    }
}

/// Oldest media go out of a request in steps of so many images and so many bytes, at most a quarter of the limit:
/// with every new picture one of the old going would change the request's beginning each time.
const STEP_IMAGES: usize = 25;
const STEP_BYTES: usize = 8 * 1024 * 1024;

/// What is shown of a request's media and why not. Media are told apart by where they lie.
pub(super) struct Shown {
    hidden: HashMap<*const Media, String>,
}

impl Shown {
    /// Judges all media of `request`.
    pub fn of(request: &Request, limits: &Limits) -> Self {
        let media: Vec<&Media> = request.messages.iter().flat_map(media_of).collect();
        let mut hidden = HashMap::new();
        let images = media
            .iter()
            .filter(|m| kind(m) == Some(Kind::Image))
            .count();
        let side = if images > limits.many {
            limits.side_of_many
        } else {
            limits.side
        };
        for one in &media {
            if let Some(why) = fault(one, limits, side) {
                hidden.insert(std::ptr::from_ref::<Media>(one), why);
            }
        }
        let shown: Vec<&Media> = media
            .into_iter()
            .filter(|m| !hidden.contains_key(&std::ptr::from_ref::<Media>(m)))
            .collect();
        for old in too_many(&shown, limits) {
            let why = "there are newer ones, and no more fit into a request".to_owned();
            hidden.insert(std::ptr::from_ref::<Media>(old), why);
        }
        Self { hidden }
    }

    /// What stands for `media` when it cannot be shown.
    pub fn stand_in(&self, media: &Media) -> Option<String> {
        let why = self.hidden.get(&std::ptr::from_ref(media))?;
        Some(format!(
            "[{} ({}, {}) was attached here and cannot be shown: {why}.]",
            media.name,
            media.media_type,
            size_words(decoded_len(&media.data))
        ))
    }
}

fn media_of(message: &RequestMessage) -> impl Iterator<Item = &Media> {
    let parts = match message {
        RequestMessage::User { parts } => parts.as_slice(),
        _ => &[],
    };
    parts.iter().filter_map(|part| match part {
        UserPart::Media(media) => Some(media),
        UserPart::Text(_) => None,
    })
}

/// The oldest that have to go so that the rest fits.
fn too_many<'a>(shown: &[&'a Media], limits: &Limits) -> Vec<&'a Media> {
    let is_image = |m: &Media| kind(m) == Some(Kind::Image);
    let images = shown.iter().filter(|m| is_image(m)).count();
    let mut drop_images = in_steps(
        images.saturating_sub(limits.images),
        STEP_IMAGES.min(limits.images / 4),
    );
    let sum: usize = shown.iter().map(|m| m.data.len()).sum();
    let drop_bytes = in_steps(
        sum.saturating_sub(limits.sum),
        STEP_BYTES.min(limits.sum / 4),
    );
    let mut before = 0;
    // The newest is what the prompt is about, and fits alone.
    shown[..shown.len().saturating_sub(1)]
        .iter()
        .filter(|media| {
            let by_sum = before < drop_bytes;
            before += media.data.len();
            let by_count = is_image(media) && drop_images > 0;
            drop_images -= usize::from(by_count);
            by_sum || by_count
        })
        .copied()
        .collect()
}

fn in_steps(count: usize, step: usize) -> usize {
    let step = step.max(1);
    count.div_ceil(step) * step
}

fn fault(media: &Media, limits: &Limits, side: u32) -> Option<String> {
    let Some(kind) = kind(media) else {
        return Some("this kind of file is not taken".to_owned());
    };
    if !limits.types.contains(&media.media_type.as_str()) {
        return Some(format!("{} is not taken", media.media_type));
    }
    let longest = match kind {
        Kind::Image => limits.image,
        Kind::Pdf => limits.document,
    };
    if media.data.is_empty() {
        return Some("its content was not kept".to_owned());
    }
    if media.data.len() > longest {
        return Some(format!("at most {} are taken", size_words(longest / 4 * 3)));
    }
    let head = media
        .data
        .get(..media.data.len().min(HEAD))
        .and_then(|head| STANDARD.decode(head).ok())
        .unwrap_or_default();
    if !begins_as(&media.media_type, &head) {
        return Some(format!("it does not look like {}", media.media_type));
    }
    let (wide, high) = pixels(&head).unwrap_or((0, 0));
    (wide > side || high > side)
        .then(|| format!("it has {wide} x {high} pixels, and at most {side} on a side are taken"))
}

/// Base64 of the beginning that is looked at: enough for a JPEG with a preview in front of its size. A
/// multiple of four.
const HEAD: usize = 512 * 1024;

fn begins_as(media_type: &str, bytes: &[u8]) -> bool {
    match media_type {
        "image/png" => bytes.starts_with(b"\x89PNG\r\n\x1a\n"),
        "image/jpeg" => bytes.starts_with(b"\xff\xd8\xff"),
        "image/gif" => bytes.starts_with(b"GIF8"),
        "image/webp" => bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP".as_slice()),
        _ => bytes.starts_with(b"%PDF-"),
    }
}

/// Width and height, as far as the beginning of the file tells.
fn pixels(bytes: &[u8]) -> Option<(u32, u32)> {
    let little = |at: usize| {
        Some(u32::from(u16::from_le_bytes(
            bytes.get(at..at + 2)?.try_into().ok()?,
        )))
    };
    match bytes.get(..4)? {
        b"\x89PNG" => {
            let big = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
            Some((big(16)?, big(20)?))
        }
        b"GIF8" => Some((little(6)?, little(8)?)),
        b"RIFF" => match bytes.get(12..16)? {
            b"VP8 " => Some((little(26)? & 0x3fff, little(28)? & 0x3fff)),
            b"VP8L" => {
                let bits = u32::from_le_bytes(bytes.get(21..25)?.try_into().ok()?);
                Some(((bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1))
            }
            b"VP8X" => {
                let three = |at: usize| {
                    let b = bytes.get(at..at + 3)?;
                    Some(u32::from_le_bytes([b[0], b[1], b[2], 0]) + 1)
                };
                Some((three(24)?, three(27)?))
            }
            _ => None,
        },
        [0xff, 0xd8, ..] => jpeg_pixels(bytes),
        _ => None,
    }
}

/// Walks a JPEG's segments to the frame header.
fn jpeg_pixels(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        let head = bytes.get(at..at + 9)?;
        if head[0] != 0xff {
            return None;
        }
        let big = |n: usize| u32::from(u16::from_be_bytes([head[n], head[n + 1]]));
        match head[1] {
            // Padding between segments.
            0xff => at += 1,
            0xc0..=0xcf if !matches!(head[1], 0xc4 | 0xc8 | 0xcc) => return Some((big(7), big(5))),
            _ => at += 2 + usize::try_from(big(2)).ok()?.max(2),
        }
    }
}

/// The bytes that padded base64 stands for.
pub(super) fn decoded_len(base64: &str) -> usize {
    let padding = base64.bytes().rev().take_while(|b| *b == b'=').count();
    (base64.len() / 4 * 3).saturating_sub(padding)
}

fn size_words(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{} KiB", bytes / 1024),
        _ => format!(
            "{}.{} MiB",
            bytes / 1_048_576,
            bytes % 1_048_576 * 10 / 1_048_576
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_from_every_format() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x01\x02\0\0\0\x03";
        assert_eq!(pixels(png), Some((258, 3)));
        assert_eq!(pixels(b"GIF89a\x02\x01\x03\0"), Some((258, 3)));
        let jpeg = b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xc2\0\x11\x08\0\x03\x01\x02\x03";
        assert_eq!(pixels(jpeg), Some((258, 3)));
        let lossy = b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x02\x01\x03\0";
        assert_eq!(pixels(lossy), Some((258, 3)));
        let wide = b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0\x01\x01\0\x02\0\0";
        assert_eq!(pixels(wide), Some((258, 3)));
        assert_eq!(pixels(b"\xff\xd8\xff\xe0\0\0"), None);
        assert_eq!(pixels(b""), None);
    }

    #[test]
    fn the_oldest_go_in_steps() {
        let limits = Limits {
            types: TYPES,
            image: 1 << 20,
            document: 1 << 20,
            side: 8000,
            side_of_many: 8000,
            many: 1000,
            images: 100,
            sum: usize::MAX,
        };
        let media: Vec<Media> = (0..130)
            .map(|n| Media {
                name: n.to_string(),
                media_type: "image/png".into(),
                data: "AAAA".into(),
            })
            .collect();
        let gone = |n: usize| {
            let shown: Vec<&Media> = media[..n].iter().collect();
            too_many(&shown, &limits).len()
        };
        assert_eq!(
            [gone(100), gone(101), gone(125), gone(126)],
            [0, 25, 25, 50]
        );
        let few = Limits {
            images: 5,
            ..limits
        };
        let shown: Vec<&Media> = media[..6].iter().collect();
        assert_eq!(
            too_many(&shown, &few).len(),
            1,
            "a small limit, a small step"
        );
        let small = Limits { sum: 16, ..limits };
        let shown: Vec<&Media> = media[..6].iter().collect();
        let gone = too_many(&shown, &small);
        assert_eq!(gone.len(), 2);
        assert!(std::ptr::eq(gone[0], shown[0]), "the oldest");
    }
}
