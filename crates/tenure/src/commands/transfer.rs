//! `tenure export` and `tenure import`: a session as JSON lines, out and in.

use super::show::events;
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
use tenure_core::event::EventRecord;
use tenure_store::Store;

/// Writes a session.
pub async fn export(cx: &Context, global: &Global, args: &ExportArgs) -> CliResult {
    let config = open(cx, global)?;
    let store = store::open_existing(&config)?;
    let row = store::find(store.as_ref(), &args.session).await?;
    let events = events(store.as_ref(), &row).await?;
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
    let bar = bar(
        cx,
        records.len() as u64,
        args.output.is_some() || !cx.caps.stdout,
    );
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
        format!("{masked} secret(s) masked")
    };
    let _ = writeln!(
        std::io::stderr(),
        "{} events exported; {secrets}",
        records.len()
    );
    Ok(())
}

/// Private, and whole or not at all.
fn to_file(path: &Path, header: &Header, records: &[EventRecord], bar: &ProgressBar) -> CliResult {
    let cannot = |e: std::io::Error| {
        CliError::failed(format!("{} cannot be written: {e}", path.display()))
            .hint("choose another --output")
    };
    let folder = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(cannot)?;
    let mut out = BufWriter::new(file.as_file_mut());
    write::all(&mut out, header, records, |n| bar.set_position(n)).map_err(cannot)?;
    drop(out);
    file.as_file().sync_all().map_err(cannot)?;
    file.persist(path).map_err(|e| cannot(e.error))?;
    Ok(())
}

/// Reads a session, all of it checked before anything is stored.
pub async fn import(cx: &Context, global: &Global, args: &ImportArgs) -> CliResult {
    let config = open(cx, global)?;
    let export = if args.file == Path::new("-") {
        if std::io::stdin().is_terminal() {
            return Err(CliError::usage("standard input is a terminal")
                .hint("pipe an export into it, or name a file"));
        }
        read::all(std::io::stdin().lock(), "standard input")?
    } else {
        let file = std::fs::File::open(&args.file).map_err(|e| {
            CliError::usage(format!("{} cannot be read: {e}", args.file.display()))
                .hint("name a file written by `tenure export`")
        })?;
        read::all(BufReader::new(file), &args.file.display().to_string())?
    };
    let store = store::open(&config)?;
    let count = export.header.events;
    let bar = bar(cx, count, true);
    bar.enable_steady_tick(std::time::Duration::from_millis(120));
    let done = store.replay(&export.header.session, export.records).await;
    bar.finish_and_clear();
    let done = done?;
    let note = if export.header.masked {
        ", with secrets masked"
    } else {
        ""
    };
    print(&format!(
        "{} imported{note}: {} events new, {} there already\n",
        export.header.session, done.inserted, done.equal
    ))
}

fn bar(cx: &Context, len: u64, wanted: bool) -> ProgressBar {
    let target = if wanted && cx.caps.stderr && cx.caps.cursor {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(len), target);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} events {elapsed}") {
        bar.set_style(style);
    }
    bar
}
