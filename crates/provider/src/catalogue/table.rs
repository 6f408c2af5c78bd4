//! Tables of models as text: written in one way, searched without being parsed as a whole.
//!
//! ```text
//! # tenure models 1
//! # source: where the figures come from
//! # date: 2026-11-30
//! @vendor
//! name<TAB>context<TAB>output<TAB>abilities<TAB>prices[<TAB>above=prices…]
//! ```
//!
//! `-` stands for what is unknown, `!` before an ability for one that is known not to be there. Prices are dollars per million tokens: input, output, reasoning, cache read, cache
//! write, cache write for an hour, divided by slashes; behind those of the base, if it is known, what a million of the
//! web searches costs that the vendor counts in its usage.

use super::abilities::Abilities;
use std::collections::BTreeMap;
use std::fmt::Write;
use tenure_core::price::{Price, Rate, Rates, Tier};

/// So many prices are told of each tier.
const RATES: usize = 6;
/// The first line of every table.
const FIRST: &str = "# tenure models 1";

/// What a table says of one model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Entry {
    /// Context window in tokens.
    pub context: Option<u64>,
    /// Largest output in tokens.
    pub output: Option<u64>,
    /// What it is known to be able to do.
    pub abilities: Abilities,
    /// What its tokens cost.
    pub price: Option<Price>,
}

/// Where a table's figures come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The package or address, with its version.
    pub source: String,
    /// The day they were taken.
    pub date: String,
}

/// Entries by vendor and model.
pub type Entries = BTreeMap<String, BTreeMap<String, Entry>>;

/// Why a text is no table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// It does not begin as one.
    #[error("it does not begin as a table of models of this version")]
    NotATable,
    /// It does not say where its figures come from.
    #[error("it does not say where its figures come from")]
    NoSource,
}

/// A table as text.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a>(&'a str);

impl<'a> Table<'a> {
    /// Over a text, which is not looked at yet.
    pub fn new(text: &'a str) -> Self {
        Self(text)
    }

    /// Where its figures come from.
    ///
    /// # Errors
    /// It is no table, or does not say.
    pub fn head(&self) -> Result<Head, TableError> {
        let mut lines = self.0.lines();
        if lines.next() != Some(FIRST) {
            return Err(TableError::NotATable);
        }
        let (mut source, mut date) = (None, None);
        for line in lines.take_while(|line| line.starts_with('#')) {
            source = source.or(line.strip_prefix("# source: "));
            date = date.or(line.strip_prefix("# date: "));
        }
        match (source, date) {
            (Some(source), Some(date)) => Ok(Head {
                source: source.to_owned(),
                date: date.to_owned(),
            }),
            _ => Err(TableError::NoSource),
        }
    }

    /// What it says of a model; `None` too for a line that cannot be read.
    pub fn find(&self, vendor: &str, model: &str) -> Option<Entry> {
        read(self.rest(vendor, model)?)
    }

    /// Has it a line for this model?
    pub fn has(&self, vendor: &str, model: &str) -> bool {
        self.rest(vendor, model).is_some()
    }

    /// The models of a vendor, in order.
    pub fn names(&self, vendor: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let lines = self.lines(vendor);
        lines.filter_map(|line| line.split_once('\t').map(|(name, _)| name))
    }

    /// The vendors, in order.
    pub fn vendors(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.0.lines().filter_map(|line| line.strip_prefix('@'))
    }

    fn rest(&self, vendor: &str, model: &str) -> Option<&'a str> {
        self.lines(vendor)
            .find_map(|line| line.strip_prefix(model)?.strip_prefix('\t'))
    }

    fn lines(&self, vendor: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let text = self.0;
        let start = vendor_start(text, vendor).unwrap_or(text.len());
        text[start..]
            .lines()
            .take_while(|line| !line.starts_with('@'))
    }
}

/// Where the lines of a vendor begin.
fn vendor_start(text: &str, vendor: &str) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = text[from..].find("\n@") {
        let name = from + at + 2;
        let end = text[name..].find('\n').map_or(text.len(), |at| name + at);
        if &text[name..end] == vendor {
            return Some((end + 1).min(text.len()));
        }
        from = end;
    }
    None
}

fn read(rest: &str) -> Option<Entry> {
    let mut fields = rest.split('\t');
    let context = count(fields.next()?)?;
    let output = count(fields.next()?)?;
    let abilities = match fields.next()? {
        "-" => Abilities::default(),
        words => words
            .split(',')
            .fold(Abilities::default(), Abilities::and_word),
    };
    let price = match fields.next()? {
        "-" => None,
        base => {
            let tiers = fields.map(|tier| {
                let (above, rates) = tier.split_once('=')?;
                Some(Tier {
                    above: above.parse().ok()?,
                    rates: rates_of(rates)?,
                })
            });
            Some(Price {
                base: rates_of(base)?,
                tiers: tiers.collect::<Option<Vec<_>>>()?,
                search: match base.split('/').nth(RATES) {
                    None => None,
                    Some(fee) => Some(Rate::per_million(fee).ok()?),
                },
            })
        }
    };
    Some(Entry {
        context,
        output,
        abilities,
        price,
    })
}

/// The outer `None`: not a count.
#[expect(clippy::option_option, reason = "unknown and unreadable differ")]
fn count(field: &str) -> Option<Option<u64>> {
    match field {
        "-" => Some(None),
        digits => digits.parse().ok().map(Some),
    }
}

fn rates_of(text: &str) -> Option<Rates> {
    let mut parts = text.split('/').map(|part| match part {
        "-" => Ok(None),
        rate => Rate::per_million(rate).map(Some),
    });
    let mut next = || parts.next()?.ok();
    Some(Rates {
        input: next()??,
        output: next()??,
        reasoning: next()?,
        cache_read: next()?,
        cache_write: next()?,
        cache_write_long: next()?,
    })
}

/// Writes a table. Equal arguments give equal text. Names that could not be read back are left out.
pub fn write(head: &Head, notes: &[&str], entries: &Entries) -> String {
    let mut out = format!(
        "{FIRST}\n# source: {}\n# date: {}\n",
        one_line(&head.source),
        one_line(&head.date)
    );
    for note in notes {
        let _ = writeln!(out, "# {}", one_line(note));
    }
    for (vendor, models) in entries {
        if models.is_empty() || !is_name(vendor) {
            continue;
        }
        let _ = writeln!(out, "@{vendor}");
        for (name, entry) in models.iter().filter(|(name, _)| is_name(name)) {
            let abilities = match entry.abilities.words() {
                none if none.is_empty() => "-".to_owned(),
                words => words,
            };
            let _ = write!(
                out,
                "{name}\t{}\t{}\t{abilities}\t",
                count_text(entry.context),
                count_text(entry.output)
            );
            match &entry.price {
                None => out.push('-'),
                Some(price) => {
                    out.push_str(&rates_text(&price.base));
                    if let Some(fee) = price.search {
                        let _ = write!(out, "/{fee}");
                    }
                    for tier in &price.tiers {
                        let _ = write!(out, "\t{}={}", tier.above, rates_text(&tier.rates));
                    }
                }
            }
            out.push('\n');
        }
    }
    out
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 200
        && !name.starts_with(['@', '#'])
        && !name.chars().any(char::is_control)
}

fn count_text(count: Option<u64>) -> String {
    count.map_or_else(|| "-".to_owned(), |n| n.to_string())
}

fn rates_text(rates: &Rates) -> String {
    let parts = [
        Some(rates.input),
        Some(rates.output),
        rates.reasoning,
        rates.cache_read,
        rates.cache_write,
        rates.cache_write_long,
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .map(|rate| rate.map_or_else(|| "-".to_owned(), |rate| rate.to_string()))
        .collect();
    parts.join("/")
}
