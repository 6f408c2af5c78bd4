//! The schema and its migrations: numbered, forward only, each with a checksum.

use crate::error::OpenError;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use std::path::Path;

/// Marks a file as a store of Tenure (`PRAGMA application_id`, "tnre").
pub(super) const APPLICATION_ID: i32 = 0x746e_7265;

/// Every migration, oldest first; its number is its place, from 1.
const MIGRATIONS: &[&str] = &[
    include_str!("schema.sql"),
    include_str!("schema2.sql"),
    include_str!("schema3.sql"),
];

/// The newest schema this program knows.
pub(super) const fn newest() -> u32 {
    MIGRATIONS.len() as u32
}

/// FNV-1a over the text: only to notice that a shipped migration was edited afterwards.
fn checksum(sql: &str) -> String {
    let hash = sql.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// Builds the whole schema in an empty file. The caller sees to durability.
pub(super) fn build(conn: &Connection, now_ms: i64) -> rusqlite::Result<()> {
    conn.execute_batch("BEGIN")?;
    apply(conn, 0, now_ms)?;
    conn.execute_batch("COMMIT")
}

fn apply(conn: &Connection, from: u32, now_ms: i64) -> rusqlite::Result<()> {
    for (index, sql) in MIGRATIONS.iter().enumerate().skip(from as usize) {
        conn.execute_batch(sql)?;
        conn.execute(
            "INSERT INTO migration(version, checksum, applied_ms) VALUES (?1, ?2, ?3)",
            (index as i64 + 1, checksum(sql), now_ms),
        )?;
    }
    conn.pragma_update(None, "application_id", APPLICATION_ID)?;
    conn.pragma_update(None, "user_version", newest())
}

/// The schema version of an open file. Errors: another program's database, or a newer one.
pub(super) fn inspect(conn: &Connection, path: &Path) -> Result<u32, OpenError> {
    let shown = || path.display().to_string();
    let pragma = |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let failed = |error: rusqlite::Error| super::open::classify(path, &error);
    let application = pragma("application_id").map_err(failed)?;
    if application != i64::from(APPLICATION_ID) {
        return Err(OpenError::Other {
            path: shown(),
            detail: "it is an SQLite database of another program; choose another file with --store"
                .to_owned(),
        });
    }
    known(conn, path).map_err(failed)?
}

/// The schema version of an open file, as long as this program knows it.
pub(super) fn known(conn: &Connection, path: &Path) -> rusqlite::Result<Result<u32, OpenError>> {
    let found: i64 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let found = u32::try_from(found).unwrap_or(u32::MAX);
    if found <= newest() {
        return Ok(Ok(found));
    }
    Ok(Err(OpenError::Newer {
        path: path.display().to_string(),
        found,
        known: newest(),
    }))
}

/// Brings an older file up to date. Two processes that race are serialised by the exclusive lock; the
/// second finds nothing to do.
pub(super) fn migrate(
    conn: &mut Connection,
    path: &Path,
    found: u32,
    now_ms: i64,
) -> Result<(), OpenError> {
    if found == newest() {
        return Ok(());
    }
    let failed = |error: rusqlite::Error| super::open::classify(path, &error);
    let tx = conn
        .transaction_with_behavior(TransactionBehavior::Exclusive)
        .map_err(failed)?;
    let current = inspect(&tx, path)?;
    for (index, sql) in MIGRATIONS.iter().enumerate().take(current as usize) {
        let stored: Option<String> = tx
            .query_row(
                "SELECT checksum FROM migration WHERE version = ?1",
                [index as i64 + 1],
                |row| row.get(0),
            )
            .optional()
            .map_err(failed)?;
        if stored.as_deref() != Some(checksum(sql).as_str()) {
            return Err(OpenError::Other {
                path: path.display().to_string(),
                detail: format!(
                    "its schema step {} is not the one this program knows; it was made by a \
                     development build",
                    index + 1
                ),
            });
        }
    }
    apply(&tx, current, now_ms).map_err(failed)?;
    tx.commit().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_file_is_brought_up_and_an_edited_step_is_refused() {
        let path = Path::new("x.db");
        let mut conn = Connection::open_in_memory().unwrap();
        build(&conn, 7).unwrap();
        assert_eq!(inspect(&conn, path), Ok(newest()));
        assert_eq!(migrate(&mut conn, path, newest(), 0), Ok(()));
        conn.execute("UPDATE migration SET checksum = 'other'", [])
            .unwrap();
        let refused = migrate(&mut conn, path, 0, 0).unwrap_err();
        assert!(refused.to_string().contains("schema step 1"), "{refused}");
    }

    #[test]
    fn the_first_schema_never_changes() {
        // A shipped migration is history: write a new one instead of editing it.
        assert_eq!(checksum(""), "cbf29ce484222325");
        assert_eq!(MIGRATIONS.len(), newest() as usize);
    }
}
