//! Verifies evidence of Purser offline, with only a trusted key set: statements, proofs of the log, evidence files
//! about a payment, and the signed objects of providers.
//!
//! | file | content |
//! |---|---|
//! | `policy.rs` | the trusted logs and witnesses, and the verification of a proof |
//! | `verify.rs` | the verification of a document, step by step |
//! | `pack.rs` | the verification of a file with all evidence about a payment |
//! | `provider.rs` | the signed offers and receipts of providers |
//! | `transfer.rs` | the transfer that a receipt states, compared with a node's responses |
//! | `network.rs` | the networks that Purser pays on |
//!
//! The crate makes no network calls. The caller asks a chain node, and adds the result as a step.

mod network;
mod pack;
mod policy;
mod provider;
mod transfer;
mod verify;

pub use network::Network;
pub use pack::{EvidenceReport, Part, PartStep, is_evidence_file, verify_evidence};
pub use policy::{CosigningWitness, Policy, PolicyError, Proven, RejectedProof, WitnessError};
pub use provider::{ProviderError, ProviderKey, ProviderKeyError, ProviderObject, ProviderSigner, SignedByProvider};
pub use transfer::{NoTransfer, NodeResponses, StatedTransfer};
pub use verify::{DocumentError, Outcome, Report, Step, StepName, Trust, TrustError, verify_document};
