//! The outflows from an agent's wallet on chain, each of which must be the payment of a settlement.
//!
//! A payment emits the use of an authorization and, directly after it, the transfer
//! ([`crate::find_authorized_transfer`]), so a transfer without such a log before it belongs to no settlement.
//! Transfers of zero are ignored, because anybody can log them from any wallet.

use crate::{
    AUTHORIZATION_USED, Act, Actor, Address, AgentId, AuditChanges, AuditId, AuditKind, AuditOutcome, AuditRecord,
    B256, BlockId, ExpectedTransfer, Log, RequestSource, TRANSFER, Timestamp, TxHash,
};
use alloy_primitives::U256;
use serde_json::{Value, json};
use std::collections::HashMap;

/// A transfer of the token out of a wallet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outflow {
    /// The address of the wallet that the token left.
    pub wallet: Address,
    /// The address that received the token.
    pub to: Address,
    /// The amount in the token's units, greater than zero. It may be too large for an [`crate::Amount`].
    pub units: U256,
    /// The hash of the transaction that made the transfer.
    pub tx_hash: TxHash,
    /// The block that contains the transaction.
    pub block: BlockId,
    /// The index of the transfer's log in the block.
    pub log_index: u64,
    /// The nonce of the authorization that the transfer used, if it used one.
    pub nonce: Option<B256>,
}

impl Outflow {
    /// Returns whether this outflow is the expected payment.
    pub fn matches_transfer(&self, expected: &ExpectedTransfer) -> bool {
        self.wallet == expected.from
            && self.to == expected.to
            && self.units == U256::from(expected.amount.units())
            && self.nonce == Some(expected.nonce)
    }

    /// Returns the audit row of an outflow without a settlement. `at` is the time of the block. The same outflow always
    /// has the same row id.
    pub fn audit_record(&self, agent: AgentId, at: Timestamp) -> AuditRecord {
        // Identifies the transfer by the transaction hash and the log index.
        let of_transaction = self.tx_hash.to_b256().0.into_iter().take(6);
        let of_log = self.log_index.to_be_bytes().into_iter().skip(6);
        let mut random = [0; 8];
        for (byte, from) in random.iter_mut().zip(of_transaction.chain(of_log)) {
            *byte = from;
        }
        let units = u64::try_from(self.units).map_or_else(|_| Value::from(self.units.to_string()), Value::from);
        let fields = [
            ("wallet", json!(self.wallet.to_string())),
            ("pay_to", json!(self.to.to_string())),
            ("amount_units", units),
            ("tx_hash", json!(self.tx_hash.to_string())),
            ("block_number", json!(self.block.number)),
        ];
        let fields = fields.map(|(name, value)| (name.to_owned(), value));
        AuditRecord {
            id: AuditId::new_at(at, random),
            at,
            actor: Actor::Reconcile,
            source: RequestSource::default(),
            act: Act::new(AuditKind::OutflowFound)
                .on_agent(agent)
                .with_object(&format!("{}#{}", self.tx_hash, self.log_index)),
            outcome: AuditOutcome::Done(AuditChanges::between(None, Some(fields.into()))),
        }
    }
}

/// Returns the outflows in these logs. The logs must include all transfers from the wallets and all uses of their
/// authorizations. An invalid amount counts as the maximum.
pub fn find_outflows(logs: &[(TxHash, BlockId, Log)]) -> Vec<Outflow> {
    let standing = || logs.iter().filter(|(_, _, log)| !log.removed);
    let mut nonces: HashMap<(BlockId, u64), (TxHash, B256, B256)> = HashMap::new();
    for (tx_hash, block, log) in standing() {
        if let [event, payer, nonce] = log.topics.as_slice()
            && *event == AUTHORIZATION_USED
            && let Some(next) = log.index.checked_add(1)
        {
            nonces.insert((*block, next), (*tx_hash, *payer, *nonce));
        }
    }
    let outflow = |(tx_hash, block, log): &(TxHash, BlockId, Log)| {
        let [event, from, to] = log.topics.as_slice() else {
            return None;
        };
        let units = U256::try_from_be_slice(&log.data).unwrap_or(U256::MAX);
        let used = nonces.get(&(*block, log.index));
        let used = used.filter(|(by, payer, _)| by == tx_hash && payer == from);
        (*event == TRANSFER && units > U256::ZERO).then(|| Outflow {
            wallet: Address::from_word(*from),
            to: Address::from_word(*to),
            units,
            tx_hash: *tx_hash,
            block: *block,
            log_index: log.index,
            nonce: used.map(|(_, _, nonce)| *nonce),
        })
    };
    standing().filter_map(outflow).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Amount;

    const BLOCK: BlockId = BlockId {
        number: 9,
        hash: B256::repeat_byte(9),
    };

    fn address(byte: u8) -> Address {
        Address::repeat_byte(byte)
    }

    fn log(index: u64, topics: [B256; 3], units: Option<u64>) -> (TxHash, BlockId, Log) {
        let data = units.map(|units| U256::from(units).to_be_bytes::<32>().to_vec());
        let log = Log {
            address: address(0x10),
            topics: topics.into(),
            data: data.unwrap_or_default(),
            index,
            removed: false,
        };
        (TxHash::from_b256(B256::repeat_byte(1)), BLOCK, log)
    }

    fn used(index: u64, payer: u8) -> (TxHash, BlockId, Log) {
        let topics = [AUTHORIZATION_USED, address(payer).into_word(), B256::repeat_byte(0x40)];
        log(index, topics, None)
    }

    fn moved(index: u64, units: u64) -> (TxHash, BlockId, Log) {
        let topics = [TRANSFER, address(0x20).into_word(), address(0x30).into_word()];
        log(index, topics, Some(units))
    }

    #[test]
    fn outflow_transfers_use_the_nonce_of_the_preceding_log() {
        let nonce = |logs: &[(TxHash, BlockId, Log)]| -> Vec<bool> {
            find_outflows(logs)
                .iter()
                .map(|outflow| outflow.nonce.is_some())
                .collect()
        };
        assert_eq!(nonce(&[used(7, 0x20), moved(8, 5)]), [true]);
        assert_eq!(nonce(&[moved(8, 5), used(7, 0x20)]), [true]);
        assert_eq!(nonce(&[moved(8, 5)]), [false]);
        assert_eq!(nonce(&[used(6, 0x20), moved(8, 5)]), [false]);
        assert_eq!(nonce(&[used(7, 0x20), moved(8, 5), moved(9, 5)]), [true, false]);
        assert_eq!(nonce(&[used(7, 0x21), moved(8, 5)]), [false], "another wallet's");
        let elsewhere = |mut of: (TxHash, BlockId, Log)| {
            of.0 = TxHash::from_b256(B256::repeat_byte(2));
            of
        };
        assert_eq!(nonce(&[elsewhere(used(7, 0x20)), moved(8, 5)]), [false]);
        let mut gone = used(7, 0x20);
        gone.2.removed = true;
        assert_eq!(nonce(&[gone, moved(8, 5)]), [false]);
        assert_eq!(find_outflows(&[moved(8, 0)]), []);
    }

    #[test]
    fn only_the_exact_payment_matches_an_outflow() {
        let expected = ExpectedTransfer {
            token: address(0x10),
            from: address(0x20),
            to: address(0x30),
            amount: Amount::from_units(5).unwrap(),
            nonce: B256::repeat_byte(0x40),
        };
        let paid = *find_outflows(&[used(7, 0x20), moved(8, 5)]).first().unwrap();
        assert!(paid.matches_transfer(&expected));
        let others = [
            Outflow {
                wallet: address(0x21),
                ..paid
            },
            Outflow {
                to: address(0x31),
                ..paid
            },
            Outflow {
                units: U256::from(6),
                ..paid
            },
            Outflow { nonce: None, ..paid },
            Outflow {
                nonce: Some(B256::ZERO),
                ..paid
            },
        ];
        for other in others {
            assert!(!other.matches_transfer(&expected), "{other:?}");
        }
    }

    #[test]
    fn unreadable_outflow_amounts_count_as_the_maximum() {
        let mut odd = moved(8, 5);
        odd.2.data = vec![1; 33];
        assert_eq!(
            find_outflows(&[odd]).first().map(|outflow| outflow.units),
            Some(U256::MAX)
        );
    }
}
