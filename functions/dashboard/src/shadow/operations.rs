//! Attaches, evaluates, applies and removes an agent's shadow policy.
//!
//! Applying a shadow policy is a sequence of ordinary updates, widening updates last. If an update fails, the next
//! attempt continues, because completed updates change nothing.

use crate::agents::owned::{OwnedAgent, require_valid_exceptions};
use crate::history::operations::audited_rules;
use crate::state::People;
use purser_api::Precondition;
use purser_domain::{
    Act, Agent, AgentLimits, AuditChanges, AuditFields, AuditKind, Backtest, BacktestResult, Catalog, Comparison,
    EnabledService, ErrorKind, PolicyChange, ProposedLimits, Result, ServiceId, Shadow, TestedLimits, Timestamp,
    UserId,
};
use purser_store::BacktestReads;
use std::time::Duration;
use tokio::time::Instant;

/// After this time, the evaluation stops at the next chunk of decisions and returns a partial result. Well
/// below the `Timeout` of the Lambda function `people`.
const MAX_TIME: Duration = Duration::from_secs(7);

/// The maximum number of payments whose provider calls an evaluation reads. Further payments whose result
/// depends on the call are untested.
const MAX_CALLS: usize = 2_000;

/// A shadow policy, with the decisions that it would have made about recorded payments.
#[derive(Debug)]
pub(crate) struct EvaluatedShadow {
    pub(crate) shadow: Shadow,
    /// Grows with each update of the shadow policy or of the limits that it replaces
    /// ([`Shadow::if_match_version`]).
    pub(crate) version: u64,
    /// Whether the agent's limits were updated after the shadow policy was attached.
    pub(crate) is_edited: bool,
    /// The comparison of the active limits with the shadow policy's limits.
    pub(crate) comparison: Comparison,
    /// The fields that applying the shadow policy changes.
    pub(crate) changes: AuditChanges,
    /// The decisions that the shadow policy would have changed.
    pub(crate) result: BacktestResult,
    /// The start of the tested range.
    pub(crate) from: Timestamp,
    /// The time up to which decisions were evaluated.
    pub(crate) until: Timestamp,
    /// Whether more decisions remain to be evaluated.
    pub(crate) is_partial: bool,
}

/// The updates that were made when a shadow policy was applied.
#[derive(Debug)]
pub(crate) struct PromotionResult {
    pub(crate) owned: OwnedAgent,
    /// The services whose policies the shadow policy replaced.
    pub(crate) services: Vec<ServiceId>,
    pub(crate) has_rules: bool,
}

impl People {
    /// Reads the agent's shadow policy. Returns `None` if the shadow policy has ended, or if the shadow policy was
    /// attached before an ownership transfer.
    pub(crate) async fn read_shadow(&self, owned: &OwnedAgent) -> Result<Option<Shadow>> {
        let agent = owned.agent();
        let shadow = self
            .usage
            .read_shadow_policy(&require_owner_id(owned)?, agent.id)
            .await?;
        let Some(shadow) = shadow.filter(|shadow| !shadow.has_ended(self.now())) else {
            return Ok(None);
        };
        let since = self.usage.read_ownership_start(agent).await?;
        Ok(Some(shadow).filter(|shadow| shadow.attached_at >= since))
    }

    /// Replaces the agent's current shadow policy, if any.
    pub(crate) async fn attach_shadow(&self, owned: &OwnedAgent, tested_limits: TestedLimits) -> Result<Shadow> {
        let agent = owned.agent();
        let current = self.ledger.list_enabled_services(agent).await?;
        let shadow = Shadow {
            owner: require_owner_id(owned)?,
            agent: agent.id,
            attached_at: self.now(),
            edits_before: Shadow::count_updates(&tested_limits, agent.version, &current),
            terms: tested_limits,
        };
        let edition = self.current_catalog().await?;
        let proposed = shadow.terms.proposed_limits(agent, &current);
        require_valid_exceptions(&proposed.apply(agent, &current).0, agent, shadow.attached_at)?;
        let action = Act::new(AuditKind::ShadowAttached).on_agent(agent.id);
        let changes = limit_changes(agent, &current, &proposed, &edition.catalog);
        let entry = self.audit_entry(owned.acting(), &action, changes)?;
        self.usage.put_shadow_policy(&shadow, &entry).await?;
        Ok(shadow)
    }

    /// Evaluates the shadow policy on the agent's decisions since it was attached.
    pub(crate) async fn evaluate_shadow_policy(&self, owned: &OwnedAgent) -> Result<EvaluatedShadow> {
        let (agent, now) = (owned.agent(), self.now());
        let shadow = self.read_shadow(owned).await?.ok_or(ErrorKind::NotFound)?;
        let (edition, policies) = tokio::try_join!(self.current_catalog(), self.ledger.list_enabled_services(agent))?;
        let updates = Shadow::count_updates(&shadow.terms, agent.version, &policies);
        let proposed = shadow.terms.proposed_limits(agent, &policies);
        let (updated_agent, updated_policies) = proposed.apply(agent, &policies);
        let limits = |agent, policies| AgentLimits { agent, policies };
        let (before, after) = (limits(agent, &policies), limits(&updated_agent, &updated_policies));
        let comparison = self.compare_limits(&before, &after, &edition.catalog);
        let changes = limit_changes(agent, &policies, &proposed, &edition.catalog);
        let start = Instant::now();
        let mut reads = BacktestReads::new(&self.usage, &self.ledger, &self.catalog_table, self.network, MAX_CALLS);
        let range = (shadow.attached_at, now);
        let is_over = || start.elapsed() >= MAX_TIME;
        let mut backtest = Backtest::new(proposed);
        let run = reads.test_newest_decisions(&mut backtest, agent, range, Shadow::MAX_DECISIONS, is_over);
        let (from, until, is_partial) = self.run_in_long_operation_slot(&agent.owner, run).await?;
        Ok(EvaluatedShadow {
            version: shadow.if_match_version(updates),
            is_edited: updates != shadow.edits_before,
            shadow,
            comparison,
            changes,
            result: backtest.result_so_far(),
            from,
            until,
            is_partial,
        })
    }

    pub(crate) async fn remove_shadow(&self, owned: &OwnedAgent) -> Result<()> {
        let shadow = self.read_shadow(owned).await?.ok_or(ErrorKind::NotFound)?;
        let action = Act::new(AuditKind::ShadowRemoved).on_agent(owned.agent().id);
        let entry = self.audit_entry(owned.acting(), &action, AuditChanges::default())?;
        self.usage.remove_shadow_policy(&shadow, &entry).await?;
        Ok(())
    }

    /// Applies the shadow policy's limits, and removes the shadow policy. Wider limits require a recent sign-in.
    pub(crate) async fn promote_shadow(&self, owned: OwnedAgent, if_match: Precondition) -> Result<PromotionResult> {
        let action = Act::new(AuditKind::ShadowPromoted).on_agent(owned.agent().id);
        let acting = owned.acting().clone();
        self.audit_rejection(
            &acting,
            &action,
            Box::pin(self.store_shadow_promotion(owned, if_match, &action)),
        )
        .await
    }

    async fn store_shadow_promotion(
        &self,
        owned: OwnedAgent,
        if_match: Precondition,
        action: &Act,
    ) -> Result<PromotionResult> {
        let shadow = self.read_shadow(&owned).await?.ok_or(ErrorKind::NotFound)?;
        let policies = self.ledger.list_enabled_services(owned.agent()).await?;
        if_match.check_version(shadow.if_match_version(Shadow::count_updates(
            &shadow.terms,
            owned.agent().version,
            &policies,
        )))?;
        let proposed = shadow.terms.proposed_limits(owned.agent(), &policies);
        let rules = shadow.terms.rules.as_ref();
        let updated = rules
            .map(|rules| owned.agent().clone().with_replaced_rules(rules, || self.new_rule_id()))
            .transpose()?;
        let updated = updated.filter(|updated| updated.rules != owned.agent().rules);
        let of = |service: ServiceId| policies.iter().find(|policy| policy.service == service);
        let is_change = |policy: &&EnabledService| {
            of(policy.service).is_none_or(|now| now.enabled != policy.enabled || now.policy != policy.policy)
        };
        // Disabling a service that the agent has no record of changes nothing, so no record is written.
        let is_needed = |policy: &&EnabledService| policy.enabled || of(policy.service).is_some();
        let changed = proposed.policies.values().filter(is_change).filter(is_needed);
        let mut changed: Vec<&EnabledService> = changed.collect();
        let widens = |policy: &EnabledService| policy.widens(of(policy.service));
        changed.sort_by_key(|policy| widens(policy));
        let has_wider_rules = updated.as_ref().is_some_and(|updated| updated.widens(owned.agent()));
        // Check the sign-in before the first update, so that no later update fails because of an old sign-in.
        if has_wider_rules || changed.iter().any(|policy| widens(policy)) {
            self.limits.require_recent_sign_in(owned.signed_in_at(), self.now())?;
        }
        let has_rules = updated.is_some();
        let mut owned = owned;
        if let Some(updated) = updated.as_ref().filter(|_| !has_wider_rules) {
            owned = Box::pin(self.promote_shadow_rules(owned, updated)).await?;
        }
        for policy in &changed {
            let change = PolicyChange {
                enabled: of(policy.service)
                    .is_none_or(|current| current.enabled != policy.enabled)
                    .then_some(policy.enabled),
                policy: policy.policy.clone().into(),
            };
            self.save_service_of_record(&owned, of(policy.service), policy.service, change)
                .await?;
        }
        if let Some(updated) = updated.as_ref().filter(|_| has_wider_rules) {
            owned = Box::pin(self.promote_shadow_rules(owned, updated)).await?;
        }
        let entry = self.audit_entry(owned.acting(), action, AuditChanges::default())?;
        self.usage.remove_shadow_policy(&shadow, &entry).await?;
        Ok(PromotionResult {
            services: changed.iter().map(|policy| policy.service).collect(),
            owned,
            has_rules,
        })
    }

    async fn promote_shadow_rules(&self, owned: OwnedAgent, updated_agent: &Agent) -> Result<OwnedAgent> {
        let if_match = Precondition::Version(owned.agent().version);
        let rules = updated_agent.rules.clone();
        self.update_agent_record(owned, if_match, Act::new(AuditKind::RuleReplaced), move |agent| {
            Ok(Agent {
                rules: rules.clone(),
                ..agent
            })
        })
        .await
    }
}

/// Returns the fields that differ between the active limits and the proposed limits.
fn limit_changes(
    agent: &Agent,
    current: &[EnabledService],
    proposed: &ProposedLimits,
    catalog: &Catalog,
) -> AuditChanges {
    let updated = proposed.rules.clone().map(|rules| Agent { rules, ..agent.clone() });
    let fields = |agent: Option<&Agent>, policies: Vec<&EnabledService>| -> AuditFields {
        let of_service = policies.into_iter().flat_map(|policy| {
            let service = catalog.find_by_id(policy.service);
            let name = service.map_or_else(|| policy.service.to_string(), |service| service.slug.to_string());
            let fields = policy.audit_log_fields().into_iter();
            fields.map(move |(field, value)| (format!("services/{name}/{field}"), value))
        });
        agent.into_iter().flat_map(audited_rules).chain(of_service).collect()
    };
    let named = current
        .iter()
        .filter(|policy| proposed.policies.contains_key(&policy.service));
    AuditChanges::between(
        Some(fields(updated.as_ref().map(|_| agent), named.collect())),
        Some(fields(updated.as_ref(), proposed.policies.values().collect())),
    )
}

fn require_owner_id(owned: &OwnedAgent) -> Result<UserId> {
    let user = UserId::parse(&owned.agent().owner);
    user.ok_or_else(|| purser_domain::Error::internal("reading an agent's owner", "the owner is not a user id"))
}
