//! Wallet levels: whether a wallet's balance is low. A wallet gets a row when its balance is first above zero. The row
//! is rewritten only when the balance becomes low or is no longer low. When a balance has become low, the table's
//! stream leads to an event (`stream/wallets.rs`).

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
    /// Reads all stored levels, strongly consistent. Takes four queries, and one read unit per 4 KB, which is some
    /// forty wallets. An unreadable row is returned as an error and does not affect the others.
    pub async fn read_wallet_levels(&self) -> Result<Vec<Result<(AgentId, WalletLevel)>>> {
        let mut levels = Vec::new();
        for shard in 0..WALLET_SHARDS {
            let items = Query::new(&self.db, &self.table, key::wallet_level_partition(shard))
                .consistent()
                .collect("listing wallets' levels")
                .await?;
            levels.extend(items.iter().map(|item| self.read_wallet_level_item(item)));
        }
        Ok(levels)
    }

    /// Stores the level of an agent's wallet, that is, whether the balance is low. Stores nothing if the stored level
    /// differs from `before`. Returns whether the level was stored.
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
        was_applied(put.send().await, "keeping a wallet's level")
    }

    /// Decodes the agent and the level in a row.
    pub(crate) fn read_wallet_level_item(&self, item: &Item) -> Result<(AgentId, WalletLevel)> {
        let row = self.item_row(item);
        let agent = AgentId::parse(key::sort_key_text(item)).ok_or_else(|| row.corrupt_error("sk"))?;
        Ok((agent, row.read()?))
    }

    /// Reads the checkpoint of an interrupted run: the agent whose wallet was checked last, strongly consistent.
    /// Returns `None` if the last run was complete.
    pub async fn read_wallet_level_checkpoint(&self) -> Result<Option<AgentId>> {
        let Some(item) = self.get_item(&Key::wallet_level_checkpoint()).await? else {
            return Ok(None);
        };
        self.item_row(&item).get_optional("agent")
    }

    /// Stores the checkpoint. If concurrent runs write different checkpoints, the last write wins, and some wallets may
    /// be checked twice or an hour later.
    pub async fn save_wallet_level_checkpoint(&self, checkpoint: Option<AgentId>) -> Result<()> {
        let row = Draft::new(&Key::wallet_level_checkpoint()).with_optional("agent", checkpoint.as_ref());
        put_item(
            &self.db,
            &self.table,
            row.into_item(),
            "writing the position of the wallets' check",
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
