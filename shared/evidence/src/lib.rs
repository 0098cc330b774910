//! Evidence that third parties can verify: signed statements, a transparency log of the statements, and proofs. The crate
//! `purser-verify` verifies whole documents.
//!
//! | file | content |
//! |---|---|
//! | `seed.rs` | the secret of an Ed25519 or P-256 key |
//! | `jwk.rs` | public keys of statements, and the published key set |
//! | `statement.rs` | statements: JWS compact serializations, ES256 |
//! | `note.rs` | signed notes, verifier keys and cosignatures of witnesses |
//! | `checkpoint.rs` | the origin, size and root of a log, as the text of a note |
//! | `tree.rs` | the Merkle tree of RFC 6962: hashes and the verification of proofs |
//! | `tile.rs` | the paths and bytes of tiles and entry bundles |
//! | `append.rs` | the objects to write for new entries |
//! | `reader.rs` | reading a log's objects, and creating proofs from them |
//! | `witness.rs` | the protocol with a witness |
//! | `proof.rs` | proofs as text |
//! | `json.rs` | JSON without repeated keys |
//! | `decimal.rs` | decimal numbers |
//!
//! All formats follow public specifications: JWS (RFC 7515), key sets (RFC 7517) and the C2SP specifications
//! (c2sp.org). All parsers accept a single text form of each value.
//!
//! A leaf of the log is the exact bytes of the statement. The bytes are never decoded and encoded again, because each
//! ES256 signature has a second valid form.
//!
//! Not in this crate: the content of statements, the storage of objects ([`TileReader`]), and the lock that prevents
//! two writers from forking a log.

mod append;
mod checkpoint;
mod decimal;
mod json;
mod jwk;
mod note;
mod proof;
mod reader;
mod seed;
mod statement;
mod tile;
mod tree;
mod witness;

pub use append::{AppendError, AppendResult, Edge};
pub use checkpoint::{Checkpoint, CheckpointError};
pub use decimal::parse_decimal;
pub use json::parse_json;
pub use jwk::{Jwk, JwkError, JwkSet};
pub use note::{KeyType, Note, NoteError, NoteSigner, SignerError, VerifierKey};
pub use proof::{PROOF_HEADER, ProofTextError, TlogProof};
pub use reader::{
    ReadError, TileReader, build_consistency_proof, build_inclusion_proof, read_proven_entries,
    read_unverified_entries, read_unverified_entry, read_unverified_root,
};
pub use seed::{Seed, SeedError};
pub use statement::{
    DigestSigner, EcdsaSignature, MAX_STATEMENT_BYTES, SignError, StatementError, StatementKey, StatementKind,
    VerifiedStatement, sign_es256,
};
pub use tile::{
    TILE_WIDTH, TileError, TilePath, TilePathError, decode_entries, decode_hashes, encode_entries, encode_hashes,
};
pub use tree::{Hash, HashError, MAX_TREE_SIZE, ProofError, TreeHead};
pub use witness::{build_add_checkpoint_body, find_cosignature, parse_cosigned_size};
