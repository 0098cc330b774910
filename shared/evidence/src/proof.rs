//! Proofs that a log contains an entry (c2sp.org/tlog-proof). A proof is a text that can be verified offline, with a
//! policy that lists the trusted logs and witnesses.

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::decimal;
use crate::note::{KeyType, Note, NoteError, VerifierKey};
use crate::tree::{Hash, ProofError, TreeHead};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::fmt;
use std::str::FromStr;

/// The first line of a proof.
pub(crate) const PROOF_HEADER: &str = "c2sp.org/tlog-proof@v1";

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

/// A parsed proof. It is not evidence until [`TlogProof::verify`] succeeds.
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
    /// Creates the proof of the entry at this index. `checkpoint` is the note of a checkpoint. `extra` is the exact
    /// statement, or `None` if the reader already has the statement.
    pub fn new(extra: Option<&[u8]>, index: u64, hashes: Vec<Hash>, checkpoint: &str) -> Result<Self, ProofTextError> {
        if extra.is_some_and(<[u8]>::is_empty) {
            return Err(ProofTextError::Format("`extra` is empty"));
        }
        if hashes.len() > MAX_HASHES {
            return Err(ProofTextError::Format("it has too many hashes"));
        }
        Ok(Self {
            extra: extra.map(<[u8]>::to_vec),
            index,
            hashes,
            checkpoint: checkpoint.to_owned(),
            note: Note::parse(checkpoint)?,
        })
    }

    /// Returns the extra data in the proof. In proofs by this service, the extra data is the statement. The data is
    /// authentic only if the proof verifies with the data as the entry.
    pub fn unverified_extra(&self) -> Option<&[u8]> {
        self.extra.as_deref()
    }

    /// Returns the index of the entry in the log.
    pub const fn entry_index(&self) -> u64 {
        self.index
    }

    /// Returns the note of the checkpoint.
    pub const fn checkpoint_note(&self) -> &Note {
        &self.note
    }

    /// Verifies that a trusted log contains this entry, and that enough witnesses cosigned the checkpoint.
    pub fn verify(&self, entry: &[u8], policy: &Policy) -> Result<Proven, RefusedProof> {
        let checkpoint = policy.open_checkpoint(&self.note)?;
        self.verify_inclusion(entry, &checkpoint.tree_head())?;
        let witnesses = policy.verify_cosignatures(&self.note)?;
        Ok(Proven {
            index: self.index,
            checkpoint,
            witnesses,
        })
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
        // The first blank line ends the proof. The note contains another blank line.
        let (head, checkpoint) = text.split_once("\n\n").ok_or(malformed("there is no checkpoint"))?;
        let mut lines = head.split('\n').peekable();
        if lines.next() != Some(PROOF_HEADER) {
            return Err(malformed("the first line is another"));
        }
        let extra = lines.next_if(|line| line.starts_with("extra "));
        let extra = extra.and_then(|line| line.strip_prefix("extra ")).map(|encoded| {
            let decoded = STANDARD.decode(encoded);
            decoded.map_err(|_| malformed("`extra` is not base64"))
        });
        let index = lines.next().and_then(|line| line.strip_prefix("index "));
        let index = index
            .and_then(decimal::parse_decimal)
            .ok_or(malformed("there is no `index`"))?;
        let hashes = lines
            .map(|line| line.parse().map_err(|_| malformed("a hash is not base64")))
            .collect::<Result<_, _>>()?;
        Self::new(extra.transpose()?.as_deref(), index, hashes, checkpoint)
    }
}

/// A trusted log: its key, and the origin of its checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Log {
    key: VerifierKey,
    origin: String,
}

/// The trusted logs and witnesses, and the required number of cosignatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    logs: Vec<Log>,
    witnesses: Vec<VerifierKey>,
    quorum: usize,
}

/// Why a policy is invalid: it can't be satisfied, or it trusts a key for the wrong kind of message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The key of a log is not of type 0x01.
    #[error("a log's key is not an Ed25519 key of notes")]
    Log,
    /// The key of a witness is not of type 0x04, is repeated, or is also the key of a log.
    #[error("a witness's key is not one of cosignatures, or it is there twice, or it is a log's")]
    Witness,
    /// The quorum is greater than the number of witnesses.
    #[error("the quorum is larger than the number of witnesses")]
    Quorum,
}

/// The cosignature of a trusted witness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CosigningWitness {
    /// The witness's name.
    pub witness: String,
    /// The time of the cosignature according to the witness, in seconds since the Unix epoch.
    pub time: u64,
}

/// The result of a verified proof: the entry's index in the tree of a checkpoint, and the witnesses that cosigned the
/// checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proven {
    /// The entry's index.
    pub index: u64,
    /// The checkpoint, signed by a trusted log.
    pub checkpoint: Checkpoint,
    /// The trusted witnesses that cosigned the checkpoint, in the order of the policy.
    pub witnesses: Vec<CosigningWitness>,
}

/// Why a proof is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusedProof {
    /// No trusted log signed the checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The entry is not in the checkpoint's tree at this index.
    #[error(transparent)]
    Inclusion(#[from] ProofError),
    /// The witnesses did not cosign the checkpoint as required.
    #[error(transparent)]
    Witnesses(#[from] WitnessError),
}

/// Why the cosignatures of a checkpoint are rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WitnessError {
    /// The cosignature of a trusted witness is invalid or repeated.
    #[error(transparent)]
    Note(NoteError),
    /// Too few witnesses cosigned.
    #[error("{cosigned} of the {quorum} witnesses that are asked for cosigned")]
    TooFew {
        /// The number of trusted witnesses that cosigned.
        cosigned: usize,
        /// The required number of witnesses.
        quorum: usize,
    },
}

impl Policy {
    /// Creates a policy from these logs (each a key and an origin) and witnesses.
    pub fn new(
        logs: impl IntoIterator<Item = (VerifierKey, String)>,
        witnesses: Vec<VerifierKey>,
        quorum: usize,
    ) -> Result<Self, PolicyError> {
        let logs: Vec<Log> = logs.into_iter().map(|(key, origin)| Log { key, origin }).collect();
        if logs.iter().any(|log| log.key.key_type() != KeyType::Ed25519) {
            return Err(PolicyError::Log);
        }
        // Cosignatures do not include the name, so one key under two names would count twice.
        let mut seen: Vec<_> = logs.iter().map(|log| log.key.public_key()).collect();
        for witness in &witnesses {
            if witness.key_type() != KeyType::Cosignature || seen.contains(&witness.public_key()) {
                return Err(PolicyError::Witness);
            }
            seen.push(witness.public_key());
        }
        if quorum > witnesses.len() {
            return Err(PolicyError::Quorum);
        }
        Ok(Self {
            logs,
            witnesses,
            quorum,
        })
    }

    /// Returns the required number of witnesses.
    pub const fn required_witnesses(&self) -> usize {
        self.quorum
    }

    /// Returns the checkpoint in a note that a trusted log signed. A log may have several keys. The note is rejected if
    /// the signature by any of these keys is invalid (c2sp.org/signed-note).
    pub fn open_checkpoint(&self, note: &Note) -> Result<Checkpoint, CheckpointError> {
        let origin = Checkpoint::parse(note.unverified_text())?.origin().to_owned();
        let mut opened = Err(CheckpointError::OtherLog(origin.clone()));
        for log in self.logs.iter().filter(|log| log.origin == origin) {
            match Checkpoint::from_note(note, &log.key, &origin) {
                Ok(checkpoint) => opened = Ok(checkpoint),
                Err(error @ CheckpointError::Note(NoteError::Unsigned(_))) => opened = opened.or(Err(error)),
                Err(error) => return Err(error),
            }
        }
        opened
    }

    /// Returns the cosignatures of trusted witnesses. The note is rejected if any of these cosignatures is invalid,
    /// regardless of the quorum.
    pub fn verify_cosignatures(&self, note: &Note) -> Result<Vec<CosigningWitness>, WitnessError> {
        let mut cosigned = Vec::new();
        for witness in &self.witnesses {
            match note.verify_cosignature(witness) {
                Ok(time) => cosigned.push(CosigningWitness {
                    witness: witness.name().to_owned(),
                    time,
                }),
                Err(NoteError::Unsigned(_)) => {}
                Err(error) => return Err(WitnessError::Note(error)),
            }
        }
        if cosigned.len() < self.quorum {
            return Err(WitnessError::TooFew {
                cosigned: cosigned.len(),
                quorum: self.quorum,
            });
        }
        Ok(cosigned)
    }
}
