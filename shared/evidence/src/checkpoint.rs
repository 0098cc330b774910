//! Checkpoints (c2sp.org/tlog-checkpoint): the origin, size and root of a log, as the text of a signed note.
//! Checkpoints with extension lines are rejected.

use crate::decimal;
use crate::note::{Note, NoteError, NoteSigner, SignerError, VerifierKey};
use crate::tree::{Hash, MAX_TREE_SIZE, TreeHead};
use std::fmt;

/// Why a checkpoint is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// The text is not an origin, a size and a root, each on a separate line.
    #[error("the checkpoint is not an origin, a size and a root, each on its line, and nothing else")]
    Format,
    /// The checkpoint belongs to another log.
    #[error("the checkpoint is of the log `{0}`")]
    OtherLog(String),
    /// The note is malformed or has no valid signature by the log.
    #[error(transparent)]
    Note(#[from] NoteError),
}

/// The name of a log, and the size and root of the log's tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    origin: String,
    head: TreeHead,
}

impl Checkpoint {
    /// Creates the checkpoint of a tree. The origin must be one non-empty line without control characters.
    pub fn new(origin: &str, head: TreeHead) -> Result<Self, CheckpointError> {
        let is_line = !origin.is_empty() && !origin.contains(char::is_control);
        let is_head = head.size <= MAX_TREE_SIZE && (head.size > 0 || head == TreeHead::empty());
        (is_line && is_head)
            .then(|| Self {
                origin: origin.to_owned(),
                head,
            })
            .ok_or(CheckpointError::Format)
    }

    /// Parses the text of a checkpoint.
    pub fn parse(text: &str) -> Result<Self, CheckpointError> {
        let mut lines = text.split('\n');
        let mut line = || lines.next().ok_or(CheckpointError::Format);
        let (origin, size, root, end) = (line()?, line()?, line()?, line()?);
        if !end.is_empty() || lines.next().is_some() {
            return Err(CheckpointError::Format);
        }
        let size = decimal::parse_decimal(size).ok_or(CheckpointError::Format)?;
        let root: Hash = root.parse().map_err(|_| CheckpointError::Format)?;
        Self::new(origin, TreeHead { size, root })
    }

    /// Returns the checkpoint in a note. Fails unless `log` signed the note and the checkpoint's origin is `origin`.
    pub fn from_note(note: &Note, log: &VerifierKey, origin: &str) -> Result<Self, CheckpointError> {
        let checkpoint = Self::parse(note.verify(log)?)?;
        (checkpoint.origin == origin)
            .then_some(())
            .ok_or_else(|| CheckpointError::OtherLog(checkpoint.origin.clone()))?;
        Ok(checkpoint)
    }

    /// Returns the checkpoint as a signed note, the content of the log's `checkpoint` object.
    pub fn sign_as_note(&self, signer: &NoteSigner) -> Result<String, SignerError> {
        signer.sign_text(&self.to_string())
    }

    /// Returns the log's origin.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns the tree's size and root.
    pub const fn tree_head(&self) -> TreeHead {
        self.head
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}\n{}\n", self.origin, self.head.size, self.head.root)
    }
}
