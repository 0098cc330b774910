//! Withdrawals to an address that the agent's owner sets. The Lambda function `payments` performs them.

use crate::agents::owned::OwnedAgent;
use crate::state::People;
use purser_api::{Attempts, CallerIds, DirectRequest, ReservedWithdrawal};
use purser_domain::{
    Act, Address, AuditKind, Error, Result, Settlement, SettlementState, Submission, UserId, WithdrawalAddress,
    WithdrawalAmount, WithdrawalRejection,
};
use serde_json::json;

/// An agent's withdrawal address and open withdrawal.
#[derive(Clone, Debug)]
pub(crate) struct Withdrawals {
    pub(crate) is_set_up: bool,
    pub(crate) address: Option<WithdrawalAddress>,
    pub(crate) open: Option<Settlement>,
}

pub(crate) struct MadeWithdrawal {
    pub(crate) settlement: Settlement,
    /// The facilitator's response to this request; `None` if nothing was submitted.
    pub(crate) submission: Option<Submission>,
    /// Whether an earlier request created the withdrawal.
    pub(crate) replayed: bool,
}

impl People {
    pub(crate) async fn read_withdrawals(&self, owned: &OwnedAgent) -> Result<Withdrawals> {
        let (agent, user) = (owned.agent().id, require_owner_id(owned)?);
        let record = self.ledger.read_withdrawal_record(agent).await?;
        let latest = match record.latest {
            Some(id) => self.ledger.read_settlement_by_id(agent, id).await?,
            None => None,
        };
        Ok(Withdrawals {
            is_set_up: self.pays_out,
            address: record.address_set_by(&user).cloned(),
            open: latest.filter(|payout| payout.state == SettlementState::Authorized),
        })
    }

    /// The address becomes usable after a delay. Requires a recent sign-in.
    pub(crate) async fn set_withdrawal_address(
        &self,
        owned: &OwnedAgent,
        ids: CallerIds,
        address: Address,
    ) -> Result<()> {
        let (agent, acting) = (owned.agent().id, owned.acting());
        let action = Act::new(AuditKind::PayoutAddressNamed).on_agent(agent);
        let named = async {
            self.limits.require_recent_sign_in(owned.signed_in_at(), self.now())?;
            self.require_withdrawals_enabled()?;
            let body = json!({"address": address.to_checksum(None)});
            let request = withdrawal_request("PUT", owned, "payout-address").with_body(Some(body));
            self.payments.send::<()>(ids, request, Attempts::Two).await
        };
        self.audit_rejection(acting, &action, named).await
    }

    /// Requires no recent sign-in, because removing the address only prevents withdrawals.
    pub(crate) async fn remove_withdrawal_address(&self, owned: &OwnedAgent, ids: CallerIds) -> Result<()> {
        let (agent, acting) = (owned.agent().id, owned.acting());
        let action = Act::new(AuditKind::PayoutAddressRemoved).on_agent(agent);
        let request = withdrawal_request("DELETE", owned, "payout-address");
        let removed = self.payments.send::<()>(ids, request, Attempts::Two);
        self.audit_rejection(acting, &action, removed).await
    }

    /// Requires a recent sign-in. A repeated request with the same idempotency `key` and amount returns the
    /// same withdrawal.
    pub(crate) async fn withdraw_to_owner(
        &self,
        owned: &OwnedAgent,
        ids: CallerIds,
        amount: WithdrawalAmount,
        key: &str,
    ) -> Result<MadeWithdrawal> {
        const OPERATION: &str = "withdrawing from a wallet";
        let (agent, acting) = (owned.agent().id, owned.acting());
        let action = Act::new(AuditKind::PaidOut).on_agent(agent);
        let paid = async {
            self.limits.require_recent_sign_in(owned.signed_in_at(), self.now())?;
            self.require_withdrawals_enabled()?;
            let amount_units = match amount {
                WithdrawalAmount::Balance => None,
                WithdrawalAmount::Units(amount) => Some(amount),
            };
            let body = json!({"amount_units": amount_units, "idempotency_key": key});
            let request = withdrawal_request("POST", owned, "payouts").with_body(Some(body));
            // The facilitator takes longer than a first of two attempts.
            self.payments.send(ids, request, Attempts::One).await
        };
        let reserved: ReservedWithdrawal = self.audit_rejection(acting, &action, paid).await?;
        let settlement = self.ledger.read_settlement_by_id(agent, reserved.settlement).await?;
        Ok(MadeWithdrawal {
            settlement: settlement.ok_or_else(|| Error::internal(OPERATION, "the settlement no longer exists"))?,
            submission: reserved.submission,
            replayed: reserved.replayed,
        })
    }

    fn require_withdrawals_enabled(&self) -> Result<()> {
        if self.pays_out {
            Ok(())
        } else {
            Err(WithdrawalRejection::NotSetUp.into())
        }
    }
}

/// Creates a request of the owner to a route of the agent. The function `payments` checks the owner again.
fn withdrawal_request(method: &str, owned: &OwnedAgent, route: &str) -> DirectRequest {
    DirectRequest::new(method, format!("/agents/{}/{route}", owned.agent().id)).for_user(owned.acting())
}

fn require_owner_id(owned: &OwnedAgent) -> Result<UserId> {
    let user = UserId::parse(&owned.agent().owner);
    user.ok_or_else(|| Error::internal("reading an agent's owner", "the owner is not a user id"))
}
