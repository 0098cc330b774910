//! Policy templates, in their owner's partition: one row lists them, and each version of each template has a row, which
//! is never changed or removed, because agents keep the limits of earlier versions as the base of later merges.

use crate::{
    audit::entry::AuditEntry,
    codec::attribute::Attribute,
    codec::backoff::Backoff,
    codec::item::{Draft, Item, member},
    codec::key::Key,
    codec::ledger::{EditResult, Ledger},
    codec::map::{number_rules, read_change, write_change},
    transact::{Transaction, TransactionOutcome},
};
use aws_sdk_dynamodb::types::AttributeValue;
use purser_domain::{
    PersonId, PolicyChange, Result, Rule, TemplateEntry, TemplateKey, TemplateList, TemplateName, TemplateTerms,
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    List,
    Version,
    Audit,
}

impl Ledger {
    /// Reads a user's templates, strongly consistent. Takes one read unit for every 4 KB.
    pub async fn templates(&self, person: &PersonId) -> Result<TemplateList> {
        match self.get(&Key::templates(person)).await? {
            None => Ok(TemplateList::default()),
            Some(item) => self.read_templates(&item),
        }
    }

    /// Reads the limits of a template version, strongly consistent.
    pub async fn template_terms(&self, person: &PersonId, version: u64) -> Result<Option<TemplateTerms>> {
        let item = self.get(&Key::template(person, version)).await?;
        item.map(|item| self.read_terms(&item)).transpose()
    }

    /// Replaces the list with its next version. `edited` contains the limits of the template that this version changes.
    pub async fn put_templates(
        &self,
        person: &PersonId,
        list: &TemplateList,
        edited: Option<&TemplateTerms>,
        audit: &AuditEntry,
    ) -> Result<EditResult> {
        let mut transaction = Transaction::new();
        let put = self
            .put(write_templates(person, list))
            .condition_expression("ver = :old OR (attribute_not_exists(pk) AND :old = :zero)")
            .expression_attribute_values(":old", list.version.saturating_sub(1).write())
            .expression_attribute_values(":zero", 0_u64.write());
        transaction.put(Role::List, put)?;
        if let Some(terms) = edited {
            transaction.put(Role::Version, self.put_new(write_terms(person, list.version, terms)))?;
        }
        transaction.audit(Role::Audit, audit)?;
        Ok(
            match transaction.send_until_known(&self.db, &mut Backoff::new()).await? {
                TransactionOutcome::Committed => EditResult::Stored,
                // The audit row was written by an attempt whose response was lost.
                TransactionOutcome::Refused(refusal) if refusal.names(Role::Audit) => EditResult::Stored,
                TransactionOutcome::Refused(_) => EditResult::Conflict,
            },
        )
    }

    pub(crate) fn read_templates(&self, item: &Item) -> Result<TemplateList> {
        let row = self.row(item);
        let entries: Vec<(TemplateName, TemplateEntry)> = row.get("list")?;
        Ok(TemplateList {
            version: row.get("ver")?,
            default: row.get_optional("default")?,
            entries: entries.into_iter().collect(),
        })
    }

    pub(crate) fn read_terms(&self, item: &Item) -> Result<TemplateTerms> {
        let row = self.row(item);
        let services: Vec<(TemplateKey, PolicyChange)> = row.get("limits")?;
        let rules: Option<Vec<Rule>> = row.get_optional("rules")?;
        Ok(TemplateTerms {
            services: services.into_iter().collect(),
            rules: rules.map(|rules| rules.into_iter().map(|rule| rule.kind).collect()),
        })
    }
}

pub(crate) fn write_templates(person: &PersonId, list: &TemplateList) -> Item {
    let entries: Vec<_> = list
        .entries
        .iter()
        .map(|(name, entry)| (name.clone(), *entry))
        .collect();
    Draft::new(&Key::templates(person))
        .with("ver", &list.version)
        .with("list", &entries)
        .with_optional("default", list.default.as_ref())
        .into_item()
}

pub(crate) fn write_terms(person: &PersonId, version: u64, terms: &TemplateTerms) -> Item {
    let services = terms.services.iter().map(|(key, change)| (key.clone(), change.clone()));
    Draft::new(&Key::template(person, version))
        .with("limits", &services.collect::<Vec<_>>())
        .with_optional("rules", terms.rules.as_deref().map(number_rules).as_ref())
        .into_item()
}

/// A template in the list.
impl Attribute for (TemplateName, TemplateEntry) {
    fn write(&self) -> AttributeValue {
        let (name, entry) = self;
        let map = Draft::new_map().with("name", name).with("ver", &entry.version);
        AttributeValue::M(map.with("t", &entry.edited_at).into_item())
    }

    fn read(value: &AttributeValue) -> Option<Self> {
        let map = value.as_m().ok()?;
        let entry = TemplateEntry {
            version: member(map, "ver")?,
            edited_at: member(map, "t")?,
        };
        Some((member(map, "name")?, entry))
    }
}

/// The limits of a template key.
impl Attribute for (TemplateKey, PolicyChange) {
    fn write(&self) -> AttributeValue {
        let (key, change) = self;
        AttributeValue::M(write_change(change).with("key", key).into_item())
    }

    fn read(value: &AttributeValue) -> Option<Self> {
        let map = value.as_m().ok()?;
        Some((member(map, "key")?, read_change(map)?))
    }
}
