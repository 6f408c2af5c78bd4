//! `tenure show`: a session as a readable transcript, with what still waits.

use super::{Context, open, print};
use crate::args::{Global, ShowArgs};
use crate::commands::sessions::{last_errors, line, state_sentence};
use crate::config::Config;
use crate::exit::{CliError, CliResult};
use crate::render::escape::safe_line;
use crate::render::human;
use crate::render::spans::Style;
use crate::render::transcript::{Detail, Superseded, Transcript, prompt_lines};
use crate::render::view::drawing;
use crate::{providers, store, waiting};
use serde_json::json;
use std::io::Write;
use tenure_core::compaction::meter;
use tenure_core::event::Event;
use tenure_core::event::body::{Delivery, InputKind};
use tenure_core::inbox::PendingInput;
use tenure_store::{ReadError, SessionRow, SessionState, Store};

/// Events read at a time.
const PAGE: usize = 4_096;

/// Prints it.
pub async fn run(cx: &Context, global: &Global, args: &ShowArgs) -> CliResult {
    let config = open(cx, global)?;
    let store = store::open_existing(&config).await?;
    let row = store::find(store.as_ref(), &args.session).await?;
    let pending = store.inbox(&row.id).await?;
    if args.json {
        let errors = last_errors(store.as_ref(), std::slice::from_ref(&row)).await;
        let claims = store.claims().await?;
        let asks = waiting::counts(store.as_ref(), &claims, std::slice::from_ref(&row)).await;
        let asks = asks.get(&row.id).copied().unwrap_or(0);
        let mut value = line(&row, errors.get(&row.id), asks);
        value["inputs"] = json!(pending);
        return print(&format!("{value}\n"));
    }
    let nodes = store
        .nodes()
        .await
        .map_err(|e| CliError::failed(e.to_string()))?;
    let detail = if args.full {
        Detail::Full
    } else {
        Detail::Some
    };
    let drawing = drawing(cx.caps, detail);
    let mut transcript = Transcript::new(drawing);
    // The log is read twice, page by page, and never held: it may be longer than memory.
    let mut superseded = Superseded::default();
    each_event(store.as_ref(), &row, None, |event| {
        superseded.event(&event.body);
        Ok(())
    })
    .await?;
    transcript.leave_out(superseded);
    let mut out = std::io::BufWriter::new(std::io::stdout());
    write_lines(&mut out, &head(&row, drawing.look.colour))?;
    each_event(store.as_ref(), &row, None, |event| {
        write_lines(&mut out, &transcript.event(&event))
    })
    .await?;
    let mut lines = transcript.finish();
    let now = human::now_ms();
    let owned = matches!(row.state, SessionState::Owned { .. });
    lines.extend(transcript.open_calls(now, owned));
    for input in &pending {
        lines.push(String::new());
        lines.extend(pending_lines(input, now, &drawing));
    }
    lines.push(String::new());
    let totals = format!(
        "{} · {}{}",
        state_sentence(&row, &nodes),
        transcript.totals().words(),
        meter_words(store.as_ref(), &row, window(&config, &row)).await?
    );
    lines.push(Style::dim().paint(&totals, drawing.look.colour));
    write_lines(&mut out, &lines)?;
    out.flush()?;
    Ok(())
}

fn write_lines(out: &mut impl Write, lines: &[String]) -> CliResult {
    for line in lines {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Every event of the session behind `after`, up to the head that `row` tells, one after the other.
///
/// # Errors
/// The log cannot be read, or `take` failed.
pub async fn each_event(
    store: &dyn Store,
    row: &SessionRow,
    after: Option<u64>,
    take: impl FnMut(Event) -> CliResult,
) -> CliResult {
    each_read(store, row, after, take).await
}

/// As [`each_event`], for who wants to know how reading ended.
pub async fn each_read<E: From<ReadError>>(
    store: &dyn Store,
    row: &SessionRow,
    after: Option<u64>,
    mut take: impl FnMut(Event) -> Result<(), E>,
) -> Result<(), E> {
    let mut after = after;
    loop {
        let page = store.read(&row.id, after, PAGE).await?;
        if page.events.is_empty() {
            return Ok(());
        }
        for event in page.events {
            if event.seq > row.head {
                return Ok(());
            }
            after = Some(event.seq);
            take(event)?;
        }
        if after >= Some(row.head) {
            return Ok(());
        }
    }
}

/// The window of the session's model, as far as it is known here.
fn window(config: &Config, row: &SessionRow) -> Option<u64> {
    let models = providers::models(config);
    models.resolve(&row.model).ok()?.info.limits.context
}

/// How full the context is: as the provider counted it, or marked as an estimate. The fold begins at the log's last
/// checkpoint, and holds what the model is told, no more.
async fn meter_words(
    store: &dyn Store,
    row: &SessionRow,
    window: Option<u64>,
) -> CliResult<String> {
    let loaded = tenure_engine::load::load(store, &row.id).await?;
    let meter = meter(&loaded.state);
    if meter.tokens == 0 {
        return Ok(String::new());
    }
    let about = if meter.measured { "" } else { "about " };
    let of = window.map_or_else(String::new, |window| format!(" of {window}"));
    Ok(format!(" · context {about}{}{of} tokens", meter.tokens))
}

fn head(row: &SessionRow, colour: bool) -> Vec<String> {
    let title = safe_line(row.title.as_deref().unwrap_or("(no title)"));
    let facts = format!(
        "{} · {} · {} · {}",
        row.id,
        row.model,
        safe_line(&row.location.directory),
        human::time(row.created_ms)
    );
    vec![
        Style::bold().paint(&title, colour),
        Style::dim().paint(&facts, colour),
        String::new(),
    ]
}

fn pending_lines(
    input: &PendingInput,
    now: i64,
    drawing: &crate::render::transcript::Drawing,
) -> Vec<String> {
    let mut lines = match &input.kind {
        InputKind::User {
            text, files, media, ..
        } => prompt_lines(text, files, media, drawing),
        InputKind::Synthetic { text } => vec![format!("· for the model: {}", safe_line(text))],
        InputKind::Compaction => vec!["· compact the history".to_owned()],
        InputKind::Move { location } => {
            vec![format!("· move to {}", safe_line(&location.directory))]
        }
    };
    let when = match (input.eligible, input.delivery) {
        (false, _) => "pending, parked until the session is resumed",
        (true, Delivery::Steer) => "pending, joins at the next boundary",
        (true, Delivery::Queue) => "pending, waits for the session to be idle",
    };
    let age = human::age(input.admitted_ms, now);
    let line = format!("  ({when}; since {age}; {})", input.input);
    lines.push(Style::colour(Style::YELLOW).paint(&line, drawing.look.colour));
    lines
}
