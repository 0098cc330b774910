//! From facts to a decision: what authorize and the preflight have in common.

use crate::Payments;
use purser_domain::{
    Agent, Amount, ApprovalId, Block, Decision, Eviction, Facts, Fits, Intent, Purchase, Reason, Result, Timestamp,
    Window, evaluate, recorded_time,
};
use purser_store::Standing;

/// What is decided about, besides the agent's standing with the service.
#[derive(Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) intent: &'a Intent,
    pub(crate) purchase: Purchase<'a>,
    /// The approval that the request carries, checked to be its own and approved.
    pub(crate) approval: Option<ApprovalId>,
    pub(crate) eviction: Eviction,
}

/// A refusal that rests on a window, and how exact the window as read can be about it.
pub(crate) enum Exactness {
    /// Nothing more to read.
    Exact,
    /// There may be more entries that no longer count: the refusal may be wrong.
    HidesExpired,
    /// More entries are needed to say when the call fits.
    NeedsMore,
}

impl Payments {
    /// Decides. The wallet is only asked for its balance when everything else is in favour.
    pub(crate) async fn decide<'a>(&self, case: Case<'a>, standing: &'a Standing) -> Decision<'a> {
        let without_balance = Facts {
            agent: case.agent,
            intent: case.intent,
            offer: &case.intent.offer,
            service: case.purchase.service,
            operation: case.purchase.operation,
            enabled: standing.enabled.as_ref(),
            day: &standing.day,
            budgets: &standing.budgets,
            approval: case.approval,
            balance: None,
            at: recorded_time(self.clock.now(), windows(standing)),
            eviction: case.eviction,
        };
        match evaluate(&without_balance) {
            Decision::Allow(grant) => match self.balance(case.agent).await {
                Some(balance) => evaluate(&Facts {
                    balance: Some(balance),
                    ..without_balance
                }),
                None => Decision::Allow(grant),
            },
            decided @ (Decision::Refuse(_) | Decision::NeedsTarget) => decided,
        }
    }

    /// The wallet's balance, or `None` when the chain can't be asked: the chain enforces balances itself, and
    /// authorizing must outlive an outage of the RPC node.
    async fn balance(&self, agent: &Agent) -> Option<Amount> {
        match self.chain.balance(agent.wallet.address).await {
            Ok(balance) => Some(balance),
            Err(error) => {
                tracing::warn!(agent.id = %agent.id, %error, "balance.unavailable");
                None
            }
        }
    }

    /// Reads the next entries of the window that a refusal rests on.
    pub(crate) async fn read_further(&self, reason: &Reason, standing: &mut Standing) -> Result<()> {
        if let Some((window, _)) = refusing_window(reason, standing) {
            *window = self.ledger.read_further(window).await?;
        }
        Ok(())
    }
}

fn windows(standing: &Standing) -> impl Iterator<Item = &Window> {
    std::iter::once(&standing.day).chain(standing.budgets.iter().map(|(_, window)| window))
}

/// The window that a refusal rests on, and when it said the call fits; `None` for refusals that rest on none.
pub(crate) fn refusing_window<'a>(reason: &Reason, standing: &'a mut Standing) -> Option<(&'a mut Window, Fits)> {
    match reason {
        Reason::DailyLimit { retry_at, .. } => Some((&mut standing.day, *retry_at)),
        Reason::PolicyBlocked(Block::Budget { rule, retry_at, .. }) => {
            let budget = standing.budgets.iter_mut().find(|(id, _)| id == rule);
            budget.map(|(_, window)| (window, *retry_at))
        }
        Reason::ServiceNotEnabled { .. }
        | Reason::OperationNotEnabled { .. }
        | Reason::DomainNotAllowed { .. }
        | Reason::AmountExceedsMax { .. }
        | Reason::PerCallLimit { .. }
        | Reason::PolicyBlocked(_)
        | Reason::ApprovalRequired { .. }
        | Reason::InsufficientBalance { .. } => None,
    }
}

/// How exact a refusal judged at `at` is.
pub(crate) fn exactness(reason: &Reason, standing: &mut Standing, at: Timestamp) -> Exactness {
    match refusing_window(reason, standing) {
        Some((window, _)) if window.hides_expired(at) => Exactness::HidesExpired,
        Some((_, Fits::ReadMore)) => Exactness::NeedsMore,
        Some(_) | None => Exactness::Exact,
    }
}
