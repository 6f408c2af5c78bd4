//! Opening a real path without following any link.

use std::fs::File;
use std::io;
use std::path::Path;

use nix::fcntl::OFlag;

/// Opens a file or directory for reading. `real` must be a real path: if any part of it is a link by now the error is
/// one that [`super::is_link`] knows. Does not wait for a writer when it is a named pipe; check what was opened.
///
/// # Errors
/// What the system says.
pub fn open_file(real: &Path) -> io::Result<File> {
    open(real, OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)
}

/// Opens a directory as a starting point for further opens; see [`open_file`].
///
/// # Errors
/// What the system says.
pub fn open_dir(real: &Path) -> io::Result<File> {
    open(real, OFlag::O_RDONLY | OFlag::O_DIRECTORY)
}

fn open(real: &Path, flags: OFlag) -> io::Result<File> {
    let flags = flags | OFlag::O_CLOEXEC;
    #[cfg(target_os = "linux")]
    {
        use nix::errno::Errno;
        use nix::fcntl::{AT_FDCWD, OpenHow, ResolveFlag, openat2};
        let how = OpenHow::new()
            .flags(flags)
            .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        match openat2(AT_FDCWD, real, how) {
            Ok(fd) => return Ok(File::from(fd)),
            // A kernel before 5.6, or a container that forbids the call.
            Err(Errno::ENOSYS | Errno::EPERM) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    open_and_compare(real, flags)
}

/// Opens first and compares afterwards: what was opened must be what the real path still names.
fn open_and_compare(real: &Path, flags: OFlag) -> io::Result<File> {
    use std::os::unix::fs::MetadataExt;
    let file = File::from(nix::fcntl::open(
        real,
        flags | OFlag::O_NOFOLLOW,
        nix::sys::stat::Mode::empty(),
    )?);
    let (opened, named) = (file.metadata()?, real.symlink_metadata()?);
    let same =
        opened.dev() == named.dev() && opened.ino() == named.ino() && real.canonicalize()? == real;
    if same {
        Ok(file)
    } else {
        Err(nix::errno::Errno::ELOOP.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_refuse_a_link_in_any_part() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        std::fs::write(root.join("real/f"), "x").unwrap();
        std::os::unix::fs::symlink(root.join("real"), root.join("link")).unwrap();
        std::os::unix::fs::symlink(root.join("real/f"), root.join("flink")).unwrap();
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        for name in ["link/f", "flink"] {
            let loops = |e: io::Error| super::super::is_link(&e);
            assert!(open_file(&root.join(name)).is_err_and(loops), "{name}");
            assert!(
                open_and_compare(&root.join(name), flags).is_err_and(loops),
                "{name}"
            );
        }
        assert!(open_file(&root.join("real/f")).is_ok());
        assert!(open_and_compare(&root.join("real/f"), flags).is_ok());
    }
}
