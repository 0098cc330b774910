//! The record of an idempotency key: the authorized payment, or the approval that the request waits for.

use crate::codec::item::Row;
use purser_domain::{ApprovalId, BoundPayment, Fingerprint, Result, TransactionId};

/// The stored result of the request that used an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdempotencyRecord {
    /// The key authorized a payment.
    Allowed {
        /// The fingerprint of the request that used the key.
        fingerprint: Fingerprint,
        /// The payment that the first request with the key authorized.
        payment: BoundPayment,
    },
    /// The key was used for an escalated request. A retry after the approval replaces this record.
    Escalated {
        /// The fingerprint of the request that used the key.
        fingerprint: Fingerprint,
        /// The approval that the request waits for.
        approval: ApprovalId,
        /// The id of the escalated decision.
        transaction: TransactionId,
    },
}

impl IdempotencyRecord {
    /// Returns the fingerprint of the first request with this key.
    pub const fn fingerprint(&self) -> &Fingerprint {
        match self {
            Self::Allowed { fingerprint, .. } | Self::Escalated { fingerprint, .. } => fingerprint,
        }
    }

    pub(crate) fn read_record(row: Row<'_>) -> Result<Self> {
        let fingerprint = row.get("rh")?;
        match row.get::<String>("kind")?.as_str() {
            ALLOW => Ok(Self::Allowed {
                fingerprint,
                payment: BoundPayment {
                    settlement: row.get("sid")?,
                    transaction: row.get("txid")?,
                    authorized_at: row.get("t")?,
                    valid_before: row.get("vb")?,
                    offer_index: row.get("oi")?,
                    nonce_prefix: row.get("np")?,
                },
            }),
            ESCALATE => Ok(Self::Escalated {
                fingerprint,
                approval: row.get("apid")?,
                transaction: row.get("txid")?,
            }),
            _ => Err(row.corrupt_error("kind")),
        }
    }
}

pub(crate) const ALLOW: &str = "allow";
pub(crate) const ESCALATE: &str = "esc";
