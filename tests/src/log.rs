//! Collects the log lines of this process, for tests that check the lines.

use purser_local::LogAudit;
use std::io;
use std::sync::{Arc, Mutex};

/// The log lines of this process.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Records all later log lines. `directives` has the syntax of `LOG_LEVEL`.
    pub fn start(directives: &str) -> Self {
        let log = Self::default();
        let writer = log.clone();
        purser_api::log_to(directives, move || writer.clone());
        log
    }

    /// Returns all log lines so far.
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("not poisoned").clone()).expect("UTF-8")
    }
}

impl io::Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(audit) = LogAudit::from_environment() {
            (&*audit.lines()).write_all(line)?;
        }
        self.0.lock().expect("not poisoned").extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
