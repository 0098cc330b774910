//! The recent payments of an agent to a service ([`RecentPayments`]), as a map in the totals of the day window. Each
//! call, payee and operation is a separate attribute, so that concurrent payments don't overwrite each other's values.
//! Of two concurrent payments of the same call, the condition on the call's attribute rejects the second. Payees and
//! prices are stored only when a payment is confirmed, because otherwise an agent could make a payee or price known
//! without a payment.

use crate::{
    codec::attribute::{Attribute, Item},
    codec::backoff::Backoff,
    codec::checks::{read_number, write_number},
    codec::item::Row,
    codec::key::Key,
    codec::ledger::Ledger,
    transact::{Transaction, TransactionOutcome},
};
use aws_sdk_dynamodb::{
    primitives::Blob,
    types::{AttributeValue, builders::UpdateBuilder},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use purser_domain::{
    Amount, CallDigest, CallMark, CheckName, OperationDigest, PaidPrices, PayeePrefix, RecentKey, RecentPayments,
    RecentUpdate, Result, SettlementTerms, Timestamp, WindowScope,
};

/// The attribute with the map of recent payments, in the totals of a day window.
const RECENT: &str = "recent";

/// Returns the name of an attribute in the map [`RECENT`]: a letter for the kind, then the digest in Base64.
fn recent_field_name(key: RecentKey) -> String {
    match key {
        RecentKey::Call(CallDigest(bytes)) => format!("c{}", BASE64.encode(bytes)),
        RecentKey::Payee(PayeePrefix(bytes)) => format!("p{}", BASE64.encode(bytes)),
        RecentKey::Operation(OperationDigest(bytes)) => format!("o{}", BASE64.encode(bytes)),
    }
}

fn parse_recent_field_name(name: &str) -> Option<RecentKey> {
    let mut letters = name.chars();
    let kind = letters.next()?;
    let bytes = BASE64.decode(letters.as_str()).ok()?;
    match kind {
        'c' => bytes.try_into().ok().map(CallDigest).map(RecentKey::Call),
        'p' => bytes.try_into().ok().map(PayeePrefix).map(RecentKey::Payee),
        'o' => bytes.try_into().ok().map(OperationDigest).map(RecentKey::Operation),
        _ => None,
    }
}

/// The time of the last payment in microseconds, then the prices, oldest first, as LEB128 numbers.
impl Attribute for PaidPrices {
    fn write(&self) -> AttributeValue {
        let mut bytes = Vec::new();
        write_number(&mut bytes, self.at.micros().unsigned_abs());
        for price in &self.prices {
            write_number(&mut bytes, price.units());
        }
        AttributeValue::B(Blob::new(bytes))
    }

    fn read(value: &AttributeValue) -> Option<Self> {
        let mut bytes = value.as_b().ok()?.as_ref();
        let micros = i64::try_from(read_number(&mut bytes)?).ok()?;
        let at = Timestamp::from_micros(micros)?;
        let mut prices = Vec::new();
        while !bytes.is_empty() {
            prices.push(Amount::from_units(read_number(&mut bytes)?)?);
        }
        Some(Self { at, prices })
    }
}

pub(crate) fn write_recent_payments(recent: &RecentPayments) -> AttributeValue {
    let times = |key, at: &Timestamp| (recent_field_name(key), at.write());
    let calls = recent.calls.iter().map(|(call, at)| times(RecentKey::Call(*call), at));
    let payees = recent
        .payees
        .iter()
        .map(|(payee, at)| times(RecentKey::Payee(*payee), at));
    let prices = recent.prices.iter();
    let prices = prices.map(|(operation, paid)| (recent_field_name(RecentKey::Operation(*operation)), paid.write()));
    AttributeValue::M(calls.chain(payees).chain(prices).collect())
}

pub(crate) fn read_recent_payments(row: Row<'_>, totals: &Item) -> Result<RecentPayments> {
    let coverage = row.get_optional("rbf")?;
    let Some(map) = totals.get(RECENT) else {
        return Ok(RecentPayments {
            coverage,
            ..RecentPayments::default()
        });
    };
    let read = || {
        let mut recent = RecentPayments {
            is_stored: true,
            coverage,
            ..RecentPayments::default()
        };
        for (name, value) in map.as_m().ok()? {
            match parse_recent_field_name(name)? {
                RecentKey::Call(call) => recent.calls.push((call, Attribute::read(value)?)),
                RecentKey::Payee(payee) => recent.payees.push((payee, Attribute::read(value)?)),
                RecentKey::Operation(operation) => recent.prices.push((operation, Attribute::read(value)?)),
            }
        }
        Some(recent)
    };
    read().ok_or_else(|| row.corrupt_error(RECENT))
}

impl Ledger {
    /// Stores the payee of a confirmed payment if the decision checked the payee, and the price if the decision checked
    /// the price. Takes 2 or 4 write units.
    pub(crate) async fn store_recent_payee_and_price(&self, terms: &SettlementTerms) -> Result<()> {
        let Some(purchase) = terms.purchase() else {
            return Ok(());
        };
        let (agent, service) = (terms.agent, purchase.service);
        let operation = OperationDigest::from_slug(&purchase.operation);
        let payee = terms
            .was_checked(CheckName::Payee)
            .then(|| PayeePrefix::from_address(terms.pay_to));
        let price = terms.was_checked(CheckName::Price).then_some((operation, terms.amount));
        if payee.is_none() && price.is_none() {
            return Ok(());
        }
        let key = Key::window(WindowScope::Day { agent, service });
        let mut backoff = Backoff::new();
        while let Some(totals) = self.get_item(&key).await? {
            let recent = read_recent_payments(self.item_row(&totals), &totals)?;
            let paid = recent.update_for_payment(terms.authorized_at, None, payee, price);
            let update = self
                .update_item(&key)
                .expression_attribute_names("#total", "total")
                .expression_attribute_values(":delta", 0_u32.write())
                .expression_attribute_values(":one", 1_u32.write());
            // The condition on the update prevents that two concurrent confirmations overwrite each other's price.
            let known = recent.prices.iter().find(|(known, _)| *known == operation);
            let is_last =
                |known: &PaidPrices| known.at == terms.authorized_at && known.prices.last() == Some(&terms.amount);
            if known.is_some_and(|(_, known)| price.is_some() && is_last(known)) {
                // The price is stored already. An earlier attempt wrote the price, but the response to that attempt was
                // lost.
                return Ok(());
            }
            let (update, condition) = match known.filter(|_| price.is_some()) {
                Some((_, known)) => (
                    update.expression_attribute_values(":known", known.write()),
                    "#recent.#prices = :known",
                ),
                None if price.is_some() && !paid.is_first => (update, "attribute_not_exists(#recent.#prices)"),
                None => (update, "attribute_exists(pk)"),
            };
            let mut transaction = Transaction::new();
            transaction.add_update(
                (),
                add_recent_payment_to_update(update, &paid, &[], condition.to_owned()),
            )?;
            if let TransactionOutcome::Committed = transaction.send_until_outcome(&self.db, &mut backoff).await? {
                return Ok(());
            }
            backoff.wait_for_retry().await?;
        }
        Ok(())
    }
}

/// Adds the removal of a recent call to an update of a day window's totals. The update fails unless the call was last
/// authorized at `at`. `expression` contains the other clauses of the update, and `condition` the update's condition.
pub(crate) fn add_call_removal_to_update(
    update: UpdateBuilder,
    call: CallDigest,
    at: Timestamp,
    expression: &str,
    condition: &str,
) -> UpdateBuilder {
    update
        .update_expression(format!("{expression} REMOVE #recent.#call"))
        .condition_expression(format!("{condition} AND #recent.#call = :call"))
        .expression_attribute_names("#recent", RECENT)
        .expression_attribute_names("#call", recent_field_name(RecentKey::Call(call)))
        .expression_attribute_values(":call", at.write())
}

/// Adds a recent payment to an update of a day window's totals. `assignments` contains the other assignments of the
/// update, and `condition` the update's condition.
pub(crate) fn add_recent_payment_to_update(
    update: UpdateBuilder,
    recent_payments_update: &RecentUpdate,
    assignments: &[&str],
    condition: String,
) -> UpdateBuilder {
    let mut fields = Vec::new();
    let paid = recent_payments_update.at.write();
    if let Some(CallMark { call, .. }) = recent_payments_update.call {
        fields.push((":call", recent_field_name(RecentKey::Call(call)), paid.clone()));
    }
    if let Some(payee) = recent_payments_update.payee {
        fields.push((":payee", recent_field_name(RecentKey::Payee(payee)), paid));
    }
    if let Some((operation, prices)) = &recent_payments_update.prices {
        let paid = PaidPrices {
            at: recent_payments_update.at,
            prices: prices.clone(),
        };
        fields.push((
            ":prices",
            recent_field_name(RecentKey::Operation(*operation)),
            paid.write(),
        ));
    }
    let mut update = update.expression_attribute_names("#recent", RECENT);
    let mut assignments: Vec<String> = assignments.iter().map(|assignment| (*assignment).to_owned()).collect();
    let mut condition = condition;
    if recent_payments_update.is_first {
        let map = fields.into_iter().map(|(_, name, value)| (name, value));
        assignments.push("#recent = :recent".to_owned());
        condition.push_str(" AND attribute_not_exists(#recent)");
        update = update.expression_attribute_values(":recent", AttributeValue::M(map.collect()));
    } else {
        for (place, name, value) in fields {
            let path = place.replace(':', "#");
            assignments.push(format!("#recent.{path} = {place}"));
            update = update
                .expression_attribute_names(path, name)
                .expression_attribute_values(place, value);
        }
        if let Some(not_after) = recent_payments_update.call.and_then(|mark| mark.not_after) {
            condition.push_str(" AND (attribute_not_exists(#recent.#call) OR #recent.#call <= :not_after)");
            update = update.expression_attribute_values(":not_after", not_after.write());
        }
    }
    let mut removed = Vec::new();
    for (index, (key, at)) in recent_payments_update.forget.iter().enumerate() {
        let path = format!("#old{index}");
        removed.push(format!("#recent.{path}"));
        if let RecentKey::Call(_) | RecentKey::Payee(_) = key {
            let time = format!(":old{index}");
            condition = format!("{condition} AND (attribute_not_exists(#recent.{path}) OR #recent.{path} = {time})");
            update = update.expression_attribute_values(time, at.write());
        }
        update = update.expression_attribute_names(path, recent_field_name(*key));
    }
    let (set, removed) = (assignments.join(", "), removed.join(", "));
    let remove = if removed.is_empty() { "" } else { " REMOVE " };
    let expression = format!("SET {set}{remove}{removed} ADD #total :delta, ver :one");
    update.update_expression(expression).condition_expression(condition)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_payment_field_names_survive_encoding() {
        for key in [
            RecentKey::Call(CallDigest([0xff; 8])),
            RecentKey::Payee(PayeePrefix([0; 12])),
            RecentKey::Operation(OperationDigest([7; 8])),
        ] {
            assert_eq!(parse_recent_field_name(&recent_field_name(key)), Some(key));
        }
        for name in ["", "c", "x////////////", "c____", "pAAAAAAAAAAA", "ö"] {
            assert_eq!(parse_recent_field_name(name), None, "{name}");
        }
    }

    #[test]
    fn recent_prices_survive_encoding_and_malformed_prices_are_rejected() {
        let paid = PaidPrices {
            at: Timestamp::parse("2026-11-21T01:09:00.000001Z").unwrap(),
            prices: [0, 1, 300, Amount::MAX.units()]
                .map(|units| Amount::from_units(units).unwrap())
                .to_vec(),
        };
        assert_eq!(PaidPrices::read(&paid.write()), Some(paid));
        for bytes in [&[][..], &[0x80], &[1, 0x80]] {
            assert_eq!(
                PaidPrices::read(&AttributeValue::B(Blob::new(bytes.to_vec()))),
                None,
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn the_largest_recent_payments_map_takes_less_than_two_kilobytes() {
        let at = Timestamp::parse("2026-11-21T01:09:00.000001Z").unwrap();
        let price = Amount::from_units(99_999_999).unwrap();
        let paid = PaidPrices {
            at,
            prices: vec![price; purser_domain::MAX_RECENT_PRICES],
        };
        let name = |key| recent_field_name(key).len();
        // DynamoDB stores a number as one byte per two digits plus one byte. An attribute of a map takes one more byte.
        let time = 16_usize.div_ceil(2) + 2;
        let calls = purser_domain::MAX_RECENT_CALLS * (name(RecentKey::Call(CallDigest([0; 8]))) + time);
        let payees = purser_domain::MAX_RECENT_PAYEES * (name(RecentKey::Payee(PayeePrefix([0; 12]))) + time);
        let ring = paid.write().as_b().unwrap().as_ref().len() + 1;
        let rings = purser_domain::MAX_PRICED_OPERATIONS * (name(RecentKey::Operation(OperationDigest([0; 8]))) + ring);
        // The other attributes of the row take less than 300 bytes.
        assert!(calls + payees + rings < 2_048 - 300, "{calls} {payees} {rings}");
    }
}
