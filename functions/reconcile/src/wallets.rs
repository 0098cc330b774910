//! Finds wallets that became low or recovered, by comparing each balance in the final block with the stored level.
//!
//! Invariant: a wallet keeps its level if the node can't read its balance, or if two endpoints disagree about the
//! balance.

use crate::Inner;
use purser_domain::{Address, AgentId, Error, FinalBlock, Result, WalletLevel};
use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
};
use tokio::time::Instant;

/// The number of balances that are read before changes are written.
const BATCH_SIZE: usize = 500;

/// A change of a wallet's level from `before` to `level`. The level records whether the balance is low.
struct LevelChange {
    agent: AgentId,
    wallet: Address,
    before: Option<WalletLevel>,
    level: WalletLevel,
}

impl Inner {
    pub(crate) async fn check_all_wallet_levels(&self, deadline: Instant) -> Result<()> {
        if self.low_wallet.is_zero() {
            return Ok(());
        }
        let block = self.chain.read_final_block().await;
        let block = block.map_err(|error| Error::internal("reading the final block", error))?;
        let cursor = self.ledger.read_wallet_level_checkpoint().await?;
        let wallets = self.read_all_wallets().await?;
        let levels = self.read_all_wallet_levels().await?;
        let after = cursor.map_or(Bound::Unbounded, Bound::Excluded);
        let wallets: Vec<(AgentId, Address)> = wallets
            .range((after, Bound::Unbounded))
            .map(|(agent, wallet)| (*agent, *wallet))
            .collect();
        let (mut unknown, mut cut_off) = (0_usize, None);
        for some in wallets.chunks(BATCH_SIZE) {
            if Instant::now() > deadline {
                break;
            }
            unknown = unknown.saturating_add(
                self.update_levels_and_count_unknown(some, &levels, &block, deadline)
                    .await?,
            );
            cut_off = some.last().map(|(agent, _)| *agent);
        }
        let is_complete = cut_off == wallets.last().map(|(agent, _)| *agent);
        tracing::info!(wallets = wallets.len(), unknown, complete = is_complete, "wallets.run");
        let next = if is_complete { None } else { cut_off.or(cursor) };
        if next == cursor {
            return Ok(());
        }
        self.ledger.save_wallet_level_checkpoint(next).await
    }

    /// Stores the new level of each wallet that became low or recovered. Returns the number of unreadable balances.
    async fn update_levels_and_count_unknown(
        &self,
        wallets: &[(AgentId, Address)],
        levels: &HashMap<AgentId, WalletLevel>,
        block: &FinalBlock,
        deadline: Instant,
    ) -> Result<usize> {
        let addresses: Vec<Address> = wallets.iter().map(|(_, wallet)| *wallet).collect();
        let balances = self.chain.read_balances(&addresses, block, deadline).await;
        let unknown = balances.iter().filter(|balance| balance.is_none()).count();
        let mut changed = Vec::new();
        for ((agent, wallet), balance) in wallets.iter().zip(balances) {
            let before = levels.get(agent).copied();
            let next =
                |balance| WalletLevel::next_level(before.as_ref(), balance, self.low_wallet, block, self.network);
            if let Some(level) = balance.and_then(next) {
                changed.push(LevelChange {
                    agent: *agent,
                    wallet: *wallet,
                    before,
                    level,
                });
            }
        }
        for item in self.find_confirmed_level_changes(changed, block, deadline).await {
            let LevelChange {
                agent, before, level, ..
            } = item;
            // If the row has changed, a concurrent run has stored and logged the change.
            if self
                .ledger
                .put_wallet_level_if_unchanged(agent, before.as_ref(), &level)
                .await?
            {
                tracing::info!(agent.id = %agent, low = level.is_low, balance_units = %level.balance, "wallet.changed");
            }
        }
        Ok(unknown)
    }

    /// Returns the level changes that the balances from every endpoint of the node confirm.
    async fn find_confirmed_level_changes(
        &self,
        mut changes: Vec<LevelChange>,
        block: &FinalBlock,
        deadline: Instant,
    ) -> Vec<LevelChange> {
        let witnesses = self.chain.chains_per_endpoint();
        if witnesses.len() < 2 {
            return changes;
        }
        for witness in witnesses {
            let addresses: Vec<Address> = changes.iter().map(|item| item.wallet).collect();
            let balances = witness.read_balances(&addresses, block, deadline).await;
            let says_the_same = |(item, balance): (LevelChange, Option<_>)| {
                let result =
                    WalletLevel::next_level(item.before.as_ref(), balance?, self.low_wallet, block, self.network);
                (result.map(|result| result.is_low) == Some(item.level.is_low)).then_some(item)
            };
            changes = changes.into_iter().zip(balances).filter_map(says_the_same).collect();
        }
        changes
    }

    async fn read_all_wallets(&self) -> Result<BTreeMap<AgentId, Address>> {
        let mut wallets = BTreeMap::new();
        for wallet in self.ledger.read_wallets(crate::Part::WHOLE.wallet_shard()).await? {
            match wallet {
                Ok((address, agent)) => {
                    wallets.insert(agent, address);
                }
                Err(error) => tracing::error!(cause = %error, "wallets.failed"),
            }
        }
        Ok(wallets)
    }

    /// Reads each wallet's stored level. Leaves out unreadable rows, which later writes do not overwrite.
    async fn read_all_wallet_levels(&self) -> Result<HashMap<AgentId, WalletLevel>> {
        let mut levels = HashMap::new();
        for level in self.ledger.read_wallet_levels().await? {
            match level {
                Ok((agent, level)) => {
                    levels.insert(agent, level);
                }
                Err(error) => tracing::error!(cause = %error, "wallets.failed"),
            }
        }
        Ok(levels)
    }
}
