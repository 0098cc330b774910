//! Converts items to domain types and back. Other crates see only domain types.

pub(crate) use crate::codec::attribute::Item;

use crate::{codec::attribute::Attribute, codec::key::Key};
use aws_sdk_dynamodb::types::AttributeValue;
use purser_domain::{Error, Result};

/// A stored item that can't be parsed, because another program wrote or changed it.
#[derive(Debug, thiserror::Error)]
#[error("`{attribute}` of item `{key}` in table `{table}` can't be read")]
pub struct Corrupt {
    /// The DynamoDB table that contains the item.
    pub table: String,
    /// The item's key. Keys contain only ids and hashes, and no secrets.
    pub key: String,
    /// The attribute that is missing or invalid.
    pub attribute: &'static str,
}

impl Corrupt {
    /// Returns whether a corrupt item caused this error. If so, a retry fails too.
    pub fn is_cause_of(error: &Error) -> bool {
        error.cause().is_some_and(|cause| cause.source().is::<Self>())
    }
}

/// A stored item, with the table's name for error messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    table: &'a str,
    item: &'a Item,
}

impl<'a> Row<'a> {
    pub(crate) const fn new(table: &'a str, item: &'a Item) -> Self {
        Self { table, item }
    }

    /// Reads a value of type `T` from the item. The error names the table, the item's key and the attribute.
    pub(crate) fn read<T: Fields>(self) -> Result<T> {
        T::read_from(self.item).map_err(|Unreadable(name)| self.corrupt_error(name))
    }

    /// Reads a required attribute. Fails if the attribute is missing or invalid.
    pub(crate) fn get<T: Attribute>(self, name: &'static str) -> Result<T> {
        read_field(self.item, name).ok_or_else(|| self.corrupt_error(name))
    }

    /// Reads an attribute that may be absent. Fails if the attribute is invalid.
    pub(crate) fn get_optional<T: Attribute>(self, name: &'static str) -> Result<Option<T>> {
        read_optional_field(self.item, name).ok_or_else(|| self.corrupt_error(name))
    }

    pub(crate) fn corrupt_error(self, attribute: &'static str) -> Error {
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

/// A value that is stored in several attributes of an item or map. The macro [`fields!`] implements this trait.
///
/// [`fields!`]: crate::codec::fields::fields
pub(crate) trait Fields: Sized {
    fn write_to(&self, draft: Draft) -> Draft;
    /// Reads the value. Fails with the name of an attribute that is missing or invalid.
    fn read_from(item: &Item) -> Result<Self, Unreadable>;
}

/// The name of an attribute that is missing or has a value that [`Fields::write_to`] never writes.
#[derive(Debug)]
pub(crate) struct Unreadable(pub(crate) &'static str);

pub(crate) fn field<T: Attribute>(item: &Item, name: &'static str) -> Result<T, Unreadable> {
    read_field(item, name).ok_or(Unreadable(name))
}

/// Reads an attribute that may be absent. Fails if the attribute is invalid.
pub(crate) fn optional_field<T: Attribute>(item: &Item, name: &'static str) -> Result<Option<T>, Unreadable> {
    read_optional_field(item, name).ok_or(Unreadable(name))
}

pub(crate) fn parse_key_attribute<T>(
    item: &Item,
    name: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, Unreadable> {
    let key = item.get(name).and_then(|value| value.as_s().ok());
    key.and_then(|key| parse(key)).ok_or(Unreadable(name))
}

/// Returns an attribute's value; `None` if the attribute is missing or can't be decoded.
pub(crate) fn read_field<T: Attribute>(map: &Item, name: &str) -> Option<T> {
    map.get(name).and_then(T::read)
}

/// Returns `Some(None)` if the attribute is missing, and `None` if it can't be decoded.
#[expect(clippy::option_option, reason = "absent and wrong are two things")]
pub(crate) fn read_optional_field<T: Attribute>(map: &Item, name: &str) -> Option<Option<T>> {
    match map.get(name) {
        None => Some(None),
        Some(value) => T::read(value).map(Some),
    }
}

#[derive(Debug)]
pub(crate) struct Draft(Item);

impl Draft {
    pub(crate) fn new(key: &Key) -> Self {
        Self(key.attributes())
    }

    pub(crate) fn with_partition_key(pk: String) -> Self {
        Self(Item::from([("pk".to_owned(), AttributeValue::S(pk))]))
    }

    pub(crate) fn new_map() -> Self {
        Self(Item::new())
    }

    pub(crate) fn with<T: Attribute>(self, name: &'static str, value: &T) -> Self {
        self.with_value(name, value.write())
    }

    pub(crate) fn with_optional<T: Attribute>(self, name: &'static str, value: Option<&T>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    pub(crate) fn with_unless_default<T: Attribute + PartialEq>(
        self,
        name: &'static str,
        value: &T,
        default: &T,
    ) -> Self {
        self.with_optional(name, Some(value).filter(|value| *value != default))
    }

    pub(crate) fn with_fields(self, value: &impl Fields) -> Self {
        value.write_to(self)
    }

    pub(crate) fn with_value(mut self, name: &'static str, value: AttributeValue) -> Self {
        self.0.insert(name.to_owned(), value);
        self
    }

    pub(crate) fn into_item(self) -> Item {
        self.0
    }
}
