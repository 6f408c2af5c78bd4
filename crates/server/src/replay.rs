//! Numbers used once, remembered within a bound that is safe without a clock.
//!
//! For each caller a window over its counters is kept. Callers come and go (each command is one), so when a
//! generation has seen enough of them a new one begins, and the last but one is forgotten *together with the
//! right to use it*: a request of a forgotten generation is refused, and a living caller signs again under the
//! current one. So nothing that was ever accepted can be accepted again in this life of the receiver.

use crate::auth::Nonce;
use std::collections::HashMap;
use tenure_core::id::Incarnation;

/// Counters behind a caller's newest that may still arrive.
const WINDOW: u64 = 1024;
const WORDS: usize = (WINDOW / 64) as usize;

/// Why a number was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It was used, or is too old to know.
    Used,
    /// Its generation is not remembered: sign again under this one.
    Generation(u64),
}

/// The counters seen of one caller.
#[derive(Debug, Clone)]
struct Window {
    newest: u64,
    /// Bit `c % WINDOW` is set when counter `c` of the window was used.
    used: [u64; WORDS],
}

impl Window {
    fn new(first: u64) -> Self {
        let mut window = Self {
            newest: first,
            used: [0; WORDS],
        };
        window.mark(first);
        window
    }

    fn place(counter: u64) -> (usize, u64) {
        let bit = counter % WINDOW;
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    fn mark(&mut self, counter: u64) {
        let (word, bit) = Self::place(counter);
        self.used[word] |= bit;
    }

    /// True the first time.
    fn take(&mut self, counter: u64) -> bool {
        if counter > self.newest {
            if counter - self.newest >= WINDOW {
                self.used = [0; WORDS];
            } else {
                for skipped in self.newest + 1..counter {
                    let (word, bit) = Self::place(skipped);
                    self.used[word] &= !bit;
                }
            }
            self.newest = counter;
            self.mark(counter);
            return true;
        }
        let (word, bit) = Self::place(counter);
        if self.newest - counter >= WINDOW || self.used[word] & bit != 0 {
            return false;
        }
        self.mark(counter);
        true
    }
}

/// What one life of a receiver has accepted.
#[derive(Debug)]
pub(crate) struct Replays {
    generation: u64,
    current: HashMap<Incarnation, Window>,
    last: HashMap<Incarnation, Window>,
    callers: usize,
}

impl Replays {
    /// Begins a new generation after this many callers.
    pub fn new(callers: usize) -> Self {
        Self {
            generation: 0,
            current: HashMap::new(),
            last: HashMap::new(),
            callers,
        }
    }

    /// Accepts nothing any more.
    pub fn closed() -> Self {
        Self {
            generation: u64::MAX,
            ..Self::new(0)
        }
    }

    /// Takes a number, once.
    ///
    /// # Errors
    /// It was used before, or may have been.
    pub fn take(&mut self, from: &Incarnation, nonce: Nonce) -> Result<(), Refused> {
        let current = nonce.generation == self.generation;
        if current && self.current.contains_key(from) {
            return admit(&mut self.current, from, nonce.counter);
        }
        let last = nonce.generation.checked_add(1) == Some(self.generation);
        if last && self.last.contains_key(from) {
            return admit(&mut self.last, from, nonce.counter);
        }
        // Somebody new in a generation: one that is full takes nobody, and is followed by one that does.
        if self.current.len() >= self.callers {
            self.last = std::mem::take(&mut self.current);
            self.generation = self.generation.saturating_add(1);
        } else if current {
            return admit(&mut self.current, from, nonce.counter);
        }
        Err(Refused::Generation(self.generation))
    }
}

fn admit(
    callers: &mut HashMap<Incarnation, Window>,
    from: &Incarnation,
    counter: u64,
) -> Result<(), Refused> {
    let fresh = match callers.get_mut(from) {
        Some(window) => window.take(counter),
        None => {
            callers.insert(from.clone(), Window::new(counter));
            true
        }
    };
    fresh.then_some(()).ok_or(Refused::Used)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn nonce(generation: u64, counter: u64) -> Nonce {
        Nonce {
            generation,
            counter,
        }
    }

    fn caller(n: u128) -> Incarnation {
        Incarnation::from_bits(n)
    }

    #[test]
    fn each_number_is_taken_once_in_any_order() {
        let mut replays = Replays::new(8);
        let from = caller(1);
        for counter in [5, 3, 4, 1_000, 6, 1_028] {
            assert_eq!(replays.take(&from, nonce(0, counter)), Ok(()), "{counter}");
            let again = replays.take(&from, nonce(0, counter));
            assert_eq!(again, Err(Refused::Used), "{counter}");
        }
        assert_eq!(replays.take(&from, nonce(0, 4)), Err(Refused::Used));
        assert_eq!(
            replays.take(&from, nonce(0, 2)),
            Err(Refused::Used),
            "too old to know"
        );
        assert_eq!(
            replays.take(&from, nonce(0, 7)),
            Ok(()),
            "within the window"
        );
        assert_eq!(
            replays.take(&caller(2), nonce(0, 7)),
            Ok(()),
            "another caller"
        );
    }

    #[test]
    fn a_far_jump_forgets_nothing_that_could_come_again() {
        let mut replays = Replays::new(8);
        let from = caller(1);
        for counter in [1, 2, 1_000_000] {
            replays.take(&from, nonce(0, counter)).unwrap();
        }
        for counter in [1, 2, 1_000_000] {
            assert_eq!(replays.take(&from, nonce(0, counter)), Err(Refused::Used));
        }
        assert_eq!(replays.take(&from, nonce(0, 999_999)), Ok(()));
    }

    /// Many short-lived callers, each of which learns the generation when it is told: memory stays bounded, and
    /// of all requests ever accepted none is accepted again.
    #[test]
    fn nothing_accepted_is_accepted_again_in_bounded_memory() {
        let mut replays = Replays::new(16);
        let mut accepted: Vec<(Incarnation, Nonce)> = Vec::new();
        let mut generation = 0;
        for n in 0..1_000u64 {
            let from = caller(u128::from(n % 300));
            let mut number = nonce(generation, n);
            if let Err(Refused::Generation(now)) = replays.take(&from, number) {
                generation = now;
                number = nonce(now, n);
                assert_eq!(replays.take(&from, number), Ok(()), "{n}");
            }
            accepted.push((from, number));
            assert!(replays.current.len() <= 16 && replays.last.len() <= 16);
        }
        assert!(generation > 10, "it was put to the test: {generation}");
        let before = replays.generation;
        let distinct: HashSet<String> = accepted.iter().map(|a| format!("{a:?}")).collect();
        assert_eq!(distinct.len(), accepted.len());
        for (from, number) in &accepted {
            assert_ne!(replays.take(from, *number), Ok(()), "{number:?}");
        }
        assert!(replays.generation <= before + 1);
    }
}
