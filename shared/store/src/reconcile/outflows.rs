//! Data of the search for outflows (transfers out of wallets): all wallets, and the last searched block of each group
//! of wallets. The key of a checkpoint includes the number of groups, so that the number may change.

use crate::{
    codec::attribute::Item,
    codec::item::Draft,
    codec::key::{self, CHECKPOINTS, Key, OUTFLOW_CHECKPOINTS, WALLET_SHARDS},
    codec::ledger::Ledger,
    codec::table::{Query, put_item},
};
use purser_domain::{Address, AgentId, Result, Settlement, SettlementId, Timestamp};
use std::collections::BTreeSet;

/// One of the equal groups into which all wallets are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalletPart {
    /// The index of this group of wallets, from 0.
    pub index: u8,
    /// The number of groups into which all wallets are divided. Must be a divisor of [`crate::PARTITIONS`].
    pub of: u8,
}

impl WalletPart {
    fn contains(self, agent: AgentId) -> bool {
        key::wallet_shard_digit(agent).checked_rem(self.of) == Some(self.index)
    }

    fn contains_part(self, other: Self) -> bool {
        other.of.checked_rem(self.of) == Some(0) && other.index.checked_rem(self.of) == Some(self.index)
    }
}

impl Ledger {
    /// Reads the wallets in a group with their agents, strongly consistent. An unreadable row is returned as an error.
    pub async fn read_wallets(&self, part: WalletPart) -> Result<Vec<Result<(Address, AgentId)>>> {
        let shards = (0..crate::PARTITIONS).filter(|digit| digit.checked_rem(part.of) == Some(part.index));
        let shards: BTreeSet<u8> = shards.map(|digit| digit % WALLET_SHARDS).collect();
        let mut wallets = Vec::new();
        for shard in shards {
            let items = Query::new(&self.db, &self.table, key::wallet_partition(shard))
                .consistent()
                .collect("listing wallets")
                .await?;
            let read = items.iter().map(|item| self.read_wallet_item(item));
            wallets.extend(read.filter(|read| read.as_ref().map_or(true, |(_, agent)| part.contains(*agent))));
        }
        Ok(wallets)
    }

    fn read_wallet_item(&self, item: &Item) -> Result<(Address, AgentId)> {
        let row = self.item_row(item);
        let agent = AgentId::parse(key::sort_key_text(item)).ok_or_else(|| row.corrupt_error("sk"))?;
        Ok((row.get("address")?, agent))
    }

    /// Reads the last block up to which the wallets in the group `part` were searched for outflows; `None` before the
    /// first search. After a change of the number of groups, some blocks are searched again.
    pub async fn read_outflow_checkpoint(&self, part: WalletPart) -> Result<Option<u64>> {
        let response = Query::new(&self.db, &self.table, CHECKPOINTS)
            .prefix(OUTFLOW_CHECKPOINTS)
            .consistent()
            .send("reading outflow checkpoints")
            .await?;
        let (mut own, mut lowest): (Option<u64>, Option<u64>) = (None, None);
        for item in response.items() {
            let row = self.item_row(item);
            let (index, of) =
                key::parse_outflow_checkpoint(key::sort_key_text(item)).ok_or_else(|| row.corrupt_error("sk"))?;
            let place: u64 = row.get("blk")?;
            lowest = Some(lowest.map_or(place, |lowest| lowest.min(place)));
            if (WalletPart { index, of }).contains_part(part) {
                own = own.max(Some(place));
            }
        }
        Ok(own.or(lowest))
    }

    /// Stores the last block up to which the wallets in the group were searched. The last of concurrent writes wins.
    pub async fn save_outflow_checkpoint(&self, part: WalletPart, block: u64) -> Result<()> {
        let row = Draft::new(&Key::outflow_checkpoint(part.index, part.of)).with("blk", &block);
        put_item(&self.db, &self.table, row.into_item(), "writing an outflow checkpoint").await
    }

    /// Reads a page of an agent's settlements that were authorized from `from` to `to`, newest first, and the cursor of
    /// the next page. The read is eventually consistent, which is sufficient because the payments are not recent.
    pub async fn read_settlements_between(
        &self,
        agent: AgentId,
        (from, to): (Timestamp, Timestamp),
        before: Option<SettlementId>,
    ) -> Result<(Vec<Result<Settlement>>, Option<SettlementId>)> {
        let query = Query::new(&self.db, &self.table, key::settlement_partition(agent))
            .range(
                SettlementId::new_at(from, [0; 8]).to_string(),
                SettlementId::new_at(to, [0xff; 8]).to_string(),
            )
            .start_after(before.map(|id| Key::settlement(agent, id).attributes()))
            .descending();
        let response = query.send("reading settlements").await?;
        let settlements = response.items().iter().map(|item| self.read_settlement_item(item));
        let next = response.last_evaluated_key();
        let next = next.and_then(|item| SettlementId::parse(key::sort_key_text(item)));
        Ok((settlements.collect(), next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(index: u8, of: u8) -> WalletPart {
        WalletPart { index, of }
    }

    #[test]
    fn wallets_are_divided_into_groups_of_equal_size() {
        let agents = (0..256_u128).map(|n| AgentId::from_uuid(uuid::Uuid::from_u128(n)));
        let agents: Vec<AgentId> = agents.collect();
        let of = |part: WalletPart| agents.iter().filter(|agent| part.contains(**agent)).count();
        let parts = [1, 2, 4, 8, 16].map(|of| (0..of).map(move |index| part(index, of)));
        let parts: Vec<WalletPart> = parts.into_iter().flatten().collect();
        for one in &parts {
            assert_eq!(of(*one), 256 / usize::from(one.of), "{one:?}");
            for other in &parts {
                let within = agents
                    .iter()
                    .all(|agent| !other.contains(*agent) || one.contains(*agent));
                assert_eq!(one.contains_part(*other), within, "{one:?} {other:?}");
            }
        }
    }
}
