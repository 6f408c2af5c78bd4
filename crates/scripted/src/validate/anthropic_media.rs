//! The rules of Anthropic Messages requests: images and documents.

use serde_json::Value;

use super::Report;
use super::media;
use super::shape::{given, text_of};

/// The longest base64 of one image.
const MAX_IMAGE: usize = 5 * 1024 * 1024;
/// Pixels on a side; fewer when a request holds many images.
const MAX_SIDE: u32 = 8000;
const MAX_SIDE_OF_MANY: u32 = 2000;
const MANY: usize = 20;
const MAX_IMAGES: usize = 100;

pub(super) fn check_source(block: &Value, at: &str, report: &mut Report) {
    let source = block.get("source").unwrap_or(&Value::Null);
    let data = text_of(source, "data");
    let media_type = text_of(source, "media_type");
    let at = format!("{at}.source");
    let image = text_of(block, "type") == "image";
    let shaped = match text_of(source, "type") {
        "base64" => !data.is_empty() && !media_type.is_empty(),
        "text" => !image && !data.is_empty() && media_type == "text/plain",
        "url" => !text_of(source, "url").is_empty(),
        "file" => !text_of(source, "file_id").is_empty(),
        "content" => !image && given(source, "content").is_some(),
        _ => false,
    };
    let shaped = report.check(shaped, "anthropic.source", &at, || {
        "source is base64 or text with media_type and data, or url, file, content".into()
    });
    if !shaped || text_of(source, "type") != "base64" {
        return;
    }
    if image {
        let long = data.len() > MAX_IMAGE;
        report.check(!long, "anthropic.image_size", &at, || {
            format!(
                "image exceeds 5 MB maximum: {} bytes > {MAX_IMAGE} bytes",
                data.len()
            )
        });
        let fault = media::image_fault(media_type, data);
        report.check(fault.is_none(), "anthropic.image", &at, || {
            fault.unwrap_or_default()
        });
    } else {
        let fault = match media_type {
            "application/pdf" => media::pdf_fault(data),
            other => Some(format!(
                "a base64 document is application/pdf, got {other:?}"
            )),
        };
        report.check(fault.is_none(), "anthropic.document", &at, || {
            fault.unwrap_or_default()
        });
    }
}

/// What holds for all images of a request together.
pub(super) fn check_all(messages: &[Value], report: &mut Report) {
    let mut images: Vec<(String, &Value)> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let blocks = message.get("content").and_then(Value::as_array);
        collect(
            blocks.map_or(&[], Vec::as_slice),
            &format!("messages[{index}].content"),
            &mut images,
        );
    }
    report.check(
        images.len() <= MAX_IMAGES,
        "anthropic.image_count",
        "messages",
        || {
            format!(
                "a request may hold {MAX_IMAGES} images, this one has {}",
                images.len()
            )
        },
    );
    let side = if images.len() > MANY {
        MAX_SIDE_OF_MANY
    } else {
        MAX_SIDE
    };
    for (at, image) in &images {
        let source = image.get("source").unwrap_or(&Value::Null);
        let size = media::png_size(text_of(source, "data"));
        let fits = size.is_none_or(|(wide, high)| wide <= side && high <= side);
        report.check(fits, "anthropic.image_pixels", at, || {
            format!("image dimensions exceed max allowed size: {side} pixels")
        });
    }
}

fn collect<'a>(blocks: &'a [Value], at: &str, images: &mut Vec<(String, &'a Value)>) {
    for (index, block) in blocks.iter().enumerate() {
        let at = format!("{at}[{index}]");
        match text_of(block, "type") {
            "image" => images.push((at, block)),
            "tool_result" => {
                let inner = block.get("content").and_then(Value::as_array);
                collect(inner.map_or(&[], Vec::as_slice), &at, images);
            }
            _ => {}
        }
    }
}
