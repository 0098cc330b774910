//! A provider's 402 document (x402 v1 or v2), and the payment requirements that are chosen, checked and signed.
//!
//! Only the price, the payee and the timeout are used. The token's data is compared with the USDC contract of the
//! network ([`Network::token`]) and never signed. All other fields are ignored (`docs/x402.md` §6).

use crate::{Address, Amount, Fields, Network, ValidationError, parse_address};
use serde_json::Value;
use std::borrow::Cow;

/// The provider's version of the x402 protocol, which the payment must also have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum X402Version {
    /// Version 1: the 402 document is the response body, and the payment is sent in `X-PAYMENT`.
    V1,
    /// Version 2: the 402 document is in `PAYMENT-REQUIRED`, and the payment is sent in `PAYMENT-SIGNATURE`.
    V2,
}

impl X402Version {
    /// Both versions, the older version first.
    pub const ALL: [Self; 2] = [Self::V1, Self::V2];

    /// Returns the value of `x402Version`.
    pub const fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }

    /// Returns the version with this [`X402Version::number`].
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|version| u64::from(version.number()) == number)
    }

    const fn network_name(self, network: Network) -> &'static str {
        match self {
            Self::V1 => network.name(),
            Self::V2 => network.caip2(),
        }
    }

    /// Returns the x402 version of a network name. Only v2's CAIP-2 ids contain a colon.
    fn for_network_name(network: Option<&Value>) -> Self {
        let is_caip2 = network.and_then(Value::as_str).is_some_and(|name| name.contains(':'));
        if is_caip2 { Self::V2 } else { Self::V1 }
    }

    const fn price_field_name(self) -> &'static str {
        match self {
            Self::V1 => "maxAmountRequired",
            Self::V2 => "amount",
        }
    }
}

/// The only supported payment scheme: a single transfer of exactly the price.
pub(crate) const SCHEME: &str = "exact";

/// The maximum number of payment requirements, which limits the number of validation errors.
const MAX_ENTRIES: usize = 64;

/// The JSON Pointer of the 402 document in a request body.
const ROOT: &str = "/payment_requirement";

/// Payment requirements that an EIP-3009 transfer on the configured network can pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    version: X402Version,
    index: u32,
    amount: Amount,
    pay_to: Address,
    max_timeout_secs: u32,
}

/// Why no payment requirements of a 402 document can be paid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoOffer {
    /// The reason that comes first in the order of [`NoOfferReason`], among the reasons of all payment requirements.
    pub reason: NoOfferReason,
    /// The validation errors of all payment requirements.
    pub problems: Vec<ValidationError>,
}

/// Why payment requirements can't be paid. The first reason is the closest to being payable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoOfferReason {
    /// A field other than `scheme`, `network` and `asset` is invalid, or an element is not an object.
    NotPayable,
    /// The field `asset` is not the USDC contract of the deployment's network.
    OtherToken,
    /// The scheme is supported, but the field `network` is not the deployment's network.
    OtherNetwork,
    /// The scheme is not supported.
    OtherScheme,
    /// The object is not an x402 document.
    NotX402,
}

impl NoOfferReason {
    const fn with_errors(self, errors: Vec<ValidationError>) -> NoOffer {
        NoOffer {
            reason: self,
            problems: errors,
        }
    }
}

impl Offer {
    /// Chooses the cheapest payment requirements that can be paid on `network`. Of several with the same price, the
    /// first is chosen. The error contains the reason for each of the payment requirements.
    ///
    /// `requirement` is an object with the field `accepts`, or a single payment requirements object. A malformed
    /// element of `accepts` does not affect the other elements.
    pub fn choose_cheapest(requirement: &Value, network: Network) -> Result<Self, NoOffer> {
        let requirement = Requirement::parse(requirement)?;
        let mut cheapest: Option<Self> = None;
        let mut none = NoOfferReason::NotX402.with_errors(Vec::new());
        for offer in requirement.parse_offers(network) {
            match offer {
                Ok(offer) => {
                    if cheapest.is_none_or(|best| offer.amount < best.amount) {
                        cheapest = Some(offer);
                    }
                }
                Err(found) => {
                    none.reason = none.reason.min(found.reason);
                    none.problems.extend(found.problems);
                }
            }
        }
        cheapest.ok_or(none)
    }

    /// Returns all payment requirements that can be paid on `network`.
    pub fn list_payable(requirement: &Value, network: Network) -> Vec<Self> {
        let read = Requirement::parse(requirement).ok();
        let offers = read.iter().flat_map(|requirement| requirement.parse_offers(network));
        offers.filter_map(Result::ok).collect()
    }

    /// Creates payment requirements from a recorded price and payee, for a replay. No payment can be signed for these
    /// payment requirements.
    pub(crate) const fn from_recorded_price_and_payee(amount: Amount, pay_to: Address) -> Self {
        Self {
            version: X402Version::V2,
            index: 0,
            amount,
            pay_to,
            max_timeout_secs: 0,
        }
    }

    /// Returns the protocol version of the 402 document.
    pub const fn version(&self) -> X402Version {
        self.version
    }

    /// Returns the index in `accepts`; 0 for a single payment requirements object.
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Returns the price, which is never zero.
    pub const fn amount(&self) -> Amount {
        self.amount
    }

    /// Returns the wallet address to which the provider wants to be paid.
    pub const fn pay_to(&self) -> Address {
        self.pay_to
    }

    /// Returns the provider's maximum validity of a payment, in seconds. Zero only for recorded requirements.
    pub const fn max_timeout_secs(&self) -> u32 {
        self.max_timeout_secs
    }
}

/// A 402 document whose payment requirements are not parsed yet.
struct Requirement<'a> {
    version: X402Version,
    entries: &'a [Value],
    /// Whether the document is a payment requirements object without `accepts`.
    bare: bool,
}

impl<'a> Requirement<'a> {
    fn parse(value: &'a Value) -> Result<Self, NoOffer> {
        let mut fields = Fields::new(value, ROOT).map_err(|error| NoOfferReason::NotX402.with_errors(vec![error]))?;
        let stated = fields.read_field("x402Version", |value| {
            whole_number_digits(value)
                .and_then(|digits| X402Version::from_number(digits.parse().ok()?))
                .ok_or("must be the number 1 or 2")
        });
        if fields.non_null_field("accepts").is_none() {
            return Self::parse_single_requirement(value, fields, stated);
        }
        if fields.non_null_field("x402Version").is_none() {
            fields.add_error("x402Version", "is required");
        }
        let entries = fields.read_field("accepts", |value| match value.as_array() {
            Some(entries) if (1..=MAX_ENTRIES).contains(&entries.len()) => Ok(entries.as_slice()),
            _ => Err(format!("must be an array of 1 to {MAX_ENTRIES} entries")),
        });
        let read = || {
            Some(Self {
                version: stated?,
                entries: entries?,
                bare: false,
            })
        };
        fields
            .parse_if_valid(read)
            .map_err(|errors| NoOfferReason::NotX402.with_errors(errors))
    }

    /// Reads a single payment requirements object. A provider may send the price fields of both x402 versions. The two
    /// prices must then be equal, and the field `x402Version` decides the version. If the field is absent, the
    /// network's name decides.
    fn parse_single_requirement(
        value: &'a Value,
        mut fields: Fields<'a>,
        x402_version: Option<X402Version>,
    ) -> Result<Self, NoOffer> {
        let [v1, v2] = X402Version::ALL.map(|version| fields.non_null_field(version.price_field_name()));
        let is_ambiguous = v1.is_some() && v2.is_some() && v1 != v2;
        let version = match (v1, v2) {
            (Some(_), None) => X402Version::V1,
            (None, Some(_)) => X402Version::V2,
            (Some(_), Some(_)) => {
                if is_ambiguous {
                    fields.add_error("amount", "must be equal to `maxAmountRequired`");
                }
                x402_version.unwrap_or_else(|| X402Version::for_network_name(fields.non_null_field("network")))
            }
            (None, None) => {
                fields.add_error(
                    "accepts",
                    "is required, unless this is one entry with `amount` or `maxAmountRequired`",
                );
                X402Version::V2
            }
        };
        if x402_version.is_some_and(|stated| stated != version) {
            fields.add_error(
                "x402Version",
                format!(
                    "must be {} for an entry with `{}`",
                    version.number(),
                    version.price_field_name()
                ),
            );
        }
        fields.finish().map_err(|errors| match *errors {
            // The only error is that the two price fields differ.
            [_] if is_ambiguous => NoOfferReason::NotPayable.with_errors(errors),
            _ => NoOfferReason::NotX402.with_errors(errors),
        })?;
        Ok(Self {
            version,
            entries: std::slice::from_ref(value),
            bare: true,
        })
    }

    /// Returns each element of the payment requirements: the parsed element, or the reason why the element can't be
    /// paid.
    fn parse_offers(&self, network: Network) -> impl Iterator<Item = Result<Offer, NoOffer>> {
        (0_u32..).zip(self.entries).map(move |(index, entry)| {
            let path = if self.bare {
                Cow::Borrowed(ROOT)
            } else {
                Cow::Owned(format!("{ROOT}/accepts/{index}"))
            };
            Offer::parse_payment_requirements(entry, &path, (self.version, index), network)
        })
    }
}

impl Offer {
    fn parse_payment_requirements(
        entry: &Value,
        path: &str,
        (version, index): (X402Version, u32),
        network: Network,
    ) -> Result<Self, NoOffer> {
        let fields_of = || Fields::new(entry, path).map_err(|error| NoOfferReason::NotPayable.with_errors(vec![error]));

        // Other fields are not checked yet, because their meaning depends on the scheme and the network.
        let mut kind = fields_of()?;
        let same_scheme = require_exact_text(&mut kind, "scheme", SCHEME);
        require_exact_text(&mut kind, "network", version.network_name(network));
        let other = if same_scheme {
            NoOfferReason::OtherNetwork
        } else {
            NoOfferReason::OtherScheme
        };
        kind.finish().map_err(|errors| other.with_errors(errors))?;

        let mut fields = fields_of()?;
        let token = network.token();
        let price = version.price_field_name();
        for name in [price, "asset", "payTo", "maxTimeoutSeconds"] {
            if fields.non_null_field(name).is_none() {
                fields.add_error(name, "is required");
            }
        }
        let amount = fields.read_field(price, |value| {
            let amount = value.as_str().and_then(Amount::parse_atomic_units);
            amount.filter(|amount| !amount.is_zero()).ok_or_else(|| {
                format!(
                    "must be a string of decimal digits, from 1 to {}, without leading zeros",
                    Amount::MAX
                )
            })
        });
        let same_token = fields.read_field("asset", |value| match parse_address_field(value)? {
            address if address == token.address => Ok(()),
            _ => Err(format!("must be {}, the USDC of `{}`", token.address, network.name())),
        });
        let pay_to = fields.read_field("payTo", |value| match parse_address_field(value)? {
            // The payee must not be the token contract, because money that is sent there is lost.
            address if address == token.address => Err("must not be the token's own address".to_owned()),
            address => Ok(address),
        });
        let max_timeout_secs = fields.read_field("maxTimeoutSeconds", |value| {
            let digits = whole_number_digits(value).filter(|digits| digits != "0");
            // A timeout of more than `u32::MAX` seconds becomes `u32::MAX` seconds. This does not lengthen any
            // authorization, because the Lambda function `payments` signs authorizations for a much shorter time.
            digits
                .map(|digits| digits.parse().unwrap_or(u32::MAX))
                .ok_or("must be a whole number above 0")
        });
        check_extra_field(&mut fields, version, network);
        let read = || {
            Some(Self {
                version,
                index,
                amount: amount?,
                pay_to: pay_to?,
                max_timeout_secs: max_timeout_secs?,
            })
        };
        fields.parse_if_valid(read).map_err(|errors| match same_token {
            Some(()) => NoOfferReason::NotPayable.with_errors(errors),
            None => NoOfferReason::OtherToken.with_errors(errors),
        })
    }
}

/// Checks `extra`: the token's EIP-712 domain, and two reserved fields (x402 v2 specification, §6.1).
///
/// x402 version 2 requires the token's EIP-712 domain, because the reference facilitator requires the domain. The two
/// reserved fields must have known values, because an unknown `assetTransferMethod` could mean another kind of payment.
fn check_extra_field(entry: &mut Fields<'_>, version: X402Version, network: Network) {
    // PHP writes an empty object as an empty array.
    let is_empty_array = |value: &&Value| value.as_array().is_some_and(Vec::is_empty);
    let Some(extra) = entry.non_null_field("extra").filter(|extra| !is_empty_array(extra)) else {
        if version == X402Version::V2 {
            entry.add_error("extra", "is required, with the token's EIP-712 `name` and `version`");
        }
        return;
    };
    let mut fields = match Fields::new(extra, entry.field_path("extra")) {
        Ok(fields) => fields,
        Err(error) => return entry.extend([error]),
    };
    let token = network.token();
    for (name, pinned) in [("name", token.name), ("version", token.version)] {
        if version == X402Version::V2 || fields.non_null_field(name).is_some() {
            require_exact_text(&mut fields, name, pinned);
        }
    }
    for (name, only) in [("assetTransferMethod", "eip3009"), ("paymentFlow", "authorization")] {
        if fields.non_null_field(name).is_some() {
            require_exact_text(&mut fields, name, only);
        }
    }
    entry.extend(fields.finish().err().unwrap_or_default());
}

fn parse_address_field(value: &Value) -> Result<Address, String> {
    let text = value.as_str().ok_or("must be a string")?;
    parse_address(text).map_err(|error| error.to_string())
}

/// Returns a whole number as digits. `60.0` is a whole number, as in the reference library.
fn whole_number_digits(value: &Value) -> Option<String> {
    // An `f64` without a fraction is written without a decimal point.
    let digits = match value.as_u64() {
        Some(number) => number.to_string(),
        None => value.as_f64()?.to_string(),
    };
    digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(digits)
}

/// Adds a validation error unless the field is exactly this text.
fn require_exact_text(fields: &mut Fields<'_>, name: &str, text: &str) -> bool {
    let is_text = fields.non_null_field(name).and_then(Value::as_str) == Some(text);
    if !is_text {
        fields.add_error(name, format!("must be `{text}`"));
    }
    is_text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const NETWORK: Network = Network::BaseSepolia;
    const PAYEE: &str = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC";
    const USDC: &str = "0x036CbD53842c5426634e7929541eC2318f3dCF7e";

    fn v1_entry() -> Value {
        json!({
            "scheme": "exact", "network": "base-sepolia", "maxAmountRequired": "10000",
            "resource": "http://127.0.0.1:18747/weather", "description": "Weather", "mimeType": "application/json",
            "payTo": PAYEE, "maxTimeoutSeconds": 60, "asset": USDC,
            "outputSchema": {"input": {"type": "http", "method": "GET", "discoverable": true}},
            "extra": {"name": "USDC", "version": "2"}
        })
    }

    fn v2_entry() -> Value {
        json!({
            "scheme": "exact", "network": "eip155:84532", "amount": "10000", "asset": USDC, "payTo": PAYEE,
            "maxTimeoutSeconds": 60, "extra": {"name": "USDC", "version": "2"}
        })
    }

    fn v2(accepts: &[Value]) -> Value {
        json!({"x402Version": 2, "error": "Payment required", "resource": {"url": "http://x/weather"}, "accepts": accepts})
    }

    /// Returns the payment requirements with the field at `pointer` set, or removed if `value` is `None`.
    fn with(mut entry: Value, pointer: &str, value: Option<Value>) -> Value {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let object = entry.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        match value {
            Some(value) => object.insert(name.to_owned(), value),
            None => object.remove(name),
        };
        entry
    }

    /// Returns the JSON Pointers of the validation errors. The list is empty if the 402 document can be paid.
    fn wrong(requirement: &Value) -> Vec<String> {
        let problems = Offer::choose_cheapest(requirement, NETWORK)
            .err()
            .map(|none| none.problems);
        problems
            .unwrap_or_default()
            .into_iter()
            .map(|problem| problem.path.strip_prefix(ROOT).unwrap().to_owned())
            .collect()
    }

    #[test]
    fn every_format_of_payment_requirements_is_parsed() {
        let v1 = json!({"x402Version": 1, "error": "X-PAYMENT header is required", "accepts": [v1_entry()]});
        let cases = [
            (v1, X402Version::V1),
            (v2(&[v2_entry()]), X402Version::V2),
            (v1_entry(), X402Version::V1),
            (v2_entry(), X402Version::V2),
            (with(v1_entry(), "/amount", Some(json!("10000"))), X402Version::V1),
            (
                with(v2_entry(), "/maxAmountRequired", Some(json!("10000"))),
                X402Version::V2,
            ),
        ];
        for (requirement, version) in cases {
            let offer = Offer::choose_cheapest(&requirement, NETWORK).unwrap();
            assert_eq!((offer.version(), offer.index()), (version, 0), "{requirement}");
            assert_eq!((offer.amount().units(), offer.max_timeout_secs()), (10_000, 60));
            assert_eq!(offer.pay_to(), PAYEE.parse::<Address>().unwrap());
        }
    }

    #[test]
    fn the_first_of_the_cheapest_payable_requirements_is_chosen() {
        let priced = |units: &str| with(v2_entry(), "/amount", Some(json!(units)));
        let elsewhere = with(priced("1"), "/network", Some(json!("eip155:8453")));
        let malformed = with(priced("2"), "/payTo", Some(json!("merchant")));
        let requirement = v2(&[elsewhere, priced("30"), json!(7), priced("20"), malformed, priced("20")]);
        let offer = Offer::choose_cheapest(&requirement, NETWORK).unwrap();
        assert_eq!((offer.index(), offer.amount().units()), (3, 20));
        let each = Offer::list_payable(&requirement, NETWORK);
        let each: Vec<_> = each
            .iter()
            .map(|offer| (offer.index(), offer.amount().units()))
            .collect();
        assert_eq!(each, [(1, 30), (3, 20), (5, 20)]);
        assert_eq!(Offer::list_payable(&json!({}), NETWORK), []);
    }

    #[test]
    fn unpayable_requirements_each_have_a_reason() {
        let other_asset = with(v2_entry(), "/asset", Some(json!(PAYEE)));
        let other_scheme = json!({"scheme": "upto", "network": "eip155:84532"});
        let broken = with(with(v2_entry(), "/amount", Some(json!(10_000))), "/payTo", None);
        let problems = Offer::choose_cheapest(&v2(&[other_asset, other_scheme, json!("x"), broken]), NETWORK)
            .unwrap_err()
            .problems;
        let found: Vec<(&str, &str)> = problems.iter().map(|p| (p.path.as_str(), p.message.as_str())).collect();
        assert_eq!(
            found,
            [
                (
                    "/payment_requirement/accepts/0/asset",
                    "must be 0x036CbD53842c5426634e7929541eC2318f3dCF7e, the USDC of `base-sepolia`"
                ),
                ("/payment_requirement/accepts/1/scheme", "must be `exact`"),
                ("/payment_requirement/accepts/2", "must be an object"),
                (
                    "/payment_requirement/accepts/3/amount",
                    "must be a string of decimal digits, from 1 to 9007199254740991, without leading zeros"
                ),
                ("/payment_requirement/accepts/3/payTo", "is required"),
            ]
        );
    }

    #[test]
    fn each_payment_requirement_is_parsed_strictly() {
        let lower = json!(USDC.to_lowercase());
        let cases = [
            ("/maxTimeoutSeconds", Some(json!(60.0)), true),
            ("/maxTimeoutSeconds", Some(json!(u32::MAX)), true),
            ("/maxTimeoutSeconds", Some(json!(4_294_967_296_u64)), true),
            ("/maxTimeoutSeconds", Some(json!(1e30)), true),
            ("/amount", Some(json!("9007199254740991")), true),
            ("/asset", Some(lower.clone()), true),
            ("/description", Some(json!({"anything": 1})), true),
            ("/extra/assetTransferMethod", Some(json!("eip3009")), true),
            ("/extra/paymentFlow", Some(json!("authorization")), true),
            ("/extra/anything", Some(json!(1)), true),
            ("/scheme", None, false),
            ("/scheme", Some(json!("Exact")), false),
            ("/scheme", Some(json!("upto")), false),
            ("/network", None, false),
            ("/network", Some(json!("base-sepolia")), false),
            ("/network", Some(json!("eip155:8453")), false),
            ("/network", Some(json!("eip155:084532")), false),
            ("/network", Some(json!(84_532)), false),
            ("/amount", Some(json!(10_000)), false),
            ("/amount", Some(json!("0")), false),
            ("/amount", Some(json!("10_000")), false),
            ("/amount", Some(json!("1e3")), false),
            ("/amount", Some(json!("010000")), false),
            ("/amount", Some(json!("9007199254740992")), false),
            ("/asset", None, false),
            ("/asset", Some(json!("USD")), false),
            ("/asset", Some(json!(USDC.replacen("0x", "0X", 1))), false),
            ("/asset", Some(json!(format!("{USDC}00"))), false),
            (
                "/asset",
                Some(json!("0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913")),
                false,
            ),
            ("/payTo", None, false),
            ("/payTo", Some(json!("merchant")), false),
            ("/payTo", Some(json!([PAYEE])), false),
            ("/payTo", Some(json!(format!("0x{}", "0".repeat(40)))), false),
            ("/payTo", Some(json!(PAYEE.replace("3C44C", "3c44C"))), false),
            ("/payTo", Some(lower), false),
            ("/maxTimeoutSeconds", None, false),
            ("/maxTimeoutSeconds", Some(json!(0)), false),
            ("/maxTimeoutSeconds", Some(json!(-1)), false),
            ("/maxTimeoutSeconds", Some(json!(0.5)), false),
            ("/maxTimeoutSeconds", Some(json!("60")), false),
            ("/maxTimeoutSeconds", Some(json!(-0.0)), false),
            ("/maxTimeoutSeconds", Some(json!("soon")), false),
            ("/extra", None, false),
            ("/extra", Some(Value::Null), false),
            ("/extra", Some(json!([])), false),
            ("/extra/name", None, false),
            ("/extra/name", Some(json!("USD Coin")), false),
            ("/extra/version", None, false),
            ("/extra/version", Some(json!(2)), false),
            ("/extra/assetTransferMethod", Some(json!("permit2")), false),
            ("/extra/assetTransferMethod", Some(json!("erc7710")), false),
            ("/extra/assetTransferMethod", Some(json!("EIP3009")), false),
            ("/extra/paymentFlow", Some(json!("upfront")), false),
            ("/extra/paymentFlow", Some(json!("escrow")), false),
        ];
        for (pointer, value, payable) in cases {
            let expected = if payable { vec![] } else { vec![pointer.to_owned()] };
            assert_eq!(
                wrong(&with(v2_entry(), pointer, value.clone())),
                expected,
                "{pointer} {value:?}"
            );
        }
    }

    #[test]
    fn x402_version_1_requirements_may_omit_but_not_contradict_the_extra_field() {
        let cases = [
            ("/extra", None, true),
            ("/extra", Some(json!({})), true),
            ("/extra", Some(json!([])), true),
            ("/extra", Some(Value::Null), true),
            ("/extra", Some(json!(["permit2"])), false),
            ("/extra/version", None, true),
            ("/extra/name", Some(json!("USD Coin")), false),
            ("/extra/assetTransferMethod", Some(json!("permit2")), false),
            ("/network", Some(json!("eip155:84532")), false),
            ("/network", Some(json!("base")), false),
        ];
        for (pointer, value, payable) in cases {
            let expected = if payable { vec![] } else { vec![pointer.to_owned()] };
            assert_eq!(
                wrong(&with(v1_entry(), pointer, value.clone())),
                expected,
                "{pointer} {value:?}"
            );
        }
    }

    #[test]
    fn the_402_document_is_parsed_strictly() {
        let both = with(v2_entry(), "/maxAmountRequired", Some(json!("1")));
        let cases = [
            (json!([]), vec![""]),
            (json!({}), vec!["/accepts"]),
            (json!({"x402Version": 2}), vec!["/accepts"]),
            (json!({"x402Version": 2, "accepts": []}), vec!["/accepts"]),
            (json!({"x402Version": 2, "accepts": {}}), vec!["/accepts"]),
            (
                json!({"x402Version": 2, "accepts": vec![v2_entry(); 65]}),
                vec!["/accepts"],
            ),
            (json!({"x402Version": 2, "accepts": vec![v2_entry(); 64]}), vec![]),
            (json!({"accepts": [v2_entry()]}), vec!["/x402Version"]),
            (
                json!({"x402Version": "2", "accepts": [v2_entry()]}),
                vec!["/x402Version"],
            ),
            (json!({"x402Version": 3, "accepts": [v2_entry()]}), vec!["/x402Version"]),
            (json!({"x402Version": 2.0, "accepts": [v2_entry()]}), vec![]),
            (
                json!({"x402Version": 3, "accepts": 1}),
                vec!["/accepts", "/x402Version"],
            ),
            (
                json!({"x402Version": 1, "accepts": [v2_entry()]}),
                vec!["/accepts/0/network"],
            ),
            (with(v2_entry(), "/x402Version", Some(json!(2))), vec![]),
            (with(v2_entry(), "/x402Version", Some(json!(1))), vec!["/x402Version"]),
            (both, vec!["/amount"]),
            (with(v2_entry(), "/amount", None), vec!["/accepts"]),
        ];
        for (requirement, expected) in cases {
            assert_eq!(wrong(&requirement), expected, "{requirement}");
        }
    }

    #[test]
    fn unused_requirement_fields_reject_no_payment() {
        let anything = [
            Value::Null,
            json!([]),
            json!({}),
            json!("text"),
            json!(7),
            json!(false),
            json!([{"url": 1}]),
            json!({"url": [], "tags": "x"}),
            json!({"payment-identifier": {"info": {"required": true, "id": "short"}}}),
        ];
        let outer = ["/resource", "/extensions", "/error", "/payer", "/unknown"];
        let inner = ["/description", "/mimeType", "/outputSchema", "/resource", "/unknown"];
        for value in &anything {
            for (requirement, entry) in [
                (v2(&[v2_entry()]), v2_entry()),
                (json!({"x402Version": 1, "accepts": [v1_entry()]}), v1_entry()),
            ] {
                for pointer in outer {
                    let changed = with(requirement.clone(), pointer, Some(value.clone()));
                    assert_eq!(wrong(&changed), [""; 0], "{changed}");
                }
                for pointer in inner {
                    let changed = with(entry.clone(), pointer, Some(value.clone()));
                    assert_eq!(wrong(&changed), [""; 0], "{changed}");
                }
            }
        }
    }

    #[test]
    fn each_network_accepts_only_its_own_token() {
        let mainnet = json!({
            "scheme": "exact", "network": "eip155:8453", "amount": "1", "payTo": PAYEE, "maxTimeoutSeconds": 60,
            "asset": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "extra": {"name": "USD Coin", "version": "2"}
        });
        assert!(Offer::choose_cheapest(&mainnet, Network::Base).is_ok());
        assert!(Offer::choose_cheapest(&mainnet, NETWORK).is_err());
        // A signature with the other chain's token name would be invalid.
        assert!(Offer::choose_cheapest(&with(mainnet, "/extra/name", Some(json!("USDC"))), Network::Base).is_err());
    }

    proptest! {
        #[test]
        fn the_chosen_requirements_are_the_cheapest(prices in prop::collection::vec(1_u64..6, 1..12)) {
            let entries: Vec<Value> =
                prices.iter().map(|units| with(v2_entry(), "/amount", Some(json!(units.to_string())))).collect();
            let offer = Offer::choose_cheapest(&v2(&entries), NETWORK).unwrap();
            let cheapest = prices.iter().min().unwrap();
            let first = prices.iter().position(|units| units == cheapest).unwrap();
            prop_assert_eq!((offer.amount().units(), offer.index()), (*cheapest, u32::try_from(first).unwrap()));
        }
    }
}
