//! One writer per file in this process: two edits of one file in one step must not lose one of them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

static LOCKS: Mutex<Option<HashMap<PathBuf, Weak<Mutex<()>>>>> = Mutex::new(None);

/// Runs `work` while no other call of this process works on the same real path. Blocks: call it off the async threads.
pub(crate) fn with<T>(real: &Path, work: impl FnOnce() -> T) -> T {
    let lock = {
        let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        let locks = locks.get_or_insert_default();
        locks.retain(|_, lock| lock.strong_count() > 0);
        let known = locks.get(real).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let lock = Arc::new(Mutex::new(()));
            locks.insert(real.to_owned(), Arc::downgrade(&lock));
            lock
        })
    };
    let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
    work()
}
