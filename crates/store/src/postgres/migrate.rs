//! The schema and its migrations: numbered, forward only, each with a checksum, under one lock of the database.

use super::conn::{Conn, Maker, Use};
use super::place::Place;
use super::sql::params;
use super::trouble::{Trouble, looking, making, not_opened};
use crate::error::OpenError;
use crate::opening::Opening;

/// Every migration, oldest first; its number is its place, from 1.
const MIGRATIONS: &[&str] = &[include_str!("schema.sql")];
/// The oldest server that has what the statements use.
const OLDEST_SERVER: i32 = 140_000;

/// The newest schema this program knows.
pub(super) const fn newest() -> u32 {
    MIGRATIONS.len() as u32
}

/// FNV-1a: to notice that a shipped migration was edited, and to make lock numbers of names.
pub(super) fn fnv(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Looks behind a new connection whether a newer program has changed the schema since this one opened the store.
pub(super) async fn refuse_newer(conn: &Conn, place: &Place) -> Result<(), OpenError> {
    match conn.first(VERSION, &[]).await {
        Ok(row) => match row.and_then(|row| row.get(0)) {
            Some(version) => known(place, version),
            None => Ok(()),
        },
        // It is not there yet, or gone: who asks for something else is told so.
        Err(Trouble::Refused { .. }) => Ok(()),
        Err(lost) => Err(not_opened(place, &lost)),
    }
}

const VERSION: &str = "SELECT max(version) FROM @.migration";

/// Is that a schema this program knows?
pub(super) fn known(place: &Place, version: i64) -> Result<(), OpenError> {
    let found = u32::try_from(version).unwrap_or(u32::MAX);
    if found <= newest() {
        return Ok(());
    }
    Err(OpenError::Newer {
        path: place.shown.clone(),
        found,
        known: newest(),
    })
}

fn checksum(sql: &str) -> String {
    format!("{:016x}", fnv(&[sql]))
}

/// Looks at the server and brings the schema up to date, as far as `opening` allows. Errors: too old a server, a
/// standby, a newer schema, missing rights; no schema or an older one that is to stay as it is.
pub(super) async fn prepare(
    maker: &Maker,
    opening: Opening,
    wall_ms: i64,
) -> Result<(), OpenError> {
    let conn = maker.connect(Use::Build, "tenure").await?;
    let place = &*maker.place;
    inspect(&conn, place).await?;
    match version(&conn, place).await {
        Ok(Some(found)) if found == newest() => Ok(()),
        Ok(None) if !opening.makes() => Err(OpenError::Missing {
            path: format!("{}, schema `{}`,", place.shown, place.schema),
            others: stores(&conn, place).await?,
            grant: grant(&conn, place).await?,
        }),
        Ok(Some(found)) if !opening.updates() => Err(OpenError::Older {
            path: place.shown.clone(),
            found,
            known: newest(),
        }),
        Ok(_) => build(&conn, place, wall_ms).await,
        Err(OpenError::MissingRights { path, detail, .. }) if !opening.updates() => {
            Err(OpenError::MissingRights {
                path,
                detail,
                grant: looking(place),
            })
        }
        Err(error) => Err(error),
    }
}

async fn build(conn: &Conn, place: &Place, wall_ms: i64) -> Result<(), OpenError> {
    let failed = |trouble: Trouble| not_opened(place, &trouble);
    // One at a time: whoever comes second finds it done.
    let lock = fnv(&["tenure migration", &place.schema]).cast_signed();
    let begin = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; {} SELECT pg_advisory_xact_lock({lock})",
        Use::Build.limits(true)
    );
    conn.long_batch(&begin).await.map_err(failed)?;
    let migrated = migrate(conn, place, wall_ms).await;
    let end = if migrated.is_ok() {
        "COMMIT"
    } else {
        "ROLLBACK"
    };
    let ended = conn.long_batch(end).await.map_err(failed);
    migrated.and(ended)
}

async fn inspect(conn: &Conn, place: &Place) -> Result<(), OpenError> {
    let row = conn
        .first(
            "SELECT current_setting('server_version_num')::INT4, current_setting('server_version'), \
             pg_is_in_recovery(), current_setting('server_encoding')",
            &[],
        )
        .await
        .map_err(|trouble| not_opened(place, &trouble))?;
    let Some(row) = row else {
        return Err(OpenError::Other {
            path: place.shown.clone(),
            detail: "the server answered nothing".to_owned(),
        });
    };
    let server = Server {
        number: row.get(0),
        version: row.get(1),
        standby: row.get(2),
        encoding: row.get(3),
    };
    server.check(&place.shown)
}

/// What a server says of itself.
#[derive(Debug)]
struct Server {
    /// Its version as a number: 140005 is 14.5.
    number: i32,
    version: String,
    standby: bool,
    encoding: String,
}

impl Server {
    /// Can a store be kept there? `path` names it for people.
    fn check(self, path: &str) -> Result<(), OpenError> {
        let path = path.to_owned();
        if self.number < OLDEST_SERVER {
            return Err(OpenError::TooOld {
                path,
                found: self.version,
            });
        }
        if self.standby {
            return Err(OpenError::Standby { path });
        }
        if self.encoding != "UTF8" {
            return Err(OpenError::Other {
                path,
                detail: format!(
                    "the database's encoding is {}; make one with UTF8",
                    self.encoding
                ),
            });
        }
        Ok(())
    }
}

/// Schemas of this database that hold a store: who mistyped one finds it among them.
async fn stores(conn: &Conn, place: &Place) -> Result<Vec<String>, OpenError> {
    let rows = conn.rows(STORES, &[]).await;
    let rows = rows.map_err(|trouble| not_opened(place, &trouble))?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

const STORES: &str = "SELECT n.nspname::TEXT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     WHERE c.relkind = 'r' AND c.relname IN ('migration', 'session', 'claim', 'cluster') \
     GROUP BY n.nspname HAVING count(*) = 4 ORDER BY 1 LIMIT 5";

/// What this user lacks to make a store here.
async fn grant(conn: &Conn, place: &Place) -> Result<Option<String>, OpenError> {
    let schema = place.quoted_schema();
    let may = conn.first(MAY_MAKE, params![TEXT: schema]).await;
    let may = may.map_err(|trouble| not_opened(place, &trouble))?;
    Ok(match may {
        Some(row) if !row.get::<_, bool>(0) => Some(making(place)),
        _ => None,
    })
}

const MAY_MAKE: &str = "SELECT coalesce(has_schema_privilege(to_regnamespace($1)::OID, 'CREATE'), \
     has_database_privilege(current_database(), 'CREATE'))";

/// How many migrations have been applied, all of them by a program that knew the same ones. None: there is no store.
async fn version(conn: &Conn, place: &Place) -> Result<Option<u32>, OpenError> {
    let failed = |trouble: Trouble| not_opened(place, &trouble);
    let exists = conn
        .first(
            "SELECT to_regclass($1) IS NOT NULL",
            params![TEXT: format!("{}.migration", place.quoted_schema())],
        )
        .await
        .map_err(failed)?;
    if !exists.is_some_and(|row| row.get(0)) {
        return Ok(None);
    }
    let rows = conn
        .rows(
            "SELECT version, checksum FROM @.migration ORDER BY version",
            &[],
        )
        .await
        .map_err(failed)?;
    let found = rows.last().map_or(0, |row| row.get::<_, i64>(0));
    known(place, found)?;
    for (row, sql) in rows.iter().zip(MIGRATIONS) {
        if row.get::<_, String>(1) != checksum(sql) {
            return Err(OpenError::Other {
                path: place.shown.clone(),
                detail: format!(
                    "its schema step {} is not the one this program knows; it was made by a development \
                     build",
                    row.get::<_, i64>(0)
                ),
            });
        }
    }
    // Known, and so small enough.
    Ok(Some(u32::try_from(found).unwrap_or(0)))
}

async fn migrate(conn: &Conn, place: &Place, wall_ms: i64) -> Result<(), OpenError> {
    let failed = |trouble: Trouble| not_opened(place, &trouble);
    let schema = place.quoted_schema();
    // Only where it is missing: making it needs a right that using it does not.
    let there = conn
        .first(
            "SELECT to_regnamespace($1) IS NOT NULL",
            params![TEXT: schema],
        )
        .await
        .map_err(failed)?;
    if !there.is_some_and(|row| row.get(0)) {
        conn.long_batch(&format!("CREATE SCHEMA {schema}"))
            .await
            .map_err(failed)?;
    }
    conn.long_batch(&format!(
        "CREATE TABLE IF NOT EXISTS {schema}.migration(version BIGINT PRIMARY KEY, checksum TEXT NOT NULL, \
         applied_ms BIGINT NOT NULL)"
    ))
    .await
    .map_err(failed)?;
    // Looked at again: another process may have come first.
    if version(conn, place).await? == Some(newest()) {
        return Ok(());
    }
    let done = conn
        .first("SELECT count(*) FROM @.migration", &[])
        .await
        .map_err(failed)?
        .map_or(0, |row| row.get::<_, i64>(0));
    for (index, sql) in MIGRATIONS.iter().enumerate().skip(done as usize) {
        conn.long_batch(&conn.dialect().fill(sql))
            .await
            .map_err(failed)?;
        conn.rows(
            "INSERT INTO @.migration(version, checksum, applied_ms) VALUES ($1, $2, $3)",
            params![INT8: index as i64 + 1, TEXT: checksum(sql), INT8: wall_ms],
        )
        .await
        .map_err(failed)?;
    }
    // Two version 4 UUIDs: 32 bytes, of which 244 bits are random.
    let secret: Vec<u8> = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()]
        .iter()
        .flat_map(|half| *half.as_bytes())
        .collect();
    conn.rows(
        "INSERT INTO @.cluster(secret, created_ms) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        params![BYTEA: secret, INT8: wall_ms],
    )
    .await
    .map_err(failed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_made_of_names_differ_by_where_the_parts_end() {
        assert_ne!(fnv(&["ab", "c"]), fnv(&["a", "bc"]));
        assert_eq!(checksum("x"), checksum("x"));
        assert_eq!(MIGRATIONS.len(), newest() as usize);
    }

    fn server(number: i32, version: &str) -> Server {
        Server {
            number,
            version: version.to_owned(),
            standby: false,
            encoding: "UTF8".to_owned(),
        }
    }

    #[test]
    fn a_server_that_is_too_old_is_refused_with_its_version_and_the_one_that_is_needed() {
        // An old one that is a standby too is not helped by naming its primary.
        let old = Server {
            standby: true,
            ..server(130_022, "13.22 (Debian 13.22-1)")
        };
        let path = "postgres://tenure@db/tenure";
        let refused = old.check(path).unwrap_err();
        assert_eq!(
            refused,
            OpenError::TooOld {
                path: path.to_owned(),
                found: "13.22 (Debian 13.22-1)".to_owned(),
            }
        );
        let told = refused.to_string();
        assert!(
            told.contains("13.22") && told.contains("version 14 or newer"),
            "{told}"
        );
        for (number, version) in [(140_000, "14.0"), (170_002, "17.2"), (180_000, "18beta1")] {
            assert_eq!(server(number, version).check(path), Ok(()));
        }
    }

    #[test]
    fn a_standby_and_another_encoding_are_refused() {
        let standby = Server {
            standby: true,
            ..server(170_002, "17.2")
        };
        assert!(matches!(standby.check("x"), Err(OpenError::Standby { .. })));
        let latin = Server {
            encoding: "LATIN1".to_owned(),
            ..server(170_002, "17.2")
        };
        let told = latin.check("x").unwrap_err().to_string();
        assert!(told.contains("LATIN1") && told.contains("UTF8"), "{told}");
    }
}
