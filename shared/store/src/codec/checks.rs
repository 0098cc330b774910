//! Encodes a decision's checks as one short binary attribute, so that a settlement stays below 1 KB. Codes must never
//! change, because stored rows contain them.

use crate::codec::attribute::Attribute;
use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use purser_domain::{Amount, Check, CheckName, CheckOutcome};

const LIMIT: u8 = 0b0001;
const USED: u8 = 0b0010;
const REMAINING: u8 = 0b0100;
/// The lowest bit of the outcome in a check's second byte. The three lower bits are flags.
const OUTCOME: u8 = 0b1000;

impl Attribute for Vec<Check> {
    fn write(&self) -> AttributeValue {
        let mut bytes = Vec::new();
        for check in self {
            let numbers = [(LIMIT, check.limit), (USED, check.used), (REMAINING, check.remaining)];
            let present = numbers.iter().filter(|(_, number)| number.is_some());
            let flags = present.fold(0, |flags, (flag, _)| flags | flag);
            bytes.push(check_name_code(check.name));
            bytes.push(flags | check_outcome_code(check.outcome).saturating_mul(OUTCOME));
            for number in numbers.into_iter().filter_map(|(_, number)| number) {
                write_number(&mut bytes, number.units());
            }
        }
        AttributeValue::B(Blob::new(bytes))
    }

    fn read(value: &AttributeValue) -> Option<Self> {
        let mut bytes = value.as_b().ok()?.as_ref();
        let mut checks = Self::new();
        while !bytes.is_empty() {
            checks.push(read_check(&mut bytes)?);
        }
        Some(checks)
    }
}

fn read_check(bytes: &mut &[u8]) -> Option<Check> {
    let code = take_byte(bytes)?;
    let name = CheckName::ALL
        .iter()
        .copied()
        .find(|name| check_name_code(*name) == code)?;
    let byte = take_byte(bytes)?;
    let code = byte / OUTCOME;
    let outcome = CheckOutcome::ALL
        .iter()
        .copied()
        .find(|outcome| check_outcome_code(*outcome) == code)?;
    let mut number = |flag: u8| {
        if byte & flag == 0 {
            return Some(None);
        }
        read_number(bytes).and_then(Amount::from_units).map(Some)
    };
    Some(Check {
        name,
        outcome,
        limit: number(LIMIT)?,
        used: number(USED)?,
        remaining: number(REMAINING)?,
    })
}

const fn check_name_code(name: CheckName) -> u8 {
    match name {
        CheckName::ServiceEnabled => 1,
        CheckName::AgentActive => 2,
        CheckName::OperationEnabled => 3,
        CheckName::Domain => 4,
        CheckName::MaxPayment => 5,
        CheckName::PerCall => 6,
        CheckName::Category => 7,
        CheckName::Vendor => 8,
        CheckName::Budget => 9,
        CheckName::Day => 10,
        CheckName::Approval => 11,
        CheckName::Balance => 12,
        CheckName::Schedule => 13,
        CheckName::Count => 14,
        CheckName::Interval => 15,
        CheckName::Duplicate => 16,
        CheckName::Price => 17,
        CheckName::Payee => 18,
    }
}

const fn check_outcome_code(outcome: CheckOutcome) -> u8 {
    match outcome {
        CheckOutcome::Passed => 0,
        CheckOutcome::Failed => 1,
        CheckOutcome::Waived => 2,
        CheckOutcome::Unknown => 3,
    }
}

/// Writes a number as LEB128: seven bits per byte, lowest first, with the high bit set if more bytes follow.
pub(crate) fn write_number(bytes: &mut Vec<u8>, mut number: u64) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            return bytes.push(low);
        }
        bytes.push(low | 0x80);
    }
}

pub(crate) fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    // An amount is below 2^53, which fits into eight groups of seven bits.
    for group in 0..8_u32 {
        let byte = take_byte(bytes)?;
        let bits = u64::from(byte & 0x7f).checked_shl(group.checked_mul(7)?)?;
        number |= bits;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take_byte(bytes: &mut &[u8]) -> Option<u8> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*first)
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
        fn policy_checks_survive_encoding(checks in prop::collection::vec(
            (prop::sample::select(CheckName::ALL), prop::sample::select(CheckOutcome::ALL), amount(), amount(), amount())
                .prop_map(|(name, outcome, limit, used, remaining)| Check { name, outcome, limit, used, remaining }),
            0..14,
        )) {
            prop_assert_eq!(Vec::<Check>::read(&checks.write()), Some(checks));
        }

        #[test]
        fn decoding_policy_checks_from_arbitrary_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            Vec::<Check>::read(&AttributeValue::B(Blob::new(bytes)));
        }
    }

    #[test]
    fn check_names_and_outcomes_have_unique_codes() {
        let names: std::collections::BTreeSet<u8> = CheckName::ALL.iter().map(|name| check_name_code(*name)).collect();
        assert_eq!(names.len(), CheckName::ALL.len());
        let outcomes: std::collections::BTreeSet<u8> = CheckOutcome::ALL
            .iter()
            .map(|outcome| check_outcome_code(*outcome))
            .collect();
        assert_eq!(outcomes.len(), CheckOutcome::ALL.len());
    }

    #[test]
    fn malformed_policy_checks_are_not_decoded() {
        for bytes in [
            &[1][..],
            &[1, 1],
            &[1, 1, 0x80],
            &[99, 0],
            &[1, 0xff],
            &[1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        ] {
            assert_eq!(
                Vec::<Check>::read(&AttributeValue::B(Blob::new(bytes.to_vec()))),
                None,
                "{bytes:?}"
            );
        }
    }
}
