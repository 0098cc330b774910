//! The journal of purchases, which lets a repeated command continue the purchase of a killed command.
//!
//! Before the first payment, the command writes a run id to a file, and it removes the file after the response. A later
//! command that finds the file uses the same run id and therefore the same idempotency key. A running command locks the
//! file, so an identical concurrent command is a separate purchase.

use crate::credentials::{CredentialError, directory};
use purser_client::IdempotencyKey;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// The maximum number of identical commands that run concurrently.
const MAX_AT_ONCE: u32 = 64;

/// The reason why a purchase was not started. Without a journal file, repeating a killed command could pay twice.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalError {
    #[error(transparent)]
    Place(#[from] CredentialError),
    #[error("{path}: {source}")]
    File { path: String, source: io::Error },
    #[error("64 identical commands are running")]
    TooMany,
}

/// The journal file of a purchase.
#[derive(Debug)]
pub(crate) struct Journal {
    /// The run's id.
    pub(crate) run: String,
    /// Whether this command created the journal file. False if it found a leftover file.
    pub(crate) is_new: bool,
    path: PathBuf,
    // The open file holds the lock.
    _file: File,
}

impl Journal {
    /// Opens the leftover file for this request, or creates a new file.
    pub(crate) fn open(request: &IdempotencyKey) -> Result<Self, JournalError> {
        Self::open_in(
            &directory("XDG_STATE_HOME", ".local/state")?.join("purser/purchases"),
            request,
        )
    }

    fn open_in(folder: &Path, request: &IdempotencyKey) -> Result<Self, JournalError> {
        fs::create_dir_all(folder).map_err(|source| file(folder, source))?;
        for number in 1..=MAX_AT_ONCE {
            let path = folder.join(format!("{request}-{number}"));
            let of = |source| file(&path, source);
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let mut opened = options.open(&path).map_err(of)?;
            match opened.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(error)) => return Err(of(error)),
            }
            // Another command removed the file before it was locked here, and that command's purchase is complete.
            if !is_at(&opened, &path) {
                continue;
            }
            let mut run = String::new();
            opened.read_to_string(&mut run).map_err(of)?;
            let is_new = Uuid::parse_str(&run).is_err();
            if is_new {
                run = Uuid::new_v4().to_string();
                opened.rewind().and_then(|()| opened.set_len(0)).map_err(of)?;
                opened
                    .write_all(run.as_bytes())
                    .and_then(|()| opened.sync_all())
                    .map_err(of)?;
            }
            return Ok(Self {
                run,
                is_new,
                path,
                _file: opened,
            });
        }
        Err(JournalError::TooMany)
    }

    /// Ends the purchase. The next identical command is a new purchase.
    pub(crate) fn close(self) -> Result<(), JournalError> {
        fs::remove_file(&self.path).map_err(|source| file(&self.path, source))
    }
}

/// Returns whether the open file is still the file at `path`.
fn is_at(file: &File, path: &Path) -> bool {
    let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(opened), Ok(there)) => id(opened) == id(there),
        _ => false,
    }
}

fn file(path: &Path, source: io::Error) -> JournalError {
    let path = path.display().to_string();
    JournalError::File { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::thread;

    #[test]
    fn concurrent_identical_purchases_use_separate_run_ids() {
        let folder = std::env::temp_dir().join(format!("purser-journal-{}", Uuid::new_v4()));
        let request = IdempotencyKey::from_text("a-request").unwrap();
        let purchases = || {
            let runs = (0..200).map(|_| {
                let journal = Journal::open_in(&folder, &request).unwrap();
                let run = journal.run.clone();
                journal.close().unwrap();
                run
            });
            runs.collect::<Vec<_>>()
        };
        let runs: Vec<String> = thread::scope(|scope| {
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(purchases)).collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        });
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(runs.iter().collect::<HashSet<_>>().len(), runs.len());
    }
}
