//! What was counted of documents before: each request of a session holds them again, and a scan reads all their bytes.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

/// So many documents are remembered, a few bytes each. The oldest is forgotten.
const MOST: usize = 1024;

/// A document by its content: its length and a keyed hash. Two that share both would share a guess at their tokens,
/// and nobody can make them without the key.
type Content = (usize, u64);

/// Page counts by content.
pub(super) struct Known {
    hasher: RandomState,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    by_content: HashMap<Content, Option<u64>>,
    /// Oldest first.
    order: VecDeque<Content>,
}

impl Known {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            counts: Mutex::default(),
        }
    }

    /// The pages of the document `data`, counted by `count` if they are not known. Nobody waits for another's count.
    pub(super) fn pages(&self, data: &str, count: impl FnOnce() -> Option<u64>) -> Option<u64> {
        let content = (data.len(), self.hasher.hash_one(data));
        let lock = || self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pages) = lock().by_content.get(&content) {
            return *pages;
        }
        let pages = count();
        let mut counts = lock();
        if counts.by_content.insert(content, pages).is_none() {
            counts.order.push_back(content);
        }
        if counts.order.len() > MOST
            && let Some(oldest) = counts.order.pop_front()
        {
            counts.by_content.remove(&oldest);
        }
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_counted_once_and_the_oldest_is_forgotten() {
        let known = Known::new();
        let ask = |data: &str, pages| {
            let mut counted = false;
            let told = known.pages(data, || {
                counted = true;
                pages
            });
            (told, counted)
        };
        assert_eq!(ask("a", Some(3)), (Some(3), true));
        assert_eq!(ask("b", None), (None, true));
        assert_eq!(ask("a", Some(9)), (Some(3), false));
        assert_eq!(
            ask("b", Some(9)),
            (None, false),
            "that nothing is told is known, too"
        );
        for n in 2..MOST {
            assert!(ask(&n.to_string(), Some(1)).1);
        }
        assert!(!ask("a", Some(9)).1, "all of them fit");
        assert!(ask("one more", Some(1)).1);
        assert_eq!(ask("a", Some(9)), (Some(9), true));
        assert_eq!(known.counts.lock().unwrap().order.len(), MOST);
    }
}
