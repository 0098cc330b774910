//! Parses signed statements that are in the log.

use purser_domain::{
    AgentId, ApprovalChange, ApprovalId, CHANGE_STATEMENT, DECISION_STATEMENT, RECEIPT_STATEMENT, SettlementId,
    Timestamp, TransactionId, TxHash,
};
use purser_evidence::JwkSet;
use purser_log::{Confirmation, StatedChange};
use serde_json::Value;

pub(crate) struct LoggedStatement {
    pub(crate) index: u64,
    pub(crate) agent: AgentId,
    pub(crate) fact: StatedChange,
    pub(crate) payload: Value,
    /// The payload's exact bytes.
    pub(crate) bytes: Vec<u8>,
}

impl LoggedStatement {
    /// Parses a log entry. Returns `None` unless it is a known statement with a valid signature by one of the keys.
    pub(crate) fn from_signed_entry(index: u64, statement: &str, keys: &JwkSet) -> Option<Self> {
        let verified = keys.verify(statement).ok()?;
        let payload: Value = serde_json::from_slice(verified.payload()).ok()?;
        let text = |at: &str| payload.pointer(at).and_then(Value::as_str);
        let settlement = text("/settlement_id").map(SettlementId::parse);
        let (agent, pending_change) = match text("/statement")? {
            DECISION_STATEMENT => {
                let pending_change = match settlement {
                    Some(settlement) => StatedChange::Allowed(settlement?),
                    None => StatedChange::Refused(TransactionId::parse(text("/transaction_id")?)?),
                };
                (text("/facts/agent_id")?, pending_change)
            }
            RECEIPT_STATEMENT => {
                let confirmation = Confirmation {
                    tx_hash: TxHash::parse(text("/settlement/tx_hash")?)?,
                    block_number: payload.pointer("/settlement/block_number")?.as_u64()?,
                    settled_at: Timestamp::parse(text("/settlement/settled_at")?)?,
                };
                (
                    text("/settlement/agent_id")?,
                    StatedChange::Confirmed(settlement??, confirmation),
                )
            }
            CHANGE_STATEMENT if payload.get("approval").is_some() => {
                let id = ApprovalId::parse(text("/approval/approval_id")?)?;
                let change = ApprovalChange::from_name(text("/change")?)?;
                let pending_change = StatedChange::ApprovalChanged(id, change, Timestamp::parse(text("/changed_at")?)?);
                (text("/approval/agent_id")?, pending_change)
            }
            CHANGE_STATEMENT => {
                let pending_change = match text("/change")? {
                    "reversal" => StatedChange::Reverted(TransactionId::parse(text("/transaction_id")?)?),
                    "release" => StatedChange::Released(settlement??, Timestamp::parse(text("/changed_at")?)?),
                    "withdrawal" => StatedChange::Withdrawn(settlement??),
                    _ => return None,
                };
                (text("/settlement/agent_id")?, pending_change)
            }
            _ => return None,
        };
        Some(Self {
            index,
            agent: AgentId::parse(agent)?,
            fact: pending_change,
            payload,
            bytes: verified.payload().to_vec(),
        })
    }
}
