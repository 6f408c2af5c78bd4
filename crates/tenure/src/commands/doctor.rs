//! `tenure doctor`: checks configuration, store and model endpoints, and says what to do.

use super::{Context, print};
use crate::args::{DoctorArgs, Global};
use crate::config::{Config, Flags, load, permissions};
use crate::environment::working_folder;
use crate::exit::{CliError, CliResult};
use crate::render::escape::safe_line;
use crate::render::human;
use crate::render::spans::Style;
use crate::{providers, store};
use serde_json::json;
use std::time::Duration;
use tenure_provider::{Finding, probe};
use tenure_store::{OpenError, SessionQuery, SessionState, Store};

/// An endpoint that does not answer within this is reported.
const PROBE_WITHIN: Duration = Duration::from_secs(10);

/// What errors advise elsewhere.
const SAYS_MORE: &str = "`tenure doctor` says more";
/// What to do with a store that cannot be read.
const SAVE: &str = "stop all of its nodes, keep a copy, `tenure export` what can still be read; \
    `sqlite3 FILE .recover` may save more; another place is chosen with --store";

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Good,
    Note,
    Broken,
}

/// One check.
struct Check {
    mark: Mark,
    what: &'static str,
    words: String,
    next: Option<String>,
}

#[derive(Default)]
struct Report(Vec<Check>);

impl Report {
    fn add(
        &mut self,
        mark: Mark,
        what: &'static str,
        words: impl Into<String>,
        next: Option<String>,
    ) {
        self.0.push(Check {
            mark,
            what,
            words: words.into(),
            next,
        });
    }

    fn good(&mut self, what: &'static str, words: impl Into<String>) {
        self.add(Mark::Good, what, words, None);
    }

    fn broken(&mut self, what: &'static str, error: &CliError) {
        // Whoever reads this has asked doctor already.
        let hints: Vec<&str> = error
            .hints
            .iter()
            .map(String::as_str)
            .filter(|hint| !hint.starts_with(SAYS_MORE))
            .collect();
        let words = error.message.replace(&format!("; {SAYS_MORE}"), "");
        let next = match (hints.is_empty(), what) {
            (false, _) => Some(hints.join("; ")),
            (true, "store" | "sessions") => Some(SAVE.to_owned()),
            (true, _) => None,
        };
        self.add(Mark::Broken, what, words, next);
    }
}

/// Checks everything; fails when something is broken.
pub async fn run(cx: &Context, global: &Global, args: &DoctorArgs) -> CliResult {
    let mut report = Report::default();
    let config = working_folder(None).and_then(|cwd| load(&Flags::from(global), &cx.env, &cwd));
    match config {
        Ok(config) => {
            configuration(&config, &mut report);
            sessions(&config, &mut report).await;
            endpoints(&config, args, &mut report).await;
            sandbox(&mut report);
        }
        Err(error) => report.broken("configuration", &error),
    }
    let broken = report.0.iter().filter(|c| c.mark == Mark::Broken).count();
    print(&if args.json {
        as_json(&report)
    } else {
        as_text(&report, cx.caps.colour && cx.caps.stdout)
    })?;
    match broken {
        0 => Ok(()),
        n => Err(CliError::failed(format!(
            "{n} of {} checks found something broken",
            report.0.len()
        ))),
    }
}

fn configuration(config: &Config, report: &mut Report) {
    match &config.file {
        Some(file) => report.good("configuration", format!("{} is valid", file.display())),
        None => report.add(
            Mark::Note,
            "configuration",
            "there is no configuration file",
            Some(format!(
                "`mkdir -p {0} && tenure config --example > {0}/tenure.toml` makes one to start from",
                config.folders.config.display()
            )),
        ),
    }
    if let Err(error) = config.sound() {
        report.broken("project", &error);
    }
    let sound = config.sound().is_ok();
    for text in config.notices.iter().filter(|_| sound) {
        report.add(Mark::Note, "project", text.clone(), None);
    }
    let unmatched = permissions::unmatched(config);
    for rule in &unmatched {
        let mark = if rule.narrows {
            Mark::Broken
        } else {
            Mark::Note
        };
        report.add(mark, "permissions", rule.words.clone(), None);
    }
    match permissions::rules(config) {
        Ok(_) if !unmatched.is_empty() => {}
        Ok(_) => report.good("permissions", "the rules are understood"),
        Err(error) => report.broken("permissions", &error),
    }
    match config.model() {
        Ok(model) => report.good("model", format!("new sessions use {model}")),
        Err(error) => report.broken("model", &error),
    }
}

async fn sessions(config: &Config, report: &mut Report) {
    let store = match store::try_existing(config).await {
        Ok(Ok(store)) => store,
        Ok(Err(error)) => {
            not_there(config, &error, report);
            return;
        }
        Err(error) => {
            report.broken("store", &error);
            return;
        }
    };
    match store.health().await {
        Ok(health) if health.problems.is_empty() => report.good(
            "store",
            format!(
                "{}, schema {}, {}, {}, {} in {}",
                health.engine,
                health.schema,
                health.durability,
                human::bytes(health.bytes),
                human::many(health.sessions, "session"),
                health.place
            ),
        ),
        Ok(health) => report.add(
            Mark::Broken,
            "store",
            format!(
                "{} is damaged: {}",
                health.place,
                health.problems.join("; ")
            ),
            Some(SAVE.to_owned()),
        ),
        Err(error) => report.broken("store", &error.into()),
    }
    match store.weak().await {
        Ok(weak) => {
            for weak in weak {
                report.add(Mark::Broken, "store", weak.what, Some(weak.next));
            }
        }
        Err(error) => report.broken("store", &error.into()),
    }
    if let Some(path) = config.store.value.path() {
        private_files(path, report);
    }
    match stranded(store.as_ref()).await {
        Ok(words) => report.0.extend(words),
        Err(error) => report.broken("sessions", &error),
    }
}

/// A store that is not there or not up to date is no fault: whoever begins something there sees to it.
fn not_there(config: &Config, error: &OpenError, report: &mut Report) {
    match error {
        OpenError::Missing { grant: Some(_), .. } => {
            report.broken("store", &store::open_error(error, config));
        }
        OpenError::Missing { path, others, .. } if others.is_empty() => {
            report.good("store", format!("{path} will be made when it is needed"));
        }
        OpenError::Missing { .. } => {
            let told = store::open_error(error, config);
            report.add(
                Mark::Note,
                "store",
                told.message,
                Some(told.hints.join("; ")),
            );
        }
        OpenError::Older { .. } => report.add(Mark::Note, "store", error.to_string(), None),
        error => report.broken("store", &store::open_error(error, config)),
    }
}

/// What waits for somebody (P7), in words.
async fn stranded(store: &dyn Store) -> CliResult<Vec<Check>> {
    let rows = store
        .sessions(SessionQuery {
            limit: 10_000,
            ..SessionQuery::default()
        })
        .await?;
    // How many, and the first of them.
    let count = |wanted: fn(&SessionState) -> bool| {
        let mut found = rows.iter().filter(|r| wanted(&r.state)).map(|r| &r.id);
        let first = found.next();
        (first.map_or(0, |_| 1 + found.count()), first)
    };
    let note = |words: String, next: String| Check {
        mark: Mark::Note,
        what: "sessions",
        words,
        next: Some(next),
    };
    let mut found = Vec::new();
    if let (claimable, Some(_)) = count(|s| matches!(s, SessionState::Claimable { .. })) {
        found.push(note(
            format!("{claimable} could run, and nobody runs them"),
            "`tenure resume --all` runs them".to_owned(),
        ));
    }
    if let (set_aside, Some(id)) = count(|s| matches!(s, SessionState::Quarantined { .. })) {
        found.push(note(
            format!("{set_aside} are set aside after crashes"),
            format!("`tenure show {id}` says why, `tenure release {id}` lets it go on"),
        ));
    }
    if let (parked, Some(id)) = count(|s| matches!(s, SessionState::Parked { .. })) {
        found.push(note(
            format!("{parked} hold inputs that rest"),
            format!("`tenure show {id}` says why, `tenure resume {id}` tries again"),
        ));
    }
    let reasons = || {
        rows.iter().filter_map(|row| match &row.state {
            SessionState::Unplaceable { reason } => Some(reason),
            _ => None,
        })
    };
    if let Some(reason) = reasons().next() {
        found.push(note(
            format!(
                "{} wait, since no node can run them: {}",
                reasons().count(),
                safe_line(reason)
            ),
            "`tenure claims` names each with what it needs: start such a node, or move it with `tenure run --session ID`"
                .to_owned(),
        ));
    }
    Ok(found)
}

#[cfg(unix)]
fn private_files(path: &std::path::Path, report: &mut Report) {
    use std::os::unix::fs::PermissionsExt;
    let Ok(meta) = std::fs::metadata(path) else {
        return;
    };
    let mode = meta.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        report.add(
            Mark::Broken,
            "store",
            format!(
                "{} can be read by other users (mode {mode:03o})",
                path.display()
            ),
            Some(format!("chmod 600 {}", path.display())),
        );
    }
}

#[cfg(not(unix))]
fn private_files(_path: &std::path::Path, _report: &mut Report) {}

async fn endpoints(config: &Config, args: &DoctorArgs, report: &mut Report) {
    for (name, provider) in &config.providers {
        let settings = match providers::settings(name, provider) {
            Ok(settings) => settings,
            Err(error) => {
                report.broken("provider", &error);
                continue;
            }
        };
        if args.offline {
            report.good("provider", format!("{name} is configured (not contacted)"));
            continue;
        }
        let found = probe(&settings, PROBE_WITHIN).await;
        let mark = match found.finding {
            Finding::Ok => Mark::Good,
            Finding::Trouble => Mark::Note,
            _ => Mark::Broken,
        };
        let refused = found.finding == Finding::Auth && provider.key.is_some();
        let next = refused.then(|| providers::key_place(name, provider));
        report.add(mark, "provider", format!("{name}: {}", found.message), next);
    }
}

/// What tools need of this machine.
fn sandbox(report: &mut Report) {
    match tenure_tools::guardian::boot_id() {
        Ok(_) => report.good("tools", "tool processes can be guarded"),
        Err(_) => report.add(
            Mark::Broken,
            "tools",
            "/proc cannot be read: leftover tool processes could not be told apart from others",
            Some("mount /proc".into()),
        ),
    }
}

fn as_text(report: &Report, colour: bool) -> String {
    let mut out = String::new();
    for check in &report.0 {
        let (mark, style) = match check.mark {
            Mark::Good => ("✓", Style::colour(Style::GREEN)),
            Mark::Note => ("!", Style::colour(Style::YELLOW)),
            Mark::Broken => ("✗", Style::colour(Style::RED)),
        };
        out.push_str(&format!(
            "{} {:<14} {}\n",
            style.paint(mark, colour),
            check.what,
            safe_line(&check.words)
        ));
        if let Some(next) = &check.next {
            out.push_str(&format!("  {:<14} → {}\n", "", safe_line(next)));
        }
    }
    out
}

fn as_json(report: &Report) -> String {
    let checks: Vec<_> = report
        .0
        .iter()
        .map(|check| {
            let result = match check.mark {
                Mark::Good => "good",
                Mark::Note => "note",
                Mark::Broken => "broken",
            };
            json!({"check": check.what, "result": result, "message": check.words, "next": check.next})
        })
        .collect();
    format!("{}\n", json!({"v": 1, "kind": "doctor", "checks": checks}))
}
