//! Requests a wallet's balance before the agent's record is read.
//!
//! The node is slow: its answer takes longer than all other reads of a decision. If an agent's last call in this
//! environment reached the balance check, the next one probably does too, with the same wallet. So the balance is
//! requested concurrently with those reads.
//!
//! Invariants: a balance counts only for the wallet that it was requested for. It is requested only for a key that was
//! valid for the agent's last seen record and may pay, so never for an unauthenticated caller. Each request uses up
//! the remembered agent, so a caller who is refused, or repeats a call, causes no further request until a balance
//! check is reached again. A remembered agent authenticates no call: the key is checked against the record that is
//! read now.

use crate::Payments;
use purser_api::AgentCredentials;
use purser_domain::{Address, Agent, AgentId, AgentKey, Amount, Permission, Timestamp};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinSet;
use tracing::Instrument as _;

/// The maximum number of agents that an environment remembers; beyond it, all are forgotten. A record takes a few
/// kilobytes.
const MAX_SEEN: usize = 1_000;

/// The agents whose last call in this environment reached the balance check, with their records at that time.
#[derive(Debug, Default)]
pub(crate) struct SeenAgents(Mutex<HashMap<AgentId, Agent>>);

impl SeenAgents {
    /// Remembers an agent whose key is valid and whose call reached the balance check.
    pub(crate) fn remember(&self, agent: &Agent) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.get(&agent.id).is_some_and(|known| known.version == agent.version) {
            return;
        }
        if seen.len() >= MAX_SEEN {
            seen.clear();
        }
        seen.insert(agent.id, agent.clone());
    }

    /// The agent with this key, if the key was valid for its last seen record; the agent is then forgotten.
    fn take(&self, caller: &AgentCredentials, now: Timestamp) -> Option<Agent> {
        let key = caller.key.as_ref().ok()?;
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = seen.get(&key.agent);
        let may_pay = |record: &AgentKey| record.scope.check_use(caller.key_use(Permission::Pay)).is_ok();
        if !key.is_valid_for(known, now) || !known?.key(key.key).is_some_and(may_pay) {
            return None;
        }
        seen.remove(&key.agent)
    }
}

/// A balance request in progress. Dropping it cancels the request.
#[derive(Debug)]
pub(crate) struct EarlyBalance {
    /// The wallet whose balance it is.
    wallet: Address,
    asking: JoinSet<Option<Amount>>,
}

impl EarlyBalance {
    /// Starts the request, if the caller's last call reached the balance check.
    pub(crate) fn start_for_caller(payments: &Arc<Payments>, caller: &AgentCredentials) -> Option<Self> {
        let agent = payments.seen.take(caller, payments.clock.now())?;
        Some(Self::start(payments, &agent))
    }

    /// Starts the request for the agent's wallet.
    pub(crate) fn start(payments: &Arc<Payments>, agent: &Agent) -> Self {
        let (id, wallet) = (agent.id, agent.wallet.address);
        let payments = Arc::clone(payments);
        let mut asking = JoinSet::new();
        asking.spawn(async move { payments.balance(id, wallet).await }.in_current_span());
        Self { wallet, asking }
    }

    /// The balance, if it was requested for this wallet; the inner `None` when the chain can't be reached.
    pub(crate) async fn finish(mut self, wallet: Address) -> Option<Option<Amount>> {
        if self.wallet != wallet {
            return None;
        }
        self.asking.join_next().await?.ok()
    }
}
