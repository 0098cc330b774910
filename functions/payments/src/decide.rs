//! Evaluates payments for `POST /x402/authorize` and `POST /x402/check`.

use crate::Payments;
use crate::early_balance::BalancePrefetch;
use purser_domain::{
    Address, Agent, AgentId, Amount, CatalogMatch, Decision, Error, EvaluationInputs, Eviction, Freeze, Intent, KeyId,
    Timestamp, Window, earliest_decision_time, evaluate,
};
use purser_store::ServiceState;

impl Payments {
    /// Returns the time to record for a decision: now, or a later time that an eviction watermark requires.
    pub(crate) fn earliest_decision_time(&self, service_state: &ServiceState) -> Timestamp {
        earliest_decision_time(self.clock.now(), service_state.all_windows())
    }

    /// Returns a retryable error, and requests the eviction of the window's expired payments. Without the request, a
    /// window without new payments would stay full.
    pub(crate) async fn request_eviction_and_build_error(&self, window: &Window) -> Error {
        if let Err(error) = self.ledger.request_eviction(window.scope, self.clock.now()).await {
            tracing::warn!(cause = %error, "eviction.not_requested");
        }
        let words = "the window has too many expired payments";
        Error::temporarily_unavailable("reading a window", words)
    }

    /// Builds the evaluation inputs of a call, without the approval, the wallet's balance and the payee's start time.
    pub(crate) fn evaluation_inputs<'a>(
        &self,
        (agent, key): (&'a Agent, KeyId),
        intent: &'a Intent,
        catalog_match: CatalogMatch<'a>,
        service_state: &'a ServiceState,
        frozen_by_operators: Option<Freeze>,
    ) -> EvaluationInputs<'a> {
        EvaluationInputs {
            agent,
            intent,
            key,
            service: catalog_match.service,
            operation: catalog_match.operation,
            payee_from: None,
            network: self.network,
            enabled: service_state.enabled.as_ref(),
            day: &service_state.day,
            budgets: &service_state.budgets,
            recent: &service_state.recent,
            frozen_by_operators,
            approval: None,
            balance: None,
            at: self.earliest_decision_time(service_state),
            eviction: Eviction::Eager,
        }
    }

    /// Evaluates the inputs. Awaits the wallet's balance only if all other checks pass.
    pub(crate) async fn decide<'a>(
        &self,
        inputs: EvaluationInputs<'a>,
        balance_prefetch: Option<BalancePrefetch>,
    ) -> Decision<'a> {
        match evaluate(&inputs) {
            Decision::Allow(grant) => {
                self.seen.remember_agent(inputs.agent);
                match self.await_or_read_balance(inputs.agent, balance_prefetch).await {
                    Some(balance) => evaluate(&EvaluationInputs {
                        balance: Some(balance),
                        ..inputs
                    }),
                    None => Decision::Allow(grant),
                }
            }
            decided @ (Decision::Refuse(_) | Decision::NeedsTarget) => decided,
        }
    }

    async fn await_or_read_balance(&self, agent: &Agent, balance_prefetch: Option<BalancePrefetch>) -> Option<Amount> {
        let wallet = agent.wallet.address;
        let prefetch = match balance_prefetch {
            Some(prefetch) => prefetch.await_balance(wallet).await,
            None => None,
        };
        match prefetch {
            Some(answered) => answered,
            None => self.read_wallet_balance(agent.id, wallet).await,
        }
    }

    /// Reads the balance of the agent's wallet. Returns `None` if the node is unavailable. The decision then continues,
    /// because the chain rejects payments above the balance.
    pub(crate) async fn read_wallet_balance(&self, agent: AgentId, wallet: Address) -> Option<Amount> {
        match self.chain.read_balance(wallet).await {
            Ok(balance) => Some(balance),
            Err(error) => {
                tracing::warn!(agent.id = %agent, %error, "balance.unavailable");
                None
            }
        }
    }
}
