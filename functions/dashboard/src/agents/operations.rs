//! Operations on agents: create, rename, label, freeze and archive.

use crate::agents::owned::OwnedAgent;
use crate::caller::Caller;
use crate::state::People;
use purser_api::{CallerIds, Number, Precondition};
use purser_domain::{
    Act, Agent, AgentId, AgentName, AgentStatus, AuditChanges, AuditKind, DefaultServices, Error, FollowedTemplate,
    Labels, Result, StartingLimits, TemplateName, ValidationError,
};
use purser_store::CreateAgentResult;

purser_api::body! {
    /// The agent's fields to update. Send at least one field.
    pub(crate) struct AgentUpdate as "AgentEditBody" {
        pub(crate) name: Option<AgentName>,
        /// `frozen` rejects every payment of the agent as soon as you have this response. `active` ends the freeze. An
        /// archived agent cannot become active.
        pub(crate) status: Option<AgentStatus>,
        /// The agent's new labels, which replace all existing labels. `{}` removes all labels. Keys and values have at
        /// most 500 bytes together.
        pub(crate) labels: Option<Labels>,
        /// `true` freezes the agent and omits the agent from lists of agents. After `false`, lists of agents show the
        /// agent again, and the agent stays frozen.
        pub(crate) archived: Option<bool>,
        /// The maximum cap that the agent may request as a temporary limit increase, as a multiple of the current cap.
        /// With 0, the agent may request no increase.
        pub(crate) max_raise_factor: Option<Number<0, { Agent::MAX_INCREASE_FACTOR }>> = {"example": 10},
    }
}

impl AgentUpdate {
    pub(crate) const NONE: Self = Self {
        name: None,
        status: None,
        labels: None,
        archived: None,
        max_raise_factor: None,
    };

    pub(crate) fn for_status(status: AgentStatus) -> Self {
        Self {
            status: Some(status),
            ..Self::NONE
        }
    }

    /// Creates the update that archives or restores an agent. A restored agent stays frozen.
    pub(crate) fn for_archived(archived: bool) -> Self {
        Self {
            archived: Some(archived),
            ..Self::NONE
        }
    }

    pub(crate) fn stops_payments(&self) -> bool {
        self.status == Some(AgentStatus::Frozen) || self.archived == Some(true)
    }

    /// Returns the audit kind of the most important change.
    pub(crate) const fn audit_kind(&self) -> AuditKind {
        match (self.archived, self.status) {
            (Some(true), _) => AuditKind::AgentArchived,
            (_, Some(AgentStatus::Frozen)) => AuditKind::AgentFrozen,
            (_, Some(AgentStatus::Active)) => AuditKind::AgentUnfrozen,
            (Some(false), None) => AuditKind::AgentRestored,
            (None, None) if self.labels.is_some() => AuditKind::AgentLabelsEdited,
            (None, None) if self.max_raise_factor.is_some() => AuditKind::AgentRaiseFactorEdited,
            (None, None) => AuditKind::AgentRenamed,
        }
    }

    pub(crate) fn apply(&self, agent: Agent) -> Result<Agent> {
        let agent = Agent {
            name: self.name.as_ref().map_or(agent.name, |name| name.as_str().to_owned()),
            labels: self.labels.clone().unwrap_or(agent.labels),
            max_increase_factor: self
                .max_raise_factor
                .as_ref()
                .map_or(agent.max_increase_factor, |factor| factor.0),
            ..agent
        };
        let agent = match self.archived {
            Some(true) => agent.archive(),
            Some(false) => agent.restore(),
            None => agent,
        };
        match self.status {
            None => Ok(agent),
            Some(AgentStatus::Active) if agent.archived => {
                Err(Error::invalid(vec![ValidationError::at_path("/status", ARCHIVED)]))
            }
            Some(status) => Ok(Agent { status, ..agent }),
        }
    }
}

const ARCHIVED: &str = "must be `frozen`, because the agent is archived; restore it first";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NewAgentLimits {
    /// The owner's default template. If the owner has no default template, the deployment's `StartingLimits`
    /// (`docs/spec.md` §2.6).
    Default,
    /// The named limits that the request selects.
    Starting(StartingLimits),
    /// The policy template that the new agent follows.
    Template(TemplateName),
}

impl People {
    /// Reads the agents with these ids. Agents of other users are omitted. The order of the result is undefined.
    pub(crate) async fn read_own_agents(&self, user: &Caller, ids: Vec<AgentId>) -> Result<Vec<OwnedAgent>> {
        let agents = self.ledger.read_agents(ids).await?.into_iter();
        Ok(agents.filter_map(|agent| OwnedAgent::new(user, agent)).collect())
    }

    /// Creates an agent that has a wallet and no agent key, with every curated service enabled.
    ///
    /// The agent's record refers to a stored set of default services with the initial limits, so no service
    /// is ever enabled without these limits.
    pub(crate) async fn create_agent(
        &self,
        user: &Caller,
        name: &AgentName,
        start: NewAgentLimits,
        ids: CallerIds,
    ) -> Result<OwnedAgent> {
        const OPERATION: &str = "creating an agent";
        let edition = self.current_catalog().await?;
        let open: Vec<_> = edition
            .catalog
            .services()
            .iter()
            .filter(|service| service.is_open())
            .collect();
        let template = match &start {
            NewAgentLimits::Template(name) => Some(self.find_template(user, name).await?),
            NewAgentLimits::Default => self.read_default_template(user).await?,
            NewAgentLimits::Starting(_) => None,
        };
        let limits = match (&template, start) {
            (Some(_), _) => StartingLimits::Unlimited,
            (None, NewAgentLimits::Starting(limits)) => limits,
            (None, NewAgentLimits::Template(_) | NewAgentLimits::Default) => self.starting_limits,
        };
        let set = DefaultServices::new(open.iter().map(|service| service.id)).with_caps(limits.to_caps());
        let set = match &template {
            Some(template) => set.with_changes(template.terms.policy_changes_with_services(open)),
            None => set,
        };
        // Store the default services before creating the wallet. A later failure would leave an unused KMS key.
        let default_services = self.ledger.store_default_services(&set).await?;
        let (id, wallet) = self.create_wallet(ids).await?;
        let of_template = template.as_ref().and_then(|template| template.terms.rules.clone());
        let rules = of_template.unwrap_or_else(|| limits.to_rules());
        let agent = Agent {
            id,
            name: name.as_str().to_owned(),
            owner: user.id.to_string(),
            created_at: self.now(),
            status: AgentStatus::Active,
            wallet,
            keys: Vec::new(),
            rules: Vec::new(),
            archived: false,
            labels: Labels::default(),
            starting_set: Some(default_services),
            template: template.map(|template| FollowedTemplate::fully_applied(template.name, template.version)),
            max_increase_factor: Agent::DEFAULT_INCREASE_FACTOR,
            former_owners: Vec::new(),
            version: 1,
        };
        let agent = agent.with_replaced_rules(&rules, || self.new_rule_id())?;
        let action = Act::new(AuditKind::AgentCreated).on_agent(id);
        let changes = AuditChanges::between(None, Some(agent.audit_log_fields()));
        let entry = self.audit_entry(&user.acting, &action, changes)?;
        match self.ledger.create_agent(&agent, &entry).await? {
            CreateAgentResult::Stored => {
                OwnedAgent::new(user, agent).ok_or_else(|| Error::internal(OPERATION, "the agent has another owner"))
            }
            CreateAgentResult::Exists => Err(Error::internal(OPERATION, "the agent id already exists")),
        }
    }

    pub(crate) async fn update_agent(
        &self,
        owned: OwnedAgent,
        if_match: Precondition,
        update: &AgentUpdate,
    ) -> Result<OwnedAgent> {
        let action = Act::new(update.audit_kind());
        self.update_agent_record(owned, if_match, action, |agent| update.apply(agent))
            .await
    }
}
