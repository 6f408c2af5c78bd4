//! Where a PostgreSQL store is: its URL read, with what the driver does not know taken out of it.

use crate::error::OpenError;
use std::path::PathBuf;
use std::time::Duration;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

/// How long a connection may take to be made.
pub(super) const CONNECT: Duration = Duration::from_secs(3);
/// How long sent bytes may stay unacknowledged before the connection counts as lost (R6).
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);
/// Readers' connections, unless the URL says otherwise.
const POOL: usize = 4;

/// How far the server's identity is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Check {
    /// Not at all: encryption alone.
    Nothing,
    /// The certificate's chain.
    Chain,
    /// The chain and the host's name.
    Name,
}

/// A store's place, read from its URL.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) config: tokio_postgres::Config,
    pub(super) check: Check,
    /// PEM file of the certificates to trust; the system's when none is given.
    pub(super) roots: Option<PathBuf>,
    pub(super) schema: String,
    /// Readers' connections at most.
    pub(super) pool: usize,
    /// The URL for people, without its password.
    pub(super) shown: String,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Place").field(&self.shown).finish()
    }
}

fn bad(detail: impl Into<String>) -> OpenError {
    OpenError::BadUrl {
        detail: detail.into(),
    }
}

impl Place {
    /// Reads `postgres://user:password@host:port/database?schema=…&sslmode=…&sslrootcert=…&pool=…`; whatever else
    /// the query holds is for the driver. No error ever repeats the URL: it may hold a password.
    pub(super) fn parse(url: &str) -> Result<Self, OpenError> {
        if !is_url(url) {
            return Err(bad(
                "it does not begin with `postgres://`; write postgres://user@host:5432/database",
            ));
        }
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        if is_ambiguous(base) {
            // What stands where is not known: nothing of it is said again.
            return Err(bad(
                "its user or password holds a character that ends it (`@`, `/` or `#`); percent-encode it, \
                 or leave the password out and set PGPASSWORD",
            ));
        }
        let mut kept = Vec::new();
        let (mut schema, mut pool, mut roots) = ("tenure".to_owned(), POOL, None);
        let (mut ssl, mut check) = (SslMode::Prefer, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "schema" => schema = schema_name(value)?,
                "pool" => {
                    pool = value
                        .parse()
                        .ok()
                        .filter(|n| (1..=1000).contains(n))
                        .ok_or_else(|| bad("`pool` is a number from 1 to 1000"))?;
                }
                "sslrootcert" => roots = Some(PathBuf::from(unescape(value))),
                "sslmode" => (ssl, check) = ssl_mode(value)?,
                _ => kept.push(pair),
            }
        }
        let mut rest = base.to_owned();
        if !kept.is_empty() {
            rest.push('?');
            rest.push_str(&kept.join("&"));
        }
        let mut config: tokio_postgres::Config =
            rest.parse().map_err(|error| bad(cause(&error)))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(bad("it names no host"));
        }
        if config.get_dbname().is_none_or(str::is_empty) {
            return Err(bad("it names no database: add `/name` behind the host"));
        }
        // Of several hosts, the one that writes: that is what several are named for.
        if config.get_hosts().len() > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        config
            .ssl_mode(ssl)
            .connect_timeout(CONNECT)
            .tcp_user_timeout(UNACKNOWLEDGED)
            .keepalives(true)
            .keepalives_idle(Duration::from_secs(5))
            .keepalives_interval(Duration::from_secs(2))
            .keepalives_retries(3);
        // As libpq: a root certificate that is named is used.
        let check = check.unwrap_or(match roots {
            Some(_) => Check::Chain,
            None => Check::Nothing,
        });
        Ok(Self {
            shown: shown(&config),
            config,
            check,
            roots,
            schema,
            pool,
        })
    }

    /// The schema, quoted for SQL.
    pub(super) fn quoted_schema(&self) -> String {
        format!("\"{}\"", self.schema)
    }

    /// The channel of this store's notifications.
    pub(super) fn channel(&self) -> String {
        format!("tenure_{}", self.schema)
    }
}

/// Is `place` the URL of a PostgreSQL store, and not a file's path?
pub fn is_url(place: &str) -> bool {
    place.starts_with("postgres://") || place.starts_with("postgresql://")
}

/// `place` without its password, for people and logs; anything but such a URL comes back as it is.
pub fn without_password(place: &str) -> String {
    if !is_url(place) {
        return place.to_owned();
    }
    match Place::parse(place) {
        Ok(place) => place.shown,
        Err(_) => "postgres://…".to_owned(),
    }
}

/// Does the part before the host hold what ends it? Then the driver would take a piece of a password for the host, and
/// name it.
fn is_ambiguous(base: &str) -> bool {
    let rest = base.split_once("://").map_or(base, |(_, rest)| rest);
    rest.matches('@').count() > 1
        || rest
            .split_once('@')
            .is_some_and(|(user, host)| user.contains(['/', '#']) || host.contains('#'))
}

/// What the driver says is wrong, without what it was said of.
fn cause(error: &tokio_postgres::Error) -> String {
    use std::error::Error;
    match error.source() {
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    }
}

fn ssl_mode(value: &str) -> Result<(SslMode, Option<Check>), OpenError> {
    Ok(match value {
        "disable" => (SslMode::Disable, Some(Check::Nothing)),
        "prefer" => (SslMode::Prefer, Some(Check::Nothing)),
        "require" => (SslMode::Require, None),
        "verify-ca" => (SslMode::Require, Some(Check::Chain)),
        "verify-full" => (SslMode::Require, Some(Check::Name)),
        _ => {
            return Err(bad(
                "`sslmode` is one of disable, prefer, require, verify-ca, verify-full",
            ));
        }
    })
}

/// Only what needs no thought about quoting, and leaves room for the channel's prefix.
fn schema_name(value: &str) -> Result<String, OpenError> {
    let fine = !value.is_empty()
        && value.len() <= 48
        && !value.starts_with(|c: char| c.is_ascii_digit())
        && !value.starts_with("pg_")
        && value
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if fine {
        Ok(value.to_owned())
    } else {
        Err(bad(
            "`schema` is 1 to 48 lower-case letters, digits or `_`, not beginning with a digit or `pg_`",
        ))
    }
}

/// Percent escapes, as URLs write them.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let escaped = (*first == b'%')
            .then(|| tail.get(..2))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn shown(config: &tokio_postgres::Config) -> String {
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .enumerate()
        .map(|(n, host)| {
            let ports = config.get_ports();
            let port = ports.get(n).or_else(|| ports.first()).copied();
            let host = match host {
                Host::Tcp(name) => name.clone(),
                Host::Unix(path) => path.display().to_string(),
            };
            match port {
                Some(port) => format!("{host}:{port}"),
                None => host,
            }
        })
        .collect();
    format!(
        "postgres://{}{}/{}",
        config
            .get_user()
            .map(|user| format!("{user}@"))
            .unwrap_or_default(),
        hosts.join(","),
        config.get_dbname().unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_and_its_password_never_shown() {
        let place = Place::parse(
            "postgres://me:s%40cret@db.example:6432/agents?schema=team_a&sslmode=verify-full&pool=7\
             &sslrootcert=%2Fetc%2Fca.pem&keepalives_idle=9",
        )
        .unwrap();
        assert_eq!(place.shown, "postgres://me@db.example:6432/agents");
        assert_eq!(place.config.get_password(), Some(b"s@cret".as_slice()));
        assert_eq!((place.check, place.pool), (Check::Name, 7));
        assert_eq!(place.roots, Some(PathBuf::from("/etc/ca.pem")));
        assert_eq!(place.channel(), "tenure_team_a");
        assert_eq!(place.config.get_ssl_mode(), SslMode::Require);
        assert!(!format!("{place:?}").contains("cret"));
        assert_eq!(
            without_password("postgres://a:b@c/d"),
            "postgres://a@c:5432/d"
        );
    }

    #[test]
    fn of_several_hosts_the_one_that_writes_is_taken() {
        let place = Place::parse("postgres://me@a,b:5433/d").unwrap();
        assert_eq!(place.shown, "postgres://me@a:5432,b:5433/d");
        let wanted = place.config.get_target_session_attrs();
        assert_eq!(wanted, TargetSessionAttrs::ReadWrite);
    }

    #[test]
    fn a_bad_url_is_refused_in_words_without_its_password() {
        for url in [
            "mysql://a:secret@h/d",
            "postgres://a:secret@h",
            "postgres://a:secret@h/d?sslmode=maybe",
            "postgres://a:secret@h/d?schema=Bad;name",
            "postgres://a:secret@h/d?pool=0",
            "postgres://a:secret@h:port/d",
            "postgres://a:secret@h/d?secret=1",
            "postgres://a:x@secret/w#rd@h:5/d",
            "postgres://a:x/secret@h/d",
            "postgres://a:x#secret@h/d",
        ] {
            let refused = Place::parse(url).unwrap_err().to_string();
            assert!(!refused.contains(":secret"), "{url}: {refused}");
            let piece =
                url.contains("x@secret") || url.contains("/secret") || url.contains("#secret");
            assert!(!piece || !refused.contains("secret"), "{url}: {refused}");
        }
        assert_eq!(
            Place::parse("postgres://h/d?sslmode=require")
                .unwrap()
                .check,
            Check::Nothing
        );
    }
}
