//! Freezes an agent automatically. The agent's windows are not updated, so a payment whose decision is in progress may
//! still be made.

use crate::{
    audit::entry::{AuditEntry, UpdateMark},
    codec::attribute::Attribute as _,
    codec::backoff::Backoff,
    codec::item::Item,
    codec::key::Key,
    codec::ledger::{Ledger, UpdateResult},
    transact::{Transaction, TransactionOutcome},
};
use purser_domain::{Agent, AgentId, AgentStatus, Result};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Agent,
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

    /// Freezes the agent if the stored record has the version of `agent`.
    pub async fn freeze_automatically(&self, agent: &Agent, audit: &AuditEntry) -> Result<UpdateResult> {
        const AUDIT_ID: &str = UpdateMark::AUDIT_ID;
        // Attributes of the previous change's `UpdateMark` that this change lacks must be removed from the record.
        let mark = audit.add_update_mark_to_item(Item::new());
        let mut sets = vec!["#st = :st".to_owned(), "#ver = :next".to_owned()];
        let mut removes = Vec::new();
        let mut update = self
            .update_item(&Key::agent(agent.id))
            .condition_expression("#ver = :judged")
            .expression_attribute_names("#st", "st")
            .expression_attribute_names("#ver", "ver")
            .expression_attribute_values(":st", AgentStatus::Frozen.write())
            .expression_attribute_values(":judged", agent.version.write())
            .expression_attribute_values(":next", agent.version.saturating_add(1).write());
        for name in [UpdateMark::BY, AUDIT_ID, UpdateMark::REASON] {
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
        let mut transaction = Transaction::new();
        transaction.add_update(Role::Agent, update.update_expression(sets + &removes))?;
        transaction.add_audit_rows(Role::Audit, audit)?;
        match transaction.send_until_outcome(&self.db, &mut Backoff::new()).await? {
            TransactionOutcome::Committed => Ok(UpdateResult::Stored),
            TransactionOutcome::Refused(rejection) => {
                let existing = rejection
                    .existing_item(Role::Agent)
                    .and_then(|existing| existing.get(AUDIT_ID));
                // If the stored audit id belongs to this freeze, an earlier attempt has stored the freeze.
                let is_own = existing.is_some() && existing == mark.get(AUDIT_ID);
                Ok(if is_own {
                    UpdateResult::Stored
                } else {
                    UpdateResult::Conflict
                })
            }
        }
    }
}
