//! Amounts of USDC.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// An amount of USDC in micro-USDC (spec §2). `Display` and `FromStr` use decimal USD, for example `0.05`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Usdc(u64);

/// The error for a text that is not an amount in decimal USD with at most six decimal places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an amount is decimal USD with at most six places, as 0.05")]
pub struct UsdcError;

impl Usdc {
    const UNITS: u64 = 1_000_000;

    /// Creates an amount from micro-USDC.
    pub const fn from_units(units: u64) -> Self {
        Self(units)
    }

    /// Returns whether this amount exceeds `listed_price` by more than `percent` percent.
    pub(crate) fn is_over(self, listed_price: Self, percent: u32) -> bool {
        let max = u128::from(listed_price.0).saturating_mul(u128::from(percent).saturating_add(100));
        u128::from(self.0).saturating_mul(100) > max
    }

    /// Returns the amount in micro-USDC.
    pub const fn units(self) -> u64 {
        self.0
    }
}

impl FromStr for Usdc {
    type Err = UsdcError;

    fn from_str(text: &str) -> Result<Self, UsdcError> {
        let (whole, places) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(places) || places.len() > 6 {
            return Err(UsdcError);
        }
        let whole: u64 = whole.parse().map_err(|_| UsdcError)?;
        let places: u64 = format!("{places:0<6}").parse().map_err(|_| UsdcError)?;
        whole
            .checked_mul(Self::UNITS)
            .and_then(|units| units.checked_add(places))
            .map(Self)
            .ok_or(UsdcError)
    }
}

/// Writes decimal USD with at least two decimal places, for example `0.05`, `1.00` or `0.000001`.
impl fmt::Display for Usdc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.0.checked_div(Self::UNITS).unwrap_or_default();
        let places = format!("{:06}", self.0.checked_rem(Self::UNITS).unwrap_or_default());
        let shown = places.trim_end_matches('0');
        write!(f, "{whole}.{shown:0<2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The comparison does not overflow for the largest amounts.
    #[test]
    fn price_comparison_with_a_percentage_is_exact() {
        let is_over = |asked, listed, percent| Usdc(asked).is_over(Usdc(listed), percent);
        assert!(!is_over(400_000, 10_000, 3_900) && is_over(400_001, 10_000, 3_900));
        assert!(!is_over(10_000, 10_000, 0) && is_over(10_001, 10_000, 0) && is_over(1, 0, u32::MAX));
        assert!(!is_over(u64::MAX, u64::MAX, 0) && is_over(u64::MAX, u64::MAX / 2, 99));
    }

    #[test]
    fn amounts_are_parsed_and_formatted_as_decimal_usd() {
        for (text, units, shown) in [
            ("0.05", 50_000, "0.05"),
            ("1", 1_000_000, "1.00"),
            ("1.5", 1_500_000, "1.50"),
            ("0.000001", 1, "0.000001"),
            ("18446744073709.551615", u64::MAX, "18446744073709.551615"),
        ] {
            let amount: Usdc = text.parse().unwrap();
            assert_eq!((amount.units(), amount.to_string().as_str()), (units, shown), "{text}");
        }
        for text in [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "+1",
            "1e3",
            "0.0000001",
            "18446744073709.551616",
            "1 000",
            "0,5",
        ] {
            assert_eq!(text.parse::<Usdc>(), Err(UsdcError), "{text:?}");
        }
    }
}
