//! A watchdog for what a test starts: a shell that holds the end of a pipe, and tidies up when the pipe closes.
//!
//! The kernel closes the pipe when the test process ends, however it ends. A death signal set by the parent would not
//! do: it follows the *thread* that started the child, and test threads come and go.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::Error;

/// Waits for the end of its input, deaf to what a terminal sends; a word on it means that there is nothing to do.
const WATCH: &str = "trap '' INT TERM HUP QUIT\nif read -r word; then exit 0; fi\n";

/// Runs a script when it is dropped or when this process ends, whichever comes first.
#[derive(Debug)]
pub struct Leash {
    shell: Child,
    pipe: Option<ChildStdin>,
}

impl Leash {
    /// Starts the watchdog. `script` is for `/bin/sh`; `arguments` are its `$1`, `$2` and so on.
    ///
    /// # Errors
    /// There is no `/bin/sh`, or no process can be started.
    pub fn new<A: AsRef<OsStr>>(script: &str, arguments: &[A]) -> Result<Self, Error> {
        let mut shell = Command::new("/bin/sh")
            .arg("-c")
            .arg(format!("{WATCH}{script}"))
            .arg("leash")
            .args(arguments)
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            // A test runner waits for whoever holds its output.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::system("start /bin/sh"))?;
        let pipe = shell.stdin.take();
        Ok(Leash { shell, pipe })
    }

    /// Ends the watchdog without running its script.
    pub fn release(mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            // A watchdog that is gone has nothing left to do either.
            let _ = pipe.write_all(b"done\n");
        }
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // It was started by us and ends by itself.
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_runs_at_the_end_and_not_after_a_release() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("mark");
        Leash::new(": > \"$1\"", &[&mark]).unwrap().release();
        assert!(!mark.exists());
        let leash = Leash::new(": > \"$1\"", &[&mark]).unwrap();
        assert!(!mark.exists());
        drop(leash);
        assert!(mark.exists());
    }
}
