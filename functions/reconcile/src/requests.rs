//! Settlements that an operator wants reconciled now, in any state.

use crate::{Shared, batch::Cause, due::unreadable, run::Run};
use purser_domain::{AgentId, FinalBlock, Result, Settlement, SettlementId};
use std::collections::HashSet;
use std::sync::Arc;
use tokio::time::Instant;

impl Shared {
    /// Reconciles the requested settlements. A request stays until its settlement was reconciled without a failure, or
    /// does not exist.
    pub(crate) async fn requested(self: &Arc<Self>, block: &FinalBlock, until: Instant, run: &mut Run) -> Result<()> {
        let mut requests = Vec::new();
        for request in self.ledger.reconcile_requests().await? {
            match request {
                Ok(request) => requests.push(request),
                Err(error) => unreadable(run, &error),
            }
        }
        if requests.is_empty() {
            return Ok(());
        }
        let wanted: Vec<(AgentId, SettlementId)> = requests
            .iter()
            .map(|request| (request.agent, request.settlement))
            .collect();
        let mut settlements: Vec<Settlement> = Vec::new();
        let mut left: HashSet<SettlementId> = HashSet::new();
        let mut all_read = true;
        for settlement in self.ledger.settlements_of(&wanted).await? {
            match settlement {
                Ok(settlement) => {
                    left.insert(settlement.id());
                    settlements.push(settlement);
                }
                Err(error) => {
                    all_read = false;
                    unreadable(run, &error);
                }
            }
        }
        if !all_read {
            // Since the unreadable settlement is unknown, no request counts as one for a settlement that does not
            // exist.
            left.extend(wanted.iter().map(|(_, id)| *id));
        }
        if Instant::now() > until {
            return Ok(());
        }
        for reconciled in self.reconcile(settlements, block, Cause::Due, until).await {
            reconciled.outcomes.iter().for_each(|outcome| run.note(*outcome));
            if !reconciled.has_failed() {
                left.remove(&reconciled.settlement.id());
            }
        }
        for request in requests.iter().filter(|request| !left.contains(&request.settlement)) {
            self.ledger.clear_reconcile_request(request).await?;
        }
        Ok(())
    }
}
