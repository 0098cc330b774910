//! Evidence that strangers verify: signed statements, a transparency log of them, and proofs that verify offline.
//!
//! | file | one line |
//! |---|---|
//! | `seed.rs` | the secret of an Ed25519 key |
//! | `jwk.rs` | public keys of statements, and the set that is published |
//! | `statement.rs` | statements: JWS compact serializations, ES256 |
//! | `note.rs` | signed notes, verifier keys and witnesses' cosignatures |
//! | `checkpoint.rs` | a log's origin, size and root, as the text of a note |
//! | `tree.rs` | the Merkle tree of RFC 6962: hashes, and the verification of its proofs |
//! | `tile.rs` | the paths and bytes of tiles and entry bundles |
//! | `append.rs` | from the right edge and new entries to the objects to be written |
//! | `reader.rs` | the proofs that a log's objects give |
//! | `witness.rs` | the exchange with a witness |
//! | `proof.rs` | proofs as a text, and the policy that they are verified against |
//! | `verify.rs` | a document's verification, step by step |
//! | `provider.rs` | the signed offers and receipts of providers |
//! | `pack.rs` | the verification of a file with all evidence about a payment |
//! | `transfer.rs` | the payment that a receipt states, and a node's answer about it |
//! | `network.rs` | the networks that Purser pays on |
//! | `json.rs` | JSON in which no object has a field twice |
//! | `decimal.rs` | numbers in their one spelling |
//!
//! The formats are those of public specifications, and the tests have vectors that other implementations accept: JWS
//! (RFC 7515) and key sets (RFC 7517), and of C2SP (c2sp.org) `signed-note`, `tlog-checkpoint`, `tlog-tiles`,
//! `tlog-cosignature`, `tlog-witness` and `tlog-proof`. All parsers accept one spelling of each value.
//!
//! A leaf of the log is the exact statement, as bytes: SHA-256(0x00, statement). Nothing is decoded and encoded again on
//! the way, because an ES256 signature has a twin that is valid as well.
//!
//! Deliberately elsewhere: what a statement says (its payload is bytes here), where objects are stored ([`TileReader`]
//! is implemented by whoever stores them), the lock that keeps two writers from forking a log, and calls of the chain.

mod append;
mod checkpoint;
mod decimal;
mod json;
mod jwk;
mod network;
mod note;
mod pack;
mod proof;
mod provider;
mod reader;
mod seed;
mod statement;
mod tile;
mod transfer;
mod tree;
mod verify;
mod witness;

pub use append::{AppendError, Appended, Edge};
pub use checkpoint::{Checkpoint, CheckpointError};
pub use json::parse_json;
pub use jwk::{Jwk, JwkError, JwkSet};
pub use network::Network;
pub use note::{KeyType, Note, NoteError, NoteSigner, SignerError, VerifierKey};
pub use pack::{EvidenceReport, Part, PartStep, is_evidence, verify_evidence};
pub use proof::{Cosigned, Policy, PolicyError, ProofTextError, Proven, RefusedProof, TlogProof, WitnessError};
pub use provider::{ProviderError, ProviderKey, ProviderKeyError, ProviderObject, ProviderSigner, SignedByProvider};
pub use reader::{
    ReadError, TileReader, consistency_proof, inclusion_proof, prove_entries, unverified_entries, unverified_entry,
    unverified_root,
};
pub use seed::{Seed, SeedError};
pub use statement::{
    DigestSigner, EcdsaSignature, LONGEST_STATEMENT, SignError, StatementError, StatementKey, StatementKind,
    VerifiedStatement, sign_es256,
};
pub use tile::{
    TILE_WIDTH, TileError, TilePath, TilePathError, decode_entries, decode_hashes, encode_entries, encode_hashes,
};
pub use transfer::{NoTransfer, NodeResponses, StatedTransfer};
pub use tree::{Hash, HashError, LARGEST_TREE, ProofError, TreeHead};
pub use verify::{DocumentError, Outcome, Report, Step, StepName, Trust, TrustError, verify};
pub use witness::{add_checkpoint, find_cosignature, parse_cosigned_size};
