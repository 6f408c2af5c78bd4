//! Used databases, emptied and lent again: on a busy machine a new one costs half a second, an emptied one a tenth of it.
//!
//! Only servers of ours keep them, told by a table in the maintenance database. Each lending gives a new name, so that
//! whatever a finished test left running does not find the next test's data.

use tokio_postgres::Config;

use super::link::Link;
use crate::Error;

/// Names of emptied databases.
const TABLE: &str = "tenure_testbed_spare";

/// Lets a server keep spare databases.
pub(super) fn allow(link: &Link) -> Result<(), Error> {
    link.run(&format!("CREATE TABLE {TABLE} (name text PRIMARY KEY)"))
        .map(|_| ())
}

/// Does this server keep them?
pub(super) fn are_kept(link: &Link) -> Result<bool, Error> {
    let table = link.run(&format!("SELECT to_regclass('{TABLE}')"))?;
    Ok(table.is_some())
}

/// Takes a spare one and calls it `name`; false when there is none.
pub(super) fn take(link: &Link, name: &str) -> Result<bool, Error> {
    // One statement decides among test processes that ask at once.
    let spare = link.run(&format!(
        "DELETE FROM {TABLE} WHERE name = (SELECT name FROM {TABLE} LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING name"
    ))?;
    let Some(spare) = spare else {
        return Ok(false);
    };
    // Whoever emptied it may still be leaving; then a new one is as good, and this one stays unused.
    if link
        .run(&format!("ALTER DATABASE {spare} RENAME TO {name}"))
        .is_err()
    {
        return Ok(false);
    }
    link.run(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true"))?;
    Ok(true)
}

/// Empties the database `name`, whose connections are ended, and puts it by; false when it must be dropped instead.
pub(super) fn give_back(link: &Link, config: &Config, name: &str) -> Result<bool, Error> {
    let mut config = config.clone();
    config.dbname(name);
    let inside = Link::new(config)?;
    // Rights and objects that emptying does not bring back to what a new database has.
    let is_plain = inside.run(
        "SELECT NOT EXISTS (SELECT FROM pg_database WHERE datname = current_database() AND datacl IS NOT NULL) \
            AND NOT EXISTS (SELECT FROM pg_db_role_setting WHERE setdatabase <> 0) \
            AND NOT EXISTS (SELECT FROM pg_publication) \
            AND NOT EXISTS (SELECT FROM pg_event_trigger) \
            AND NOT EXISTS (SELECT FROM pg_largeobject_metadata) \
            AND (SELECT count(*) FROM pg_extension) = 1",
    )?;
    if is_plain.as_deref() != Some("t") {
        return Ok(false);
    }
    // Nobody comes in any more, then everybody leaves, then the place is swept.
    link.run(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false"))?;
    inside.run(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )?;
    inside.run(
        "DO $$ DECLARE one text; BEGIN \
            FOR one IN SELECT nspname FROM pg_namespace \
                WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' \
            LOOP EXECUTE format('DROP SCHEMA %I CASCADE', one); END LOOP; \
         END $$; \
         CREATE SCHEMA public; \
         DO $$ BEGIN \
            IF current_setting('server_version_num')::int >= 150000 THEN \
                ALTER SCHEMA public OWNER TO pg_database_owner; \
                GRANT USAGE ON SCHEMA public TO PUBLIC; \
            ELSE GRANT ALL ON SCHEMA public TO PUBLIC; END IF; \
         END $$",
    )?;
    drop(inside);
    link.run(&format!("INSERT INTO {TABLE} VALUES ('{name}')"))?;
    Ok(true)
}
