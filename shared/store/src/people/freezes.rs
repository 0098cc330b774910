//! Freezes by operators, in a small item that every decision reads. The item has several copies, which one transaction
//! writes. A missing copy means that nothing is frozen, and an unreadable copy is an error.

use crate::{
    audit::entry::AuditEntry,
    codec::attribute::Attribute,
    codec::backoff::Backoff,
    codec::fields::fields,
    codec::item::{Draft, Item},
    codec::key::{self, Key},
    codec::ledger::Ledger,
    codec::table::Query,
    transact::{Transaction, TransactionOutcome},
};
use aws_sdk_dynamodb::types::{
    AttributeValue,
    builders::{DeleteBuilder, UpdateBuilder},
};
use purser_domain::{FreezeChange, FreezeTarget, Freezes, OperatorFreeze, Result};
use std::collections::{BTreeSet, HashMap};

/// The result of changing an operator's freeze.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeFreezeResult {
    /// The change is stored in every copy of the operators' freezes.
    Stored,
    /// The stored freeze is not the freeze that the caller read before the change. Nothing was written.
    Conflict,
    /// [`Freezes::MAX`] agents or owners are already frozen. Nothing was written.
    TooMany,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Copy,
    Reason,
    Audit,
}

/// A frozen agent or owner, or the frozen deployment, in the stored form.
enum Entry {
    /// The attribute with the frozen ids (`agents` or `owners`), and a set with the target's id.
    Of(&'static str, AttributeValue),
    Deployment,
}

impl Entry {
    fn for_target(target: &FreezeTarget) -> Self {
        match target {
            FreezeTarget::Agent(agent) => Self::Of("agents", BTreeSet::from([*agent]).write()),
            FreezeTarget::Owner(owner) => Self::Of("owners", BTreeSet::from([owner.clone()]).write()),
            FreezeTarget::Deployment => Self::Deployment,
        }
    }
}

impl Ledger {
    /// Changes a freeze if it is still as it was read. Decisions that begin after a stored freeze are rejected.
    pub async fn change_freeze(&self, change: &FreezeChange, audit: &AuditEntry) -> Result<ChangeFreezeResult> {
        let entry = Entry::for_target(change.target());
        let mut transaction = Transaction::new();
        for copy in 0..key::FREEZE_SHARDS {
            let update = self.update_item(&Key::freezes(copy));
            let update = match change.new_freeze() {
                Some(_) => add_frozen_target(update, &entry),
                None => remove_frozen_target(update, &entry),
            };
            transaction.add_update(Role::Copy, update)?;
        }
        let stored = Condition::for_stored_freeze(change.stored_freeze());
        if let Some(freeze) = change.new_freeze() {
            let put = self
                .put_item(write_freeze(freeze))
                .condition_expression(stored.expression)
                .set_expression_attribute_names(stored.names)
                .set_expression_attribute_values(stored.values);
            transaction.add_put(Role::Reason, put)?;
        } else {
            let delete = DeleteBuilder::default()
                .table_name(&*self.table)
                .set_key(Some(Key::freeze(change.target()).attributes()))
                .condition_expression(stored.expression)
                .set_expression_attribute_names(stored.names)
                .set_expression_attribute_values(stored.values);
            transaction.add_delete(Role::Reason, delete)?;
        }
        transaction.add_audit_rows(Role::Audit, audit)?;
        Ok(
            match transaction.send_until_outcome(&self.db, &mut Backoff::new()).await? {
                TransactionOutcome::Committed => ChangeFreezeResult::Stored,
                // If the audit row exists already, an earlier attempt has changed the freeze, and the response to that
                // attempt was lost.
                TransactionOutcome::Refused(rejection) if rejection.has_failed(Role::Audit) => {
                    ChangeFreezeResult::Stored
                }
                TransactionOutcome::Refused(rejection) if rejection.has_failed(Role::Reason) => {
                    ChangeFreezeResult::Conflict
                }
                TransactionOutcome::Refused(_) => ChangeFreezeResult::TooMany,
            },
        )
    }

    /// Reads all freezes by operators, strongly consistent.
    pub async fn list_operator_freezes(&self) -> Result<Vec<OperatorFreeze>> {
        let items = Query::new(&self.db, &self.table, key::FREEZE_REASONS)
            .consistent()
            .collect("listing freezes")
            .await?;
        items.iter().map(|item| self.read_freeze_item(item)).collect()
    }

    /// Reads the operators' freezes, strongly consistent. Takes one read unit.
    pub async fn read_effective_freezes(&self) -> Result<Freezes> {
        let item = self.get_item(&Key::freezes(0)).await?;
        self.read_freezes_item(item.as_ref())
    }

    /// Reads the freeze of a target, strongly consistent; `None` if the target is not frozen.
    pub async fn read_operator_freeze(&self, target: &FreezeTarget) -> Result<Option<OperatorFreeze>> {
        let item = self.get_item(&Key::freeze(target)).await?;
        item.map(|item| self.read_freeze_item(&item)).transpose()
    }

    /// Decodes a copy of the freezes. A missing copy means that nothing was ever frozen.
    pub(crate) fn read_freezes_item(&self, item: Option<&Item>) -> Result<Freezes> {
        let Some(item) = item else {
            return Ok(Freezes::default());
        };
        let row = self.item_row(item);
        Ok(Freezes {
            deployment: row.get_optional("dep")?.unwrap_or(false),
            agents: row.get_optional("agents")?.unwrap_or_default(),
            owners: row.get_optional("owners")?.unwrap_or_default(),
        })
    }

    pub(crate) fn read_freeze_item(&self, item: &Item) -> Result<OperatorFreeze> {
        self.item_row(item).read()
    }
}

/// Adds the frozen target to one copy of the operators' freezes, up to the maximum number of targets.
fn add_frozen_target(update: UpdateBuilder, entry: &Entry) -> UpdateBuilder {
    match entry {
        Entry::Of(set, item) => {
            let element = match item {
                AttributeValue::Bs(bytes) => bytes.first().cloned().map(AttributeValue::B),
                AttributeValue::Ss(texts) => texts.first().cloned().map(AttributeValue::S),
                _ => None,
            };
            update
                .update_expression("ADD #set :one")
                .condition_expression("attribute_not_exists(#set) OR size(#set) < :most OR contains(#set, :element)")
                .expression_attribute_names("#set", *set)
                .expression_attribute_values(":one", item.clone())
                .expression_attribute_values(":element", element.unwrap_or_else(|| item.clone()))
                .expression_attribute_values(":most", AttributeValue::N(Freezes::MAX.to_string()))
        }
        Entry::Deployment => update
            .update_expression("SET dep = :true")
            .expression_attribute_values(":true", true.write()),
    }
}

/// Removes the target from one copy of the operators' freezes. The update needs no condition, because the same
/// transaction checks the freeze's row.
fn remove_frozen_target(update: UpdateBuilder, entry: &Entry) -> UpdateBuilder {
    match entry {
        Entry::Of(set, item) => update
            .update_expression("DELETE #set :one")
            .expression_attribute_names("#set", *set)
            .expression_attribute_values(":one", item.clone()),
        Entry::Deployment => update.update_expression("REMOVE dep"),
    }
}

/// The condition that a freeze's row has not changed since it was read.
struct Condition {
    expression: &'static str,
    names: Option<HashMap<String, String>>,
    values: Option<Item>,
}

impl Condition {
    fn for_stored_freeze(stored: Option<&OperatorFreeze>) -> Self {
        let Some(freeze) = stored else {
            return Self {
                expression: "attribute_not_exists(pk)",
                names: None,
                values: None,
            };
        };
        let end = freeze.end_asked_by.as_ref();
        let values = [
            (":why", Some(freeze.reason.write())),
            (":by", Some(freeze.by.write())),
            (":t", Some(freeze.at.write())),
            (":end", end.map(Attribute::write)),
        ];
        let values = values
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let names = [("#why", "why"), ("#by", "by"), ("#end", "end")];
        Self {
            expression: match end {
                Some(_) => "#why = :why AND #by = :by AND t = :t AND #end = :end",
                None => "#why = :why AND #by = :by AND t = :t AND attribute_not_exists(#end)",
            },
            names: Some(names.map(|(short, name)| (short.to_owned(), name.to_owned())).into()),
            values: Some(values.collect()),
        }
    }
}

fields! {
    OperatorFreeze {
        target: sk(key::parse_freeze),
        reason: "why",
        by: "by",
        at: "t",
        end_asked_by: "end" optional,
    }
}

pub(crate) fn write_freeze(freeze: &OperatorFreeze) -> Item {
    Draft::new(&Key::freeze(&freeze.target)).with_fields(freeze).into_item()
}
