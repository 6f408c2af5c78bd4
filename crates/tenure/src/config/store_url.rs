//! The store's address: `sqlite:PATH` or `postgres://…`, shown without its password.

use crate::environment::Environment;
use crate::exit::{CliError, CliResult};
use std::fmt;
use std::path::{Path, PathBuf};

/// Where sessions are kept.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// A SQLite file.
    Sqlite(PathBuf),
    /// A PostgreSQL database: the URL as it was written. It may hold a password; `Display` and `Debug` do not.
    Postgres(String),
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

impl StoreUrl {
    /// Reads an address. A relative path is taken from `base`.
    ///
    /// # Errors
    /// A usage error that says which form is understood, and shows no password.
    pub fn parse(text: &str, base: &Path, env: &Environment) -> CliResult<Self> {
        if text.starts_with("postgres:") || text.starts_with("postgresql:") {
            return postgres(text);
        }
        let Some(path) = text.strip_prefix("sqlite:") else {
            let shown = masked(text);
            let near = crate::exit::nearest(
                text.split(':').next().unwrap_or_default(),
                ["postgres", "postgresql", "sqlite"],
            );
            let error = CliError::usage(format!("the store `{shown}` is not understood"));
            return Err(match near {
                Some(near) if text.contains("://") => {
                    error.hint(format!("did you mean `{near}://…`?"))
                }
                _ if text.contains("://") => {
                    error.hint("write sqlite:PATH or postgres://USER@HOST/DATABASE")
                }
                _ => error.hint(format!(
                    "write sqlite:{}",
                    shown.rsplit_once(':').map_or(shown.as_str(), |(_, p)| p)
                )),
            });
        };
        let path = path
            .strip_prefix("//")
            .map_or(path, |rest| if rest.starts_with('/') { rest } else { path });
        if path.is_empty() || path == ":memory:" {
            return Err(CliError::usage(format!("the store `{text}` names no file"))
                .hint("write sqlite:PATH with the path of a file"));
        }
        Ok(Self::Sqlite(base.join(env.expand(path))))
    }

    /// The file, where it is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Sqlite(path) => Some(path),
            Self::Postgres(_) => None,
        }
    }

    /// Does it hold a password?
    pub fn has_password(&self) -> bool {
        match self {
            Self::Sqlite(_) => false,
            Self::Postgres(url) => password(url).is_some(),
        }
    }
}

/// The user part, the password part and the rest of `scheme://user:password@rest`.
fn parts(url: &str) -> Option<(&str, &str, Option<&str>, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let at = rest[..end].rfind('@').or_else(|| {
        // A password that was not escaped may hold `/` or `?`: an `@` behind them gives it away, or what looks
        // like a port and is none.
        let query = rest.find('?').unwrap_or(rest.len());
        rest[..query].rfind('@').or_else(|| {
            let (_, port) = rest[..end].rsplit_once(':')?;
            let is_port = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
            (!is_port).then(|| rest.rfind('@')).flatten()
        })
    });
    let Some(at) = at else {
        return Some((scheme, "", None, rest));
    };
    let (user, rest) = (&rest[..at], &rest[at + 1..]);
    match user.split_once(':') {
        Some((user, password)) => Some((scheme, user, Some(password), rest)),
        None => Some((scheme, user, None, rest)),
    }
}

/// Is it the name of a secret in a query?
fn is_secret(name: &str) -> bool {
    name.to_ascii_lowercase().contains("password")
}

/// The password a URL holds, as it stands there.
pub fn password(url: &str) -> Option<&str> {
    let (_, _, password, rest) = parts(url)?;
    password.or_else(|| {
        let (_, query) = rest.split_once('?')?;
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs
            .into_iter()
            .find(|(name, _)| is_secret(name))
            .map(|(_, value)| value)
    })
}

/// A URL for people: without the password, wherever it stands.
pub fn masked(url: &str) -> String {
    let Some((scheme, user, _, rest)) = parts(url) else {
        return match url.split_once(':') {
            Some((scheme, rest)) if rest.contains('@') => format!("{scheme}:…"),
            _ => url.to_owned(),
        };
    };
    let (base, query) = rest.split_once('?').unwrap_or((rest, ""));
    let kept: Vec<&str> = query
        .split('&')
        .filter(|pair| !pair.is_empty() && !is_secret(pair))
        .collect();
    let user = if user.is_empty() {
        String::new()
    } else {
        format!("{user}@")
    };
    let query = if kept.is_empty() {
        String::new()
    } else {
        format!("?{}", kept.join("&"))
    };
    format!("{scheme}://{user}{base}{query}")
}

/// The URL with another user and a password, both escaped.
pub fn with_login(url: &str, user: Option<&str>, password: Option<&str>) -> String {
    let Some((scheme, own, own_password, rest)) = parts(url) else {
        return url.to_owned();
    };
    let user = match user {
        Some(user) if own.is_empty() => escaped(user),
        _ => own.to_owned(),
    };
    let password = match (own_password, password) {
        // One that was not escaped is, now.
        (Some(own), _) => format!(":{}", escaped(&unescaped(own))),
        (None, Some(password)) => format!(":{}", escaped(password)),
        (None, None) => String::new(),
    };
    let at = if user.is_empty() && password.is_empty() {
        ""
    } else {
        "@"
    };
    format!("{scheme}://{user}{password}{at}{rest}")
}

/// Everything that is not surely plain, as URLs write it.
fn escaped(text: &str) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_.~".contains(b);
    text.bytes()
        .map(|b| {
            if plain(&b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}

/// Percent escapes read.
pub fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let pair = (*first == b'%').then(|| tail.get(..2)).flatten();
        let value = pair
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match value {
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

/// What is behind the user: host, port and database; and the user itself.
pub fn target(url: &str) -> Option<(String, String, String, String)> {
    let (_, user, _, rest) = parts(url)?;
    let base = rest.split('?').next().unwrap_or_default();
    let (authority, database) = base.split_once('/').unwrap_or((base, ""));
    let first = authority.split(',').next().unwrap_or_default();
    let (host, port) = match first.rsplit_once(':') {
        Some((host, port)) if port.chars().all(|c| c.is_ascii_digit()) => (host, port),
        _ => (first, "5432"),
    };
    let owned = |text: &str| text.trim_matches(['[', ']']).to_owned();
    Some((owned(host), owned(port), owned(database), owned(user)))
}

fn postgres(text: &str) -> CliResult<StoreUrl> {
    let shown = masked(text);
    let wrong = |what: &str| {
        Err(CliError::usage(format!("the store `{shown}` {what}"))
            .hint("write postgres://USER@HOST:5432/DATABASE; the password may stand in PGPASSWORD"))
    };
    match target(text) {
        Some((host, ..)) if host.is_empty() => wrong("names no host"),
        Some((_, _, database, _)) if database.is_empty() => wrong("names no database"),
        Some(_) => Ok(StoreUrl::Postgres(text.to_owned())),
        None => wrong("is not understood"),
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => f.write_str(&masked(url)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> CliResult<StoreUrl> {
        StoreUrl::parse(
            text,
            Path::new("/base"),
            &Environment::of(&[("HOME", "/h")]),
        )
    }

    #[test]
    fn paths_are_absolute_relative_or_at_home() {
        for (text, path) in [
            ("sqlite:/a/b.db", "/a/b.db"),
            ("sqlite:///a/b.db", "/a/b.db"),
            ("sqlite:b.db", "/base/b.db"),
            ("sqlite:~/b.db", "/h/b.db"),
        ] {
            assert_eq!(parse(text).unwrap().path(), Some(Path::new(path)), "{text}");
        }
    }

    #[test]
    fn other_addresses_are_refused_with_what_to_write() {
        assert!(
            parse("/a/b.db")
                .unwrap_err()
                .to_string()
                .contains("sqlite:/a/b.db")
        );
        assert!(parse("sqlite:").is_err());
        assert!(parse("sqlite::memory:").is_err());
    }

    #[test]
    fn a_password_is_never_shown_wherever_it_stands() {
        for (given, shown) in [
            ("postgres://me:s3cret@h:1/d", "postgres://me@h:1/d"),
            (
                "postgres://me:s3cret@h/d?sslmode=require&password=s3cret",
                "postgres://me@h/d?sslmode=require",
            ),
            ("postgres://h/d?sslpassword=s3cret", "postgres://h/d"),
            ("postgres://me:/s3cret@x@h/d", "postgres://me@h/d"),
            ("postgres://me:12/s3cret@h/d", "postgres://me@h/d"),
            ("postgres://me:?s3cret@h/d", "postgres://me@h/d"),
            ("postgres://h/d?x=a@b", "postgres://h/d?x=a@b"),
            ("postgresql://me@h1:1,h2:2/d", "postgresql://me@h1:1,h2:2/d"),
        ] {
            let url = parse(given).unwrap();
            assert_eq!(url.to_string(), shown);
            assert!(!format!("{url:?}").contains("s3cret"));
            assert_eq!(url.has_password(), given.contains("s3cret"), "{given}");
        }
        for wrong in [
            "postgre://me:s3cret@h/d",
            "mysql://me:s3cret@h/d",
            "postgres://me:s3cret@h",
            "postgres://me:s3cret@/d",
            "postgres:me:s3cret@h/d",
        ] {
            let error = parse(wrong).unwrap_err();
            assert_eq!(error.kind.code(), 2);
            assert!(!error.to_string().contains("s3cret"), "{wrong}: {error}");
            assert!(!error.hints.is_empty(), "{wrong}");
        }
        assert!(
            parse("postgre://h/d")
                .unwrap_err()
                .to_string()
                .contains("postgres://")
        );
    }

    #[test]
    fn a_login_is_put_where_none_stands() {
        let with = |url| with_login(url, Some("me"), Some("p@ss/1"));
        assert_eq!(with("postgres://h/d"), "postgres://me:p%40ss%2F1@h/d");
        assert_eq!(
            with("postgres://you@h/d?x=1"),
            "postgres://you:p%40ss%2F1@h/d?x=1"
        );
        assert_eq!(
            with("postgres://you:o/w@n@h/d"),
            "postgres://you:o%2Fw%40n@h/d"
        );
        assert_eq!(unescaped("p%40ss%2F1%"), "p@ss/1%");
        assert_eq!(with("postgres://you:own@h/d"), "postgres://you:own@h/d");
        assert_eq!(
            target("postgres://you@[::1]:77,other/d?x").unwrap(),
            ("::1".into(), "77".into(), "d".into(), "you".into())
        );
    }
}
