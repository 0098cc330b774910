//! Verifies the on-chain evidence that a settlement is paid.
//!
//! The logs must show the use of the settlement's nonce and, as the very next log, exactly the authorized transfer. The
//! sender, the called contract and the call data prove nothing, because anybody may settle a signed authorization.
//!
//! `shared/chain` fetches the logs and checks that their block is final.

use crate::{Address, Amount, B256, SettlementTerms};
use alloy_primitives::{U256, b256};
use std::fmt;

/// A transaction hash of 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxHash(B256);

impl TxHash {
    /// Parses `0x` and 64 hexadecimal digits in any case; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("0x")?;
        let valid = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        valid.then(|| digits.parse().ok()).flatten().map(Self)
    }

    /// Creates a hash that a node reported.
    pub const fn from_b256(hash: B256) -> Self {
        Self(hash)
    }

    /// Returns the hash as a 32-byte word.
    pub const fn to_b256(self) -> B256 {
        self.0
    }
}

/// Writes `0x` and 64 lower-case hexadecimal digits.
impl fmt::Display for TxHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An event log of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The contract that emitted the log.
    pub address: Address,
    /// The hash of the event signature, and the indexed arguments.
    pub topics: Vec<B256>,
    /// The event's non-indexed arguments, ABI-encoded.
    pub data: Vec<u8>,
    /// The log's index in the block. The logs of one transaction are consecutive.
    pub index: u64,
    /// Whether a reorganization removed the log.
    pub removed: bool,
}

/// A block. A reorganization can replace it by a block with the same number and another hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId {
    /// The number of the block.
    pub number: u64,
    /// The hash, which identifies the block even after a reorganization.
    pub hash: B256,
}

/// The logs of one transaction. They must include all uses and cancellations of the authorization and all transfers
/// from the payer to the payee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionLogs {
    /// The hash of the transaction that emitted the logs.
    pub tx_hash: TxHash,
    /// The block that contains the transaction.
    pub block: BlockId,
    /// The logs that the transaction emitted.
    pub logs: Vec<Log>,
}

/// The expected on-chain evidence of a settlement's payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedTransfer {
    /// The token contract of the settlement's network.
    pub token: Address,
    /// The address of the agent's wallet, which pays.
    pub from: Address,
    /// The address that receives the payment.
    pub to: Address,
    /// The exact amount in micro-USDC.
    pub amount: Amount,
    /// The settlement's nonce, which distinguishes equal payments to the same payee.
    pub nonce: B256,
}

impl ExpectedTransfer {
    /// Returns the transfer that pays the settlement. `nonce` is the payment's EIP-3009 nonce.
    pub const fn new(terms: &SettlementTerms, nonce: B256) -> Self {
        Self {
            token: terms.network.token().address,
            from: terms.wallet,
            to: terms.pay_to,
            amount: terms.amount,
            nonce,
        }
    }
}

/// A payment that was found on chain exactly as authorized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    tx_hash: TxHash,
    block: BlockId,
    log_index: u64,
}

impl Transfer {
    /// Returns the transaction that contains the transfer.
    pub const fn tx_hash(&self) -> TxHash {
        self.tx_hash
    }

    /// Returns the block of the transaction.
    pub const fn block(&self) -> BlockId {
        self.block
    }

    /// Returns the index of the `Transfer` log in the block. One transaction may contain several payments.
    pub const fn log_index(&self) -> u64 {
        self.log_index
    }
}

crate::named! {
    /// Why a transaction is not the authorized payment.
    Mismatch {
        /// The transaction failed and has no logs.
        TransactionReverted = "transaction_reverted",
        /// The transaction did not use the authorization.
        AuthorizationNotUsed = "authorization_not_used",
        /// The transaction used the authorization more than once, which the token makes impossible.
        AuthorizationUsedTwice = "authorization_used_twice",
        /// The log after the use of the authorization is not exactly the authorized transfer.
        UsdcTransferMismatch = "usdc_transfer_mismatch",
    }
}

/// The topic of `AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce)`, EIP-3009.
pub const AUTHORIZATION_USED: B256 = b256!("0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5");

/// The topic of `Transfer(address indexed from, address indexed to, uint256 value)`, ERC-20.
pub const TRANSFER: B256 = b256!("0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");

/// Finds the authorized payment in a transaction's logs.
///
/// Circle's token contract uses the authorization and transfers without a call in between, so the transfer is the very
/// next log.
pub fn find_authorized_transfer(
    expected: &ExpectedTransfer,
    transaction: &TransactionLogs,
) -> Result<Transfer, Mismatch> {
    let standing = || transaction.logs.iter().filter(|log| !log.removed);
    let mut all_uses = standing().filter(|log| uses_authorization(log, expected));
    let used = all_uses.next().ok_or(Mismatch::AuthorizationNotUsed)?;
    if all_uses.next().is_some() {
        return Err(Mismatch::AuthorizationUsedTwice);
    }
    let mut following = standing().filter(|log| Some(log.index) == used.index.checked_add(1));
    match (following.next(), following.next()) {
        (Some(log), None) if is_expected_transfer(log, expected) => Ok(Transfer {
            tx_hash: transaction.tx_hash,
            block: transaction.block,
            log_index: log.index,
        }),
        _ => Err(Mismatch::UsdcTransferMismatch),
    }
}

fn uses_authorization(log: &Log, expected: &ExpectedTransfer) -> bool {
    log.address == expected.token && log.topics == [AUTHORIZATION_USED, expected.from.into_word(), expected.nonce]
}

fn is_expected_transfer(log: &Log, expected: &ExpectedTransfer) -> bool {
    log.address == expected.token
        && log.topics == [TRANSFER, expected.from.into_word(), expected.to.into_word()]
        && log.data == U256::from(expected.amount.units()).to_be_bytes::<32>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::keccak256;
    use proptest::prelude::*;

    const AMOUNT: u64 = 10_000;

    fn address(byte: u8) -> Address {
        Address::repeat_byte(byte)
    }

    fn expected() -> ExpectedTransfer {
        ExpectedTransfer {
            token: address(0x10),
            from: address(0x20),
            to: address(0x30),
            amount: Amount::from_units(AMOUNT).unwrap(),
            nonce: B256::repeat_byte(0x40),
        }
    }

    fn used(index: u64, nonce: u8) -> Log {
        let topics = vec![AUTHORIZATION_USED, address(0x20).into_word(), B256::repeat_byte(nonce)];
        Log {
            address: address(0x10),
            topics,
            data: vec![],
            index,
            removed: false,
        }
    }

    fn moved(index: u64, to: u8, units: u64) -> Log {
        let topics = vec![TRANSFER, address(0x20).into_word(), address(to).into_word()];
        let data = U256::from(units).to_be_bytes::<32>().to_vec();
        Log {
            address: address(0x10),
            topics,
            data,
            index,
            removed: false,
        }
    }

    const BLOCK: BlockId = BlockId {
        number: 9,
        hash: B256::repeat_byte(2),
    };

    fn transaction(logs: Vec<Log>) -> TransactionLogs {
        TransactionLogs {
            tx_hash: TxHash(B256::repeat_byte(1)),
            block: BLOCK,
            logs,
        }
    }

    /// Returns the two correct logs with this change.
    fn changed(change: impl FnOnce(&mut Log, &mut Log)) -> Vec<Log> {
        let (mut authorization, mut transfer) = (used(7, 0x40), moved(8, 0x30, AMOUNT));
        change(&mut authorization, &mut transfer);
        vec![authorization, transfer]
    }

    #[test]
    fn a_payment_needs_its_authorization_and_exact_transfer() {
        use Mismatch::{AuthorizationNotUsed, AuthorizationUsedTwice, UsdcTransferMismatch};
        let nothing = |_: &mut Log, _: &mut Log| {};
        let right = || changed(nothing);
        let cases: [(&str, Vec<Log>, Result<(), Mismatch>); 29] = [
            ("as authorized", right(), Ok(())),
            ("logs in another order", right().into_iter().rev().collect(), Ok(())),
            (
                "a batch, ours in the middle",
                vec![
                    used(5, 0x41),
                    moved(6, 0x30, AMOUNT),
                    used(7, 0x40),
                    moved(8, 0x30, AMOUNT),
                    used(9, 0x42),
                    moved(10, 0x31, 5),
                ],
                Ok(()),
            ),
            (
                "our nonce used by a look-alike too",
                [
                    vec![Log {
                        address: address(0x11),
                        ..used(3, 0x40)
                    }],
                    right(),
                ]
                .concat(),
                Ok(()),
            ),
            (
                "more data than the event has",
                changed(|used, _| used.data = vec![1]),
                Ok(()),
            ),
            (
                "a removed second use",
                [
                    right(),
                    vec![Log {
                        removed: true,
                        ..used(9, 0x40)
                    }],
                ]
                .concat(),
                Ok(()),
            ),
            ("no logs", vec![], Err(AuthorizationNotUsed)),
            (
                "the transfer alone",
                vec![moved(8, 0x30, AMOUNT)],
                Err(AuthorizationNotUsed),
            ),
            (
                "another nonce",
                vec![used(7, 0x41), moved(8, 0x30, AMOUNT)],
                Err(AuthorizationNotUsed),
            ),
            (
                "another wallet's nonce",
                changed(|used, _| used.topics[1] = address(0x21).into_word()),
                Err(AuthorizationNotUsed),
            ),
            (
                "used on a look-alike token",
                changed(|used, _| used.address = address(0x11)),
                Err(AuthorizationNotUsed),
            ),
            (
                "canceled, not used",
                changed(|used, _| used.topics[0] = keccak256("AuthorizationCanceled(address,bytes32)")),
                Err(AuthorizationNotUsed),
            ),
            (
                "a fourth topic",
                changed(|used, _| used.topics.push(B256::ZERO)),
                Err(AuthorizationNotUsed),
            ),
            (
                "a topic too few",
                changed(|used, _| used.topics.truncate(2)),
                Err(AuthorizationNotUsed),
            ),
            (
                "dirty address bytes",
                changed(|used, _| used.topics[1][0] = 1),
                Err(AuthorizationNotUsed),
            ),
            (
                "a removed use",
                changed(|used, _| used.removed = true),
                Err(AuthorizationNotUsed),
            ),
            (
                "used twice",
                [right(), vec![used(9, 0x40)]].concat(),
                Err(AuthorizationUsedTwice),
            ),
            ("used, nothing moved", vec![used(7, 0x40)], Err(UsdcTransferMismatch)),
            (
                "another amount",
                vec![used(7, 0x40), moved(8, 0x30, AMOUNT - 1)],
                Err(UsdcTransferMismatch),
            ),
            (
                "more than the amount",
                vec![used(7, 0x40), moved(8, 0x30, AMOUNT + 1)],
                Err(UsdcTransferMismatch),
            ),
            (
                "another payee",
                vec![used(7, 0x40), moved(8, 0x31, AMOUNT)],
                Err(UsdcTransferMismatch),
            ),
            (
                "another payer",
                changed(|_, moved| moved.topics[1] = address(0x21).into_word()),
                Err(UsdcTransferMismatch),
            ),
            (
                "a look-alike token moved",
                changed(|_, moved| moved.address = address(0x11)),
                Err(UsdcTransferMismatch),
            ),
            (
                "not the next log",
                vec![used(7, 0x40), used(8, 0x41), moved(9, 0x30, AMOUNT)],
                Err(UsdcTransferMismatch),
            ),
            (
                "the log before",
                vec![moved(6, 0x30, AMOUNT), used(7, 0x40)],
                Err(UsdcTransferMismatch),
            ),
            (
                "data of 33 bytes",
                changed(|_, moved| moved.data.push(0)),
                Err(UsdcTransferMismatch),
            ),
            (
                "data of 31 bytes",
                changed(|_, moved| moved.data = moved.data.split_off(1)),
                Err(UsdcTransferMismatch),
            ),
            (
                "a removed transfer",
                changed(|_, moved| moved.removed = true),
                Err(UsdcTransferMismatch),
            ),
            (
                "no place after it",
                changed(|used, moved| (used.index, moved.index) = (u64::MAX, 0)),
                Err(UsdcTransferMismatch),
            ),
        ];
        for (name, logs, outcome) in cases {
            assert_eq!(
                find_authorized_transfer(&expected(), &transaction(logs)).map(|_| ()),
                outcome,
                "{name}"
            );
        }
    }

    #[test]
    fn two_transfer_logs_with_the_same_index_prove_no_payment() {
        let logs = vec![used(7, 0x40), moved(8, 0x30, AMOUNT), moved(8, 0x31, AMOUNT)];
        assert_eq!(
            find_authorized_transfer(&expected(), &transaction(logs)),
            Err(Mismatch::UsdcTransferMismatch)
        );
    }

    #[test]
    fn a_found_transfer_has_its_block_and_log_index() {
        let transfer = find_authorized_transfer(&expected(), &transaction(changed(|_, _| {}))).unwrap();
        assert_eq!(
            (transfer.tx_hash(), transfer.block(), transfer.log_index()),
            (TxHash(B256::repeat_byte(1)), BLOCK, 8)
        );
    }

    #[test]
    fn event_topics_are_the_hashes_of_event_signatures() {
        assert_eq!(AUTHORIZATION_USED, keccak256("AuthorizationUsed(address,bytes32)"));
        assert_eq!(TRANSFER, keccak256("Transfer(address,address,uint256)"));
    }

    #[test]
    fn only_0x_prefixed_hexadecimal_is_a_transaction_hash() {
        let digits = "AB".repeat(32);
        assert_eq!(
            TxHash::parse(&format!("0x{digits}")).unwrap().to_string(),
            format!("0x{}", digits.to_lowercase())
        );
        let short = "AB".repeat(31);
        for other in [
            "",
            &digits,
            &format!("0X{digits}"),
            &format!("0x{digits}0"),
            &format!("0x0x{short}"),
            &format!("0x{short}0g"),
        ] {
            assert_eq!(TxHash::parse(other), None, "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn logs_of_other_payments_do_not_change_the_result(before in prop::collection::vec(any::<(u8, u64)>(), 0..6), after in prop::collection::vec(any::<(u8, u64)>(), 0..6)) {
            let strangers = |from: u64, logs: &[(u8, u64)]| -> Vec<Log> {
                let pair = |(at, (byte, units)): (u64, &(u8, u64))| {
                    let nonce = if *byte == 0x40 { 0x41 } else { *byte };
                    [used(from + 2 * at, nonce), moved(from + 2 * at + 1, *byte, *units)]
                };
                (0..).zip(logs).flat_map(pair).collect()
            };
            let ours = [used(100, 0x40), moved(101, 0x30, AMOUNT)];
            let logs = [strangers(0, &before), ours.to_vec(), strangers(102, &after)].concat();
            prop_assert!(find_authorized_transfer(&expected(), &transaction(logs)).is_ok());
        }

        #[test]
        fn every_changed_bit_of_a_transfer_log_is_rejected(log in 0_usize..2, topic in 0_usize..3, bit in 0_usize..256) {
            let mut logs = changed(|_, _| {});
            logs[log].topics[topic][bit / 8] ^= 1 << (bit % 8);
            prop_assert!(find_authorized_transfer(&expected(), &transaction(logs)).is_err());
            let mut logs = changed(|_, _| {});
            logs[1].data[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(find_authorized_transfer(&expected(), &transaction(logs)).is_err());
        }
    }
}
