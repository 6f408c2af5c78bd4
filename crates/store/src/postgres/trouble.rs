//! What went wrong with the server, by what it means for what was asked: lost, refused, or never begun.

use super::place::Place;
use crate::error::{OpenError, ReadError};
use tokio_postgres::error::{Severity, SqlState};

/// A statement that came to nothing. Its words never hold a password: they are the server's or the system's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The connection is gone: what was under way may have happened.
    Lost(String),
    /// The server refused it and goes on: nothing of that transaction stands.
    Refused {
        /// SQLSTATE.
        code: String,
        words: String,
    },
    /// A newer version of this program has changed the schema: nothing was written, and nothing more is to be.
    Newer(String),
}

impl Trouble {
    pub(super) fn lost(words: impl Into<String>) -> Self {
        Self::Lost(words.into())
    }

    pub(super) fn words(&self) -> String {
        match self {
            Self::Lost(words) | Self::Newer(words) => words.clone(),
            Self::Refused { code, words } => told(code, words),
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }

    /// Is it the server's, and not one of the statements'? Then trying them one by one only makes it worse.
    pub(super) fn is_for_all(&self) -> bool {
        let Self::Refused { code, .. } = self else {
            return true;
        };
        // No resources, ended by an operator or a time limit, a failing system, read-only, missing rights or tables.
        let class = code.get(..2).unwrap_or_default();
        matches!(class, "53" | "57" | "58" | "XX" | "25" | "3F")
            || matches!(code.as_str(), "42501" | "42P01" | "42703" | "42883")
    }

    pub(super) fn is(&self, state: &SqlState) -> bool {
        matches!(self, Self::Refused { code, .. } if code == state.code())
    }
}

/// What the server said, and what to do about it where there is something to do.
fn told(code: &str, words: &str) -> String {
    let advice = match code {
        "53100" => "the server's disk is full; free some space there",
        "55P03" => "a row is locked by another connection that does not move; try again",
        "57014" => "it took too long; the server may be overloaded",
        "25006" => {
            "the server is read-only: a standby, or `default_transaction_read_only` is on for it, the database or the role"
        }
        "42501" => "the rights are missing; `tenure doctor` names them",
        "42P01" => "its tables are gone; was the schema dropped?",
        _ => return format!("{words} (SQLSTATE {code})"),
    };
    format!("{words} (SQLSTATE {code}): {advice}")
}

impl From<OpenError> for Trouble {
    /// Why a connection could not be made.
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Newer { .. } => Self::Newer(error.to_string()),
            other => Self::Lost(other.to_string()),
        }
    }
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(db) = error.as_db_error() {
            let code = db.code().code();
            // The server ends the connection after these, whatever it was doing.
            // As the protocol says it: the words for people are in the server's language.
            let fatal = matches!(
                db.parsed_severity(),
                Some(Severity::Fatal | Severity::Panic)
            );
            let ends = fatal
                || matches!(code.get(..2), Some("08"))
                || matches!(code, "57P01" | "57P02" | "57P03" | "25P03");
            return if ends {
                Self::Lost(format!("the server ended the connection: {}", db.message()))
            } else {
                Self::Refused {
                    code: code.to_owned(),
                    words: db.message().to_owned(),
                }
            };
        }
        let words = chain(&error);
        // A value that could not be written or read: the connection is fine, and so is the server.
        if words.starts_with("error serializing") || words.starts_with("error deserializing") {
            return Self::Refused {
                code: "22000".to_owned(),
                words,
            };
        }
        Self::Lost(words)
    }
}

/// The error and what caused it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        words.push_str(": ");
        words.push_str(&cause.to_string());
        next = cause.source();
    }
    words
}

impl From<Trouble> for ReadError {
    fn from(trouble: Trouble) -> Self {
        let reason = trouble.words();
        match trouble {
            Trouble::Newer(_) => Self::Outdated { reason },
            Trouble::Lost(_) | Trouble::Refused { .. } => Self::Unavailable { reason },
        }
    }
}

/// Why a store could not be opened, from a connection that could not be made.
pub(super) fn not_connected(place: &Place, error: &tokio_postgres::Error) -> OpenError {
    let path = place.shown.clone();
    let Some(db) = error.as_db_error() else {
        let detail = chain(error);
        // The server was reached, and asks for what the client does not have.
        if detail.ends_with("password missing") {
            let detail = "it wants a password, and none is given".to_owned();
            return OpenError::NotAdmitted { path, detail };
        }
        return OpenError::Unreachable { path, detail };
    };
    let detail = db.message().to_owned();
    match db.code().code() {
        "28P01" | "28000" => OpenError::NotAdmitted { path, detail },
        "3D000" => OpenError::Other {
            path,
            detail: format!("{detail}; make it with `createdb`"),
        },
        "42501" => OpenError::MissingRights {
            path,
            detail,
            grant: "GRANT CONNECT ON DATABASE … TO …".to_owned(),
        },
        // Starting up, shutting down: it may be different in a moment.
        "57P01" | "57P02" | "57P03" => OpenError::Unreachable { path, detail },
        // Of the server, the database or the role; a pooler has a limit of its own, and no code for it.
        "53300" => OpenError::Crowded { path, detail },
        "08P01" if detail.contains(POOLER_IS_FULL) => OpenError::Crowded { path, detail },
        code => OpenError::Other {
            path,
            detail: format!("{detail} (SQLSTATE {code})"),
        },
    }
}

/// How pgbouncer says that it takes no more clients, and that it hands connections around by the statement. It knows
/// one language.
const POOLER_IS_FULL: &str = "no more connections allowed";
const BY_STATEMENT: &str = "statement pooling";

/// Why a store could not be opened, from a statement that failed while it was.
pub(super) fn not_opened(place: &Place, trouble: &Trouble) -> OpenError {
    let path = place.shown.clone();
    match trouble {
        Trouble::Lost(words) if words.contains(BY_STATEMENT) => OpenError::StatementPooled { path },
        Trouble::Lost(words) => OpenError::Unreachable {
            path,
            detail: words.clone(),
        },
        Trouble::Newer(words) => OpenError::Other {
            path,
            detail: words.clone(),
        },
        Trouble::Refused { code, words } if code == "42501" => OpenError::MissingRights {
            path,
            detail: words.clone(),
            grant: grant(place, words),
        },
        Trouble::Refused { code, words } => OpenError::Other {
            path,
            detail: told(code, words),
        },
    }
}

/// The statement that gives what is missing.
fn grant(place: &Place, words: &str) -> String {
    let user = place.config.get_user().unwrap_or("the_user");
    let schema = &place.schema;
    if words.contains("database") {
        making(place)
    } else {
        format!(
            "GRANT ALL ON SCHEMA \"{schema}\" TO \"{user}\"; GRANT ALL ON ALL TABLES IN SCHEMA \"{schema}\" TO \
             \"{user}\"; GRANT ALL ON ALL SEQUENCES IN SCHEMA \"{schema}\" TO \"{user}\""
        )
    }
}

/// The statement that lets the user make a store.
pub(super) fn making(place: &Place) -> String {
    let user = place.config.get_user().unwrap_or("the_user");
    let database = place.config.get_dbname().unwrap_or("the_database");
    format!("GRANT CREATE ON DATABASE \"{database}\" TO \"{user}\"")
}

/// The statements that give what looking needs, and no more.
pub(super) fn looking(place: &Place) -> String {
    let user = place.config.get_user().unwrap_or("the_user");
    let schema = &place.schema;
    format!(
        "GRANT USAGE ON SCHEMA \"{schema}\" TO \"{user}\"; GRANT SELECT ON ALL TABLES IN SCHEMA \"{schema}\" TO \
         \"{user}\""
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_everybodys_and_a_bad_value_is_not() {
        let refused = |code: &str| Trouble::Refused {
            code: code.to_owned(),
            words: "words".to_owned(),
        };
        for code in [
            "53100", "57014", "58030", "XX001", "25006", "42501", "3F000",
        ] {
            assert!(refused(code).is_for_all(), "{code}");
        }
        for code in ["22021", "23505", "40P01", "55P03", "54000"] {
            assert!(!refused(code).is_for_all(), "{code}");
        }
        assert!(refused("53100").words().contains("free some space"));
    }
}
