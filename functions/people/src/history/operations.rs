//! Reads the versions of an agent's limits, and restores one. Restoring is an edit like any other: it is conditional on
//! the current version, requires a recent sign-in if it widens, and makes a new version.

use crate::agents::owned::Owned;
use crate::rules::operations::CheckedRule;
use crate::services::operations::{GovernedService, ServiceEdit};
use crate::state::People;
use purser_api::Precondition;
use purser_domain::{
    Agent, AuditChanges, EnabledService, Error, ErrorKind, Members, OperationScope, PolicyEdit, Result, RuleId,
    ServiceId,
};
use purser_store::{PageRequest, RecordVersion};

/// A version, and what it changed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Changed<T> {
    pub(crate) version: RecordVersion<T>,
    /// The differences from the version before.
    pub(crate) changes: AuditChanges,
}

/// Versions, newest first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct History<T> {
    pub(crate) items: Vec<Changed<T>>,
    /// The version before which the next page begins.
    pub(crate) next: Option<u64>,
}

impl<T> History<T> {
    /// The first `limit` versions, each with its differences from the next older one. `versions` has one more, if there
    /// is one.
    fn of(versions: Vec<RecordVersion<T>>, limit: u32, members: impl Fn(&T) -> Members) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let has_more = versions.len() > limit;
        let listed: Vec<Members> = versions.iter().map(|version| members(&version.record)).collect();
        let earlier = listed.iter().skip(1).cloned().map(Some).chain([None]);
        let changes = listed.iter().cloned().zip(earlier);
        let changes = changes.map(|(now, before)| AuditChanges::between(before, Some(now)));
        let items = versions.into_iter().zip(changes);
        let items: Vec<Changed<T>> = items
            .take(limit)
            .map(|(version, changes)| Changed { version, changes })
            .collect();
        let next = items.last().filter(|_| has_more).map(|last| last.version.version);
        Self { items, next }
    }
}

/// The members of an agent's rules.
pub(crate) fn rules_of(agent: &Agent) -> Members {
    let members = agent.audit_members().into_iter();
    members.filter(|(name, _)| name.starts_with("rules/")).collect()
}

impl People {
    /// The versions of an agent's policy for a service.
    pub(crate) async fn policy_history(
        &self,
        owned: &Owned,
        service: ServiceId,
        slice: PageRequest<u64>,
    ) -> Result<History<EnabledService>> {
        let rows = (slice.before, slice.limit.saturating_add(1));
        let versions = self
            .usage
            .policy_versions(&self.ledger, owned.agent(), service, rows)
            .await?;
        if versions.is_empty() && slice.before.is_none() {
            return Err(ErrorKind::NotFound.into());
        }
        Ok(History::of(versions, slice.limit, EnabledService::audit_members))
    }

    /// The versions of an agent's record, with the differences of its rules.
    pub(crate) async fn rules_history(&self, owned: &Owned, slice: PageRequest<u64>) -> Result<History<Agent>> {
        let rows = (slice.before, slice.limit.saturating_add(1));
        let versions = self.usage.agent_versions(&self.ledger, owned.agent(), rows).await?;
        Ok(History::of(versions, slice.limit, rules_of))
    }

    /// Edits the policy so that it is as it was in a version.
    pub(crate) async fn restore_policy(
        &self,
        owned: &Owned,
        meant: Precondition,
        service: ServiceId,
        version: u64,
    ) -> Result<GovernedService> {
        let only = (version.checked_add(1), 1);
        let versions = self
            .usage
            .policy_versions(&self.ledger, owned.agent(), service, only)
            .await?;
        let EnabledService { enabled, policy, .. } = exactly(versions, version)?;
        let edit = ServiceEdit {
            enabled: Some(enabled),
            policy: PolicyEdit {
                max_per_call: Some(policy.max_per_call),
                max_per_day: Some(policy.max_per_day),
                require_approval_above: Some(policy.require_approval_above),
                enabled_operations: Some(match policy.enabled_operations {
                    None => OperationScope::All,
                    Some(operations) => OperationScope::Only(operations),
                }),
                allowed_domains: Some(policy.allowed_domains),
            },
        };
        self.edit_service(owned, meant, service, &edit).await
    }

    /// Edits a rule so that it is as it was in a version of the agent's record. A rule that was removed since is added
    /// again, with a new id.
    pub(crate) async fn restore_rule(
        &self,
        owned: Owned,
        meant: Precondition,
        version: u64,
        id: RuleId,
    ) -> Result<(Owned, RuleId)> {
        let only = (version.checked_add(1), 1);
        let versions = self.usage.agent_versions(&self.ledger, owned.agent(), only).await?;
        let then = exactly(versions, version)?;
        let rule = then.rules.into_iter().find(|rule| rule.id == id);
        let rule = rule.ok_or(ErrorKind::NotFound)?;
        let edition = self.catalog().await?;
        let checked = CheckedRule::check(rule.kind, &edition.catalog).map_err(Error::invalid)?;
        if owned.agent().rules.iter().any(|rule| rule.id == id) {
            return Ok((self.replace_rule(owned, meant, id, &checked).await?, id));
        }
        self.add_rule(owned, meant, &checked).await
    }
}

fn exactly<T>(versions: Vec<RecordVersion<T>>, version: u64) -> Result<T> {
    let found = versions.into_iter().find(|found| found.version == version);
    Ok(found.ok_or(ErrorKind::NotFound)?.record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Each version shows its differences from the one before, also the last of a page. The first version differs from
    /// nothing.
    #[test]
    fn a_version_shows_what_it_changed() {
        let version = |version: u64| RecordVersion {
            version,
            at: None,
            record: version / 2,
        };
        let members = |record: &u64| vec![("half".to_owned(), json!(record)), ("name".to_owned(), json!("x"))];
        let history = History::of(vec![version(5), version(4), version(3)], 2, members);
        assert_eq!(history.next, Some(4));
        let changes: Vec<AuditChanges> = history.items.iter().map(|item| item.changes.clone()).collect();
        assert_eq!(changes, [AuditChanges::default(), AuditChanges::one("half", 1, 2)]);
        let first = History::of(vec![version(1)], 2, members);
        assert_eq!((first.next, first.items[0].changes.before.len()), (None, 0));
        assert_eq!(first.items[0].changes.after.len(), 2);
    }
}
