//! A wallet's balance, asked for before the agent's record says whose wallet it is.
//!
//! The node is far away: its answer takes longer than all else that a decision reads. Where an agent's last call here came
//! down to its balance, the next one most likely does too, and from the same wallet: it is asked for beside those reads.
//!
//! Always true: a balance counts for the wallet that it was asked for and for no other, whatever was remembered; only a
//! key that was good for the agent as it was seen last makes us ask, so no stranger can; asking uses up what is remembered,
//! so whoever is refused, or repeats a call, makes nobody ask again before a balance counts; and nobody gets in by what is
//! remembered, since the key is judged by the record that is read now.

use crate::Payments;
use purser_api::AgentCredentials;
use purser_domain::{Address, Agent, AgentId, Amount, Timestamp};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinSet;
use tracing::Instrument as _;

/// How many agents one environment keeps in mind; beyond that it starts anew. A record takes a few kilobytes.
const MOST_SEEN: usize = 1_000;

/// The agents whose last call here came down to their balance, as their records were then.
#[derive(Debug, Default)]
pub(crate) struct SeenAgents(Mutex<HashMap<AgentId, Agent>>);

impl SeenAgents {
    /// Keeps an agent in mind, whose key was found good and whose balance counts.
    pub(crate) fn remember(&self, agent: &Agent) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.get(&agent.id).is_some_and(|known| known.version == agent.version) {
            return;
        }
        if seen.len() >= MOST_SEEN {
            seen.clear();
        }
        seen.insert(agent.id, agent.clone());
    }

    /// The agent that presents this key, if the key was good for it as it was seen last; it is not in mind any more.
    fn take(&self, caller: &AgentCredentials, now: Timestamp) -> Option<Agent> {
        let key = caller.key.as_ref().ok()?;
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !key.is_valid_for(seen.get(&key.agent), now) {
            return None;
        }
        seen.remove(&key.agent)
    }
}

/// A balance that is being asked for. Nobody asks any more once this is dropped.
#[derive(Debug)]
pub(crate) struct EarlyBalance {
    /// Whose it is.
    wallet: Address,
    asking: JoinSet<Option<Amount>>,
}

impl EarlyBalance {
    /// Begins to ask, where the caller's last call came down to its balance.
    pub(crate) fn of_caller(payments: &Arc<Payments>, caller: &AgentCredentials) -> Option<Self> {
        let agent = payments.seen.take(caller, payments.clock.now())?;
        Some(Self::of_agent(payments, &agent))
    }

    /// Begins to ask for the agent's.
    pub(crate) fn of_agent(payments: &Arc<Payments>, agent: &Agent) -> Self {
        let (id, wallet) = (agent.id, agent.wallet.address);
        let payments = Arc::clone(payments);
        let mut asking = JoinSet::new();
        asking.spawn(async move { payments.balance(id, wallet).await }.in_current_span());
        Self { wallet, asking }
    }

    /// The answer, if it was asked for this wallet.
    pub(crate) async fn of_wallet(mut self, wallet: Address) -> Option<Option<Amount>> {
        if self.wallet != wallet {
            return None;
        }
        self.asking.join_next().await?.ok()
    }
}
