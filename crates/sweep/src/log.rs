//! What the processes under test log, kept in memory: nobody reads it but an oracle.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::subscriber::DefaultGuard;
use tracing_subscriber::EnvFilter;

/// All that we say ourselves; of libraries what an operator sees who asks for `info`.
const LEVELS: &str = "info,applecart=trace,applecart_api=trace,applecart_core=trace,\
                      applecart_mac=trace,applecart_operator=trace,applecart_scaleway=trace,\
                      tart_kubelet=trace";

/// The lines of one run. Clones share them.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Keeps what is logged on this thread, until the guard is dropped.
    pub fn begin() -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(LEVELS))
            .with_ansi(false)
            .without_time()
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// Who logged the first line of which that holds: its level and its module, not what it says.
    pub fn find(&self, holds: impl Fn(&[u8]) -> bool) -> Option<String> {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Most logs hold nothing: one look is cheaper than one for each line.
        if !holds(&log) {
            return None;
        }
        let line = log.split(|byte| *byte == b'\n').find(|line| holds(line)).unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        Some(line.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
