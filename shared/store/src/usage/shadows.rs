//! Shadow policies: one row for each agent that has one, under the owner who attached it, so a new owner has none.

use crate::{
    audit::entry::AuditEntry,
    codec::{
        backoff::Backoff,
        fault::store_error,
        item::{Draft, Item, Row},
        map::number_rules,
    },
    transact::{Transaction, TransactionOutcome},
    usage::{
        backtests::{OfService, changes_of, policies_of},
        key,
        table::UsageTable,
    },
};
use aws_sdk_dynamodb::types::builders::{DeleteBuilder, PutBuilder};
use purser_domain::{AgentId, BacktestTerms, PersonId, Result, Rule, Shadow};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Shadow,
    Audit,
}

impl UsageTable {
    /// Reads an agent's shadow policy that this user attached, strongly consistent. Takes one read unit.
    pub async fn shadow(&self, owner: &PersonId, agent: AgentId) -> Result<Option<Shadow>> {
        let get = self
            .db
            .get_item()
            .table_name(&*self.table)
            .set_key(Some(key::shadow(owner, agent).attributes()))
            .consistent_read(true);
        let item = get.send().await.map_err(store_error("reading a shadow"))?.item;
        item.map(|item| self.read_shadow(owner, agent, &item)).transpose()
    }

    /// Replaces the agent's shadow policy, and writes the audit row.
    pub async fn put_shadow(&self, shadow: &Shadow, audit: &AuditEntry) -> Result<()> {
        let put = PutBuilder::default()
            .table_name(&*self.table)
            .set_item(Some(write_shadow(shadow)));
        let mut transaction = Transaction::new();
        transaction.put(Role::Shadow, put)?;
        transaction.audit(Role::Audit, audit)?;
        // An existing audit row was written by an attempt whose response was lost.
        transaction.send_until_known(&self.db, &mut Backoff::new()).await?;
        Ok(())
    }

    /// Removes a shadow policy, and writes the audit row. Returns `false` if another shadow policy was attached, or if
    /// it was already removed.
    pub async fn remove_shadow(&self, shadow: &Shadow, audit: &AuditEntry) -> Result<bool> {
        let delete = DeleteBuilder::default()
            .table_name(&*self.table)
            .set_key(Some(key::shadow(&shadow.owner, shadow.agent).attributes()))
            .condition_expression("t = :t")
            .expression_attribute_values(":t", crate::codec::attribute::Attribute::write(&shadow.attached_at));
        let mut transaction = Transaction::new();
        transaction.delete(Role::Shadow, delete)?;
        transaction.audit(Role::Audit, audit)?;
        let outcome = transaction.send_until_known(&self.db, &mut Backoff::new()).await?;
        Ok(match outcome {
            TransactionOutcome::Committed => true,
            TransactionOutcome::Refused(refusal) => refusal.names(Role::Audit),
        })
    }

    pub(crate) fn read_shadow(&self, owner: &PersonId, agent: AgentId, item: &Item) -> Result<Shadow> {
        let row = Row::new(&self.table, item);
        let rules: Option<Vec<Rule>> = row.get_optional("rules")?;
        let changes: Vec<OfService> = row.get("policies")?;
        Ok(Shadow {
            owner: owner.clone(),
            agent,
            attached_at: row.get("t")?,
            terms: BacktestTerms {
                rules: rules.map(|rules| rules.into_iter().map(|rule| rule.kind).collect()),
                status: None,
                policies: policies_of(changes),
            },
            edits_before: row.get("edits")?,
        })
    }
}

pub(crate) fn write_shadow(shadow: &Shadow) -> Item {
    let terms = &shadow.terms;
    let row = Draft::new(&key::shadow(&shadow.owner, shadow.agent))
        .with("t", &shadow.attached_at)
        .with_optional("rules", terms.rules.as_deref().map(number_rules).as_ref())
        .with("policies", &changes_of(terms))
        .with("edits", &shadow.edits_before)
        .with("ttl", &shadow.attached_at.after(Shadow::LASTS).secs());
    row.into_item()
}
