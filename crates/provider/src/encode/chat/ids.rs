//! Tool call ids as the server takes them, unique in the request, the same in every request of a log.

use super::super::shape::legal_id;
use crate::dialect::Ids;
use std::collections::HashSet;

const NINE: usize = 9;

/// Gives each call its id, in the order of the conversation.
pub(super) struct Issued {
    rule: Ids,
    taken: HashSet<String>,
}

impl Issued {
    pub fn new(rule: Ids) -> Self {
        Self {
            rule,
            taken: HashSet::new(),
        }
    }

    /// The id to send for a call named `id`. Calls later in the conversation never change earlier ids.
    pub fn issue(&mut self, id: &str) -> String {
        let mut candidate = legal(id, self.rule);
        let mut n = 1_u32;
        while !self.taken.insert(candidate.clone()) {
            n += 1;
            candidate = legal(&format!("{id} {n}"), self.rule);
        }
        candidate
    }
}

fn legal(id: &str, rule: Ids) -> String {
    match rule {
        Ids::Words(limit) => legal_id(id, limit).into_owned(),
        Ids::Printable(limit) => {
            let printable = !id.is_empty() && id.len() <= limit;
            if printable && id.bytes().all(|b| b.is_ascii_graphic()) {
                id.to_owned()
            } else {
                legal_id(id, limit).into_owned()
            }
        }
        Ids::Nine if id.len() == NINE && id.bytes().all(|b| b.is_ascii_alphanumeric()) => {
            id.to_owned()
        }
        Ids::Nine => nine(id),
    }
}

/// Nine letters and digits from a hash of the id.
fn nine(id: &str) -> String {
    const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (0..NINE)
        .map(|_| {
            let at = usize::try_from(hash % 62).unwrap_or_default();
            hash /= 62;
            char::from(LETTERS[at])
        })
        .collect()
}
