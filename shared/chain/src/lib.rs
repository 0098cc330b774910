//! Reads the chain, and signs payments.
//!
//! | file | content |
//! |---|---|
//! | `wallet.rs` | the seed, and each agent's wallet derived from it |
//! | `custody.rs` | the custody of the wallets' keys: the seed, or KMS |
//! | `kms.rs` | keys in KMS: creation, public keys, signatures |
//! | `signer.rs` | EIP-3009 transfers signed under the pinned token's EIP-712 domain |
//! | `attestation.rs` | the proof that a wallet belongs to an agent |
//! | `nonce.rs` | the nonce of a payment, derived from the settlement id |
//! | `chain.rs` | balances, and whether a transaction is the authorized payment, in a final block |
//! | `blocks.rs` | the newest final block, and a block by number |
//! | `view.rs` | the newest block and hashes of ancestors, in one call |
//! | `multicall.rs` | many calls of contracts in one RPC call |
//! | `balances.rs` | the balances of many wallets |
//! | `nonces.rs` | whether nonces are used, for many nonces at once |
//! | `logs.rs` | logs of the token, in one block or in a range |
//! | `outflows.rs` | transfers out of wallets, in a range of blocks |
//! | `authorization_state.rs` | the state of many authorizations at the final block |
//! | `rpc.rs` | JSON-RPC: the endpoints, and the fields that this crate reads |
//! | `http_node.rs` | a node over HTTP, and the URLs in the RPC secret |
//! | `facilitator.rs` | submitting a signed transfer through an x402 facilitator |
//! | `development.rs` | detecting a local node |
//! | `error.rs` | errors of calls to the node |
//! | `scripted_chain.rs` | a chain in memory, for the tests |
//!
//! A signature depends only on the transfer's values, including the nonce, so the chain accepts at most one of two
//! signatures for the same settlement. A third party operates the RPC node, so an invalid response is an error and never
//! evidence.
//!
//! Not in this crate: the logs that a payment must have ([`purser_domain::find_authorized_transfer`]), the storage of settlements
//! (`shared/store`), and HTTP responses (`shared/api`).

#![cfg_attr(
    test,
    expect(clippy::arithmetic_side_effects, reason = "tests calculate what they expect")
)]

mod attestation;
mod authorization_state;
mod balances;
mod blocks;
mod chain;
mod custody;
mod development;
mod error;
mod facilitator;
mod http_node;
mod kms;
mod logs;
mod multicall;
mod nonce;
mod nonces;
mod outflows;
mod rpc;
#[cfg(test)]
mod scripted_chain;
mod signer;
mod view;
mod wallet;

pub use attestation::is_attested;
pub use authorization_state::Authorization;
pub use chain::{Chain, Evidence, Finality, NODE_TIMEOUT, Pending};
pub use custody::{Custody, CustodyError, NewKey, NewWallet, Signer};
pub use error::ChainError;
pub use facilitator::{Facilitator, FacilitatorAddressError};
pub use http_node::HttpNode;
pub use kms::{AGENT_TAG, KmsError, KmsKeys, STACK_TAG, wallet_address};
pub use nonce::NonceKey;
pub use outflows::{FoundOutflows, UnsearchedBlocks};
pub use rpc::{Exchange, Node};
pub use signer::SignError;
pub use wallet::{KeyError, WalletSeed, WalletSigner};
