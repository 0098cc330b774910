//! An agent's policies, one per service. Every change of a policy also writes the policy's version to the day window in
//! the same transaction, so a reservation checks the version there.

use crate::{
    audit::entry::AuditEntry,
    codec::attribute::Attribute as _,
    codec::backoff::Backoff,
    codec::fields::fields,
    codec::item::{Draft, Item},
    codec::key::{self, Key},
    codec::ledger::{Ledger, UpdateResult},
    codec::table::Query,
    transact::{Transaction, TransactionOutcome},
};
use aws_sdk_dynamodb::types::builders::{ConditionCheckBuilder, UpdateBuilder};
use purser_domain::{
    Agent, AgentId, Approval, ApprovalResolution, EnabledService, Result, ServiceId, SpendPolicy, TemporaryCaps,
    WindowScope,
};
use std::collections::HashSet;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Role {
    Agent,
    Policy,
    Window,
    Approval,
    Audit,
}

/// The result of approving a request together with a change of the agent's limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrantResult {
    /// The changed limits are stored, and the request is approved.
    Done,
    /// The stored limits have another version than the limits that the caller read. Nothing was written.
    Conflict,
    /// The request was no longer pending, or the agent belongs to another owner. Nothing was written.
    NotPending,
}

impl Ledger {
    /// Stores the next version of an agent's policy for a service. If the agent's record changes while version 1 is
    /// stored, the write is repeated, because a concurrent update of the agent does not update the new window.
    pub async fn put_policy(
        &self,
        agent: AgentId,
        enabled: &EnabledService,
        audit: &AuditEntry,
    ) -> Result<UpdateResult> {
        Ok(
            match self
                .put_policy_with_optional_approval(agent, enabled, None, audit)
                .await?
            {
                GrantResult::Done => UpdateResult::Stored,
                GrantResult::Conflict | GrantResult::NotPending => UpdateResult::Conflict,
            },
        )
    }

    /// Approves a pending limit increase, and stores the policy with the increase in the same transaction.
    pub async fn grant_limit_increase(
        &self,
        approval: &Approval,
        granted: TemporaryCaps,
        enabled: &EnabledService,
        resolution: &ApprovalResolution,
        audit: &AuditEntry,
    ) -> Result<GrantResult> {
        let update = self.limit_increase_approval_update(approval, granted, resolution);
        self.put_policy_with_optional_approval(approval.agent, enabled, Some(update), audit)
            .await
    }

    async fn put_policy_with_optional_approval(
        &self,
        agent: AgentId,
        enabled: &EnabledService,
        approval_update: Option<UpdateBuilder>,
        audit: &AuditEntry,
    ) -> Result<GrantResult> {
        let mut backoff = Backoff::new();
        loop {
            let record = if enabled.version == 1 {
                self.read_agent_by_id(agent).await?
            } else {
                None
            };
            if let Some(record) = &record
                && let Some(default) = self.read_default_policy(record, enabled.service).await?
                && default != *enabled
            {
                return Ok(GrantResult::Conflict);
            }
            let mut update =
                self.policy_transaction(agent, enabled, record.map(|record| record.version), Some(audit))?;
            if let Some(approval_update) = &approval_update {
                update.add_update(Role::Approval, approval_update.clone())?;
            }
            update.add_audit_rows(Role::Audit, audit)?;
            let TransactionOutcome::Refused(rejection) = update.send_until_outcome(&self.db, &mut backoff).await?
            else {
                return Ok(GrantResult::Done);
            };
            if rejection.has_failed(Role::Policy) {
                let existing = rejection
                    .existing_item(Role::Policy)
                    .map(|item| self.read_policy(item))
                    .transpose()?;
                if existing.as_ref() == Some(enabled) {
                    return Ok(GrantResult::Done);
                }
                let is_first = existing.is_none() && enabled.version == 2;
                if !is_first || !self.try_write_default_policy_by_id(agent, enabled.service).await? {
                    return Ok(GrantResult::Conflict);
                }
            } else if rejection.has_failed(Role::Approval) {
                return Ok(GrantResult::NotPending);
            }
            // A concurrent call changed the agent, or stored the default policy.
            backoff.wait_for_retry().await?;
        }
    }

    /// Writes a version of an agent's policy for a service. `audit` is `None` for a default policy.
    ///
    /// Version 1 also creates the day window, if the agent's record has the version `agent_version`. `agent_version` is
    /// `None` for a new agent.
    pub(crate) fn policy_transaction(
        &self,
        agent: AgentId,
        enabled: &EnabledService,
        agent_version: Option<u64>,
        audit: Option<&AuditEntry>,
    ) -> Result<Transaction<Role>> {
        let service = enabled.service;
        let mut transaction = Transaction::new();
        let item = write_policy(agent, enabled);
        let item = match audit {
            Some(audit) => audit.add_update_mark_to_item(item),
            None => item,
        };
        let put = if enabled.version == 1 {
            if let Some(agent_version) = agent_version {
                let unchanged = ConditionCheckBuilder::default()
                    .table_name(&*self.table)
                    .set_key(Some(Key::agent(agent).attributes()))
                    .condition_expression("ver = :agent")
                    .expression_attribute_values(":agent", agent_version.write());
                transaction.add_check(Role::Agent, unchanged)?;
            }
            self.put_new_item(item)
        } else {
            self.put_item(item)
                .condition_expression("ver = :old")
                .expression_attribute_values(":old", enabled.version.saturating_sub(1).write())
        };
        transaction.add_put(Role::Policy, put)?;
        let scope = WindowScope::Day { agent, service };
        let version = self.window_version_update(scope, enabled.version, agent_version.unwrap_or(1));
        transaction.add_update(Role::Window, version)?;
        Ok(transaction)
    }

    /// Reads an agent's policy for a service, strongly consistent. If no policy is stored, returns the default policy.
    pub async fn find_enabled_service(&self, agent: AgentId, service: ServiceId) -> Result<Option<EnabledService>> {
        if let Some(item) = self.get_item(&Key::policy(agent, service)).await? {
            return self.read_policy(&item).map(Some);
        }
        match self.read_agent_by_id(agent).await? {
            Some(agent) => self.read_default_policy(&agent, service).await,
            None => Ok(None),
        }
    }

    /// Reads an agent's policies for all services, including default and disabled services, sorted by service id.
    pub async fn list_enabled_services(&self, agent: &Agent) -> Result<Vec<EnabledService>> {
        let (items, set) = tokio::try_join!(self.read_policy_items(agent.id), self.read_default_services(agent))?;
        let found = items.iter().map(|item| self.read_policy(item));
        let mut found = found.collect::<Result<Vec<EnabledService>>>()?;
        let written: HashSet<ServiceId> = found.iter().map(|enabled| enabled.service).collect();
        let unwritten = set.service_ids().iter().filter(|service| !written.contains(*service));
        found.extend(unwritten.filter_map(|service| set.default_policy(*service)));
        found.sort_by_key(|enabled| enabled.service);
        Ok(found)
    }

    pub(crate) async fn read_services_with_policy(&self, agent: AgentId) -> Result<Vec<ServiceId>> {
        let items = self.read_policy_items(agent).await?;
        items.iter().map(|item| self.item_row(item).get("svc")).collect()
    }

    async fn read_policy_items(&self, agent: AgentId) -> Result<Vec<Item>> {
        Query::new(&self.db, &self.table, key::policy_partition(agent))
            .consistent()
            .collect("listing an agent's policies")
            .await
    }

    pub(crate) fn read_policy(&self, item: &Item) -> Result<EnabledService> {
        self.item_row(item).read()
    }
}

fields! {
    EnabledService { service: "svc", version: "ver", enabled: "on", policy: part }

    SpendPolicy {
        max_per_call: "mpc",
        max_per_day: "mpd",
        require_approval_above: "raa",
        enabled_operations: "ops" optional,
        allowed_domains: "domains",
        raises: "raises" or_default,
    }
}

pub(crate) fn write_policy(agent: AgentId, enabled: &EnabledService) -> Item {
    Draft::new(&Key::policy(agent, enabled.service))
        .with_fields(enabled)
        .into_item()
}
