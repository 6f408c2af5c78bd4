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
    /// The 1-based line each event stands on.
    pub lines: Vec<u64>,
}

/// What is wrong, and what to do about it.
struct Refusal {
    what: String,
    next: Option<&'static str>,
}

impl From<String> for Refusal {
    fn from(what: String) -> Self {
        Self { what, next: None }
    }
}

const NEWER: &str = "use a newer tenure";
const NO_EXPORT: &str = "name a file written by `tenure export`";

/// Reads and checks.
///
/// # Errors
/// A usage error that names the line; nothing is stored by reading.
pub fn all(mut source: impl BufRead, name: &str) -> CliResult<Export> {
    let refuse = |line: u64, refusal: Refusal| {
        let error = CliError::usage(format!("{name}:{line}: {}", refusal.what))
            .hint("nothing was imported");
        refusal.next.into_iter().fold(error, CliError::hint)
    };
    let mut line = |number: u64| line(&mut source, number).map_err(|what| refuse(number, what));
    let Some(text) = line(1)? else {
        return Err(refuse(1, "the file is empty".to_owned().into()));
    };
    let header = header(&text).map_err(|what| refuse(1, what))?;
    let mut records: Vec<EventRecord> = Vec::new();
    let mut lines = Vec::new();
    let mut number = 1;
    while let Some(text) = line(number + 1)? {
        number += 1;
        if text.trim().is_empty() {
            continue;
        }
        let record =
            record(&text, &header, records.len() as u64).map_err(|what| refuse(number, what))?;
        records.push(record);
        lines.push(number);
    }
    if records.is_empty() && header.events == 0 {
        return Err(refuse(
            1,
            "the export holds no event, and a session has at least one"
                .to_owned()
                .into(),
        ));
    }
    if records.len() as u64 != header.events {
        let what = format!(
            "the file announces {} events and holds {}",
            header.events,
            records.len()
        );
        let next = if (records.len() as u64) < header.events {
            "it was cut off: export it again"
        } else {
            "it was changed: export it again"
        };
        let next = Some(next);
        return Err(refuse(number, Refusal { what, next }));
    }
    Ok(Export {
        header,
        records,
        lines,
    })
}

/// The next line; none at the end.
fn line(source: &mut impl BufRead, number: u64) -> Result<Option<String>, Refusal> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let read = source
        .take(MAX_LINE)
        .read_until(b'\n', &mut bytes)
        .map_err(|e| Refusal::from(format!("cannot be read: {e}")))?;
    if read as u64 == MAX_LINE {
        return Err("the line is longer than 64 MiB".to_owned().into());
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok((read > 0).then_some(text)),
        Err(_) if number == 1 => Err(Refusal {
            what: "this is not an export of tenure: it is not text".to_owned(),
            next: Some(NO_EXPORT),
        }),
        Err(_) => Err("the line is damaged: it is not text".to_owned().into()),
    }
}

fn header(text: &str) -> Result<Header, Refusal> {
    #[derive(serde::Deserialize)]
    struct Version {
        tenure_export: u32,
    }
    let version: Version = serde_json::from_str(text).map_err(|_| Refusal {
        what: "this is not an export of tenure: its first line is not an export's header"
            .to_owned(),
        next: Some(NO_EXPORT),
    })?;
    if version.tenure_export != VERSION {
        return Err(Refusal {
            what: format!(
                "the export has version {}, this program knows {VERSION}",
                version.tenure_export
            ),
            next: Some(NEWER),
        });
    }
    serde_json::from_str(text).map_err(|e| format!("the header is damaged: {}", plain(&e)).into())
}

fn record(text: &str, header: &Header, expected: u64) -> Result<EventRecord, Refusal> {
    let record: EventRecord = serde_json::from_str(text)
        .map_err(|e| Refusal::from(format!("this is not an event: {}", plain(&e))))?;
    if record.session != header.session {
        return Err(format!(
            "the event belongs to {}, not to {}",
            record.session, header.session
        )
        .into());
    }
    if record.seq != expected {
        return Err(format!("seq {} follows where {expected} was expected", record.seq).into());
    }
    match Event::try_from(record.clone()) {
        Ok(Event {
            body: EventBody::Unknown(unknown),
            ..
        }) => Err(Refusal {
            what: format!(
                "this version does not know the event type {} version {}",
                unknown.type_name, unknown.version
            ),
            next: Some(NEWER),
        }),
        Ok(_) => Ok(record),
        Err(bad) => Err(bad.to_string().into()),
    }
}

/// A JSON error without its own count of lines, which is always 1 here.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => format!("{} (column {})", &text[..end], error.column()),
        None => text,
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
    fn binary_files_are_refused_in_words_and_advice_stands_below() {
        let error = all(&[0xff, 0xfe, 0, b'\n'][..], "x").unwrap_err();
        assert_eq!(
            error.message,
            "x:1: this is not an export of tenure: it is not text"
        );
        assert_eq!(error.hints.len(), 2, "{error}");
        let later = export().replace("session.renamed", "session.later");
        let error = all(later.as_bytes(), "x").unwrap_err();
        assert!(!error.message.contains("newer tenure"), "{error}");
        assert!(error.hints.iter().any(|h| h.contains("newer")), "{error}");
    }

    #[test]
    fn each_event_knows_its_line() {
        let text = export().replacen('\n', "\n\n", 2);
        assert_eq!(all(text.as_bytes(), "x").unwrap().lines, [3, 5, 6]);
    }

    #[test]
    fn everything_else_is_refused_with_its_line() {
        let good = export();
        let lines: Vec<&str> = good.lines().collect();
        for (text, line, what) in [
            (String::new(), 1, "empty"),
            ("hello\n".into(), 1, "not an export of tenure"),
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
