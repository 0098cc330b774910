//! An event's data while it is put together.

use crate::{Amount, Timestamp};
use serde_json::{Map, Value};
use std::fmt::Display;

/// The members of an event's data. [`crate::Event::new`] takes only those that its kind names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventData(pub(crate) Map<String, Value>);

impl EventData {
    /// No members yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// With an id, a hash, an address or another text.
    #[must_use]
    pub fn text(self, name: &'static str, value: impl Display) -> Self {
        self.with(name, Value::String(value.to_string()))
    }

    /// With a text, if there is one.
    #[must_use]
    pub fn optional_text(self, name: &'static str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.text(name, value),
            None => self,
        }
    }

    /// With an amount, in micro-units.
    #[must_use]
    pub fn amount(self, name: &'static str, value: Amount) -> Self {
        self.number(name, value.units())
    }

    /// With an amount, if there is one.
    #[must_use]
    pub fn optional_amount(self, name: &'static str, value: Option<Amount>) -> Self {
        match value {
            Some(value) => self.amount(name, value),
            None => self,
        }
    }

    /// With a whole number.
    #[must_use]
    pub fn number(self, name: &'static str, value: u64) -> Self {
        self.with(name, Value::from(value))
    }

    /// With an instant.
    #[must_use]
    pub fn time(self, name: &'static str, value: Timestamp) -> Self {
        self.text(name, value)
    }

    /// With a yes or no.
    #[must_use]
    pub fn flag(self, name: &'static str, value: bool) -> Self {
        self.with(name, Value::Bool(value))
    }

    fn with(mut self, name: &'static str, value: Value) -> Self {
        self.0.insert(name.to_owned(), value);
        self
    }

    /// A member.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// A text, such as an id.
    pub fn get_text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    /// An amount.
    pub fn get_amount(&self, name: &str) -> Option<Amount> {
        Amount::from_units(self.get(name)?.as_u64()?)
    }

    /// An instant.
    pub fn get_time(&self, name: &str) -> Option<Timestamp> {
        Timestamp::parse(self.get_text(name)?)
    }

    /// All members, as JSON.
    pub const fn members(&self) -> &Map<String, Value> {
        &self.0
    }
}
