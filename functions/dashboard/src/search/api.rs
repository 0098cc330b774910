//! JSON API under `/search`: a user's agents, payments and approvals, and catalog services.

use crate::caller::Caller;
use crate::search::operations::{MAX_QUERY_CHARS, SearchResult};
use crate::state::PeopleState;
use axum::Json;
use axum::http::Uri;
use purser_api::{Query, Reply, endpoint, view};
use purser_domain::AgentId;

purser_api::views! {
    /// An agent, payment, approval, payee or service that matches a search.
    pub(crate) struct FoundView as SearchResult {
        fn from(result: &SearchResult);
        let (id, agent_id, name) = match result {
            SearchResult::Agent(agent) => (agent.id.to_string(), Some(agent.id), Some(agent.name.clone())),
            SearchResult::Decision(entry) => {
                let id = match entry.payment {
                    Some(_) => entry.place.to_string(),
                    None => entry.transaction.to_string(),
                };
                (id, Some(entry.agent), Some(entry.agent_name.clone()))
            }
            SearchResult::Approval(approval) => (approval.id.to_string(), Some(approval.agent), None),
            SearchResult::Payee(address) => (address.to_string(), None, None),
            SearchResult::Service(service) => (service.id.to_string(), None, Some(service.name.clone())),
        };

        /// The kind of result: `agent`, `decision`, `settlement`, `approval`, `payee` or `service`.
        #[schema(value_type = String, example = "settlement")]
        kind: &'static str = result.kind_name(),
        /// The result's id. For a payee, the payee's address.
        id: String,
        /// The agent to which the result belongs. Null for a payee and for a service.
        agent_id: Option<AgentId>,
        /// The name of the agent or service. Null for a payee.
        name: Option<String>,
        /// The path of the dashboard page that shows the result.
        #[schema(example = "/dashboard/agents/018f2f6e-0c00-7000-8000-000000000001")]
        path: String = result.page_path(),
    }
}

/// The agents, payments, approvals, payees and services that match a search.
#[view(SearchResults)]
pub(crate) struct ResultsView {
    results: Vec<FoundView>,
    /// The number of results in this response.
    count: usize,
}

/// Search your agents and payments.
///
/// The query can be the id of an agent, decision, settlement or approval, a transaction hash, a payee, or a part of an
/// agent's or service's name or of a service's host.
#[endpoint(
    get "/search",
    params(
        ("q" = Option<String>, Query, max_length = 100, description = "The text to search for. If absent, the result is empty."),
    ),
    returns = "The search results. A payment can be found a few seconds after it is made."
)]
pub(crate) async fn search(people: PeopleState, user: Caller, uri: Uri) -> Reply<Json<ResultsView>> {
    let mut query = Query::from_uri(&uri);
    let text = query.parse_with(
        "q",
        parse_search_text,
        format!("must be a text of at most {MAX_QUERY_CHARS} characters"),
    );
    query.finish()?;
    let found = people.search_own_data(&user, &text.unwrap_or_default()).await?;
    Ok(Json(ResultsView::from_items(found.iter().map(FoundView::from))))
}

fn parse_search_text(text: &str) -> Option<String> {
    (text.chars().count() <= MAX_QUERY_CHARS).then(|| text.to_owned())
}
