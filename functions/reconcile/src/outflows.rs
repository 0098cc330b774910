//! Finds transfers out of the agents' wallets that belong to no settlement, which means that somebody else signs with
//! the wallets' keys.
//!
//! Invariants: the checkpoint advances only after all earlier transfers were matched with settlements or reported. Each
//! outflow is reported once, because a reported outflow is stored. Blocks in which a wallet has more logs than the node
//! returns are logged and skipped, so that a flood of transfers does not stop the search.

use crate::{
    Inner,
    batch::{Cause, ReconciledSettlement},
    watch::run_concurrently,
};
use purser_chain::UnsearchedBlocks;
use purser_domain::{
    Address, AgentId, B256, Duration, Error, ExpectedTransfer, FinalBlock, NoncePrefix, Outflow, Result, Settlement,
    SettlementState, Timestamp, TxHash, UserId,
};
use purser_store::WalletPart;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};
use tokio::time::Instant;

const SEARCHING: &str = "searching for outflows";
/// The number of blocks whose claims are read concurrently.
const MAX_CONCURRENT_BLOCKS: usize = 32;
/// The maximum time from a settlement's authorization to the payment's block: validity plus clock difference.
const MAX_HOLD_AGE: Duration = Duration::from_secs_u32(3_600 + 3_600);
/// The maximum time by which a function's clock is ahead of the chain.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs_u32(3_600);

/// An outflow without a claim, the agent whose wallet it left, and the time of its block. The outflow may still pay a
/// settlement.
struct UnexplainedOutflow {
    agent: AgentId,
    outflow: Outflow,
    at: Timestamp,
}

/// How an outflow's nonce matches a settlement's nonce.
enum Pays {
    /// The outflow has the settlement's nonce.
    Surely(B256),
    /// Payee, amount and the nonce's stored prefix match, but another key derived the nonce.
    ByAnotherKey(B256),
}

impl Inner {
    /// Checks whether each transfer out of these wallets belongs to a settlement.
    pub(crate) async fn check_outflows(
        self: &Arc<Self>,
        part: WalletPart,
        block: &FinalBlock,
        deadline: Instant,
    ) -> Result<()> {
        // The number of blocks from the final block (depth `confirmations`) down to the depth `watch`.
        let below = self.watch.saturating_sub(self.confirmations);
        let Some(deep) = block.number.checked_sub(below) else {
            return Ok(());
        };
        if Instant::now() > deadline {
            return Ok(());
        }
        let Some(place) = self.ledger.read_outflow_checkpoint(part).await? else {
            // Only the first run of a deployment finds no checkpoint. No wallet made a transfer before that run.
            return self.ledger.save_outflow_checkpoint(part, deep).await;
        };
        let mut first = place.saturating_add(1);
        if first > deep {
            return Ok(());
        }
        // The wallets are read after the final block, so a missing wallet was created after the checked blocks.
        let wallets = self.read_wallets(part).await?;
        let addresses: Vec<Address> = wallets.keys().copied().collect();
        let mut noisy = BTreeSet::new();
        while first <= deep {
            let blocks = (first, deep);
            let found = self
                .chain
                .find_outflows(&addresses, blocks, self.log_range, &mut noisy, deadline);
            let Some(found) = found.await.map_err(|error| Error::internal(SEARCHING, error))? else {
                break;
            };
            let unexplained = self
                .find_unexplained_outflows(&wallets, found.outflows, block, deadline)
                .await?;
            let Some(unexplained) = unexplained else {
                break;
            };
            for item in &unexplained {
                self.report_outflow(item).await?;
            }
            for item in &found.unsearched {
                log_unsearched_blocks(&wallets, item);
            }
            self.ledger.save_outflow_checkpoint(part, found.last).await?;
            first = found.last.saturating_add(1);
        }
        if first <= deep {
            let behind = deep.saturating_sub(first).saturating_add(1);
            tracing::warn!(behind, "outflows.behind");
        }
        Ok(())
    }

    /// Reads the wallets of this share. Unreadable rows are logged and skipped.
    async fn read_wallets(&self, part: WalletPart) -> Result<BTreeMap<Address, AgentId>> {
        let mut wallets = BTreeMap::new();
        for wallet in self.ledger.read_wallets(part).await? {
            match wallet {
                Ok((address, agent)) => {
                    wallets.insert(address, agent);
                }
                Err(error) => tracing::error!(cause = %error, "outflows.failed"),
            }
        }
        Ok(wallets)
    }

    /// Returns the outflows that belong to no settlement, or `None` if time ran out.
    async fn find_unexplained_outflows(
        self: &Arc<Self>,
        wallets: &BTreeMap<Address, AgentId>,
        outflows: Vec<Outflow>,
        block: &FinalBlock,
        deadline: Instant,
    ) -> Result<Option<Vec<UnexplainedOutflow>>> {
        let claimed = self.read_claims_in_outflow_blocks(&outflows).await?;
        let mut left: BTreeMap<AgentId, Vec<UnexplainedOutflow>> = BTreeMap::new();
        let mut times = HashMap::new();
        for outflow in outflows {
            let Some(agent) = wallets.get(&outflow.wallet).copied() else {
                continue;
            };
            let claim = outflow.nonce.map(|nonce| (agent, nonce, outflow.tx_hash));
            if claim.is_some_and(|claim| claimed.contains(&claim)) {
                continue;
            }
            let at = self.outflow_time(&outflow, &mut times).await?;
            left.entry(agent)
                .or_default()
                .push(UnexplainedOutflow { agent, outflow, at });
        }
        let mut unexplained = Vec::new();
        for (agent, mut of_agent) in left {
            let Some(explained) = self
                .find_settlement_outflow_nonces(agent, &of_agent, block, deadline)
                .await?
            else {
                return Ok(None);
            };
            of_agent.retain(|item| item.outflow.nonce.is_none_or(|nonce| !explained.contains(&nonce)));
            unexplained.append(&mut of_agent);
        }
        Ok(Some(unexplained))
    }

    /// Reads the claims on transactions in the outflows' blocks, as agent, nonce and transaction.
    async fn read_claims_in_outflow_blocks(
        self: &Arc<Self>,
        outflows: &[Outflow],
    ) -> Result<HashSet<(AgentId, B256, TxHash)>> {
        let blocks: BTreeSet<u64> = outflows.iter().map(|outflow| outflow.block.number).collect();
        let count = blocks.len();
        let reads = blocks.into_iter().map(|number| {
            let shared = Arc::clone(self);
            async move { shared.ledger.read_claims_in_block(shared.network, number).await }
        });
        let mut claimed = HashSet::new();
        for of_block in run_concurrently(MAX_CONCURRENT_BLOCKS, count, reads).await? {
            let claims = of_block?.into_iter();
            claimed.extend(claims.map(|claim| {
                let nonce = self.nonce_key.derive_nonce(claim.settlement);
                (claim.agent, nonce, claim.tx_hash)
            }));
        }
        Ok(claimed)
    }

    /// Returns the time of an outflow's block. Fails if another block replaced the block.
    async fn outflow_time(
        &self,
        outflow: &Outflow,
        blocks_by_number: &mut HashMap<u64, FinalBlock>,
    ) -> Result<Timestamp> {
        let number = outflow.block.number;
        let header = if let Some(header) = blocks_by_number.get(&number) {
            *header
        } else {
            let header = self.chain.read_header(number).await;
            let header = header.map_err(|error| Error::internal(SEARCHING, error))?;
            header.ok_or_else(|| Error::internal(SEARCHING, "the node has no header of a block with logs"))?
        };
        blocks_by_number.insert(number, header);
        if header.hash != outflow.block.hash {
            return Err(Error::internal(
                SEARCHING,
                "the node's header and log have different block hashes",
            ));
        }
        Ok(header.at)
    }

    /// Returns the nonces of the outflows that pay settlements of this agent, or `None` if time ran out.
    async fn find_settlement_outflow_nonces(
        self: &Arc<Self>,
        agent: AgentId,
        outflows: &[UnexplainedOutflow],
        block: &FinalBlock,
        deadline: Instant,
    ) -> Result<Option<HashSet<B256>>> {
        let outflows_by_nonce: HashMap<B256, &Outflow> = outflows
            .iter()
            .filter_map(|item| Some((item.outflow.nonce?, &item.outflow)))
            .collect();
        let times = || {
            outflows
                .iter()
                .filter(|item| item.outflow.nonce.is_some())
                .map(|item| item.at)
        };
        let mut explained = HashSet::new();
        let (Some(earliest), Some(latest)) = (times().min(), times().max()) else {
            return Ok(Some(explained));
        };
        let span = (earliest.before(MAX_HOLD_AGE), latest.after(MAX_CLOCK_SKEW));
        let (mut released, mut before) = (Vec::new(), None);
        loop {
            if Instant::now() > deadline {
                return Ok(None);
            }
            let (page, next) = self.ledger.read_settlements_between(agent, span, before).await?;
            for settlement in page {
                let settlement = settlement?;
                match self.find_settlement_payment(&settlement, &outflows_by_nonce) {
                    Some(Pays::Surely(nonce)) => {
                        explained.insert(nonce);
                        if settlement.state == SettlementState::Expired {
                            released.push(settlement);
                        }
                    }
                    // The nonce was derived with another key, so the chain proves nothing about the settlement.
                    Some(Pays::ByAnotherKey(nonce)) => {
                        explained.insert(nonce);
                        tracing::error!(settlement.id = %settlement.id(), reason = "nonce_key_changed", "outflows.failed");
                    }
                    None => {}
                }
            }
            before = next;
            if before.is_none() || explained.len() == outflows_by_nonce.len() {
                break;
            }
        }
        // These settlements expired and the amounts were released, but the chain has the payments. The
        // reconciliation confirms the settlements and counts the amounts again.
        let reconciled = self.reconcile_settlements(released, block, Cause::Due, deadline).await;
        if reconciled.iter().any(ReconciledSettlement::has_failed) {
            return Err(Error::internal(
                SEARCHING,
                "a payment of a released settlement could not be confirmed",
            ));
        }
        Ok(Some(explained))
    }

    /// Finds the settlement's payment among the outflows, by nonce, payee and amount.
    fn find_settlement_payment(
        &self,
        settlement: &Settlement,
        outflows_by_nonce: &HashMap<B256, &Outflow>,
    ) -> Option<Pays> {
        let terms = &settlement.terms;
        let is_it = |nonce: B256, outflow: &Outflow| outflow.matches_transfer(&ExpectedTransfer::new(terms, nonce));
        if let Ok(nonce) = self.nonce_key.derive_existing_nonce(terms.id, terms.nonce_prefix) {
            return is_it(nonce, outflows_by_nonce.get(&nonce)?).then_some(Pays::Surely(nonce));
        }
        let mut begins = outflows_by_nonce
            .iter()
            .filter(|(nonce, _)| NoncePrefix::from_nonce(**nonce) == terms.nonce_prefix);
        let found = begins.find(|(nonce, outflow)| is_it(**nonce, outflow));
        found.map(|(nonce, _)| Pays::ByAnotherKey(*nonce))
    }

    /// Reports an outflow unless the audit row exists. A run that is killed before the write logs the outflow again.
    async fn report_outflow(&self, unexplained_outflow: &UnexplainedOutflow) -> Result<()> {
        let UnexplainedOutflow { agent, outflow, at } = unexplained_outflow;
        let record = outflow.audit_record(*agent, *at);
        if self.audit.has_row(&record.actor, record.id).await? {
            return Ok(());
        }
        let owner = self.ledger.read_agent_by_id(*agent).await?;
        let owner = owner.and_then(|agent| UserId::parse(&agent.owner));
        tracing::warn!(
            agent.id = %agent,
            wallet = %outflow.wallet,
            pay_to = %outflow.to,
            amount_units = %outflow.units,
            tx.hash = %outflow.tx_hash,
            log.index = outflow.log_index,
            block = outflow.block.number,
            "outflow.unexplained"
        );
        let entry = self.audit.new_entry(&record).with_copy_for_user(owner.as_ref());
        self.audit.add_entry_if_absent(&entry).await
    }
}

/// Logs the blocks that were skipped because the node does not return all logs of a wallet.
fn log_unsearched_blocks(wallets: &BTreeMap<Address, AgentId>, blocks: &UnsearchedBlocks) {
    let UnsearchedBlocks { wallet, first, last } = blocks;
    tracing::error!(
        agent.id = wallets.get(wallet).map(tracing::field::display),
        wallet = %wallet,
        first_block = first,
        last_block = last,
        "outflows.unsearched"
    );
}
