//! The deployment's log of signed statements.
//!
//! | file | content |
//! |---|---|
//! | `objects.rs` | the bucket, or a folder in the local stack |
//! | `pending.rs` | the changes that need a statement, in the order of the table streams |
//! | `signed.rs` | statements that were signed before the run that commits them |
//! | `state.rs` | the size and the root of the log, and the progress per shard |
//! | `aside.rs` | changes without a statement: the oldest pending change, and changes that were set aside |
//! | `missing.rs` | finds changes that have no statement in the log, and makes the changes pending |
//! | `append.rs` | appends statements and publishes the tiles, the index and the checkpoint |
//! | `index.rs` | the index from decisions and payments to entries |
//! | `find.rs` | finds a statement with the proof |
//! | `trust.rs` | the keys that verify statements and checkpoints |
//! | `witnesses.rs` | the witnesses that cosign checkpoints |
//! | `check.rs` | divides the daily check among concurrent runs |
//! | `audit.rs` | proves all entries weekly, and compares them with the archive |
//! | `archive.rs` | a copy of the entries by day, for queries |
//!
//! ```text
//! events:   streams ──▶ pending/<shard>/<first>-<last>
//!               └─sign─▶ signed/<first>-<last>, of busy batches
//! evidence: pending/…, signed/… ─sign the rest─▶ batch/<size> ─commit─▶ state ──▶ tile/…, index/…, checkpoint
//! archive:  index/…, tile/entries/… ──▶ statements/date=<day>/<first>-<last>.jsonl.gz
//! ```
//!
//! Invariants: a writer can replace only the state that it has read (`If-Match`), so two writers can't fork the log.
//! Entries are committed before they are published, so a repeated run publishes the same objects. A change gets one
//! statement, because the state contains the last sequence number of each shard.
//!
//! `shared/evidence` implements signatures, tiles and proofs. `shared/domain` defines the content of statements.

mod append;
mod archive;
mod aside;
mod audit;
mod check;
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
pub use aside::{make_quarantined_changes_pending, read_oldest_pending_time};
pub use audit::continue_log_audit;
pub use check::{ClaimedEntries, EntriesToCheck};
pub use find::{
    DecisionSubject, FoundStatement, HashTile, LogReader, MissingReason, PaymentStatements, unverified_payload,
};
pub use index::UnreadableObject;
pub use missing::MissingStatements;
pub use objects::{ObjectStore, ObjectVersion, StoredObject};
pub use pending::{Confirmation, PendingBatch, PendingChange, PendingPosition, StatedChange};
pub use signed::write_signed_statements;
pub use trust::{LogKey, TRUST, TrustDocument};
pub use witnesses::Witnesses;
