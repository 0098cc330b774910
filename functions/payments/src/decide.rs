//! From facts to a decision: what authorize and the preflight have in common.

use crate::Payments;
use crate::early_balance::EarlyBalance;
use purser_domain::{
    Address, Agent, AgentId, Amount, ApprovalId, Block, Decision, Denial, Duration, Error, Eviction, Facts, Fits,
    Intent, Purchase, Reason, Result, Timestamp, Window, evaluate, recorded_time,
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
    /// The refusal holds; more entries are needed to say when the call fits.
    NeedsMore,
}

impl Payments {
    /// The time that a decision on this standing would record now.
    pub(crate) fn recorded_time(&self, standing: &Standing) -> Timestamp {
        recorded_time(self.clock.now(), standing.windows())
    }

    /// Decides. The wallet's balance is waited for only when everything else is in favour; unless it was asked for early,
    /// it is asked for then.
    pub(crate) async fn decide<'a>(
        &self,
        case: Case<'a>,
        standing: &'a Standing,
        early: Option<EarlyBalance>,
    ) -> Decision<'a> {
        let without_balance = Facts {
            agent: case.agent,
            intent: case.intent,
            service: case.purchase.service,
            operation: case.purchase.operation,
            network: self.network,
            enabled: standing.enabled.as_ref(),
            day: &standing.day,
            budgets: &standing.budgets,
            approval: case.approval,
            balance: None,
            at: self.recorded_time(standing),
            eviction: case.eviction,
        };
        match evaluate(&without_balance) {
            Decision::Allow(grant) => {
                self.seen.remember(case.agent);
                match self.balance_of(case.agent, early).await {
                    Some(balance) => evaluate(&Facts {
                        balance: Some(balance),
                        ..without_balance
                    }),
                    None => Decision::Allow(grant),
                }
            }
            decided @ (Decision::Refuse(_) | Decision::NeedsTarget) => decided,
        }
    }

    async fn balance_of(&self, agent: &Agent, early: Option<EarlyBalance>) -> Option<Amount> {
        let wallet = agent.wallet.address;
        let early = match early {
            Some(early) => early.of_wallet(wallet).await,
            None => None,
        };
        match early {
            Some(answered) => answered,
            None => self.balance(agent.id, wallet).await,
        }
    }

    /// The agent's wallet's balance, or `None` when the chain can't be asked: the chain enforces balances itself, and
    /// authorizing must outlive an outage of the RPC node.
    pub(crate) async fn balance(&self, agent: AgentId, wallet: Address) -> Option<Amount> {
        match self.chain.balance(wallet).await {
            Ok(balance) => Some(balance),
            Err(error) => {
                tracing::warn!(agent.id = %agent, %error, "balance.unavailable");
                None
            }
        }
    }

    /// The reason for a refusal, where nothing is staged for it: a question that is one too many is a block.
    pub(crate) async fn foreseen(&self, case: Case<'_>, denial: &Denial) -> Result<Reason> {
        let limit = self.most_open_approvals;
        let (agent, fingerprint) = (case.agent.id, &case.intent.fingerprint);
        if denial.escalates() && self.ledger.asks_too_many(agent, fingerprint, limit, denial.at).await? {
            return Ok(Reason::PolicyBlocked(Block::TooManyApprovals { limit }));
        }
        Ok(denial.reason.clone())
    }

    /// Reads the next entries of the window that a refusal rests on.
    pub(crate) async fn read_further(&self, reason: &Reason, standing: &mut Standing) -> Result<()> {
        match refusing_window(reason, standing) {
            Some((window, _)) => self.ledger.read_further(window).await,
            None => Ok(()),
        }
    }

    /// An error where a call that began then has gone through a window for long enough.
    pub(crate) fn still_in_time(&self, started: Timestamp) -> Result<()> {
        if self.clock.now().since(started) < LONGEST {
            Ok(())
        } else {
            Err(too_much())
        }
    }
}

/// How long a call may go through a window, from its own beginning: what is left of the function's 15 s is for what was to
/// be decided.
const LONGEST: Duration = Duration::from_secs_u32(8);

fn too_much() -> Error {
    Error::temporarily_unavailable("going through a window", "too much has rolled out of it")
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
        Some((window, fits)) if window.tells_more(fits) => Exactness::NeedsMore,
        Some(_) | None => Exactness::Exact,
    }
}
