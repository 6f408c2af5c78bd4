//! Writes the export: a header line, then one event a line.

use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use tenure_core::SessionId;
use tenure_core::event::EventRecord;

/// The version of the export's form.
pub const VERSION: u32 = 1;

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The form's version.
    pub tenure_export: u32,
    /// The session.
    pub session: SessionId,
    /// How many events follow.
    pub events: u64,
    /// Secrets were masked.
    pub masked: bool,
    /// How many.
    #[serde(default)]
    pub masked_count: u64,
    /// Wall-clock milliseconds.
    pub created_ms: i64,
}

/// Writes everything, telling `progress` the number of events written.
pub fn all(
    out: &mut dyn Write,
    header: &Header,
    records: &[EventRecord],
    mut progress: impl FnMut(u64),
) -> io::Result<()> {
    serde_json::to_writer(&mut *out, header)?;
    out.write_all(b"\n")?;
    for (number, record) in records.iter().enumerate() {
        serde_json::to_writer(&mut *out, record)?;
        out.write_all(b"\n")?;
        progress(number as u64 + 1);
    }
    out.flush()
}
