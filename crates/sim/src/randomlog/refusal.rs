//! What vendors refuse a request for before they answer a word of it, in each one's own words.

use super::Tape;
use super::model::{Asked, BEDROCK, CHAT, GEMINI, RESPONSES};
use tenure_core::{ErrorClass, ProviderError};

/// A refusal of the request at hand: most speak of state or of pictures, whether or not there are any.
pub(super) fn refusal(tape: &mut Tape, asked: &Asked) -> ProviderError {
    let said = match tape.pick(7) {
        0..=2 => state(asked),
        3 | 4 => "Could not process image",
        5 => "Request contains an invalid argument.",
        _ => "Your organization must be verified to generate reasoning summaries.",
    };
    ProviderError::new(ErrorClass::InvalidRequest, said)
}

/// Its own state no longer holds.
fn state(asked: &Asked) -> &'static str {
    match asked.protocol {
        RESPONSES => "The encrypted content gAAA...Rg== could not be verified.",
        CHAT => "property 'reasoning_content' is unsupported",
        GEMINI => "Corrupted thought signature.",
        BEDROCK => {
            "The model returned the following errors: messages.1.content.0: Invalid `signature` in `thinking` block"
        }
        _ => "messages.1.content.0: Invalid `signature` in `thinking` block",
    }
}
