//! Transfers out of the agents' wallets that no settlement explains: somebody else signs with their keys.
//!
//! The transfers of all wallets are searched at once, block by block, at the depth of the watch. By then a payment in
//! the block is usually confirmed, and a claim explains it by its settlement's nonce. A held payment is found among
//! its agent's settlements of that time.
//!
//! Invariants: the position advances only after all earlier transfers were explained or reported, so no block is left
//! out however a run ends. A reported outflow is stored, so it is reported once. A settlement that explains an outflow
//! has its nonce, payee and amount, or was proven to be its payment when it was confirmed. Blocks in which a wallet
//! has more logs than the node returns are logged as errors and skipped, so that one wallet's flood does not stop the
//! search for all others.

use crate::{
    Shared,
    batch::{Cause, Reconciled},
    watch::all,
};
use purser_chain::Unsearched;
use purser_domain::{
    Address, AgentId, B256, Duration, Error, Expected, FinalBlock, NoncePrefix, Outflow, PersonId, Result, Settlement,
    SettlementState, Timestamp, TxHash,
};
use purser_store::WalletPart;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};
use tokio::time::Instant;

const SEARCHING: &str = "searching for outflows";
/// The number of blocks whose claims are read concurrently.
const BLOCKS_AT_ONCE: usize = 32;
/// The longest time between a settlement's authorization and the block of its payment: the longest validity, plus
/// clock skew.
const LONGEST_HELD: Duration = Duration::from_secs_u32(3_600 + 3_600);
/// The longest time by which an authorization may follow its payment's block, by a clock that is ahead.
const CLOCKS_APART: Duration = Duration::from_secs_u32(3_600);

/// An outflow, the agent whose wallet it left, and the time of its block.
struct Unexplained {
    agent: AgentId,
    outflow: Outflow,
    at: Timestamp,
}

/// How the nonce of an outflow matches a settlement.
enum Pays {
    /// It is the settlement's nonce.
    Surely(B256),
    /// The settlement's nonce was derived with another key; this nonce has its start, payee and amount.
    ByAnotherKey(B256),
}

impl Shared {
    /// Compares transfers out of this part of the wallets, in the blocks that have become deep, with the settlements.
    pub(crate) async fn outflows(self: &Arc<Self>, part: WalletPart, block: &FinalBlock, until: Instant) -> Result<()> {
        // The depth of the watch (`watch.rs`).
        let below = self.watch.saturating_sub(self.confirmations);
        let Some(deep) = block.number.checked_sub(below) else {
            return Ok(());
        };
        if Instant::now() > until {
            return Ok(());
        }
        let Some(place) = self.ledger.outflow_place(part).await? else {
            // A stack's first run comes within a minute of its deployment.
            return self.ledger.save_outflow_place(part, deep).await;
        };
        let mut first = place.saturating_add(1);
        if first > deep {
            return Ok(());
        }
        // Read after the final block: a wallet that is missing had no key when the last of these blocks was made.
        let wallets = self.wallets(part).await?;
        let addresses: Vec<Address> = wallets.keys().copied().collect();
        let mut noisy = BTreeSet::new();
        while first <= deep {
            let blocks = (first, deep);
            let found = self
                .chain
                .outflows(&addresses, blocks, self.log_range, &mut noisy, until);
            let Some(found) = found.await.map_err(|error| Error::internal(SEARCHING, error))? else {
                break;
            };
            let unexplained = self.unexplained(&wallets, found.outflows, block, until).await?;
            let Some(unexplained) = unexplained else {
                break;
            };
            for one in &unexplained {
                self.tell(one).await?;
            }
            for one in &found.unsearched {
                log_unsearched(&wallets, one);
            }
            self.ledger.save_outflow_place(part, found.last).await?;
            first = found.last.saturating_add(1);
        }
        if first <= deep {
            let behind = deep.saturating_sub(first).saturating_add(1);
            tracing::warn!(behind, "outflows.behind");
        }
        Ok(())
    }

    /// The wallets of this part. Unreadable rows are reported and skipped.
    async fn wallets(&self, part: WalletPart) -> Result<BTreeMap<Address, AgentId>> {
        let mut wallets = BTreeMap::new();
        for wallet in self.ledger.wallets(part).await? {
            match wallet {
                Ok((address, agent)) => {
                    wallets.insert(address, agent);
                }
                Err(error) => tracing::error!(cause = %error, "outflows.failed"),
            }
        }
        Ok(wallets)
    }

    /// The outflows that no settlement explains; `None` if time ran out.
    async fn unexplained(
        self: &Arc<Self>,
        wallets: &BTreeMap<Address, AgentId>,
        outflows: Vec<Outflow>,
        block: &FinalBlock,
        until: Instant,
    ) -> Result<Option<Vec<Unexplained>>> {
        let claimed = self.claimed(&outflows).await?;
        let mut left: BTreeMap<AgentId, Vec<Unexplained>> = BTreeMap::new();
        let mut times = HashMap::new();
        for outflow in outflows {
            let Some(agent) = wallets.get(&outflow.wallet).copied() else {
                continue;
            };
            let claim = outflow.nonce.map(|nonce| (agent, nonce, outflow.tx_hash));
            if claim.is_some_and(|claim| claimed.contains(&claim)) {
                continue;
            }
            let at = self.time_of(&outflow, &mut times).await?;
            left.entry(agent).or_default().push(Unexplained { agent, outflow, at });
        }
        let mut unexplained = Vec::new();
        for (agent, mut of_agent) in left {
            let Some(explained) = self.explained(agent, &of_agent, block, until).await? else {
                return Ok(None);
            };
            of_agent.retain(|one| one.outflow.nonce.is_none_or(|nonce| !explained.contains(&nonce)));
            unexplained.append(&mut of_agent);
        }
        Ok(Some(unexplained))
    }

    /// The payments that settlements claim in these blocks, by agent, nonce and transaction.
    async fn claimed(self: &Arc<Self>, outflows: &[Outflow]) -> Result<HashSet<(AgentId, B256, TxHash)>> {
        let blocks: BTreeSet<u64> = outflows.iter().map(|outflow| outflow.block.number).collect();
        let count = blocks.len();
        let reads = blocks.into_iter().map(|number| {
            let shared = Arc::clone(self);
            async move { shared.ledger.claims_in(shared.network, number).await }
        });
        let mut claimed = HashSet::new();
        for of_block in all(BLOCKS_AT_ONCE, count, reads).await? {
            let claims = of_block?.into_iter();
            claimed.extend(claims.map(|claim| {
                let nonce = self.nonce_key.nonce(claim.settlement);
                (claim.agent, nonce, claim.tx_hash)
            }));
        }
        Ok(claimed)
    }

    /// The time of an outflow's block, which must still be on the chain.
    async fn time_of(&self, outflow: &Outflow, times: &mut HashMap<u64, FinalBlock>) -> Result<Timestamp> {
        let number = outflow.block.number;
        let header = if let Some(header) = times.get(&number) {
            *header
        } else {
            let header = self.chain.header(number).await;
            let header = header.map_err(|error| Error::internal(SEARCHING, error))?;
            header.ok_or_else(|| Error::internal(SEARCHING, "the node does not have a block with logs"))?
        };
        times.insert(number, header);
        if header.hash != outflow.block.hash {
            return Err(Error::internal(SEARCHING, "the node's blocks and logs do not agree"));
        }
        Ok(header.at)
    }

    /// The nonces that are payments of the agent's settlements; `None` if time ran out.
    async fn explained(
        self: &Arc<Self>,
        agent: AgentId,
        outflows: &[Unexplained],
        block: &FinalBlock,
        until: Instant,
    ) -> Result<Option<HashSet<B256>>> {
        let of_nonce: HashMap<B256, &Outflow> = outflows
            .iter()
            .filter_map(|one| Some((one.outflow.nonce?, &one.outflow)))
            .collect();
        let times = || {
            outflows
                .iter()
                .filter(|one| one.outflow.nonce.is_some())
                .map(|one| one.at)
        };
        let mut explained = HashSet::new();
        let (Some(earliest), Some(latest)) = (times().min(), times().max()) else {
            return Ok(Some(explained));
        };
        let span = (earliest.before(LONGEST_HELD), latest.after(CLOCKS_APART));
        let (mut released, mut before) = (Vec::new(), None);
        loop {
            if Instant::now() > until {
                return Ok(None);
            }
            let (page, next) = self.ledger.settlements_between(agent, span, before).await?;
            for settlement in page {
                let settlement = settlement?;
                match self.pays(&settlement, &of_nonce) {
                    Some(Pays::Surely(nonce)) => {
                        explained.insert(nonce);
                        if settlement.state == SettlementState::Expired {
                            released.push(settlement);
                        }
                    }
                    // As for every settlement whose nonce can't be derived (`batch.rs`), nothing is concluded.
                    Some(Pays::ByAnotherKey(nonce)) => {
                        explained.insert(nonce);
                        tracing::error!(settlement.id = %settlement.id(), reason = "nonce_key_changed", "outflows.failed");
                    }
                    None => {}
                }
            }
            before = next;
            if before.is_none() || explained.len() == of_nonce.len() {
                break;
            }
        }
        // A payment that is found after its release counts again.
        let reconciled = self.reconcile(released, block, Cause::Due, until).await;
        if reconciled.iter().any(Reconciled::has_failed) {
            return Err(Error::internal(
                SEARCHING,
                "a payment that turned up could not be confirmed",
            ));
        }
        Ok(Some(explained))
    }

    /// The settlement's payment among these outflows. If its nonce was derived with another key, the payment is the
    /// outflow whose nonce has the stored start.
    fn pays(&self, settlement: &Settlement, of_nonce: &HashMap<B256, &Outflow>) -> Option<Pays> {
        let terms = &settlement.terms;
        let is_it = |nonce: B256, outflow: &Outflow| outflow.is_of(&Expected::of(terms, nonce));
        if let Ok(nonce) = self.nonce_key.nonce_again(terms.id, terms.nonce_prefix) {
            return is_it(nonce, of_nonce.get(&nonce)?).then_some(Pays::Surely(nonce));
        }
        let mut begins = of_nonce
            .iter()
            .filter(|(nonce, _)| NoncePrefix::of(**nonce) == terms.nonce_prefix);
        let found = begins.find(|(nonce, outflow)| is_it(**nonce, outflow));
        found.map(|(nonce, _)| Pays::ByAnotherKey(*nonce))
    }

    /// Reports the outflow, unless its row exists. The log line precedes the row: a run that is killed in between
    /// reports it a second time.
    async fn tell(&self, unexplained: &Unexplained) -> Result<()> {
        let Unexplained { agent, outflow, at } = unexplained;
        let record = outflow.audit_record(*agent, *at);
        if self.audit.has(&record.actor, record.id).await? {
            return Ok(());
        }
        let owner = self.ledger.agent(*agent).await?;
        let owner = owner.and_then(|agent| PersonId::parse(&agent.owner));
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
        let entry = self.audit.entry(&record).telling(owner.as_ref());
        self.audit.add_found(&entry).await
    }
}

/// Logs blocks that were skipped because the node does not return all of the wallet's logs in them.
fn log_unsearched(wallets: &BTreeMap<Address, AgentId>, unsearched: &Unsearched) {
    let Unsearched { wallet, first, last } = unsearched;
    tracing::error!(
        agent.id = wallets.get(wallet).map(tracing::field::display),
        wallet = %wallet,
        first_block = first,
        last_block = last,
        "outflows.unsearched"
    );
}
