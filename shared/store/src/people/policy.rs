//! An agent's policy for a service, in the partition of the window that it limits.
//!
//! Every edit stamps its version on the window's totals in the same transaction. So a reservation checks the version of
//! its policy on the item that it writes anyway, and one Query reads policy and window together. Markers in the agent's
//! partition only list the services that have a policy.

use crate::{
    codec::attribute::Attribute as _,
    codec::backoff::Backoff,
    codec::fault::failed,
    codec::item::{Draft, Item},
    codec::key::{self, Key},
    codec::ledger::{Edited, Ledger},
    codec::transact::{Known, Transaction},
    payments::window::Horizon,
};
use aws_sdk_dynamodb::types::builders::ConditionCheckBuilder;
use purser_domain::{AgentId, EnabledService, Result, ServiceId, SpendPolicy, WindowScope};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Agent,
    Policy,
    Window,
    Marker,
}

impl Ledger {
    /// Stores an agent's policy for a service: the first version, or the one after the stored version.
    ///
    /// The first version also creates the window, and is conditional on the version of the agent's record that fences
    /// it: otherwise a concurrent edit of the agent would not apply to this window.
    pub async fn put_policy(&self, agent: AgentId, enabled: &EnabledService) -> Result<Edited> {
        let mut backoff = Backoff::new();
        loop {
            let transaction = self.policy_edit(agent, enabled).await?;
            let Known::Refused(refusal) = transaction.send_until_known(&self.db, &mut backoff).await? else {
                return Ok(Edited::Stored);
            };
            if refusal.names(Role::Policy) {
                let met = refusal
                    .met(Role::Policy)
                    .map(|item| self.read_policy(item))
                    .transpose()?;
                return Ok(if met.as_ref() == Some(enabled) {
                    Edited::Stored
                } else {
                    Edited::Conflict
                });
            }
            // The agent was edited concurrently.
            backoff.wait().await?;
        }
    }

    async fn policy_edit(&self, agent: AgentId, enabled: &EnabledService) -> Result<Transaction<Role>> {
        let service = enabled.service;
        let mut transaction = Transaction::new();
        // The record of an agent that is not created yet will have version 1.
        let mut agent_version = 1;
        let put = if enabled.version == 1 {
            if let Some(record) = self.agent(agent).await? {
                agent_version = record.version;
                let unchanged = ConditionCheckBuilder::default()
                    .table_name(&*self.table)
                    .set_key(Some(Key::agent(agent).attributes()))
                    .condition_expression("ver = :agent")
                    .expression_attribute_values(":agent", agent_version.write());
                transaction.check(Role::Agent, unchanged)?;
            }
            self.put_new(write_policy(agent, enabled))
        } else {
            self.put(write_policy(agent, enabled))
                .condition_expression("ver = :old")
                .expression_attribute_values(":old", enabled.version.saturating_sub(1).write())
        };
        transaction.put(Role::Policy, put)?;
        let scope = WindowScope::Day { agent, service };
        let stamp = self.stamp(scope, enabled.version, agent_version, Horizon::Keep);
        transaction.update(Role::Window, stamp)?;
        transaction.put(Role::Marker, self.put(Key::marker(agent, service).attributes()))?;
        Ok(transaction)
    }

    /// An agent's policy for one service, strongly consistent.
    pub async fn enabled_service(&self, agent: AgentId, service: ServiceId) -> Result<Option<EnabledService>> {
        let item = self.get(&Key::policy(agent, service)).await?;
        item.map(|item| self.read_policy(&item)).transpose()
    }

    /// An agent's policies for all services, disabled ones included, in order of service id.
    pub async fn enabled_services(&self, agent: AgentId) -> Result<Vec<EnabledService>> {
        let services = self.marked_services(agent).await?.into_iter();
        let keys: Vec<Key> = services.map(|service| Key::policy(agent, service)).collect();
        let items = self.get_all(&keys).await?;
        let found = items.iter().map(|item| self.read_policy(item));
        let mut found = found.collect::<Result<Vec<EnabledService>>>()?;
        found.sort_by_key(|enabled| enabled.service);
        Ok(found)
    }

    pub(crate) async fn marked_services(&self, agent: AgentId) -> Result<Vec<ServiceId>> {
        let query = self
            .db
            .query()
            .table_name(&*self.table)
            .key_condition_expression("pk = :pk AND begins_with(sk, :markers)")
            .expression_attribute_values(":pk", key::agent_partition(agent).write())
            .expression_attribute_values(":markers", key::MARKERS.to_owned().write())
            .consistent_read(true);
        let markers: Result<Vec<Item>, _> = query.into_paginator().items().send().collect().await;
        let markers = markers.map_err(failed("listing an agent's services"))?;
        let services = markers.iter().map(|item| {
            let service = key::sort_key(item)
                .strip_prefix(key::MARKERS)
                .and_then(ServiceId::parse);
            service.ok_or_else(|| self.row(item).corrupt("sk"))
        });
        services.collect()
    }

    /// The policy in an item.
    pub(crate) fn read_policy(&self, item: &Item) -> Result<EnabledService> {
        let row = self.row(item);
        Ok(EnabledService {
            service: row.get("svc")?,
            version: row.get("ver")?,
            enabled: row.get("on")?,
            policy: SpendPolicy {
                max_per_call: row.get("mpc")?,
                max_per_day: row.get("mpd")?,
                require_approval_above: row.get("raa")?,
                enabled_operations: row.get_optional("ops")?,
                allowed_domains: row.get("domains")?,
            },
        })
    }
}

fn write_policy(agent: AgentId, enabled: &EnabledService) -> Item {
    let policy = &enabled.policy;
    Draft::of(&Key::policy(agent, enabled.service))
        .with("svc", &enabled.service)
        .with("ver", &enabled.version)
        .with("on", &enabled.enabled)
        .with("mpc", &policy.max_per_call)
        .with("mpd", &policy.max_per_day)
        .with("raa", &policy.require_approval_above)
        .with_optional("ops", policy.enabled_operations.as_ref())
        .with("domains", &policy.allowed_domains)
        .into_item()
}
