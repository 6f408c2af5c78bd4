//! What images and documents cost in tokens, by the vendors' published rules; where a rule depends on what cannot be
//! seen from here, the larger figure counts.

use super::known::Known;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::sync::LazyLock;
use tenure_core::compaction::media_bound;
use tenure_core::request::Media;

/// Characters of base64 that are looked at for an image's size: headers stand at the beginning, behind what cameras
/// write.
const HEAD: usize = 512 * 1024;

/// Whose rules apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rules {
    Anthropic,
    Openai,
    Gemini,
    Unknown,
}

impl Rules {
    pub(super) fn of(protocol: &str, model: &str) -> Self {
        let model = model.to_ascii_lowercase();
        let name = model.rsplit('/').next().unwrap_or(&model);
        if model.contains("claude") || protocol == "anthropic-messages" {
            Self::Anthropic
        } else if name.starts_with("gemini") || protocol == "gemini" {
            Self::Gemini
        } else if ["gpt-", "o1", "o3", "o4", "chatgpt"]
            .iter()
            .any(|word| name.starts_with(word))
        {
            Self::Openai
        } else {
            Self::Unknown
        }
    }

    pub(super) fn tokens(self, media: &Media) -> u64 {
        if media.media_type.starts_with("image/") {
            dimensions(media).map_or_else(|| media_bound(media), |(w, h)| self.image(w, h))
        } else if media.media_type == "application/pdf" {
            pages(media).map_or_else(|| media_bound(media), |pages| pages * self.page())
        } else {
            media_bound(media)
        }
    }

    fn image(self, width: u64, height: u64) -> u64 {
        match self {
            // A pixel count over 750, of an image scaled down to what the model reads: 4,784 tokens at most.
            Self::Anthropic => (width * height).div_ceil(750).clamp(1, 4_784),
            Self::Openai => openai_image(width, height),
            // 258 for each tile of 768 pixels; newer models count up to 1,120 for a whole image.
            Self::Gemini => (width.div_ceil(768) * height.div_ceil(768) * 258)
                .clamp(258, 8_000)
                .max(1_120),
            Self::Unknown => 5_000,
        }
    }

    /// A page of a document: its text, and its picture.
    fn page(self) -> u64 {
        match self {
            Self::Anthropic | Self::Unknown => 3_000 + 1_600,
            Self::Openai => 1_500 + 1_105,
            Self::Gemini => 560,
        }
    }
}

/// The larger of two rules: tiles of 512 pixels at 170 tokens, and patches of 32 pixels of which small models count
/// each as up to 2.46.
fn openai_image(width: u64, height: u64) -> u64 {
    let (long, short) = (width.max(height).max(1), width.min(height).max(1));
    // Scaled to fit 2048 pixels, then the short side to 768.
    let (long, short) = if long > 2_048 {
        (2_048, (short * 2_048 / long).max(1))
    } else {
        (long, short)
    };
    let (long, short) = if short > 768 {
        (long * 768 / short, 768)
    } else {
        (long, short)
    };
    let tiles = 85 + 170 * long.div_ceil(512) * short.div_ceil(512);
    let patches = (width.div_ceil(32) * height.div_ceil(32)).min(1_536) * 246 / 100;
    tiles.max(patches)
}

fn dimensions(media: &Media) -> Option<(u64, u64)> {
    let size = imagesize::blob_size(&decoded(media, HEAD)?).ok()?;
    let bounded = |n: usize| u64::try_from(n).ok().filter(|n| (1..1 << 24).contains(n));
    Some((bounded(size.width)?, bounded(size.height)?))
}

fn decoded(media: &Media, most: usize) -> Option<Vec<u8>> {
    let data = media.data.as_bytes();
    let end = data.len().min(most) / 4 * 4;
    STANDARD.decode(data.get(..end)?).ok()
}

/// A dictionary of a PDF that is open.
#[derive(Default)]
struct Dictionary {
    page_tree: bool,
    count: u64,
}

/// Dictionaries inside each other that are followed; more are no document.
const DEPTH: usize = 64;

/// The pages of documents that this process counted.
static KNOWN: LazyLock<Known> = LazyLock::new(Known::new);

/// As [`scan`], once for each document.
fn pages(media: &Media) -> Option<u64> {
    KNOWN.pages(&media.data, || scan(media))
}

/// The pages a PDF says it has, where it says so in plain words; many write it compressed. Only the page tree tells:
/// bookmarks and others have counts, too. One pass, whatever the bytes are.
fn scan(media: &Media) -> Option<u64> {
    let bytes = decoded(media, usize::MAX)?;
    let (mut counted, mut single, mut next) = (0, 0, 0);
    let mut open: Vec<Dictionary> = Vec::new();
    for at in memchr::memchr3_iter(b'<', b'>', b'/', &bytes) {
        if at < next {
            continue;
        }
        let here = &bytes[at..];
        if here.starts_with(b"<<") {
            next = at + 2;
            // An object begins anew, whatever the packed bytes before it looked like.
            let anew = bytes[..at].trim_ascii_end().ends_with(b"obj");
            if anew || open.len() >= DEPTH {
                open.clear();
            }
            open.push(Dictionary::default());
        } else if here.starts_with(b">>") {
            next = at + 2;
            if let Some(ended) = open.pop().filter(|ended| ended.page_tree) {
                counted = counted.max(ended.count);
            }
        } else if let Some(rest) = after_name(here, b"/Type") {
            let kind = rest.trim_ascii_start();
            let tree = after_name(kind, b"/Pages").is_some();
            single += u64::from(after_name(kind, b"/Page").is_some());
            if let Some(inner) = open.last_mut().filter(|_| tree) {
                inner.page_tree = true;
            }
        } else if let Some(rest) = after_name(here, b"/Count")
            && let Some(inner) = open.last_mut()
        {
            inner.count = number(rest);
        }
    }
    // Whatever it says: a page takes more bytes than that.
    let pages = counted.max(single).min(bytes.len() as u64 / 16);
    (pages > 0).then_some(pages)
}

/// What is behind exactly this name.
fn after_name<'a>(bytes: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let rest = bytes.strip_prefix(name)?;
    let goes_on = rest.first().is_some_and(u8::is_ascii_alphanumeric);
    (!goes_on).then_some(rest)
}

fn number(bytes: &[u8]) -> u64 {
    let digits = bytes
        .trim_ascii_start()
        .iter()
        .take_while(|b| b.is_ascii_digit())
        .take(9);
    digits.fold(0, |n, digit| n * 10 + u64::from(digit - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn media(media_type: &str, bytes: &[u8]) -> Media {
        Media {
            name: "x".to_owned(),
            media_type: media_type.to_owned(),
            data: STANDARD.encode(bytes).into(),
        }
    }

    /// The head of a PNG of that size.
    fn png(width: u32, height: u32) -> Media {
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        bytes.extend(width.to_be_bytes());
        bytes.extend(height.to_be_bytes());
        bytes.extend([8, 2, 0, 0, 0, 0, 0, 0, 0]);
        media("image/png", &bytes)
    }

    #[test]
    fn images_cost_what_the_vendors_say() {
        assert_eq!(Rules::Anthropic.tokens(&png(1_092, 1_092)), 1_590);
        assert_eq!(Rules::Anthropic.tokens(&png(20_000, 20_000)), 4_784);
        // Four tiles are 765; the patches of a small model are more.
        assert_eq!(openai_image(1_024, 1_024), 1_024 * 246 / 100);
        assert_eq!(openai_image(1, 1), 255);
        assert!(Rules::Gemini.tokens(&png(300, 300)) >= 258);
        // What cannot be read costs what the largest image does.
        assert_eq!(
            Rules::Anthropic.tokens(&media("image/png", b"nothing")),
            5_000
        );
        let odd = Media {
            data: "no base64 !".into(),
            ..png(1, 1)
        };
        assert_eq!(Rules::Openai.tokens(&odd), 5_000);
    }

    #[test]
    fn documents_cost_by_their_pages_or_by_their_size() {
        let three =
            b"%PDF-1.4 <</Kids [1 0 R] /Type /Pages /Count 3>> <</Type /Page>> <</Type/Page>>";
        assert_eq!(
            Rules::Anthropic.tokens(&media("application/pdf", three)),
            3 * 4_600
        );
        let packed = media("application/pdf", &vec![7; 1_000_000]);
        assert!(Rules::Anthropic.tokens(&packed) > 40_000);
        let huge = b"<</Type /Pages /Count 99999999999999999999>>";
        assert_eq!(pages(&media("application/pdf", huge)), Some(2));
    }

    #[test]
    fn only_the_page_tree_counts_the_pages_of_a_document() {
        let told = |text: &str| pages(&media("application/pdf", text.as_bytes()));
        let body = "%PDF-1.7\n".to_owned() + &"% filler\n".repeat(200);
        let tree = "2 0 obj\n<< /Resources << /Font << /F1 5 0 R >> /Count 900 >>\n/Type /Pages /Kids [3 0 R]\n/Count 12 >>";
        let marks =
            "9 0 obj << /Type /Outlines /First 10 0 R /Count 5000 >> << /Title (x) /Count -77 >>";
        assert_eq!(told(&format!("{body}{marks}{tree}")), Some(12));
        assert_eq!(told(&format!("{body}{tree}{marks}")), Some(12));
        // Inner nodes of the tree count fewer than its root.
        let inner = "<</Type/Pages/Parent 2 0 R/Count 6>>";
        assert_eq!(told(&format!("{body}{inner}{tree}{inner}")), Some(12));
        assert_eq!(told(&format!("{body}{marks}")), None);
        assert_eq!(told(&format!("{body}<</Type /PageLabel /Count 7>>")), None);
        // No dictionary, or one without end, tells nothing and breaks nothing.
        assert_eq!(told(&format!("{body}>> /Type /Pages /Count 7")), None);
        assert_eq!(told(&format!("{body}<</Type /Pages <<<<<< /Count 7")), None);
        assert_eq!(told(&format!("{body}<</Type /Pages /Count")), None);
    }

    #[test]
    fn the_rules_follow_the_model_through_any_protocol() {
        assert_eq!(
            Rules::of("openai-chat", "anthropic/claude-3.5-sonnet"),
            Rules::Anthropic
        );
        assert_eq!(
            Rules::of("bedrock-converse", "us.anthropic.claude-opus-4"),
            Rules::Anthropic
        );
        assert_eq!(Rules::of("openai-responses", "gpt-5"), Rules::Openai);
        assert_eq!(Rules::of("gemini", "x"), Rules::Gemini);
        assert_eq!(Rules::of("openai-chat", "qwen3"), Rules::Unknown);
    }
}
