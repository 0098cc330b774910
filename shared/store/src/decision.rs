//! Decisions: what was blocked or escalated, and why, for the people who govern the agent.
//!
//! A row is added once and never changed. It keeps the numbers of every check, which say more than the one reason does.

use crate::{
    attribute::text,
    fault::Fault,
    item::{Draft, Item},
    key::Key,
    ledger::Ledger,
};
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use purser_domain::{Amount, Check, CheckName, CheckOutcome, DecisionRecord, Error, Reason, Result};

impl Ledger {
    /// Adds a decision that stages nothing: 1 write unit.
    pub async fn record(&self, decision: &DecisionRecord) -> Result<()> {
        let put = self
            .db
            .put_item()
            .table_name(&*self.decisions)
            .set_item(Some(write_decision(decision)))
            .condition_expression("attribute_not_exists(pk)");
        match put.send().await {
            Ok(_) => Ok(()),
            Err(error) => match error.as_service_error() {
                // Its id is random: it is this very row, whose answer was lost.
                Some(PutItemError::ConditionalCheckFailedException(_)) => Ok(()),
                _ => Err(Error::internal("recording a decision", Fault::of(&error))),
            },
        }
    }
}

/// The row of a decision.
pub(crate) fn write_decision(decision: &DecisionRecord) -> Item {
    let reason = &decision.reason;
    let hostname = match reason {
        Reason::DomainNotAllowed { hostname, .. } => Some(hostname),
        Reason::ServiceNotEnabled { .. }
        | Reason::OperationNotEnabled { .. }
        | Reason::AmountExceedsMax { .. }
        | Reason::PerCallLimit { .. }
        | Reason::PolicyBlocked(_)
        | Reason::DailyLimit { .. }
        | Reason::ApprovalRequired { .. }
        | Reason::InsufficientBalance { .. } => None,
    };
    Draft::of(&Key::decision(decision.agent, decision.transaction))
        .with("svc", &decision.service)
        .with_optional("op", decision.operation.as_ref())
        .with("amt", &decision.amount)
        .with("payto", &decision.pay_to)
        .with("rh", &decision.fingerprint)
        .with("t", &decision.at)
        .with_value("result", text(reason.result()))
        .with_value("error", text(reason.slug()))
        .with_value("reason", text(&reason.text()))
        .with_value("rule", text(reason.rule()))
        .with_optional("host", hostname)
        .with_optional("pver", decision.policy_version.as_ref())
        .with_optional("apid", decision.approval.as_ref())
        .with("checks", &write_checks(&decision.checks))
        .with("ms", &decision.latency_ms)
        .into_item()
}

/// Checks as one text, `name:outcome:limit:used:remaining` each, so that all twelve fit beside the rest into 1 KB.
pub(crate) fn write_checks(checks: &[Check]) -> String {
    let units = |amount: Option<Amount>| amount.map_or_else(String::new, |amount| amount.units().to_string());
    let one = |check: &Check| {
        let numbers = [check.limit, check.used, check.remaining].map(units).join(":");
        format!("{}:{}:{numbers}", check.name.name(), check.outcome.name())
            .trim_end_matches(':')
            .to_owned()
    };
    checks.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// Reads what [`write_checks`] wrote.
pub(crate) fn read_checks(text: &str) -> Option<Vec<Check>> {
    text.split(' ')
        .filter(|check| !check.is_empty())
        .map(read_check)
        .collect()
}

fn read_check(text: &str) -> Option<Check> {
    let mut parts = text.split(':');
    let name = CheckName::from_name(parts.next()?)?;
    let outcome = CheckOutcome::from_name(parts.next()?)?;
    let mut number = || match parts.next() {
        None | Some("") => Some(None),
        Some(digits) => Amount::from_decimal_digits(digits).map(Some),
    };
    let (limit, used, remaining) = (number()?, number()?, number()?);
    parts.next().is_none().then_some(Check {
        name,
        outcome,
        limit,
        used,
        remaining,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn amount() -> impl Strategy<Value = Option<Amount>> {
        prop::option::of((0..=Amount::MAX.units()).prop_map(|units| Amount::from_units(units).unwrap()))
    }

    proptest! {
        #[test]
        fn checks_return(checks in prop::collection::vec(
            (prop::sample::select(CheckName::ALL), prop::sample::select(CheckOutcome::ALL), amount(), amount(), amount())
                .prop_map(|(name, outcome, limit, used, remaining)| Check { name, outcome, limit, used, remaining }),
            0..14,
        )) {
            prop_assert_eq!(read_checks(&write_checks(&checks)), Some(checks));
        }
    }

    #[test]
    fn other_texts_are_no_checks() {
        for text in [
            "approval",
            "approval:",
            "approval:ok",
            "x:passed",
            "approval:passed:1:2:3:4",
            "approval:passed:x",
        ] {
            assert_eq!(read_checks(text), None, "{text}");
        }
    }
}
