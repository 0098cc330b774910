//! Whether the balance of each wallet is low. A row is rewritten only when this changes, so that the table's stream
//! reports only changes (`stream/wallets.rs`).

use crate::{
    codec::attribute::{Attribute as _, Item},
    codec::fields::fields,
    codec::item::Draft,
    codec::key::{self, Key, WALLET_SHARDS},
    codec::ledger::Ledger,
    codec::table::{Query, put_item, put_request},
    transact::was_applied,
};
use purser_domain::{AgentId, Result, WalletLevel};

impl Ledger {
    /// Reads which wallet balances are low, strongly consistent. An unreadable row is returned as an error.
    pub async fn read_wallet_levels(&self) -> Result<Vec<Result<(AgentId, WalletLevel)>>> {
        let mut levels = Vec::new();
        for shard in 0..WALLET_SHARDS {
            let items = Query::new(&self.db, &self.table, key::wallet_level_partition(shard))
                .consistent()
                .collect("listing wallet levels")
                .await?;
            levels.extend(items.iter().map(|item| self.read_wallet_level_item(item)));
        }
        Ok(levels)
    }

    /// Stores whether the balance of an agent's wallet is low. Returns `false` if the stored level is not `before`.
    pub async fn put_wallet_level_if_unchanged(
        &self,
        agent: AgentId,
        before: Option<&WalletLevel>,
        level: &WalletLevel,
    ) -> Result<bool> {
        let put = put_request(&self.db, &self.table, write_wallet_level(agent, level));
        let put = match before {
            None => put.condition_expression("attribute_not_exists(pk)"),
            Some(before) => put
                .condition_expression("blk = :block")
                .expression_attribute_values(":block", before.block.write()),
        };
        was_applied(put.send().await, "storing a wallet level")
    }

    pub(crate) fn read_wallet_level_item(&self, item: &Item) -> Result<(AgentId, WalletLevel)> {
        let row = self.item_row(item);
        let agent = AgentId::parse(key::sort_key_text(item)).ok_or_else(|| row.corrupt_error("sk"))?;
        Ok((agent, row.read()?))
    }

    /// Reads the agent whose wallet an interrupted run has checked last; `None` if the last run was complete.
    pub async fn read_wallet_level_checkpoint(&self) -> Result<Option<AgentId>> {
        let Some(item) = self.get_item(&Key::wallet_level_checkpoint()).await? else {
            return Ok(None);
        };
        self.item_row(&item).get_optional("agent")
    }

    /// Stores the agent whose wallet was checked last. The last of concurrent writes wins.
    pub async fn save_wallet_level_checkpoint(&self, checkpoint: Option<AgentId>) -> Result<()> {
        let row = Draft::new(&Key::wallet_level_checkpoint()).with_optional("agent", checkpoint.as_ref());
        put_item(
            &self.db,
            &self.table,
            row.into_item(),
            "writing the checkpoint of the wallet check",
        )
        .await
    }
}

fields! {
    WalletLevel { is_low: "low", balance: "amt", below: "below", block: "blk", at: "t", network: "net" }
}

pub(crate) fn write_wallet_level(agent: AgentId, level: &WalletLevel) -> Item {
    Draft::new(&Key::wallet_level(agent)).with_fields(level).into_item()
}
