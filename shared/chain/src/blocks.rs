//! Blocks: the newest final one, and any by its number.

use crate::{
    Chain, ChainError,
    rpc::{Quantity, WireHeader},
};
use purser_domain::{BlockId, FinalBlock, Timestamp};
use serde_json::json;

const METHOD: &str = "eth_getBlockByNumber";

impl Chain {
    /// The newest final block. Each call asks the node again which chain it serves.
    pub async fn final_block(&self) -> Result<FinalBlock, ChainError> {
        let (right, head) = tokio::join!(self.verify_chain_id(), self.head());
        right?;
        // On a chain shorter than that, the first block: it is on every fork.
        let number = head?.saturating_add(1).saturating_sub(self.finality.confirmations);
        self.header(number).await?.ok_or(ChainError::Malformed {
            method: METHOD,
            what: "nothing, for a block below its newest",
        })
    }

    /// The block of this number, on the chain that the node holds to be canonical; `None` if the node does not have it.
    pub async fn block(&self, number: u64) -> Result<Option<BlockId>, ChainError> {
        let header = self.header(number).await?;
        Ok(header.map(|FinalBlock { number, hash, .. }| BlockId { number, hash }))
    }

    /// The time and hash of a block; `None` if the node does not have it.
    pub async fn header(&self, number: u64) -> Result<Option<FinalBlock>, ChainError> {
        let asked = json!([format!("{number:#x}"), false]);
        let Some(header) = self.rpc.call::<Option<WireHeader>>(METHOD, asked).await? else {
            return Ok(None);
        };
        let malformed = |what| ChainError::Malformed { method: METHOD, what };
        if header.number != Quantity(number) {
            return Err(malformed("another block"));
        }
        let at = Timestamp::from_secs(header.timestamp.0).ok_or_else(|| malformed("a time that is none"))?;
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
        CONFIRMATIONS, FINAL, HEAD, ScriptedChain, asked, block, chain_at, final_block, hash_of, quantity,
    };
    use purser_testkit::{Reply, ScriptedNode};
    use serde_json::Value;

    async fn with_head(head: u64) -> ScriptedNode {
        let mut chain = ScriptedChain::default();
        chain.head = head;
        chain.serve().await
    }

    #[tokio::test]
    async fn the_final_block_is_the_one_of_the_configured_depth_with_its_own_hash_and_time() {
        let check = async |head, number| {
            let found = chain_at(&with_head(head).await.url).final_block().await.unwrap();
            assert_eq!(found.number, number, "of {head}");
            found
        };
        assert_eq!(check(HEAD, FINAL).await, final_block());
        // On a chain shorter than that, the first one.
        check(CONFIRMATIONS, 1).await;
        check(CONFIRMATIONS - 1, 0).await;
        check(2, 0).await;
        check(0, 0).await;
    }

    #[tokio::test]
    async fn a_node_that_makes_no_sense_has_no_final_block() {
        const HEADER: &str = "`eth_getBlockByNumber` was answered with";
        let header = |number: Value, time: &str| json!({"hash": hash_of(FINAL), "number": number, "timestamp": time});
        let rows = [
            (
                "eth_chainId",
                json!("0x1"),
                "the RPC serves chain 1 instead of 84532".to_owned(),
            ),
            (
                "eth_blockNumber",
                Value::Null,
                "`eth_blockNumber` was answered with a result of another shape".to_owned(),
            ),
            (
                "eth_getBlockByNumber",
                Value::Null,
                format!("{HEADER} nothing, for a block below its newest"),
            ),
            (
                "eth_getBlockByNumber",
                header(quantity(FINAL + 1), "0x1"),
                format!("{HEADER} another block"),
            ),
            (
                "eth_getBlockByNumber",
                header(quantity(FINAL), "0xffffffffffffffff"),
                format!("{HEADER} a time that is none"),
            ),
        ];
        for (changed, answer, words) in rows {
            let other = move |method: &str, _: &Value| (method == changed).then(|| Reply::Result(answer.clone()));
            let node = ScriptedChain::default().serve_except(other).await;
            assert_eq!(chain_at(&node.url).final_block().await.unwrap_err().to_string(), words);
        }
    }

    /// A node may be replaced by one of another chain while a function runs.
    #[tokio::test]
    async fn each_final_block_asks_the_node_for_its_chain() {
        let mut asked = 0;
        let other_once = move |method: &str, _: &Value| {
            asked += u32::from(method == "eth_chainId");
            (method == "eth_chainId" && asked == 2).then(|| Reply::Result(json!("0x1")))
        };
        let node = ScriptedChain::default().serve_except(other_once).await;
        let chain = chain_at(&node.url);
        chain.final_block().await.unwrap();
        let refused = chain.final_block().await;
        assert!(
            matches!(refused, Err(ChainError::WrongChain { found: 1, .. })),
            "{refused:?}"
        );
        chain.final_block().await.unwrap();
    }

    #[tokio::test]
    async fn a_block_is_known_by_its_number_unless_the_node_does_not_have_it() {
        let node = with_head(HEAD).await;
        let chain = chain_at(&node.url);
        assert_eq!(chain.block(FINAL).await.unwrap(), Some(block(FINAL)));
        assert_eq!(chain.block(HEAD + 1).await.unwrap(), None);
        assert_eq!(asked(&node)[0].1, json!([quantity(FINAL), false]));
    }
}
