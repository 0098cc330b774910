//! Background for one approval: the balance, the agent's latest decisions, and the agent's payments to the payee.

use crate::approvals::operations::OwnApproval;
use crate::state::People;
use purser_domain::{Amount, LoggedDecision, ReceiptStatus, Result, Settlement, Timestamp};

/// The number of the agent's latest decisions on the page.
const MAX_DECISIONS: u32 = 5;

const PAGE_SIZE: u32 = 100;
const READS: u32 = 2;

#[derive(Debug)]
pub(crate) struct Background {
    /// `None` if the chain can't be reached.
    pub(crate) balance: Option<Amount>,
    /// The agent's latest decisions, newest first.
    pub(crate) latest: Vec<LoggedDecision>,
    pub(crate) payee: PayeeHistory,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PayeeHistory {
    /// The number of payments to the payee, except expired payments.
    pub(crate) count: usize,
    /// The time of the latest payment to the payee.
    pub(crate) last: Option<Timestamp>,
    /// The number of the agent's payments that were searched.
    pub(crate) of: usize,
    pub(crate) is_all: bool,
}

impl People {
    pub(crate) async fn read_approval_background(&self, owned_approval: &OwnApproval) -> Result<Background> {
        let (agent, transfers) = (owned_approval.agent().id, owned_approval.agent().transfer_count());
        let (balance, mut latest, payee) = tokio::try_join!(
            async { Ok(self.read_wallet_balance(owned_approval.owned_agent()).await) },
            self.ledger.read_decisions(agent, None, MAX_DECISIONS),
            self.read_payee_history(owned_approval),
        )?;
        latest.retain(|decision| decision.transfer_count() == transfers);
        Ok(Background { balance, latest, payee })
    }

    async fn read_payee_history(&self, owned_approval: &OwnApproval) -> Result<PayeeHistory> {
        let mut history = PayeeHistory::default();
        let mut before = None;
        for _ in 0..READS {
            let read = self
                .ledger
                .read_settlements(owned_approval.agent().id, before, PAGE_SIZE)
                .await?;
            history.is_all = u32::try_from(read.len()).unwrap_or(u32::MAX) < PAGE_SIZE;
            before = read.last().map(|settlement| settlement.id().uuid());
            // Payments that the agent made for a former owner are not shown.
            let is_own =
                |settlement: &&Settlement| settlement.terms.transfers == owned_approval.agent().transfer_count();
            history.of = history.of.saturating_add(read.iter().filter(is_own).count());
            let to_payee = |settlement: &&Settlement| {
                is_own(settlement)
                    && settlement.terms.pay_to == owned_approval.approval().pay_to
                    && settlement.state.receipt_status() != ReceiptStatus::Expired
            };
            let to_payee: Vec<&Settlement> = read.iter().filter(to_payee).collect();
            history.count = history.count.saturating_add(to_payee.len());
            let newest = to_payee.first().map(|settlement| settlement.terms.authorized_at);
            history.last = history.last.or(newest);
            if history.is_all {
                break;
            }
        }
        Ok(history)
    }
}
