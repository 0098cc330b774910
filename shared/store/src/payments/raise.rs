//! An agent's requests for temporary limit increases. At most one request per service is pending.

use crate::{
    codec::backoff::Backoff,
    codec::ledger::Ledger,
    payments::escalate::next_approval_sequence,
    people::approval::write_approval,
    transact::{Transaction, TransactionOutcome},
};
use purser_domain::{Approval, ApprovalId, LimitIncreaseRequest, Result};

/// The result of an agent's request for a temporary limit increase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitIncreaseRequestResult {
    /// The request is stored and pending.
    New(Approval),
    /// An earlier request for the service is pending or was rejected recently. Nothing was written.
    Already(Approval),
    /// The agent has the maximum number of pending requests. Nothing was written.
    TooMany,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Approval,
    Waiting,
}

impl Ledger {
    /// Stores a request for a temporary limit increase. At most `max_waiting` of the agent's requests are pending.
    pub async fn store_limit_increase_request(
        &self,
        approval: &Approval,
        increase: &LimitIncreaseRequest,
        max_waiting: u32,
    ) -> Result<LimitIncreaseRequestResult> {
        let mut backoff = Backoff::new();
        loop {
            let newest = self.read_newest_approval(approval.agent, &approval.fingerprint).await?;
            let number = match newest {
                Some(newest) if newest.is_used_instead_of(increase, approval.created_at) => {
                    return Ok(LimitIncreaseRequestResult::Already(newest));
                }
                newest => next_approval_sequence(newest.as_ref())?,
            };
            let request = Approval {
                id: ApprovalId::derive(approval.agent, &approval.fingerprint, number),
                raise: Some(increase.clone()),
                ..approval.clone()
            };
            let mut transaction = Transaction::new();
            transaction.add_put(Role::Approval, self.put_new_item(write_approval(&request)))?;
            transaction.add_update(Role::Waiting, self.waiting_approval_update(&request, max_waiting))?;
            let TransactionOutcome::Refused(rejection) = transaction.send_until_outcome(&self.db, &mut backoff).await?
            else {
                return Ok(LimitIncreaseRequestResult::New(request));
            };
            if rejection.existing_item(Role::Approval).is_none()
                && let Some(full) = rejection.existing_item(Role::Waiting)
                && !self.try_remove_decided_approvals(&request, full, &mut backoff).await?
            {
                return Ok(LimitIncreaseRequestResult::TooMany);
            }
            backoff.wait_for_retry().await?;
        }
    }
}
