//! The Merkle tree of RFC 6962 §2.1: hashes and the verification of proofs.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ct_merkle::{ConsistencyProof, InclusionProof, RootHash};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::str::FromStr;

/// The maximum number of leaves. `ct-merkle` panics if a tree has more than 2^63 leaves.
pub const MAX_TREE_SIZE: u64 = 1 << 62;

/// A SHA-256 hash in the tree. The text form is standard base64 with padding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash([u8; 32]);

impl Hash {
    /// Creates a hash from the 32 bytes of a SHA-256 digest.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the 32 bytes of the hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the root of the empty tree, which is the hash of an empty input.
    pub fn for_empty_tree() -> Self {
        Self(Sha256::digest(b"").into())
    }

    /// Returns the hash of a leaf: SHA-256(0x00, data).
    pub fn for_leaf(data: &[u8]) -> Self {
        Self(Sha256::new().chain_update([0x00]).chain_update(data).finalize().into())
    }

    /// Returns the hash of an inner node: SHA-256(0x01, left, right).
    pub fn for_node(left: &Self, right: &Self) -> Self {
        let hasher = Sha256::new().chain_update([0x01]);
        Self(hasher.chain_update(left.0).chain_update(right.0).finalize().into())
    }

    /// Returns the root of a tree over these leaf hashes: `MTH` of RFC 6962 §2.1.
    pub(crate) fn root_from_leaf_hashes(hashes: &[Self]) -> Self {
        match hashes {
            [] => Self::for_empty_tree(),
            [hash] => *hash,
            _ => {
                // The largest power of two that is smaller than the count.
                let half = hashes.len().next_power_of_two() >> 1;
                let (left, right) = hashes.split_at(half);
                Self::for_node(&Self::root_from_leaf_hashes(left), &Self::root_from_leaf_hashes(right))
            }
        }
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error for a text that is not the canonical base64 form of 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the hash is not 32 bytes in padded base64")]
pub struct HashError;

impl FromStr for Hash {
    type Err = HashError;

    fn from_str(text: &str) -> Result<Self, HashError> {
        let bytes = STANDARD.decode(text).map_err(|_| HashError)?;
        bytes.try_into().map(Self).map_err(|_| HashError)
    }
}

/// The number of leaves of a tree, and the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeHead {
    /// The number of leaves, at most [`MAX_TREE_SIZE`].
    pub size: u64,
    /// The root hash of the Merkle tree (RFC 6962 §2.1).
    pub root: Hash,
}

/// Why a proof is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// The index is not in the tree, a tree is too large, or the new tree is smaller than the old tree.
    #[error("the proof's index or tree size is impossible")]
    Range,
    /// There are too many or too few hashes, or they do not lead to the root.
    #[error("the proof's hashes do not lead to the tree's root")]
    Hashes,
}

fn concatenate_hashes(hashes: &[Hash]) -> Vec<u8> {
    hashes.iter().flat_map(|hash| hash.0).collect()
}

impl TreeHead {
    /// Returns the head of the empty tree.
    pub fn empty() -> Self {
        Self {
            size: 0,
            root: Hash::for_empty_tree(),
        }
    }

    fn root_hash(&self) -> RootHash<Sha256> {
        RootHash::new(self.root.0.into(), self.size)
    }

    /// Verifies that the tree has this leaf at this index.
    pub fn verify_inclusion(&self, leaf: &[u8], index: u64, hashes: &[Hash]) -> Result<(), ProofError> {
        if self.size > MAX_TREE_SIZE || index >= self.size {
            return Err(ProofError::Range);
        }
        let proof = InclusionProof::try_from_bytes(concatenate_hashes(hashes)).map_err(|_| ProofError::Hashes)?;
        self.root_hash()
            .verify_inclusion(&leaf, index, &proof)
            .map_err(|_| ProofError::Hashes)
    }

    /// Verifies that this tree begins with all leaves of an older tree. The proof for an empty older tree has no
    /// hashes.
    pub fn verify_consistency(&self, older: &Self, hashes: &[Hash]) -> Result<(), ProofError> {
        if self.size > MAX_TREE_SIZE || older.size > self.size {
            return Err(ProofError::Range);
        }
        if older.size == 0 {
            let is_empty = older.root == Hash::for_empty_tree() && hashes.is_empty();
            return if is_empty && (self.size > 0 || self == older) {
                Ok(())
            } else {
                Err(ProofError::Hashes)
            };
        }
        let proof = ConsistencyProof::try_from_bytes(concatenate_hashes(hashes)).map_err(|_| ProofError::Hashes)?;
        self.root_hash()
            .verify_consistency(&older.root_hash(), &proof)
            .map_err(|_| ProofError::Hashes)
    }
}
