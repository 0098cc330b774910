//! The wire shapes of this group.

use purser_api::{PolicyView, SpendView};
use purser_domain::{Agent, EnabledService, Service};
use serde::Serialize;
use utoipa::ToSchema;

/// The agent behind the key.
#[derive(Serialize, ToSchema)]
#[schema(as = Agent)]
pub(crate) struct AgentInfo {
    agent_id: String,
    name: String,
    #[schema(format = DateTime)]
    created_at: String,
}

impl From<&Agent> for AgentInfo {
    fn from(agent: &Agent) -> Self {
        Self {
            agent_id: agent.id.to_string(),
            name: agent.name.clone(),
            created_at: agent.created_at.to_string(),
        }
    }
}

/// One service as the agent has it.
#[derive(Serialize, ToSchema)]
pub(crate) struct EnabledServiceView {
    #[schema(value_type = uuid::Uuid)]
    service_id: String,
    /// Null, as are the name, category and trust status, for a service that has left the catalog.
    #[schema(required)]
    slug: Option<String>,
    #[schema(required)]
    name: Option<String>,
    #[schema(required)]
    category: Option<&'static str>,
    #[schema(required)]
    trust_status: Option<&'static str>,
    /// A disabled record refuses every call.
    enabled: bool,
    /// Counts the edits of the policy.
    policy_version: u64,
    policy: PolicyView,
}

impl EnabledServiceView {
    pub(crate) fn of(enabled: &EnabledService, service: Option<&Service>) -> Self {
        Self {
            service_id: enabled.service.to_string(),
            slug: service.map(|service| service.slug.to_string()),
            name: service.map(|service| service.name.clone()),
            category: service.map(|service| service.category.name()),
            trust_status: service.map(|service| service.trust_status.name()),
            enabled: enabled.enabled,
            policy_version: enabled.version,
            policy: PolicyView::from(&enabled.policy),
        }
    }

    /// By slug; services that have left the catalog last.
    pub(crate) fn sort_key(&self) -> (bool, Option<&str>, &str) {
        (self.slug.is_none(), self.slug.as_deref(), &self.service_id)
    }
}

/// One service as the agent has it, and what of its limits is used and left.
#[derive(Serialize, ToSchema)]
#[schema(as = ServicePolicy)]
pub(crate) struct PolicyAnswer {
    #[serde(flatten)]
    pub(crate) service: EnabledServiceView,
    #[serde(flatten)]
    pub(crate) spend: SpendView,
}

/// The services enabled for the agent.
#[derive(Serialize, ToSchema)]
pub(crate) struct EnabledServiceList {
    pub(crate) agent_id: String,
    pub(crate) services: Vec<EnabledServiceView>,
    /// How many services this answer holds.
    pub(crate) count: usize,
}
