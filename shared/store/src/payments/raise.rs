//! An agent's request for a temporary limit increase: one approval for each blocked payment, so that a repeated request
//! finds the first.
//!
//! The number of an agent's pending approvals is limited (`waiting.rs`), and these requests count as pending approvals.

use crate::{
    codec::backoff::Backoff,
    codec::ledger::Ledger,
    people::approval::write_approval,
    transact::{Transaction, TransactionOutcome},
};
use purser_domain::{Approval, Result};

/// The result of requesting a temporary limit increase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RaiseAsked {
    /// The request is pending.
    New(Approval),
    /// An earlier request exists for this blocked payment, decided or not. The caller compares the parameters.
    Already(Approval),
    /// The agent has the maximum number of pending approvals. Nothing was written.
    TooMany,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Approval,
    Waiting,
}

impl Ledger {
    /// Stores a request for a temporary limit increase, if fewer than `most` of the agent's approvals are pending.
    pub async fn ask_for_raise(&self, asked: &Approval, most: u32) -> Result<RaiseAsked> {
        let mut backoff = Backoff::new();
        loop {
            let mut transaction = Transaction::new();
            transaction.put(Role::Approval, self.put_new(write_approval(asked)))?;
            transaction.update(Role::Waiting, self.add_waiting(asked, most))?;
            let TransactionOutcome::Refused(refusal) = transaction.send_until_known(&self.db, &mut backoff).await?
            else {
                return Ok(RaiseAsked::New(asked.clone()));
            };
            if let Some(item) = refusal.existing(Role::Approval) {
                return Ok(RaiseAsked::Already(self.read_approval(asked.id, item)?));
            }
            if let Some(full) = refusal.existing(Role::Waiting)
                && !self
                    .make_room(asked.agent, full, asked.created_at, &mut backoff)
                    .await?
            {
                return Ok(RaiseAsked::TooMany);
            }
            backoff.wait().await?;
        }
    }
}
