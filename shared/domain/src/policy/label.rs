//! Labels: key-value pairs by which users group agents, for example `team=search`. Decisions do not depend on labels.
//!
//! The number and size of labels are limited, because every payment reads the agent's record.

use crate::{Fields, ValidationError, is_displayable, value::line::line};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// The key of a label: 1 to 30 characters of `a-z`, `0-9`, `_`, `.` and `-`, beginning with a letter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelKey(String);

impl LabelKey {
    /// The maximum length of a label's key, in characters.
    pub const MAX: usize = 30;
    /// The message of the validation error for a text that [`LabelKey::parse`] rejects.
    pub const FORM: &'static str =
        "must be 1 to 30 characters of `a-z`, `0-9`, `_`, `.` and `-`, beginning with a letter";

    /// Parses a key. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_.-".contains(&byte);
        let fits = text.len() <= Self::MAX
            && text.starts_with(|first: char| first.is_ascii_lowercase())
            && text.bytes().all(is_allowed);
        fits.then(|| Self(text.to_owned()))
    }

    /// Returns the key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LabelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

line! {
    /// The value of a label: one line of at most 60 characters.
    LabelValue, 60
}

/// The labels of an agent: pairs of a key and a value, at most [`Labels::MAX`] pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Labels(BTreeMap<LabelKey, LabelValue>);

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let labels = BTreeMap::deserialize(deserializer)?;
        Self::from_pairs(labels).ok_or_else(|| D::Error::custom(Self::FORM))
    }
}

impl Labels {
    /// The maximum number of labels.
    pub const MAX: usize = 10;
    /// The maximum size of all keys and values, in bytes of UTF-8. It keeps most agent records within one read unit
    /// (`shared/store/tests/store/items.rs`).
    pub const MAX_BYTES: usize = 500;
    /// The message of the validation error for labels that [`Labels::from_pairs`] rejects.
    pub const FORM: &'static str = "must be at most 10 labels, of at most 500 bytes together";

    /// Creates labels. The last pair with a key applies. `None` if the labels exceed [`Labels::MAX`] or
    /// [`Labels::MAX_BYTES`].
    pub fn from_pairs(pairs: impl IntoIterator<Item = (LabelKey, LabelValue)>) -> Option<Self> {
        let labels = Self(pairs.into_iter().collect());
        let fits = labels.0.len() <= Self::MAX && labels.size_in_bytes() <= Self::MAX_BYTES;
        fits.then_some(labels)
    }

    /// Parses a JSON object of labels. The error contains all validation errors, with JSON Pointers that start with
    /// `path`.
    pub fn parse(value: &Value, path: &str) -> Result<Self, Vec<ValidationError>> {
        let mut fields = Fields::new(value, path).map_err(|error| vec![error])?;
        let mut pairs = Vec::new();
        for (name, field) in value.as_object().into_iter().flatten() {
            let key = LabelKey::parse(name);
            let value = field.as_str().and_then(LabelValue::parse);
            if key.is_none() {
                fields.add_error(name, format!("its key {}", LabelKey::FORM));
            }
            if value.is_none() {
                fields.add_error(name, LabelValue::FORM);
            }
            pairs.extend(key.zip(value));
        }
        fields.finish()?;
        Self::from_pairs(pairs).ok_or_else(|| vec![ValidationError::at_path(path, Self::FORM)])
    }

    /// Parses stored labels. They may contain characters that new labels may not.
    pub fn from_stored(value: &Value) -> Option<Self> {
        let pairs = value.as_object()?.iter();
        let pairs = pairs.map(|(key, value)| LabelKey::parse(key).zip(LabelValue::from_stored(value.as_str()?)));
        Self::from_pairs(pairs.collect::<Option<Vec<_>>>()?)
    }

    /// Adds labels, which replace labels with the same key. `None` if the labels exceed [`Labels::MAX`] or
    /// [`Labels::MAX_BYTES`].
    pub fn with_added(&self, other: &Self) -> Option<Self> {
        let both = self.0.iter().chain(&other.0);
        Self::from_pairs(both.map(|(key, value)| (key.clone(), value.clone())))
    }

    /// Removes the labels with these keys.
    #[must_use]
    pub fn without(&self, keys: &[LabelKey]) -> Self {
        let kept = self.0.iter().filter(|(key, _)| !keys.contains(key));
        Self(kept.map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    /// Returns the value of the label with this key.
    pub fn find(&self, key: &LabelKey) -> Option<&LabelValue> {
        self.0.get(key)
    }

    /// Returns the labels, sorted by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&LabelKey, &LabelValue)> {
        self.0.iter()
    }

    /// Returns whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of labels: at most [`Labels::MAX`].
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the labels as a JSON object that [`Labels::parse`] accepts.
    pub fn to_json(&self) -> Value {
        let fields = self
            .0
            .iter()
            .map(|(key, value)| (key.0.clone(), value.0.clone().into()));
        Value::Object(fields.collect())
    }

    fn size_in_bytes(&self) -> usize {
        let sizes = self
            .0
            .iter()
            .map(|(key, value)| key.0.len().saturating_add(value.0.len()));
        sizes.fold(0, usize::saturating_add)
    }
}

/// Writes the labels as `key=value`, separated by a comma and a space.
impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (key, value)) in self.0.iter().enumerate() {
            let separator = if index > 0 { ", " } else { "" };
            write!(f, "{separator}{key}={value}")?;
        }
        Ok(())
    }
}

/// A filter by label: `key=value`, or `key` for any value of this key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LabelFilter {
    /// The key that an agent's label must have.
    pub key: LabelKey,
    /// The value that the label must have; `None` if any value matches.
    pub value: Option<LabelValue>,
}

impl LabelFilter {
    /// The message of the validation error for a text that [`LabelFilter::parse`] rejects.
    pub const FORM: &'static str = "must be the key of a label, or `key=value`";

    /// Parses a filter, or returns `None`. The value may have characters that new labels may not have.
    pub fn parse(text: &str) -> Option<Self> {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(LabelValue::from_stored(value)?)),
            None => (text, None),
        };
        let key = LabelKey::parse(key.trim())?;
        Some(Self { key, value })
    }

    /// Returns whether a new label may have this value.
    pub fn is_displayable(&self) -> bool {
        self.value.as_ref().is_none_or(|value| is_displayable(value.as_str()))
    }

    /// Returns whether the labels contain the filter's key, with the filter's value if there is one.
    pub fn matches(&self, labels: &Labels) -> bool {
        let found = labels.find(&self.key);
        match &self.value {
            Some(_) => found == self.value.as_ref(),
            None => found.is_some(),
        }
    }
}

impl fmt::Display for LabelFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value}", self.key),
            None => self.key.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn parse(value: &Value) -> Result<Labels, Vec<String>> {
        let paths = |problems: Vec<ValidationError>| problems.into_iter().map(|problem| problem.path).collect();
        Labels::parse(value, "/labels").map_err(paths)
    }

    #[test]
    fn label_keys_are_short_words_that_begin_with_a_letter() {
        for text in ["a", "team", "cost-centre", "a.b_c-9", &"k".repeat(30)] {
            assert_eq!(LabelKey::parse(text).unwrap().as_str(), text);
        }
        for text in ["", "9a", "-a", "Team", "té", "a b", "a=b", " a", &"k".repeat(31)] {
            assert_eq!(LabelKey::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn every_label_error_is_reported_with_its_path() {
        let most: serde_json::Map<String, Value> = (0..10).map(|n| (format!("k{n}"), json!("v"))).collect();
        let mut more = most.clone();
        more.insert("one-more".to_owned(), json!("v"));
        let long = |bytes: usize| -> Value {
            let pairs = (0..10).map(|n| (format!("k{n}"), json!("v".repeat(bytes))));
            Value::Object(pairs.collect())
        };
        let rows = [
            (json!({}), vec![]),
            (json!(most), vec![]),
            (json!(more), vec!["/labels"]),
            // Ten keys of 2 bytes and ten values of 48 bytes are 500 bytes.
            (long(48), vec![]),
            (long(49), vec!["/labels"]),
            (json!({"team": "é".repeat(60)}), vec![]),
            (json!({"team": "é".repeat(61)}), vec!["/labels/team"]),
            (
                json!({"Team": "x", "a/b": " ", "ok": "x", "n": 7}),
                vec!["/labels/Team", "/labels/a~1b", "/labels/a~1b", "/labels/n"],
            ),
            (json!({"team": null}), vec!["/labels/team"]),
            (json!({"team": "a\nb"}), vec!["/labels/team"]),
            (json!(["team"]), vec!["/labels"]),
            (json!("team=x"), vec!["/labels"]),
        ];
        for (body, problems) in rows {
            let told = parse(&body).err().unwrap_or_default();
            assert_eq!(told, problems, "{body}");
        }
    }

    #[test]
    fn agent_labels_are_sorted_by_key() {
        let labels = parse(&json!({"team": " search ", "env": "prod"})).unwrap();
        assert_eq!(
            (labels.len(), labels.to_string().as_str()),
            (2, "env=prod, team=search")
        );
        let pairs = labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        assert!(pairs.eq([("env", "prod"), ("team", "search")]));
        assert_eq!(Labels::default().to_string(), "");
        let changed = labels
            .with_added(&parse(&json!({"team": "ads", "cost": "7"})).unwrap())
            .unwrap();
        assert_eq!(changed.to_string(), "cost=7, env=prod, team=ads");
        let keys = ["env", "other"].map(|key| LabelKey::parse(key).unwrap());
        assert_eq!(changed.without(&keys).to_string(), "cost=7, team=ads");
    }

    #[test]
    fn a_label_filter_accepts_a_key_or_a_key_value_pair() {
        let labels = parse(&json!({"team": "search", "formula": "a=b"})).unwrap();
        let rows = [
            ("team", Some(true)),
            ("team=search", Some(true)),
            (" team = search ", Some(true)),
            ("formula=a=b", Some(true)),
            ("team=Search", Some(false)),
            ("env", Some(false)),
            ("team=", None),
            ("=search", None),
            ("Team", None),
            ("", None),
        ];
        for (text, expected) in rows {
            let filter = LabelFilter::parse(text);
            assert_eq!(
                filter.as_ref().map(|filter| filter.matches(&labels)),
                expected,
                "{text:?}"
            );
            if let Some(filter) = filter {
                assert_eq!(LabelFilter::parse(&filter.to_string()), Some(filter));
            }
        }
    }

    proptest! {
        #[test]
        fn stored_labels_are_read_completely_or_rejected(
            pairs in prop::collection::btree_map("[a-z0-9_.A-]{0,32}", "[ a-zé\u{1f4a1}\n]{0,62}", 0..13),
        ) {
            let body = Value::Object(pairs.iter().map(|(key, value)| (key.clone(), json!(value))).collect());
            let trimmed: BTreeMap<&str, &str> = pairs.iter().map(|(key, value)| (key.as_str(), value.trim())).collect();
            let pair_fits = |(key, value): (&&str, &&str)| {
                let first = key.chars().next();
                first.is_some_and(|first| first.is_ascii_lowercase())
                    && key.len() <= 30
                    && !key.contains('A')
                    && (1..=60).contains(&value.chars().count())
                    && !value.contains('\n')
            };
            let bytes: usize = trimmed.iter().map(|(key, value)| key.len() + value.len()).sum();
            let fits = trimmed.iter().all(pair_fits) && trimmed.len() <= 10 && bytes <= 500;
            match Labels::parse(&body, "") {
                Ok(labels) => {
                    prop_assert!(fits);
                    let read: BTreeMap<&str, &str> = labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
                    prop_assert_eq!(read, trimmed);
                    prop_assert_eq!(Labels::parse(&labels.to_json(), ""), Ok(labels));
                }
                Err(problems) => {
                    prop_assert!(!fits);
                    prop_assert!(!problems.is_empty());
                }
            }
        }
    }
}
