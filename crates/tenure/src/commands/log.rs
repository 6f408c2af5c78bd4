//! `tenure log`: the events of a session; with `--follow` it attaches and shows what happens.

use super::{Context, open, print};
use crate::args::{Global, LogArgs};
use crate::exit::{CliError, CliResult};
use crate::follow::{End, Follow, Until, told};
use crate::render::view::View;
use crate::render::{json, log_line};
use crate::{ask, store};
use std::time::{Duration, Instant};
use tenure_store::{SessionRow, Store};

/// Events read at a time.
const PAGE: usize = 1_024;

/// Prints or follows; gives the exit code.
pub async fn run(cx: &Context, global: &Global, args: &LogArgs) -> CliResult<u8> {
    let config = open(cx, global)?;
    let store = store::open_existing(&config).await?;
    let row = store::find(store.as_ref(), &args.session).await?;
    if let Some(after) = args.after
        && after > row.head
    {
        return Err(CliError::usage(format!(
            "session {} ends at {}; there is nothing after {after}",
            row.id, row.head
        )));
    }
    if !args.follow {
        dump(cx, store.as_ref(), &row, args).await?;
        return Ok(0);
    }
    // Whoever looks on leaves when they want to.
    let client = store::client(&config, store)
        .await
        .reading_for(Duration::MAX);
    let mut view = View::of_log(row.id.clone(), args.json, cx.caps);
    let follow = Follow {
        client: &client,
        engine: None,
        session: row.id.clone(),
        after: args.after,
        until: if args.until_idle {
            Until::Idle
        } else {
            Until::Forever
        },
        interactive: cx.caps.stdout && cx.caps.stderr && !args.json && ask::possible(),
    };
    let began = Instant::now();
    let end = follow.run(&mut view).await?;
    // Whoever only looked on has not interrupted anything by leaving.
    if matches!(end, End::Left | End::HangUp | End::Terminate) {
        view.finish("detached", 0, None, began);
        return view.written().map(|()| 0);
    }
    let (word, error, words) = told(&end, &row.id, None);
    let code = error.as_ref().map_or(0, |e| e.kind.code());
    view.finish(word, code, words, began);
    error.map_or_else(|| view.written().map(|()| 0), Err)
}

async fn dump(cx: &Context, store: &dyn Store, row: &SessionRow, args: &LogArgs) -> CliResult {
    let mut after = args.after;
    loop {
        let page = store.read(&row.id, after, PAGE).await?;
        let Some(last) = page.events.last() else {
            return Ok(());
        };
        after = Some(last.seq);
        let text: String = page
            .events
            .iter()
            .map(|event| {
                let line = if args.json {
                    json::event(event)
                } else {
                    log_line::line(event, cx.caps)
                };
                line + "\n"
            })
            .collect();
        print(&text)?;
        if after >= page.head {
            return Ok(());
        }
    }
}
