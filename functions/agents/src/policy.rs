//! `GET /agents/{agentId}/services/{serviceId}/policy`: the agent's limits, rules and remaining amounts.

use crate::view::{EnabledServiceView, PolicyAnswer};
use crate::{AppState, require_caller_in_path};
use axum::Json;
use axum::extract::Path;
use purser_api::{AgentCredentials, Reply, RuleView, SpendView, endpoint};
use purser_domain::{Error, ErrorKind, ServiceId, earliest_decision_time};

/// Returns the agent's policy for one service and all rules of the agent, with the used and remaining amounts of the
/// policy's limits and of the agent's budgets.
#[endpoint(
    get "/agents/{agentId}/services/{serviceId}/policy", operation_id = "policy",
    params(
        ("agentId" = String, Path, description = "The ID of the agent that makes the call."),
        ("serviceId" = String, Path, description = "The service's slug or UUID."),
    ),
    returns = "The service with its policy and current spending, even if the service is disabled.", errors(NotFound)
)]
pub(crate) async fn read_policy(
    agents: AppState,
    caller: AgentCredentials,
    Path((agent, reference)): Path<(String, String)>,
) -> Reply<Json<PolicyAnswer>> {
    let edition = agents.catalog.current(agents.clock.now()).await?;
    let service = edition.catalog.find_by_reference(&reference);
    // The UUID also finds the policy of a service that was removed from the catalog.
    let id = service
        .map(|service| service.id)
        .or_else(|| ServiceId::parse(&reference));
    let caller = agents.authenticate_with_service_state(caller, id).await?;
    require_caller_in_path(&caller.agent, &agent)?;
    if let Some(id) = id {
        caller.key_scope()?.check_service(id)?;
    }
    let mut service_state = caller.read.service_state.ok_or(ErrorKind::NotFound)?;
    let record = service_state.enabled.take().ok_or(ErrorKind::NotFound)?;
    if !service_state.is_backfilled {
        let now = agents.clock.now();
        let backfilled = agents
            .ledger
            .estimate_unbackfilled_windows(&caller.agent, &edition.catalog, now);
        service_state.budgets.extend(backfilled.await?);
    }
    let at = earliest_decision_time(agents.clock.now(), service_state.all_windows());
    agents.ledger.load_expired_payments(&mut service_state, at).await?;
    if service_state.find_window_with_unknown_spend(at).is_some() {
        let words = "the window has too many expired payments";
        return Err(Error::temporarily_unavailable("reading a window", words).into());
    }
    let used = |id| {
        caller
            .agent
            .counting_rules()
            .find(|counting| counting.rule.id == id)?
            .find_window(&service_state.budgets)
    };
    let rules = caller
        .agent
        .rules
        .iter()
        .filter(|rule| caller.agent.shows_rule_to_key(&rule.kind, caller.key));
    let rules = rules.map(|rule| RuleView::new(rule, used(rule.id).map(|window| window.counted_amount_at(at))));
    let max_per_day = record.policy.caps(&caller.agent.owner, at).per_day;
    Ok(Json(PolicyAnswer {
        service: EnabledServiceView::new(&record, service, &caller.agent.owner, at),
        spend: SpendView::from_windows(
            at,
            (&caller.agent, caller.key),
            max_per_day,
            &service_state.day,
            &service_state.budgets,
        ),
        rules: rules.collect(),
    }))
}
