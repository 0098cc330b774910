//! Whether a wallet's balance is low, and the balance at the last change.
//!
//! Invariant: a level differs from the previous level and belongs to a later block, so each level is published once. A
//! wallet that never had a balance has no level, because the owner of a new agent expects an empty wallet.

use crate::{Amount, FinalBlock, Network, Timestamp};

/// Whether a wallet's balance is low, and the block of the last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalletLevel {
    /// Whether the balance fell below the threshold and has not recovered since then.
    pub is_low: bool,
    /// The wallet's balance at the block of the last change.
    pub balance: Amount,
    /// The threshold with which the balance was compared.
    pub below: Amount,
    /// The number of the final block at which the change was found.
    pub block: u64,
    /// The time of the final block at which the change was found.
    pub at: Timestamp,
    /// The chain of the block.
    pub network: Network,
}

/// The recovery margin is the threshold divided by this number. Without the margin, a balance around the threshold
/// would be reported repeatedly.
const MORE: u64 = 5;

impl WalletLevel {
    /// Returns the next level for a balance at a block; `None` if the level does not change. With a threshold of zero,
    /// no balance is low.
    pub fn next_level(
        before: Option<&Self>,
        balance: Amount,
        threshold: Amount,
        block: &FinalBlock,
        network: Network,
    ) -> Option<Self> {
        let is_low = match before {
            Some(before) if before.block >= block.number => return None,
            Some(before) if before.is_low => balance < low_wallet_recovery_balance(threshold),
            Some(_) | None => balance < threshold,
        };
        let is_told = match before {
            Some(before) => before.is_low != is_low,
            None => !balance.is_zero(),
        };
        is_told.then_some(Self {
            is_low,
            balance,
            below: threshold,
            block: block.number,
            at: block.at,
            network,
        })
    }
}

/// Returns the balance from which a wallet is no longer low: 6/5 of the threshold, rounded down.
fn low_wallet_recovery_balance(threshold: Amount) -> Amount {
    let more = Amount::from_units(threshold.units() / MORE).unwrap_or(Amount::ZERO);
    threshold.plus(more).unwrap_or(Amount::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::B256;

    const BELOW: u64 = 100;

    fn units(units: u64) -> Amount {
        Amount::from_units(units).unwrap()
    }

    fn block(number: u64) -> FinalBlock {
        FinalBlock {
            number,
            hash: B256::ZERO,
            at: Timestamp::from_secs(1_700_000_000 + number).unwrap(),
        }
    }

    fn next(before: Option<&WalletLevel>, balance: u64, number: u64) -> Option<WalletLevel> {
        let network = Network::BaseSepolia;
        WalletLevel::next_level(before, units(balance), units(BELOW), &block(number), network)
    }

    #[test]
    fn a_low_balance_is_reported_once_until_it_recovers() {
        let held = [
            (0, None),
            (100, Some(false)),
            (1_000, None),
            (99, Some(true)),
            (0, None),
            (119, None),
            (120, Some(false)),
            (100, None),
            (0, Some(true)),
        ];
        let mut level = None;
        for (number, (balance, told)) in (1..).zip(held) {
            let changed = next(level.as_ref(), balance, number);
            assert_eq!(changed.map(|changed| changed.is_low), told, "{balance} in {number}");
            assert!(changed.is_none_or(|changed| (changed.balance, changed.block) == (units(balance), number)));
            level = changed.or(level);
        }
        assert_eq!(next(None, 1, 1).map(|level| level.is_low), Some(true));
    }

    #[test]
    fn a_lagging_node_does_not_change_the_wallet_level() {
        let level = next(None, 1_000, 10).unwrap();
        for number in [9, 10] {
            assert_eq!(next(Some(&level), 0, number), None, "{number}");
        }
        assert!(next(Some(&level), 0, 11).is_some());
    }

    #[test]
    fn a_low_wallet_level_can_recover_even_at_the_largest_threshold() {
        let check = |before: Option<&WalletLevel>, balance, number| {
            WalletLevel::next_level(before, balance, Amount::MAX, &block(number), Network::Base)
        };
        let low = check(None, units(1), 1).unwrap();
        assert!(low.is_low);
        assert!(!check(Some(&low), Amount::MAX, 2).unwrap().is_low);
    }
}
