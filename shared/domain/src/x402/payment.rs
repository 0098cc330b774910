//! An authorized payment: the transfer that is signed, and the header that carries it to the provider.
//!
//! Both are derived from the decision. The transfer names the pinned token's chain, our wallet, the payee, the exact
//! price, a deadline and our nonce; the header adds what the provider offered, and an id of the payment if it takes one. The same input gives the same
//! bytes, so a replayed call is answered as the first one was.
//!
//! Deliberately elsewhere: the signing itself and the nonce, which need keys (`shared/chain`).

use crate::{
    Address, Amount, B256, Network, NoncePrefix, Offer, SettlementId, Terms, Timestamp, TransactionId, X402Version,
    x402::{payment_identifier::identified, requirement::SCHEME},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{
    Map, Value, json,
    value::{RawValue, to_raw_value},
};
use std::fmt;

/// The terms of a settlement that are signed, or answered with the payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaymentTerms {
    /// The settlement.
    pub settlement: SettlementId,
    /// The decision that allowed it.
    pub transaction: TransactionId,
    /// The agent's wallet.
    pub wallet: Address,
    /// The chain.
    pub network: Network,
    /// How much.
    pub amount: Amount,
    /// To whom.
    pub pay_to: Address,
    /// When it was authorized.
    pub authorized_at: Timestamp,
    /// The chain refuses it from this time on.
    pub valid_before: Timestamp,
    /// The start of its nonce.
    pub nonce_prefix: NoncePrefix,
}

/// The part of a settlement in its idempotency record: with the same request, everything that the payment is made
/// from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundPayment {
    /// The settlement.
    pub settlement: SettlementId,
    /// The decision that allowed it.
    pub transaction: TransactionId,
    /// When it was authorized.
    pub authorized_at: Timestamp,
    /// The chain refuses it from this time on.
    pub valid_before: Timestamp,
    /// Which entry of the request's requirement was chosen.
    pub offer_index: u32,
    /// The start of its nonce.
    pub nonce_prefix: NoncePrefix,
}

impl PaymentTerms {
    /// The terms of a settlement.
    pub const fn of(terms: &Terms) -> Self {
        Self {
            settlement: terms.id,
            transaction: terms.transaction,
            wallet: terms.wallet,
            network: terms.network,
            amount: terms.amount,
            pay_to: terms.pay_to,
            authorized_at: terms.authorized_at,
            valid_before: terms.valid_before,
            nonce_prefix: terms.nonce_prefix,
        }
    }

    /// The terms of an earlier call, from its idempotency record and the same request's offer.
    pub const fn again(bound: &BoundPayment, offer: &Offer, wallet: Address, network: Network) -> Self {
        Self {
            settlement: bound.settlement,
            transaction: bound.transaction,
            wallet,
            network,
            amount: offer.amount(),
            pay_to: offer.pay_to(),
            authorized_at: bound.authorized_at,
            valid_before: bound.valid_before,
            nonce_prefix: bound.nonce_prefix,
        }
    }
}

/// An EIP-3009 `TransferWithAuthorization` of the network's token, not yet signed.
///
/// Its `validAfter` is always 0, as in the reference v2 client. The chain's clock may be behind ours, and a lower bound
/// would only make a good payment fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferAuthorization {
    /// The agent's wallet.
    pub from: Address,
    /// The payee.
    pub to: Address,
    /// How much.
    pub value: Amount,
    /// The token accepts the transfer in blocks whose time is below this, in whole seconds (EIP-3009).
    pub valid_before: Timestamp,
    /// Makes this transfer possible only once, and identifies it on chain.
    pub nonce: B256,
}

impl TransferAuthorization {
    /// The transfer that a settlement authorized, with its nonce.
    pub const fn of(terms: &PaymentTerms, nonce: B256) -> Self {
        Self {
            from: terms.wallet,
            to: terms.pay_to,
            value: terms.amount,
            valid_before: terms.valid_before,
            nonce,
        }
    }

    /// `validAfter` on the wire and in the signature; see the type's documentation.
    pub const VALID_AFTER: u64 = 0;

    /// The object of x402's `exact` scheme on EVM chains: numbers as decimal strings, addresses with their EIP-55
    /// checksum.
    fn to_json(self) -> Value {
        json!({
            "from": self.from.to_checksum(None),
            "to": self.to.to_checksum(None),
            "value": self.value.to_string(),
            "validAfter": Self::VALID_AFTER.to_string(),
            "validBefore": self.valid_before.secs().to_string(),
            "nonce": self.nonce.to_string(),
        })
    }

    /// The `payload` of the scheme: the transfer with its signature (r, s, v).
    pub(crate) fn signed(self, signature: [u8; 65]) -> Value {
        json!({
            "signature": alloy_primitives::hex::encode_prefixed(signature),
            "authorization": self.to_json(),
        })
    }
}

/// A signed payment as the provider takes it: one request header.
///
/// Its holder can submit the payment, so its debug output shows only the name.
#[derive(Clone)]
pub struct PaymentHeader {
    /// `PAYMENT-SIGNATURE` in v2, `X-PAYMENT` in v1.
    pub name: &'static str,
    /// The payload in standard base64 with padding.
    pub value: String,
    /// The payload, for transports that carry the object itself: the text that the header encodes.
    pub payload: Box<RawValue>,
}

impl PaymentHeader {
    /// The header for an offer, with the signature of `authorization` (r, s, v).
    pub fn new(offer: &Offer, network: Network, authorization: &TransferAuthorization, signature: [u8; 65]) -> Self {
        let signed = authorization.signed(signature);
        let (name, payload) = match offer.version() {
            // x402 v1 specification, transports/http: neither the resource nor the requirement is repeated.
            X402Version::V1 => (
                "X-PAYMENT",
                json!({"x402Version": 1, "scheme": SCHEME, "network": network.name(), "payload": signed}),
            ),
            X402Version::V2 => ("PAYMENT-SIGNATURE", payload_v2(offer, authorization.nonce, signed)),
        };
        // `serde_json` writes the members of a map sorted by key, so the bytes depend on the content alone. Writing a
        // value does not fail.
        let payload = to_raw_value(&payload).unwrap_or_default();
        Self {
            name,
            value: STANDARD.encode(payload.get()),
            payload,
        }
    }
}

/// x402 v2 specification, transports/http. `accepted` is the chosen entry unchanged: the server compares it with its
/// offer. `resource` and `extensions` are echoed if there were any; a changed extension is refused, one that takes an id of
/// the payment gets it.
fn payload_v2(offer: &Offer, nonce: B256, signed: Value) -> Value {
    let mut payload = Map::new();
    payload.insert("x402Version".to_owned(), json!(2));
    payload.insert("payload".to_owned(), signed);
    payload.insert("accepted".to_owned(), offer.entry().clone());
    let extensions = offer.extensions().map(|declared| identified(declared, nonce));
    for (name, echoed) in [("resource", offer.resource().cloned()), ("extensions", extensions)] {
        if let Some(echoed) = echoed {
            payload.insert(name.to_owned(), echoed);
        }
    }
    Value::Object(payload)
}

/// Only the name.
impl fmt::Debug for PaymentHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PaymentHeader")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_json;

    const NETWORK: Network = Network::BaseSepolia;

    fn authorization() -> TransferAuthorization {
        TransferAuthorization {
            from: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8".parse().unwrap(),
            to: "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC".parse().unwrap(),
            value: Amount::from_units(10_000).unwrap(),
            valid_before: Timestamp::from_micros(1_740_672_154_999_999).unwrap(),
            nonce: "0xf3746613c2d920b5fdabc0856f2aeb2d4f88ee6037b8cc5d04a71a4462f13480"
                .parse()
                .unwrap(),
        }
    }

    /// The header for a requirement, given as text so that a test can choose the order of its keys.
    fn header(requirement: &str) -> PaymentHeader {
        let offer = Offer::choose(&parse_json(requirement.as_bytes()).unwrap(), NETWORK).unwrap();
        PaymentHeader::new(&offer, NETWORK, &authorization(), [0xab; 65])
    }

    fn signed() -> Value {
        json!({
            "signature": format!("0x{}", "ab".repeat(65)),
            "authorization": {
                "from": "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", "to": "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC",
                "value": "10000", "validAfter": "0", "validBefore": "1740672154",
                "nonce": "0xf3746613c2d920b5fdabc0856f2aeb2d4f88ee6037b8cc5d04a71a4462f13480"
            }
        })
    }

    const V1: &str = r#"{"x402Version":1,"accepts":[{"scheme":"exact","network":"base-sepolia","maxAmountRequired":"10000",
        "resource":"http://x/weather","payTo":"0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC","maxTimeoutSeconds":60,
        "asset":"0x036CbD53842c5426634e7929541eC2318f3dCF7e","extra":{"name":"USDC","version":"2"}}]}"#;

    const ENTRY_V2: &str = r#"{"scheme":"exact","network":"eip155:84532","amount":"10000",
        "asset":"0x036cbd53842c5426634e7929541ec2318f3dcf7e","payTo":"0x3c44cdddb6a900fa2b585dd299e03d12fa4293bc",
        "maxTimeoutSeconds":60,"extra":{"name":"USDC","version":"2","anything":[1,null]},"unknown":true}"#;

    #[test]
    fn each_version_has_its_header_and_payload() {
        let entry: Value = serde_json::from_str(ENTRY_V2).unwrap();
        let extended = format!(
            r#"{{"x402Version":2,"accepts":[{ENTRY_V2}],"resource":{{"url":"http://x"}},"extensions":{{"a":{{"info":{{}}}}}}}}"#
        );
        let plain = format!(r#"{{"x402Version":2,"accepts":[{ENTRY_V2}],"resource":null,"extensions":null}}"#);
        let cases = [
            (
                V1,
                "X-PAYMENT",
                json!({"x402Version": 1, "scheme": "exact", "network": "base-sepolia", "payload": signed()}),
            ),
            (
                ENTRY_V2,
                "PAYMENT-SIGNATURE",
                json!({"x402Version": 2, "payload": signed(), "accepted": entry}),
            ),
            (
                &plain,
                "PAYMENT-SIGNATURE",
                json!({"x402Version": 2, "payload": signed(), "accepted": entry}),
            ),
            (
                &extended,
                "PAYMENT-SIGNATURE",
                json!({
                    "x402Version": 2, "payload": signed(), "accepted": entry,
                    "resource": {"url": "http://x"}, "extensions": {"a": {"info": {}}}
                }),
            ),
        ];
        for (requirement, name, payload) in cases {
            let header = header(requirement);
            assert_eq!(header.name, name, "{requirement}");
            assert_eq!(
                parse_json(header.payload.get().as_bytes()).unwrap(),
                payload,
                "{requirement}"
            );
            let decoded = STANDARD.decode(&header.value).unwrap();
            assert_eq!(decoded, header.payload.get().as_bytes(), "{requirement}");
        }
    }

    #[test]
    fn the_bytes_depend_on_the_content_and_not_on_its_spelling() {
        let reordered = r#"{"maxTimeoutSeconds":60, "unknown":true, "extra":{"anything":[1,null],"version":"2","name":"USDC"},
            "payTo":"0x3c44cdddb6a900fa2b585dd299e03d12fa4293bc","asset":"0x036cbd53842c5426634e7929541ec2318f3dcf7e",
            "amount":"10000","network":"eip155:84532","scheme":"exact"}"#;
        assert_eq!(header(ENTRY_V2).value, header(reordered).value);
    }

    #[test]
    fn debug_output_shows_nothing_that_pays() {
        assert_eq!(format!("{:?}", header(V1)), "PaymentHeader { name: \"X-PAYMENT\", .. }");
    }
}
