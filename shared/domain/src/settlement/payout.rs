//! Payouts: a person withdraws an agent's money to the payout address that they set.
//!
//! Invariants: a payout is reserved only with a [`PayoutGrant`], which only [`decide_payout`] makes: to the stored
//! address, after its delay, for at most the wallet's balance, and while no other payout of the agent is open. The
//! caller's request contains no address.
//!
//! An owner's own freeze does not block a payout, since an owner who froze an agent may want to withdraw its money. A
//! freeze by operators does: somebody else may act in the owner's name. An address belongs to the person who set it and
//! is not valid for another owner of the agent.

use crate::{Address, AgentId, Amount, Duration, Freeze, Network, PersonId, SettlementId, Timestamp};

/// The payout address of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayoutAddress {
    /// The address.
    pub address: Address,
    /// The time at which it was set.
    pub named_at: Timestamp,
    /// The time from which it can be used.
    pub good_from: Timestamp,
    /// The person who set it.
    pub named_by: PersonId,
    /// The address that it replaced.
    pub replaced: Option<Address>,
}

/// The stored state of an agent's payouts. [`PayoutRecord::default`] is the state of an agent that has no stored one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PayoutRecord {
    /// The payout address, if there is one.
    pub address: Option<PayoutAddress>,
    /// The address that was removed, if there is none now.
    pub removed: Option<Address>,
    /// The latest payout, which may still be open.
    pub latest: Option<SettlementId>,
    /// The number of writes.
    pub version: u64,
}

impl PayoutRecord {
    /// The stored address, if this person set it.
    pub fn address_of(&self, owner: &PersonId) -> Option<&PayoutAddress> {
        self.address.as_ref().filter(|address| address.named_by == *owner)
    }

    /// The record with this address, set by this person and delayed by `delay` from now on. `None` if it is already the
    /// current address of the same person, whose delay continues.
    #[must_use]
    pub fn named(&self, address: Address, by: &PersonId, now: Timestamp, delay: Duration) -> Option<Self> {
        let present = self.address.as_ref().map(|present| present.address);
        let stands = self.address_of(by).is_some_and(|stands| stands.address == address);
        (!stands).then(|| Self {
            address: Some(PayoutAddress {
                address,
                named_at: now,
                good_from: now.after(delay),
                named_by: by.clone(),
                replaced: present.or(self.removed),
            }),
            removed: None,
            latest: self.latest,
            version: self.version.saturating_add(1),
        })
    }

    /// The record without an address; `None` if there is none.
    #[must_use]
    pub fn without_address(&self) -> Option<Self> {
        let removed = self.address.as_ref()?.address;
        Some(Self {
            address: None,
            removed: Some(removed),
            latest: self.latest,
            version: self.version.saturating_add(1),
        })
    }
}

/// The reason that an address can't be a payout address: money sent there would be lost, or not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayoutAddressError {
    /// The address is the agent's own wallet.
    #[error("must not be the agent's own wallet")]
    OwnWallet,
    /// The address is the token's contract.
    #[error("must not be the token's contract")]
    Token,
}

/// Checks that payouts may go to this address.
pub fn check_payout_address(address: Address, wallet: Address, network: Network) -> Result<(), PayoutAddressError> {
    if address == wallet {
        Err(PayoutAddressError::OwnWallet)
    } else if address == network.token().address {
        Err(PayoutAddressError::Token)
    } else {
        Ok(())
    }
}

/// The amount of a payout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayoutAmount {
    /// The whole balance.
    Balance,
    /// This amount.
    Units(Amount),
}

impl PayoutAmount {
    /// The amount as a [`PayoutAmount`]; `None` for zero.
    pub const fn units(amount: Amount) -> Option<Self> {
        if amount.is_zero() {
            None
        } else {
            Some(Self::Units(amount))
        }
    }
}

/// The reason that a payout is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayoutRefusal {
    /// The deployment has no facilitator.
    NotSetUp,
    /// Operators have frozen the agent, alone or with others.
    Frozen(Freeze),
    /// The agent has no payout address.
    NoAddress,
    /// The delay of the payout address is not over.
    AddressWaits {
        /// The time from which the address can be used.
        good_from: Timestamp,
    },
    /// Another payout of the agent is open.
    PayoutOpen {
        /// The open payout.
        settlement: SettlementId,
        /// The time from which the chain refuses it.
        until: Timestamp,
    },
    /// The balance is zero, or less than the amount.
    InsufficientBalance {
        /// The balance.
        balance: Amount,
    },
}

impl PayoutRefusal {
    /// The reason, in snake case.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NotSetUp => "not_set_up",
            Self::Frozen(freeze) => freeze.reason(),
            Self::NoAddress => "no_payout_address",
            Self::AddressWaits { .. } => "payout_address_waits",
            Self::PayoutOpen { .. } => "payout_open",
            Self::InsufficientBalance { .. } => "insufficient_balance",
        }
    }
}

/// The facts for the decision on a payout.
#[derive(Clone, Copy, Debug)]
pub struct PayoutFacts<'a> {
    /// The agent's id.
    pub agent: AgentId,
    /// The agent's owner, who requests the payout.
    pub owner: &'a PersonId,
    /// The stored record.
    pub record: &'a PayoutRecord,
    /// The operators' freeze that applies to the agent.
    pub frozen_by_operators: Option<Freeze>,
    /// The latest payout and the time from which the chain refuses it, if it is not final on the chain.
    pub open: Option<(SettlementId, Timestamp)>,
    /// The wallet's balance.
    pub balance: Amount,
    /// The requested amount.
    pub asked: PayoutAmount,
    /// The time of the decision.
    pub now: Timestamp,
}

/// Permission to reserve a payout. Only [`decide_payout`] makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayoutGrant {
    agent: AgentId,
    owner: PersonId,
    to: Address,
    amount: Amount,
    at: Timestamp,
    record: PayoutRecord,
}

impl PayoutGrant {
    /// The agent's id.
    pub const fn agent(&self) -> AgentId {
        self.agent
    }

    /// The agent's owner, who asked for the payout.
    pub const fn owner(&self) -> &PersonId {
        &self.owner
    }

    /// The stored address.
    pub const fn to(&self) -> Address {
        self.to
    }

    /// The amount to pay out.
    pub const fn amount(&self) -> Amount {
        self.amount
    }

    /// The time of the decision.
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// The record that the decision used.
    pub const fn record(&self) -> &PayoutRecord {
        &self.record
    }
}

/// The payout address, after the checks that don't need the wallet's balance: the operators' freeze, the address and
/// its delay, then an open payout.
pub fn payout_address_of(
    record: &PayoutRecord,
    owner: &PersonId,
    frozen_by_operators: Option<Freeze>,
    open: Option<(SettlementId, Timestamp)>,
    now: Timestamp,
) -> Result<Address, PayoutRefusal> {
    if let Some(freeze) = frozen_by_operators {
        return Err(PayoutRefusal::Frozen(freeze));
    }
    let named = record.address_of(owner).ok_or(PayoutRefusal::NoAddress)?;
    if now < named.good_from {
        let good_from = named.good_from;
        return Err(PayoutRefusal::AddressWaits { good_from });
    }
    match open {
        Some((settlement, until)) => Err(PayoutRefusal::PayoutOpen { settlement, until }),
        None => Ok(named.address),
    }
}

/// Decides on a payout. If there are several reasons to refuse it, the first is the answer: freeze, address, delay,
/// open payout, balance.
pub fn decide_payout(facts: &PayoutFacts<'_>) -> Result<PayoutGrant, PayoutRefusal> {
    let frozen = facts.frozen_by_operators;
    let to = payout_address_of(facts.record, facts.owner, frozen, facts.open, facts.now)?;
    let amount = match facts.asked {
        PayoutAmount::Balance => facts.balance,
        PayoutAmount::Units(amount) => amount,
    };
    if amount.is_zero() || amount > facts.balance {
        let balance = facts.balance;
        return Err(PayoutRefusal::InsufficientBalance { balance });
    }
    Ok(PayoutGrant {
        agent: facts.agent,
        owner: facts.owner.clone(),
        to,
        amount,
        at: facts.now,
        record: facts.record.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs).unwrap()
    }

    fn units(units: u64) -> Amount {
        Amount::from_units(units).unwrap()
    }

    fn person() -> PersonId {
        PersonId::of("https://issuer.example", "someone")
    }

    fn named(record: &PayoutRecord, byte: u8, secs: u64) -> Option<PayoutRecord> {
        let delay = Duration::from_secs_u32(100);
        record.named(Address::repeat_byte(byte), &person(), at(secs), delay)
    }

    /// Setting the same address again does not restart the delay.
    #[test]
    fn changed_payout_addresses_wait_again() {
        let first = named(&PayoutRecord::default(), 1, 1_000).unwrap();
        assert_eq!(first.address.as_ref().unwrap().good_from, at(1_100));
        assert_eq!(named(&first, 1, 1_050), None);
        let second = named(&first, 2, 1_090).unwrap();
        let address = second.address.clone().unwrap();
        assert_eq!(
            (address.good_from, address.replaced),
            (at(1_190), Some(Address::repeat_byte(1)))
        );
        let removed = second.without_address().unwrap();
        assert_eq!((removed.address.clone(), removed.without_address()), (None, None));
        // An address that is set again after its removal is delayed again.
        let again = named(&removed, 2, 2_000).unwrap();
        assert_eq!(again.version, 4);
        assert_eq!(again.address.unwrap().good_from, at(2_100));
    }

    /// A payout of `PayoutAmount::Balance` pays out the whole balance.
    #[test]
    fn payout_refusals_have_a_fixed_order() {
        let record = named(&PayoutRecord::default(), 1, 1_000).unwrap();
        let open = (SettlementId::from_uuid(Uuid::nil()), at(5_000));
        let decide_frozen = |record: &PayoutRecord, frozen_by_operators, open, secs, balance, asked| {
            let facts = PayoutFacts {
                agent: AgentId::from_uuid(Uuid::nil()),
                owner: &person(),
                record,
                frozen_by_operators,
                open,
                balance: units(balance),
                asked,
                now: at(secs),
            };
            decide_payout(&facts).map(|grant| (grant.to(), grant.amount().units()))
        };
        let decide =
            |record: &PayoutRecord, open, secs, balance, asked| decide_frozen(record, None, open, secs, balance, asked);
        let five = PayoutAmount::units(units(5)).unwrap();
        let (none, some) = (None, Some(open));
        let to = Address::repeat_byte(1);
        let rows = [
            (1_099, some, 4, five, Err("payout_address_waits")),
            (1_100, some, 4, five, Err("payout_open")),
            (1_100, none, 4, five, Err("insufficient_balance")),
            (1_100, none, 5, five, Ok((to, 5))),
            (1_100, none, 0, PayoutAmount::Balance, Err("insufficient_balance")),
            (1_100, none, 7, PayoutAmount::Balance, Ok((to, 7))),
        ];
        for (secs, open, balance, asked, expected) in rows {
            let told = decide(&record, open, secs, balance, asked).map_err(|refusal| refusal.reason());
            assert_eq!(told, expected, "{secs} {balance}");
        }
        for (freeze, reason) in [
            (Freeze::Agent, "agent_frozen:by_operator"),
            (Freeze::Owner, "agent_frozen:owner"),
            (Freeze::Deployment, "agent_frozen:deployment"),
        ] {
            let refused = decide_frozen(&PayoutRecord::default(), Some(freeze), some, 1_099, 4, five);
            assert_eq!(refused.map_err(|refusal| refusal.reason()), Err(reason));
        }
        // Another owner has not set an address.
        let other = PersonId::of("https://issuer.example", "another");
        let refused = payout_address_of(&record, &other, None, None, at(9_000));
        assert_eq!(refused, Err(PayoutRefusal::NoAddress));
        let handed = record.named(to, &other, at(9_000), Duration::DAY).unwrap();
        assert_eq!(handed.address.unwrap().good_from, at(9_000).after(Duration::DAY));
        let nobody = decide(&PayoutRecord::default(), some, 1_100, 4, five);
        assert_eq!(nobody, Err(PayoutRefusal::NoAddress));
        assert_eq!(PayoutAmount::units(Amount::ZERO), None);
    }

    #[test]
    fn wallet_and_token_addresses_receive_no_payouts() {
        let (wallet, token) = (Address::repeat_byte(7), Network::Base.token().address);
        let check = |address| check_payout_address(address, wallet, Network::Base);
        assert_eq!(check(wallet), Err(PayoutAddressError::OwnWallet));
        assert_eq!(check(token), Err(PayoutAddressError::Token));
        assert_eq!(check(Address::repeat_byte(8)), Ok(()));
    }
}
