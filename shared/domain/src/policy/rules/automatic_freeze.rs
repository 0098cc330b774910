use super::{RuleParameters, range_error, rule_kind, zero_error};
use crate::{Amount, Catalog, Rule, ValidationError};

rule_kind! {
    /// The parameters of an automatic freeze. The rule does not affect decisions about payments.
    #[derive(Copy)]
    AutomaticFreeze = "anomaly_brake" {
        /// The factor above the usual amount at which the agent is frozen: [`MIN_FREEZE_MULTIPLE`] to
        /// [`MAX_FREEZE_MULTIPLE`].
        times: u32 = "times",
        /// The minimum sum of an hour's payments for a freeze: at least one micro-USDC.
        at_least: Amount = "at_least_units",
    }
}

/// The minimum of [`AutomaticFreeze::times`].
pub const MIN_FREEZE_MULTIPLE: u32 = 2;

/// The maximum of [`AutomaticFreeze::times`].
pub const MAX_FREEZE_MULTIPLE: u32 = 100;

impl AutomaticFreeze {
    /// Returns the automatic freeze among an agent's rules. An agent has at most one rule of this kind.
    pub fn find_in_rules(rules: &[Rule]) -> Option<Self> {
        rules.iter().find_map(|rule| rule.kind.as_kind().copied())
    }
}

impl RuleParameters for AutomaticFreeze {
    /// Returns whether this rule freezes the agent whenever `before` would.
    fn is_as_strict_as(&self, before: &Self) -> bool {
        self.times <= before.times && self.at_least <= before.at_least
    }

    fn parameter_errors(&self, _: &Catalog) -> Vec<ValidationError> {
        let times = range_error("/times", self.times, MIN_FREEZE_MULTIPLE, MAX_FREEZE_MULTIPLE);
        times
            .into_iter()
            .chain(zero_error("/at_least_units", self.at_least))
            .collect()
    }
}
