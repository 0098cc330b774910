//! The objects of x402: what a request asks, the offer that is paid, the payment header, the provider's proof.

pub(crate) mod call;
pub(crate) mod fingerprint;
pub(crate) mod intent;
pub(crate) mod network;
pub(crate) mod payment;
mod payment_identifier;
pub(crate) mod proof;
pub(crate) mod requirement;
pub(crate) mod settle;
