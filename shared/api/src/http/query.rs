//! Parses query strings strictly: no repeated parameters, and a response with all validation errors. `routes.rs`
//! rejects unknown parameters.

use axum::http::Uri;
use purser_domain::{Amount, Error, Result, ValidationError};
use std::collections::BTreeSet;

/// The query parameters of one request.
///
/// An invalid parameter adds a validation error, so the caller must call [`Query::finish`] before it uses the parsed
/// values.
pub struct Query {
    pairs: Vec<(String, String)>,
    problems: Vec<ValidationError>,
}

impl Query {
    /// Parses the query of a request's URI.
    pub fn from_uri(uri: &Uri) -> Self {
        let (pairs, errors) = match axum::extract::Query::try_from_uri(uri) {
            Ok(axum::extract::Query(pairs)) => (pairs, Vec::new()),
            Err(_) => (
                Vec::new(),
                vec![ValidationError::at_path("", "must be a URL-encoded query")],
            ),
        };
        Self {
            pairs,
            problems: errors,
        }
    }

    /// Parses the query of an HTML form. Ignores empty parameters, because browsers send every field.
    pub fn without_blanks(uri: &Uri) -> Self {
        let mut query = Self::from_uri(uri);
        query.pairs.retain(|(_, value)| !value.is_empty());
        query
    }

    /// Returns a parameter; `None` if it is absent. A repeated parameter is a validation error.
    pub fn parse_text(&mut self, name: &str) -> Option<String> {
        let mut values = self
            .pairs
            .iter()
            .filter(|(key, _)| key == name)
            .map(|(_, value)| value.clone());
        let (value, again) = (values.next(), values.next());
        if again.is_some() {
            self.add_error(name, "must be given at most once");
            return None;
        }
        value
    }

    /// Returns all values of a parameter that may be repeated.
    pub fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        let pairs = self.pairs.iter().filter(move |(key, _)| key == name);
        pairs.map(|(_, value)| value.as_str())
    }

    /// Returns the page size: an integer from 1 to `max`.
    pub fn parse_limit(&mut self, name: &str, default: u32, max: u32) -> u32 {
        self.parse_integer(name, 1, max).unwrap_or(default)
    }

    /// Parses an integer from `min` to `max`. Accepts `5.0` as 5, as in JSON.
    pub fn parse_integer(&mut self, name: &str, min: u32, max: u32) -> Option<u32> {
        let read = |text: &str| {
            let number = u32::try_from(parse_whole_number(text)?).ok()?;
            (min..=max).contains(&number).then_some(number)
        };
        self.parse_with(name, read, format!("must be an integer from {min} to {max}"))
    }

    /// Parses an amount in micro-units. Accepts `5.0` as 5, as in JSON.
    pub fn parse_amount(&mut self, name: &str) -> Option<Amount> {
        let read = |text: &str| Amount::from_units(parse_whole_number(text)?);
        self.parse_with(name, read, "must be a whole number of micro-units")
    }

    /// Parses a parameter with `parse`. `expected` describes a valid value in the error message.
    pub fn parse_with<T>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&str) -> Option<T>,
        expected: impl Into<String>,
    ) -> Option<T> {
        let text = self.parse_text(name)?;
        let value = parse(&text);
        if value.is_none() {
            self.add_error(name, expected);
        }
        value
    }

    /// Adds a validation error for each query parameter whose name is not in `names`.
    pub(crate) fn add_unknown_parameter_errors(&mut self, names: &[String]) {
        let unknown: BTreeSet<String> = self
            .pairs
            .iter()
            .map(|(name, _)| name.clone())
            .filter(|name| !names.contains(name))
            .collect();
        for name in unknown {
            self.add_error(&name, "is not a parameter of this route");
        }
    }

    /// Returns 400 `invalid_request` with all validation errors, unless there are none.
    pub fn finish(mut self) -> Result<()> {
        self.problems.sort();
        if self.problems.is_empty() {
            Ok(())
        } else {
            Err(Error::invalid(self.problems))
        }
    }

    pub(crate) fn add_error(&mut self, name: &str, message: impl Into<String>) {
        self.problems
            .push(ValidationError::at_path(format!("/{name}"), message));
    }
}

/// Parses an integer, which may end in a fraction of zeros.
fn parse_whole_number(text: &str) -> Option<u64> {
    let (digits, zeros) = text.split_once('.').unwrap_or((text, "0"));
    let is_whole = !zeros.is_empty() && zeros.bytes().all(|byte| byte == b'0');
    // `parse` would also accept a sign.
    let is_plain = is_whole && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_domain::{Category, ErrorKind};

    type Problems = Vec<(String, String)>;

    fn check(query: &str) -> Result<(u32, Option<Category>), Problems> {
        let mut query = Query::from_uri(&format!("/services?{query}").parse().unwrap());
        let read = (
            query.parse_limit("limit", 100, 500),
            query.parse_with("category", Category::from_name, "must be a category"),
        );
        query.finish().map(|()| read).map_err(|error| match error.kind() {
            ErrorKind::InvalidRequest(problems) => problems
                .iter()
                .map(|problem| (problem.path.clone(), problem.message.clone()))
                .collect(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn query_parameters_are_parsed_by_type() {
        assert_eq!(check("limit=500&category=ai"), Ok((500, Some(Category::Ai))));
        assert_eq!(check(""), Ok((100, None)));
        assert_eq!(check("category=%61i"), Ok((100, Some(Category::Ai))));
        assert_eq!(check("limit=5.0"), Ok((5, None)));
        assert_eq!(check("limit=500.00"), Ok((500, None)));
    }

    #[test]
    fn the_limit_parameter_must_be_an_integer_in_range() {
        for limit in [
            "0",
            "501",
            "-1",
            "+1",
            "1.5",
            "1.",
            ".0",
            "0.0",
            "501.0",
            "1.0.0",
            "1e1",
            "ten",
            "",
            "99999999999999999999",
            "%31%00",
        ] {
            let wrong = [("/limit".to_owned(), "must be an integer from 1 to 500".to_owned())];
            assert_eq!(check(&format!("limit={limit}")), Err(wrong.into()), "{limit}");
        }
    }

    #[test]
    fn all_query_errors_are_reported_together() {
        let wrong = [
            ("/category".to_owned(), "must be a category".to_owned()),
            ("/limit".to_owned(), "must be given at most once".to_owned()),
        ];
        assert_eq!(check("limit=1&limit=1&category=AI"), Err(wrong.into()));
    }
}
