//! Reads the newest final block, reads a block by number, and checks whether a block is final.

use crate::{
    Chain, ChainError,
    rpc::{Quantity, WireHeader},
    view::{ANCESTORS, Ancestor, MAX},
};
use alloy::primitives::B256;
use purser_domain::{BlockId, FinalBlock, Timestamp};
use serde_json::json;

const METHOD: &str = "eth_getBlockByNumber";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The block is on the canonical chain, and final.
    Final,
    NotFinal {
        /// The number of confirmations that are missing.
        missing: u64,
    },
    /// The chain now has another block with the same number.
    Replaced,
}

impl Chain {
    /// Reads the newest final block, and verifies the node's chain id.
    pub async fn read_final_block(&self) -> Result<FinalBlock, ChainError> {
        let (right, last) = tokio::join!(self.verify_chain_id(), self.read_final_number_and_hash());
        right?;
        let (number, hash) = last?;
        let malformed = |what| ChainError::Malformed { method: METHOD, what };
        let block = self.read_header(number).await?;
        let block = block.ok_or_else(|| malformed("no header of a block below the newest block"))?;
        if hash.is_some_and(|hash| hash != block.hash) {
            return Err(malformed("a block that is not an ancestor of the newest block"));
        }
        Ok(block)
    }

    /// Reads the number of the newest final block, and the hash if the EVM can return that hash ([`ANCESTORS`]).
    async fn read_final_number_and_hash(&self) -> Result<(u64, Option<B256>), ChainError> {
        // A block at depth `confirmations` is final. The newest block has depth 1.
        let below = self.finality.confirmations.saturating_sub(1);
        if !(1..=ANCESTORS).contains(&below) {
            return Ok((self.read_head_number().await?.saturating_sub(below), None));
        }
        let view = self
            .read_ancestor_hashes(&[Ancestor::Below(below)], json!("latest"))
            .await?;
        // On a chain with fewer blocks than the required depth, the first block is final, because every fork contains
        // it.
        let hash = view.ancestors.first().copied().flatten();
        Ok((view.number.saturating_sub(below), hash))
    }

    /// Determines whether `block` is final, usually in one call.
    pub(crate) async fn read_block_finality(&self, block: BlockId) -> Result<Standing, ChainError> {
        if self.finality.confirmations == 1 {
            return self.read_block_finality_by_number(block).await;
        }
        let view = self
            .read_ancestor_hashes(&[Ancestor::Number(block.number)], json!("latest"))
            .await?;
        // `None` if this node is behind the node that returned the block.
        let above = view.number.checked_sub(block.number);
        let depth = above.and_then(|above| above.checked_add(1)).unwrap_or(0);
        let missing = self.finality.confirmations.saturating_sub(depth);
        if missing > 0 {
            return Ok(Standing::NotFinal { missing });
        }
        match view.ancestors.first().copied().flatten() {
            Some(hash) if hash == block.hash => Ok(Standing::Final),
            Some(_) => Ok(Standing::Replaced),
            None if above.is_some_and(|above| above <= ANCESTORS) => Err(ChainError::Malformed {
                method: "eth_call",
                what: "no hash of a recent block",
            }),
            None => self.read_block_finality_by_number(block).await,
        }
    }

    async fn read_block_finality_by_number(&self, block: BlockId) -> Result<Standing, ChainError> {
        Ok(match self.read_block_id(block.number).await? {
            Some(found) if found == block => Standing::Final,
            Some(_) => Standing::Replaced,
            None => Standing::NotFinal { missing: 1 },
        })
    }

    /// Returns the blocks that are neither `last` nor an ancestor of `last`. Omits blocks that are more than
    /// [`ANCESTORS`] below `last`.
    pub(crate) async fn find_replaced_blocks(
        &self,
        blocks: &[BlockId],
        last: &FinalBlock,
    ) -> Result<Vec<BlockId>, ChainError> {
        let mut strangers = Vec::new();
        let mut compared = Vec::new();
        for block in blocks {
            match last.number.checked_sub(block.number) {
                Some(0) if block.hash == last.hash => {}
                None | Some(0) => strangers.push(*block),
                Some(1..=ANCESTORS) => compared.push(*block),
                Some(_) => {}
            }
        }
        let at = json!({"blockHash": last.hash, "requireCanonical": true});
        let mut views = Vec::new();
        for some in compared.chunks(MAX) {
            let wanted: Vec<Ancestor> = some.iter().map(|block| Ancestor::Number(block.number)).collect();
            views.extend(self.read_ancestor_hashes(&wanted, at.clone()).await?.ancestors);
        }
        let is_stranger = |(block, hash): (BlockId, Option<B256>)| (hash != Some(block.hash)).then_some(block);
        strangers.extend(compared.into_iter().zip(views).filter_map(is_stranger));
        Ok(strangers)
    }

    /// Reads the block with this number on the node's chain; `None` if the node does not have the block.
    pub async fn read_block_id(&self, number: u64) -> Result<Option<BlockId>, ChainError> {
        let header = self.read_header(number).await?;
        Ok(header.map(|FinalBlock { number, hash, .. }| BlockId { number, hash }))
    }

    /// Reads the time and hash of a block; `None` if the node does not have the block.
    pub async fn read_header(&self, number: u64) -> Result<Option<FinalBlock>, ChainError> {
        let request = json!([format!("{number:#x}"), false]);
        let Some(header) = self.rpc.call::<Option<WireHeader>>(METHOD, request).await? else {
            return Ok(None);
        };
        let malformed = |what| ChainError::Malformed { method: METHOD, what };
        if header.number != Quantity(number) {
            return Err(malformed("a block with another number"));
        }
        let at = Timestamp::from_secs(header.timestamp.0).ok_or_else(|| malformed("an invalid block time"))?;
        Ok(Some(FinalBlock {
            number,
            hash: header.hash,
            at,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted_chain::{
        CONFIRMATIONS, FINAL, HEAD, ScriptedChain, block, chain_for_node_url, final_block, hash_of, quantity,
        recorded_calls, word,
    };
    use alloy::primitives::Bytes;
    use purser_testkit::{Reply, ScriptedNode};
    use serde_json::Value;

    async fn with_head(head: u64) -> ScriptedNode {
        let mut chain = ScriptedChain::default();
        chain.head = head;
        chain.serve().await
    }

    /// On a chain with fewer blocks than the required depth, the first block is final.
    #[tokio::test]
    async fn the_final_block_has_the_configured_depth() {
        let check = async |head, number| {
            let found = chain_for_node_url(&with_head(head).await.url)
                .read_final_block()
                .await
                .unwrap();
            assert_eq!(found.number, number, "of {head}");
            found
        };
        assert_eq!(check(HEAD, FINAL).await, final_block());
        check(CONFIRMATIONS, 1).await;
        check(CONFIRMATIONS - 1, 0).await;
        check(2, 0).await;
        check(0, 0).await;
    }

    #[tokio::test]
    async fn implausible_node_responses_yield_no_final_block() {
        const HEADER: &str = "`eth_getBlockByNumber` returned";
        let header = |number: Value, time: &str| json!({"hash": hash_of(FINAL), "number": number, "timestamp": time});
        let rows = [
            (
                "eth_chainId",
                json!("0x1"),
                "the RPC serves chain 1 instead of 84532".to_owned(),
            ),
            (
                "eth_call",
                Value::Null,
                "`eth_call` returned a result with an unexpected format".to_owned(),
            ),
            (
                "eth_call",
                json!(Bytes::from([word(HEAD), word(7)].concat())),
                format!("{HEADER} a block that is not an ancestor of the newest block"),
            ),
            (
                "eth_getBlockByNumber",
                Value::Null,
                format!("{HEADER} no header of a block below the newest block"),
            ),
            (
                "eth_getBlockByNumber",
                header(quantity(FINAL + 1), "0x1"),
                format!("{HEADER} a block with another number"),
            ),
            (
                "eth_getBlockByNumber",
                header(quantity(FINAL), "0xffffffffffffffff"),
                format!("{HEADER} an invalid block time"),
            ),
        ];
        for (changed, answer, words) in rows {
            let other = move |method: &str, _: &Value| (method == changed).then(|| Reply::Result(answer.clone()));
            let node = ScriptedChain::default().serve_except(other).await;
            assert_eq!(
                chain_for_node_url(&node.url)
                    .read_final_block()
                    .await
                    .unwrap_err()
                    .to_string(),
                words
            );
        }
    }

    /// Blocks that are more than `ANCESTORS` below the final block are omitted.
    #[tokio::test]
    async fn blocks_outside_the_final_chain_are_detected() {
        let node = with_head(HEAD).await;
        let chain = chain_for_node_url(&node.url);
        let beside = |number: u64| BlockId {
            hash: B256::repeat_byte(7),
            ..block(number)
        };
        let deep = FINAL - ANCESTORS;
        let on_chain = [block(FINAL), block(FINAL - 1), block(deep), beside(deep - 1)];
        assert_eq!(chain.find_replaced_blocks(&on_chain, &final_block()).await.unwrap(), []);
        let strangers = [beside(FINAL), block(FINAL + 1), beside(FINAL - 1), beside(deep)];
        let all = [&on_chain[..], &strangers[..]].concat();
        assert_eq!(
            chain.find_replaced_blocks(&all, &final_block()).await.unwrap(),
            strangers
        );
        assert_eq!(recorded_calls(&node).len(), 2);
        let at = &recorded_calls(&node)[0].1[1];
        assert_eq!(*at, json!({"blockHash": hash_of(FINAL), "requireCanonical": true}));
    }

    /// An endpoint may switch to a node of another chain while a Lambda instance runs.
    #[tokio::test]
    async fn every_final_block_checks_the_chain_id() {
        let mut asked = 0;
        let other_once = move |method: &str, _: &Value| {
            asked += u32::from(method == "eth_chainId");
            (method == "eth_chainId" && asked == 2).then(|| Reply::Result(json!("0x1")))
        };
        let node = ScriptedChain::default().serve_except(other_once).await;
        let chain = chain_for_node_url(&node.url);
        chain.read_final_block().await.unwrap();
        let refused = chain.read_final_block().await;
        assert!(
            matches!(refused, Err(ChainError::WrongChain { found: 1, .. })),
            "{refused:?}"
        );
        chain.read_final_block().await.unwrap();
    }

    #[tokio::test]
    async fn blocks_can_be_read_by_number() {
        let node = with_head(HEAD).await;
        let chain = chain_for_node_url(&node.url);
        assert_eq!(chain.read_block_id(FINAL).await.unwrap(), Some(block(FINAL)));
        assert_eq!(chain.read_block_id(HEAD + 1).await.unwrap(), None);
        assert_eq!(recorded_calls(&node)[0].1, json!([quantity(FINAL), false]));
    }
}
