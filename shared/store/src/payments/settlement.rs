//! Settlements: one row each in the agent's partition, with an id that sorts by time.
//!
//! A row stays below 1 KB, so that each write takes one unit. The payment header and the nonce are not stored, because
//! both can be derived from the row. A row is in the index `hold` exactly while the amount is held.

use crate::{
    codec::attribute::{Attribute as _, text},
    codec::checks::Checks,
    codec::fault::store_error,
    codec::item::{Draft, Item, Row},
    codec::key::{self, Key},
    codec::ledger::Ledger,
    transact::update_once_free,
};
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use purser_domain::{
    AgentId, FailedProofs, Payout, Purchase, Purpose, Result, Settlement, SettlementId, SettlementState, Terms, TxHash,
};
use uuid::Uuid;

/// The values of `rs`, one for each state.
pub(crate) const AUTHORIZED: &str = "authorized";
pub(crate) const CONFIRMED: &str = "confirmed";
pub(crate) const EXPIRED: &str = "expired";

/// The `kind` of a withdrawal. A purchase has no `kind`.
const PAYOUT: &str = "payout";

impl Ledger {
    /// Reads a settlement of the agent, strongly consistent.
    pub async fn settlement(&self, agent: AgentId, id: SettlementId) -> Result<Option<Settlement>> {
        let item = self.get(&Key::settlement(agent, id)).await?;
        item.map(|item| self.read_settlement(agent, &item)).transpose()
    }

    /// Reads up to `limit` of the agent's settlements before the id `before`, or the newest settlements, newest first,
    /// strongly consistent.
    pub async fn settlements(&self, agent: AgentId, before: Option<Uuid>, limit: u32) -> Result<Vec<Settlement>> {
        self.list_settlements(agent, before, limit, true).await
    }

    /// Reads settlements like [`Ledger::settlements`], but eventually consistent, at half the cost.
    pub async fn recent_settlements(
        &self,
        agent: AgentId,
        before: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<Settlement>> {
        self.list_settlements(agent, before, limit, false).await
    }

    async fn list_settlements(
        &self,
        agent: AgentId,
        before: Option<Uuid>,
        limit: u32,
        is_consistent: bool,
    ) -> Result<Vec<Settlement>> {
        let query = self.db.query().table_name(&*self.table);
        let query = key::newest(query, key::settlement_partition(agent), before, limit).consistent_read(is_consistent);
        // A Query page has 1 MB, which is a thousand of these rows, and `limit` is at most a hundred.
        let answer = query.send().await.map_err(store_error("listing settlements"))?;
        answer
            .items()
            .iter()
            .map(|item| self.read_settlement(agent, item))
            .collect()
    }

    /// Creates an update of a single settlement, outside a transaction.
    pub(crate) fn update_settlement(&self, agent: AgentId, id: SettlementId) -> UpdateItemFluentBuilder {
        self.db
            .update_item()
            .table_name(&*self.table)
            .set_key(Some(Key::settlement(agent, id).attributes()))
    }

    /// Counts a proof that the chain did not confirm, unless the same proof was counted last. Takes 1 write unit.
    pub async fn note_failed_proof(&self, settlement: &Settlement, tx_hash: TxHash) -> Result<()> {
        if settlement.failed_proofs.last == Some(tx_hash) {
            return Ok(());
        }
        let update = self
            .update_settlement(settlement.terms.agent, settlement.id())
            .update_expression("SET fph = :hash ADD fp :one")
            .condition_expression("attribute_exists(pk)")
            .expression_attribute_values(":hash", tx_hash.write())
            .expression_attribute_values(":one", 1_u32.write());
        update_once_free(&update, "counting a failed proof").await.map(|_| ())
    }

    /// Decodes a settlement's row.
    pub(crate) fn read_settlement(&self, agent: AgentId, item: &Item) -> Result<Settlement> {
        let row = self.row(item);
        let id = SettlementId::parse(key::sort_key(item));
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
            network: row.get("net")?,
            amount: row.get("amt")?,
            pay_to: row.get("payto")?,
            authorized_at: row.get("t")?,
            valid_before: row.get("vb")?,
            idempotency_key: row.get("idem")?,
            nonce_prefix: row.get("np")?,
            transfers: row.get_optional("ot")?.unwrap_or_default(),
            purpose: read_purpose(row)?,
        };
        let counted_at = row.get_optional("ct")?.unwrap_or(terms.authorized_at);
        Ok(Settlement {
            terms,
            state,
            counted_at,
            failed_proofs: FailedProofs {
                count: row.get_optional("fp")?.unwrap_or_default(),
                last: row.get_optional("fph")?,
            },
        })
    }
}

fn read_purpose(row: Row<'_>) -> Result<Purpose> {
    match row.get_optional::<String>("kind")?.as_deref() {
        None => Ok(Purpose::Purchase(Purchase {
            key: row.get("kid")?,
            service: row.get("svc")?,
            operation: row.get("op")?,
            x402_version: row.get("xv")?,
            offer_index: row.get("oi")?,
            policy_version: row.get("pver")?,
            inputs: row.get_optional("inv")?,
            budgets: row.get_optional("budgets")?.unwrap_or_default(),
            counts: row.get_optional("counts")?.unwrap_or_default(),
            approval: row.get_optional("apid")?,
            checks: row.get::<Checks>("checks")?.0,
        })),
        Some(PAYOUT) => Ok(Purpose::Payout(Payout { by: row.get("by")? })),
        Some(_) => Err(row.corrupt("kind")),
    }
}

/// Encodes the row of a payment that was just authorized.
pub(crate) fn write_settlement(terms: &Terms) -> Item {
    let row = Draft::new(&Key::settlement(terms.agent, terms.id))
        .with("txid", &terms.transaction)
        .with("wallet", &terms.wallet)
        .with("net", &terms.network)
        .with("amt", &terms.amount)
        .with("payto", &terms.pay_to)
        .with("t", &terms.authorized_at)
        .with("vb", &terms.valid_before)
        .with("idem", &terms.idempotency_key)
        .with("np", &terms.nonce_prefix)
        .with_optional("ot", Some(&terms.transfers).filter(|transfers| **transfers > 0))
        .with_value("rs", text(AUTHORIZED))
        .with("hp", &key::hold::partition(terms.id))
        .with("hs", &key::hold::due(terms.valid_before));
    let row = match &terms.purpose {
        Purpose::Purchase(purchase) => row
            .with("kid", &purchase.key)
            .with("svc", &purchase.service)
            .with("op", &purchase.operation)
            .with("xv", &purchase.x402_version)
            .with("oi", &purchase.offer_index)
            .with("pver", &purchase.policy_version)
            .with_optional("inv", purchase.inputs.as_ref())
            .with_optional("budgets", Some(&purchase.budgets).filter(|budgets| !budgets.is_empty()))
            .with_optional("counts", Some(&purchase.counts).filter(|counts| !counts.is_empty()))
            .with_optional("apid", purchase.approval.as_ref())
            .with("checks", &Checks(purchase.checks.clone())),
        Purpose::Payout(payout) => row.with_value("kind", text(PAYOUT)).with("by", &payout.by),
    };
    row.into_item()
}
