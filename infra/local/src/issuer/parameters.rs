//! Form-encoded parameters, of a query or a body.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use url::{Url, form_urlencoded};

/// The parameters of a request by name.
pub(super) struct Parameters(BTreeMap<String, String>);

impl Parameters {
    /// Reads them; `None` where one is given twice, which OAuth forbids (RFC 6749 §3.1).
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let mut parameters = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(text) {
            match parameters.entry(name.into_owned()) {
                Entry::Vacant(vacant) => vacant.insert(value.into_owned()),
                Entry::Occupied(_) => return None,
            };
        }
        Some(Self(parameters))
    }

    /// A parameter. One without a value counts as left out (RFC 6749 §3.1).
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

/// A registered URI with more parameters.
pub(super) fn with<'a>(uri: &str, parameters: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut parameters = parameters.peekable();
    match Url::parse(uri) {
        Ok(mut url) if parameters.peek().is_some() => {
            url.query_pairs_mut().extend_pairs(parameters);
            url.into()
        }
        _ => uri.to_owned(),
    }
}
