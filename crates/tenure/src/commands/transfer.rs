//! `tenure export` and `tenure import`: a session as JSON lines, out and in.

use super::show::each_read;
use super::{Context, open, print};
use crate::args::{ExportArgs, Global, ImportArgs};
use crate::exit::{CliError, CliResult};
use crate::export::patterns::Patterns;
use crate::export::write::{Header, VERSION};
use crate::export::{mask, read, write};
use crate::render::human;
use crate::{providers, store};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{BufReader, BufWriter, IsTerminal, Write};
use std::path::Path;
use tenure_core::SessionId;
use tenure_core::event::EventRecord;
use tenure_store::{ReadError, ReplayError};

/// Writes a session.
pub async fn export(cx: &Context, global: &Global, args: &ExportArgs) -> CliResult {
    let config = open(cx, global)?;
    let store = store::open_existing(&config).await?;
    let row = store::find(store.as_ref(), &args.session).await?;
    let mut events = Vec::new();
    let read = each_read(store.as_ref(), &row, None, |event| {
        events.push(event);
        Ok(())
    });
    let damage = match read.await {
        Ok(()) => None,
        // What stands before the damage is worth keeping, said for what it is.
        Err(damage @ ReadError::Damaged { .. }) if !events.is_empty() => Some(damage),
        Err(error) => return Err(error.into()),
    };
    let (mut records, masked) = if args.raw {
        (events.iter().map(EventRecord::from).collect(), 0)
    } else {
        mask::events(&events, &Patterns::new(providers::known_secrets(&config)))
    };
    // A fork's shared prefix is its own in the file: what is imported stands alone.
    for record in &mut records {
        record.session = row.id.clone();
    }
    let header = Header {
        tenure_export: VERSION,
        session: row.id.clone(),
        events: records.len() as u64,
        masked: !args.raw,
        masked_count: masked,
        created_ms: human::now_ms(),
    };
    let wanted = args.output.is_some() || !cx.caps.stdout;
    let bar = bar(cx, WRITING, Some(records.len() as u64), wanted);
    match &args.output {
        Some(path) => to_file(path, &header, &records, &bar)?,
        None => write::all(
            &mut BufWriter::new(std::io::stdout().lock()),
            &header,
            &records,
            |n| {
                bar.set_position(n);
            },
        )?,
    }
    bar.finish_and_clear();
    let secrets = if args.raw {
        "secrets were left as they are".to_owned()
    } else {
        format!("{} masked", human::many(masked, "secret"))
    };
    let _ = writeln!(
        std::io::stderr(),
        "{} exported; {secrets}",
        human::many(records.len() as u64, "event")
    );
    match damage {
        None => Ok(()),
        Some(damage) => Err(CliError::from(damage).hint(format!(
            "what stands before that was exported; `tenure fork {} --at {}` goes on from there",
            row.id,
            records.len().saturating_sub(1)
        ))),
    }
}

/// Private, and whole or not at all; what is there and is no file (a pipe, a device) is written to, not replaced.
fn to_file(path: &Path, header: &Header, records: &[EventRecord], bar: &ProgressBar) -> CliResult {
    let cannot = |e: std::io::Error| {
        CliError::failed(format!("{} cannot be written: {e}", path.display()))
            .hint("choose another --output")
    };
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(path)
            .map_err(cannot)?;
        let mut out = BufWriter::new(file);
        return write::all(&mut out, header, records, |n| bar.set_position(n)).map_err(cannot);
    }
    if path.try_exists().map_err(cannot)? {
        return Err(
            CliError::usage(format!("{} exists, and is not overwritten", path.display()))
                .hint("choose another --output, or remove it first"),
        );
    }
    let folder = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(cannot)?;
    let mut out = BufWriter::new(file.as_file_mut());
    write::all(&mut out, header, records, |n| bar.set_position(n)).map_err(cannot)?;
    drop(out);
    file.as_file().sync_all().map_err(cannot)?;
    file.persist_noclobber(path).map_err(|e| cannot(e.error))?;
    Ok(())
}

/// Reads a session, all of it checked before anything is stored.
pub async fn import(cx: &Context, global: &Global, args: &ImportArgs) -> CliResult {
    let config = open(cx, global)?;
    let stdin = args.file == Path::new("-");
    let name = if stdin {
        "standard input".to_owned()
    } else {
        args.file.display().to_string()
    };
    let export = if stdin {
        if std::io::stdin().is_terminal() {
            return Err(CliError::usage("standard input is a terminal")
                .hint("pipe an export into it, or name a file"));
        }
        let bar = bar(cx, READING_ON, None, true);
        let source = BufReader::new(bar.wrap_read(std::io::stdin().lock()));
        cleared(&bar, read::all(source, &name))?
    } else {
        let file = std::fs::File::open(&args.file).map_err(|e| {
            CliError::usage(format!("{name} cannot be read: {e}"))
                .hint("name a file written by `tenure export`")
        })?;
        let size = file.metadata().ok().filter(|meta| meta.is_file());
        let bar = match size {
            Some(meta) => bar(cx, READING, Some(meta.len()), true),
            None => bar(cx, READING_ON, None, true),
        };
        cleared(&bar, read::all(BufReader::new(bar.wrap_read(file)), &name))?
    };
    let store = store::open(&config).await?;
    // One transaction: there is no telling how far it is.
    let bar = bar(cx, STORING, Some(export.header.events), true);
    bar.enable_steady_tick(std::time::Duration::from_millis(120));
    let session = export.header.session.clone();
    let done = cleared(&bar, store.replay(&session, export.records).await);
    let done = done.map_err(|error| refused(error, &name, &export.lines, &session))?;
    let note = if export.header.masked {
        ", with secrets masked"
    } else {
        ""
    };
    print(&format!(
        "{} imported{note}: {} new, {} there already\n",
        export.header.session,
        human::many(done.inserted, "event"),
        done.equal
    ))
}

/// The store counts events; people look for lines of their file.
fn refused(error: ReplayError, name: &str, lines: &[u64], session: &SessionId) -> CliError {
    let line = |event: u64| {
        let index = usize::try_from(event).unwrap_or(usize::MAX);
        lines.get(index).copied().unwrap_or(event + 2)
    };
    // Exports begin at seq 0, one event after the other.
    let (at, what) = match &error {
        ReplayError::Unavailable { .. } => return error.into(),
        ReplayError::Divergent { seq } => {
            let what = format!("seq {seq} differs from what is stored of {session}");
            let error = CliError::usage(format!("{name}:{}: {what}", line(*seq)));
            return error.hint("nothing was imported").hint(format!(
                "`tenure log {session}` shows what is stored; import into another --store, or delete that session first"
            ));
        }
        ReplayError::Gap {
            line: at,
            expected,
            found,
        } => (*at, format!("seq {found} follows, {expected} was expected")),
        ReplayError::UnknownType {
            line: at,
            type_name,
            version,
        } => (
            *at,
            format!("this version does not know event type {type_name} version {version}"),
        ),
        ReplayError::BadEvent { line: at, detail } => (*at, detail.clone()),
    };
    let at = line(at.saturating_sub(1));
    CliError::usage(format!("{name}:{at}: {what}")).hint("nothing was imported")
}

/// Bytes of a file, events of a session, and what has no measure.
const READING: &str = "reading {bar:30} {bytes}/{total_bytes} {elapsed}";
const READING_ON: &str = "reading {spinner} {bytes} {elapsed}";
const WRITING: &str = "writing {bar:30} {pos}/{len} events {elapsed}";
const STORING: &str = "storing {spinner} {len} events {elapsed}";

/// Takes the bar away before anything else is said.
fn cleared<T>(bar: &ProgressBar, result: T) -> T {
    bar.finish_and_clear();
    result
}

fn bar(cx: &Context, template: &str, len: Option<u64>, wanted: bool) -> ProgressBar {
    let target = if wanted && cx.caps.stderr && cx.caps.cursor {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(len, target);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
