//! Settlements: one row each in the agent's partition, with an id that sorts by time.
//!
//! A row stays below 1 KB, so that each write costs one unit: neither the payment header nor the nonce is stored, as
//! both are derived from it. A row is in the index `hold` exactly while the spend is held or the confirmation watched.

use crate::{
    codec::attribute::text,
    codec::checks::Checks,
    codec::fault::failed,
    codec::item::{Draft, Item},
    codec::key::{self, Key, hold::IndexKey},
    codec::ledger::Ledger,
};
use purser_domain::{AgentId, Result, Settlement, SettlementId, SettlementState, Terms};
use uuid::Uuid;

/// The `rs` of each state.
pub(crate) const AUTHORIZED: &str = "authorized";
pub(crate) const CONFIRMED: &str = "confirmed";
pub(crate) const EXPIRED: &str = "expired";

impl Ledger {
    /// A settlement of the agent, strongly consistent.
    pub async fn settlement(&self, agent: AgentId, id: SettlementId) -> Result<Option<Settlement>> {
        let item = self.get(&Key::settlement(agent, id)).await?;
        item.map(|item| self.read_settlement(agent, &item)).transpose()
    }

    /// The agent's settlements, strongly consistent, newest first: those before the id `before`, or the newest.
    pub async fn settlements(&self, agent: AgentId, before: Option<Uuid>, limit: u32) -> Result<Vec<Settlement>> {
        let query = self.db.query().table_name(&*self.table);
        let query = key::newest(query, agent, key::SETTLEMENTS, before, limit).consistent_read(true);
        // One page holds 1 MB, a thousand of these rows; `limit` is a hundred at most.
        let answer = query.send().await.map_err(failed("listing settlements"))?;
        answer
            .items()
            .iter()
            .map(|item| self.read_settlement(agent, item))
            .collect()
    }

    /// The settlement in an item.
    pub(crate) fn read_settlement(&self, agent: AgentId, item: &Item) -> Result<Settlement> {
        let row = self.row(item);
        let id = key::sort_key(item)
            .strip_prefix(key::SETTLEMENTS)
            .and_then(SettlementId::parse);
        let state = match row.get::<String>("rs")?.as_str() {
            AUTHORIZED => SettlementState::Authorized,
            CONFIRMED => SettlementState::Confirmed {
                tx_hash: row.get("txh")?,
                block_number: row.get("blk")?,
                settled_at: row.get("settled")?,
            },
            EXPIRED => SettlementState::Expired,
            _ => return Err(row.corrupt("rs")),
        };
        let terms = Terms {
            id: id.ok_or_else(|| row.corrupt("sk"))?,
            transaction: row.get("txid")?,
            agent,
            wallet: row.get("wallet")?,
            service: row.get("svc")?,
            operation: row.get("op")?,
            network: row.get("net")?,
            amount: row.get("amt")?,
            pay_to: row.get("payto")?,
            authorized_at: row.get("t")?,
            valid_before: row.get("vb")?,
            x402_version: row.get("xv")?,
            offer_index: row.get("oi")?,
            policy_version: row.get("pver")?,
            budgets: row.get_optional("budgets")?.unwrap_or_default(),
            idempotency_key: row.get("idem")?,
            approval: row.get_optional("apid")?,
            checks: row.get::<Checks>("checks")?.0,
        };
        let counted_at = row.get_optional("ct")?.unwrap_or(terms.authorized_at);
        Ok(Settlement {
            terms,
            state,
            counted_at,
        })
    }
}

/// The row of a payment that has just been authorized.
pub(crate) fn write_settlement(terms: &Terms) -> Item {
    Draft::of(&Key::settlement(terms.agent, terms.id))
        .with("txid", &terms.transaction)
        .with("wallet", &terms.wallet)
        .with("svc", &terms.service)
        .with("op", &terms.operation)
        .with("net", &terms.network)
        .with("amt", &terms.amount)
        .with("payto", &terms.pay_to)
        .with("t", &terms.authorized_at)
        .with("vb", &terms.valid_before)
        .with("xv", &terms.x402_version)
        .with("oi", &terms.offer_index)
        .with("pver", &terms.policy_version)
        .with_optional("budgets", Some(&terms.budgets).filter(|budgets| !budgets.is_empty()))
        .with("idem", &terms.idempotency_key)
        .with_optional("apid", terms.approval.as_ref())
        .with("checks", &Checks(terms.checks.clone()))
        .with_value("rs", text(AUTHORIZED))
        .with("hp", &key::hold::partition(terms.id))
        .with("hs", &IndexKey::Held(terms.valid_before).text())
        .into_item()
}
