//! A log of statements, read by anybody: its checkpoint and its tiles of hashes (c2sp.org/tlog-tiles), and the check that
//! one checkpoint continues another.

use crate::args::{Log, Watch};
use crate::exit::{Exit, Failure};
use crate::files::{read_text, read_trust};
use crate::node::{body_of, connection};
use crate::output::Output;
use purser_evidence::{Checkpoint, Note, ReadError, TilePath, TileReader, TreeHead, Trust, consistency_proof};
use reqwest::StatusCode;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use url::Url;

/// The longest object that is read, in bytes: a full tile has 8 KiB.
const MAX_OBJECT_BYTES: usize = 64 * 1024;

/// A log at its prefix, for example `https://purser.example/log`.
pub(crate) struct LogClient {
    http: reqwest::Client,
    prefix: Url,
}

impl LogClient {
    /// The log at this address: `https://…`, or `http://` to this machine.
    pub(crate) fn at(address: &str) -> Result<Self, Failure> {
        let wrong = || Failure::Words("the log's address must be https://…, or http:// to this machine".to_owned());
        let (http, prefix) = connection(address).ok_or_else(wrong)?;
        Ok(Self { http, prefix })
    }

    /// An object below the prefix; `None` if there is none.
    async fn object(&self, path: &str) -> Result<Option<Vec<u8>>, Failure> {
        let failed = |why: String| Failure::Words(format!("the log's `{path}` can't be read: {why}"));
        let broken = |error: reqwest::Error| failed(error.without_url().to_string());
        let mut url = self.prefix.clone();
        url.path_segments_mut()
            .map_err(|()| failed("the address is no base".to_owned()))?
            .pop_if_empty()
            .extend(path.split('/'));
        let response = self.http.get(url).send().await.map_err(broken)?;
        match response.status() {
            StatusCode::OK => {
                let bytes = body_of(response, MAX_OBJECT_BYTES).await.map_err(broken)?;
                bytes.map(Some).ok_or_else(|| failed("it is too long".to_owned()))
            }
            StatusCode::NOT_FOUND => Ok(None),
            status => Err(failed(format!("HTTP {}", status.as_u16()))),
        }
    }

    /// The newest checkpoint, as it is signed.
    async fn checkpoint(&self) -> Result<String, Failure> {
        let bytes = self.object("checkpoint").await?;
        let bytes = bytes.ok_or_else(|| Failure::Words("the log has no checkpoint".to_owned()))?;
        String::from_utf8(bytes).map_err(|_| Failure::Words("the log's checkpoint is no text".to_owned()))
    }

    /// Checks by the log's tiles that the newer of two trees begins with all entries of the older one. Returns why it does
    /// not.
    pub(crate) async fn check_consistency(
        &self,
        one: &TreeHead,
        other: &TreeHead,
    ) -> Result<Result<(), String>, Failure> {
        let (older, newer) = if one.size <= other.size {
            (one, other)
        } else {
            (other, one)
        };
        let why = match consistency_proof(self, older, newer).await {
            Ok(_) => return Ok(Ok(())),
            Err(ReadError::Reader(failure)) => return Err(failure),
            Err(ReadError::OtherTree) => "the log was forked or rewritten".to_owned(),
            Err(error) => error.to_string(),
        };
        Ok(Err(format!(
            "the tree of {} entries does not continue that of {}: {why}",
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

/// The checkpoint of a note that a trusted log signed and enough witnesses cosigned, or why it is none.
pub(crate) fn open_checkpoint(note: &str, trust: &Trust) -> Result<Checkpoint, String> {
    let note = Note::parse(note).map_err(|error| error.to_string())?;
    let checkpoint = trust.policy.open(&note).map_err(|error| error.to_string())?;
    trust
        .policy
        .verify_cosignatures(&note)
        .map_err(|error| error.to_string())?;
    Ok(checkpoint)
}

/// Reads and verifies a checkpoint that was kept.
pub(crate) fn read_checkpoint(path: &Path, trust: &Trust) -> Result<Checkpoint, Failure> {
    open_checkpoint(&read_text(path)?, trust)
        .map_err(|why| Failure::Unreadable(format!("{} is no trusted checkpoint: {why}", path.display())))
}

pub(crate) async fn run(command: Log, output: &Output) -> Result<Exit, Failure> {
    let Log::Watch(watch) = command;
    let trust = read_trust(&watch.trust)?;
    let log = LogClient::at(&watch.url)?;
    loop {
        let checked = check(&log, &trust, &watch, output).await;
        let Some(seconds) = watch.every else { return checked };
        match checked {
            Ok(Exit::Done) => {}
            // The log may be back the next time; what was kept is unchanged.
            Err(failure @ Failure::Words(_)) => output.say(&failure.to_string()),
            ended => return ended,
        }
        tokio::time::sleep(Duration::from_secs(seconds.into())).await;
    }
}

/// Compares the log's checkpoint with the kept one, and keeps it if it continues the kept one. A checkpoint that does not
/// is kept in another file: both together prove what the log did.
async fn check(log: &LogClient, trust: &Trust, watch: &Watch, output: &Output) -> Result<Exit, Failure> {
    let kept = match watch.state.try_exists() {
        Ok(true) => Some(read_checkpoint(&watch.state, trust)?),
        Ok(false) => None,
        Err(error) => return Err(Failure::Unreadable(format!("{}: {error}", watch.state.display()))),
    };
    let note = log.checkpoint().await?;
    let compared = match open_checkpoint(&note, trust) {
        Ok(checkpoint) => compare(log, kept.as_ref(), checkpoint).await?,
        Err(_) => Err("the log's checkpoint is not signed as the trust file requires".to_owned()),
    };
    let kept_size = kept.map(|kept| kept.head().size);
    match compared {
        Ok(checkpoint) => {
            write(&watch.state, &note)?;
            let size = checkpoint.head().size;
            let answer = json!({"consistent": true, "kept_size": kept_size, "size": size});
            output.answer(&answer, || {
                let since = kept_size.map(|kept| format!(", which begin with the {kept} of before"));
                vec![format!(
                    "{}: {size} entries{}",
                    checkpoint.origin(),
                    since.unwrap_or_default()
                )]
            });
            Ok(Exit::Done)
        }
        Err(why) => {
            let mut conflict = watch.state.clone().into_os_string();
            conflict.push(".conflict");
            let conflict = PathBuf::from(conflict);
            write(&conflict, &note)?;
            let file = conflict.display().to_string();
            let answer = json!({"consistent": false, "kept_size": kept_size, "why": why, "conflict": file});
            output.answer(&answer, || {
                vec![format!("Not verified: {why}. The checkpoint is in {file}.")]
            });
            Ok(Exit::NotVerified)
        }
    }
}

async fn compare(
    log: &LogClient,
    kept: Option<&Checkpoint>,
    checkpoint: Checkpoint,
) -> Result<Result<Checkpoint, String>, Failure> {
    let Some(kept) = kept else {
        return Ok(Ok(checkpoint));
    };
    let (old, new) = (kept.head(), checkpoint.head());
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

/// Replaces a file at once, so that an interrupted run keeps the earlier checkpoint.
fn write(path: &Path, note: &str) -> Result<(), Failure> {
    let mut beside = path.to_path_buf().into_os_string();
    beside.push(".new");
    let written = fs::write(&beside, note).and_then(|()| fs::rename(&beside, path));
    let what = path.display().to_string();
    written.map_err(|source| Failure::Output { what, source })
}
