//! Freezes an agent automatically, or disables a service for an agent. The agent's windows are not updated by a freeze, so
//! a payment whose decision is in progress may still be made.
//!
//! Both are updates of single attributes, because the role of the Lambda function `history` may write no limits.

use crate::{
    audit::entry::{AuditEntry, UpdateMark},
    codec::attribute::Attribute as _,
    codec::backoff::Backoff,
    codec::item::Item,
    codec::key::Key,
    codec::ledger::{Ledger, UpdateResult},
    transact::{Transaction, TransactionOutcome},
};
use aws_sdk_dynamodb::types::{
    AttributeValue,
    builders::{ConditionCheckBuilder, UpdateBuilder},
};
use purser_domain::{Agent, AgentId, AgentStatus, EnabledService, Result, ServiceId, WindowScope};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    /// The record of the agent or the policy that is changed.
    Changed,
    Agent,
    Window,
    Audit,
}

impl Ledger {
    /// Reads the agent's record and the [`UpdateMark`], strongly consistent.
    pub async fn read_agent_with_update_mark(&self, id: AgentId) -> Result<Option<(Agent, UpdateMark)>> {
        let item = self.get_item(&Key::agent(id)).await?;
        let read = |item: Item| {
            Ok((
                self.read_agent_item(&item)?,
                UpdateMark::read_mark(self.item_row(&item))?,
            ))
        };
        item.map(read).transpose()
    }

    /// Reads the agent's stored policy for a service and the [`UpdateMark`], strongly consistent.
    pub async fn read_policy_with_update_mark(
        &self,
        agent: AgentId,
        service: ServiceId,
    ) -> Result<Option<(EnabledService, UpdateMark)>> {
        let item = self.get_item(&Key::policy(agent, service)).await?;
        let read = |item: Item| Ok((self.read_policy(&item)?, UpdateMark::read_mark(self.item_row(&item))?));
        item.map(read).transpose()
    }

    /// Freezes the agent if the stored record has the version of `agent`.
    pub async fn freeze_automatically(&self, agent: &Agent, audit: &AuditEntry) -> Result<UpdateResult> {
        let status = ("st", AgentStatus::Frozen.write());
        let mut transaction = Transaction::new();
        let update = self.automatic_update(&Key::agent(agent.id), agent.version, status, audit);
        transaction.add_update(Role::Changed, update)?;
        self.send_automatic_update(transaction, audit).await
    }

    /// Disables a service for the agent if the stored records have the versions of `agent` and `policy`.
    pub async fn disable_automatically(
        &self,
        agent: &Agent,
        policy: &EnabledService,
        audit: &AuditEntry,
    ) -> Result<UpdateResult> {
        let (id, service) = (agent.id, policy.service);
        let mut transaction = Transaction::new();
        let update = self.automatic_update(&Key::policy(id, service), policy.version, ("on", false.write()), audit);
        transaction.add_update(Role::Changed, update)?;
        let scope = WindowScope::Day { agent: id, service };
        let window = self.window_version_update(scope, policy.version.saturating_add(1), agent.version);
        transaction.add_update(Role::Window, window)?;
        let unchanged = ConditionCheckBuilder::default()
            .table_name(&*self.table)
            .set_key(Some(Key::agent(id).attributes()))
            .condition_expression("ver = :agent")
            .expression_attribute_values(":agent", agent.version.write());
        transaction.add_check(Role::Agent, unchanged)?;
        self.send_automatic_update(transaction, audit).await
    }

    /// Creates the update that sets an attribute in the next version of a record, with the audit entry's [`UpdateMark`].
    fn automatic_update(
        &self,
        key: &Key,
        version: u64,
        (attribute, value): (&str, AttributeValue),
        audit: &AuditEntry,
    ) -> UpdateBuilder {
        // Attributes of the previous change's `UpdateMark` that this change lacks must be removed from the record.
        let mark = audit.add_update_mark_to_item(Item::new());
        let mut sets = vec!["#set = :set".to_owned(), "#ver = :next".to_owned()];
        let mut removes = Vec::new();
        let mut update = self
            .update_item(key)
            .condition_expression("#ver = :judged")
            .expression_attribute_names("#set", attribute)
            .expression_attribute_names("#ver", "ver")
            .expression_attribute_values(":set", value)
            .expression_attribute_values(":judged", version.write())
            .expression_attribute_values(":next", version.saturating_add(1).write());
        for name in [UpdateMark::BY, UpdateMark::AUDIT_ID, UpdateMark::REASON] {
            update = update.expression_attribute_names(format!("#{name}"), name);
            match mark.get(name) {
                Some(value) => {
                    sets.push(format!("#{name} = :{name}"));
                    update = update.expression_attribute_values(format!(":{name}"), value.clone());
                }
                None => removes.push(format!("#{name}")),
            }
        }
        let sets = format!("SET {}", sets.join(", "));
        let removes = if removes.is_empty() {
            String::new()
        } else {
            format!(" REMOVE {}", removes.join(", "))
        };
        update.update_expression(sets + &removes)
    }

    async fn send_automatic_update(
        &self,
        mut transaction: Transaction<Role>,
        audit: &AuditEntry,
    ) -> Result<UpdateResult> {
        transaction.add_audit_rows(Role::Audit, audit)?;
        match transaction.send_until_outcome(&self.db, &mut Backoff::new()).await? {
            TransactionOutcome::Committed => Ok(UpdateResult::Stored),
            TransactionOutcome::Refused(rejection) => {
                let existing = rejection
                    .existing_item(Role::Changed)
                    .and_then(|existing| existing.get(UpdateMark::AUDIT_ID));
                // If the stored audit id belongs to this update, an earlier attempt has stored the update.
                let mark = audit.add_update_mark_to_item(Item::new());
                let is_own = existing.is_some() && existing == mark.get(UpdateMark::AUDIT_ID);
                Ok(if is_own {
                    UpdateResult::Stored
                } else {
                    UpdateResult::Conflict
                })
            }
        }
    }
}
