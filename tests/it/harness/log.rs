//! What the service logs, for tests that read it.

use std::io::Write;
use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;

/// Collects what is logged on this thread (so: in tests on tokio's current-thread runtime) until it is dropped.
pub struct Log {
    text: Arc<Mutex<Vec<u8>>>,
    _guard: DefaultGuard,
}

impl Log {
    /// From `info` up.
    pub fn start() -> Self {
        let text = Arc::<Mutex<Vec<u8>>>::default();
        let sink = Sink(text.clone());
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || sink.clone()).finish();
        Self { text, _guard: tracing::subscriber::set_default(subscriber) }
    }

    /// How many lines contain this.
    pub fn count(&self, needle: &str) -> usize {
        self.text().lines().filter(|line| line.contains(needle)).count()
    }

    /// All of it.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().unwrap()).into_owned()
    }
}

#[derive(Clone)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
