//! Money as whole micro-USDC: 1,000,000 units are 1.00 USD (`docs/spec.md` §2). There are no floats, and arithmetic
//! returns `None` on overflow.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::fmt;

/// A non-negative amount in micro-USDC, at most [`Amount::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(u64);

impl Amount {
    /// Zero micro-USDC.
    pub const ZERO: Self = Self(0);
    /// One micro-USDC.
    pub const ONE: Self = Self(1);

    /// 2^53 - 1 units, about nine billion dollars: the largest integer that every JSON parser reads exactly.
    pub const MAX: Self = Self(9_007_199_254_740_991);

    /// Creates an amount of `units` micro-USDC. Returns `None` above [`Amount::MAX`].
    pub const fn from_units(units: u64) -> Option<Self> {
        if units <= Self::MAX.0 { Some(Self(units)) } else { None }
    }

    /// Parses an x402 amount: a decimal string of atomic units without sign, exponent or leading zero (`docs/x402.md`
    /// §6). `None` for any other text or above [`Amount::MAX`].
    pub fn parse_atomic_units(text: &str) -> Option<Self> {
        let canonical = text == "0" || (!text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit()));
        if !canonical {
            return None;
        }
        text.parse().ok().and_then(Self::from_units)
    }

    /// Returns the amount in micro-USDC.
    pub const fn units(self) -> u64 {
        self.0
    }

    /// Adds two amounts. Returns `None` above [`Amount::MAX`].
    pub fn plus(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).and_then(Self::from_units)
    }

    /// Subtracts `other`. Returns `None` below zero.
    pub fn minus(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }

    /// Subtracts `other`. Returns zero if `other` is greater.
    #[must_use]
    pub fn saturating_minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns whether the amount is exactly zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Parses an amount in USDC as users write it: digits with at most six decimals, without sign, separator, exponent
    /// or leading zero.
    pub fn from_usdc(text: &str) -> Option<Self> {
        let (whole, places) = text.split_once('.').unwrap_or((text, "0"));
        let digits = !places.is_empty() && places.bytes().all(|byte| byte.is_ascii_digit());
        if !digits || places.len() > 6 {
            return None;
        }
        let whole = Self::parse_atomic_units(whole)?.0.checked_mul(Self::UNITS_PER_USDC)?;
        let rest = format!("{places:0<6}").parse().ok()?;
        whole.checked_add(rest).and_then(Self::from_units)
    }

    const UNITS_PER_USDC: u64 = 1_000_000;

    /// Returns the amount in USDC for display, with at most six decimals: `0.01`, `12`.
    pub fn to_usdc(self) -> String {
        let (whole, rest) = (self.0 / Self::UNITS_PER_USDC, self.0 % Self::UNITS_PER_USDC);
        if rest == 0 {
            return whole.to_string();
        }
        let places = format!("{rest:06}");
        format!("{whole}.{}", places.trim_end_matches('0'))
    }

    /// Returns the amount in dollars for display, with two to six decimals: `$1,234.50`, `$0.000001`.
    pub fn to_dollars(self) -> String {
        let text = self.to_usdc();
        let (whole, places) = text.split_once('.').unwrap_or((&text, ""));
        format!("${}.{places:0<2}", group_digits(whole))
    }

    /// Returns the amount in micro-USDC for display: `1,234,500 units`.
    pub fn to_grouped_units(self) -> String {
        let word = if self.0 == 1 { "unit" } else { "units" };
        format!("{} {word}", group_digits(&self.to_string()))
    }
}

fn group_digits(digits: &str) -> String {
    let mut grouped = String::new();
    for (position, digit) in digits.chars().enumerate() {
        let remaining = digits.len().saturating_sub(position);
        if position > 0 && remaining.is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Writes the amount in micro-USDC as a plain number, for logs and messages.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_units(u64::deserialize(deserializer)?).ok_or_else(|| D::Error::custom("above the largest amount"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dollars_are_formatted_with_at_least_two_decimals() {
        let rows = [
            (0, "$0.00", "0 units"),
            (1, "$0.000001", "1 unit"),
            (10_000, "$0.01", "10,000 units"),
            (12_500_000, "$12.50", "12,500,000 units"),
            (1_234_567_890, "$1,234.56789", "1,234,567,890 units"),
            (999_000_000, "$999.00", "999,000,000 units"),
            (
                9_007_199_254_740_991,
                "$9,007,199,254.740991",
                "9,007,199,254,740,991 units",
            ),
        ];
        for (count, text, exact) in rows {
            assert_eq!(
                (
                    Amount::from_units(count).unwrap().to_dollars().as_str(),
                    Amount::from_units(count).unwrap().to_grouped_units().as_str()
                ),
                (text, exact)
            );
        }
    }

    #[test]
    fn only_canonical_decimal_strings_are_amounts() {
        let cases = [
            ("0", Some(0)),
            ("10000", Some(10_000)),
            ("9007199254740991", Some(9_007_199_254_740_991)),
            ("9007199254740992", None),
            ("", None),
            ("00010000", None),
            ("10_000", None),
            ("1e3", None),
            ("-1", None),
            ("+1", None),
            ("1.0", None),
            (" 1", None),
            ("\u{661}", None),
            ("99999999999999999999999999", None),
        ];
        for (text, units) in cases {
            assert_eq!(Amount::parse_atomic_units(text).map(Amount::units), units, "{text:?}");
        }
    }

    #[test]
    fn dollars_are_displayed_with_significant_digits_only() {
        let cases = [
            (0, "0"),
            (1, "0.000001"),
            (10_000, "0.01"),
            (12_000_000, "12"),
            (12_500_000, "12.5"),
        ];
        for (units, text) in cases {
            assert_eq!(Amount(units).to_usdc(), text);
        }
    }

    #[test]
    fn only_plain_dollar_amounts_are_parsed() {
        let cases = [
            ("0", Some(0)),
            ("0.5", Some(500_000)),
            ("0.50", Some(500_000)),
            ("12", Some(12_000_000)),
            ("0.000001", Some(1)),
            ("9007199254.740991", Some(9_007_199_254_740_991)),
            ("9007199254.740992", None),
            ("99999999999999999999", None),
            ("0.0000001", None),
            ("", None),
            (".", None),
            (".5", None),
            ("5.", None),
            ("05", None),
            ("1,5", None),
            ("1,000", None),
            ("1_000", None),
            ("1e3", None),
            ("-1", None),
            ("+1", None),
            ("1.-5", None),
            ("1.2.3", None),
            ("$1", None),
            (" 1", None),
            ("\u{661}", None),
            ("1.\u{661}", None),
        ];
        for (text, units) in cases {
            assert_eq!(Amount::from_usdc(text).map(Amount::units), units, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn formatted_dollar_amounts_can_be_parsed_again(units in 0..=Amount::MAX.0) {
            let amount = Amount(units);
            prop_assert_eq!(Amount::from_usdc(&amount.to_usdc()), Some(amount));
        }

        #[test]
        fn adding_and_subtracting_an_amount_restores_it(a in 0..=Amount::MAX.0, b in 0..=Amount::MAX.0) {
            let (a, b) = (Amount(a), Amount(b));
            match a.plus(b) {
                Some(sum) => prop_assert_eq!(sum.minus(b), Some(a)),
                None => prop_assert!(u128::from(a.0) + u128::from(b.0) > u128::from(Amount::MAX.0)),
            }
        }

        #[test]
        fn amount_subtraction_never_wraps(a in 0..=Amount::MAX.0, b in 0..=Amount::MAX.0) {
            prop_assert_eq!(Amount(a).minus(Amount(b)).is_none(), a < b);
        }
    }
}
