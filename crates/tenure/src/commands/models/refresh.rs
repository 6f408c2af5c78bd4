//! `tenure models --refresh`: downloads a table of models, checks it, and puts it in place of the last one at once.

use crate::commands::{notice, print};
use crate::exit::{CliError, CliResult};
use crate::render::human;
use serde_json::json;
use std::io::Write;
use std::path::Path;
use tenure_provider::catalogue::download::download;
use tenure_provider::catalogue::models_dev::{self, Read};
use tenure_provider::catalogue::table::{Head, write};

/// Models named one by one when their price is not understood.
const NAMED: usize = 5;

/// Downloads `url` into `file`.
pub async fn run(file: &Path, url: &str, as_json: bool) -> CliResult {
    let old = || {
        if file.exists() {
            "nothing was changed: the table refreshed last stays in force"
        } else {
            "nothing was changed: the built-in table stays in force"
        }
    };
    let bytes = download(url)
        .await
        .map_err(|e| CliError::failed(e.to_string()).hint(old()))?;
    let read = models_dev::read(&bytes)
        .map_err(|e| CliError::failed(format!("{url} cannot be used: {e}")).hint(old()))?;
    drop(bytes);
    let date = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
    let head = Head {
        source: url.to_owned(),
        date: date.clone(),
    };
    let text = write(
        &head,
        &["Written by `tenure models --refresh`."],
        &read.entries,
    );
    store(file, &text).map_err(|e| {
        CliError::failed(format!("{} cannot be written: {e}", file.display())).hint(old())
    })?;
    tell_unpriced(&read);
    let vendors = read.entries.len() as u64;
    let models = read.entries.values().map(|m| m.len() as u64).sum();
    if as_json {
        let line = json!({"v": 1, "kind": "models_refreshed", "refreshed": true, "url": url, "date": date,
            "vendors": vendors, "models": models, "file": file, "unpriced": read.unpriced});
        return print(&format!("{line}\n"));
    }
    print(&format!(
        "{} of {} from {url} are in {}\n",
        human::many(models, "model"),
        human::many(vendors, "vendor"),
        file.display()
    ))
}

/// Whole or not at all, for a reader and for a machine that loses its power.
fn store(file: &Path, text: &str) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    new.write_all(text.as_bytes())?;
    new.as_file().sync_all()?;
    new.persist(file).map_err(|e| e.error)?;
    Ok(())
}

fn tell_unpriced(read: &Read) {
    if read.unpriced.is_empty() {
        return;
    }
    let mut names = read.unpriced.clone();
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    notice(&format!(
        "the price of {}{more} has a form this version does not know: it counts as unknown",
        names.join(", ")
    ));
}
