//! Reading the chain, and signing payments.
//!
//! | file | one line |
//! |---|---|
//! | `wallet.rs` | the seed, each agent's wallet derived from it, and the public key that gives their addresses |
//! | `signer.rs` | EIP-3009 transfers signed under the pinned token's EIP-712 domain |
//! | `nonce.rs` | the nonce of a payment, derived from its settlement |
//! | `chain.rs` | balances, and whether a transaction is the authorized payment, in a final block |
//! | `authorization_state.rs` | the final block, and the state of an authorization at it |
//! | `rpc.rs` | JSON-RPC: the fields that are read, and the node over HTTP |
//! | `development.rs` | detecting a local node |
//! | `error.rs` | why a call to the node failed |
//!
//! Signing is a function of the seed and the terms, so signing twice gives the same bytes. The RPC node is somebody
//! else's machine: its answers are checked, and an answer that makes no sense is an error, never evidence.
//!
//! Deliberately elsewhere: what must be seen on chain ([`purser_domain::match_transfer`]), where settlements are stored
//! (`shared/store`), and the answers to callers (`shared/api`).

mod authorization_state;
mod chain;
mod development;
mod error;
mod nonce;
mod rpc;
mod signer;
mod wallet;

pub use chain::{Chain, Evidence, Finality, NODE_TIMEOUT, Pending};
pub use error::ChainError;
pub use nonce::NonceKey;
pub use rpc::{Exchange, HttpNode, Node};
pub use signer::SignError;
pub use wallet::{KeyError, WalletSeed, WalletSigner, WalletXpub};
