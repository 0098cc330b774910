//! Withdrawals: an agent's owner sets an address and withdraws the agent's money to it. `payments` performs both
//! operations with its own clock and checks. This module checks that the user owns the agent and signed in recently.

use crate::agents::owned::OwnedAgent;
use crate::state::People;
use purser_api::{AskedPayout, CallerIds, NamedPayoutAddress, PayoutOwner, ReservedPayout};
use purser_domain::{
    Act, Address, AuditKind, Error, PayoutAddress, PayoutAmount, PayoutRefusal, PersonId, Result, Settlement,
    SettlementState, Submission,
};

/// An agent's withdrawal address and open withdrawal.
#[derive(Clone, Debug)]
pub(crate) struct Payouts {
    /// Whether the deployment supports withdrawals.
    pub(crate) is_set_up: bool,
    /// The address that the owner set.
    pub(crate) address: Option<PayoutAddress>,
    /// The withdrawal in progress, if any.
    pub(crate) open: Option<Settlement>,
}

/// The result of a withdrawal request.
pub(crate) struct PaidOut {
    pub(crate) settlement: Settlement,
    /// The facilitator's response to this request. `None` if nothing was submitted.
    pub(crate) submission: Option<Submission>,
    /// Whether an earlier request created the withdrawal.
    pub(crate) replayed: bool,
}

impl People {
    /// Reads the agent's withdrawal address and open withdrawal.
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

    /// Sets the withdrawal address, which becomes usable after a delay. Requires a recent sign-in.
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

    /// Removes the withdrawal address immediately. Does not require a recent sign-in, because without an address no
    /// withdrawal is possible.
    pub(crate) async fn remove_payout_address(&self, owned: &OwnedAgent, ids: CallerIds) -> Result<()> {
        let (agent, acting) = (owned.agent().id, owned.acting());
        let act = Act::new(AuditKind::PayoutAddressRemoved).on(agent);
        let of = PayoutOwner::new(agent, acting);
        let removed = async { self.payments.remove_payout_address(ids, of).await?.done() };
        self.audit_rejection(acting, &act, removed).await
    }

    /// Withdraws to the stored address. Requires a recent sign-in. Repeating the same key returns the same withdrawal.
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

/// Returns the agent's owner, who is the calling user.
fn owner_of(owned: &OwnedAgent) -> Result<PersonId> {
    let person = PersonId::parse(&owned.agent().owner);
    person.ok_or_else(|| Error::internal("reading an agent's owner", "it is no person's id"))
}
