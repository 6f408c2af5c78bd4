//! Opening a store: what the place must offer, a fresh file in one flush, errors in words.

use super::schema;
use crate::error::OpenError;
use crate::opening::Opening;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The oldest SQLite whose WAL reset is sound.
pub(super) const OLDEST_SQLITE: i32 = 3_051_003;

/// Network file systems by `statfs` magic: their locks are not reliable enough for SQLite.
const NETWORK: &[(i64, &str)] = &[
    (0x6969, "nfs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x517b, "smb"),
    (0x0102_1997, "9p"),
    (0x7375_7245, "coda"),
    (0x5346_414f, "afs"),
    (0x00c3_6400, "ceph"),
    (0x0bd0_0bd0, "lustre"),
    (0x4750_4653, "gpfs"),
    (0x564c, "ncp"),
];

/// FUSE: local or remote, told apart by its name in the mount table.
const FUSE: i64 = 0x6573_5546;

/// FUSE file systems that are remote.
const REMOTE_FUSE: &[&str] = &[
    "fuse.sshfs",
    "fuse.s3fs",
    "fuse.rclone",
    "fuse.gcsfuse",
    "fuse.glusterfs",
    "fuse.davfs",
    "fuse.curlftpfs",
    "fuse.goofys",
    "fuse.ceph",
    "fuse.juicefs",
    "fuse.mount-s3",
];

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// An SQLite error at opening, by what the user can do.
pub(super) fn classify(path: &Path, error: &rusqlite::Error) -> OpenError {
    let detail = error.to_string();
    let path = shown(path);
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            OpenError::Corrupt { path, detail }
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            OpenError::ReadOnly { path, detail }
        }
        Some(ErrorCode::DiskFull) => OpenError::Full { path },
        _ => OpenError::Other { path, detail },
    }
}

fn classify_io(path: &Path, error: &io::Error) -> OpenError {
    let (path, detail) = (shown(path), error.to_string());
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => OpenError::Full { path },
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::AlreadyExists
        | io::ErrorKind::NotADirectory => OpenError::ReadOnly { path, detail },
        _ => OpenError::Other { path, detail },
    }
}

/// The file system's magic number and, for FUSE, its name.
pub(super) fn file_system(folder: &Path) -> Option<(i64, String)> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let stat = nix::sys::statfs::statfs(folder).ok()?;
        #[allow(
            clippy::unnecessary_cast,
            reason = "the type differs between platforms"
        )]
        let magic = stat.filesystem_type().0 as i64 & 0xffff_ffff;
        let name = if magic == FUSE {
            mounted_as(folder)
        } else {
            String::new()
        };
        Some((magic, name))
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _ = folder;
        None
    }
}

/// The type of the mount that holds `folder`, from the mount table.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn mounted_as(folder: &Path) -> String {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    table
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let (_, place, kind) = (fields.next()?, fields.next()?, fields.next()?);
            folder
                .starts_with(place)
                .then(|| (place.len(), kind.to_owned()))
        })
        .max_by_key(|(length, _)| *length)
        .map(|(_, kind)| kind)
        .unwrap_or_default()
}

/// The name of a network file system, or none for a local one.
pub(super) fn network(magic: i64, name: &str) -> Option<String> {
    if magic == FUSE {
        return REMOTE_FUSE.contains(&name).then(|| name.to_owned());
    }
    NETWORK
        .iter()
        .find(|(known, _)| *known == magic)
        .map(|(_, kind)| (*kind).to_owned())
}

/// The folder that holds the file.
fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Makes the folder with mode 0700, if it is missing.
fn make_folder(path: &Path) -> Result<PathBuf, OpenError> {
    let folder = folder_of(path);
    if !folder.is_dir() {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(|error| classify_io(path, &error))?;
    }
    Ok(folder)
}

/// Makes sure that a sound, current store is at `path`, as far as `opening` allows; returns its first connection.
pub(super) fn prepare(
    path: &Path,
    opening: Opening,
    now_ms: i64,
    probe: impl Fn(&Path) -> Option<(i64, String)>,
) -> Result<Connection, OpenError> {
    if rusqlite::version_number() < OLDEST_SQLITE {
        return Err(OpenError::Other {
            path: shown(path),
            detail: format!(
                "SQLite {} is linked; 3.51.3 or newer is needed, older ones can damage a WAL",
                rusqlite::version()
            ),
        });
    }
    let folder = match opening.makes() {
        true => make_folder(path)?,
        false => folder_of(path),
    };
    if let Some(kind) = probe(&folder).and_then(|(magic, name)| network(magic, &name)) {
        return Err(OpenError::NetworkFileSystem {
            path: shown(path),
            kind,
        });
    }
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => {
            return Err(OpenError::Other {
                path: shown(path),
                detail: "it is a folder".to_owned(),
            });
        }
        Ok(meta) if meta.len() == 0 => {
            return Err(OpenError::Corrupt {
                path: shown(path),
                detail: "the file is empty, so whatever it held is lost; remove it to start anew"
                    .to_owned(),
            });
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound && opening.makes() => {
            create(path, now_ms)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(OpenError::Missing {
                path: shown(path),
                others: Vec::new(),
                grant: None,
            });
        }
        Err(error) => return Err(classify_io(path, &error)),
    }
    check_access(path)?;
    let mut conn = file(path)?;
    // Before anything else is done to it: it may be another program's.
    let found = schema::inspect(&conn, path)?;
    if found < schema::newest() && !opening.updates() {
        return Err(OpenError::Older {
            path: shown(path),
            found,
            known: schema::newest(),
        });
    }
    settings(&conn, path, Role::Write)?;
    schema::migrate(&mut conn, path, found, now_ms)?;
    Ok(conn)
}

/// SQLite would quietly fall back to read-only: ask the system first.
fn check_access(path: &Path) -> Result<(), OpenError> {
    std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map(drop)
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => classify_io(path, &error),
            _ => OpenError::ReadOnly {
                path: shown(path),
                detail: error.to_string(),
            },
        })
}

/// Builds a fresh store under another name, flushes it once, and links it into place: nobody ever sees a
/// half-made file, and of two processes that race one wins and both use the winner's.
fn create(path: &Path, now_ms: i64) -> Result<(), OpenError> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    // Threads of one process may race as well.
    static TURN: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    name.push(format!(
        "-{}",
        TURN.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    ));
    let fresh = PathBuf::from(name);
    let made = build(&fresh, now_ms).and_then(|()| match std::fs::hard_link(&fresh, path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(classify_io(path, &error)),
    });
    let _ = std::fs::remove_file(&fresh);
    // The folder needs no flush of its own: SQLite flushes it with the first commit, when the WAL is new.
    made
}

fn build(fresh: &Path, now_ms: i64) -> Result<(), OpenError> {
    let failed = |error: rusqlite::Error| classify(fresh, &error);
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(fresh)
        .map_err(|error| classify_io(fresh, &error))?;
    let conn = Connection::open_with_flags(
        fresh,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
    .map_err(failed)?;
    let prepare = || {
        conn.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        conn.pragma_update(None, "synchronous", "OFF")?;
        conn.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        schema::build(&conn, now_ms)
    };
    prepare().map_err(failed)?;
    // Closing the last connection folds the WAL back into the file.
    conn.close().map_err(|(_, error)| failed(error))?;
    file.sync_all().map_err(|error| classify_io(fresh, &error))
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Write,
    Read,
}

/// How long a connection that is being opened waits for another one's lock: that one may be recovering the file.
const RECOVERY: Duration = Duration::from_secs(5);

/// Opens a connection to an existing store and asserts how it works.
pub(super) fn connect(path: &Path, role: Role) -> Result<Connection, OpenError> {
    let conn = file(path)?;
    settings(&conn, path, role)?;
    Ok(conn)
}

/// Opens an existing file, and asks nothing of it yet.
fn file(path: &Path) -> Result<Connection, OpenError> {
    let failed = |error: rusqlite::Error| classify(path, &error);
    // Readers open the file for writing too: a WAL needs its shared memory. `query_only` keeps them honest.
    let conn = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
    .map_err(failed)?;
    conn.set_prepared_statement_cache_capacity(128);
    let set = || -> rusqlite::Result<()> {
        conn.busy_timeout(RECOVERY)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        Ok(())
    };
    set().map_err(failed)?;
    Ok(conn)
}

/// How a store's connection works, asserted.
fn settings(conn: &Connection, path: &Path, role: Role) -> Result<(), OpenError> {
    let failed = |error: rusqlite::Error| classify(path, &error);
    // The wait for the write lock is the writer's own, fair and bounded; this one covers recovery.
    let wait = if role == Role::Write { 0 } else { 5_000 };
    let set = || -> rusqlite::Result<(String, i64)> {
        // Plans that do not depend on what is bound. Else each comparison of a bound value with the condition of
        // a partial index makes SQLite prepare the statement again whenever another value is bound.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        let journal = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        conn.execute_batch(
            "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0; PRAGMA temp_store = MEMORY; \
             PRAGMA cache_size = -8192; PRAGMA foreign_keys = OFF",
        )?;
        let synchronous = conn.pragma_query_value(None, "synchronous", |row| row.get(0))?;
        if role == Role::Read {
            conn.pragma_update(None, "query_only", "ON")?;
        }
        conn.busy_timeout(Duration::from_millis(wait))?;
        Ok((journal, synchronous))
    };
    let (journal, synchronous) = set().map_err(failed)?;
    if journal != "wal" || synchronous != 2 {
        return Err(OpenError::Other {
            path: shown(path),
            detail: format!(
                "the file system does not allow durable writes (journal_mode={journal}, \
                 synchronous={synchronous})"
            ),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_their_magic() {
        assert_eq!(network(0x6969, ""), Some("nfs".to_owned()));
        assert_eq!(network(0xff53_4d42, ""), Some("cifs".to_owned()));
        assert_eq!(network(FUSE, "fuse.sshfs"), Some("fuse.sshfs".to_owned()));
        assert_eq!(network(FUSE, "fuseblk"), None);
        assert_eq!(network(0xef53, ""), None);
    }
}
