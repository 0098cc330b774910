//! Proofs that an entry is in a log (c2sp.org/tlog-proof): a text that verifies offline, against a policy.

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::decimal;
use crate::note::{KeyType, Note, NoteError, VerifierKey};
use crate::tree::{Hash, ProofError, TreeHead};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::fmt;
use std::str::FromStr;

/// The first line of a proof.
pub(crate) const PROOF_HEADER: &str = "c2sp.org/tlog-proof@v1";

/// The most hashes of a proof: a tree of 2^62 leaves has 62 levels above the leaf.
const MOST_HASHES: usize = 62;

/// The text is no proof.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofTextError {
    /// The lines before the checkpoint are malformed.
    #[error("the proof is malformed: {0}")]
    Format(&'static str),
    /// The checkpoint's note is malformed.
    #[error(transparent)]
    Note(#[from] NoteError),
}

/// A proof, as it was read. It proves nothing before [`TlogProof::verify`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlogProof {
    extra: Option<Vec<u8>>,
    index: u64,
    hashes: Vec<Hash>,
    /// The checkpoint's note, verbatim.
    checkpoint: String,
    note: Note,
}

impl TlogProof {
    /// The proof of the entry at this index, below a checkpoint's note. `extra` is the exact statement, or `None` if the
    /// reader has it already.
    pub fn new(extra: Option<&[u8]>, index: u64, hashes: Vec<Hash>, checkpoint: &str) -> Result<Self, ProofTextError> {
        if extra.is_some_and(<[u8]>::is_empty) {
            return Err(ProofTextError::Format("`extra` is empty"));
        }
        if hashes.len() > MOST_HASHES {
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

    /// The data that the proof carries, by our convention the statement. Nothing authenticates it but the proof itself,
    /// when it is the leaf.
    pub fn unverified_extra(&self) -> Option<&[u8]> {
        self.extra.as_deref()
    }

    /// The index of the entry in the log.
    pub const fn index(&self) -> u64 {
        self.index
    }

    /// The checkpoint's note.
    pub const fn note(&self) -> &Note {
        &self.note
    }

    /// Verifies that a log of the policy, with enough witnesses, has this entry.
    pub fn verify(&self, entry: &[u8], policy: &Policy) -> Result<Proven, RefusedProof> {
        let checkpoint = policy.open(&self.note)?;
        self.verify_inclusion(entry, &checkpoint.head())?;
        let witnesses = policy.cosigned(&self.note)?;
        Ok(Proven {
            index: self.index,
            checkpoint,
            witnesses,
        })
    }

    /// Verifies that the tree of this head has the entry.
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
        // The first blank line ends the proof; the note has another.
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
        let index = index.and_then(decimal::parse).ok_or(malformed("there is no `index`"))?;
        let hashes = lines
            .map(|line| line.parse().map_err(|_| malformed("a hash is not base64")))
            .collect::<Result<_, _>>()?;
        Self::new(extra.transpose()?.as_deref(), index, hashes, checkpoint)
    }
}

/// A log that is trusted: its key, and the origin of its checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Log {
    key: VerifierKey,
    origin: String,
}

/// Which logs and witnesses are trusted, and how many of the witnesses must have cosigned a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    logs: Vec<Log>,
    witnesses: Vec<VerifierKey>,
    quorum: usize,
}

/// The policy can't be met, or trusts a key for what it doesn't sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A log's key is not of type 0x01.
    #[error("a log's key is not an Ed25519 key of notes")]
    Log,
    /// A witness's key is not of type 0x04, or there twice, or also a log's.
    #[error("a witness's key is not one of cosignatures, or it is there twice, or it is a log's")]
    Witness,
    /// More witnesses are asked for than there are.
    #[error("the quorum is larger than the number of witnesses")]
    Quorum,
}

/// A witness that cosigned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cosigned {
    /// The witness's name.
    pub witness: String,
    /// When it cosigned, in seconds since 1970, by its clock.
    pub time: u64,
}

/// The claim of a proof that was verified: the entry's index in the tree of a checkpoint, and its witnesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proven {
    /// The entry's index.
    pub index: u64,
    /// The checkpoint, signed by a log of the policy.
    pub checkpoint: Checkpoint,
    /// The policy's witnesses that cosigned it, in the order of the policy.
    pub witnesses: Vec<Cosigned>,
}

/// Why a proof is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusedProof {
    /// No log of the policy signed the checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The entry is not in the checkpoint's tree at this index.
    #[error(transparent)]
    Inclusion(#[from] ProofError),
    /// The witnesses did not cosign.
    #[error(transparent)]
    Witnesses(#[from] WitnessError),
}

/// Why a checkpoint's cosignatures are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WitnessError {
    /// A trusted witness's cosignature is invalid, or there twice.
    #[error(transparent)]
    Note(NoteError),
    /// Too few witnesses cosigned.
    #[error("{cosigned} of the {quorum} witnesses that are asked for cosigned")]
    TooFew {
        /// How many did.
        cosigned: usize,
        /// How many have to.
        quorum: usize,
    },
}

impl Policy {
    /// The policy of these logs, each a key and an origin, and witnesses.
    pub fn new(
        logs: impl IntoIterator<Item = (VerifierKey, String)>,
        witnesses: Vec<VerifierKey>,
        quorum: usize,
    ) -> Result<Self, PolicyError> {
        let logs: Vec<Log> = logs.into_iter().map(|(key, origin)| Log { key, origin }).collect();
        if logs.iter().any(|log| log.key.kind() != KeyType::Ed25519) {
            return Err(PolicyError::Log);
        }
        // One signer under two names would count twice; cosignatures do not cover the name.
        let mut seen: Vec<_> = logs.iter().map(|log| log.key.public_key()).collect();
        for witness in &witnesses {
            if witness.kind() != KeyType::Cosignature || seen.contains(&witness.public_key()) {
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

    /// How many witnesses must have cosigned.
    pub const fn quorum(&self) -> usize {
        self.quorum
    }

    /// The checkpoint of a note that a log of the policy signed. A log may have several keys; an invalid signature of any
    /// of them refuses the note (c2sp.org/signed-note).
    pub fn open(&self, note: &Note) -> Result<Checkpoint, CheckpointError> {
        let origin = Checkpoint::parse(note.unverified_text())?.origin().to_owned();
        let mut opened = Err(CheckpointError::OtherLog(origin.clone()));
        for log in self.logs.iter().filter(|log| log.origin == origin) {
            match Checkpoint::open(note, &log.key, &origin) {
                Ok(checkpoint) => opened = Ok(checkpoint),
                Err(error @ CheckpointError::Note(NoteError::Unsigned(_))) => opened = opened.or(Err(error)),
                Err(error) => return Err(error),
            }
        }
        opened
    }

    /// The witnesses that cosigned a note. An invalid cosignature of any of them refuses the note, whatever the quorum.
    pub fn cosigned(&self, note: &Note) -> Result<Vec<Cosigned>, WitnessError> {
        let mut cosigned = Vec::new();
        for witness in &self.witnesses {
            match note.verify_cosignature(witness) {
                Ok(time) => cosigned.push(Cosigned {
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
