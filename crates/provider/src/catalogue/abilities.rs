//! What a model is known to be able to do, and not to be able to do.

use std::fmt;

/// One ability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// It calls tools.
    Tools,
    /// It reasons before it answers.
    Reasoning,
    /// It answers by a JSON Schema.
    StructuredOutput,
    /// It sees images.
    Images,
    /// It reads PDF documents.
    Pdf,
    /// It hears audio.
    Audio,
}

impl Ability {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Tools,
        Self::Reasoning,
        Self::StructuredOutput,
        Self::Images,
        Self::Pdf,
        Self::Audio,
    ];

    fn bit(self) -> u8 {
        1 << self as u8
    }

    /// The word in tables and the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Reasoning => "reasoning",
            Self::StructuredOutput => "structured_output",
            Self::Images => "images",
            Self::Pdf => "pdf",
            Self::Audio => "audio",
        }
    }

    /// The ability of this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.as_str() == word)
    }
}

/// What stands before an ability that is known not to be there, in tables.
const NOT: char = '!';

/// A set of abilities. One that is not in it is not known to be there, and may be known not to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Abilities {
    has: u8,
    lacks: u8,
}

impl Abilities {
    /// With one more.
    #[must_use]
    pub fn with(self, ability: Ability) -> Self {
        Self {
            has: self.has | ability.bit(),
            lacks: self.lacks & !ability.bit(),
        }
    }

    /// With one that is known not to be there.
    #[must_use]
    pub fn without(self, ability: Ability) -> Self {
        Self {
            has: self.has & !ability.bit(),
            lacks: self.lacks | ability.bit(),
        }
    }

    /// As somebody lists them who leaves out what is not there.
    #[must_use]
    pub fn complete(self) -> Self {
        let missing = Ability::ALL.into_iter().filter(|a| !self.has(*a));
        missing.fold(self, Self::without)
    }

    /// Is it in the set?
    pub fn has(self, ability: Ability) -> bool {
        self.has & ability.bit() != 0
    }

    /// Is it known not to be there?
    pub fn lacks(self, ability: Ability) -> bool {
        self.lacks & ability.bit() != 0
    }

    /// Those in the set.
    pub fn iter(self) -> impl Iterator<Item = Ability> {
        Ability::ALL.into_iter().filter(move |a| self.has(*a))
    }

    /// The set with one word of a table; a word of a newer version changes nothing.
    pub(super) fn and_word(self, word: &str) -> Self {
        let lacked = word.strip_prefix(NOT);
        match (lacked, Ability::parse(lacked.unwrap_or(word))) {
            (None, Some(ability)) => self.with(ability),
            (Some(_), Some(ability)) => self.without(ability),
            (_, None) => self,
        }
    }

    /// The words of a table.
    pub(super) fn words(self) -> String {
        let lacked = Ability::ALL.into_iter().filter(|a| self.lacks(*a));
        let has = self.iter().map(|a| a.as_str().to_owned());
        let words: Vec<String> = has
            .chain(lacked.map(|a| format!("{NOT}{}", a.as_str())))
            .collect();
        words.join(",")
    }
}

impl FromIterator<Ability> for Abilities {
    fn from_iter<I: IntoIterator<Item = Ability>>(abilities: I) -> Self {
        abilities.into_iter().fold(Self::default(), Self::with)
    }
}

impl fmt::Display for Abilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.iter().map(Ability::as_str).collect();
        f.write_str(&words.join(","))
    }
}
