//! Shadow policies, stored under the owner who attached them, so that a new owner of the agent does not get them.

use crate::{
    audit::entry::AuditEntry,
    codec::{
        backoff::Backoff,
        fields::fields,
        item::{Draft, Item, Row},
        key::{self as keys, Key},
        table::get_item,
    },
    transact::{Transaction, TransactionOutcome},
    usage::table::UsageTable,
};
use aws_sdk_dynamodb::types::builders::{DeleteBuilder, PutBuilder};
use purser_domain::{AgentId, Result, Shadow, UserId};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Shadow,
    Audit,
}

impl UsageTable {
    /// Reads an agent's shadow policy that this user attached, strongly consistent. Takes one read unit.
    pub async fn read_shadow_policy(&self, owner: &UserId, agent: AgentId) -> Result<Option<Shadow>> {
        let item = get_item(
            &self.db,
            &self.table,
            &Key::shadow(owner, agent),
            "reading a shadow policy",
        )
        .await?;
        item.map(|item| self.read_shadow_item(&item)).transpose()
    }

    /// Replaces the agent's shadow policy, and writes the audit row.
    pub async fn put_shadow_policy(&self, shadow: &Shadow, audit: &AuditEntry) -> Result<()> {
        let put = PutBuilder::default()
            .table_name(&*self.table)
            .set_item(Some(write_shadow(shadow)));
        let mut transaction = Transaction::new();
        transaction.add_put(Role::Shadow, put)?;
        transaction.add_audit_rows(Role::Audit, audit)?;
        // If the audit row exists already, an earlier attempt has stored the shadow policy, and the response to that
        // attempt was lost.
        transaction.send_until_outcome(&self.db, &mut Backoff::new()).await?;
        Ok(())
    }

    /// Removes a shadow policy. Returns `false` if this shadow policy is no longer attached.
    pub async fn remove_shadow_policy(&self, shadow: &Shadow, audit: &AuditEntry) -> Result<bool> {
        let delete = DeleteBuilder::default()
            .table_name(&*self.table)
            .set_key(Some(Key::shadow(&shadow.owner, shadow.agent).attributes()))
            .condition_expression("t = :t")
            .expression_attribute_values(":t", crate::codec::attribute::Attribute::write(&shadow.attached_at));
        let mut transaction = Transaction::new();
        transaction.add_delete(Role::Shadow, delete)?;
        transaction.add_audit_rows(Role::Audit, audit)?;
        let outcome = transaction.send_until_outcome(&self.db, &mut Backoff::new()).await?;
        Ok(match outcome {
            TransactionOutcome::Committed => true,
            TransactionOutcome::Refused(rejection) => rejection.has_failed(Role::Audit),
        })
    }

    pub(crate) fn read_shadow_item(&self, item: &Item) -> Result<Shadow> {
        Row::new(&self.table, item).read()
    }
}

fields! {
    Shadow {
        owner: pk(keys::parse_user),
        agent: sk(AgentId::parse),
        attached_at: "t",
        terms: part,
        edits_before: "edits",
    }
}

pub(crate) fn write_shadow(shadow: &Shadow) -> Item {
    let row = Draft::new(&Key::shadow(&shadow.owner, shadow.agent)).with_fields(shadow);
    row.with("ttl", &shadow.attached_at.after(Shadow::DURATION).secs())
        .into_item()
}
