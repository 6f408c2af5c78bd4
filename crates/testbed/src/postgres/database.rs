//! A server that tests share, and one fresh database of it per test.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use tokio_postgres::Config;
use uuid::Uuid;

use super::link::Link;
use super::spare;
use crate::Error;

/// The database that is always there.
const MAINTENANCE: &str = "postgres";
/// A server that does not answer soon is not worth waiting for when the test is over.
const DROP_LIMIT: Duration = Duration::from_secs(10);

/// A running server and the right to create databases in it. Clones mean the same one.
#[derive(Debug, Clone)]
pub struct Server {
    url: Url,
    /// How we ourselves connect: where there is a socket, TLS and the fault proxy do not matter.
    config: Config,
    link: Link,
    upkeep: Upkeep,
}

/// What becomes of a database when its test is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Upkeep {
    /// Its files go with the server's folder.
    Leave,
    /// It is emptied and lent again, if the server keeps spare ones; else dropped.
    CleanUp,
}

impl Server {
    /// A server that somebody else runs.
    ///
    /// # Errors
    /// The URL does not have the form `postgres://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?OPTIONS]`.
    pub fn at(url: &str) -> Result<Self, Error> {
        let url = Url::parse(url)?;
        let config: Config = url.text(None).parse().map_err(|error| {
            Error::Wrong(format!(
                "the URL of the PostgreSQL server is wrong: {error}"
            ))
        })?;
        Self::new(url, config, Upkeep::CleanUp)
    }

    /// A server of ours, with its own way in for us.
    pub(super) fn ours(url: &str, config: Config) -> Result<Self, Error> {
        Self::new(Url::parse(url)?, config, Upkeep::Leave)
    }

    fn new(url: Url, config: Config, upkeep: Upkeep) -> Result<Self, Error> {
        Ok(Server {
            link: Link::new(config.clone())?,
            url,
            config,
            upkeep,
        })
    }

    /// For a server of ours that many tests share one after another.
    pub(super) fn keep_spare(&mut self) -> Result<(), Error> {
        spare::allow(&self.link)?;
        self.upkeep = Upkeep::CleanUp;
        Ok(())
    }

    /// The URL of its maintenance database.
    pub fn url(&self) -> String {
        self.url.text(None)
    }

    /// The URL of a database of this name, whether it exists or not.
    pub fn url_of(&self, database: &str) -> String {
        self.url.text(Some(database))
    }

    /// Its TCP address.
    ///
    /// # Errors
    /// The host's name has no address.
    pub fn address(&self) -> Result<SocketAddr, Error> {
        let authority = self.url.host_and_port();
        authority
            .to_socket_addrs()
            .map_err(Error::system(format!("look up {authority}")))?
            .next()
            .ok_or_else(|| Error::Wrong(format!("{authority} has no address")))
    }

    /// The user and the password of the URL.
    ///
    /// # Errors
    /// The URL has none.
    pub fn credentials(&self) -> Result<(String, String), Error> {
        let password = self.config.get_password().unwrap_or_default();
        match self.config.get_user() {
            Some(user) => Ok((
                user.to_owned(),
                String::from_utf8_lossy(password).into_owned(),
            )),
            None => Err(Error::Wrong("the server's URL names no user".into())),
        }
    }

    /// An empty database under a name that no other has or had; it is gone with the value.
    ///
    /// # Errors
    /// The server refuses, or does not answer.
    pub fn database(&self) -> Result<Database, Error> {
        let name = format!("tenure_test_{}", Uuid::new_v4().simple());
        let takes_spare = self.upkeep == Upkeep::CleanUp
            && spare::are_kept(&self.link)?
            && spare::take(&self.link, &name)?;
        if !takes_spare {
            // Nobody can be connected to template0, which would be in the way.
            self.execute(&format!("CREATE DATABASE {name} TEMPLATE template0"))?;
        }
        Ok(Database {
            url: self.url_of(&name),
            server: self.clone(),
            name,
        })
    }

    /// Runs statements in the maintenance database. Those in one call are one transaction, unless they say otherwise.
    ///
    /// # Errors
    /// The server refuses, or does not answer within a minute.
    pub fn execute(&self, statements: &str) -> Result<(), Error> {
        self.link.run(statements).map(|_| ())
    }

    /// Runs statements and gives the first column of the last row, as text.
    ///
    /// # Errors
    /// As [`Server::execute`].
    pub fn value(&self, statements: &str) -> Result<Option<String>, Error> {
        self.link.run(statements)
    }

    /// Closes our own connection, so that the next statement opens a new one.
    pub(super) fn hang_up(&self) {
        self.link.hang_up();
    }
}

/// A database of one test. It is gone with the value, whoever is still connected.
#[derive(Debug)]
pub struct Database {
    name: String,
    url: String,
    server: Server,
}

impl Database {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its URL, password included.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The server it is in.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The schemas that were made in it, in order, with commas between them; none where there are none.
    ///
    /// # Errors
    /// As [`Server::execute`].
    pub fn schemas(&self) -> Result<Option<String>, Error> {
        self.value(
            "SELECT string_agg(nspname, ',' ORDER BY nspname) FROM pg_namespace \
             WHERE nspname !~ '^pg_' AND nspname NOT IN ('public', 'information_schema')",
        )
    }

    /// Runs statements in it, over a connection of their own.
    ///
    /// # Errors
    /// As [`Server::execute`].
    pub fn execute(&self, statements: &str) -> Result<(), Error> {
        self.value(statements).map(|_| ())
    }

    /// Runs statements in it and gives the first column of the last row, as text.
    ///
    /// # Errors
    /// As [`Server::execute`].
    pub fn value(&self, statements: &str) -> Result<Option<String>, Error> {
        let mut config = self.server.config.clone();
        config.dbname(&self.name);
        Link::new(config)?.run(statements)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let server = &self.server;
        if server.upkeep == Upkeep::Leave {
            return;
        }
        let given_back = spare::are_kept(&server.link).and_then(|kept| {
            Ok(kept && spare::give_back(&server.link, &server.config, &self.name)?)
        });
        if matches!(given_back, Ok(true)) {
            return;
        }
        let statement = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        if let Err(error) = server.link.run_within(&statement, DROP_LIMIT) {
            eprintln!("a test's database stays behind: {error}");
        }
    }
}

/// A connection URL in its parts, of which only the database is ever changed.
#[derive(Debug, Clone)]
struct Url {
    /// Up to the slash before the database.
    before: String,
    database: String,
    /// The options, with their question mark.
    after: String,
}

impl Url {
    fn parse(url: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::Wrong(
                "the URL of a PostgreSQL server has the form postgres://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?OPTIONS]"
                    .into(),
            )
        };
        let rest = url
            .strip_prefix("postgres://")
            .or_else(|| url.strip_prefix("postgresql://"))
            .ok_or_else(wrong)?;
        let scheme = &url[..url.len() - rest.len()];
        let (rest, after) = match rest.split_once('?') {
            Some((rest, options)) => (rest, format!("?{options}")),
            None => (rest, String::new()),
        };
        let (authority, database) = rest.split_once('/').unwrap_or((rest, MAINTENANCE));
        if authority.is_empty() || database.contains('/') {
            return Err(wrong());
        }
        Ok(Url {
            before: format!("{scheme}{authority}"),
            database: database.to_owned(),
            after,
        })
    }

    fn text(&self, database: Option<&str>) -> String {
        let database = database.unwrap_or(&self.database);
        format!("{}/{database}{}", self.before, self.after)
    }

    fn host_and_port(&self) -> String {
        let authority = self.before.split("://").nth(1).unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        let has_port = host
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if has_port {
            host.to_owned()
        } else {
            format!("{host}:5432")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_database_of_a_url_changes() {
        let url =
            Url::parse("postgres://me:p%2Fw@db.example:6000/postgres?sslmode=require").unwrap();
        assert_eq!(
            url.text(Some("x")),
            "postgres://me:p%2Fw@db.example:6000/x?sslmode=require"
        );
        assert_eq!(url.host_and_port(), "db.example:6000");
        let short = Url::parse("postgresql://db").unwrap();
        assert_eq!(short.text(None), "postgresql://db/postgres");
        assert_eq!(short.host_and_port(), "db:5432");
        for wrong in [
            "",
            "host=db",
            "http://db/x",
            "postgres:///x",
            "postgres://db/x/y",
        ] {
            assert!(Url::parse(wrong).is_err(), "{wrong}");
        }
    }
}
