//! Counting tokens as a model's vendor does: by its own vocabulary where that is public, by an estimate elsewhere.
//!
//! A vocabulary takes about 25 MB and a quarter of a second when it is first used, so it is loaded only when a count
//! is asked for, once per process. Whoever counts asks [`Tokens::rough`] first and [`Tokens::exact`] only when the
//! answer would decide something, off the threads that serve others.

mod known;
mod media;

use tenure_core::compaction::{TokenCounter, rough};
use tenure_core::request::Media;

/// Text is counted in pieces of so many bytes: a tokenizer takes more than linear time and much memory for one long
/// word, and nobody's text is to be trusted not to be one. A cut costs at most a token or two.
const PIECE: usize = 16 * 1024;

/// A public vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vocabulary {
    O200k,
    Cl100k,
}

impl Vocabulary {
    /// The vocabulary of a model by its name at whatever provider serves it; `openai/gpt-4o` is `gpt-4o`.
    fn of(model: &str) -> Option<Self> {
        let name = model
            .rsplit('/')
            .next()
            .unwrap_or(model)
            .to_ascii_lowercase();
        let begins = |words: &[&str]| words.iter().any(|word| name.starts_with(word));
        let newer = [
            "gpt-4o",
            "chatgpt-4o",
            "gpt-4.1",
            "gpt-4.5",
            "gpt-5",
            "gpt-oss",
            "o1",
            "o3",
            "o4-mini",
            "codex",
        ];
        if begins(&newer) {
            Some(Self::O200k)
        } else if begins(&["gpt-4", "gpt-3.5", "gpt-35"]) {
            Some(Self::Cl100k)
        } else {
            None
        }
    }

    fn encoding(self) -> Option<&'static tiktoken::CoreBpe> {
        tiktoken::get_encoding(match self {
            Self::O200k => "o200k_base",
            Self::Cl100k => "cl100k_base",
        })
    }
}

/// How one model's tokens are counted. Cheap to make; nothing is loaded by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tokens {
    vocabulary: Option<Vocabulary>,
    media: media::Rules,
}

impl Tokens {
    /// For a model by its name at the provider, asked in `protocol`.
    pub fn of(protocol: &str, model: &str) -> Self {
        Self {
            vocabulary: Vocabulary::of(model),
            media: media::Rules::of(protocol, model),
        }
    }

    /// An estimate that loads nothing, with its margin.
    pub fn rough(self) -> impl TokenCounter + Copy + 'static {
        Counter {
            tokens: self,
            exact: false,
        }
    }

    /// The count by the model's own vocabulary; none when that is not public. The first count loads it: ask for it
    /// where blocking for a moment harms nobody.
    pub fn exact(self) -> Option<impl TokenCounter + Copy + 'static> {
        self.vocabulary.map(|_| Counter {
            tokens: self,
            exact: true,
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Counter {
    tokens: Tokens,
    exact: bool,
}

impl TokenCounter for Counter {
    fn text(&self, text: &str) -> u64 {
        let vocabulary = self.tokens.vocabulary.filter(|_| self.exact);
        match vocabulary.and_then(Vocabulary::encoding) {
            Some(encoding) => pieces(text).map(|piece| encoding.count(piece) as u64).sum(),
            None => rough(text),
        }
    }

    fn media(&self, media: &Media) -> u64 {
        self.tokens.media.tokens(media)
    }

    fn margin(&self) -> u64 {
        // What frames messages and tools is not published; text is counted as the vendor does.
        if self.exact { 5 } else { 25 }
    }
}

/// `text` in pieces of at most [`PIECE`] bytes, cut between characters.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = rest.floor_char_boundary(PIECE);
        let (piece, behind) = rest.split_at(end);
        rest = behind;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn exact(model: &str) -> impl TokenCounter {
        Tokens::of("openai-chat", model)
            .exact()
            .expect("a public vocabulary")
    }

    #[test]
    fn models_find_their_vocabulary_whoever_serves_them() {
        for (model, wanted) in [
            ("gpt-4o-2024-08-06", Some(Vocabulary::O200k)),
            ("openai/gpt-5-mini", Some(Vocabulary::O200k)),
            ("o3", Some(Vocabulary::O200k)),
            ("GPT-4.1-nano", Some(Vocabulary::O200k)),
            ("openai/gpt-oss-120b", Some(Vocabulary::O200k)),
            ("gpt-4-turbo", Some(Vocabulary::Cl100k)),
            ("gpt-35-turbo", Some(Vocabulary::Cl100k)),
            ("claude-sonnet-4-5", None),
            ("gemini-2.5-pro", None),
            ("m1", None),
        ] {
            assert_eq!(Vocabulary::of(model), wanted, "{model}");
        }
        assert!(
            Tokens::of("anthropic-messages", "claude-opus-4")
                .exact()
                .is_none()
        );
    }

    #[test]
    fn known_texts_have_their_known_counts() {
        // Counts as the vendor publishes them for these vocabularies.
        let o200k = exact("gpt-4o");
        assert_eq!(o200k.text("hello world"), 2);
        assert_eq!(o200k.text(""), 0);
        assert_eq!(exact("gpt-4").text("tiktoken is great!"), 6);
        // Words that mean something to a server are plain text here.
        assert!(o200k.text("<|endoftext|>") > 1);
    }

    /// What agents read and write, and what nobody should.
    fn kinds() -> Vec<(&'static str, String)> {
        let code = include_str!("tokens.rs").to_owned();
        let json: String = (0..200)
            .map(|n| format!("{{\"id\": {n}, \"name\": \"file_{n}.rs\", \"ok\": true}},\n"))
            .collect();
        let log: String = (0..200)
            .map(|n| {
                format!(
                    "2026-03-0{} 12:00:{:02}.{n:06} WARN target::mod: took {n} ms\n",
                    n % 9 + 1,
                    n % 60
                )
            })
            .collect();
        let prose =
            "The quick brown fox jumps over the lazy dog, and nobody knows why it would do so. "
                .repeat(40);
        let hex: String = (0..4_000u64)
            .map(|n| format!("{:02x}", n.wrapping_mul(2_654_435_761) >> 7 & 0xff))
            .collect();
        vec![
            ("code", code),
            ("json", json),
            ("log", log),
            ("prose", prose),
            ("hex", hex),
            (
                "german",
                "Übermäßig größere Flüsse fließen langsamer als schmale Bäche. ".repeat(40),
            ),
            (
                "russian",
                "Быстрая коричневая лиса перепрыгивает через ленивую собаку. ".repeat(40),
            ),
            (
                "chinese",
                "敏捷的棕色狐狸跳过了那只懒狗，没有人知道为什么。".repeat(40),
            ),
            ("emoji", "🙂🚀👩‍💻✅ ".repeat(200)),
        ]
    }

    #[test]
    fn the_estimate_is_near_the_count_for_every_kind_of_text() {
        let counter = exact("gpt-4o");
        for (kind, text) in kinds() {
            let (real, guess) = (counter.text(&text), rough(&text));
            let margin = Tokens::of("", "m").rough().margin();
            assert!(
                guess + guess * margin / 100 >= real,
                "{kind}: {guess} with its margin is below {real}"
            );
            assert!(guess <= real * 5 / 2, "{kind}: {guess} for {real}");
        }
    }

    #[test]
    fn a_word_without_end_takes_no_quadratic_time() {
        let counter = exact("gpt-4o");
        counter.text("loaded before the clock runs");
        for unit in ["a", " ", "\n", "ab\u{301}", "=", "\u{1f600}\u{200d}"] {
            let short = unit.repeat(32 * 1024 / unit.len());
            let long = short.repeat(8);
            let begun = Instant::now();
            let few = counter.text(&short);
            let once = begun.elapsed();
            let begun = Instant::now();
            let many = counter.text(&long);
            let eight = begun.elapsed();
            assert!(
                many >= few * 7 && many <= few * 9,
                "{unit:?}: {few}, {many}"
            );
            // Linear is 8, quadratic 64; a busy machine gets its share.
            assert!(eight < once * 40, "{unit:?}: {once:?}, then {eight:?}");
        }
    }

    #[test]
    fn cutting_into_pieces_loses_nothing() {
        let text = "é".repeat(PIECE);
        assert_eq!(pieces(&text).collect::<String>(), text);
        assert!(pieces(&text).all(|piece| piece.len() <= PIECE));
        assert_eq!(pieces("").count(), 0);
    }
}
