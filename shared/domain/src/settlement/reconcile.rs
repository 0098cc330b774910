//! Decides what to do with a settlement, from the state of the authorization at a final block.
//!
//! Only [`decide_reconciliation`] creates the [`UnusableAuthorization`] that a release needs and the
//! [`VanishedTransfer`] that a reversal needs. They are never based on a clock, a provider's claim or a failed search.
//!
//! EIP-3009 accepts an authorization only in a block before `validBefore`, and block times never decrease. An
//! authorization that is unused in a block at or after `validBefore` therefore stays unused on every chain that extends
//! the block.

use crate::{
    B256, ExpectedTransfer, Log, Mismatch, Settlement, SettlementId, SettlementState, Timestamp, TransactionLogs,
    Transfer, TxHash, find_authorized_transfer,
};
use alloy_primitives::b256;

/// The topic of `AuthorizationCanceled(address indexed authorizer, bytes32 indexed nonce)`, EIP-3009.
pub const AUTHORIZATION_CANCELED: B256 = b256!("0x1cdd46ff242716cdaa72d159d339a485b3438398348d68f09d7c8c0a59353d81");

/// A final block. The number, hash and time belong to the same block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinalBlock {
    /// The number of the final block.
    pub number: u64,
    /// The block hash, for queries that must not return another block's state.
    pub hash: B256,
    /// The timestamp of the final block.
    pub at: Timestamp,
}

/// The state of one authorization at a final block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthorizationState {
    /// The nonce is unused at the block, or was unused in an earlier block at or after `validBefore`.
    Unused,
    /// This transaction used the nonce for a transfer or a cancellation.
    Used(TransactionLogs),
    /// The nonce was used in an unknown transaction.
    UsedUntraced,
}

/// What reconciliation does with a settlement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reconciliation {
    /// Confirm the settlement, because this transfer paid it. Even an expired settlement is confirmed.
    Confirm(Transfer),
    /// Release the reserved amount: the settlement can never be paid.
    Release(UnusableAuthorization),
    /// Revert the confirmation: the transfer is no longer on chain.
    RevertConfirmation(VanishedTransfer),
    /// Do nothing: the settlement is already confirmed, and the transfer is still on chain.
    StillPaid(Transfer),
    /// Update the confirmation: the transfer's transaction is now in another block.
    PaidInAnotherBlock(Transfer),
    /// Do nothing: the settlement has expired and is unpaid.
    StillUnpaid,
    /// Wait: this block is too early for a decision.
    NotYet,
    /// Report an error: the nonce was used for something else. The token contract should make this impossible.
    Contradicted(Mismatch),
    /// Search again: the nonce was used in an unknown transaction.
    Untraced,
}

/// Proof that an authorization can never be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnusableAuthorization {
    settlement: SettlementId,
}

impl UnusableAuthorization {
    /// Returns the settlement of the authorization.
    pub const fn settlement_id(&self) -> SettlementId {
        self.settlement
    }
}

/// Proof that the transfer that confirmed a settlement is no longer on chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VanishedTransfer {
    settlement: SettlementId,
    tx_hash: TxHash,
}

impl VanishedTransfer {
    /// Returns the settlement whose transfer vanished.
    pub const fn settlement_id(&self) -> SettlementId {
        self.settlement
    }

    /// Returns the transaction that contained the vanished transfer.
    pub const fn tx_hash(&self) -> TxHash {
        self.tx_hash
    }
}

/// Decides what to do with a settlement, from the state of the settlement's authorization at a final block.
pub fn decide_reconciliation(
    settlement: &Settlement,
    expected: &ExpectedTransfer,
    block: &FinalBlock,
    authorization_state: &AuthorizationState,
) -> Reconciliation {
    match authorization_state {
        AuthorizationState::Unused => reconciliation_for_unused_authorization(settlement, block),
        // The transaction is newer than the final block, so it is not final.
        AuthorizationState::Used(transaction) if transaction.block.number > block.number => Reconciliation::NotYet,
        AuthorizationState::Used(transaction) => match find_authorized_transfer(expected, transaction) {
            Ok(transfer) => reconciliation_for_paid_settlement(settlement, transfer),
            Err(Mismatch::AuthorizationNotUsed) if cancels_authorization(expected, transaction) => {
                reconciliation_for_unpaid_settlement(settlement)
            }
            Err(mismatch) => Reconciliation::Contradicted(mismatch),
        },
        AuthorizationState::UsedUntraced => Reconciliation::Untraced,
    }
}

fn reconciliation_for_unused_authorization(settlement: &Settlement, block: &FinalBlock) -> Reconciliation {
    match settlement.state {
        SettlementState::Authorized if block.at < settlement.terms.valid_before => Reconciliation::NotYet,
        // An earlier block can't contradict the transfer.
        SettlementState::Confirmed { block_number, .. } if block.number < block_number => Reconciliation::NotYet,
        SettlementState::Authorized | SettlementState::Confirmed { .. } | SettlementState::Expired => {
            reconciliation_for_unpaid_settlement(settlement)
        }
    }
}

fn reconciliation_for_paid_settlement(settlement: &Settlement, transfer: Transfer) -> Reconciliation {
    match settlement.state {
        SettlementState::Authorized | SettlementState::Expired => Reconciliation::Confirm(transfer),
        SettlementState::Confirmed {
            tx_hash, block_number, ..
        } if tx_hash == transfer.tx_hash() => {
            if block_number == transfer.block().number {
                Reconciliation::StillPaid(transfer)
            } else {
                Reconciliation::PaidInAnotherBlock(transfer)
            }
        }
        SettlementState::Confirmed { tx_hash, .. } => reconciliation_for_vanished_transfer(settlement, tx_hash),
    }
}

/// Returns the action for a settlement that is unpaid on chain. A confirmed settlement is reverted to
/// authorized, and a later run releases the amount.
fn reconciliation_for_unpaid_settlement(settlement: &Settlement) -> Reconciliation {
    match settlement.state {
        SettlementState::Authorized => Reconciliation::Release(UnusableAuthorization {
            settlement: settlement.id(),
        }),
        SettlementState::Confirmed { tx_hash, .. } => reconciliation_for_vanished_transfer(settlement, tx_hash),
        SettlementState::Expired => Reconciliation::StillUnpaid,
    }
}

fn reconciliation_for_vanished_transfer(settlement: &Settlement, tx_hash: TxHash) -> Reconciliation {
    Reconciliation::RevertConfirmation(VanishedTransfer {
        settlement: settlement.id(),
        tx_hash,
    })
}

/// Returns whether `transaction` canceled the authorization. The caller has found no use of the
/// authorization.
fn cancels_authorization(expected: &ExpectedTransfer, transaction: &TransactionLogs) -> bool {
    let topics = [AUTHORIZATION_CANCELED, expected.from.into_word(), expected.nonce];
    let is_ours = |log: &Log| !log.removed && log.address == expected.token && log.topics == topics;
    transaction.logs.iter().any(is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        AUTHORIZATION_USED, Address, AgentId, Amount, BlockId, Duration, Fingerprint, Network, NoncePrefix, Purpose,
        SettlementTerms, TRANSFER, TransactionId, WithdrawalPurpose,
    };
    use alloy_primitives::{U256, keccak256};
    use uuid::Uuid;

    const BLOCK: u64 = 100;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs).unwrap()
    }

    fn hash(byte: u8) -> TxHash {
        TxHash::from_b256(B256::repeat_byte(byte))
    }

    fn terms() -> SettlementTerms {
        SettlementTerms {
            id: SettlementId::from_uuid(Uuid::max()),
            transaction: TransactionId::from_uuid(Uuid::nil()),
            agent: AgentId::from_uuid(Uuid::nil()),
            wallet: Address::repeat_byte(0x20),
            network: Network::BaseSepolia,
            amount: Amount::from_units(10_000).unwrap(),
            pay_to: Address::repeat_byte(0x30),
            authorized_at: at(1_000),
            valid_before: at(1_060),
            idempotency_key: Fingerprint::for_text("k"),
            nonce_prefix: NoncePrefix::from_nonce(B256::ZERO),
            transfers: 0,
            purpose: Purpose::Payout(WithdrawalPurpose {
                by: crate::UserId::derive("https://issuer.example", "someone"),
            }),
        }
    }

    fn expected() -> ExpectedTransfer {
        ExpectedTransfer::new(&terms(), B256::repeat_byte(0x40))
    }

    fn settlement(state: SettlementState) -> Settlement {
        Settlement {
            terms: terms(),
            state,
            counted_at: at(1_000),
            failed_proofs: crate::FailedProofs::default(),
        }
    }

    fn confirmed(tx_hash: TxHash) -> SettlementState {
        SettlementState::Confirmed {
            tx_hash,
            block_number: BLOCK,
            settled_at: at(1_010),
        }
    }

    fn block(secs: u64) -> FinalBlock {
        FinalBlock {
            number: BLOCK,
            hash: B256::repeat_byte(0xb0),
            at: at(secs),
        }
    }

    fn log(index: u64, topics: Vec<B256>, data: Vec<u8>) -> Log {
        Log {
            address: expected().token,
            topics,
            data,
            index,
            removed: false,
        }
    }

    fn by(tx_hash: TxHash, block_number: u64, logs: Vec<Log>) -> AuthorizationState {
        let hash = B256::repeat_byte(0xb0);
        AuthorizationState::Used(TransactionLogs {
            tx_hash,
            block: BlockId {
                number: block_number,
                hash,
            },
            logs,
        })
    }

    fn event(signature: B256) -> Log {
        log(
            0,
            vec![signature, expected().from.into_word(), expected().nonce],
            vec![],
        )
    }

    fn transfer(units: u64) -> Log {
        let ExpectedTransfer { from, to, .. } = expected();
        let topics = vec![TRANSFER, from.into_word(), to.into_word()];
        log(1, topics, U256::from(units).to_be_bytes::<32>().to_vec())
    }

    fn reconcile_paid(tx_hash: TxHash) -> AuthorizationState {
        by(tx_hash, BLOCK, vec![event(AUTHORIZATION_USED), transfer(10_000)])
    }

    fn canceled() -> AuthorizationState {
        by(hash(9), BLOCK, vec![event(AUTHORIZATION_CANCELED)])
    }

    #[test]
    fn the_cancellation_event_topic_is_the_signature_hash() {
        assert_eq!(
            AUTHORIZATION_CANCELED,
            keccak256("AuthorizationCanceled(address,bytes32)")
        );
    }

    fn told(state: SettlementState, block: &FinalBlock, authorization_state: &AuthorizationState) -> &'static str {
        match decide_reconciliation(&settlement(state), &expected(), block, authorization_state) {
            Reconciliation::Confirm(_) => "confirm",
            Reconciliation::Release(_) => "release",
            Reconciliation::RevertConfirmation(transfer_gone) if transfer_gone.tx_hash() == hash(1) => "take back",
            Reconciliation::RevertConfirmation(_) => "take back another's",
            Reconciliation::StillPaid(_) => "still paid",
            Reconciliation::PaidInAnotherBlock(_) => "in another block",
            Reconciliation::StillUnpaid => "still unpaid",
            Reconciliation::NotYet => "not yet",
            Reconciliation::Contradicted(mismatch) => mismatch.name(),
            Reconciliation::Untraced => "untraced",
        }
    }

    #[test]
    fn settlement_and_authorization_state_determine_the_reconciliation() {
        let early = block(1_030);
        let late = block(2_000);
        let other_amount = || by(hash(1), BLOCK, vec![event(AUTHORIZATION_USED), transfer(9_999)]);
        let above = || by(hash(1), BLOCK + 1, vec![event(AUTHORIZATION_USED), transfer(10_000)]);
        let moved = || by(hash(1), BLOCK - 1, vec![event(AUTHORIZATION_USED), transfer(10_000)]);
        let nothing = || by(hash(1), BLOCK, vec![]);
        let both = || {
            by(
                hash(1),
                BLOCK,
                vec![event(AUTHORIZATION_USED), event(AUTHORIZATION_CANCELED)],
            )
        };
        // The state, and the actions for an authorized, a confirmed and an expired settlement.
        let rows: [(&str, AuthorizationState, FinalBlock, [&str; 3]); 13] = [
            (
                "unused, in time",
                AuthorizationState::Unused,
                early,
                ["not yet", "take back", "still unpaid"],
            ),
            (
                "unused, too late",
                AuthorizationState::Unused,
                late,
                ["release", "take back", "still unpaid"],
            ),
            (
                "paid",
                reconcile_paid(hash(1)),
                late,
                ["confirm", "still paid", "confirm"],
            ),
            (
                "paid, early",
                reconcile_paid(hash(1)),
                early,
                ["confirm", "still paid", "confirm"],
            ),
            (
                "paid by another",
                reconcile_paid(hash(2)),
                late,
                ["confirm", "take back", "confirm"],
            ),
            (
                "paid in another block",
                moved(),
                late,
                ["confirm", "in another block", "confirm"],
            ),
            ("canceled", canceled(), late, ["release", "take back", "still unpaid"]),
            (
                "canceled, in time",
                canceled(),
                early,
                ["release", "take back", "still unpaid"],
            ),
            ("above the block", above(), late, ["not yet"; 3]),
            ("another amount", other_amount(), late, ["usdc_transfer_mismatch"; 3]),
            ("another thing", nothing(), late, ["authorization_not_used"; 3]),
            ("used and canceled", both(), late, ["usdc_transfer_mismatch"; 3]),
            ("untraced", AuthorizationState::UsedUntraced, late, ["untraced"; 3]),
        ];
        for (name, authorization_state, block, follows) in rows {
            let states = [
                SettlementState::Authorized,
                confirmed(hash(1)),
                SettlementState::Expired,
            ];
            assert_eq!(
                states.map(|state| told(state, &block, &authorization_state)),
                follows,
                "{name}"
            );
        }
    }

    /// EIP-3009: `require(block.timestamp < validBefore)`.
    #[test]
    fn a_hold_with_an_unused_authorization_is_released_at_valid_before() {
        let rows = [(1_059, "not yet"), (1_060, "release"), (1_061, "release")];
        for (secs, follows) in rows {
            assert_eq!(
                told(SettlementState::Authorized, &block(secs), &AuthorizationState::Unused),
                follows
            );
        }
        // Block times are whole seconds, so the release is not early by a fraction.
        let nearly = FinalBlock {
            at: at(1_060).before(Duration::from_secs_u32(1)),
            ..block(0)
        };
        assert_eq!(
            told(SettlementState::Authorized, &nearly, &AuthorizationState::Unused),
            "not yet"
        );
    }

    #[test]
    fn a_lagging_chain_reverts_no_confirmation() {
        for (number, follows) in [(BLOCK - 1, "not yet"), (BLOCK, "take back")] {
            let block = FinalBlock { number, ..block(2_000) };
            assert_eq!(told(confirmed(hash(1)), &block, &AuthorizationState::Unused), follows);
        }
    }

    #[test]
    fn a_look_alike_event_cancels_no_authorization() {
        let strange: [fn(&mut Log); 4] = [
            |log| log.address = Address::repeat_byte(0x11),
            |log| log.topics[1] = Address::repeat_byte(0x21).into_word(),
            |log| log.topics[2] = B256::repeat_byte(0x41),
            |log| log.removed = true,
        ];
        for change in strange {
            let mut log = event(AUTHORIZATION_CANCELED);
            change(&mut log);
            let authorization_state = by(hash(9), BLOCK, vec![log]);
            let follows = told(SettlementState::Authorized, &block(2_000), &authorization_state);
            assert_eq!(follows, "authorization_not_used");
        }
    }

    #[test]
    fn reconciliation_steps_keep_the_payment_terms() {
        let held = settlement(SettlementState::Authorized);
        let Reconciliation::Release(unusable) =
            decide_reconciliation(&held, &expected(), &block(1_060), &AuthorizationState::Unused)
        else {
            panic!()
        };
        assert_eq!(held.clone().expire(&unusable), settlement(SettlementState::Expired));
        let paid_once = settlement(confirmed(hash(1)));
        let Reconciliation::RevertConfirmation(transfer_gone) =
            decide_reconciliation(&paid_once, &expected(), &block(1_060), &AuthorizationState::Unused)
        else {
            panic!()
        };
        assert_eq!(paid_once.revert_confirmation(&transfer_gone), held);
        assert_eq!(
            (unusable.settlement_id(), transfer_gone.settlement_id()),
            (held.id(), held.id())
        );
    }
}
