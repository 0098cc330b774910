//! Fuzzes a provider's payment requirements, of x402 versions 1 and 2.
//!
//! The input is the JSON of a response body, or the base64 text of the version 2 header. `Offer::choose_cheapest` must
//! return the cheapest member of the input that Purser can pay, unchanged.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use purser_api::AuthorizeRequest;
use purser_domain::{
    Amount, B256, Network, NoOffer, NoncePrefix, Offer, PaymentHeader, PaymentTerms, SettlementId, Timestamp,
    TransactionId, TransferAuthorization, ValidationError, X402Version, parse_address, parse_json_with_raw_field,
};
use serde_json::{Value, json, value::RawValue};
use uuid::Uuid;

/// Checks that `Offer::choose_cheapest` returns the cheapest payable member of the input.
pub fn payment_requirement(bytes: &[u8]) {
    let decoded = STANDARD.decode(bytes.trim_ascii());
    let text = decoded.as_deref().unwrap_or(bytes);
    let body = [b"{\"offer\":", text, b"}"].concat();
    let Ok((body, Some(raw))) = parse_json_with_raw_field(&body, "offer") else {
        return;
    };
    let requirement = body["offer"].clone();
    let offers = [Network::Base, Network::BaseSepolia].map(|network| {
        let chosen = Offer::choose_cheapest(&requirement, network);
        match &chosen {
            Ok(offer) => {
                an_offer_is_an_entry_that_can_be_paid(&requirement, network, offer);
                nothing_payable_is_cheaper(&requirement, network, offer);
                a_payment_says_what_was_offered(&requirement, raw, network, offer);
            }
            Err(none) => problems_are_told(&requirement, &none.problems),
        }
        a_request_is_as_good_as_its_offer(&requirement, network, &chosen);
        chosen
    });
    if let [Ok(one), Ok(other)] = offers {
        assert_ne!(one.index(), other.index(), "one entry can't be paid on two chains");
    }
}

fn is_bare(requirement: &Value) -> bool {
    requirement.get("accepts").is_none_or(Value::is_null)
}

fn entry_of<'a>(requirement: &'a Value, offer: &Offer) -> &'a Value {
    if is_bare(requirement) {
        assert_eq!(offer.index(), 0);
        requirement
    } else {
        assert_eq!(
            requirement["x402Version"].as_f64(),
            Some(f64::from(offer.version().number()))
        );
        &requirement["accepts"][usize::try_from(offer.index()).unwrap()]
    }
}

fn an_offer_is_an_entry_that_can_be_paid(requirement: &Value, network: Network, offer: &Offer) {
    let entry = entry_of(requirement, offer);
    let (price, other_price, name) = match offer.version() {
        X402Version::V1 => ("maxAmountRequired", "amount", network.name()),
        X402Version::V2 => ("amount", "maxAmountRequired", network.caip2()),
    };
    let other = entry.get(other_price).filter(|price| !price.is_null());
    assert!(!is_bare(requirement) || other.is_none_or(|other| *other == entry[price]));
    assert_eq!(entry["scheme"], "exact");
    assert_eq!(entry["network"], name);
    assert_eq!(entry[price].as_str(), Some(offer.amount().units().to_string().as_str()));
    assert!(offer.amount() > Amount::ZERO && offer.amount() <= Amount::MAX);
    let token = network.token();
    let same = |member: &str, address: String| entry[member].as_str().unwrap().eq_ignore_ascii_case(&address);
    assert!(same("asset", token.address.to_string()));
    assert!(same("payTo", offer.pay_to().to_string()));
    assert_ne!(offer.pay_to(), token.address);
    assert!(!offer.pay_to().is_zero());
    assert!(offer.max_timeout_secs() > 0);
    let stated = entry["maxTimeoutSeconds"].as_f64().unwrap();
    assert_eq!(stated.min(f64::from(u32::MAX)), f64::from(offer.max_timeout_secs()));
    let extra = &entry["extra"];
    for (name, pinned, required) in [
        ("name", token.name, offer.version() == X402Version::V2),
        ("version", token.version, offer.version() == X402Version::V2),
        ("assetTransferMethod", "eip3009", false),
        ("paymentFlow", "authorization", false),
    ] {
        assert!(
            extra[name] == pinned || (!required && extra[name].is_null()),
            "{name}: {extra}"
        );
    }
}

fn nothing_payable_is_cheaper(requirement: &Value, network: Network, offer: &Offer) {
    let each = Offer::list_payable(requirement, network);
    assert!(each.contains(offer));
    for other in each {
        assert!(other.amount() >= offer.amount(), "{other:?} is cheaper");
        assert!(
            other.amount() > offer.amount() || other.index() >= offer.index(),
            "{other:?} stands before it"
        );
    }
}

fn a_payment_says_what_was_offered(requirement: &Value, raw: &RawValue, network: Network, offer: &Offer) {
    let nonce = B256::repeat_byte(7);
    let terms = PaymentTerms {
        settlement: SettlementId::from_uuid(Uuid::from_u128(1)),
        transaction: TransactionId::from_uuid(Uuid::from_u128(2)),
        wallet: parse_address("0x70997970C51812dc3A010C7d01b50e0d17dc79C8").unwrap(),
        network,
        amount: offer.amount(),
        pay_to: offer.pay_to(),
        authorized_at: Timestamp::EPOCH,
        valid_before: Timestamp::from_secs(60).unwrap(),
        nonce_prefix: NoncePrefix::from_nonce(nonce),
    };
    let transfer = TransferAuthorization::new(&terms, nonce);
    let header = PaymentHeader::new(offer, raw, network, &transfer, [9; 65]);
    let sent = STANDARD.decode(&header.value).unwrap();
    assert_eq!(sent, header.payload.get().as_bytes());
    let sent = [b"{\"sent\":", sent.as_slice(), b"}"].concat();
    let (sent, _) = parse_json_with_raw_field(&sent, "sent").expect("the header is JSON");
    let sent = &sent["sent"];
    assert_eq!(sent["x402Version"], offer.version().number());
    let authorization = &sent["payload"]["authorization"];
    assert_eq!(authorization["value"], offer.amount().to_string());
    assert_eq!(authorization["to"], offer.pay_to().to_string());
    match offer.version() {
        X402Version::V1 => assert_eq!(sent["network"], network.name()),
        X402Version::V2 => assert_eq!(
            &sent["accepted"],
            entry_of(requirement, offer),
            "what is echoed is what was offered"
        ),
    }
    assert!(header.value.is_ascii(), "it goes into an HTTP header");
}

fn problems_are_told(requirement: &Value, problems: &[ValidationError]) {
    assert!(!problems.is_empty(), "{requirement}");
    for problem in problems {
        assert!(problem.path.starts_with("/payment_requirement"), "{problem:?}");
        assert!(!problem.message.is_empty(), "{problem:?}");
    }
}

/// Asserts that `AuthorizeRequest::parse` and `Offer::choose_cheapest` both reject the requirements, or return the same
/// offer.
fn a_request_is_as_good_as_its_offer(requirement: &Value, network: Network, chosen: &Result<Offer, NoOffer>) {
    let body = json!({
        "payment_requirement": requirement, "max_payment_units": 1, "idempotency_key": "x",
        "original_request": {"method": "GET", "url": "https://provider.example/"},
    });
    match (AuthorizeRequest::parse(&body, network), chosen) {
        (Ok(request), Ok(offer)) => assert_eq!(request.intent.offer, *offer),
        (Err(_), Err(_)) => {}
        (request, offer) => panic!("{requirement}: {request:?} for {offer:?}"),
    }
}
