//! Configuration: environment variables, read once, with everything that is wrong told in one message.
//!
//! The variables arrive as a value, so that the local stack hands each function its own and tests need no process-wide
//! state. An empty variable counts as unset: `sam local` sets only what the template declares, empty where it can't tell.

use std::{collections::BTreeMap, fmt, ops::RangeInclusive, str::FromStr};

/// The variables, and what has been found wrong with them.
///
/// Each reader answers `None` for a variable that is missing or wrong and notes the problem. Settings are put together
/// from all the answers, and [`Env::finish`] lets them out only when nothing was wrong.
#[derive(Default)]
pub struct Env {
    values: BTreeMap<String, String>,
    problems: Vec<String>,
}

/// Everything that is wrong with the configuration. Values are not repeated: they may be secrets.
#[derive(Debug, PartialEq, Eq)]
pub struct EnvError(Vec<String>);

impl fmt::Display for EnvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for EnvError {}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Env {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Self {
        let values = variables
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        Self {
            values,
            problems: Vec::new(),
        }
    }
}

impl Env {
    /// The process's variables. One that is not Unicode is as good as unset.
    pub fn process() -> Self {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    /// The variable, unless it is unset or empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// A text that must be there.
    pub fn text(&mut self, name: &str) -> Option<String> {
        let text = self.get(name).map(str::to_owned);
        if text.is_none() {
            self.wrong(name, "is not set");
        }
        text
    }

    /// An integer in a range, or `default` where it is unset.
    pub fn number<T>(&mut self, name: &str, default: T, range: RangeInclusive<T>) -> Option<T>
    where
        T: FromStr + PartialOrd + fmt::Display,
    {
        let Some(text) = self.get(name) else {
            return Some(default);
        };
        let number = text.parse().ok().filter(|number| range.contains(number));
        if number.is_none() {
            self.wrong(
                name,
                &format!("must be an integer from {} to {}", range.start(), range.end()),
            );
        }
        number
    }

    /// One of a few words, which must be there: `choice("NETWORK", &Network::ALL, Network::name)`.
    pub fn choice<T: Copy>(&mut self, name: &str, choices: &[T], word: impl Fn(T) -> &'static str) -> Option<T> {
        let text = self.text(name)?;
        let choice = choices.iter().copied().find(|choice| word(*choice) == text);
        if choice.is_none() {
            let words: Vec<&str> = choices.iter().map(|choice| word(*choice)).collect();
            self.wrong(name, &format!("must be one of: {}", words.join(", ")));
        }
        choice
    }

    /// The settings, if nothing was wrong.
    pub fn finish<T>(self, settings: Option<T>) -> Result<T, EnvError> {
        match settings {
            Some(settings) if self.problems.is_empty() => Ok(settings),
            _ => Err(EnvError(self.problems)),
        }
    }

    /// Notes a problem with a variable.
    pub fn wrong(&mut self, name: &str, message: &str) {
        self.problems.push(format!("`{name}` {message}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_domain::Network;

    fn check(variables: &[(&str, &str)]) -> Result<(String, Network, u32), String> {
        let mut env: Env = variables.iter().copied().collect();
        let read = (
            env.text("LEDGER_TABLE"),
            env.choice("NETWORK", &Network::ALL, Network::name),
            env.number("FINALITY_CONFIRMATIONS", 5, 1..=1000),
        );
        let settings = match read {
            (Some(table), Some(network), Some(depth)) => Some((table, network, depth)),
            _ => None,
        };
        env.finish(settings).map_err(|error| error.to_string())
    }

    #[test]
    fn an_empty_variable_is_an_unset_one() {
        let rows = [[
            ("LEDGER_TABLE", "t"),
            ("NETWORK", "base"),
            ("FINALITY_CONFIRMATIONS", ""),
        ]];
        for row in rows {
            assert_eq!(check(&row), Ok(("t".to_owned(), Network::Base, 5)));
        }
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once_and_no_value_is_repeated() {
        let wrong = [
            ("LEDGER_TABLE", ""),
            ("NETWORK", "hunter2"),
            ("FINALITY_CONFIRMATIONS", "1001"),
        ];
        assert_eq!(
            check(&wrong).unwrap_err(),
            "`LEDGER_TABLE` is not set; `NETWORK` must be one of: base, base-sepolia; \
             `FINALITY_CONFIRMATIONS` must be an integer from 1 to 1000"
        );
        assert_eq!(
            check(&[]).unwrap_err(),
            "`LEDGER_TABLE` is not set; `NETWORK` is not set"
        );
    }
}
