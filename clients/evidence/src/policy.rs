//! The policy for the verification of proofs: the trusted logs and witnesses.

use purser_evidence::{Checkpoint, CheckpointError, KeyType, Note, NoteError, ProofError, TlogProof, VerifierKey};

/// A trusted log's key and checkpoint origin.
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

/// Why a policy is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The key of a log is not of type 0x01 (Ed25519, c2sp.org/signed-note).
    #[error("a log's key is not an Ed25519 key of notes")]
    Log,
    /// The key of a witness is not of type 0x04 (timestamped cosignature, c2sp.org/signed-note) or is not unique.
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

/// The result of a verified proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proven {
    /// The entry's index in the checkpoint's tree.
    pub index: u64,
    /// The checkpoint, signed by a trusted log.
    pub checkpoint: Checkpoint,
    /// The trusted witnesses that cosigned the checkpoint, in the order of the policy.
    pub witnesses: Vec<CosigningWitness>,
}

/// Why a proof is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RejectedProof {
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

    /// Returns how many of the policy's witnesses must cosign a checkpoint.
    pub const fn required_witnesses(&self) -> usize {
        self.quorum
    }

    /// Verifies that a trusted log contains this entry, and that enough witnesses cosigned the checkpoint.
    pub fn verify_proof(&self, proof: &TlogProof, entry: &[u8]) -> Result<Proven, RejectedProof> {
        let checkpoint = self.open_checkpoint(proof.checkpoint_note())?;
        proof.verify_inclusion(entry, &checkpoint.tree_head())?;
        let witnesses = self.verify_cosignatures(proof.checkpoint_note())?;
        Ok(Proven {
            index: proof.entry_index(),
            checkpoint,
            witnesses,
        })
    }

    /// Returns the checkpoint in a note that a trusted log signed. Any invalid signature by the log is an error.
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

    /// Returns the cosignatures of trusted witnesses. A single invalid cosignature is an error.
    pub fn verify_cosignatures(&self, note: &Note) -> Result<Vec<CosigningWitness>, WitnessError> {
        let mut cosigned = Vec::new();
        for witness in &self.witnesses {
            match note.verified_cosignature_time_secs(witness) {
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
