//! Writing a whole file: either the old content or the new is there, never a part.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstatat, mkdirat};
use nix::unistd::{AccessFlags, Gid, Uid, UnlinkatFlags, faccessat, fchown, unlinkat};

use super::open_dir;

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replaced {
    /// Size of the file before, if there was one.
    pub previous: Option<u64>,
    /// Directories made.
    pub directories_made: usize,
}

/// Writes `bytes` to a real path: to a new file beside it, flushed to disk, then renamed over it. Mode and, where
/// allowed, owner of an existing file are kept. Missing directories are made.
///
/// Works from the open parent directory, reached without following a link; the name itself is replaced, so a link put
/// there meanwhile is overwritten, not followed.
///
/// # Errors
/// `PermissionDenied` also when the existing file is read-only, though a rename could get around that; `InvalidInput`
/// when the path is not a regular file; else what the system says.
pub fn replace(real: &Path, bytes: &[u8]) -> io::Result<Replaced> {
    let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a file",
        ));
    };
    let (dir, directories_made) = open_or_make(parent)?;
    let old = match fstatat(&dir, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => Some(stat),
        Err(Errno::ENOENT) => None,
        Err(errno) => return Err(errno.into()),
    };
    if let Some(old) = &old {
        match SFlag::from_bits_truncate(old.st_mode & SFlag::S_IFMT.bits()) {
            SFlag::S_IFREG => {}
            SFlag::S_IFLNK => return Err(Errno::ELOOP.into()),
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "it is not a regular file",
                ));
            }
        }
        faccessat(&dir, name, AccessFlags::W_OK, AtFlags::AT_EACCESS)?;
    }
    let (temporary, file) = create_beside(&dir, name)?;
    let written = fill(file, bytes, old.as_ref())
        .and_then(|()| Ok(renameat(&dir, temporary.as_path(), &dir, name)?));
    if let Err(error) = written {
        // Nothing more can be done if this fails, too; the first error is the one to tell.
        let _ = unlinkat(&dir, temporary.as_path(), UnlinkatFlags::NoRemoveDir);
        return Err(error);
    }
    Ok(Replaced {
        previous: old.map(|o| u64::try_from(o.st_size).unwrap_or_default()),
        directories_made,
    })
}

fn fill(mut file: File, bytes: &[u8], old: Option<&FileStat>) -> io::Result<()> {
    file.write_all(bytes)?;
    if let Some(old) = old {
        // Only root may give files away. First the owner: changing it clears the set-id bits.
        let _ = fchown(
            &file,
            Some(Uid::from_raw(old.st_uid)),
            Some(Gid::from_raw(old.st_gid)),
        );
        fchmod(&file, Mode::from_bits_truncate(old.st_mode))?;
    }
    // The rename must not reach the disk before the content.
    file.sync_data()
}

fn create_beside(dir: &File, name: &OsStr) -> io::Result<(PathBuf, File)> {
    let short: String = name.to_string_lossy().chars().take(40).collect();
    for n in 0..100_u32 {
        let temporary = PathBuf::from(format!(".{short}.{}-{n}.tmp", std::process::id()));
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        match openat(
            dir,
            temporary.as_path(),
            flags,
            Mode::from_bits_truncate(0o666),
        ) {
            Ok(fd) => return Ok((temporary, File::from(fd))),
            Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        "no free name for a temporary file",
    ))
}

/// Opens a directory by its real path and makes what is missing, one part at a time, following no link.
fn open_or_make(real: &Path) -> io::Result<(File, usize)> {
    let mut missing = Vec::new();
    let mut at = real;
    let mut dir = loop {
        match open_dir(at) {
            Ok(dir) => break dir,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (Some(parent), Some(name)) = (at.parent(), at.file_name()) else {
                    return Err(error);
                };
                missing.push(name);
                at = parent;
            }
            Err(error) => return Err(error),
        }
    };
    let mut made = 0;
    while let Some(name) = missing.pop() {
        match mkdirat(&dir, name, Mode::from_bits_truncate(0o777)) {
            Ok(()) => made += 1,
            Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        dir = File::from(openat(&dir, name, flags, Mode::empty())?);
    }
    Ok((dir, made))
}
