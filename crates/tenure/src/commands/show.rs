//! `tenure show`: a session as a readable transcript, with what still waits.

use super::{Context, open, print};
use crate::args::{Global, ShowArgs};
use crate::commands::sessions::{line, state_sentence};
use crate::config::Config;
use crate::exit::{CliError, CliResult};
use crate::render::escape::safe_line;
use crate::render::human;
use crate::render::spans::Style;
use crate::render::transcript::{Detail, Transcript, prompt_lines};
use crate::render::view::drawing;
use crate::{providers, store};
use serde_json::json;
use tenure_core::compaction::meter;
use tenure_core::event::Event;
use tenure_core::event::body::{Delivery, InputKind};
use tenure_core::inbox::PendingInput;
use tenure_core::session::SessionState as Fold;
use tenure_store::{SessionRow, SessionState, Store};

/// Events read at a time.
const PAGE: usize = 4_096;

/// Prints it.
pub async fn run(cx: &Context, global: &Global, args: &ShowArgs) -> CliResult {
    let config = open(cx, global)?;
    let store = store::open_existing(&config).await?;
    let row = store::find(store.as_ref(), &args.session).await?;
    let pending = store.inbox(&row.id).await?;
    if args.json {
        let mut value = line(&row);
        value["inputs"] = json!(pending);
        return print(&format!("{value}\n"));
    }
    let nodes = store
        .nodes()
        .await
        .map_err(|e| CliError::failed(e.to_string()))?;
    let events = events(store.as_ref(), &row).await?;
    let detail = if args.full {
        Detail::Full
    } else {
        Detail::Some
    };
    let drawing = drawing(cx.caps, detail);
    let mut transcript = Transcript::new(drawing);
    transcript.leave_out_superseded(&events);
    let mut lines = head(&row, drawing.look.colour);
    lines.extend(events.iter().flat_map(|event| transcript.event(event)));
    lines.extend(transcript.finish());
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
        meter_words(&events, window(&config, &row))
    );
    lines.push(Style::dim().paint(&totals, drawing.look.colour));
    lines.push(String::new());
    print(&lines.join("\n"))
}

/// The whole log.
pub async fn events(store: &dyn Store, row: &SessionRow) -> CliResult<Vec<Event>> {
    let mut events: Vec<Event> = Vec::new();
    loop {
        let after = events.last().map(|e| e.seq);
        let page = store.read(&row.id, after, PAGE).await?;
        let end = page.events.is_empty();
        events.extend(page.events);
        if end || events.last().map(|e| e.seq) >= page.head {
            return Ok(events);
        }
    }
}

/// The window of the session's model, as far as it is known here.
fn window(config: &Config, row: &SessionRow) -> Option<u64> {
    let models = providers::models(config);
    models.resolve(&row.model).ok()?.info.limits.context
}

/// How full the context is: as the provider counted it, or marked as an estimate.
fn meter_words(events: &[Event], window: Option<u64>) -> String {
    let meter = meter(&Fold::fold(events));
    if meter.tokens == 0 {
        return String::new();
    }
    let about = if meter.measured { "" } else { "about " };
    let of = window.map_or_else(String::new, |window| format!(" of {window}"));
    format!(" · context {about}{}{of} tokens", meter.tokens)
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
