//! The words of the configuration for what is asked of a model beside the conversation.

use tenure_core::request::{Effort, HostedTool};
use tenure_provider::CacheTime;

/// All efforts, from the least.
const EFFORTS: [Effort; 4] = [Effort::Off, Effort::Low, Effort::Medium, Effort::High];
/// All tools a provider may run.
const HOSTED: [HostedTool; 2] = [HostedTool::WebSearch, HostedTool::CodeExecution];

/// The effort of this name.
pub fn effort(word: &str) -> Option<Effort> {
    EFFORTS.into_iter().find(|effort| effort.as_str() == word)
}

/// The hosted tool of this name.
pub fn hosted(word: &str) -> Option<HostedTool> {
    HOSTED.into_iter().find(|tool| tool.as_str() == word)
}

/// The time in the provider's cache of this name.
pub fn cache_time(word: &str) -> Option<CacheTime> {
    match word {
        "usual" => Some(CacheTime::Usual),
        "1h" => Some(CacheTime::Hour),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_back() {
        for one in EFFORTS {
            assert_eq!(effort(one.as_str()), Some(one));
        }
        for one in HOSTED {
            assert_eq!(hosted(one.as_str()), Some(one));
        }
        assert_eq!((effort("max"), hosted("bash")), (None, None));
    }
}
