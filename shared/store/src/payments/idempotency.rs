//! What an idempotency key is bound to.

use crate::codec::item::Row;
use purser_domain::{ApprovalId, BoundPayment, Fingerprint, Result, TransactionId};

/// What an idempotency key is bound to, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdempotencyRecord {
    /// An authorization.
    Allowed {
        /// The request.
        fingerprint: Fingerprint,
        /// What it authorized.
        payment: BoundPayment,
    },
    /// An escalation. The retry that carries the approval binds the key anew.
    Escalated {
        /// The request.
        fingerprint: Fingerprint,
        /// The approval it waits for.
        approval: ApprovalId,
        /// The decision.
        transaction: TransactionId,
    },
}

impl IdempotencyRecord {
    /// The request that the key was first used for.
    pub const fn fingerprint(&self) -> &Fingerprint {
        match self {
            Self::Allowed { fingerprint, .. } | Self::Escalated { fingerprint, .. } => fingerprint,
        }
    }

    /// What an idempotency row says.
    pub(crate) fn read(row: Row<'_>) -> Result<Self> {
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
                },
            }),
            ESCALATE => Ok(Self::Escalated {
                fingerprint,
                approval: row.get("apid")?,
                transaction: row.get("txid")?,
            }),
            _ => Err(row.corrupt("kind")),
        }
    }
}

/// The `kind` of a key that authorized.
pub(crate) const ALLOW: &str = "allow";
/// The `kind` of a key that escalated.
pub(crate) const ESCALATE: &str = "esc";
