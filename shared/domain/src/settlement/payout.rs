//! Withdrawals: an owner withdraws an agent's money to the withdrawal address that the owner set before.
//!
//! Only [`decide_withdrawal`] creates the [`WithdrawalGrant`] that a withdrawal needs. A caller's request contains no
//! address. The owner's own freeze does not block a withdrawal, but a freeze by operators does, because somebody else
//! may act in the owner's name. An address is not valid for a later owner of the agent.

use crate::{Address, AgentId, Amount, Duration, Freeze, Network, SettlementId, Timestamp, UserId};

/// The address to which the owner may withdraw the agent's money, after a delay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithdrawalAddress {
    /// The address that receives withdrawals.
    pub address: Address,
    /// The time at which the address was set.
    pub named_at: Timestamp,
    /// The time from which withdrawals to the address are allowed.
    pub good_from: Timestamp,
    /// The user who set the address.
    pub named_by: UserId,
    /// The previous address, even if the address was removed before; `None` for the first address.
    pub replaced: Option<Address>,
}

/// The state of an agent's withdrawals. Without a stored record, it is [`WithdrawalRecord::default`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WithdrawalRecord {
    /// The withdrawal address, if one is set.
    pub address: Option<WithdrawalAddress>,
    /// The last withdrawal address, if the owner removed it.
    pub removed: Option<Address>,
    /// The latest withdrawal, which may still be open.
    pub latest: Option<SettlementId>,
    /// The version of the agent's withdrawal record, which each write increments.
    pub version: u64,
}

impl WithdrawalRecord {
    /// Returns the address if this user set it. An earlier owner's address is not valid.
    pub fn address_set_by(&self, owner: &UserId) -> Option<&WithdrawalAddress> {
        self.address.as_ref().filter(|address| address.named_by == *owner)
    }

    /// Returns the record after the user sets this address, which is usable after `delay`. `None` if the user already
    /// set the address, so that the delay continues.
    #[must_use]
    pub fn with_address(&self, address: Address, user: &UserId, now: Timestamp, delay: Duration) -> Option<Self> {
        let present = self.address.as_ref().map(|present| present.address);
        let stands = self
            .address_set_by(user)
            .is_some_and(|stands| stands.address == address);
        (!stands).then(|| Self {
            address: Some(WithdrawalAddress {
                address,
                named_at: now,
                good_from: now.after(delay),
                named_by: user.clone(),
                replaced: present.or(self.removed),
            }),
            removed: None,
            latest: self.latest,
            version: self.version.saturating_add(1),
        })
    }

    /// Returns the record without the address; `None` if no address is set.
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

/// Why an address can't be a withdrawal address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WithdrawalAddressError {
    /// The address is the agent's wallet.
    #[error("must not be the agent's own wallet")]
    OwnWallet,
    /// The address is the token's contract. Money sent there would be lost.
    #[error("must not be the token's contract")]
    Token,
}

/// Checks that withdrawals may go to this address.
pub fn check_withdrawal_address(
    address: Address,
    wallet: Address,
    network: Network,
) -> Result<(), WithdrawalAddressError> {
    if address == wallet {
        Err(WithdrawalAddressError::OwnWallet)
    } else if address == network.token().address {
        Err(WithdrawalAddressError::Token)
    } else {
        Ok(())
    }
}

/// The requested amount of a withdrawal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithdrawalAmount {
    /// The whole balance of the agent's wallet.
    Balance,
    /// An amount in micro-USDC.
    Units(Amount),
}

impl WithdrawalAmount {
    /// Creates a fixed amount. Returns `None` for zero.
    pub const fn from_amount(amount: Amount) -> Option<Self> {
        if amount.is_zero() {
            None
        } else {
            Some(Self::Units(amount))
        }
    }
}

/// Why a withdrawal is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithdrawalRejection {
    /// The deployment has no facilitator.
    NotSetUp,
    /// An operators' freeze applies to the agent.
    Frozen(Freeze),
    /// The agent has no withdrawal address.
    NoAddress,
    /// The delay of the withdrawal address is not over yet.
    AddressWaits {
        /// The time from which withdrawals to the address are allowed.
        good_from: Timestamp,
    },
    /// Another withdrawal of the agent is neither confirmed nor expired.
    PayoutOpen {
        /// The id of the open withdrawal.
        settlement: SettlementId,
        /// The time from which the chain rejects the open withdrawal.
        until: Timestamp,
    },
    /// The wallet's balance is zero, or less than the requested amount.
    InsufficientBalance {
        /// The balance of the agent's wallet, in micro-USDC.
        balance: Amount,
    },
}

impl WithdrawalRejection {
    /// Returns the reason in snake case.
    pub const fn reason_name(&self) -> &'static str {
        match self {
            Self::NotSetUp => "not_set_up",
            Self::Frozen(freeze) => freeze.reason_text(),
            Self::NoAddress => "no_payout_address",
            Self::AddressWaits { .. } => "payout_address_waits",
            Self::PayoutOpen { .. } => "payout_open",
            Self::InsufficientBalance { .. } => "insufficient_balance",
        }
    }
}

/// The inputs for the decision about a withdrawal.
#[derive(Clone, Copy, Debug)]
pub struct WithdrawalInputs<'a> {
    /// The agent whose money the owner withdraws.
    pub agent: AgentId,
    /// The agent's owner, who requests the withdrawal.
    pub owner: &'a UserId,
    /// The agent's stored withdrawal address and latest withdrawal.
    pub record: &'a WithdrawalRecord,
    /// The operators' freeze that applies to the agent.
    pub frozen_by_operators: Option<Freeze>,
    /// The open withdrawal and the time from which the chain rejects the payment; `None` if none is open.
    pub open: Option<(SettlementId, Timestamp)>,
    /// The balance of the agent's wallet, in micro-USDC.
    pub balance: Amount,
    /// The amount that the owner requested.
    pub asked: WithdrawalAmount,
    /// The current time, at which the decision is made.
    pub now: Timestamp,
}

/// The permission to reserve a withdrawal. Only [`decide_withdrawal`] creates a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithdrawalGrant {
    agent: AgentId,
    owner: UserId,
    to: Address,
    amount: Amount,
    at: Timestamp,
    record: WithdrawalRecord,
}

impl WithdrawalGrant {
    /// Returns the id of the agent whose wallet pays the withdrawal.
    pub const fn agent_id(&self) -> AgentId {
        self.agent
    }

    /// Returns the agent's owner, who requested the withdrawal.
    pub const fn owner(&self) -> &UserId {
        &self.owner
    }

    /// Returns the withdrawal address.
    pub const fn recipient(&self) -> Address {
        self.to
    }

    /// Returns the amount to withdraw.
    pub const fn amount(&self) -> Amount {
        self.amount
    }

    /// Returns the time of the decision.
    pub const fn decided_at(&self) -> Timestamp {
        self.at
    }

    /// Returns the record on which the decision was based. The reservation fails if the stored version
    /// differs.
    pub const fn base_record(&self) -> &WithdrawalRecord {
        &self.record
    }
}

/// Returns the withdrawal address after all checks that don't need the wallet's balance.
pub fn usable_withdrawal_address(
    record: &WithdrawalRecord,
    owner: &UserId,
    frozen_by_operators: Option<Freeze>,
    open_withdrawal: Option<(SettlementId, Timestamp)>,
    now: Timestamp,
) -> Result<Address, WithdrawalRejection> {
    if let Some(freeze) = frozen_by_operators {
        return Err(WithdrawalRejection::Frozen(freeze));
    }
    let named = record.address_set_by(owner).ok_or(WithdrawalRejection::NoAddress)?;
    if now < named.good_from {
        let good_from = named.good_from;
        return Err(WithdrawalRejection::AddressWaits { good_from });
    }
    match open_withdrawal {
        Some((settlement, until)) => Err(WithdrawalRejection::PayoutOpen { settlement, until }),
        None => Ok(named.address),
    }
}

/// Decides whether a withdrawal is allowed. The first failure is returned: freeze, address, delay, open withdrawal,
/// balance.
pub fn decide_withdrawal(inputs: &WithdrawalInputs<'_>) -> Result<WithdrawalGrant, WithdrawalRejection> {
    let frozen = inputs.frozen_by_operators;
    let to = usable_withdrawal_address(inputs.record, inputs.owner, frozen, inputs.open, inputs.now)?;
    let amount = match inputs.asked {
        WithdrawalAmount::Balance => inputs.balance,
        WithdrawalAmount::Units(amount) => amount,
    };
    if amount.is_zero() || amount > inputs.balance {
        let balance = inputs.balance;
        return Err(WithdrawalRejection::InsufficientBalance { balance });
    }
    Ok(WithdrawalGrant {
        agent: inputs.agent,
        owner: inputs.owner.clone(),
        to,
        amount,
        at: inputs.now,
        record: inputs.record.clone(),
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

    fn person() -> UserId {
        UserId::derive("https://issuer.example", "someone")
    }

    fn named(record: &WithdrawalRecord, byte: u8, secs: u64) -> Option<WithdrawalRecord> {
        let delay = Duration::from_secs_u32(100);
        record.with_address(Address::repeat_byte(byte), &person(), at(secs), delay)
    }

    #[test]
    fn a_changed_withdrawal_address_waits_for_the_full_delay_again() {
        let first = named(&WithdrawalRecord::default(), 1, 1_000).unwrap();
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
        // An address that is set again waits again.
        let again = named(&removed, 2, 2_000).unwrap();
        assert_eq!(again.version, 4);
        assert_eq!(again.address.unwrap().good_from, at(2_100));
    }

    #[test]
    fn withdrawal_rejections_have_a_fixed_order() {
        let record = named(&WithdrawalRecord::default(), 1, 1_000).unwrap();
        let open = (SettlementId::from_uuid(Uuid::nil()), at(5_000));
        let decide_frozen = |record: &WithdrawalRecord, frozen_by_operators, open, secs, balance, asked| {
            let facts = WithdrawalInputs {
                agent: AgentId::from_uuid(Uuid::nil()),
                owner: &person(),
                record,
                frozen_by_operators,
                open,
                balance: units(balance),
                asked,
                now: at(secs),
            };
            decide_withdrawal(&facts).map(|grant| (grant.recipient(), grant.amount().units()))
        };
        let decide = |record: &WithdrawalRecord, open, secs, balance, asked| {
            decide_frozen(record, None, open, secs, balance, asked)
        };
        let five = WithdrawalAmount::from_amount(units(5)).unwrap();
        let (none, some) = (None, Some(open));
        let to = Address::repeat_byte(1);
        let rows = [
            (1_099, some, 4, five, Err("payout_address_waits")),
            (1_100, some, 4, five, Err("payout_open")),
            (1_100, none, 4, five, Err("insufficient_balance")),
            (1_100, none, 5, five, Ok((to, 5))),
            (1_100, none, 0, WithdrawalAmount::Balance, Err("insufficient_balance")),
            (1_100, none, 7, WithdrawalAmount::Balance, Ok((to, 7))),
        ];
        for (secs, open, balance, asked, expected) in rows {
            let told = decide(&record, open, secs, balance, asked).map_err(|refusal| refusal.reason_name());
            assert_eq!(told, expected, "{secs} {balance}");
        }
        for (freeze, reason) in [
            (Freeze::Agent, "agent_frozen:by_operator"),
            (Freeze::Owner, "agent_frozen:owner"),
            (Freeze::Deployment, "agent_frozen:deployment"),
        ] {
            let refused = decide_frozen(&WithdrawalRecord::default(), Some(freeze), some, 1_099, 4, five);
            assert_eq!(refused.map_err(|refusal| refusal.reason_name()), Err(reason));
        }
        let other = UserId::derive("https://issuer.example", "another");
        let refused = usable_withdrawal_address(&record, &other, None, None, at(9_000));
        assert_eq!(refused, Err(WithdrawalRejection::NoAddress));
        let handed = record.with_address(to, &other, at(9_000), Duration::DAY).unwrap();
        assert_eq!(handed.address.unwrap().good_from, at(9_000).after(Duration::DAY));
        let nobody = decide(&WithdrawalRecord::default(), some, 1_100, 4, five);
        assert_eq!(nobody, Err(WithdrawalRejection::NoAddress));
        assert_eq!(WithdrawalAmount::from_amount(Amount::ZERO), None);
    }

    #[test]
    fn withdrawals_to_wallet_and_token_addresses_are_rejected() {
        let (wallet, token) = (Address::repeat_byte(7), Network::Base.token().address);
        let check = |address| check_withdrawal_address(address, wallet, Network::Base);
        assert_eq!(check(wallet), Err(WithdrawalAddressError::OwnWallet));
        assert_eq!(check(token), Err(WithdrawalAddressError::Token));
        assert_eq!(check(Address::repeat_byte(8)), Ok(()));
    }
}
