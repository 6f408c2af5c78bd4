//! Reads the `price` of a model: decimal numbers, kept exactly.

use super::{At, RawPrice, Walk};
use tenure_core::price::{Rate, Rates, Tier};
use toml_edit::{Item, TableLike, Value};

const RATES: [&str; 6] = [
    "input",
    "output",
    "reasoning",
    "cache_read",
    "cache_write",
    "cache_write_1h",
];

impl Walk<'_> {
    /// The `price` of the model in `table`.
    pub(super) fn price(&mut self, table: &dyn TableLike, prefix: &str) -> Option<At<RawPrice>> {
        let given = self.table(table, prefix, "price")?;
        let line = self.key_line(table, "price");
        let prefix = format!("{prefix}price.");
        let known: Vec<&str> = RATES.into_iter().chain(["tiers"]).collect();
        self.check_keys(given, &prefix, &known);
        let base = self.rates(given, &prefix, line);
        let tiers = self.tiers(given, &prefix, line);
        Some(At {
            value: RawPrice { base, tiers },
            line,
        })
    }

    fn rates(&mut self, given: &dyn TableLike, prefix: &str, line: usize) -> Rates {
        for required in ["input", "output"] {
            if given.get(required).is_none() {
                self.problem(line, format!("`{prefix}{required}` is missing"));
            }
        }
        let mut rate = |key| self.rate(given, prefix, key);
        Rates {
            input: rate("input").unwrap_or_default(),
            output: rate("output").unwrap_or_default(),
            reasoning: rate("reasoning"),
            cache_read: rate("cache_read"),
            cache_write: rate("cache_write"),
            cache_write_long: rate("cache_write_1h"),
        }
    }

    fn rate(&mut self, given: &dyn TableLike, prefix: &str, key: &str) -> Option<Rate> {
        let wanted = "dollars per million tokens, zero or more";
        let found = self.scalar(given, prefix, key, wanted, |value| {
            let text = match value {
                Value::Integer(n) => n.value().to_string(),
                Value::Float(n) => n.value().to_string(),
                Value::String(text) => text.value().clone(),
                _ => return None,
            };
            Rate::per_million(&text).ok()
        });
        found.map(|at| at.value)
    }

    fn tiers(&mut self, given: &dyn TableLike, prefix: &str, line: usize) -> Vec<Tier> {
        let Some(item) = given.get("tiers") else {
            return Vec::new();
        };
        let tables = tables(item);
        let mut tiers = Vec::new();
        if tables.is_none() {
            let what = "must be an array of tables, each with `above` and prices";
            self.problem(line, format!("`{prefix}tiers` {what}"));
        }
        for table in tables.into_iter().flatten() {
            let prefix = format!("{prefix}tiers.");
            let known: Vec<&str> = RATES.into_iter().chain(["above"]).collect();
            self.check_keys(table, &prefix, &known);
            let above = self.whole(table, &prefix, "above").map(|at| at.value);
            if table.get("above").is_none() {
                self.problem(line, format!("`{prefix}above` is missing"));
            }
            let rates = self.rates(table, &prefix, line);
            tiers.extend(above.map(|above| Tier { above, rates }));
        }
        tiers.sort_by_key(|tier| tier.above);
        tiers
    }
}

fn tables(item: &Item) -> Option<Vec<&dyn TableLike>> {
    if let Some(tables) = item.as_array_of_tables() {
        return Some(tables.iter().map(|table| table as &dyn TableLike).collect());
    }
    item.as_array()?
        .iter()
        .map(|value| value.as_inline_table().map(|table| table as &dyn TableLike))
        .collect()
}
