//! Lists and restores the versions of an agent's limits.
//!
//! Restoring is an ordinary update, which creates a new version.

use crate::agents::owned::OwnedAgent;
use crate::preview::operations::{MAX_DECISIONS, PreviewDays};
use crate::state::People;
use purser_domain::{
    Agent, AuditChanges, AuditFields, CheckedRule, EnabledService, Error, ErrorKind, PolicyChange, PolicyUpdate,
    Result, RuleDecisions, RuleId, RuleUpdate, ServiceId, ServiceUpdate, count_rule_decisions,
};
use purser_store::{NewestDecisions, PageRequest, RecordVersion};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChangedVersion<T> {
    pub(crate) version: RecordVersion<T>,
    /// The differences from the previous version, or from the version that was selected for comparison.
    pub(crate) changes: AuditChanges,
    pub(crate) direction: Direction,
}

/// Whether a version is wider or narrower than the base version, with which it is compared. Both fields are false if
/// there is no base version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Direction {
    /// Whether this version may allow a payment that the base version blocks or escalates.
    pub(crate) widens: bool,
    /// Whether this version may block or escalate a payment that the base version allows.
    pub(crate) narrows: bool,
}

struct Compare<T> {
    members: fn(&T) -> AuditFields,
    /// Whether the first record may allow payments that the second record blocks or escalates.
    widens: fn(&T, &T) -> bool,
}

impl<T> Compare<T> {
    fn compare_versions(&self, before: Option<&T>, after: &T) -> (AuditChanges, Direction) {
        let direction = before.map_or_else(Direction::default, |before| Direction {
            widens: (self.widens)(after, before),
            narrows: (self.widens)(before, after),
        });
        let changes = AuditChanges::between(before.map(self.members), Some((self.members)(after)));
        (changes, direction)
    }
}

const POLICIES: Compare<EnabledService> = Compare {
    members: EnabledService::audit_log_fields,
    widens: |after, before| after.widens(Some(before)),
};

const RULES: Compare<Agent> = Compare {
    members: audited_rules,
    widens: |after, before| {
        let rules = after.rules.clone();
        Agent {
            rules,
            ..before.clone()
        }
        .widens(before)
    },
};

/// A page of the versions of a policy or of an agent's rules, newest first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct History<T> {
    pub(crate) items: Vec<ChangedVersion<T>>,
    /// The cursor of the next page, which has only lower version numbers; `None` on the last page.
    pub(crate) next: Option<u64>,
}

impl<T> History<T> {
    /// Creates a page of `limit` versions. `versions` must contain one version more than `limit` if older versions
    /// exist.
    fn new(versions: Vec<RecordVersion<T>>, limit: u32, other: Option<&T>, compare: &Compare<T>) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let has_more = versions.len() > limit;
        let earlier = versions
            .iter()
            .skip(1)
            .map(|version| Some(&version.record))
            .chain([None]);
        let changes = versions.iter().zip(earlier);
        let changes = changes.map(|(now, before)| compare.compare_versions(other.or(before), &now.record));
        let changes: Vec<_> = changes.collect();
        let items = versions.into_iter().zip(changes);
        let items: Vec<ChangedVersion<T>> = items
            .take(limit)
            .map(|(version, (changes, direction))| ChangedVersion {
                version,
                changes,
                direction,
            })
            .collect();
        let next = items.last().filter(|_| has_more).map(|last| last.version.version);
        Self { items, next }
    }
}

/// The report about one page of an agent's version history. For each version on the page and each rule of the version,
/// the report counts the decisions that the rule determined.
#[derive(Debug)]
pub(crate) struct RuleReport {
    /// The counted decisions, by version number and rule. Consecutive versions with the same rules are counted
    /// together, under the number of the oldest of these versions.
    pub(crate) rules: BTreeMap<(u64, RuleId), RuleDecisions>,
    /// Whether the agent has more decisions in the requested days than the report counts.
    pub(crate) is_partial: bool,
}

pub(crate) fn audited_rules(agent: &Agent) -> AuditFields {
    let fields = agent.audit_log_fields().into_iter();
    fields.filter(|(name, _)| name.starts_with("rules/")).collect()
}

impl People {
    /// Reads a page of the policy's versions. Compares each version with the version `other`, or with the previous
    /// version if `other` is `None`.
    pub(crate) async fn read_policy_history(
        &self,
        owned: &OwnedAgent,
        service: ServiceId,
        page_request: PageRequest<u64>,
        other: Option<u64>,
    ) -> Result<History<EnabledService>> {
        let read = |rows| {
            self.usage
                .read_policy_versions(&self.ledger, owned.agent(), service, rows)
        };
        let history = read_history(page_request, other, &POLICIES, read).await?;
        if history.items.is_empty() && page_request.before.is_none() {
            return Err(ErrorKind::NotFound.into());
        }
        Ok(history)
    }

    /// Reads a page of the versions of the agent's rules. Compares each version with the version `other`, or with the
    /// previous version if `other` is `None`.
    pub(crate) async fn read_rules_history(
        &self,
        owned: &OwnedAgent,
        page_request: PageRequest<u64>,
        other: Option<u64>,
    ) -> Result<History<Agent>> {
        let read = |rows| self.usage.read_agent_versions(&self.ledger, owned.agent(), rows);
        read_history(page_request, other, &RULES, read).await
    }

    /// Counts, for each version on the page and each rule of the version, how many decisions of the last `days` days
    /// the rule determined.
    pub(crate) async fn report_rules(
        &self,
        owned: &OwnedAgent,
        history: &History<Agent>,
        days: PreviewDays,
    ) -> Result<RuleReport> {
        let agent = owned.agent();
        let read = async {
            let since = self.usage.read_ownership_start(agent).await?;
            let (from, to) = days.range_until(self.now());
            let from = from.max(since).min(to);
            let read = self
                .ledger
                .read_newest_decisions(agent.id, (from, to), MAX_DECISIONS, || false);
            read.await
        };
        let NewestDecisions {
            decisions, is_partial, ..
        } = self.run_in_long_operation_slot(&agent.owner, read).await?;
        let edition = self.current_catalog().await?;
        // Consecutive versions with the same rules form one group. The group has the number of the oldest version.
        let mut group: Option<(&Agent, u64)> = None;
        let versions = history.items.iter().rev().map(|item| {
            let (record, version) = (&item.version.record, item.version.version);
            let first = group.filter(|(first, _)| first.rules == record.rules);
            let (_, number) = *group.insert(first.unwrap_or((record, version)));
            (record, number)
        });
        Ok(RuleReport {
            rules: count_rule_decisions(versions, &decisions, &edition.catalog),
            is_partial,
        })
    }

    /// Returns the update that restores the policy of an earlier version. Operations that have left the catalog are not
    /// restored.
    pub(crate) async fn find_policy_to_restore(
        &self,
        owned: &OwnedAgent,
        service: ServiceId,
        version: u64,
    ) -> Result<ServiceUpdate> {
        let read = |rows| {
            self.usage
                .read_policy_versions(&self.ledger, owned.agent(), service, rows)
        };
        let EnabledService { enabled, policy, .. } = find_version(version, read).await?;
        let mut policy = PolicyUpdate::from(policy);
        let edition = self.current_catalog().await?;
        policy.take_unlisted_operations(edition.catalog.find_by_id(service));
        Ok(ServiceUpdate::Change(PolicyChange {
            enabled: Some(enabled),
            policy,
        }))
    }

    /// Returns the update that restores a rule from an earlier version of the agent, and the rule's id. A rule that was
    /// removed after that version gets a new id.
    pub(crate) async fn find_rule_to_restore(
        &self,
        owned: &OwnedAgent,
        version: u64,
        id: RuleId,
    ) -> Result<(RuleUpdate, RuleId)> {
        let read = |rows| self.usage.read_agent_versions(&self.ledger, owned.agent(), rows);
        let then = find_version(version, read).await?;
        let rule = then.rules.into_iter().find(|rule| rule.id == id);
        let rule = rule.ok_or(ErrorKind::NotFound)?;
        let edition = self.current_catalog().await?;
        let checked = CheckedRule::check(rule.kind, &edition.catalog).map_err(Error::invalid)?;
        if owned.agent().rules.iter().any(|rule| rule.id == id) {
            return Ok((RuleUpdate::Replace(id, checked), id));
        }
        let id = self.new_rule_id()?;
        Ok((RuleUpdate::Add(id, checked), id))
    }
}

/// Reads a page of versions. The arguments of `read` are the version below which `read` starts, and the maximum number
/// of versions.
async fn read_history<T, F>(
    page_request: PageRequest<u64>,
    other: Option<u64>,
    compare: &Compare<T>,
    read: impl Fn((Option<u64>, u32)) -> F,
) -> Result<History<T>>
where
    F: Future<Output = Result<Vec<RecordVersion<T>>>>,
{
    let versions = read((page_request.before, page_request.limit.saturating_add(1))).await?;
    let other = match other {
        None => None,
        Some(version) => Some(find_version(version, read).await?),
    };
    Ok(History::new(versions, page_request.limit, other.as_ref(), compare))
}

/// Returns the record in this version, or `not_found` if the record does not have the version.
async fn find_version<T, F>(version: u64, read: impl Fn((Option<u64>, u32)) -> F) -> Result<T>
where
    F: Future<Output = Result<Vec<RecordVersion<T>>>>,
{
    let versions = read((version.checked_add(1), 1)).await?;
    let found = versions.into_iter().find(|found| found.version == version);
    Ok(found.ok_or(ErrorKind::NotFound)?.record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_store::UpdateMark;
    use serde_json::json;

    /// The first version has no differences. The last version on a page is compared with a version on the next page.
    #[test]
    fn a_change_history_shows_the_changed_fields_of_each_version() {
        const HALVES: Compare<u64> = Compare {
            members: |record| vec![("half".to_owned(), json!(record)), ("name".to_owned(), json!("x"))],
            widens: |now, before| now > before,
        };
        let version = |version: u64| RecordVersion {
            version,
            at: None,
            mark: UpdateMark::default(),
            record: version / 2,
        };
        let direction = |widens, narrows| Direction { widens, narrows };
        let told = |history: &History<u64>| -> Vec<_> {
            let items = history.items.iter();
            items.map(|item| (item.changes.clone(), item.direction)).collect()
        };
        let versions = || vec![version(5), version(4), version(3)];
        let history = History::new(versions(), 2, None, &HALVES);
        assert_eq!(history.next, Some(4));
        let raised = |from: u64| (AuditChanges::single("half", from, 2), direction(true, false));
        let same = (AuditChanges::default(), Direction::default());
        assert_eq!(told(&history), [same, raised(1)]);
        let lowered = (AuditChanges::single("half", 3, 2), direction(false, true));
        assert_eq!(told(&History::new(versions(), 1, Some(&3), &HALVES)), [lowered]);
        let first = History::new(vec![version(1)], 2, None, &HALVES);
        assert_eq!((first.next, first.items[0].changes.before.len()), (None, 0));
        assert_eq!(first.items[0].changes.after.len(), 2);
        assert_eq!(first.items[0].direction, Direction::default());
    }
}
