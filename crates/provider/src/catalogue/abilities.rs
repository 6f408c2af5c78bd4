//! What a model is known to be able to do.

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

/// A set of abilities. One that is not in it is not known to be there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Abilities(u8);

impl Abilities {
    /// With one more.
    #[must_use]
    pub fn with(self, ability: Ability) -> Self {
        Self(self.0 | 1 << ability as u8)
    }

    /// Is it in the set?
    pub fn has(self, ability: Ability) -> bool {
        self.0 & (1 << ability as u8) != 0
    }

    /// Those in the set.
    pub fn iter(self) -> impl Iterator<Item = Ability> {
        Ability::ALL.into_iter().filter(move |a| self.has(*a))
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
