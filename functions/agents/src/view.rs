//! The response bodies of the agents' routes.

use purser_api::{PolicyView, RuleView, SpendView, labels_by_key};
use purser_domain::{Agent, EnabledService, Service, Timestamp, TrustStatus};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The agent to which the API key of the request belongs.
#[derive(Serialize, ToSchema)]
#[schema(as = Agent)]
pub(crate) struct AgentInfo {
    agent_id: String,
    name: String,
    #[schema(format = DateTime)]
    created_at: String,
    /// The labels that the owner gave to the agent.
    #[schema(example = json!({"team": "search"}))]
    labels: BTreeMap<String, String>,
}

impl From<&Agent> for AgentInfo {
    fn from(agent: &Agent) -> Self {
        Self {
            agent_id: agent.id.to_string(),
            name: agent.name.clone(),
            created_at: agent.created_at.to_string(),
            labels: labels_by_key(&agent.labels),
        }
    }
}

/// A service that is enabled for the agent.
#[derive(Serialize, ToSchema)]
pub(crate) struct EnabledServiceView {
    #[schema(value_type = uuid::Uuid)]
    service_id: String,
    /// The service's slug. If the service is no longer in the catalog, slug, name, category and trust status are null.
    #[schema(required)]
    slug: Option<String>,
    #[schema(required)]
    name: Option<String>,
    #[schema(required)]
    category: Option<&'static str>,
    #[schema(required)]
    trust_status: Option<&'static str>,
    /// Whether the service can be paid under this policy. If false, `POST /x402/authorize` rejects every new payment.
    enabled: bool,
    /// Why the service can't be paid. Null if the service can be paid. `POST /x402/authorize` returns
    /// `service_not_found` for `not_in_catalog`, `disabled_in_catalog` and `not_curated`, and `service_not_enabled` for
    /// `disabled_for_agent`.
    #[schema(required)]
    unavailable_reason: Option<&'static str>,
    /// The policy's version. Each update increases the version.
    version: u64,
    policy: PolicyView,
}

impl EnabledServiceView {
    /// Creates the view of a service of this owner's agent, at this time.
    pub(crate) fn new(enabled: &EnabledService, service: Option<&Service>, owner: &str, at: Timestamp) -> Self {
        let unavailable_reason = unavailable_reason(enabled, service);
        Self {
            service_id: enabled.service.to_string(),
            slug: service.map(|service| service.slug.to_string()),
            name: service.map(|service| service.name.clone()),
            category: service.map(|service| service.category.name()),
            trust_status: service.map(|service| service.trust_status.name()),
            enabled: unavailable_reason.is_none(),
            unavailable_reason,
            version: enabled.version,
            policy: PolicyView::from_policy(&enabled.policy, owner, at),
        }
    }

    /// Sorts by slug, with services that have left the catalog last.
    pub(crate) fn sort_key(&self) -> (bool, Option<&str>, &str) {
        (self.slug.is_none(), self.slug.as_deref(), &self.service_id)
    }
}

/// Returns why `POST /x402/authorize` rejects every new payment to a service, or `None` if the service can be paid.
fn unavailable_reason(enabled: &EnabledService, service: Option<&Service>) -> Option<&'static str> {
    match service {
        None => Some("not_in_catalog"),
        Some(service) if service.is_open() => (!enabled.enabled).then_some("disabled_for_agent"),
        Some(service) if service.trust_status == TrustStatus::Disabled => Some("disabled_in_catalog"),
        Some(_) => Some("not_curated"),
    }
}

/// A service that is enabled for the agent, with the used and remaining amounts of the limits.
#[derive(Serialize, ToSchema)]
#[schema(as = ServicePolicy)]
pub(crate) struct PolicyAnswer {
    #[serde(flatten)]
    pub(crate) service: EnabledServiceView,
    #[serde(flatten)]
    pub(crate) spend: SpendView,
    /// All rules of the agent, in the order in which they were added. A rule with `services` applies only to payments
    /// to these services.
    pub(crate) rules: Vec<RuleView>,
}

/// The services that are enabled for the agent.
#[derive(Serialize, ToSchema)]
pub(crate) struct EnabledServiceList {
    pub(crate) agent_id: String,
    pub(crate) services: Vec<EnabledServiceView>,
    /// The number of services in this response.
    pub(crate) count: usize,
}
