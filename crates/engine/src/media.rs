//! Images and documents a prompt brings: told by their content, bounded before anything is stored.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tenure_core::request::Media;

/// All images and documents of one prompt together, in bytes. An event has to hold them.
pub const MAX_MEDIA: usize = 7 * 1024 * 1024;

/// Why an image or a document cannot be attached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MediaError {
    /// They are too long together.
    #[error(
        "the attached images and documents have {bytes} bytes together, and a prompt takes {MAX_MEDIA}: scale them \
         down, or send several prompts"
    )]
    TooLong {
        /// Their length.
        bytes: usize,
    },
    /// The content is none of the types that models read.
    #[error("{name} is no PNG, JPEG, GIF, WebP or PDF: only these can be shown to a model")]
    Unknown {
        /// Its name.
        name: String,
    },
    /// The content is not what it is said to be.
    #[error("{name} is said to be {said}, and its content is not: attach it under its right type")]
    Mislabelled {
        /// Its name.
        name: String,
        /// The type it was given.
        said: String,
    },
}

/// The type of a file that can be attached as an image or a document, told by its first bytes.
pub fn media_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("image/webp"),
        [b'%', b'P', b'D', b'F', b'-', ..] => Some("application/pdf"),
        _ => None,
    }
}

/// A file's content as an attachment.
///
/// # Errors
/// `Unknown` when models do not read such files, `TooLong` when a prompt does not take it.
pub fn attach(name: impl Into<String>, bytes: &[u8]) -> Result<Media, MediaError> {
    let name = name.into();
    let Some(media_type) = media_type(bytes) else {
        return Err(MediaError::Unknown { name });
    };
    if bytes.len() > MAX_MEDIA {
        return Err(MediaError::TooLong { bytes: bytes.len() });
    }
    Ok(Media {
        name,
        media_type: media_type.to_owned(),
        data: STANDARD.encode(bytes).into(),
    })
}

/// The bytes an attachment holds.
pub fn size(media: &Media) -> usize {
    let padding = media.data.bytes().rev().take_while(|b| *b == b'=').count();
    (media.data.len() / 4 * 3).saturating_sub(padding)
}

/// Checks what somebody wants to send, whoever built it.
///
/// # Errors
/// As [`attach`], and `Mislabelled` when type and content differ.
pub fn check(media: &[Media]) -> Result<(), MediaError> {
    let bytes: usize = media.iter().map(size).sum();
    if bytes > MAX_MEDIA {
        return Err(MediaError::TooLong { bytes });
    }
    for one in media {
        let Ok(content) = STANDARD.decode(&*one.data) else {
            return Err(MediaError::Unknown {
                name: one.name.clone(),
            });
        };
        match media_type(&content) {
            Some(found) if found == one.media_type => {}
            Some(_) => {
                return Err(MediaError::Mislabelled {
                    name: one.name.clone(),
                    said: one.media_type.clone(),
                });
            }
            None => {
                return Err(MediaError::Unknown {
                    name: one.name.clone(),
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_by_their_content() {
        let png = attach("a.txt", b"\x89PNG\r\n\x1a\n....").unwrap();
        assert_eq!(
            (
                png.media_type.as_str(),
                size(&png),
                check(std::slice::from_ref(&png))
            ),
            ("image/png", 12, Ok(()))
        );
        for (bytes, kind) in [
            (&b"\xff\xd8\xff\xe0"[..], "image/jpeg"),
            (b"GIF89a", "image/gif"),
            (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
            (b"%PDF-1.7", "application/pdf"),
        ] {
            assert_eq!(attach("x", bytes).unwrap().media_type, kind);
        }
        assert_eq!(
            attach("notes.md", b"# Notes"),
            Err(MediaError::Unknown {
                name: "notes.md".into()
            })
        );
    }

    #[test]
    fn what_is_too_long_or_mislabelled_is_refused() {
        let mut long = b"%PDF-1.7".to_vec();
        long.resize(MAX_MEDIA + 1, b'x');
        assert_eq!(
            attach("a.pdf", &long),
            Err(MediaError::TooLong {
                bytes: MAX_MEDIA + 1
            })
        );
        long.truncate(MAX_MEDIA / 2 + 9);
        let half = attach("a.pdf", &long).unwrap();
        assert!(matches!(
            check(&[half.clone(), half.clone()]),
            Err(MediaError::TooLong { .. })
        ));
        let wrong = Media {
            media_type: "image/png".into(),
            ..half.clone()
        };
        assert!(matches!(
            check(&[wrong]),
            Err(MediaError::Mislabelled { .. })
        ));
        let broken = Media {
            data: "no base64!".into(),
            ..half
        };
        assert!(matches!(check(&[broken]), Err(MediaError::Unknown { .. })));
    }
}
