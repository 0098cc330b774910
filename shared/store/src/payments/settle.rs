//! Confirms settlements: stores the transfer that was found on chain, and the settlement's claim on the transfer.
//!
//! Invariants:
//! - The claim of a confirmed settlement is written before the settlement or together with it. The claim is in the
//!   partition of the transfer's block, and contains the block's hash.
//! - A claim is removed only while no confirmation depends on it. The removal marks the settlement, and a marked
//!   settlement is confirmed only together with a new claim. Otherwise a confirmation could follow the removal of the
//!   claim.
//! - If a settlement has a claim and is not confirmed, the function `reconcile` confirms it, because the payment is on
//!   chain.
//! - An agent's proof confirms a settlement only if no other settlement claims the transaction. The function
//!   `reconcile` confirms each settlement by a separate transfer, because two transfers are two payments.
//! - No transfer confirms two settlements, because a transfer must have the settlement's nonce.
//!
//! If the amount of a settlement was released, its confirmation counts the amount again, even above the caps, because
//! the money is spent.

use crate::{
    codec::attribute::{Attribute as _, Item, encode_text},
    codec::backoff::Backoff,
    codec::fault::{Fault, store_error},
    codec::item::Draft,
    codec::key::{CLAIM_SHARDS, Key, claim_partition, parse_claimed_tx_hash, sort_key_text},
    codec::ledger::Ledger,
    codec::table::{Query, put_request},
    payments::recent::{add_recent_payment_to_update, read_recent_payments},
    payments::settlement::{AUTHORIZED, CONFIRMED, EXPIRED},
    payments::window::{AGENT_VERSION_CHECK, add_to_sum, eviction_watermark_name, write_counted_payment},
    transact::{Transaction, TransactionOutcome, is_conflict},
};
use aws_sdk_dynamodb::{
    operation::{put_item::PutItemError, update_item::UpdateItemError},
    types::{
        ReturnValuesOnConditionCheckFailure,
        builders::{DeleteBuilder, PutBuilder, UpdateBuilder},
    },
};
use purser_domain::{
    Agent, AgentId, Amount, B256, CallDigest, CallMark, Error, Network, Purchase, RecentUpdate, Result, Settlement,
    SettlementId, SettlementState, SettlementTerms, Timestamp, Transfer, TxHash, WindowPeriod, WindowScope,
};

/// The part of a blockchain transaction that a settlement claims exclusively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The whole transaction. The confirmation fails if the transaction has already confirmed another settlement.
    Transaction,
    /// Only the settlement's own transfer, so the transaction may also confirm other settlements.
    Transfer,
}

/// The result of confirming a settlement with a transfer on the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfirmResult {
    /// The settlement is now confirmed. Contains the stored settlement.
    Done(Settlement),
    /// The settlement was already confirmed. Contains the stored settlement.
    Already(Settlement),
    /// The transaction has already confirmed another settlement. Nothing was written.
    TransactionUsed {
        /// The settlement that the transaction confirmed.
        by: SettlementId,
    },
}

/// The result of a settlement's state transition other than a confirmation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransitionResult {
    /// The transition was made. Contains the stored settlement.
    Done(Settlement),
    /// The settlement already had another state. Nothing was written. Contains the stored settlement.
    Superseded(Settlement),
}

enum ConfirmHoldResult {
    Done(Settlement),
    /// The settlement already had another state. Nothing was written.
    Superseded(Settlement),
    /// The settlement's claim was removed, so the confirmation must write a new claim. Nothing was written.
    ClaimRemoved,
}

/// A settlement's stored claim on a blockchain transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredClaim {
    /// The agent that pays.
    pub agent: AgentId,
    /// The settlement that claims the transaction.
    pub settlement: SettlementId,
    /// The claimed transaction.
    pub tx_hash: TxHash,
    /// The number of the transaction's block.
    pub block: u64,
    /// The hash of the transaction's block when the settlement was confirmed.
    pub block_hash: B256,
    key: Key,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Role {
    Settlement,
    /// The settlement's claim on a blockchain transaction or on one transfer.
    Claim,
    /// A window in which a released payment counts again, or the row about the agent's late payments.
    Window,
}

enum ConfirmWithClaimResult {
    Done(Settlement),
    /// The settlement already had another state. Nothing was written.
    Superseded(Settlement),
    /// Another settlement has the claim. Nothing was written.
    Claimed {
        /// The settlement that has the claim.
        by: SettlementId,
    },
}

const CONFIRMING: &str = "confirming a settlement";
/// The condition for writing a claim: the claim does not exist, or belongs to this settlement.
const UNCLAIMED_OR_OWN: &str = "attribute_not_exists(pk) OR sid = :settlement";
const CONFIRM_HELD: &str = "SET rs = :confirmed, txh = :hash, blk = :block, settled = :now REMOVE hp, hs";

impl Ledger {
    /// Reads an agent and one of the agent's settlements, strongly consistent. Takes one read unit each.
    pub async fn read_agent_and_settlement(
        &self,
        agent: AgentId,
        settlement: Option<SettlementId>,
    ) -> Result<(Option<Agent>, Option<Settlement>)> {
        let settlement = settlement.map(|id| Key::settlement(agent, id));
        let agent_key = Key::agent(agent);
        let keys: Vec<Key> = std::iter::once(agent_key.clone()).chain(settlement.clone()).collect();
        let items = self.get_items(&keys).await?;
        let item_of = |key: &Key| items.iter().find(|item| key.is_key_of(item));
        let record = item_of(&agent_key).map(|item| self.read_agent_item(item)).transpose()?;
        let settlement = settlement
            .and_then(|key| item_of(&key))
            .map(|item| self.read_settlement_item(item))
            .transpose()?;
        Ok((record, settlement))
    }

    /// Reads which settlement a transaction in this block confirmed first, strongly consistent. Takes one read unit.
    pub async fn find_confirmed_settlement(
        &self,
        network: Network,
        block: u64,
        hash: TxHash,
    ) -> Result<Option<SettlementId>> {
        let item = self.get_item(&Key::claim(network, block, hash, None)).await?;
        item.map(|item| self.item_row(&item).get("sid")).transpose()
    }

    /// Reads all claims on transactions in this block, strongly consistent. Takes at least four read units.
    pub async fn read_claims_in_block(&self, network: Network, block: u64) -> Result<Vec<StoredClaim>> {
        let mut reads = tokio::task::JoinSet::new();
        for shard in 0..CLAIM_SHARDS {
            let (ledger, partition) = (self.clone(), claim_partition(network, block, shard));
            reads.spawn(async move { ledger.read_claims_of_partition(&partition, block).await });
        }
        let mut claims = Vec::new();
        while let Some(read) = reads.join_next().await {
            claims.extend(read.map_err(|error| Error::internal("reading transaction claims", error))??);
        }
        Ok(claims)
    }

    async fn read_claims_of_partition(&self, partition: &str, block: u64) -> Result<Vec<StoredClaim>> {
        let mut claims = Vec::new();
        let mut from = None;
        loop {
            let response = Query::new(&self.db, &self.table, partition)
                .consistent()
                .start_after(from)
                .send("reading transaction claims")
                .await?;
            for item in response.items() {
                claims.push(self.read_claim_item(item, block)?);
            }
            from = response.last_evaluated_key;
            if from.is_none() {
                return Ok(claims);
            }
        }
    }

    pub(crate) fn read_claim_item(&self, item: &Item, block: u64) -> Result<StoredClaim> {
        let row = self.item_row(item);
        Ok(StoredClaim {
            agent: row.get("agent")?,
            settlement: row.get("sid")?,
            tx_hash: parse_claimed_tx_hash(sort_key_text(item)).ok_or_else(|| row.corrupt_error("sk"))?,
            block,
            block_hash: row.get("bh")?,
            key: Key::from_item(item).ok_or_else(|| row.corrupt_error("pk"))?,
        })
    }

    /// Removes a claim on a transaction in a block that is no longer on the chain, unless the claim was renewed with
    /// another block hash meanwhile. Returns `false` if the claim confirms the settlement. Takes 4 write units.
    pub async fn try_remove_claim(&self, claim: &StoredClaim) -> Result<bool> {
        let StoredClaim { agent, settlement, .. } = *claim;
        let delete = DeleteBuilder::default()
            .table_name(&*self.table)
            .set_key(Some(claim.key.attributes()))
            .condition_expression("bh = :hash")
            .expression_attribute_values(":hash", claim.block_hash.write());
        let mark = self
            .update_item(&Key::settlement(agent, settlement))
            .update_expression("SET unc = :yes")
            .condition_expression("rs <> :confirmed OR txh <> :tx OR blk <> :block")
            .expression_attribute_values(":yes", true.write())
            .expression_attribute_values(":confirmed", encode_text(CONFIRMED))
            .expression_attribute_values(":tx", claim.tx_hash.write())
            .expression_attribute_values(":block", claim.block.write());
        let mut transaction = Transaction::new();
        transaction.add_delete(Role::Claim, delete)?;
        transaction.add_update(Role::Settlement, mark)?;
        Ok(
            match transaction.send_until_outcome(&self.db, &mut Backoff::new()).await? {
                TransactionOutcome::Committed => true,
                // If the claim no longer exists, there is nothing to remove.
                TransactionOutcome::Refused(rejection) => rejection.has_failed(Role::Claim),
            },
        )
    }

    /// Confirms a settlement with the transfer that was found on chain. Takes 3 write units, or 4 plus 4 per window
    /// after a release. A compared payee or price adds 2.
    pub async fn confirm_settlement(
        &self,
        settlement: &Settlement,
        transfer: &Transfer,
        claim: Claim,
        now: Timestamp,
    ) -> Result<ConfirmResult> {
        let confirmed = self.try_confirm_settlement(settlement, transfer, claim, now).await?;
        if let ConfirmResult::Done(settlement) = &confirmed {
            // If this write fails, the payment is still confirmed, and a rule requires one more approval for the payee.
            drop(self.store_recent_payee_and_price(&settlement.terms).await);
        }
        Ok(confirmed)
    }

    async fn try_confirm_settlement(
        &self,
        settlement: &Settlement,
        transfer: &Transfer,
        claim: Claim,
        now: Timestamp,
    ) -> Result<ConfirmResult> {
        let mut settlement = settlement.clone();
        let mut backoff = Backoff::new();
        let (mut log_index, mut is_together) = (None, false);
        loop {
            let terms = &settlement.terms;
            let taken_by = match settlement.state {
                SettlementState::Confirmed { .. } => return Ok(ConfirmResult::Already(settlement)),
                SettlementState::Authorized if !is_together => {
                    let by = self.put_claim(terms, transfer, log_index, &mut backoff).await?;
                    if by.is_none() {
                        match self.confirm_hold(&settlement, transfer, now, &mut backoff).await? {
                            ConfirmHoldResult::Done(confirmed) => return Ok(ConfirmResult::Done(confirmed)),
                            ConfirmHoldResult::Superseded(stored) => settlement = stored,
                            ConfirmHoldResult::ClaimRemoved => is_together = true,
                        }
                        backoff.wait_for_retry().await?;
                        continue;
                    }
                    by
                }
                SettlementState::Authorized | SettlementState::Expired => {
                    let together = self.confirm_with_claim(&settlement, transfer, log_index, now, &mut backoff);
                    match together.await? {
                        ConfirmWithClaimResult::Done(confirmed) => return Ok(ConfirmResult::Done(confirmed)),
                        ConfirmWithClaimResult::Superseded(stored) => {
                            settlement = stored;
                            backoff.wait_for_retry().await?;
                            continue;
                        }
                        ConfirmWithClaimResult::Claimed { by } => Some(by),
                    }
                }
            };
            match (taken_by, claim, log_index) {
                (Some(_), Claim::Transfer, None) => log_index = Some(transfer.log_index()),
                (Some(by), ..) => return Ok(ConfirmResult::TransactionUsed { by }),
                (None, ..) => {}
            }
        }
    }

    /// Records that the transaction that confirmed a settlement is now in another block. Changes nothing if the
    /// settlement is no longer confirmed by this transaction, or if another settlement has the claim. Takes 4 write
    /// units.
    pub async fn update_confirmation_block(&self, settlement: &Settlement, transfer: &Transfer) -> Result<()> {
        let terms = &settlement.terms;
        let mut log_index = None;
        loop {
            let update = self
                .update_item(&Key::settlement(terms.agent, terms.id))
                .update_expression("SET blk = :block")
                .condition_expression("rs = :confirmed AND txh = :hash")
                .expression_attribute_values(":block", transfer.block().number.write())
                .expression_attribute_values(":confirmed", encode_text(CONFIRMED))
                .expression_attribute_values(":hash", transfer.tx_hash().write());
            let mut transaction = Transaction::new();
            transaction.add_put(Role::Claim, self.transfer_claim_put(terms, transfer, log_index))?;
            transaction.add_update(Role::Settlement, update)?;
            match transaction.send_until_outcome(&self.db, &mut Backoff::new()).await? {
                TransactionOutcome::Refused(rejection) if rejection.has_failed(Role::Claim) && log_index.is_none() => {
                    log_index = Some(transfer.log_index());
                }
                TransactionOutcome::Committed | TransactionOutcome::Refused(_) => return Ok(()),
            }
        }
    }

    /// Writes a claim without changing the settlement. Returns the other settlement that has the claim, if any.
    async fn put_claim(
        &self,
        terms: &SettlementTerms,
        transfer: &Transfer,
        log_index: Option<u64>,
        backoff: &mut Backoff,
    ) -> Result<Option<SettlementId>> {
        const CLAIMING: &str = "claiming a transaction";
        let put = put_request(&self.db, &self.table, transfer_claim_item(terms, transfer, log_index))
            .condition_expression(UNCLAIMED_OR_OWN)
            .expression_attribute_values(":settlement", terms.id.write())
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        loop {
            let Err(error) = put.clone().send().await else {
                return Ok(None);
            };
            if is_conflict(&error) {
                backoff.wait_for_retry().await?;
                continue;
            }
            if let Some(PutItemError::ConditionalCheckFailedException(failure)) = error.as_service_error()
                && let Some(item) = failure.item()
            {
                return self.item_row(item).get("sid").map(Some);
            }
            return Err(store_error(CLAIMING)(error));
        }
    }

    /// Confirms a held settlement whose claim is already written. Returns `ClaimRemoved` if a claim was removed.
    async fn confirm_hold(
        &self,
        settlement: &Settlement,
        transfer: &Transfer,
        now: Timestamp,
        backoff: &mut Backoff,
    ) -> Result<ConfirmHoldResult> {
        let terms = &settlement.terms;
        let update = self
            .settlement_update_request(terms.agent, terms.id)
            .update_expression(CONFIRM_HELD)
            .condition_expression("rs = :authorized AND attribute_not_exists(unc)")
            .expression_attribute_values(":authorized", encode_text(AUTHORIZED))
            .expression_attribute_values(":confirmed", encode_text(CONFIRMED))
            .expression_attribute_values(":hash", transfer.tx_hash().write())
            .expression_attribute_values(":block", transfer.block().number.write())
            .expression_attribute_values(":now", now.write())
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        loop {
            let Err(error) = update.clone().send().await else {
                return Ok(ConfirmHoldResult::Done(settlement.clone().confirm(transfer, now)));
            };
            if is_conflict(&error) {
                backoff.wait_for_retry().await?;
                continue;
            }
            if let Some(UpdateItemError::ConditionalCheckFailedException(failure)) = error.as_service_error() {
                let item = failure.item().ok_or_else(unknown_settlement_error)?;
                let stored = self.read_settlement_item(item)?;
                return Ok(match stored.state {
                    SettlementState::Authorized => ConfirmHoldResult::ClaimRemoved,
                    SettlementState::Confirmed { .. } | SettlementState::Expired => {
                        ConfirmHoldResult::Superseded(stored)
                    }
                });
            }
            return Err(store_error(CONFIRMING)(error));
        }
    }

    /// Confirms a settlement and writes the claim in one transaction. A released payment counts again.
    async fn confirm_with_claim(
        &self,
        settlement: &Settlement,
        transfer: &Transfer,
        log_index: Option<u64>,
        now: Timestamp,
        backoff: &mut Backoff,
    ) -> Result<ConfirmWithClaimResult> {
        let terms = &settlement.terms;
        loop {
            let mut transaction = Transaction::new();
            let mut confirmed = settlement.clone().confirm(transfer, now);
            let update = if settlement.state == SettlementState::Expired {
                confirmed.counted_at = self.add_late_payment_to_windows(&mut transaction, terms, now).await?;
                self.late_confirmation_update(terms, transfer, now, confirmed.counted_at)
            } else {
                self.hold_confirmation_update(terms, transfer, now)
            };
            transaction.add_update(Role::Settlement, update)?;
            transaction.add_put(Role::Claim, self.transfer_claim_put(terms, transfer, log_index))?;
            let TransactionOutcome::Refused(rejection) = transaction.send_until_outcome(&self.db, backoff).await?
            else {
                return Ok(ConfirmWithClaimResult::Done(confirmed));
            };
            if let Some(item) = rejection.existing_item(Role::Claim) {
                let by = self.item_row(item).get("sid")?;
                return Ok(ConfirmWithClaimResult::Claimed { by });
            }
            if let Some(item) = rejection.existing_item(Role::Settlement) {
                return Ok(ConfirmWithClaimResult::Superseded(self.read_settlement_item(item)?));
            }
            if rejection.has_failed(Role::Settlement) || !rejection.has_failed(Role::Window) {
                return Err(unknown_settlement_error());
            }
            // A window's eviction watermark passed the time from which this payment would count, or the rules changed.
            backoff.wait_for_retry().await?;
        }
    }

    fn transfer_claim_put(&self, terms: &SettlementTerms, transfer: &Transfer, log_index: Option<u64>) -> PutBuilder {
        self.put_item(transfer_claim_item(terms, transfer, log_index))
            .condition_expression(UNCLAIMED_OR_OWN)
            .expression_attribute_values(":settlement", terms.id.write())
    }

    fn hold_confirmation_update(&self, terms: &SettlementTerms, transfer: &Transfer, now: Timestamp) -> UpdateBuilder {
        self.update_item(&Key::settlement(terms.agent, terms.id))
            .update_expression(CONFIRM_HELD)
            .condition_expression("rs = :authorized")
            .expression_attribute_values(":authorized", encode_text(AUTHORIZED))
            .expression_attribute_values(":confirmed", encode_text(CONFIRMED))
            .expression_attribute_values(":hash", transfer.tx_hash().write())
            .expression_attribute_values(":block", transfer.block().number.write())
            .expression_attribute_values(":now", now.write())
    }

    fn late_confirmation_update(
        &self,
        terms: &SettlementTerms,
        transfer: &Transfer,
        now: Timestamp,
        counted_at: Timestamp,
    ) -> UpdateBuilder {
        self.update_item(&Key::settlement(terms.agent, terms.id))
            .update_expression("SET rs = :confirmed, txh = :hash, blk = :block, settled = :now, ct = :counted")
            .condition_expression("rs = :expired")
            .expression_attribute_values(":expired", encode_text(EXPIRED))
            .expression_attribute_values(":confirmed", encode_text(CONFIRMED))
            .expression_attribute_values(":hash", transfer.tx_hash().write())
            .expression_attribute_values(":block", transfer.block().number.write())
            .expression_attribute_values(":now", now.write())
            .expression_attribute_values(":counted", counted_at.write())
    }

    /// Counts a payment in the windows without checking the caps, from the first time after all eviction watermarks.
    /// Returns this time. Every window must accept the version of the agent's record, so a rule that is added meanwhile
    /// is backfilled later.
    async fn add_late_payment_to_windows(
        &self,
        transaction: &mut Transaction<Role>,
        terms: &SettlementTerms,
        now: Timestamp,
    ) -> Result<Timestamp> {
        // No window counts withdrawals, so there is nothing to add.
        let Some(purchase) = terms.purchase() else {
            return Ok(now);
        };
        let agent = self.read_agent_by_id(terms.agent).await?;
        let mut at = now;
        let mut windows = Vec::new();
        for (scope, period, amount) in windows_counting_payment(terms, purchase, agent.as_ref()) {
            let Some(item) = self.get_item(&Key::window(scope)).await? else {
                if scope.rule_id().is_some() {
                    transaction.add_update(Role::Window, self.empty_payee_window_update(scope))?;
                }
                continue;
            };
            at = at.max(period.end(self.read_eviction_watermark(&item, period)?).unwrap_or(at));
            let guarded = agent.as_ref().is_some_and(Agent::has_duplicate_guard) && scope.rule_id().is_none();
            let call = if guarded {
                self.update_for_restored_call(&item, purchase.scope.call, terms.authorized_at)?
            } else {
                None
            };
            windows.push((scope, period, amount, call));
        }
        let agent_version = agent.map_or(0, |agent| agent.version);
        for (scope, period, amount, call) in windows {
            let update = self
                .update_item(&Key::window(scope))
                .expression_attribute_names("#total", "total")
                .expression_attribute_names("#horizon", eviction_watermark_name(period))
                .expression_attribute_values(":delta", add_to_sum(0, amount).write())
                .expression_attribute_values(":horizon", period.newest_expired_time(at).write())
                .expression_attribute_values(":agent", agent_version.write())
                .expression_attribute_values(":one", 1_u32.write());
            let condition =
                format!("(attribute_not_exists(#horizon) OR #horizon <= :horizon) AND {AGENT_VERSION_CHECK}");
            let update = match call {
                Some(call) => add_recent_payment_to_update(update, &call, &[], condition),
                None => update
                    .update_expression("ADD #total :delta, ver :one")
                    .condition_expression(condition),
            };
            transaction.add_update(Role::Window, update)?;
            let entry = write_counted_payment(scope, at, terms.id, amount);
            transaction.add_put(Role::Window, self.put_new_item(entry))?;
        }
        self.add_late_payment(transaction, terms.agent, terms.id, at).await?;
        Ok(at)
    }

    /// Returns the update that adds a released payment's call to the recent calls again; `None` if a later
    /// authorization of the same call is stored.
    fn update_for_restored_call(
        &self,
        totals: &Item,
        call: CallDigest,
        authorized_at: Timestamp,
    ) -> Result<Option<RecentUpdate>> {
        let recent = read_recent_payments(self.item_row(totals), totals)?;
        let mut calls = recent.calls.iter();
        let is_stored = calls.any(|(stored, at)| *stored == call && *at > authorized_at);
        let mark = CallMark {
            call,
            not_after: Some(authorized_at),
        };
        Ok((!is_stored).then(|| recent.update_for_payment(authorized_at, Some(mark), None, None)))
    }
}

/// Returns the day window and the present rules' windows that count a payment, with the amounts to add.
fn windows_counting_payment(
    terms: &SettlementTerms,
    purchase: &Purchase,
    agent: Option<&Agent>,
) -> Vec<(WindowScope, WindowPeriod, Amount)> {
    let day = WindowScope::Day {
        agent: terms.agent,
        service: purchase.service,
    };
    let rules = agent.into_iter().flat_map(Agent::counting_rules);
    let rules = rules.filter(|counting| purchase.is_counted_by(&counting.rule.kind, None));
    let rules = rules.filter_map(|counting| {
        let amount = counting.counted.payment_units(terms.amount);
        let scope = counting.window_scope(terms.agent, Some(terms.pay_to))?;
        Some((scope, counting.period, amount))
    });
    std::iter::once((day, WindowPeriod::DAY, terms.amount))
        .chain(rules)
        .collect()
}

/// Encodes a settlement's claim, with the hash of the transfer's block.
fn transfer_claim_item(terms: &SettlementTerms, transfer: &Transfer, log_index: Option<u64>) -> Item {
    let block = transfer.block();
    Draft::new(&Key::claim(terms.network, block.number, transfer.tx_hash(), log_index))
        .with("sid", &terms.id)
        .with("agent", &terms.agent)
        .with("bh", &block.hash)
        .into_item()
}

fn unknown_settlement_error() -> Error {
    Error::internal(CONFIRMING, Fault::new("the settlement does not exist"))
}
