//! What the chain says, and how a payment is signed.
//!
//! | file | one line |
//! |---|---|
//! | `wallet.rs` | the seed, each agent's wallet derived from it, and the public half that tells their addresses |
//! | `signer.rs` | EIP-3009 transfers signed under the pinned token's EIP-712 domain |
//! | `nonce.rs` | the nonce of a payment, derived from its settlement |
//! | `chain.rs` | balances, and whether a transaction is, finally, the payment that was authorized |
//! | `sight.rs` | the final block, and what the chain shows of an authorization at it |
//! | `rpc.rs` | JSON-RPC, the few shapes that are read, and the node over HTTP |
//! | `development.rs` | telling a local node from a real chain |
//! | `error.rs` | why the chain could not be asked |
//!
//! Signing is a function of the seed and the terms, so that signing twice gives the same bytes. The RPC node is somebody
//! else's machine: what it answers is checked, and what can't be made sense of is an error and never a fact.
//!
//! Deliberately elsewhere: what has to be seen on chain ([`purser_domain::match_transfer`]), where settlements are stored
//! (`shared/store`), and what callers are told (`shared/api`).

mod chain;
mod development;
mod error;
mod nonce;
mod rpc;
mod sight;
mod signer;
mod wallet;

pub use chain::{Chain, Evidence, Finality, NODE_TIMEOUT, Pending};
pub use error::ChainError;
pub use nonce::NonceKey;
pub use rpc::{Exchange, HttpNode, Node};
pub use signer::SignError;
pub use wallet::{KeyError, WalletSeed, WalletSigner, WalletXpub};
