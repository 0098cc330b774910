//! Proofs that a log contains an entry (c2sp.org/tlog-proof). A proof is a text that can be verified offline.

use crate::decimal;
use crate::note::{Note, NoteError};
use crate::tree::{Hash, ProofError, TreeHead};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::fmt;
use std::str::FromStr;

/// The first line of a proof.
pub const PROOF_HEADER: &str = "c2sp.org/tlog-proof@v1";

/// The maximum number of hashes in a proof. A tree with 2^62 leaves has 62 levels above the leaves.
const MAX_HASHES: usize = 62;

/// Why a text is not a proof.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofTextError {
    /// The lines before the checkpoint are malformed.
    #[error("the proof is malformed: {0}")]
    Format(&'static str),
    /// The checkpoint's note is malformed.
    #[error(transparent)]
    Note(#[from] NoteError),
}

/// A parsed proof. It proves nothing until the checkpoint is verified and [`TlogProof::verify_inclusion`] succeeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlogProof {
    extra: Option<Vec<u8>>,
    index: u64,
    hashes: Vec<Hash>,
    /// The checkpoint's note, exactly as in the proof.
    checkpoint: String,
    note: Note,
}

impl TlogProof {
    /// Creates the proof of the entry at this index. `checkpoint` is a signed note. `extra` is the exact statement, or
    /// `None` to omit the statement.
    pub fn new(extra: Option<&[u8]>, index: u64, hashes: Vec<Hash>, checkpoint: &str) -> Result<Self, ProofTextError> {
        if extra.is_some_and(<[u8]>::is_empty) {
            return Err(ProofTextError::Format("`extra` is empty"));
        }
        if hashes.len() > MAX_HASHES {
            return Err(ProofTextError::Format("the proof has too many hashes"));
        }
        Ok(Self {
            extra: extra.map(<[u8]>::to_vec),
            index,
            hashes,
            checkpoint: checkpoint.to_owned(),
            note: Note::parse(checkpoint)?,
        })
    }

    /// Returns the extra data, which is the statement in proofs by this service. It is authentic only if
    /// [`Self::verify_inclusion`] succeeds with it as the entry.
    pub fn unverified_extra_data(&self) -> Option<&[u8]> {
        self.extra.as_deref()
    }

    /// Returns the index of the entry in the log.
    pub const fn entry_index(&self) -> u64 {
        self.index
    }

    /// Returns the signed note that contains the checkpoint of the proof.
    pub const fn checkpoint_note(&self) -> &Note {
        &self.note
    }

    /// Verifies that the tree with this head contains the entry.
    pub fn verify_inclusion(&self, entry: &[u8], head: &TreeHead) -> Result<(), ProofError> {
        head.verify_inclusion(entry, self.index, &self.hashes)
    }
}

impl fmt::Display for TlogProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{PROOF_HEADER}")?;
        if let Some(extra) = &self.extra {
            writeln!(f, "extra {}", STANDARD.encode(extra))?;
        }
        writeln!(f, "index {}", self.index)?;
        for hash in &self.hashes {
            writeln!(f, "{hash}")?;
        }
        write!(f, "\n{}", self.checkpoint)
    }
}

impl FromStr for TlogProof {
    type Err = ProofTextError;

    fn from_str(text: &str) -> Result<Self, ProofTextError> {
        let malformed = ProofTextError::Format;
        // The first blank line ends the lines before the checkpoint. The checkpoint's note contains another blank line.
        let (head, checkpoint) = text.split_once("\n\n").ok_or(malformed("the checkpoint is missing"))?;
        let mut lines = head.split('\n').peekable();
        if lines.next() != Some(PROOF_HEADER) {
            return Err(malformed("the first line is wrong"));
        }
        let extra = lines.next_if(|line| line.starts_with("extra "));
        let extra = extra.and_then(|line| line.strip_prefix("extra ")).map(|encoded| {
            let decoded = STANDARD.decode(encoded);
            decoded.map_err(|_| malformed("`extra` is not base64"))
        });
        let index = lines.next().and_then(|line| line.strip_prefix("index "));
        let index = index
            .and_then(decimal::parse_decimal)
            .ok_or(malformed("`index` is missing"))?;
        let hashes = lines
            .map(|line| line.parse().map_err(|_| malformed("a hash is not base64")))
            .collect::<Result<_, _>>()?;
        Self::new(extra.transpose()?.as_deref(), index, hashes, checkpoint)
    }
}
