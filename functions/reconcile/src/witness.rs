//! Checks before a release or a revert that every endpoint of the node leads to the same decision.

use crate::Inner;
use purser_chain::Authorization;
use purser_domain::{AuthorizationState, FinalBlock, Reconciliation, Settlement, decide_reconciliation};
use tokio::time::Instant;

type Known = (Settlement, Authorization);

impl Inner {
    /// Returns `states`, with `None` for each state that leads to a release or a revert, unless every
    /// endpoint of the node returns a state with the same decision. With one endpoint, no state changes.
    pub(crate) async fn cross_check_authorization_states(
        &self,
        known_states: &[Known],
        mut states: Vec<Option<AuthorizationState>>,
        block: &FinalBlock,
        deadline: Instant,
    ) -> Vec<Option<AuthorizationState>> {
        let witnesses = self.chain.chains_per_endpoint();
        if witnesses.len() < 2 {
            return states;
        }
        for witness in witnesses {
            let mut request = Vec::new();
            for (of, state) in known_states.iter().zip(&mut states) {
                if let Some(undoes) = state
                    .as_ref()
                    .and_then(|state| find_release_or_revert(of, block, state))
                {
                    request.push((of, undoes, state));
                }
            }
            let authorizations: Vec<Authorization> =
                request.iter().map(|((_, authorization), ..)| *authorization).collect();
            let result = witness
                .read_authorization_states(&authorizations, block, self.log_range, deadline)
                .await;
            for ((of, undoes, state), result) in request.into_iter().zip(result) {
                if result.and_then(|result| find_release_or_revert(of, block, &result)) != Some(undoes) {
                    // After the deadline, an endpoint may return no state, which is not logged as a disagreement.
                    if Instant::now() <= deadline {
                        tracing::warn!(settlement.id = %of.0.id(), "rpc.disagreed");
                    }
                    *state = None;
                }
            }
        }
        states
    }
}

/// Returns the decision that follows from this state if it is a release or a revert.
fn find_release_or_revert(
    (settlement, authorization): &Known,
    block: &FinalBlock,
    state: &AuthorizationState,
) -> Option<Reconciliation> {
    let decision = decide_reconciliation(settlement, &authorization.expected, block, state);
    matches!(
        decision,
        Reconciliation::Release(_) | Reconciliation::RevertConfirmation(_)
    )
    .then_some(decision)
}
