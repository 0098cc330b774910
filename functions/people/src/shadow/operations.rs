//! Attaches, judges, promotes and removes the shadow of an agent.
//!
//! A shadow is judged when somebody looks at it, by a backtest of the decisions since it was attached. Its promotion
//! consists of ordinary edits: of the rules, and of one policy after another, those that do not widen first. If one is
//! refused, the next promotion continues, because what is done already is no change.

use crate::agents::owned::OwnedAgent;
use crate::history::operations::{rules_of, whole};
use crate::services::operations::{EnableService, ServiceEdit};
use crate::state::People;
use purser_api::Precondition;
use purser_domain::{
    Act, Agent, AgentLimits, AuditChanges, AuditKind, BacktestResult, BacktestTerms, Candidate, Catalog, Comparison,
    EnabledService, ErrorKind, Members, PersonId, Result, RuleId, Service, ServiceId, Shadow, Timestamp, compare,
};
use purser_store::BacktestReads;
use std::time::Duration;
use tokio::time::Instant;

/// The time in which a page reads decisions. A request has some 15 seconds.
const MAX_TIME: Duration = Duration::from_secs(7);

/// The maximum number of calls that a page reads for a guard against duplicates or for pages.
const MAX_CALLS: usize = 2_000;

/// A shadow, and what it would have decided.
#[derive(Debug)]
pub(crate) struct JudgedShadow {
    pub(crate) shadow: Shadow,
    /// The version of the shadow and of what it would replace.
    pub(crate) version: u64,
    /// Whether what it would replace was edited since it was attached.
    pub(crate) is_edited: bool,
    /// The limits in force, and those of the shadow.
    pub(crate) comparison: Comparison,
    /// The members that a promotion changes.
    pub(crate) changes: AuditChanges,
    /// What it would have decided.
    pub(crate) result: BacktestResult,
    /// The time until which decisions were read.
    pub(crate) until: Timestamp,
    /// Whether there are more decisions.
    pub(crate) is_partial: bool,
}

/// What a promotion edited.
#[derive(Debug)]
pub(crate) struct PromotionResult {
    pub(crate) owned: OwnedAgent,
    /// The services whose policies were edited.
    pub(crate) services: Vec<ServiceId>,
    /// Whether rules were edited.
    pub(crate) has_rules: bool,
}

/// The present policies of an agent, and the candidate that a shadow is for them.
struct Present {
    policies: Vec<EnabledService>,
    candidate: Candidate,
}

impl People {
    /// The agent's shadow, if the agent has one. One that has ended, or is from before a handover, is none.
    pub(crate) async fn shadow(&self, owned: &OwnedAgent) -> Result<Option<Shadow>> {
        let agent = owned.agent();
        let shadow = self.usage.shadow(&owner_of(owned)?, agent.id).await?;
        let Some(shadow) = shadow.filter(|shadow| !shadow.has_ended(self.now())) else {
            return Ok(None);
        };
        let since = self.usage.read_owned_since(agent).await?;
        Ok(Some(shadow).filter(|shadow| shadow.attached_at >= since))
    }

    /// Attaches a shadow, in place of the agent's present one.
    pub(crate) async fn attach_shadow(&self, owned: &OwnedAgent, terms: BacktestTerms) -> Result<Shadow> {
        let agent = owned.agent();
        let present = self.ledger.list_enabled_services(agent).await?;
        let shadow = Shadow {
            owner: owner_of(owned)?,
            agent: agent.id,
            attached_at: self.now(),
            edits_before: Shadow::edits(&terms, agent.version, &present),
            terms,
        };
        let edition = self.catalog().await?;
        let present = present_of(agent, &shadow.terms, present);
        let act = Act::new(AuditKind::ShadowAttached).on(agent.id);
        let changes = changes(agent, &present, &edition.catalog);
        let entry = self.entry(owned.acting(), &act, changes)?;
        self.usage.put_shadow(&shadow, &entry).await?;
        Ok(shadow)
    }

    /// Judges the agent's decisions since its shadow was attached.
    pub(crate) async fn judge_shadow(&self, owned: &OwnedAgent) -> Result<JudgedShadow> {
        let (agent, now) = (owned.agent(), self.now());
        let shadow = self.shadow(owned).await?.ok_or(ErrorKind::NotFound)?;
        let (edition, policies) = tokio::try_join!(self.catalog(), self.ledger.list_enabled_services(agent))?;
        let edits = Shadow::edits(&shadow.terms, agent.version, &policies);
        let present = present_of(agent, &shadow.terms, policies);
        let comparison = self.compare(agent, &present, &edition.catalog);
        let changes = changes(agent, &present, &edition.catalog);
        let began = Instant::now();
        let mut reads = BacktestReads::new(&self.usage, &self.ledger, &self.catalog_table, self.network, MAX_CALLS);
        let range = (shadow.attached_at, now);
        let is_over = || began.elapsed() >= MAX_TIME;
        let run = reads.run(agent, present.candidate, range, Shadow::MAX_DECISIONS, is_over);
        let (result, is_partial) = Box::pin(run).await?;
        Ok(JudgedShadow {
            version: shadow.version(edits),
            is_edited: edits != shadow.edits_before,
            shadow,
            comparison,
            changes,
            result,
            until: now,
            is_partial,
        })
    }

    /// Removes the agent's shadow.
    pub(crate) async fn remove_shadow(&self, owned: &OwnedAgent) -> Result<()> {
        let shadow = self.shadow(owned).await?.ok_or(ErrorKind::NotFound)?;
        let act = Act::new(AuditKind::ShadowRemoved).on(owned.agent().id);
        let entry = self.entry(owned.acting(), &act, AuditChanges::default())?;
        self.usage.remove_shadow(&shadow, &entry).await?;
        Ok(())
    }

    /// Puts the limits of the agent's shadow in force, and removes it. Requires a recent sign-in if they widen.
    pub(crate) async fn promote_shadow(&self, owned: OwnedAgent, if_match: Precondition) -> Result<PromotionResult> {
        let act = Act::new(AuditKind::ShadowPromoted).on(owned.agent().id);
        let acting = owned.acting().clone();
        self.audit_rejection(&acting, &act, Box::pin(self.store_promotion(owned, if_match, &act)))
            .await
    }

    async fn store_promotion(&self, owned: OwnedAgent, if_match: Precondition, act: &Act) -> Result<PromotionResult> {
        let shadow = self.shadow(&owned).await?.ok_or(ErrorKind::NotFound)?;
        let edition = self.catalog().await?;
        let policies = self.ledger.list_enabled_services(owned.agent()).await?;
        if_match.holds(shadow.version(Shadow::edits(&shadow.terms, owned.agent().version, &policies)))?;
        let present = present_of(owned.agent(), &shadow.terms, policies);
        let rules = shadow.terms.rules.as_ref();
        let edited = rules
            .map(|rules| owned.agent().clone().with_rules(rules, || self.new_rule_id()))
            .transpose()?;
        let edited = edited.filter(|edited| edited.rules != owned.agent().rules);
        let of = |service: ServiceId| present.policies.iter().find(|policy| policy.service == service);
        let is_change = |policy: &&EnabledService| {
            of(policy.service).is_none_or(|now| now.enabled != policy.enabled || now.policy != policy.policy)
        };
        // A disabled service that the agent never had stays absent.
        let is_needed = |policy: &&EnabledService| policy.enabled || of(policy.service).is_some();
        let policies = present.candidate.policies.values();
        let mut policies: Vec<&EnabledService> = policies.filter(is_change).filter(is_needed).collect();
        let widens = |policy: &EnabledService| policy.widens(of(policy.service));
        policies.sort_by_key(|policy| widens(policy));
        let has_wider_rules = edited.as_ref().is_some_and(|edited| edited.widens(owned.agent()));
        // Nothing is edited if a later edit would be refused for its sign-in.
        if has_wider_rules || policies.iter().any(|policy| widens(policy)) {
            self.limits.recently(owned.signed_in_at(), self.now())?;
        }
        let has_rules = edited.is_some();
        let mut owned = owned;
        if let Some(edited) = edited.as_ref().filter(|_| !has_wider_rules) {
            owned = Box::pin(self.promote_rules(owned, edited)).await?;
        }
        for policy in &policies {
            // Boxed, like the edits above: their state together is large.
            Box::pin(self.promote_policy(&owned, of(policy.service), policy, &edition.catalog)).await?;
        }
        if let Some(edited) = edited.as_ref().filter(|_| has_wider_rules) {
            owned = Box::pin(self.promote_rules(owned, edited)).await?;
        }
        let entry = self.entry(owned.acting(), act, AuditChanges::default())?;
        self.usage.remove_shadow(&shadow, &entry).await?;
        Ok(PromotionResult {
            services: policies.iter().map(|policy| policy.service).collect(),
            owned,
            has_rules,
        })
    }

    async fn promote_rules(&self, owned: OwnedAgent, edited: &Agent) -> Result<OwnedAgent> {
        let if_match = Precondition::Version(owned.agent().version);
        let rules = edited.rules.clone();
        self.change(owned, if_match, Act::new(AuditKind::RuleReplaced), move |agent| {
            Ok(Agent {
                rules: rules.clone(),
                ..agent
            })
        })
        .await
    }

    async fn promote_policy(
        &self,
        owned: &OwnedAgent,
        present: Option<&EnabledService>,
        policy: &EnabledService,
        catalog: &Catalog,
    ) -> Result<()> {
        let edit = whole(policy.policy.clone());
        if let Some(present) = present {
            let edit = ServiceEdit {
                enabled: (policy.enabled != present.enabled).then_some(policy.enabled),
                policy: edit,
                ended_raise: None,
            };
            let if_match = Precondition::Version(present.version);
            self.edit_service(owned, if_match, policy.service, &edit).await?;
        } else {
            let service = catalog.by_id(policy.service).ok_or(ErrorKind::ServiceNotFound)?;
            let enable = EnableService {
                service: service.slug.to_string(),
                policy: edit,
            };
            self.enable_service(owned, Precondition::Version(0), &enable).await?;
        }
        Ok(())
    }

    fn compare(&self, agent: &Agent, present: &Present, catalog: &Catalog) -> Comparison {
        let edited = Agent {
            rules: present.candidate.rules.clone().unwrap_or_else(|| agent.rules.clone()),
            ..agent.clone()
        };
        let policies = present.candidate.over(&present.policies);
        let services: Vec<&Service> = policies
            .iter()
            .filter_map(|policy| catalog.by_id(policy.service))
            .collect();
        let before = AgentLimits {
            agent,
            policies: &present.policies,
        };
        let now = AgentLimits {
            agent: &edited,
            policies: &policies,
        };
        compare(&before, &now, &services, self.network, self.now())
    }

    fn new_rule_id(&self) -> Result<RuleId> {
        Ok(RuleId::from_uuid(
            uuid::Builder::from_random_bytes(self.entropy.bytes()?).into_uuid(),
        ))
    }
}

fn present_of(agent: &Agent, terms: &BacktestTerms, policies: Vec<EnabledService>) -> Present {
    Present {
        candidate: terms.candidate(agent, &policies),
        policies,
    }
}

/// The members that differ between the limits in force and the candidate's.
fn changes(agent: &Agent, present: &Present, catalog: &Catalog) -> AuditChanges {
    let candidate = &present.candidate;
    let edited = candidate.rules.clone().map(|rules| Agent { rules, ..agent.clone() });
    let members = |agent: Option<&Agent>, policies: Vec<&EnabledService>| -> Members {
        let of_service = policies.into_iter().flat_map(|policy| {
            let service = catalog.by_id(policy.service);
            let name = service.map_or_else(|| policy.service.to_string(), |service| service.slug.to_string());
            let members = policy.audit_members().into_iter();
            members.map(move |(member, value)| (format!("services/{name}/{member}"), value))
        });
        agent.into_iter().flat_map(rules_of).chain(of_service).collect()
    };
    let named = present
        .policies
        .iter()
        .filter(|policy| candidate.policies.contains_key(&policy.service));
    AuditChanges::between(
        Some(members(edited.as_ref().map(|_| agent), named.collect())),
        Some(members(edited.as_ref(), candidate.policies.values().collect())),
    )
}

fn owner_of(owned: &OwnedAgent) -> Result<PersonId> {
    let person = PersonId::parse(&owned.agent().owner);
    person.ok_or_else(|| purser_domain::Error::internal("reading an agent's owner", "it is no person's id"))
}
