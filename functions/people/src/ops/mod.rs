//! The operations of people, shared by the API and the pages: one file per resource, each an `impl People`.

pub(crate) mod agents;
pub(crate) mod approvals;
pub(crate) mod audit;
mod authenticate;
pub(crate) mod decisions;
pub(crate) mod export;
pub(crate) mod freezes;
pub(crate) mod handovers;
pub(crate) mod keys;
pub(crate) mod notices;
pub(crate) mod owned;
pub(crate) mod payouts;
pub(crate) mod rules;
pub(crate) mod services;
pub(crate) mod sessions;
pub(crate) mod settlements;
pub(crate) mod several;
pub(crate) mod span;
pub(crate) mod spend;
pub(crate) mod spending;
pub(crate) mod usage;
pub(crate) mod wallet;
pub(crate) mod webhooks;
