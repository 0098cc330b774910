//! Policy templates. The versions of a template are never changed or removed, because a later merge compares an agent's
//! limits with the version that was applied before.

use crate::{
    audit::entry::AuditEntry,
    codec::attribute::Attribute,
    codec::backoff::Backoff,
    codec::fields::fields,
    codec::item::{Draft, Item},
    codec::key::Key,
    codec::ledger::{Ledger, UpdateResult},
    transact::{Transaction, TransactionOutcome},
};
use purser_domain::{Result, TemplateEntry, TemplateList, TemplateTerms, UserId};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    List,
    Version,
    Audit,
}

impl Ledger {
    /// Reads the list of a user's templates, strongly consistent. Takes one read unit for every 4 KB.
    pub async fn read_template_list(&self, user: &UserId) -> Result<TemplateList> {
        match self.get_item(&Key::templates(user)).await? {
            None => Ok(TemplateList::default()),
            Some(item) => self.read_template_list_item(&item),
        }
    }

    /// Reads the limits of a template version, strongly consistent.
    pub async fn read_template_limits(&self, user: &UserId, version: u64) -> Result<Option<TemplateTerms>> {
        let item = self.get_item(&Key::template(user, version)).await?;
        item.map(|item| self.read_template_limits_item(&item)).transpose()
    }

    /// Stores the next version of the user's list of templates, with the limits of an updated template.
    pub async fn put_templates(
        &self,
        user: &UserId,
        list: &TemplateList,
        updated: Option<&TemplateTerms>,
        audit: &AuditEntry,
    ) -> Result<UpdateResult> {
        let mut transaction = Transaction::new();
        let put = self
            .put_item(write_templates(user, list))
            .condition_expression("ver = :old OR (attribute_not_exists(pk) AND :old = :zero)")
            .expression_attribute_values(":old", list.version.saturating_sub(1).write())
            .expression_attribute_values(":zero", 0_u64.write());
        transaction.add_put(Role::List, put)?;
        if let Some(terms) = updated {
            transaction.add_put(
                Role::Version,
                self.put_new_item(write_template_limits(user, list.version, terms)),
            )?;
        }
        transaction.add_audit_rows(Role::Audit, audit)?;
        Ok(
            match transaction.send_until_outcome(&self.db, &mut Backoff::new()).await? {
                TransactionOutcome::Committed => UpdateResult::Stored,
                // If the audit row exists already, an earlier attempt has committed, and the response to that attempt
                // was lost.
                TransactionOutcome::Refused(rejection) if rejection.has_failed(Role::Audit) => UpdateResult::Stored,
                TransactionOutcome::Refused(_) => UpdateResult::Conflict,
            },
        )
    }

    pub(crate) fn read_template_list_item(&self, item: &Item) -> Result<TemplateList> {
        self.item_row(item).read()
    }

    pub(crate) fn read_template_limits_item(&self, item: &Item) -> Result<TemplateTerms> {
        self.item_row(item).read()
    }
}

fields! {
    TemplateList { version: "ver", default: "default" optional, entries: "list" }

    TemplateEntry { version: "ver", edited_at: "t" }

    TemplateTerms { services: "limits", rules: "rules" optional }
}

pub(crate) fn write_templates(user: &UserId, list: &TemplateList) -> Item {
    Draft::new(&Key::templates(user)).with_fields(list).into_item()
}

pub(crate) fn write_template_limits(user: &UserId, version: u64, terms: &TemplateTerms) -> Item {
    Draft::new(&Key::template(user, version)).with_fields(terms).into_item()
}
