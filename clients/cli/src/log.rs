//! A client for the checkpoint and hash tiles of a public statement log (c2sp.org/tlog-tiles).

use crate::args::{Log, Watch};
use crate::exit::{Exit, Failure};
use crate::files::{read_text, read_trust};
use crate::node::{connection, read_body};
use crate::output::Output;
use purser_evidence::{Checkpoint, Note, ReadError, TilePath, TileReader, TreeHead, build_consistency_proof};
use purser_verify::Trust;
use reqwest::StatusCode;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use url::Url;

/// The maximum length of an object, in bytes. A full tile has 8 KiB.
const MAX_OBJECT_BYTES: usize = 64 * 1024;

/// A client for the log at a URL prefix, for example `https://purser.example/log`.
pub(crate) struct LogClient {
    http: reqwest::Client,
    prefix: Url,
}

impl LogClient {
    /// Creates a client for the log at this URL. The URL must be `https`, or `http` on a loopback host.
    pub(crate) fn for_address(address: &str) -> Result<Self, Failure> {
        let wrong = || Failure::Words("the log's address must be https://…, or http:// to this machine".to_owned());
        let (http, prefix) = connection(address).ok_or_else(wrong)?;
        Ok(Self { http, prefix })
    }

    /// Reads an object below the prefix. Returns `None` if the object does not exist.
    async fn object(&self, path: &str) -> Result<Option<Vec<u8>>, Failure> {
        let failed = |reason: String| Failure::Words(format!("the log's `{path}` can't be read: {reason}"));
        let broken = |error: reqwest::Error| failed(error.without_url().to_string());
        let mut url = self.prefix.clone();
        url.path_segments_mut()
            .map_err(|()| failed("the address is no base".to_owned()))?
            .pop_if_empty()
            .extend(path.split('/'));
        let response = self.http.get(url).send().await.map_err(broken)?;
        match response.status() {
            StatusCode::OK => {
                let bytes = read_body(response, MAX_OBJECT_BYTES).await.map_err(broken)?;
                bytes.map(Some).ok_or_else(|| failed("it is too long".to_owned()))
            }
            StatusCode::NOT_FOUND => Ok(None),
            status => Err(failed(format!("HTTP {}", status.as_u16()))),
        }
    }

    /// Reads the latest checkpoint with the signatures.
    async fn checkpoint(&self) -> Result<String, Failure> {
        let bytes = self.object("checkpoint").await?;
        let bytes = bytes.ok_or_else(|| Failure::Words("the log has no checkpoint".to_owned()))?;
        String::from_utf8(bytes).map_err(|_| Failure::Words("the log's checkpoint is no text".to_owned()))
    }

    /// Checks that the newer of two trees starts with all entries of the older tree. The inner error says why not.
    pub(crate) async fn check_consistency(
        &self,
        left: &TreeHead,
        right: &TreeHead,
    ) -> Result<Result<(), String>, Failure> {
        let (older, newer) = if left.size <= right.size {
            (left, right)
        } else {
            (right, left)
        };
        let reason = match build_consistency_proof(self, older, newer).await {
            Ok(_) => return Ok(Ok(())),
            Err(ReadError::Reader(failure)) => return Err(failure),
            Err(ReadError::OtherTree) => "the log was forked or rewritten".to_owned(),
            Err(error) => error.to_string(),
        };
        Ok(Err(format!(
            "the tree of {} entries does not continue that of {}: {reason}",
            newer.size, older.size
        )))
    }
}

impl TileReader for LogClient {
    type Error = Failure;

    async fn get(&self, path: &TilePath) -> Result<Option<Vec<u8>>, Failure> {
        self.object(&path.to_string()).await
    }
}

/// Opens a checkpoint note with the signature of a trusted log and enough cosignatures. The error says why it is
/// rejected.
pub(crate) fn open_checkpoint(note: &str, trust: &Trust) -> Result<Checkpoint, String> {
    let note = Note::parse(note).map_err(|error| error.to_string())?;
    let checkpoint = trust.policy.open_checkpoint(&note).map_err(|error| error.to_string())?;
    trust
        .policy
        .verify_cosignatures(&note)
        .map_err(|error| error.to_string())?;
    Ok(checkpoint)
}

/// Reads and verifies a stored checkpoint.
pub(crate) fn read_checkpoint(path: &Path, trust: &Trust) -> Result<Checkpoint, Failure> {
    open_checkpoint(&read_text(path)?, trust)
        .map_err(|reason| Failure::Unreadable(format!("{} is no trusted checkpoint: {reason}", path.display())))
}

pub(crate) async fn run(command: Log, output: &Output) -> Result<Exit, Failure> {
    let Log::Watch(watch) = command;
    let trust = read_trust(&watch.trust)?;
    let log = LogClient::for_address(&watch.url)?;
    loop {
        let checked = check(&log, &trust, &watch, output).await;
        let Some(seconds) = watch.every else { return checked };
        match checked {
            Ok(Exit::Done) => {}
            // The log may be available again in the next round.
            Err(failure @ Failure::Words(_)) => output.print_text(&failure.to_string()),
            ended => return ended,
        }
        tokio::time::sleep(Duration::from_secs(seconds.into())).await;
    }
}

/// Compares the log's checkpoint with the stored checkpoint. An inconsistent checkpoint is stored in another file as
/// proof.
async fn check(log: &LogClient, trust: &Trust, arguments: &Watch, output: &Output) -> Result<Exit, Failure> {
    let kept = match arguments.state.try_exists() {
        Ok(true) => Some(read_checkpoint(&arguments.state, trust)?),
        Ok(false) => None,
        Err(error) => return Err(Failure::Unreadable(format!("{}: {error}", arguments.state.display()))),
    };
    let note = log.checkpoint().await?;
    let compared = match open_checkpoint(&note, trust) {
        Ok(checkpoint) => compare_checkpoints(log, kept.as_ref(), checkpoint).await?,
        Err(_) => Err("the log's checkpoint is not signed as the trust file requires".to_owned()),
    };
    let kept_size = kept.map(|kept| kept.tree_head().size);
    match compared {
        Ok(checkpoint) => {
            write_checkpoint(&arguments.state, &note)?;
            let size = checkpoint.tree_head().size;
            let document = json!({"consistent": true, "kept_size": kept_size, "size": size});
            output.print_result(&document, || {
                let since = kept_size.map(|kept| format!(", which begin with the {kept} of before"));
                vec![format!(
                    "{}: {size} entries{}",
                    checkpoint.origin(),
                    since.unwrap_or_default()
                )]
            });
            Ok(Exit::Done)
        }
        Err(reason) => {
            let mut conflict = arguments.state.clone().into_os_string();
            conflict.push(".conflict");
            let conflict = PathBuf::from(conflict);
            write_checkpoint(&conflict, &note)?;
            let file = conflict.display().to_string();
            let document = json!({"consistent": false, "kept_size": kept_size, "why": reason, "conflict": file});
            output.print_result(&document, || {
                vec![format!("Not verified: {reason}. The checkpoint is in {file}.")]
            });
            Ok(Exit::NotVerified)
        }
    }
}

async fn compare_checkpoints(
    log: &LogClient,
    stored_checkpoint: Option<&Checkpoint>,
    checkpoint: Checkpoint,
) -> Result<Result<Checkpoint, String>, Failure> {
    let Some(kept) = stored_checkpoint else {
        return Ok(Ok(checkpoint));
    };
    let (old, new) = (kept.tree_head(), checkpoint.tree_head());
    if kept.origin() != checkpoint.origin() {
        return Ok(Err(format!(
            "the log is `{}` instead of `{}`",
            checkpoint.origin(),
            kept.origin()
        )));
    }
    if new.size < old.size {
        return Ok(Err(format!(
            "the log was cut from {} entries to {}",
            old.size, new.size
        )));
    }
    Ok(log.check_consistency(&old, &new).await?.map(|()| checkpoint))
}

/// Replaces a file atomically, so that an interrupted run keeps the earlier checkpoint.
fn write_checkpoint(path: &Path, note: &str) -> Result<(), Failure> {
    let mut beside = path.to_path_buf().into_os_string();
    beside.push(".new");
    let written = fs::write(&beside, note).and_then(|()| fs::rename(&beside, path));
    let message = path.display().to_string();
    written.map_err(|source| Failure::Output { what: message, source })
}
