//! Reads the newest block's number and ancestor hashes in one `eth_call`.
//!
//! The machines behind a hosted endpoint may disagree, so two separate calls prove nothing together. The call runs EVM
//! code without a contract: `NUMBER` returns the number of the block, and `BLOCKHASH` the hashes of ancestors.

use crate::{Chain, ChainError};
use alloy::primitives::{B256, Bytes, U256};
use serde_json::{Value, json};

const METHOD: &str = "eth_call";
/// The number of ancestors whose hashes `BLOCKHASH` can return.
pub(crate) const ANCESTORS: u64 = 256;
/// The maximum number of block hashes per call.
pub(crate) const MAX: usize = 256;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Ancestor {
    Number(u64),
    /// The ancestor at this distance below the block in which the call runs. The parent has distance 1.
    Below(u64),
}

/// A block's number and ancestor hashes, according to one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// The number of the block in which the call ran.
    pub(crate) number: u64,
    /// The hash of each ancestor; `None` if `BLOCKHASH` can't return the hash of the requested block.
    pub(crate) ancestors: Vec<Option<B256>>,
}

impl Chain {
    /// Reads the hashes of at most [`MAX`] ancestors of the block `at`, a block tag or an EIP-1898 block object.
    pub(crate) async fn read_ancestor_hashes(&self, ancestors: &[Ancestor], at: Value) -> Result<View, ChainError> {
        let malformed = |what| ChainError::Malformed { method: METHOD, what };
        let code = ancestor_hash_bytecode(ancestors)
            .ok_or_else(|| malformed("no hashes, because too many blocks were requested"))?;
        let response: Bytes = self.rpc.call(METHOD, json!([{"data": code}, at])).await?;
        let (words, rest) = response.as_chunks::<32>();
        let [number, hashes @ ..] = words else {
            return Err(malformed("no block number"));
        };
        if !rest.is_empty() || hashes.len() != ancestors.len() {
            return Err(malformed("a wrong number of block hashes"));
        }
        let number = u64::try_from(U256::from_be_bytes(*number));
        Ok(View {
            number: number.map_err(|_| malformed("an invalid block number"))?,
            ancestors: hashes.iter().map(parse_nonzero_hash).collect(),
        })
    }
}

fn parse_nonzero_hash(hash: &[u8; 32]) -> Option<B256> {
    (*hash != [0; 32]).then(|| B256::new(*hash))
}

/// Builds EVM code that returns the block's number and the ancestors' hashes, one word each.
fn ancestor_hash_bytecode(ancestors: &[Ancestor]) -> Option<Bytes> {
    const NUMBER: u8 = 0x43;
    const SUB: u8 = 0x03;
    const BLOCKHASH: u8 = 0x40;
    const MSTORE: u8 = 0x52;
    const PUSH2: u8 = 0x61;
    const PUSH8: u8 = 0x67;
    const RETURN: u8 = 0xf3;
    if ancestors.len() > MAX {
        return None;
    }
    let mut code = vec![NUMBER, PUSH2, 0, 0, MSTORE];
    let mut size = 32_u16;
    for ancestor in ancestors {
        let (Ancestor::Number(number) | Ancestor::Below(number)) = ancestor;
        code.push(PUSH8);
        code.extend(number.to_be_bytes());
        if matches!(ancestor, Ancestor::Below(_)) {
            code.extend([NUMBER, SUB]);
        }
        code.extend([BLOCKHASH, PUSH2]);
        code.extend(size.to_be_bytes());
        code.push(MSTORE);
        size = size.checked_add(32)?;
    }
    code.push(PUSH2);
    code.extend(size.to_be_bytes());
    code.extend([PUSH2, 0, 0, RETURN]);
    Some(code.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted_chain::{HEAD, ScriptedChain, chain_for_node_url, final_block, hash_of, recorded_calls};
    use purser_testkit::Reply;

    fn latest() -> Value {
        json!("latest")
    }

    #[tokio::test]
    async fn one_node_call_reads_a_block_and_its_ancestors() {
        let node = ScriptedChain::default().serve().await;
        let wanted = [
            Ancestor::Number(HEAD - 1),
            Ancestor::Below(256),
            Ancestor::Number(HEAD - 257),
            Ancestor::Number(HEAD),
            Ancestor::Number(HEAD + 1),
            Ancestor::Below(HEAD + 1),
        ];
        let view = chain_for_node_url(&node.url)
            .read_ancestor_hashes(&wanted, latest())
            .await
            .unwrap();
        let known = [
            Some(hash_of(HEAD - 1)),
            Some(hash_of(HEAD - 256)),
            None,
            None,
            None,
            None,
        ];
        assert_eq!((view.number, view.ancestors), (HEAD, known.to_vec()));
        let calls = recorded_calls(&node);
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0].1[0].get("to"), None);
    }

    #[tokio::test]
    async fn an_older_block_is_requested_by_its_hash() {
        let node = ScriptedChain::default().serve().await;
        let block = final_block();
        let at = json!({"blockHash": block.hash, "requireCanonical": true});
        let many = vec![Ancestor::Below(4); MAX];
        let view = chain_for_node_url(&node.url)
            .read_ancestor_hashes(&many, at)
            .await
            .unwrap();
        assert_eq!(view.number, block.number);
        assert_eq!(view.ancestors, vec![Some(hash_of(block.number - 4)); MAX]);
        let more = vec![Ancestor::Below(4); MAX + 1];
        assert!(
            chain_for_node_url(&node.url)
                .read_ancestor_hashes(&more, latest())
                .await
                .is_err()
        );
    }

    #[tokio::test]
    async fn a_response_of_the_wrong_length_is_an_error() {
        let word = |byte: u8| vec![byte; 32];
        let cases = [
            (vec![], "no block number"),
            (vec![0; 32], "a wrong number of block hashes"),
            (vec![0; 65], "a wrong number of block hashes"),
            (vec![0; 96], "a wrong number of block hashes"),
            ([word(1), word(2)].concat(), "an invalid block number"),
        ];
        for (bytes, what) in cases {
            let answer = json!(Bytes::from(bytes));
            let other = move |method: &str, _: &Value| (method == METHOD).then(|| Reply::Result(answer.clone()));
            let node = ScriptedChain::default().serve_except(other).await;
            let view = chain_for_node_url(&node.url)
                .read_ancestor_hashes(&[Ancestor::Number(1)], latest())
                .await;
            assert_eq!(view.unwrap_err().to_string(), format!("`eth_call` returned {what}"));
        }
    }
}
