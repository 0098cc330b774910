//! Payouts: an agent's owner sets an address and withdraws the agent's money to it. `payments` does both, with its own
//! clock and its own checks. This module checks the ownership of the agent and the recent sign-in.

use crate::agents::owned::OwnedAgent;
use crate::state::People;
use purser_api::{AskedPayout, CallerIds, NamedPayoutAddress, PayoutOwner, ReservedPayout};
use purser_domain::{
    Act, Address, AuditKind, Error, PayoutAddress, PayoutAmount, PayoutRefusal, PersonId, Result, Settlement,
    SettlementState, Submission,
};

/// The state of an agent's payouts.
#[derive(Clone, Debug)]
pub(crate) struct Payouts {
    /// Whether the deployment makes payouts.
    pub(crate) is_set_up: bool,
    /// The address that the owner has set.
    pub(crate) address: Option<PayoutAddress>,
    /// The payout in progress, if any.
    pub(crate) open: Option<Settlement>,
}

/// A requested payout.
pub(crate) struct PaidOut {
    pub(crate) settlement: Settlement,
    /// The facilitator's response to this request; `None` if nothing was submitted.
    pub(crate) submission: Option<Submission>,
    /// Whether an earlier request created the payout.
    pub(crate) replayed: bool,
}

impl People {
    /// The agent's payout address and open payout.
    pub(crate) async fn payouts(&self, owned: &OwnedAgent) -> Result<Payouts> {
        let (agent, person) = (owned.agent().id, owner_of(owned)?);
        let record = self.ledger.payout_record(agent).await?;
        let latest = match record.latest {
            Some(id) => self.ledger.settlement(agent, id).await?,
            None => None,
        };
        Ok(Payouts {
            is_set_up: self.pays_out,
            address: record.address_of(&person).cloned(),
            open: latest.filter(|payout| payout.state == SettlementState::Authorized),
        })
    }

    /// Sets the payout address, which can be used after a delay. Requires a recent sign-in.
    pub(crate) async fn name_payout_address(&self, owned: &OwnedAgent, ids: CallerIds, address: Address) -> Result<()> {
        let (agent, acting) = (owned.agent().id, owned.acting());
        let act = Act::new(AuditKind::PayoutAddressNamed).on(agent);
        let named = async {
            self.limits.recently(owned.signed_in_at(), self.now())?;
            self.require_payouts()?;
            let asked = NamedPayoutAddress {
                of: PayoutOwner::new(agent, acting),
                address: address.to_checksum(None),
            };
            self.payments.name_payout_address(ids, asked).await?.done()
        };
        self.audit_rejection(acting, &act, named).await
    }

    /// Removes the payout address at once. Any session may do this, because afterwards nothing can be paid out.
    pub(crate) async fn remove_payout_address(&self, owned: &OwnedAgent, ids: CallerIds) -> Result<()> {
        let (agent, acting) = (owned.agent().id, owned.acting());
        let act = Act::new(AuditKind::PayoutAddressRemoved).on(agent);
        let of = PayoutOwner::new(agent, acting);
        let removed = async { self.payments.remove_payout_address(ids, of).await?.done() };
        self.audit_rejection(acting, &act, removed).await
    }

    /// Pays out to the stored address. Requires a recent sign-in. The same key returns the same payout.
    pub(crate) async fn pay_out(
        &self,
        owned: &OwnedAgent,
        ids: CallerIds,
        amount: PayoutAmount,
        key: &str,
    ) -> Result<PaidOut> {
        const DOING: &str = "paying out";
        let (agent, acting) = (owned.agent().id, owned.acting());
        let act = Act::new(AuditKind::PaidOut).on(agent);
        let paid = async {
            self.limits.recently(owned.signed_in_at(), self.now())?;
            self.require_payouts()?;
            let asked = AskedPayout::new(PayoutOwner::new(agent, acting), amount, key.to_owned());
            self.payments.pay_out(ids, asked).await?.into_reserved()
        };
        let reserved: ReservedPayout = self.audit_rejection(acting, &act, paid).await?;
        let settlement = self.ledger.settlement(agent, reserved.settlement).await?;
        Ok(PaidOut {
            settlement: settlement.ok_or_else(|| Error::internal(DOING, "its settlement is gone"))?,
            submission: reserved.submission,
            replayed: reserved.replayed,
        })
    }

    fn require_payouts(&self) -> Result<()> {
        if self.pays_out {
            Ok(())
        } else {
            Err(PayoutRefusal::NotSetUp.into())
        }
    }
}

/// The agent's owner, who is also the caller.
fn owner_of(owned: &OwnedAgent) -> Result<PersonId> {
    let person = PersonId::parse(&owned.agent().owner);
    person.ok_or_else(|| Error::internal("reading an agent's owner", "it is no person's id"))
}
