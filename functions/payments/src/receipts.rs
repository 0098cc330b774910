//! `GET /agents/{agentId}/settlements`: the agent's own receipts, newest first.

use crate::AppState;
use crate::view::{SettlementItem, SettlementList};
use axum::Json;
use axum::extract::Path;
use axum::http::Uri;
use purser_api::{AgentCredentials, Query, Reply, endpoint};
use purser_domain::{AgentId, ErrorKind, KeyScope, Permission, Purchase, Result, Settlement};
use purser_store::{DecisionKeys, Ledger};

/// The default and the maximum number of receipts in a list (`docs/spec.md` §8).
const DEFAULT_LIMIT: u32 = 25;
const MAX_LIMIT: u32 = 100;

/// List the agent's receipts, newest first.
#[endpoint(
    get "/agents/{agentId}/settlements", operation_id = "receipts",
    params(
        ("agentId" = String, Path, description = "The ID of the agent that makes the call."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "The maximum number of items. The default is 25."),
    ),
    returns = "The receipts, newest `authorized_at` first. A key that is limited to some services gets the receipts of these services among the newest 1,000 receipts.",
    errors(NotFound)
)]
pub(crate) async fn list_receipts(
    payments: AppState,
    caller: AgentCredentials,
    Path(agent): Path<String>,
    uri: Uri,
) -> Reply<Json<SettlementList>> {
    let mut query = Query::from_uri(&uri);
    let limit = query.parse_limit("limit", DEFAULT_LIMIT, MAX_LIMIT);
    let ask = DecisionKeys::default();
    let caller = payments.authenticate(caller, Permission::Read, &ask).await?;
    if AgentId::parse(&agent) != Some(caller.agent.id) {
        return Err(ErrorKind::NotFound.into());
    }
    query.finish()?;
    let settlements = read_newest_purchases(&payments.ledger, caller.agent.id, caller.key_scope()?, limit).await?;
    Ok(Json(SettlementList::from_items(
        settlements.iter().filter_map(settlement_item),
    )))
}

fn settlement_item(settlement: &Settlement) -> Option<SettlementItem> {
    let purchase = settlement.terms.purchase()?;
    Some(SettlementItem::new(settlement, purchase))
}

/// Reads the agent's newest purchases that the key may see, among at most a thousand settlements for a scoped key.
async fn read_newest_purchases(
    ledger: &Ledger,
    agent: AgentId,
    scope: &KeyScope,
    limit: u32,
) -> Result<Vec<Settlement>> {
    const MAX_PAGES: u32 = 10;
    let at_once = if scope.services.is_none() { limit } else { MAX_LIMIT };
    let max = usize::try_from(limit).unwrap_or(usize::MAX);
    let (mut found, mut before) = (Vec::new(), None);
    for _ in 0..MAX_PAGES {
        let page = ledger.read_settlements(agent, before, at_once).await?;
        let is_last = u32::try_from(page.len()).is_ok_and(|count| count < at_once);
        before = page.last().map(|settlement| settlement.id().uuid());
        let is_for = |purchase: &Purchase| scope.includes_service(purchase.service);
        found.extend(
            page.into_iter()
                .filter(|settlement| settlement.terms.purchase().is_some_and(is_for)),
        );
        if is_last || found.len() >= max {
            break;
        }
    }
    found.truncate(max);
    Ok(found)
}
