//! Reads the configuration from environment variables, and reports all errors in one message.
//!
//! An empty variable counts as unset, because `sam local` sets variables without a value to the empty string.

use crate::http::outward::AllowedHosts;
use crate::lambda::aws::is_loopback;
use purser_domain::{EventSource, Network};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{collections::BTreeMap, fmt, ops::RangeInclusive, str::FromStr};

/// Environment variables, and the errors in the values of these variables.
///
/// For a missing or invalid variable, a method records an error and returns a value that must not be used.
/// [`Env::finish`] returns the settings only if no error was recorded.
#[derive(Default)]
pub struct Env {
    values: BTreeMap<String, String>,
    problems: Vec<String>,
}

/// How wallet keys are stored, for the whole deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CustodyKind {
    /// All keys are derived from the wallet seed.
    Seed,
    /// Each agent has a key in KMS.
    Kms,
}

/// All errors of the configuration, without the variables' values, which may be secret.
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
    /// Reads the process's environment variables. A variable that is not Unicode counts as unset.
    pub fn from_process() -> Self {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    /// Adds a stage variable from the gateway's event, if present.
    pub(crate) fn with_stage_variable(mut self, name: &str, event: &RawValue) -> Self {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct StagedSecret {
            stage_variables: Option<BTreeMap<String, String>>,
        }
        let staged = serde_json::from_str::<StagedSecret>(event.get()).ok();
        let value = staged.and_then(|staged| staged.stage_variables?.remove(name));
        self.values.extend(value.map(|value| (name.to_owned(), value)));
        self
    }

    /// Returns a variable; `None` if the variable is unset or empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Returns a required variable. If the variable is unset, records an error and returns an empty string.
    pub fn require_text(&mut self, name: &str) -> String {
        if self.get(name).is_none() {
            self.add_error(name, "is not set");
        }
        self.get(name).unwrap_or_default().to_owned()
    }

    /// Returns the integer in the variable `name`, or `default` if the variable is unset. Records an error if the
    /// integer is outside `range`.
    pub fn parse_number<T>(&mut self, name: &str, default: T, range: RangeInclusive<T>) -> T
    where
        T: FromStr + PartialOrd + fmt::Display,
    {
        let Some(text) = self.get(name) else { return default };
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.unwrap_or_else(|| {
            let (least, max) = range.into_inner();
            self.add_error(name, &format!("must be an integer from {least} to {max}"));
            default
        })
    }

    /// Returns the network in the required variable `NETWORK`.
    pub fn require_network(&mut self) -> Network {
        const NAME: &str = "NETWORK";
        let text = self.require_text(NAME);
        let network = Network::from_name(&text);
        if network.is_none() && !text.is_empty() {
            self.add_error(
                NAME,
                &format!("must be one of: {}", Network::ALL.map(Network::name).join(", ")),
            );
        }
        network.unwrap_or(Network::BaseSepolia)
    }

    /// Returns how wallet keys are stored, according to the variable `CUSTODY`. Returns [`CustodyKind::Seed`] if the
    /// variable is unset.
    pub fn parse_custody(&mut self) -> CustodyKind {
        match self.get("CUSTODY") {
            None | Some("seed") => CustodyKind::Seed,
            Some("kms") => CustodyKind::Kms,
            Some(_) => {
                self.add_error("CUSTODY", "must be `seed` or `kms`");
                CustodyKind::Seed
            }
        }
    }

    /// Returns whether the variable `NETWORK` names a test network. Returns `false` if the variable is unset.
    pub(crate) fn is_testnet(&self) -> bool {
        let network = self.get("NETWORK").and_then(Network::from_name);
        network.is_some_and(Network::is_testnet)
    }

    /// Returns the list of hosts in the variable `name`. A function may call these hosts even at private addresses.
    /// Unless `NETWORK` is a test network, the list may contain only hosts on this machine.
    pub fn take_allowed_hosts(&mut self, name: &str) -> AllowedHosts {
        let hosts = AllowedHosts::parse(self.get(name).unwrap_or_default());
        let Some(hosts) = hosts else {
            self.add_error(name, "must be a list of `host:port`");
            return AllowedHosts::default();
        };
        if !self.is_testnet() && !hosts.all_hosts_match(is_loopback) {
            self.add_error(
                name,
                "must be empty or name hosts of this machine, unless `NETWORK` is a test network",
            );
        }
        hosts
    }

    /// Returns the deployment's name in the variable `STACK`. Each event has this name as the source.
    pub fn require_event_source(&mut self) -> EventSource {
        let stack = self.require_text("STACK");
        let source = EventSource::for_stack(&stack);
        // `require_text` has already recorded an error if the variable is missing.
        if source.is_none() && !stack.is_empty() {
            self.add_error("STACK", "must be letters, digits and hyphens");
        }
        source.unwrap_or_default()
    }

    /// Returns `settings` if no error was recorded.
    pub fn finish<T>(self, settings: T) -> Result<T, EnvError> {
        if self.problems.is_empty() {
            Ok(settings)
        } else {
            Err(EnvError(self.problems))
        }
    }

    /// Records an error. `message` continues the variable's name, such as `must be a number`.
    pub fn add_error(&mut self, name: &str, message: &str) {
        self.problems.push(format!("`{name}` {message}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(variables: &[(&str, &str)]) -> Result<(String, Network, u32), String> {
        let mut env: Env = variables.iter().copied().collect();
        let settings = (
            env.require_text("LEDGER_TABLE"),
            env.require_network(),
            env.parse_number("FINALITY_CONFIRMATIONS", 5, 1..=1000),
        );
        env.finish(settings).map_err(|error| error.to_string())
    }

    #[test]
    fn empty_environment_variables_count_as_unset() {
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
    fn stage_variables_supply_missing_environment_variables() {
        let rows = [
            (r#"{"stageVariables": {"CLIENT": "c1", "STACK": "other"}}"#, Some("c1")),
            (r#"{"stageVariables": {"STACK": "other"}}"#, None),
            (r#"{"stageVariables": null}"#, None),
            ("{}", None),
            ("[1]", None),
        ];
        for (event, client) in rows {
            let event = RawValue::from_string(event.to_owned()).unwrap();
            let env = Env::from_iter([("STACK", "dev"), ("CLIENT", "")]).with_stage_variable("CLIENT", &event);
            assert_eq!((env.get("CLIENT"), env.get("STACK")), (client, Some("dev")), "{event}");
        }
    }

    #[test]
    fn all_invalid_environment_variables_are_reported_without_values() {
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

    #[test]
    fn remote_hosts_are_only_allowed_on_test_networks() {
        let rows = [
            ("base", "", true),
            ("base", "127.0.0.1:4021,[::1]:80,localhost:80", true),
            ("base", "127.0.0.1:4021,10.0.0.7:80", false),
            ("base", "169.254.169.254:80", false),
            ("base", "lab.example:443", false),
            ("", "lab.example:443", false),
            ("base-sepolia", "lab.example:443,10.0.0.7:80", true),
            ("base-sepolia", "lab.example", false),
        ];
        for (network, hosts, is_right) in rows {
            let mut env: Env = [("NETWORK", network), ("MCP_ALLOWED_HOSTS", hosts)]
                .into_iter()
                .collect();
            env.take_allowed_hosts("MCP_ALLOWED_HOSTS");
            assert_eq!(env.finish(()).is_ok(), is_right, "{network} {hosts}");
        }
    }
}
