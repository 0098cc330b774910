//! From facts to a decision: what authorize and the preflight have in common.

use crate::Payments;
use crate::early_balance::EarlyBalance;
use purser_domain::{
    Address, Agent, AgentId, Amount, CatalogMatch, Decision, Eviction, Facts, Intent, Timestamp, evaluate,
    recorded_time,
};
use purser_store::ServiceState;

impl Payments {
    /// The time that a decision on this service state would record now.
    pub(crate) fn recorded_time(&self, service_state: &ServiceState) -> Timestamp {
        recorded_time(self.clock.now(), service_state.windows())
    }

    /// What a call rests on now that carries no approval, but for the wallet's balance.
    pub(crate) fn facts<'a>(
        &self,
        agent: &'a Agent,
        intent: &'a Intent,
        matched: CatalogMatch<'a>,
        service_state: &'a ServiceState,
    ) -> Facts<'a> {
        Facts {
            agent,
            intent,
            service: matched.service,
            operation: matched.operation,
            network: self.network,
            enabled: service_state.enabled.as_ref(),
            day: &service_state.day,
            budgets: &service_state.budgets,
            approval: None,
            balance: None,
            at: self.recorded_time(service_state),
            eviction: Eviction::Eager,
        }
    }

    /// Decides. The wallet's balance is waited for only when everything else is in favour; unless it was asked for early,
    /// it is asked for then.
    pub(crate) async fn decide<'a>(&self, facts: Facts<'a>, early: Option<EarlyBalance>) -> Decision<'a> {
        match evaluate(&facts) {
            Decision::Allow(grant) => {
                self.seen.remember(facts.agent);
                match self.balance_of(facts.agent, early).await {
                    Some(balance) => evaluate(&Facts {
                        balance: Some(balance),
                        ..facts
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
}
