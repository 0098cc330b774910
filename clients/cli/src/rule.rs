//! Rules as JSON values, so that unknown kinds of rules can be exported and applied.
//!
//! Two rules are equal if they have the same fields, except the fields that the API adds (id, version, usage). A null
//! field counts as absent, and the order of a list has no meaning.

use serde_json::{Map, Value};
use std::cmp::Reverse;

/// A rule that an agent has.
#[derive(Clone, Debug)]
pub(crate) struct StoredRule<'a> {
    pub(crate) id: &'a str,
    pub(crate) rule: Value,
}

/// An update that changes an agent's rules to the wanted rules.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RuleEdit {
    Add { to: Value },
    Replace { id: String, from: Value, to: Value },
    Remove { id: String, from: Value },
}

/// The kind of the rules that allow payments without an approval. All other kinds restrict payments.
const APPROVAL_EXCEPTION: &str = "approval_exception";

impl RuleEdit {
    /// Returns the kind of the rule.
    pub(crate) fn kind(&self) -> &str {
        let (Self::Add { to: rule } | Self::Replace { to: rule, .. } | Self::Remove { from: rule, .. }) = self;
        rule_kind(rule)
    }

    /// Returns whether the update may allow payments that were rejected before. Purser makes the binding decision.
    pub(crate) fn may_widen(&self) -> bool {
        match self {
            Self::Add { to: rule } => rule_kind(rule) == APPROVAL_EXCEPTION,
            Self::Remove { from: rule, .. } => rule_kind(rule) != APPROVAL_EXCEPTION,
            Self::Replace { from, to, .. } => {
                let units = |rule: &Value, name: &str| rule.get(name).and_then(Value::as_u64);
                let is_budget = rule_kind(from) == "budget_limit";
                let is_lower = units(to, "limit_units") <= units(from, "limit_units");
                let is_longer = units(to, "window_seconds") >= units(from, "window_seconds");
                let others = [
                    "services",
                    "categories",
                    "keys",
                    "per_payee",
                    "period",
                    "time_zone",
                    "action",
                ];
                let is_alike = others.iter().all(|name| from.get(name) == to.get(name));
                !(is_budget && is_lower && is_longer && is_alike)
            }
        }
    }
}

/// Returns the rule in a response, without the fields that the API adds and without null fields.
pub(crate) fn rule_without_usage(response: &Value) -> Value {
    let is_report = |name: &str| {
        matches!(name, "rule_id" | "rule_version") || name.starts_with("used") || name.starts_with("remaining")
    };
    let fields = response.as_object().into_iter().flatten();
    fields
        .filter(|(name, value)| !is_report(name) && !value.is_null())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect::<Map<_, _>>()
        .into()
}

pub(crate) fn rule_kind(rule: &Value) -> &str {
    rule.get("kind").and_then(Value::as_str).unwrap_or_default()
}

/// Returns the updates that change the stored rules to the wanted rules.
///
/// A stored rule is replaced rather than removed, because removing a rule always widens.
pub(crate) fn edits(stored: &[StoredRule<'_>], desired_rules: &[Value]) -> Vec<RuleEdit> {
    let mut stored: Vec<(&StoredRule<'_>, Value)> =
        stored.iter().map(|item| (item, normalize_rule(&item.rule))).collect();
    let mut missing = Vec::new();
    for rule in desired_rules {
        let is = normalize_rule(rule);
        match stored.iter().position(|(_, other)| *other == is) {
            Some(at) => drop(stored.remove(at)),
            None => missing.push((rule, is)),
        }
    }
    let mut edits = Vec::new();
    for (rule, is) in missing {
        let alike = stored.iter().enumerate();
        let alike = alike.filter(|(_, (_, other))| rule_kind(other) == rule_kind(&is));
        let nearest = alike.max_by_key(|(at, (_, other))| (count_shared_fields(other, &is), Reverse(*at)));
        edits.push(match nearest.map(|(at, _)| at) {
            Some(at) => {
                let (StoredRule { id, rule: from }, _) = stored.remove(at);
                RuleEdit::Replace {
                    id: (*id).to_owned(),
                    from: from.clone(),
                    to: rule.clone(),
                }
            }
            None => RuleEdit::Add { to: rule.clone() },
        });
    }
    edits.extend(stored.into_iter().map(|(item, _)| RuleEdit::Remove {
        id: item.id.to_owned(),
        from: item.rule.clone(),
    }));
    edits
}

/// Counts the fields that have the same value in both rules.
fn count_shared_fields(left: &Value, right: &Value) -> usize {
    let fields = left.as_object().into_iter().flatten();
    fields.filter(|(name, value)| right.get(name) == Some(value)).count()
}

/// Returns a normalized form of a rule, which is the same for equal rules.
fn normalize_rule(rule: &Value) -> Value {
    let mut rule = rule_without_usage(rule);
    // In these rules, an empty list and `false` are the same as an absent field.
    let has_defaults = matches!(rule_kind(&rule), "vendor_allowlist" | APPROVAL_EXCEPTION);
    let is_default = |value: &Value| *value == false || value.as_array().is_some_and(Vec::is_empty);
    // A budget or count limit without an action blocks, and counts all payees together.
    let is_window = matches!(rule_kind(&rule), "budget_limit" | "count_limit");
    if let Value::Object(fields) = &mut rule {
        fields.retain(|_, value| !(has_defaults && is_default(value)));
        let is_window_default = |name: &str, value: &Value| match name {
            "action" => *value == "block",
            "per_payee" => *value == false,
            _ => false,
        };
        fields.retain(|name, value| !(is_window && is_window_default(name, value)));
        fields.values_mut().for_each(normalize_text);
        for list in fields.values_mut().filter_map(Value::as_array_mut) {
            list.iter_mut().for_each(normalize_text);
            if list.iter().all(Value::is_string) {
                list.sort_by(|left, right| left.as_str().cmp(&right.as_str()));
            }
        }
    }
    rule
}

/// Normalizes an address or a time. Purser returns addresses with a checksum, and times with microseconds.
fn normalize_text(value: &mut Value) {
    if let Value::String(text) = value {
        if text.starts_with("0x") {
            text.make_ascii_lowercase();
        } else if let Some(seconds) = text.strip_suffix(".000000Z") {
            *text = format!("{seconds}Z");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stored(rules: &[Value]) -> Vec<StoredRule<'static>> {
        let ids = ["a", "b", "c", "d"];
        let rules = ids.into_iter().zip(rules);
        rules
            .map(|(id, rule)| StoredRule {
                id,
                rule: rule_without_usage(rule),
            })
            .collect()
    }

    fn budget(units: u64, seconds: u64) -> Value {
        json!({"kind": "budget_limit", "limit_units": units, "window_seconds": seconds})
    }

    /// The API's response has additional fields, null fields, and other notations.
    #[test]
    fn equal_rules_are_not_reported_as_differences() {
        let unknown = json!({"kind": "moon_phase", "phase": {"from": 1}, "days": ["mon", "tue"]});
        let answers = [
            json!({"kind": "budget_limit", "limit_units": 7, "window_seconds": 3_600, "rule_id": "a", "rule_version": 2,
                   "used_units": 1, "remaining_units": 6}),
            json!({"kind": "vendor_allowlist", "services": ["b", "a"], "wallets": ["0xAb"]}),
            json!({"kind": "approval_required", "services": null, "categories": ["ai"], "above_units": null}),
            json!({"kind": "moon_phase", "phase": {"from": 1}, "days": ["tue", "mon"], "used": 3, "remaining": 4}),
        ];
        let wanted = [
            unknown,
            json!({"kind": "approval_required", "categories": ["ai"]}),
            json!({"kind": "vendor_allowlist", "services": ["a", "b"], "wallets": ["0xaB"]}),
            budget(7, 3_600),
        ];
        assert_eq!(edits(&stored(&answers), &wanted), []);
        let blocking = json!({"kind": "budget_limit", "limit_units": 7, "window_seconds": 3_600, "action": "block"});
        assert_eq!(edits(&stored(&[budget(7, 3_600)]), &[blocking]), []);
        // Purser returns times with microseconds, and null for fields of an exception that are absent in the file.
        let exception =
            |payee: &str, until: &str| json!({"kind": "approval_exception", "payee": payee, "until": until});
        let mut response = exception("0xAb", "2026-12-31T00:00:00.000000Z");
        (response["keys"], response["waives_threshold"]) = (Value::Null, json!(false));
        assert_eq!(
            edits(
                &stored(&[response.clone()]),
                &[exception("0xaB", "2026-12-31T00:00:00Z")]
            ),
            []
        );
        assert_eq!(
            edits(&stored(&[response]), &[exception("0xab", "2026-12-31T00:00:01Z")]).len(),
            1
        );
        let empty = json!({"kind": "vendor_allowlist", "services": ["a"], "wallets": []});
        let bare = json!({"kind": "vendor_allowlist", "services": ["a"]});
        assert_eq!(edits(&stored(&[empty]), &[bare]), []);
    }

    #[test]
    fn a_new_rule_replaces_the_most_similar_stored_rule_of_its_kind() {
        let block = json!({"kind": "category_block", "categories": ["ai"]});
        let asks = json!({"kind": "approval_required"});
        let before = stored(&[budget(9, 86_400), budget(5, 3_600), block.clone()]);
        let told = edits(&before, &[budget(4, 3_600), asks.clone(), budget(9, 86_400)]);
        let expected = [
            RuleEdit::Replace {
                id: "b".to_owned(),
                from: budget(5, 3_600),
                to: budget(4, 3_600),
            },
            RuleEdit::Add { to: asks },
            RuleEdit::Remove {
                id: "c".to_owned(),
                from: block,
            },
        ];
        assert_eq!(told, expected);
        assert_eq!(
            told.iter().map(RuleEdit::may_widen).collect::<Vec<_>>(),
            [false, false, true]
        );
        // Each stored rule is matched with only one wanted rule.
        assert_eq!(
            edits(&stored(&[budget(1, 3_600)]), &[budget(1, 3_600), budget(1, 3_600)]).len(),
            1
        );
        let nearest = edits(&stored(&[budget(9, 86_400), budget(5, 3_600)]), &[budget(4, 3_600)]);
        assert!(matches!(&nearest[..], [RuleEdit::Replace { id, .. }, RuleEdit::Remove { .. }] if id == "b"));
    }

    #[test]
    fn added_exceptions_widen_and_removed_exceptions_do_not() {
        let [exception, block] = ["approval_exception", "category_block"].map(|kind| json!({"kind": kind}));
        let add = |rule: &Value| RuleEdit::Add { to: rule.clone() };
        let remove = |rule: &Value| RuleEdit::Remove {
            id: "a".to_owned(),
            from: rule.clone(),
        };
        assert!(add(&exception).may_widen() && !remove(&exception).may_widen());
        assert!(!add(&block).may_widen() && remove(&block).may_widen());
    }

    #[test]
    fn replacing_a_budget_widens_unless_it_becomes_stricter() {
        let monthly =
            |zone: &str| json!({"kind": "budget_limit", "limit_units": 5, "period": "month", "time_zone": zone});
        let rows = [
            (budget(5, 3_600), budget(5, 7_200), false),
            (budget(5, 3_600), budget(6, 3_600), true),
            (budget(5, 3_600), budget(4, 3_599), true),
            (monthly("UTC"), monthly("UTC"), false),
            (monthly("UTC"), monthly("Asia/Tokyo"), true),
            (
                json!({"kind": "moon_phase"}),
                json!({"kind": "moon_phase", "x": 1}),
                true,
            ),
        ];
        for (from, to, widens) in rows {
            let id = String::new();
            assert_eq!(
                RuleEdit::Replace {
                    id,
                    from,
                    to: to.clone()
                }
                .may_widen(),
                widens,
                "{to}"
            );
        }
    }
}
