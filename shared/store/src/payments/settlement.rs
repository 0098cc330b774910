//! Settlements: one row each in the agent's partition. A row stays below 1 KB, so that each write takes one unit. The
//! index `hold` contains a row exactly while the amount is held.

use crate::{
    codec::attribute::{Attribute as _, encode_text},
    codec::fields::fields,
    codec::item::{Draft, Fields, Item, Unreadable, optional_field},
    codec::key::{self, Key},
    codec::ledger::Ledger,
    codec::table::{Query, update_request},
    transact::update_with_conflict_retry,
};
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use purser_domain::{
    AgentId, FailedProofs, Purchase, Purpose, Result, Settlement, SettlementId, SettlementState, SettlementTerms,
    TxHash, WithdrawalPurpose,
};
use uuid::Uuid;

/// The values of the attribute `rs`: one for each state of a settlement.
pub(crate) const AUTHORIZED: &str = "authorized";
pub(crate) const CONFIRMED: &str = "confirmed";
pub(crate) const EXPIRED: &str = "expired";

/// The value of the attribute `kind` for a withdrawal. A purchase has no `kind`.
const PAYOUT: &str = "payout";

impl Ledger {
    /// Reads a settlement of the agent, strongly consistent.
    pub async fn read_settlement_by_id(&self, agent: AgentId, id: SettlementId) -> Result<Option<Settlement>> {
        let item = self.get_item(&Key::settlement(agent, id)).await?;
        item.map(|item| self.read_settlement_item(&item)).transpose()
    }

    /// Reads up to `limit` of the agent's settlements with ids below `before`, newest first, strongly consistent.
    pub async fn read_settlements(&self, agent: AgentId, before: Option<Uuid>, limit: u32) -> Result<Vec<Settlement>> {
        self.list_settlements(agent, before, limit, true).await
    }

    /// Reads settlements like [`Ledger::read_settlements`], but eventually consistent, at half the cost.
    pub async fn read_recent_settlements(
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
        // `limit` is at most a hundred, and a page of a DynamoDB query has about a thousand of these rows.
        let response = Query::new(&self.db, &self.table, key::settlement_partition(agent))
            .newest_page(before, limit)
            .consistent_if(is_consistent)
            .send("listing settlements")
            .await?;
        response
            .items()
            .iter()
            .map(|item| self.read_settlement_item(item))
            .collect()
    }

    pub(crate) fn settlement_update_request(&self, agent: AgentId, id: SettlementId) -> UpdateItemFluentBuilder {
        update_request(&self.db, &self.table, &Key::settlement(agent, id))
    }

    /// Counts a transaction that the agent sent as proof but that does not contain the payment. Does nothing if the
    /// last counted proof is the same transaction. Takes 1 write unit.
    pub async fn record_failed_proof(&self, settlement: &Settlement, tx_hash: TxHash) -> Result<()> {
        if settlement.failed_proofs.last == Some(tx_hash) {
            return Ok(());
        }
        let update = self
            .settlement_update_request(settlement.terms.agent, settlement.id())
            .update_expression("SET fph = :hash ADD fp :one")
            .condition_expression("attribute_exists(pk)")
            .expression_attribute_values(":hash", tx_hash.write())
            .expression_attribute_values(":one", 1_u32.write());
        update_with_conflict_retry(&update, "counting a failed proof")
            .await
            .map(|_| ())
    }

    pub(crate) fn read_settlement_item(&self, item: &Item) -> Result<Settlement> {
        let row = self.item_row(item);
        let terms: SettlementTerms = row.read()?;
        Ok(Settlement {
            state: row.read()?,
            counted_at: row.get_optional("ct")?.unwrap_or(terms.authorized_at),
            failed_proofs: row.read()?,
            terms,
        })
    }
}

fields! {
    SettlementTerms {
        id: sk(SettlementId::parse),
        agent: pk(key::parse_agent),
        transaction: "txid",
        wallet: "wallet",
        network: "net",
        amount: "amt",
        pay_to: "payto",
        authorized_at: "t",
        valid_before: "vb",
        idempotency_key: "idem",
        nonce_prefix: "np",
        transfers: "ot" or_default,
        purpose: part,
    }

    Purchase {
        key: "kid",
        service: "svc",
        operation: "op",
        scope: "sc",
        x402_version: "xv",
        offer_index: "oi",
        policy_version: "pver",
        inputs: "inv",
        budgets: "budgets" or_default,
        counts: "counts" or_default,
        approval: "apid" optional,
        checks: "checks",
    }

    WithdrawalPurpose { by: "by" }

    FailedProofs { count: "fp" or_default, last: "fph" optional }

    enum SettlementState by "rs" {
        AUTHORIZED => Authorized {},
        CONFIRMED => Confirmed { tx_hash: "txh", block_number: "blk", settled_at: "settled" },
        EXPIRED => Expired {},
    }
}

impl Fields for Purpose {
    fn write_to(&self, draft: Draft) -> Draft {
        match self {
            Self::Purchase(purchase) => draft.with_fields(purchase),
            Self::Payout(payout) => draft.with_value("kind", encode_text(PAYOUT)).with_fields(payout),
        }
    }

    fn read_from(item: &Item) -> Result<Self, Unreadable> {
        match optional_field::<String>(item, "kind")?.as_deref() {
            None => Fields::read_from(item).map(Self::Purchase),
            Some(PAYOUT) => Fields::read_from(item).map(Self::Payout),
            Some(_) => Err(Unreadable("kind")),
        }
    }
}

pub(crate) fn write_settlement(terms: &SettlementTerms) -> Item {
    Draft::new(&Key::settlement(terms.agent, terms.id))
        .with_fields(terms)
        .with_fields(&SettlementState::Authorized)
        .with("hp", &key::hold::hold_partition(terms.id))
        .with("hs", &key::hold::due_key(terms.valid_before))
        .into_item()
}
