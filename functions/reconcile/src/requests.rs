//! Reconciles settlements, in any state, on an operator's request.

use crate::{Inner, batch::Cause, run::Step};
use purser_domain::{AgentId, FinalBlock, Result, Settlement, SettlementId};
use std::collections::HashSet;
use std::sync::Arc;
use tokio::time::Instant;

impl Inner {
    /// Reconciles the requested settlements, and removes the requests that succeed.
    pub(crate) async fn reconcile_requested_settlements(
        self: &Arc<Self>,
        block: &FinalBlock,
        deadline: Instant,
    ) -> Step {
        let mut step = Step::new();
        let requests = match self.ledger.read_reconcile_requests().await {
            Ok(requests) => step.collect_rows_and_count_failures(requests),
            Err(error) => return step.mark_failed(error),
        };
        if requests.is_empty() {
            return step;
        }
        let ids: Vec<(AgentId, SettlementId)> = requests
            .iter()
            .map(|request| (request.agent, request.settlement))
            .collect();
        let found = match self.ledger.read_settlements_by_id(&ids).await {
            Ok(found) => found,
            Err(error) => return step.mark_failed(error),
        };
        // The loop below removes the request of a missing settlement, and an unreadable settlement looks like a missing one.
        let are_all_readable = found.iter().all(Result::is_ok);
        let settlements = step.collect_rows_and_count_failures(found);
        let mut kept: HashSet<SettlementId> = if are_all_readable {
            settlements.iter().map(Settlement::id).collect()
        } else {
            ids.iter().map(|(_, id)| *id).collect()
        };
        if Instant::now() > deadline {
            return step;
        }
        for reconciled in self
            .reconcile_settlements(settlements, block, Cause::Due, deadline)
            .await
        {
            step = step.with_outcomes(&reconciled.outcomes);
            if !reconciled.has_failed() {
                kept.remove(&reconciled.settlement.id());
            }
        }
        for request in requests.iter().filter(|request| !kept.contains(&request.settlement)) {
            if let Err(error) = self.ledger.clear_reconcile_request(request).await {
                return step.mark_failed(error);
            }
        }
        step
    }
}
