//! The store the suite runs on: a file, or a database when the target is the one for PostgreSQL.

use std::path::Path;
use std::sync::Arc;
use tenure_core::id::Incarnation;
use tenure_store::postgres::{Options, PostgresStore};
use tenure_store::sqlite::Fault;
use tenure_store::{OpenOptions, SqliteStore, Store};
use tenure_testbed::postgres::{Database, shared_or_skip};

/// The same sources are built as two targets; this one is named after its store.
pub const ON_POSTGRES: bool = matches!(env!("CARGO_CRATE_NAME").as_bytes(), b"postgres");

/// Of a long list of moments: all on a file, each `n`th where a store costs a database of its own.
pub const fn every(n: usize) -> usize {
    if ON_POSTGRES { n } else { 1 }
}

/// A store that a test may hurt.
pub trait Hurtable: Store {
    /// The node's process is gone, without a word.
    fn crash_node(&self, incarnation: &Incarnation);
    /// The next commit goes wrong.
    fn fail_next_commit(&self, fault: Fault);
}

impl Hurtable for SqliteStore {
    fn crash_node(&self, incarnation: &Incarnation) {
        self.crash_node(incarnation);
    }

    fn fail_next_commit(&self, fault: Fault) {
        self.fail_next_commit(fault);
    }
}

impl Hurtable for PostgresStore {
    fn crash_node(&self, incarnation: &Incarnation) {
        self.crash_node(incarnation);
    }

    fn fail_next_commit(&self, fault: Fault) {
        self.fail_next_commit(fault);
    }
}

/// Where the suite's stores are.
pub enum Place {
    File,
    Database(Box<Database>),
}

impl Place {
    /// A fresh place. Without a server, where one is asked for, the test is over: it was said what to install.
    pub fn new() -> Self {
        if !ON_POSTGRES {
            return Self::File;
        }
        match shared_or_skip() {
            Some(server) => Self::Database(Box::new(server.database().unwrap())),
            None => std::process::exit(0),
        }
    }

    /// Opens the store; again, as another process would.
    pub fn open(&self, folder: &Path, options: OpenOptions) -> Arc<dyn Hurtable> {
        match self {
            Self::File => SqliteStore::open(&folder.join("tenure.db"), options).unwrap(),
            Self::Database(database) => {
                let options = Options {
                    clock: options.clock,
                    mutations: options.mutations,
                    silent_is_gone: true,
                    ..Options::default()
                };
                PostgresStore::open(database.url(), options).unwrap()
            }
        }
    }
}
