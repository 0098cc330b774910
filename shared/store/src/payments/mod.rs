//! Payments, withdrawals, and the claims that assign wallets to agents.

pub(crate) mod backfill;
pub(crate) mod decision;
pub(crate) mod decision_inputs;
pub(crate) mod escalate;
pub(crate) mod hold_limit;
pub(crate) mod idempotency;
pub(crate) mod late;
pub(crate) mod payout;
pub(crate) mod preflight;
pub(crate) mod raise;
pub(crate) mod recent;
pub(crate) mod release;
pub(crate) mod reserve;
pub(crate) mod revert_confirmation;
pub(crate) mod settle;
pub(crate) mod settlement;
pub(crate) mod wallet_claim;
pub(crate) mod window;
