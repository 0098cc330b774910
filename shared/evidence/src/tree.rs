//! The Merkle tree of RFC 6962 §2.1: hashes, and the verification of proofs.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ct_merkle::{ConsistencyProof, InclusionProof, RootHash};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::str::FromStr;

/// The largest tree. `ct-merkle` numbers a tree's nodes with 64 bits and panics beyond 2^63 leaves.
pub const LARGEST_TREE: u64 = 1 << 62;

/// A SHA-256 hash of the tree. As text, it is standard base64 with padding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash([u8; 32]);

impl Hash {
    /// The hash of these bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The root of the empty tree: the hash of no bytes.
    pub fn of_empty_tree() -> Self {
        Self(Sha256::digest(b"").into())
    }

    /// The hash of a leaf: SHA-256(0x00, data).
    pub fn of_leaf(data: &[u8]) -> Self {
        Self(Sha256::new().chain_update([0x00]).chain_update(data).finalize().into())
    }

    /// The hash of an inner node: SHA-256(0x01, left, right).
    pub fn of_node(left: &Self, right: &Self) -> Self {
        let hasher = Sha256::new().chain_update([0x01]);
        Self(hasher.chain_update(left.0).chain_update(right.0).finalize().into())
    }

    /// The root of a tree of these hashes (MTH over hashes instead of leaves).
    pub(crate) fn of_hashes(hashes: &[Self]) -> Self {
        match hashes {
            [] => Self::of_empty_tree(),
            [hash] => *hash,
            _ => {
                // The largest power of two smaller than the count.
                let half = hashes.len().next_power_of_two() >> 1;
                let (left, right) = hashes.split_at(half);
                Self::of_node(&Self::of_hashes(left), &Self::of_hashes(right))
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

/// The text is not the one base64 form of 32 bytes.
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

/// The size of a tree, in leaves, and its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeHead {
    /// The number of leaves, at most [`LARGEST_TREE`].
    pub size: u64,
    /// The root.
    pub root: Hash,
}

/// Why a proof is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// The leaf's index is not below the tree's size, or a tree is too large, or the new tree is smaller.
    #[error("the proof is about an impossible tree")]
    Range,
    /// The hashes do not lead to the root, or their number is wrong.
    #[error("the proof's hashes do not lead to the tree's root")]
    Hashes,
}

fn concatenated(hashes: &[Hash]) -> Vec<u8> {
    hashes.iter().flat_map(|hash| hash.0).collect()
}

impl TreeHead {
    /// The head of the empty tree.
    pub fn empty() -> Self {
        Self {
            size: 0,
            root: Hash::of_empty_tree(),
        }
    }

    fn root_hash(&self) -> RootHash<Sha256> {
        RootHash::new(self.root.0.into(), self.size)
    }

    /// Verifies that the tree has this leaf at this index.
    pub fn verify_inclusion(&self, leaf: &[u8], index: u64, hashes: &[Hash]) -> Result<(), ProofError> {
        if self.size > LARGEST_TREE || index >= self.size {
            return Err(ProofError::Range);
        }
        let proof = InclusionProof::try_from_bytes(concatenated(hashes)).map_err(|_| ProofError::Hashes)?;
        self.root_hash()
            .verify_inclusion(&leaf, index, &proof)
            .map_err(|_| ProofError::Hashes)
    }

    /// Verifies that this tree begins with all leaves of an older tree. Every tree begins with the empty one; its proof
    /// has no hashes.
    pub fn verify_consistency(&self, older: &Self, hashes: &[Hash]) -> Result<(), ProofError> {
        if self.size > LARGEST_TREE || older.size > self.size {
            return Err(ProofError::Range);
        }
        if older.size == 0 {
            let is_empty = older.root == Hash::of_empty_tree() && hashes.is_empty();
            return if is_empty && (self.size > 0 || self == older) {
                Ok(())
            } else {
                Err(ProofError::Hashes)
            };
        }
        let proof = ConsistencyProof::try_from_bytes(concatenated(hashes)).map_err(|_| ProofError::Hashes)?;
        self.root_hash()
            .verify_consistency(&older.root_hash(), &proof)
            .map_err(|_| ProofError::Hashes)
    }
}
