//! SQL text with the store's schema in it, and values with their types: what every statement here is made of.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio_postgres::types::{ToSql, Type};

/// A value and the type the statement takes it as.
pub(super) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// Values for a statement: `params![INT8: sid, TEXT: name]`.
macro_rules! params {
    ($($kind:ident : $value:expr),* $(,)?) => {
        &[$((&$value as &(dyn tokio_postgres::types::ToSql + Sync), tokio_postgres::types::Type::$kind)),*]
    };
}
pub(super) use params;

/// Puts the schema where statements write `@.`; each text is made once.
#[derive(Debug)]
pub(super) struct Dialect {
    schema: String,
    texts: Mutex<HashMap<&'static str, Arc<str>>>,
}

impl Dialect {
    pub(super) fn new(quoted_schema: String) -> Self {
        Self {
            schema: quoted_schema,
            texts: Mutex::default(),
        }
    }

    /// The schema, quoted.
    pub(super) fn schema(&self) -> &str {
        &self.schema
    }

    /// A statement's text as the server gets it.
    pub(super) fn text(&self, sql: &'static str) -> Arc<str> {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let text = texts.entry(sql).or_insert_with(|| self.fill(sql).into());
        Arc::clone(text)
    }

    /// As [`Dialect::text`], for text made at run time.
    pub(super) fn fill(&self, sql: &str) -> String {
        sql.replace("@.", &format!("{}.", self.schema))
    }
}

/// An unsigned number as the server holds it. Values beyond `i64::MAX` do not occur in practice and saturate.
pub(super) fn int(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// A stored number that is never negative.
pub(super) fn uint(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}
