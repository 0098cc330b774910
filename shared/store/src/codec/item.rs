//! Conversion between items and domain types. No intermediate form leaves this crate.

pub(crate) use crate::codec::attribute::Item;

use crate::{codec::attribute::Attribute, codec::key::Key};
use aws_sdk_dynamodb::types::AttributeValue;
use purser_domain::{Error, Result};

/// The error for a stored item that this crate would not have written.
#[derive(Debug, thiserror::Error)]
#[error("`{attribute}` of item `{key}` in table `{table}` can't be read")]
pub struct Corrupt {
    /// The table.
    pub table: String,
    /// The item's key. It consists of ids and hashes, nothing secret.
    pub key: String,
    /// The attribute that is missing or invalid.
    pub attribute: &'static str,
}

impl Corrupt {
    /// Whether an error is about such an item, now and later.
    pub fn is_cause_of(error: &Error) -> bool {
        error.cause().is_some_and(|cause| cause.source().is::<Self>())
    }
}

/// An item that is being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    table: &'a str,
    item: &'a Item,
}

impl<'a> Row<'a> {
    pub(crate) const fn new(table: &'a str, item: &'a Item) -> Self {
        Self { table, item }
    }

    /// A required attribute.
    pub(crate) fn get<T: Attribute>(self, name: &'static str) -> Result<T> {
        member(self.item, name).ok_or_else(|| self.corrupt(name))
    }

    /// An optional attribute.
    pub(crate) fn get_optional<T: Attribute>(self, name: &'static str) -> Result<Option<T>> {
        optional_member(self.item, name).ok_or_else(|| self.corrupt(name))
    }

    /// The error for an attribute that can't be read.
    pub(crate) fn corrupt(self, attribute: &'static str) -> Error {
        let part = |name| {
            self.item
                .get(name)
                .and_then(|value| value.as_s().ok())
                .map_or("", String::as_str)
        };
        let key = format!("{} {}", part("pk"), part("sk"));
        let table = self.table.to_owned();
        Error::internal(
            "reading an item",
            Corrupt {
                table,
                key: key.trim_end().to_owned(),
                attribute,
            },
        )
    }
}

/// A member of an item or map; `None` if it is missing or can't be read.
pub(crate) fn member<T: Attribute>(map: &Item, name: &str) -> Option<T> {
    map.get(name).and_then(T::read)
}

/// An optional member: `Some(None)` if it is missing, `None` if it is present but can't be read.
#[expect(clippy::option_option, reason = "absent and wrong are two things")]
pub(crate) fn optional_member<T: Attribute>(map: &Item, name: &str) -> Option<Option<T>> {
    match map.get(name) {
        None => Some(None),
        Some(value) => T::read(value).map(Some),
    }
}

/// An item that is being written.
#[derive(Debug)]
pub(crate) struct Draft(Item);

impl Draft {
    /// An item with this key.
    pub(crate) fn of(key: &Key) -> Self {
        Self(key.attributes())
    }

    /// An item with this key, in a table without a sort key.
    pub(crate) fn of_partition(pk: String) -> Self {
        Self(Item::from([("pk".to_owned(), AttributeValue::S(pk))]))
    }

    /// A map inside an item.
    pub(crate) fn nested() -> Self {
        Self(Item::new())
    }

    /// Adds an attribute.
    pub(crate) fn with<T: Attribute>(self, name: &'static str, value: &T) -> Self {
        self.with_value(name, value.write())
    }

    /// Adds an attribute if there is a value.
    pub(crate) fn with_optional<T: Attribute>(self, name: &'static str, value: Option<&T>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds an attribute that is already encoded.
    pub(crate) fn with_value(mut self, name: &'static str, value: AttributeValue) -> Self {
        self.0.insert(name.to_owned(), value);
        self
    }

    /// The item.
    pub(crate) fn into_item(self) -> Item {
        self.0
    }
}
