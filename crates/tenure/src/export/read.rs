//! Reads an export and checks all of it before anything is stored.

use super::write::{Header, VERSION};
use crate::exit::{CliError, CliResult};
use std::io::BufRead;
use tenure_core::event::{Event, EventBody, EventRecord};

/// A line may not be longer than this, in bytes.
const MAX_LINE: u64 = 64 * 1024 * 1024;

/// A whole export, checked: known types, one session, seqs dense from 0, as many events as announced.
#[derive(Debug)]
pub struct Export {
    /// The first line.
    pub header: Header,
    /// The events.
    pub records: Vec<EventRecord>,
}

/// Reads and checks.
///
/// # Errors
/// A usage error that names the line; nothing is stored by reading.
pub fn all(mut source: impl BufRead, name: &str) -> CliResult<Export> {
    let refuse = |line: u64, what: String| {
        CliError::usage(format!("{name}:{line}: {what}")).hint("nothing was imported")
    };
    let mut text = String::new();
    let mut read_line = |text: &mut String, number: u64| -> CliResult<bool> {
        use std::io::Read;
        text.clear();
        let read = (&mut source)
            .take(MAX_LINE)
            .read_line(text)
            .map_err(|e| refuse(number, format!("cannot be read: {e}")))?;
        if read as u64 == MAX_LINE {
            return Err(refuse(number, "the line is longer than 64 MiB".into()));
        }
        Ok(read > 0)
    };
    if !read_line(&mut text, 1)? {
        return Err(refuse(1, "the file is empty".into()));
    }
    let header = header(&text).map_err(|what| refuse(1, what))?;
    let mut records: Vec<EventRecord> = Vec::new();
    let mut number = 1;
    while read_line(&mut text, number + 1)? {
        number += 1;
        if text.trim().is_empty() {
            continue;
        }
        let record =
            record(&text, &header, records.len() as u64).map_err(|what| refuse(number, what))?;
        records.push(record);
    }
    if records.len() as u64 != header.events {
        let what = format!(
            "the file announces {} events and holds {}",
            header.events,
            records.len()
        );
        return Err(refuse(number, what).hint("it was cut off: export it again"));
    }
    Ok(Export { header, records })
}

fn header(text: &str) -> Result<Header, String> {
    #[derive(serde::Deserialize)]
    struct Version {
        tenure_export: u32,
    }
    let version: Version = serde_json::from_str(text).map_err(|_| {
        "this is not a Tenure export (its first line is not an export header)".to_owned()
    })?;
    if version.tenure_export != VERSION {
        return Err(format!(
            "the export has version {}, this program knows {VERSION}: use a newer tenure",
            version.tenure_export
        ));
    }
    serde_json::from_str(text).map_err(|e| format!("the header is damaged: {e}"))
}

fn record(text: &str, header: &Header, expected: u64) -> Result<EventRecord, String> {
    let record: EventRecord =
        serde_json::from_str(text).map_err(|e| format!("this is not an event: {e}"))?;
    if record.session != header.session {
        return Err(format!(
            "the event belongs to {}, not to {}",
            record.session, header.session
        ));
    }
    if record.seq != expected {
        return Err(format!(
            "seq {} follows where {expected} was expected",
            record.seq
        ));
    }
    match Event::try_from(record.clone()) {
        Ok(Event {
            body: EventBody::Unknown(unknown),
            ..
        }) => Err(format!(
            "this version does not know the event type {} version {}: use a newer tenure",
            unknown.type_name, unknown.version
        )),
        Ok(_) => Ok(record),
        Err(bad) => Err(bad.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::write;
    use tenure_core::event::body::SessionRenamed;
    use tenure_core::{EventId, SessionId};

    fn export() -> String {
        let session = SessionId::from_bits(1);
        let records: Vec<EventRecord> = (0..3u64)
            .map(|seq| {
                EventRecord::from(&Event {
                    id: EventId::from_bits(u128::from(seq)),
                    session: session.clone(),
                    seq,
                    epoch: None,
                    created_ms: 0,
                    body: SessionRenamed {
                        title: format!("t{seq}"),
                        automatic: false,
                    }
                    .into(),
                })
            })
            .collect();
        let header = Header {
            tenure_export: VERSION,
            session,
            events: 3,
            masked: false,
            masked_count: 0,
            created_ms: 0,
        };
        let mut out = Vec::new();
        write::all(&mut out, &header, &records, |_| {}).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_was_written_is_read() {
        let export = all(export().as_bytes(), "x").unwrap();
        assert_eq!((export.records.len(), export.header.events), (3, 3));
    }

    #[test]
    fn everything_else_is_refused_with_its_line() {
        let good = export();
        let lines: Vec<&str> = good.lines().collect();
        for (text, line, what) in [
            (String::new(), 1, "empty"),
            ("hello\n".into(), 1, "not a Tenure export"),
            (
                good.replace("\"tenure_export\":1", "\"tenure_export\":9"),
                1,
                "version 9",
            ),
            (lines[..3].join("\n"), 3, "announces 3 events and holds 2"),
            (
                [lines[0], lines[1], lines[3]].join("\n"),
                3,
                "seq 2 follows where 1",
            ),
            (
                good.replace("session.renamed", "session.later"),
                2,
                "session.later",
            ),
            (good.replace("\"title\"", "\"titel\""), 2, "cannot be read"),
            ([lines[0], "{"].join("\n"), 2, "not an event"),
        ] {
            let error = all(text.as_bytes(), "x").unwrap_err();
            assert_eq!(error.kind.code(), 2);
            assert!(
                error.message.starts_with(&format!("x:{line}: ")) && error.message.contains(what),
                "{what}: {error}"
            );
        }
    }
}
