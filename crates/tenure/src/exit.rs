//! How a command ends: exit codes, and one error shape that folds every failure to a clear message.

use std::fmt;
use std::io;

/// What an error means for the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The work was tried and failed: 1.
    Failed,
    /// The request itself was wrong; nothing was changed: 2.
    Usage,
    /// The session is set aside: 3.
    Quarantined,
    /// A budget ended the work: 4.
    Budget,
    /// The work was interrupted: 130.
    Interrupted,
    /// Whoever read our output has gone: quiet, 0.
    Quiet,
}

impl Kind {
    /// The process's exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Quarantined => 3,
            Self::Budget => 4,
            Self::Interrupted => 130,
            Self::Quiet => 0,
        }
    }
}

/// What went wrong, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CliError {
    /// Which exit code.
    pub kind: Kind,
    /// What happened.
    pub message: String,
    /// What to do next, one step a line.
    pub hints: Vec<String>,
}

/// The result of a command.
pub type CliResult<T = ()> = Result<T, CliError>;

impl CliError {
    /// An error of `kind` saying `message`.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hints: Vec::new(),
        }
    }

    /// The work was tried and failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Kind::Failed, message)
    }

    /// The request was wrong; nothing was changed.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// Adds a next step.
    pub fn hint(mut self, step: impl Into<String>) -> Self {
        self.hints.push(step.into());
        self
    }

    /// Adds "did you mean" when something near exists.
    pub fn near(self, given: &str, known: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        match nearest(given, known) {
            Some(near) => self.hint(format!("did you mean `{near}`?")),
            None => self,
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        for hint in &self.hints {
            write!(f, "\n  {hint}")?;
        }
        Ok(())
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::new(Kind::Quiet, "the reader of the output has gone")
        } else {
            Self::failed(error.to_string())
        }
    }
}

/// The known word nearest to `given`, if one is near enough to be a likely slip.
pub fn nearest(given: &str, known: impl IntoIterator<Item = impl AsRef<str>>) -> Option<String> {
    let lower = given.to_lowercase();
    known
        .into_iter()
        .filter_map(|word| {
            let word = word.as_ref();
            let score = strsim::jaro_winkler(&lower, &word.to_lowercase());
            (score >= 0.75 && word != given).then(|| (score, word.to_owned()))
        })
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, word)| word)
}

/// A known id that was mistyped: two letters at most are others, or missing, or too many. Ids that were made in the same
/// moment begin alike, and that says nothing.
pub fn mistyped<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|id| (strsim::damerau_levenshtein(given, id), id))
        .filter(|(slips, _)| *slips <= 2)
        .min()
        .map(|(_, id)| id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_documented_ones() {
        let codes: Vec<u8> = [
            Kind::Failed,
            Kind::Usage,
            Kind::Quarantined,
            Kind::Budget,
            Kind::Interrupted,
        ]
        .map(Kind::code)
        .to_vec();
        assert_eq!(codes, [1, 2, 3, 4, 130]);
    }

    #[test]
    fn an_id_of_the_same_moment_is_no_mistyped_one() {
        let known = [
            "ses_01m4xq8k2zabcdefghjkmnpqrs",
            "ses_01m4xq8k2ztvwxyz0123456789",
        ];
        let swapped = "ses_01m4xq8k2zabcdefghjkmnpqsr";
        assert_eq!(mistyped(swapped, known), Some(known[0]));
        assert_eq!(mistyped("ses_01m4xq8k2z7777777777777777", known), None);
    }

    #[test]
    fn the_nearest_word_is_named_only_when_it_is_near() {
        let known = ["default_model", "store", "providers"];
        assert_eq!(
            nearest("defualt_model", known).as_deref(),
            Some("default_model")
        );
        assert_eq!(nearest("zzz", known), None);
    }

    #[test]
    fn a_broken_pipe_is_quiet() {
        let error = CliError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(error.kind, Kind::Quiet);
    }
}
