//! The objects of x402: payment requirements, the payment header and the provider's payment response.

pub(crate) mod call;
pub(crate) mod fingerprint;
pub(crate) mod intent;
pub(crate) mod network;
pub(crate) mod payment;
mod payment_identifier;
pub(crate) mod proof;
pub(crate) mod requirement;
pub(crate) mod settle;
