//! The changed fields of an update for the audit log. All objects are written here, so that the log's content is
//! defined in one file. No object contains a key's digest.

use crate::{
    Agent, AgentKey, BacktestRun, EnabledService, LimitIncrease, Operation, RuleKind, Service, WithdrawalGrant,
    WithdrawalRecord,
    evidence::document::{Element as _, Fields as _},
};
use serde_json::{Map, Value, json};

/// An object's fields, the most important first, because [`AuditChanges`] truncates at the end.
pub type AuditFields = Vec<(String, Value)>;

/// The fields that an action changed. An added field is only in `after`, and a removed field is only in `before`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditChanges {
    /// The changed fields, with the values before the action.
    pub before: Map<String, Value>,
    /// The changed fields, with the values after the action.
    pub after: Map<String, Value>,
}

/// The maximum length of a value, in bytes of JSON. A longer value is stored as truncated text.
const MAX_VALUE_BYTES: usize = 2_000;
/// The maximum size of `before` and of `after`, in bytes of JSON. A DynamoDB item may have 400 KB, and escaping can
/// double the size.
const MAX_BYTES: usize = 60_000;
/// The name of the field that counts the omitted changes.
const MORE: &str = "more";

impl AuditChanges {
    /// Returns the fields that differ. `None` means that the object does not exist.
    pub fn between(before: Option<AuditFields>, after: Option<AuditFields>) -> Self {
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        let differing = |these: &AuditFields, those: &AuditFields| {
            let these = these.iter().filter(|field| !those.contains(field));
            truncate_fields(these.cloned())
        };
        Self {
            before: differing(&before, &after),
            after: differing(&after, &before),
        }
    }

    /// Returns the change of one field.
    pub fn single(name: &str, before: impl Into<Value>, after: impl Into<Value>) -> Self {
        let side = |value: Value| Some(vec![(name.to_owned(), value)]);
        Self::between(side(before.into()), side(after.into()))
    }
}

fn truncate_fields(fields: impl Iterator<Item = (String, Value)>) -> Map<String, Value> {
    let (mut kept, mut bytes, mut left_out) = (Map::new(), 0_usize, 0_u64);
    for (name, value) in fields {
        let text = value.to_string();
        let value = if text.len() > MAX_VALUE_BYTES {
            let end = text.floor_char_boundary(MAX_VALUE_BYTES);
            Value::String(text.get(..end).unwrap_or_default().to_owned())
        } else {
            value
        };
        let size = text.len().min(MAX_VALUE_BYTES).saturating_add(name.len());
        bytes = bytes.saturating_add(size);
        if bytes > MAX_BYTES {
            left_out = left_out.saturating_add(1);
        } else {
            kept.insert(name, value);
        }
    }
    if left_out > 0 {
        kept.insert(MORE.to_owned(), left_out.into());
    }
    kept
}

fn to_json_texts<T: ToString>(items: &[T]) -> Value {
    items.iter().map(ToString::to_string).collect()
}

impl Agent {
    /// Returns an agent's fields for the audit log. Of the agent's API keys, only fields that the owner can see.
    pub fn audit_log_fields(&self) -> AuditFields {
        let mut fields = vec![
            ("name".to_owned(), json!(self.name)),
            ("status".to_owned(), json!(self.status.name())),
            ("wallet_address".to_owned(), json!(self.wallet.address.to_string())),
        ];
        fields.extend(self.archived.then(|| ("archived".to_owned(), json!(true))));
        fields.push(("max_raise_factor".to_owned(), json!(self.max_increase_factor)));
        let labels = self.labels.iter();
        fields.extend(labels.map(|(key, value)| (format!("labels/{key}"), json!(value.as_str()))));
        fields.extend(
            self.keys
                .iter()
                .map(|key| (format!("keys/{}", key.id), key_audit_value(key))),
        );
        fields.extend(
            self.rules
                .iter()
                .map(|rule| (format!("rules/{}", rule.id), rule_kind_json(&rule.kind))),
        );
        let template = self.template.as_ref();
        fields.extend(template.map(|followed| {
            let value = json!({"name": followed.name.as_str(), "version": followed.version()});
            ("template".to_owned(), value)
        }));
        fields
    }
}

fn key_audit_value(key: &AgentKey) -> Value {
    let scope = &key.scope;
    let permissions = scope.permissions.as_ref();
    let mut value = json!({
        "created_at": key.created_at.to_string(),
        "ends_at": key.ends_at.map(|at| at.to_string()),
        "permissions": permissions.map(|may| may.iter().map(|may| may.name()).collect::<Vec<_>>()),
        "services": scope.services.as_deref().map(to_json_texts),
        "networks": scope.networks.as_deref().map(to_json_texts),
        "expires_at": scope.expires_at.map(|at| at.to_string()),
    });
    if let (Some(fields), Some(grant)) = (value.as_object_mut(), key.grant()) {
        fields.insert("client_name".to_owned(), grant.client.as_str().into());
        fields.insert("redirect_host".to_owned(), grant.origin.as_str().into());
    }
    if let (Some(fields), Some(opener)) = (value.as_object_mut(), key.opened_by) {
        fields.insert("opened_by".to_owned(), opener.to_string().into());
    }
    value
}

/// Returns a rule's kind and parameters as JSON, the same in the API and in the audit log.
pub fn rule_kind_json(kind: &RuleKind) -> Value {
    kind.to_json()
}

/// Parses a rule's kind and parameters. Fields that may be null may also be absent. Returns `None` if a field is missing
/// or malformed, or if the fields exclude each other.
pub fn parse_rule_kind(fields: &Map<String, Value>) -> Option<RuleKind> {
    RuleKind::read_from(fields)
}

impl BacktestRun {
    /// Returns a backtest's fields for the audit log. The agents are in several lists, because a value's length is
    /// limited.
    pub fn audit_log_fields(&self) -> AuditFields {
        /// The maximum number of agent ids per list. An id takes 39 of the `MAX_VALUE_BYTES`.
        const AGENTS: usize = 50;
        let mut fields = vec![
            ("from".to_owned(), json!(self.from.to_string())),
            ("to".to_owned(), json!(self.to.to_string())),
        ];
        let lists = self.agents.chunks(AGENTS).zip(1_u32..);
        fields.extend(lists.map(|(agents, number)| (format!("agents/{number}"), to_json_texts(agents))));
        fields
    }
}

impl EnabledService {
    /// Returns the fields of an agent's policy for a service, for the audit log.
    pub fn audit_log_fields(&self) -> AuditFields {
        let mut fields = Map::from_iter([("enabled".to_owned(), self.enabled.into())]);
        self.policy.write_to(&mut fields);
        if !self.policy.raises.is_empty() {
            let increases = self.policy.raises.iter().map(LimitIncrease::temporary_caps);
            fields.insert("raises".to_owned(), increases.collect::<Vec<_>>().to_json());
        }
        fields.into_iter().collect()
    }
}

impl WithdrawalRecord {
    /// Returns the fields of an agent's withdrawal address for the audit log.
    pub fn audit_log_fields(&self) -> AuditFields {
        let named = self.address.as_ref();
        let fields = named.map(|named| {
            [
                ("payout_address", json!(named.address.to_string())),
                ("good_from", json!(named.good_from.to_string())),
            ]
        });
        let fields = fields.into_iter().flatten();
        fields.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

impl WithdrawalGrant {
    /// Returns a withdrawal's fields for the audit log.
    pub fn audit_log_fields(&self) -> AuditFields {
        let fields = [
            ("amount_units", json!(self.amount().units())),
            ("pay_to", json!(self.recipient().to_string())),
        ];
        fields.map(|(name, value)| (name.to_owned(), value)).into()
    }
}

impl Service {
    /// Returns a service's fields for the audit log. Payees and prices come first, so that they are never truncated.
    pub fn audit_log_fields(&self) -> AuditFields {
        let payments = self.operations.iter().map(|operation| {
            let next = operation.next.as_ref().map(|next| {
                json!({
                    "payment": next.payment.to_json(),
                    "max_price_units": next.max_price.to_json(),
                    "from": next.from.to_string(),
                    "by": next.by.to_string(),
                })
            });
            let (payment, max_price) = (operation.payment.to_json(), operation.max_price.to_json());
            let value = json!({"payment": payment, "max_price_units": max_price, "next": next});
            (format!("payments/{}", operation.slug), value)
        });
        let fields = [
            ("slug", json!(self.slug.to_string())),
            ("name", json!(self.name)),
            ("curated", json!(self.curated)),
            ("trust_status", json!(self.trust_status.name())),
            ("category", json!(self.category.name())),
            ("source", json!(self.source)),
            ("website", json!(self.website.as_str())),
            ("logo_url", json!(self.logo_url.as_ref().map(crate::Url::as_str))),
            ("description", json!(self.description)),
        ];
        let operations = self.operations.iter();
        let operations = operations.map(|operation| {
            (
                format!("operations/{}", operation.slug),
                operation_audit_value(operation),
            )
        });
        let fields = fields.map(|(name, value)| (name.to_owned(), value));
        payments.chain(fields).chain(operations).collect()
    }
}

fn operation_audit_value(operation: &Operation) -> Value {
    json!({
        "id": operation.id.to_string(),
        "label": operation.label,
        "method": operation.method,
        "endpoint": operation.endpoint.to_string(),
        "availability": operation.availability.name(),
        "category": operation.category.name(),
        "execution": operation.execution,
        "price_model": operation.price_model,
        "estimated_price_units": operation.estimated_price.units(),
        "fetches_target": operation.fetches_target,
        "params": operation.params,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(list: &[(&str, Value)]) -> AuditFields {
        list.iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect()
    }

    #[test]
    fn audit_changes_contain_only_differing_fields() {
        let before = Some(members(&[("a", json!(1)), ("b", json!(2)), ("gone", json!(3))]));
        let after = Some(members(&[("a", json!(1)), ("b", json!(5)), ("new", json!(null))]));
        let changes = AuditChanges::between(before.clone(), after.clone());
        assert_eq!(Value::Object(changes.before), json!({"b": 2, "gone": 3}));
        assert_eq!(Value::Object(changes.after), json!({"b": 5, "new": null}));
        let made = AuditChanges::between(None, after.clone());
        assert_eq!((made.before.len(), made.after.len()), (0, 3));
        assert_eq!(AuditChanges::between(after.clone(), after), AuditChanges::default());
    }

    #[test]
    fn audit_changes_are_truncated_with_an_omission_count() {
        let long = |letter: &str| Some(members(&[("a", json!(letter.repeat(10_000))), ("b", json!(1))]));
        let changes = AuditChanges::between(long("é"), long("e"));
        let kept = changes.before["a"].as_str().unwrap();
        assert!(kept.len() <= MAX_VALUE_BYTES && kept.starts_with("\"éé"), "{kept}");
        let many = |value: u64| Some((0..10_000).map(|n| (format!("member{n}"), json!(value))).collect());
        let changes = AuditChanges::between(many(1), many(2));
        let left_out = changes.after[MORE].as_u64().unwrap();
        assert_eq!(usize::try_from(left_out).unwrap() + changes.after.len() - 1, 10_000);
        assert!(Value::Object(changes.after).to_string().len() < 2 * MAX_BYTES);
    }
}
