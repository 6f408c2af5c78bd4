//! What a node says while a test runs: the lines for people, by thread.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::filter::LevelFilter;

/// Hears every warning of this thread until it is dropped. The runtime must have one thread.
pub struct Heard {
    text: Text,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Heard {
    pub fn listen() -> Self {
        let text = Text::default();
        let to = text.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(LevelFilter::WARN)
            .with_writer(move || to.clone())
            .finish();
        Self {
            text,
            _guard: tracing::subscriber::set_default(subscriber),
        }
    }

    /// How many lines say this.
    pub fn times(&self, what: &str) -> usize {
        let text = self.text.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&text);
        text.lines().filter(|line| line.contains(what)).count()
    }
}
