//! The response bodies of the agents' routes.

use purser_api::{PolicyView, RuleView, SpendView, labels_by_key, view};
use purser_domain::{Agent, EnabledService, Service, ServiceId, Timestamp, TrustStatus};
use std::collections::BTreeMap;

purser_api::views! {
    /// The agent to which the API key of the request belongs.
    pub(crate) struct AgentInfo as Agent {
        fn from(agent: &Agent);

        agent_id: String = agent.id.to_string(),
        name: String = agent.name.clone(),
        created_at: Timestamp = agent.created_at,
        /// The labels that the owner gave to the agent.
        #[schema(example = json!({"team": "search"}))]
        labels: BTreeMap<String, String> = labels_by_key(&agent.labels),
    }

    /// A service that is enabled for the agent.
    pub(crate) struct EnabledServiceView as EnabledServiceView {
        /// `owner` is the user id of the agent's owner. `at` is the time for which the amounts are computed.
        pub(crate) fn new(enabled: &EnabledService, service: Option<&Service>, owner: &str, at: Timestamp);
        let unavailable_reason = unavailable_reason(enabled, service);

        service_id: ServiceId = enabled.service,
        /// The service's slug. If the service is no longer in the catalog, slug, name, category and trust status are
        /// null.
        slug: Option<String> = service.map(|service| service.slug.to_string()),
        name: Option<String> = service.map(|service| service.name.clone()),
        category: Option<&'static str> = service.map(|service| service.category.name()),
        trust_status: Option<&'static str> = service.map(|service| service.trust_status.name()),
        /// Whether the service can be paid under this policy. If false, `POST /x402/authorize` rejects every new
        /// payment.
        enabled: bool = unavailable_reason.is_none(),
        /// Why the service can't be paid. Null if the service can be paid. `POST /x402/authorize` returns
        /// `service_not_found` for `not_in_catalog`, `disabled_in_catalog` and `not_curated`, and `service_not_enabled`
        /// for `disabled_for_agent`.
        unavailable_reason: Option<&'static str>,
        /// The policy's version. Each update increases the version.
        version: u64 = enabled.version,
        policy: PolicyView = PolicyView::from_policy(&enabled.policy, owner, at),
    }
}

impl EnabledServiceView {
    /// Sorts by slug, with services that have left the catalog last.
    pub(crate) fn sort_key(&self) -> (bool, Option<&str>, ServiceId) {
        (self.slug.is_none(), self.slug.as_deref(), self.service_id)
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
#[view(ServicePolicy)]
pub(crate) struct PolicyAnswer {
    #[serde(flatten)]
    pub(crate) service: EnabledServiceView,
    #[serde(flatten)]
    pub(crate) spend: SpendView,
    /// The agent's rules that apply to the key or to a run that the key opened, in the order in which they were added. A
    /// rule with `services` applies only to payments to these services, and a run's budget only to payments with the run's
    /// key in `keys`.
    pub(crate) rules: Vec<RuleView>,
}

/// The services that are enabled for the agent.
#[view]
pub(crate) struct EnabledServiceList {
    pub(crate) agent_id: String,
    pub(crate) services: Vec<EnabledServiceView>,
    /// The number of services in this response.
    pub(crate) count: usize,
}
