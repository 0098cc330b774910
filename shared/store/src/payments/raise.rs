//! An agent's request for a raise: one approval for each refusal, so that a repeated request finds the first.
//!
//! The number of an agent's waiting approvals is limited (`waiting.rs`), and requests for raises count among them.

use crate::{
    codec::backoff::Backoff,
    codec::ledger::Ledger,
    people::approval::write_approval,
    transact::{Transaction, TransactionOutcome},
};
use purser_domain::{Approval, Result};

/// The result of asking for a raise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RaiseAsked {
    /// The request waits for a person.
    New(Approval),
    /// There is a request after this refusal already, decided or not. The caller compares the terms.
    Already(Approval),
    /// The agent has the maximum number of waiting approvals. Nothing was written.
    TooMany,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Approval,
    Waiting,
}

impl Ledger {
    /// Stores a request for a raise, if fewer than `most` of the agent's approvals wait.
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
            if let Some(item) = refusal.met(Role::Approval) {
                return Ok(RaiseAsked::Already(self.read_approval(asked.id, item)?));
            }
            if let Some(full) = refusal.met(Role::Waiting)
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
