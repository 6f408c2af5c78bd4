//! What each Chat Completions server takes of images and documents, as its documents say.

use super::super::media::{Limits, TYPES};
use crate::dialect::Dialect;

const MIB: usize = 1024 * 1024;

/// Where nothing is documented: what the first such server took of one image, and no more than a body of common size.
const COMMON: Limits = Limits {
    types: TYPES,
    image: 20 * MIB,
    document: 20 * MIB,
    side: 8000,
    side_of_many: 8000,
    many: usize::MAX,
    images: 100,
    sum: 20 * MIB,
};

/// The limits of `dialect`. Base64 has a third more bytes than what it stands for.
pub(super) fn of(dialect: Dialect) -> Limits {
    match dialect {
        // "Images and vision": 50 MB a request; pictures are scaled by the vendor.
        Dialect::Openai => Limits {
            document: 40 * MIB,
            side: u32::MAX,
            side_of_many: u32::MAX,
            images: 400,
            sum: 40 * MIB,
            ..COMMON
        },
        // Quotas: at most 50 images.
        Dialect::Azure | Dialect::Github => Limits {
            images: 50,
            ..COMMON
        },
        // "Vision": 10 MB a file, eight images.
        Dialect::Mistral => Limits {
            image: 13 * MIB,
            images: 8,
            ..COMMON
        },
        // "Images and vision": 4 MB of base64 in a request, five images.
        Dialect::Groq => Limits {
            image: 4_000_000,
            images: 5,
            sum: 4_000_000,
            ..COMMON
        },
        // "Image understanding": JPEG and PNG of at most 20 MiB.
        Dialect::Xai => Limits {
            types: &["image/png", "image/jpeg"],
            ..COMMON
        },
        // "Vision models": 30 images, 10 MB of base64 altogether; no WebP.
        Dialect::Fireworks => Limits {
            types: &["image/png", "image/jpeg", "image/gif"],
            image: 10_000_000,
            images: 30,
            sum: 10_000_000,
            ..COMMON
        },
        // "Vision": JPEG and PNG of at most 5 MB and 6000 pixels on a side.
        Dialect::Zai => Limits {
            types: &["image/png", "image/jpeg"],
            image: 6_600_000,
            side: 6000,
            side_of_many: 6000,
            ..COMMON
        },
        // "Visual understanding": no GIF; 10 MB of base64 an image.
        Dialect::Dashscope => Limits {
            types: &["image/png", "image/jpeg", "image/webp"],
            image: 10_000_000,
            ..COMMON
        },
        // The server's reader of images knows no WebP.
        Dialect::LlamaCpp | Dialect::LlamaBox => Limits {
            types: &["image/png", "image/jpeg", "image/gif"],
            ..COMMON
        },
        // The same models as behind the vendor's own protocol.
        Dialect::Google => super::super::gemini::MEDIA,
        _ => COMMON,
    }
}
