//! Where there is no subreaper: commands are refused, since it could not be promised that they end.

use std::fs::File;
use std::io;

use super::GuardianCommand;
use super::wire::Report;
use crate::tool::Spawned;

const REASON: &str =
    "shell commands need Linux here: on this system it cannot be made sure that they end";

/// What became of a recorded guardian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leftover {
    /// It belongs to an earlier boot: nothing of it can be left.
    OtherBoot,
    /// Nothing was left.
    Gone,
    /// Something was left and has been ended.
    Ended {
        /// How many processes were ended.
        swept: usize,
    },
}

/// Why it is not certain that nothing is left.
#[derive(Debug, thiserror::Error)]
pub enum LeftoverError {
    /// Who is who cannot be told.
    #[error("cannot tell processes apart: {0}")]
    Identity(#[from] io::Error),
    /// These did not die.
    #[error(
        "processes {pids:?} of an earlier call do not end; end them by hand before running more there"
    )]
    StillAlive {
        /// Their ids.
        pids: Vec<u32>,
    },
}

/// Nothing was ever started on this system.
///
/// # Errors
/// None.
pub fn kill_leftover(_pid: u32, _pid_start: u64, _boot: &str) -> Result<Leftover, LeftoverError> {
    Ok(Leftover::Gone)
}

pub(super) fn main() -> i32 {
    1
}

#[derive(Debug, thiserror::Error)]
#[error("{REASON}")]
pub(crate) struct StartError;

/// Never made.
pub(crate) struct Guarded {
    spawned: Spawned,
    pub(crate) output: tokio::io::Empty,
}

impl Guarded {
    pub(crate) fn prepare(_: &GuardianCommand, _: &File, _: &[String]) -> Result<Self, StartError> {
        Err(StartError)
    }

    pub(crate) fn spawned(&self) -> &Spawned {
        &self.spawned
    }

    pub(crate) async fn go(&mut self, _: &str) -> Result<(), StartError> {
        Err(StartError)
    }

    pub(crate) async fn kill(&mut self) {}

    pub(crate) fn outlast(self, _: bool) -> bool {
        true
    }

    pub(crate) fn split(&mut self) -> (Reports, &mut tokio::io::Empty) {
        (Reports, &mut self.output)
    }
}

pub(crate) struct Reports;

impl Reports {
    pub(crate) async fn next(self) -> Option<Report> {
        None
    }
}

/// The limit on open files stays as it is here.
pub fn raise_open_files() -> Option<u64> {
    None
}

/// Nothing was raised.
pub fn open_files_before() -> Option<(&'static str, String)> {
    None
}
