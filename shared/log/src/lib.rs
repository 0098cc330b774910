//! The deployment's log of statements: where its objects are, how statements are appended, and how one is found.
//!
//! | file | content |
//! |---|---|
//! | `objects.rs` | the bucket, or a folder in the local stack |
//! | `pending.rs` | the facts that are to be stated, in the order of the tables' streams |
//! | `signed.rs` | statements that were signed ahead of their commitment |
//! | `state.rs` | the size and the root of the log, and how far the facts are stated |
//! | `aside.rs` | what is not stated: the oldest pending change, and what was set aside |
//! | `missing.rs` | makes pending again what the log has no statement of |
//! | `append.rs` | appends statements and publishes the tiles, the index and the checkpoint |
//! | `index.rs` | which entries of the log state a decision or a payment |
//! | `find.rs` | a statement with its proof |
//! | `trust.rs` | the keys that verify statements and checkpoints |
//! | `witnesses.rs` | the witnesses that cosign checkpoints |
//! | `audit.rs` | proves all entries again, weekly, and compares them with the archive |
//! | `archive.rs` | a copy of the entries by day, for queries |
//!
//! ```text
//! events:   streams ──▶ pending/<shard>/<first>-<last>
//!                    └─sign─▶ signed/<first>-<last>, of busy batches
//! evidence: pending/…, signed/… ─sign the rest─▶ batch/<size> ─commit─▶ state ──▶ tile/…, index/…, checkpoint
//! archive:  index/…, tile/entries/… ──▶ statements/date=<day>/<first>-<last>.jsonl.gz
//! ```
//!
//! Invariants: the state is only replaced by a writer that has read it (`If-Match`), so two writers can't fork the log.
//! Entries are committed before they are published, and published from what was committed, so every repetition writes the
//! same objects. A fact is stated once: the state has the last sequence number of each shard. A fact that can't be stated
//! is set aside, and holds up no other.
//!
//! Elsewhere: signatures, tiles and proofs (`shared/evidence`), and what a statement says (`shared/domain`).

mod append;
mod archive;
mod aside;
mod audit;
mod find;
mod index;
mod missing;
mod objects;
mod pending;
mod signed;
mod state;
mod trust;
mod witnesses;

pub use append::{Log, Outcome, SignedStatement, Stating, Written};
pub use archive::{Archive, ArchiveResult};
pub use aside::{oldest_pending, state_again};
pub use audit::audit;
pub use find::{
    DecisionSubject, FoundStatement, HashTile, LogReader, MissingReason, PaymentStatements, ToCheck, unverified_payload,
};
pub use index::UnreadableObject;
pub use missing::MissingStatements;
pub use objects::{ObjectStore, ObjectVersion, StoredObject};
pub use pending::{Confirmation, PendingBatch, PendingFact, PendingPlace, StatedFact};
pub use signed::write_signed;
pub use trust::{LogKey, TRUST, TrustDocument};
pub use witnesses::Witnesses;
