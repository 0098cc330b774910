//! Requests a wallet's balance before the agent's record is read, because the RPC node is slower than all other reads
//! of a decision.
//!
//! Invariants:
//!
//! - A balance is used only for the wallet that it was requested for.
//! - No balance is requested for an unauthenticated caller: according to the agent's cached record, the caller's key is
//!   valid and may pay.
//! - A cached record causes one early request, which removes the record from the cache. The record is cached again when
//!   a call reaches the balance check. Therefore rejected and repeated calls cause no further requests.
//! - The cached record never authenticates a call. Each call checks the key against the agent's stored record.

use crate::Payments;
use purser_api::AgentCredentials;
use purser_domain::{Address, Agent, AgentId, AgentKey, Amount, Permission, Timestamp};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinSet;
use tracing::Instrument as _;

/// The maximum number of agents in the cache, which is emptied when it is full. A record takes a few kilobytes.
const MAX_CACHED: usize = 1_000;

/// The records of the agents whose last call in this instance reached the balance check.
#[derive(Debug, Default)]
pub(crate) struct SeenAgents(Mutex<HashMap<AgentId, Agent>>);

impl SeenAgents {
    pub(crate) fn remember_agent(&self, agent: &Agent) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.get(&agent.id).is_some_and(|known| known.version == agent.version) {
            return;
        }
        if seen.len() >= MAX_CACHED {
            seen.clear();
        }
        seen.insert(agent.id, agent.clone());
    }

    /// Removes and returns the cached record of the caller's agent, if the caller's key is valid and may pay.
    fn take_cached_agent(&self, caller: &AgentCredentials, now: Timestamp) -> Option<Agent> {
        let key = caller.key.as_ref().ok()?;
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = seen.get(&key.agent);
        let may_pay = |record: &AgentKey| record.scope.check_use(caller.key_use(Permission::Pay)).is_ok();
        if !key.is_valid_for(known, now) || !known?.find_key(key.key).is_some_and(may_pay) {
            return None;
        }
        seen.remove(&key.agent)
    }
}

/// A balance request in progress. Dropping this value cancels the request.
#[derive(Debug)]
pub(crate) struct BalancePrefetch {
    wallet: Address,
    asking: JoinSet<Option<Amount>>,
}

impl BalancePrefetch {
    /// Starts to request the wallet's balance if the agent's last call reached the balance check.
    pub(crate) fn start_for_caller(payments: &Arc<Payments>, caller: &AgentCredentials) -> Option<Self> {
        let agent = payments.seen.take_cached_agent(caller, payments.clock.now())?;
        Some(Self::start(payments, &agent))
    }

    pub(crate) fn start(payments: &Arc<Payments>, agent: &Agent) -> Self {
        let (id, wallet) = (agent.id, agent.wallet.address);
        let payments = Arc::clone(payments);
        let mut asking_limits = JoinSet::new();
        asking_limits.spawn(async move { payments.read_wallet_balance(id, wallet).await }.in_current_span());
        Self {
            wallet,
            asking: asking_limits,
        }
    }

    /// Awaits the balance: `None` if requested for another wallet, `Some(None)` if the node is unavailable.
    pub(crate) async fn await_balance(mut self, wallet: Address) -> Option<Option<Amount>> {
        if self.wallet != wallet {
            return None;
        }
        self.asking.join_next().await?.ok()
    }
}
