//! The operators who may act in a browser. The deployment's configuration maps users to registered operators.
//!
//! Invariant: a user is at most one operator and acts under that operator's name, so no user can act as two operators.

use crate::Operators;
use purser_api::{DirectUser, Env, Operator};
use purser_domain::{Acting, Actor, ErrorKind, OperatorName, Result, UserId};
use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct BrowserOperators {
    names: BTreeMap<UserId, OperatorName>,
    /// Whether a second operator must confirm price changes, ends of freezes and ownership offers in a browser.
    pub(crate) needs_second: bool,
}

const NAMES: &str = "BROWSER_OPERATORS";
const NEEDS_SECOND: &str = "SECOND_BROWSER_OPERATOR";

impl BrowserOperators {
    /// Reads `BROWSER_OPERATORS`, such as `ada=<person>,bob=<person>`, and `SECOND_BROWSER_OPERATOR`, whose
    /// default is true.
    pub(crate) fn from_env(env: &mut Env) -> Self {
        let names = parse_browser_operators(env.get(NAMES).unwrap_or_default());
        if names.is_none() {
            let message = "must be `<operator>=<person>` with the person's ID, separated by commas, each person once";
            env.add_error(NAMES, message);
        }
        let needs_second = match env.get(NEEDS_SECOND) {
            None | Some("true") => true,
            Some("false") => false,
            Some(_) => {
                env.add_error(NEEDS_SECOND, "must be `true` or `false`");
                true
            }
        };
        Self {
            names: names.unwrap_or_default(),
            needs_second,
        }
    }
}

fn parse_browser_operators(text: &str) -> Option<BTreeMap<UserId, OperatorName>> {
    let mut names = BTreeMap::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (name, user) = pair.split_once('=')?;
        let (name, user) = (OperatorName::parse(name)?, UserId::parse(user)?);
        if names.insert(user, name).is_some() {
            return None;
        }
    }
    Some(names)
}

impl Operators {
    /// Returns the operator who acts in a browser, named `browser:<name>`, or `not_entitled` if the user is not a
    /// registered operator.
    pub(crate) async fn require_browser_operator(&self, user: &DirectUser) -> Result<Operator> {
        if let Some(name) = self.browser.names.get(&user.id)
            && self.tokens.has_operator(name, self.clock.now()).await?
        {
            let name = name.browser_session_name();
            let actor = Actor::Operator(name.clone());
            return Ok(Operator {
                name,
                acting: Acting { actor, ..user.acting() },
            });
        }
        tracing::warn!("operator.not_registered");
        let claim = NAMES.to_owned();
        Err(ErrorKind::NotEntitled { claim }.into())
    }

    /// Returns whether a second operator must confirm this operator's actions.
    pub(crate) fn needs_second_operator(&self, operator: &Operator) -> bool {
        self.browser.needs_second && operator.name.is_browser_session_name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_can_be_only_one_operator() {
        let (ann, bob) = ("a".repeat(64), "b".repeat(64));
        let rows = [
            (String::new(), Some(0)),
            (format!("ann={ann}"), Some(1)),
            (format!(" ann={ann}, bob={bob},"), Some(2)),
            // Two users can act as the same operator.
            (format!("ann={ann},ann={bob}"), Some(2)),
            (format!("ann={ann},bob={ann}"), None),
            (format!("browser:ann={ann}"), None),
            (format!("={ann}"), None),
            ("ann".to_owned(), None),
            ("ann=x".to_owned(), None),
        ];
        for (text, count) in rows {
            assert_eq!(parse_browser_operators(&text).map(|names| names.len()), count, "{text}");
        }
    }

    #[test]
    fn a_second_operator_is_required_by_default() {
        for (value, needed) in [
            (None, Some(true)),
            (Some("true"), Some(true)),
            (Some("false"), Some(false)),
            (Some("no"), None),
        ] {
            let mut env: Env = value.map(|value| (NEEDS_SECOND, value)).into_iter().collect();
            let read = BrowserOperators::from_env(&mut env);
            assert_eq!(env.finish(read.needs_second).ok(), needed, "{value:?}");
        }
    }
}
