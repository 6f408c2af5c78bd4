//! What can go wrong with a service, by what the person who runs the tests can do about it.

use std::io;
use std::time::Duration;

/// Why a service is not there or did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program is not installed. Tests skip themselves, and fail where `CI` is set.
    #[error("{program} is not installed; install it and start again: {install}")]
    Missing {
        /// What was looked for.
        program: &'static str,
        /// Debian's command line that brings it.
        install: &'static str,
    },
    /// The operating system refused something.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was tried.
        doing: String,
        /// Its answer.
        source: io::Error,
    },
    /// A program ran and failed.
    #[error("{program} failed: {detail}")]
    Failed {
        /// Which one.
        program: String,
        /// Its last words.
        detail: String,
    },
    /// The database refused a statement or a connection.
    #[error("PostgreSQL refused `{statement}`: {detail}")]
    Refused {
        /// The statement, or what was tried.
        statement: String,
        /// The server's words.
        detail: String,
    },
    /// Something did not become true in time.
    #[error("waited {waited:?} for {what}, in vain{detail}")]
    Late {
        /// What was waited for.
        what: String,
        /// For how long.
        waited: Duration,
        /// What was seen instead; empty, or begins with a colon.
        detail: String,
    },
    /// A value that a test handed in makes no sense.
    #[error("{0}")]
    Wrong(String),
}

impl Error {
    /// Turns an operating system's refusal into an error that says what was tried; for `map_err`.
    pub fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let doing = doing.into();
        move |source| Error::System { doing, source }
    }

    /// Is it only that a program is not installed?
    pub fn is_missing(&self) -> bool {
        matches!(self, Error::Missing { .. })
    }
}
