use super::{RuleParameters, range_error, rule_kind};
use crate::{
    Amount, Block, Catalog, Check, CheckName, EvaluationInputs, LimitAction, MAX_RECENT_PRICES, Operation,
    OperationDigest, Rule, RuleKind, RuleScope, ServiceSlug, ValidationError,
    evidence::document::{Fields, Object, read_field, write_field},
    policy::{
        boundaries::Boundaries,
        check::{AskingKind, FirstFailure},
        limits,
    },
};

rule_kind! {
    /// A price more than `percent` percent above the operation's usual price is denied or needs an approval.
    PriceAboveUsual = "price_above_usual" {
        /// The services to which the rule applies; `None` for all services.
        services: Option<Vec<ServiceSlug>> = "services",
        /// The percentage by which a price may exceed the usual price: 0 to [`MAX_PERCENT`].
        percent: u32 = "percent",
        /// The source of the usual price.
        over: UsualPrice = part,
        /// What the rule does with a higher price.
        action: LimitAction = "action",
    }
}

/// The price with which a `price_above_usual` rule compares the price of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsualPrice {
    /// The operation's price in the catalog.
    Catalog,
    /// The median of this number of the operation's last paid prices: [`MIN_MEDIAN_PRICES`] to [`MAX_RECENT_PRICES`].
    /// With fewer prices, the rule has no effect.
    Median(u8),
}

impl UsualPrice {
    /// The name of [`UsualPrice::Catalog`] in the API and in storage.
    pub const CATALOG: &str = "catalog";
    /// The name of [`UsualPrice::Median`] in the API and in storage.
    pub const MEDIAN: &str = "median";

    /// Returns the name in the API and in storage.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Catalog => Self::CATALOG,
            Self::Median(_) => Self::MEDIAN,
        }
    }

    /// Returns the number of prices in a median; `None` for the catalog's price.
    pub const fn price_count(self) -> Option<u8> {
        match self {
            Self::Catalog => None,
            Self::Median(prices) => Some(prices),
        }
    }

    /// Parses the usual price from a name and, for a median, the number of prices.
    pub fn from_name(name: &str, prices: Option<u8>) -> Option<Self> {
        match (name, prices) {
            (Self::CATALOG, None) => Some(Self::Catalog),
            (Self::MEDIAN, Some(prices)) => Some(Self::Median(prices)),
            _ => None,
        }
    }
}

impl Fields for UsualPrice {
    fn write_to(&self, object: &mut Object) {
        write_field(object, "over", &self.name().to_owned());
        write_field(object, "of", &self.price_count());
    }
    fn read_from(object: &Object) -> Option<Self> {
        Self::from_name(object.get("over")?.as_str()?, read_field(object, "of")?)
    }
}

/// The minimum number of prices in a median.
pub const MIN_MEDIAN_PRICES: u32 = 3;

/// The maximum percentage above the usual price.
pub const MAX_PERCENT: u32 = 10_000;

impl PriceAboveUsual {
    /// Returns whether the usual price is a median of earlier prices.
    pub(in crate::policy) const fn uses_median(&self) -> bool {
        matches!(self.over, UsualPrice::Median(_))
    }
}

impl RuleKind {
    /// Returns whether the rule compares prices with the median of earlier prices.
    pub(in crate::policy) fn uses_median_price(&self) -> bool {
        self.as_kind().is_some_and(PriceAboveUsual::uses_median)
    }
}

impl RuleParameters for PriceAboveUsual {
    fn is_as_strict_as(&self, before: &Self) -> bool {
        self.covers_services(before)
            && self.over == before.over
            && self.percent <= before.percent
            && self.action.is_as_strict_as(before.action)
    }

    fn scope(&self) -> RuleScope<'_> {
        RuleScope::for_services(self.services.as_deref())
    }

    fn needs_recent_payments(&self) -> bool {
        self.uses_median()
    }

    fn parameter_errors(&self, _: &Catalog) -> Vec<ValidationError> {
        let max = u32::try_from(MAX_RECENT_PRICES).unwrap_or(u32::MAX);
        let count = self.over.price_count();
        let count = count.and_then(|count| range_error("/of", count.into(), MIN_MEDIAN_PRICES, max));
        let percent = range_error("/percent", self.percent, 0, MAX_PERCENT);
        percent.into_iter().chain(count).collect()
    }

    fn exceeded_threshold(&self, _: &Rule, inputs: &EvaluationInputs<'_>) -> Option<(AskingKind, Amount)> {
        let max = max_price_above_usual(usual_price(inputs, inputs.operation?, self.over)?, self.percent);
        let is_exceeded = self.action == LimitAction::Ask && inputs.intent.offer.amount() > max;
        is_exceeded.then_some((AskingKind::PriceAboveUsual, max))
    }

    fn add_boundaries(&self, boundaries: &mut Boundaries) {
        boundaries.compares_prices |= self.uses_median();
        boundaries.percents.insert(self.percent);
    }
}

/// Checks that the price is not too far above the usual price. The check's limit is the maximum price that every rule
/// accepts.
pub(in crate::policy) fn check_price(failure: &mut FirstFailure, inputs: &EvaluationInputs<'_>) -> Option<Check> {
    let mut rules = limits::applicable_rules_of_kind::<PriceAboveUsual>(inputs).peekable();
    rules.peek()?;
    let Some(operation) = inputs.operation else {
        return Some(Check::unknown(CheckName::Price));
    };
    let amount = inputs.intent.offer.amount();
    let maximums = rules.filter_map(|(id, rule)| {
        let max = max_price_above_usual(usual_price(inputs, operation, rule.over)?, rule.percent);
        Some((id, max, rule.action))
    });
    // Blocking rules come before rules that require an approval.
    let tightest = maximums.min_by_key(|(_, max, action)| (amount <= *max, *action == LimitAction::Ask, *max));
    let Some((rule, max, action)) = tightest else {
        return Some(Check::passed(CheckName::Price));
    };
    let check = if amount <= max {
        Check::passed(CheckName::Price)
    } else {
        failure.record_exceeded_limit(
            CheckName::Price,
            action,
            inputs,
            limits::limits_requiring_approval(inputs),
            || Block::PriceAboveUsual { rule, most: max },
        )
    };
    Some(Check {
        limit: Some(max),
        ..check
    })
}

fn usual_price(inputs: &EvaluationInputs<'_>, operation: &Operation, basis: UsualPrice) -> Option<Amount> {
    match basis {
        UsualPrice::Catalog => Some(operation.expected_price(inputs.at)),
        UsualPrice::Median(count) => inputs
            .recent
            .usual_price(OperationDigest::from_slug(&operation.slug), count),
    }
}

/// Returns the maximum price that exceeds the usual price by at most `percent` percent, rounded down.
pub(in crate::policy) fn max_price_above_usual(usual_price: Amount, percent: u32) -> Amount {
    let hundredths = u128::from(percent).saturating_add(100);
    let max = u128::from(usual_price.units()).saturating_mul(hundredths) / 100;
    let max = u64::try_from(max).ok().and_then(Amount::from_units);
    max.unwrap_or(Amount::MAX)
}

/// Returns the lowest usual price from which [`max_price_above_usual`] computes `max`; `None` if there is none.
pub(in crate::policy) fn lowest_usual_price_for_max_price(max: Amount, percent: u32) -> Option<Amount> {
    let hundredths = u128::from(percent).saturating_add(100);
    let usual = u128::from(max.units()).saturating_mul(100).div_ceil(hundredths);
    let usual = u64::try_from(usual).ok().and_then(Amount::from_units)?;
    (max_price_above_usual(usual, percent) == max).then_some(usual)
}
