//! Evidence that strangers verify: signed statements, a transparency log of them, and proofs that verify offline.
//!
//! | file | one line |
//! |---|---|
//! | `seed.rs` | the secret of an Ed25519 key |
//! | `jwk.rs` | public keys of statements, and the set that is published |
//! | `statement.rs` | statements: JWS compact serializations, ES256 or `EdDSA` |
//! | `note.rs` | signed notes, verifier keys and witnesses' cosignatures |
//! | `checkpoint.rs` | a log's origin, size and root, as the text of a note |
//! | `tree.rs` | the Merkle tree of RFC 6962: hashes, and the verification of its proofs |
//! | `decimal.rs` | numbers in their one spelling |
//!
//! The formats are those of public specifications, and the tests have vectors that other implementations accept: JWS
//! (RFC 7515) and key sets (RFC 7517), and of C2SP (c2sp.org) `signed-note`, `tlog-checkpoint`, `tlog-tiles`,
//! `tlog-cosignature` and `tlog-proof`. All parsers accept one spelling of each value.
//!
//! A leaf of the log is the exact statement, as bytes: SHA-256(0x00, statement). Nothing is decoded and encoded again on
//! the way, because an ES256 signature has a twin that is valid as well.
//!
//! Deliberately elsewhere: what a statement says (its payload is bytes here), where objects are stored ([`TileReader`]
//! is implemented by whoever stores them), the lock that keeps two writers from forking a log, and calls of the chain.

mod checkpoint;
mod decimal;
mod jwk;
mod note;
mod seed;
mod statement;
mod tree;

pub use checkpoint::{Checkpoint, CheckpointError};
pub use jwk::{Jwk, JwkError, JwkSet};
pub use note::{KeyType, Note, NoteError, NoteSigner, SignerError, VerifierKey};
pub use seed::{Seed, SeedError};
pub use statement::{
    DigestSigner, EcdsaSignature, LONGEST_STATEMENT, SignError, StatementError, StatementKey, StatementKind,
    VerifiedStatement, sign_es256,
};
pub use tree::{Hash, HashError, LARGEST_TREE, ProofError, TreeHead};
