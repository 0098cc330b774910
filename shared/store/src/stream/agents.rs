//! Change events of agents: changes of the agent's record, of policies, and of withdrawal addresses.

use crate::{
    audit::entry::UpdateMark,
    codec::{attribute::Item, ledger::Ledger},
    stream::{change::Change, fact::ChangeEvent},
};
use purser_domain::{
    Agent, AgentStatus, EditReason, EnabledService, EventData, EventId, EventKind, Result, Rule, SpendPolicy, UserId,
};
use std::fmt::Display;

impl Ledger {
    /// Returns the change events of an update of an agent's record. Their ids contain the record's version.
    pub(crate) fn agent_change_events(&self, change: &Change) -> Result<Vec<ChangeEvent>> {
        let read = |image: &Item| self.read_agent_item(image);
        let Some(image) = &change.new else {
            return Ok(Vec::new());
        };
        let new = read(image)?;
        let old = change.old.as_ref().map(read).transpose()?;
        let owner = |agent: &Agent| {
            let owner = UserId::parse(&agent.owner);
            owner.ok_or_else(|| self.item_row(image).corrupt_error("owner"))
        };
        let update = Edit {
            change,
            agent: &new,
            owner: owner(&new)?,
        };
        let mut changes = Vec::new();
        match &old {
            None => changes.push(update.change_event(EventKind::AgentCreated, &"", agent_identity_data(&new))),
            Some(old) => {
                if old.owner != new.owner {
                    changes.push(update.change_event(EventKind::AgentAccepted, &"", agent_identity_data(&new)));
                    let before = owner(old)?;
                    let handed_over = update.change_event(EventKind::AgentHandedOver, &"", agent_identity_data(&new));
                    changes.push(handed_over.with_owner(before));
                }
                let by_owner = || EventData::new().text("by", "owner");
                match (old.status, new.status) {
                    (AgentStatus::Active, AgentStatus::Frozen) => {
                        let mark = UpdateMark::read_mark(self.item_row(image))?;
                        // `by` is `owner` also for an automatic freeze, because the owner set the rule.
                        let data = by_owner().optional_text("reason", rule_reason(&mark));
                        changes.push(update.change_event(EventKind::AgentFrozen, &"", data));
                    }
                    (AgentStatus::Frozen, AgentStatus::Active) => {
                        changes.push(update.change_event(EventKind::AgentUnfrozen, &"", by_owner()));
                    }
                    (AgentStatus::Active, AgentStatus::Active) | (AgentStatus::Frozen, AgentStatus::Frozen) => {}
                }
            }
        }
        changes.extend(update.key_change_events(old.as_ref()));
        changes.extend(update.rule_change_events(old.as_ref()));
        Ok(changes)
    }

    /// Returns the change event of a created or updated policy. Storing a default policy is not an event.
    pub(crate) fn policy_change_events(&self, change: &Change) -> Result<Vec<ChangeEvent>> {
        let Some(image) = &change.new else {
            return Ok(Vec::new());
        };
        let agent = self.parse_agent_in_key(image)?;
        let EnabledService {
            service,
            version,
            enabled,
            policy,
        } = self.read_policy(image)?;
        // A default policy is permissive, or has no audit id, because no user stored the policy.
        let is_permissive = enabled && policy == SpendPolicy::permissive();
        let mark = UpdateMark::read_mark(self.item_row(image))?;
        let is_default = is_permissive || mark.audit_id.is_none();
        if change.old.is_none() && version == 1 && is_default {
            return Ok(Vec::new());
        }
        let kind = EventKind::PolicyChanged;
        let data = EventData::new()
            .text("service_id", service)
            .number("version", version)
            .flag("enabled", enabled)
            .amount("max_per_call_units", policy.max_per_call)
            .amount("max_per_day_units", policy.max_per_day)
            .amount("require_approval_above_units", policy.require_approval_above)
            .optional_text("reason", rule_reason(&mark));
        let id = EventId::derive(kind, &[&agent, &service, &version]);
        Ok(vec![ChangeEvent::for_agent(agent, kind, id, change.at, data)])
    }

    /// Returns the change event if a withdrawal address was set or removed.
    pub(crate) fn withdrawal_address_change_events(&self, change: &Change) -> Result<Vec<ChangeEvent>> {
        let Some(image) = change.new.as_ref().filter(|image| image.contains_key("ver")) else {
            // The row was deleted, or is the idempotency record of a withdrawal, which has no attribute `ver`.
            return Ok(Vec::new());
        };
        let agent = self.parse_agent_in_key(image)?;
        let new = self.read_withdrawal_item(image)?;
        let old = change
            .old
            .as_ref()
            .map(|image| self.read_withdrawal_item(image))
            .transpose()?;
        let before = old.and_then(|old| old.address);
        let (kind, at, data) = match (&before, &new.address) {
            (before, Some(named)) if before.as_ref() != Some(named) => {
                let data = EventData::new().text("address", named.address);
                let data = data.time("good_from", named.good_from);
                (EventKind::PayoutAddressNamed, named.named_at, data)
            }
            (Some(removed), None) => {
                let data = EventData::new().text("address", removed.address);
                (EventKind::PayoutAddressRemoved, change.at, data)
            }
            (Some(_) | None, Some(_)) | (None, None) => return Ok(Vec::new()),
        };
        let id = EventId::derive(kind, &[&agent, &new.version]);
        Ok(vec![ChangeEvent::for_agent(agent, kind, id, at, data)])
    }
}

struct Edit<'a> {
    change: &'a Change,
    agent: &'a Agent,
    owner: UserId,
}

impl Edit<'_> {
    /// Creates a change event of this update. `subject` distinguishes events of the same kind.
    fn change_event(&self, kind: EventKind, subject: &dyn Display, data: EventData) -> ChangeEvent {
        let (agent, time) = match kind {
            EventKind::AgentCreated => (self.agent, self.agent.created_at),
            _ => (self.agent, self.change.at),
        };
        let id = EventId::derive(kind, &[&agent.id, &agent.version, subject]);
        ChangeEvent::for_agent(agent.id, kind, id, time, data).with_owner(self.owner.clone())
    }

    fn key_change_events(&self, old: Option<&Agent>) -> Vec<ChangeEvent> {
        let mut changes = Vec::new();
        for key in &self.agent.keys {
            let before = old.and_then(|old| old.find_key(key.id));
            if before.is_none() {
                let data = EventData::new().text("key_id", key.id);
                let data = data.optional_text("expires_at", key.scope.expires_at);
                changes.push(self.change_event(EventKind::KeyCreated, &key.id, data));
            }
            if let Some(end) = key.ends_at
                && before.and_then(|before| before.ends_at) != Some(end)
            {
                let data = EventData::new().text("key_id", key.id).time("ends_at", end);
                changes.push(self.change_event(EventKind::KeyEnded, &key.id, data));
            }
        }
        changes
    }

    fn rule_change_events(&self, old: Option<&Agent>) -> Vec<ChangeEvent> {
        let before = old.map(|old| old.rules.as_slice()).unwrap_or_default();
        let mut changes = Vec::new();
        for rule in &self.agent.rules {
            let kind = match before.iter().find(|before| before.id == rule.id) {
                None => EventKind::RuleCreated,
                Some(before) if before != rule => EventKind::RuleChanged,
                Some(_) => continue,
            };
            changes.push(self.change_event(kind, &rule.id, rule_data(rule)));
        }
        let is_kept = |before: &&Rule| self.agent.rules.iter().any(|rule| rule.id == before.id);
        for removed in before.iter().filter(|before| !is_kept(before)) {
            changes.push(self.change_event(EventKind::RuleRemoved, &removed.id, rule_data(removed)));
        }
        changes
    }
}

/// Returns the reason of an automatic freeze. Events contain no reasons that users gave.
fn rule_reason(mark: &UpdateMark) -> Option<&str> {
    let reason = mark.reason.as_ref().filter(|_| mark.was_made_by_rule());
    reason.map(EditReason::as_str)
}

fn agent_identity_data(agent: &Agent) -> EventData {
    EventData::new()
        .text("name", &agent.name)
        .text("wallet", agent.wallet.address)
}

fn rule_data(rule: &Rule) -> EventData {
    EventData::new()
        .text("rule_id", rule.id)
        .text("kind", rule.kind.name())
        .number("version", rule.version)
}
