//! Builds and reads the fields of an event's data.

use crate::{Amount, Labels, Timestamp};
use serde_json::{Map, Value};
use std::fmt::Display;

/// The fields of an event's data. [`crate::Event::new`] accepts only the fields of the event's kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventData(pub(crate) Map<String, Value>);

impl EventData {
    /// Creates empty event data, to which the other methods add fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an id, a hash, an address or any other text.
    #[must_use]
    pub fn text(self, name: &'static str, value: impl Display) -> Self {
        self.with_field(name, Value::String(value.to_string()))
    }

    /// Adds a text field unless `value` is `None`.
    #[must_use]
    pub fn optional_text(self, name: &'static str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.text(name, value),
            None => self,
        }
    }

    /// Adds an amount, in micro-USDC.
    #[must_use]
    pub fn amount(self, name: &'static str, value: Amount) -> Self {
        self.number(name, value.units())
    }

    /// Adds an amount, in micro-USDC, unless `value` is `None`.
    #[must_use]
    pub fn optional_amount(self, name: &'static str, value: Option<Amount>) -> Self {
        match value {
            Some(value) => self.amount(name, value),
            None => self,
        }
    }

    /// Adds a whole number. [`crate::Event::new`] rejects numbers above [`Amount::MAX`].
    #[must_use]
    pub fn number(self, name: &'static str, value: u64) -> Self {
        self.with_field(name, Value::from(value))
    }

    /// Adds a time.
    #[must_use]
    pub fn time(self, name: &'static str, value: Timestamp) -> Self {
        self.text(name, value)
    }

    /// Adds a boolean.
    #[must_use]
    pub fn flag(self, name: &'static str, value: bool) -> Self {
        self.with_field(name, Value::Bool(value))
    }

    /// Adds an agent's labels unless they are empty.
    #[must_use]
    pub fn labels(self, labels: &Labels) -> Self {
        if labels.is_empty() {
            self
        } else {
            self.with_field("labels", labels.to_json())
        }
    }

    fn with_field(mut self, name: &'static str, value: Value) -> Self {
        self.0.insert(name.to_owned(), value);
        self
    }

    /// Returns the field with this name as JSON; `None` if the data lacks the field.
    pub fn find(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Returns the field with this name, if it is a text, such as an id.
    pub fn find_text(&self, name: &str) -> Option<&str> {
        self.find(name)?.as_str()
    }

    /// Returns the field with this name as an amount in micro-USDC, if the field is a whole number.
    pub fn find_amount(&self, name: &str) -> Option<Amount> {
        Amount::from_units(self.find(name)?.as_u64()?)
    }

    /// Returns the field with this name, if it is a time.
    pub fn find_time(&self, name: &str) -> Option<Timestamp> {
        Timestamp::parse(self.find_text(name)?)
    }

    /// Returns all fields as JSON.
    pub const fn fields(&self) -> &Map<String, Value> {
        &self.0
    }
}
