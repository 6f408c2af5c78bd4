//! A wrong wall clock for one process, by Debian's libfaketime; durations stay true.

use std::path::PathBuf;
use std::process::Command;

use crate::Error;

/// Debian's command line that brings the library.
pub const INSTALL: &str = "apt-get install faketime";
/// Where distributions put the library: below a folder named after the machine's kind, or directly.
const FOLDERS: &[&str] = &["/usr/lib", "/usr/lib64", "/usr/local/lib"];
/// Its name, with the folder it stands in.
const LIBRARY: &str = "faketime/libfaketime.so.1";

/// Finds the library.
///
/// # Errors
/// [`Error::Missing`] with the install line.
pub fn library() -> Result<PathBuf, Error> {
    for folder in FOLDERS {
        let direct = PathBuf::from(folder).join(LIBRARY);
        if direct.is_file() {
            return Ok(direct);
        }
        let below = std::fs::read_dir(folder).into_iter().flatten().flatten();
        if let Some(found) = below
            .map(|entry| entry.path().join(LIBRARY))
            .find(|path| path.is_file())
        {
            return Ok(found);
        }
    }
    Err(Error::Missing {
        program: "libfaketime",
        install: INSTALL,
    })
}

/// Shifts the wall clock of `command`, and of all that it starts, by `seconds`.
///
/// The monotonic and the boot-time clock are left alone: a wrong date is one fault, a jump of durations another. The
/// command stays the process one gets, so signals reach it: no wrapper stands between.
///
/// # Errors
/// [`Error::Missing`] with the install line.
pub fn shift(command: &mut Command, seconds: i64) -> Result<&mut Command, Error> {
    let library = library()?;
    Ok(command
        .env("LD_PRELOAD", library)
        .env("FAKETIME", format!("{seconds:+}s"))
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("DONT_FAKE_MONOTONIC", "1"))
}
