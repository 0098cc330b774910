//! Rows of the audit log. The transaction that stores a change by a user or an operator also writes the audit row.
//! After the commit, the row is also logged with the row's SHA-256, because a role that may put audit rows can
//! overwrite them.

use crate::{
    codec::attribute::{Attribute, encode_text},
    codec::fields::fields,
    codec::item::{Draft, Fields, Item, Row, Unreadable},
    codec::json,
    codec::key::{self, Key},
};
use aws_sdk_dynamodb::types::{AttributeValue, builders::PutBuilder};
use purser_domain::{
    Act, Actor, AuditChanges, AuditId, AuditOutcome, AuditRecord, AuditRejection, EditReason, Fingerprint,
    RequestSource, Result, UserId,
};
use std::sync::Arc;
use tracing::info;

/// An audit row to write, with an optional copy for the affected user.
#[derive(Clone, Debug)]
pub struct AuditEntry {
    table: Arc<str>,
    item: Item,
    line: Line,
    /// The affected user, and the copy of the audit row for that user.
    told: Option<(UserId, Item)>,
    mark: UpdateMark,
}

/// Marks the audit row of a policy rule's action. The row is in the partition of the rule's owner.
pub(crate) const BY_RULE: &str = "rule";
/// Marks the audit row of a client's action. The row is in the partition of the agent's owner.
pub(crate) const BY_CLIENT: &str = "client";
/// The attribute with the agent key of an agent's action. The row is in the partition of the agent's owner.
pub(crate) const BY_KEY: &str = "key";

/// The user, reason and audit id of a record's last change, stored in the record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdateMark {
    /// The user who made the change; `None` if no user made the change.
    pub by: Option<UserId>,
    /// The id of the audit row; `None` for a stored default policy, which no user changed.
    pub audit_id: Option<AuditId>,
    /// The reason that the user gave.
    pub reason: Option<EditReason>,
}

impl UpdateMark {
    pub(crate) const BY: &'static str = "by";
    pub(crate) const AUDIT_ID: &'static str = "aid";
    pub(crate) const REASON: &'static str = "why";

    /// Returns whether a rule made the change.
    pub fn was_made_by_rule(&self) -> bool {
        self.by.is_none() && self.audit_id.is_some()
    }

    pub(crate) fn read_mark(row: Row<'_>) -> Result<Self> {
        Ok(Self {
            by: row.get_optional(Self::BY)?,
            audit_id: row.get_optional(Self::AUDIT_ID)?,
            reason: row.get_optional(Self::REASON)?,
        })
    }

    pub(crate) fn write_mark(&self, mut item: Item) -> Item {
        let mut set = |name: &str, value: Option<AttributeValue>| {
            if let Some(value) = value {
                item.insert(name.to_owned(), value);
            }
        };
        set(Self::BY, self.by.as_ref().map(Attribute::write));
        set(Self::AUDIT_ID, self.audit_id.as_ref().map(Attribute::write));
        set(Self::REASON, self.reason.as_ref().map(Attribute::write));
        item
    }
}

/// The log line about an audit row, without the digest.
#[derive(Clone, Debug)]
struct Line {
    id: String,
    kind: &'static str,
    actor: Actor,
    agent: Option<String>,
    service: Option<String>,
    error: Option<String>,
}

impl AuditEntry {
    /// Creates the audit row of an audit record. `table` is the name of the audit table.
    pub fn new(table: impl Into<Arc<str>>, record: &AuditRecord) -> Self {
        let action = &record.act;
        let line = Line {
            id: record.id.to_string(),
            kind: action.kind.name(),
            actor: record.actor.clone(),
            agent: action.agent.map(|id| id.to_string()),
            service: action.service.map(|id| id.to_string()),
            error: match &record.outcome {
                AuditOutcome::Done(_) => None,
                AuditOutcome::Refused(denial) => Some(denial.error.clone()),
            },
        };
        Self {
            table: table.into(),
            item: write_record(record),
            line,
            told: None,
            mark: UpdateMark {
                by: match &record.actor {
                    // A client or an agent acts with the owner's consent, so the owner's id is stored.
                    Actor::Person { id, .. } | Actor::Client { owner: id } | Actor::Agent { owner: id, .. } => {
                        Some(id.clone())
                    }
                    Actor::Operator(_) | Actor::Reconcile | Actor::Rule { .. } => None,
                },
                audit_id: Some(record.id),
                reason: record.source.reason.clone(),
            },
        }
    }

    pub(crate) fn add_update_mark_to_item(&self, item: Item) -> Item {
        self.mark.write_mark(item)
    }

    /// Adds a copy of the audit row for the affected user. A user's own action gets no copy.
    #[must_use]
    pub fn with_copy_for_user(self, user: Option<&UserId>) -> Self {
        let partition =
            |user_id: &UserId| key::notification_partition(&self.line.actor, user_id).zip(Some(user_id.clone()));
        let result = user.and_then(partition).map(|(partition, user_id)| {
            let mut item = self.item.clone();
            item.retain(|name, _| !["ip", "ua"].contains(&name.as_str()));
            item.insert("pk".to_owned(), encode_text(&partition));
            (user_id, item)
        });
        Self { told: result, ..self }
    }

    pub(crate) fn table_name(&self) -> &str {
        &self.table
    }

    pub(crate) fn to_item(&self) -> Item {
        self.item.clone()
    }

    /// The condition of each put of an audit row. If the row exists, an earlier attempt of the same call
    /// wrote the row, because the row's id is random.
    pub(crate) const IS_NEW: &str = "attribute_not_exists(pk)";

    pub(crate) fn to_puts(&self) -> impl Iterator<Item = PutBuilder> {
        let items = std::iter::once(&self.item).chain(self.told.iter().map(|(_, item)| item));
        items.map(|item| {
            PutBuilder::default()
                .table_name(self.table_name())
                .set_item(Some(item.clone()))
                .condition_expression(Self::IS_NEW)
        })
    }

    /// Logs the audit row and the copy. Must be called after the commit.
    pub(crate) fn log_audit_rows(&self) {
        self.line.log_row_digest(None, &row_digest(&self.item));
        if let Some((user, item)) = &self.told {
            self.line.log_row_digest(Some(user), &row_digest(item));
        }
    }
}

impl Line {
    fn log_row_digest(&self, user: Option<&UserId>, sha256: &Fingerprint) {
        let Self {
            id,
            kind,
            actor,
            agent,
            service,
            error,
        } = self;
        let (user_id, operator) = match actor {
            Actor::Person { id, .. } => (Some(id), None),
            Actor::Operator(name) => (None, Some(name)),
            Actor::Reconcile | Actor::Rule { .. } | Actor::Client { .. } | Actor::Agent { .. } => (None, None),
        };
        info!(
            audit.id = %id,
            kind,
            person = user_id.map(tracing::field::display),
            operator.name = operator.map(tracing::field::display),
            told = user.map(tracing::field::display),
            agent.id = agent.as_deref(),
            service.id = service.as_deref(),
            error = error.as_deref(),
            sha256 = %sha256,
            "audit"
        );
    }
}

/// Computes the SHA-256 of a row's JSON with sorted fields.
pub(crate) fn row_digest(item: &Item) -> Fingerprint {
    // A row contains only strings and integers, so the conversion to JSON can't fail.
    let text = json::item_to_json(item).unwrap_or_default().to_string();
    Fingerprint::for_audit_row(text.as_bytes())
}

fields! {
    RequestSource {
        address: "ip" optional,
        user_agent: "ua" optional,
        request_id: "rid",
        reason: "why" optional,
    }

    Act { kind: "kind", agent: "agent" optional, service: "svc" optional, object: "obj" optional }

    AuditChanges { before: "before", after: "after" }

    AuditRejection { error: "error", reason: "reason" }
}

impl Fields for AuditOutcome {
    fn write_to(&self, draft: Draft) -> Draft {
        match self {
            Self::Done(changes) => draft.with_fields(changes),
            Self::Refused(rejection) => draft.with_fields(rejection),
        }
    }

    fn read_from(item: &Item) -> Result<Self, Unreadable> {
        if item.contains_key("error") {
            Fields::read_from(item).map(Self::Refused)
        } else {
            Fields::read_from(item).map(Self::Done)
        }
    }
}

pub(crate) fn write_record(record: &AuditRecord) -> Item {
    let draft = Draft::new(&Key::audit(&record.actor, record.id))
        .with("t", &record.at)
        .with_fields(&record.source)
        .with_fields(&record.act)
        .with_fields(&record.outcome);
    let draft = match &record.actor {
        Actor::Person { session, .. } => draft.with_optional("session", session.as_ref()),
        Actor::Operator(name) => draft.with("op", name),
        Actor::Reconcile => draft,
        Actor::Rule { .. } => draft.with(BY_RULE, &true),
        Actor::Client { .. } => draft.with(BY_CLIENT, &true),
        Actor::Agent { key, .. } => draft.with(BY_KEY, key),
    };
    draft.into_item()
}
