//! An authorized payment: the transfer to sign, and the header for the provider.
//!
//! The transfer is derived from the decision. In x402 v2, the header also contains the chosen payment
//! requirements unchanged, and a payment id if the provider accepts one. The crate `shared/chain` signs with
//! the wallet keys.

use crate::{
    Address, Amount, B256, Network, NoncePrefix, Offer, SettlementId, SettlementTerms, Timestamp, TransactionId,
    X402Version,
    value::json::UnreadMembers,
    x402::{payment_identifier::add_payment_identifier, requirement::SCHEME},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};
use std::fmt;

/// The fields of a settlement that are signed or returned with the payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaymentTerms {
    /// The id of the settlement.
    pub settlement: SettlementId,
    /// The decision that allowed the payment.
    pub transaction: TransactionId,
    /// The agent's wallet, from which the money is transferred.
    pub wallet: Address,
    /// The chain on which the payment is made.
    pub network: Network,
    /// The amount that is paid, in micro-USDC.
    pub amount: Amount,
    /// The address that receives the payment.
    pub pay_to: Address,
    /// The recorded time of the authorization.
    pub authorized_at: Timestamp,
    /// The time from which the chain rejects the payment.
    pub valid_before: Timestamp,
    /// The first eight bytes of the payment's nonce, to detect that the nonce key has changed.
    pub nonce_prefix: NoncePrefix,
}

/// The fields of a settlement in the idempotency record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundPayment {
    /// The id of the settlement.
    pub settlement: SettlementId,
    /// The decision that allowed the payment.
    pub transaction: TransactionId,
    /// The recorded time of the authorization.
    pub authorized_at: Timestamp,
    /// The time from which the chain rejects the payment.
    pub valid_before: Timestamp,
    /// The index in `accepts` of the payment requirements chosen for the idempotency key's first request.
    pub offer_index: u32,
    /// The first eight bytes of the payment's nonce, to detect that the nonce key has changed.
    pub nonce_prefix: NoncePrefix,
}

impl PaymentTerms {
    /// Copies the fields from a settlement.
    pub const fn from_settlement_terms(terms: &SettlementTerms) -> Self {
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
}

/// An unsigned EIP-3009 `TransferWithAuthorization` of the network's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferAuthorization {
    /// The address of the agent's wallet, which pays.
    pub from: Address,
    /// The address that receives the transfer.
    pub to: Address,
    /// The amount to transfer, in micro-USDC.
    pub value: Amount,
    /// The deadline in whole seconds. The token accepts the transfer only in blocks with an earlier time (EIP-3009).
    pub valid_before: Timestamp,
    /// The nonce, which the token accepts once and which identifies the transfer on chain.
    pub nonce: B256,
}

impl TransferAuthorization {
    /// Creates the transfer of an authorized settlement with this nonce.
    pub const fn new(terms: &PaymentTerms, nonce: B256) -> Self {
        Self {
            from: terms.wallet,
            to: terms.pay_to,
            value: terms.amount,
            valid_before: terms.valid_before,
            nonce,
        }
    }

    /// The `validAfter` of every transfer: 0, because the chain's clock may be behind this service's clock.
    pub const VALID_AFTER: u64 = 0;

    /// Returns the JSON of x402's `exact` scheme on EVM chains: decimal strings and checksummed addresses.
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

    /// Returns the field `payload` of the scheme `exact`: the transfer and the signature (r, s, v).
    pub(crate) fn signed_payload(self, signature: [u8; 65]) -> Value {
        json!({
            "signature": alloy_primitives::hex::encode_prefixed(signature),
            "authorization": self.to_json(),
        })
    }
}

/// A signed payment for the provider. Anybody who has the header can submit the payment, so `Debug` omits the value.
#[derive(Clone)]
pub struct PaymentHeader {
    /// The header's name: `PAYMENT-SIGNATURE` in v2, `X-PAYMENT` in v1.
    pub name: &'static str,
    /// The payload in standard base64 with padding.
    pub value: String,
    /// The decoded payload, for transports that send the JSON object itself.
    pub payload: Box<RawValue>,
}

impl PaymentHeader {
    /// Creates the header. `signature` (r, s, v) signs `authorization`, and `requirement` is the provider's 402
    /// document.
    pub fn new(
        offer: &Offer,
        requirement: &RawValue,
        network: Network,
        authorization: &TransferAuthorization,
        signature: [u8; 65],
    ) -> Self {
        let signed = authorization.signed_payload(signature);
        let (name, payload) = match offer.version() {
            // x402 v1, transports/http: the payload contains neither the resource nor the payment requirements.
            X402Version::V1 => {
                let payload = json!({"x402Version": 1, "scheme": SCHEME, "network": network.name(), "payload": signed});
                ("X-PAYMENT", payload.to_string())
            }
            X402Version::V2 => {
                let payload = payment_payload_v2(offer, requirement, authorization.nonce, &signed);
                ("PAYMENT-SIGNATURE", remove_json_white_space(&payload))
            }
        };
        let value = STANDARD.encode(&payload);
        // The payload was serialized here, so it is valid JSON.
        let payload = RawValue::from_string(payload).unwrap_or_default();
        Self { name, value, payload }
    }
}

/// The v2 `PaymentPayload`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PayloadV2<'a> {
    #[serde(rename = "x402Version")]
    version: u8,
    payload: &'a Value,
    accepted: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extensions: Option<&'a RawValue>,
}

/// Returns the v2 payload (x402 v2 specification, transports/http). Servers compare `accepted` with their own
/// payment requirements and reject changed extensions, so the payload repeats both unchanged, except for an
/// added payment id.
fn payment_payload_v2(offer: &Offer, requirement: &RawValue, nonce: B256, signed_payload: &Value) -> String {
    let UnreadMembers(fields) = serde_json::from_str(requirement.get()).unwrap_or_default();
    let field = |name: &str| {
        let found = fields.iter().find(|(field, _)| field == name);
        found.map(|(_, value)| *value).filter(|value| value.get() != "null")
    };
    let (accepted, resource, extensions) = match field("accepts") {
        Some(entries) => {
            let entries: Vec<&RawValue> = serde_json::from_str(entries.get()).unwrap_or_default();
            let index = usize::try_from(offer.index()).ok();
            let entry = index.and_then(|index| entries.get(index).copied());
            (entry.unwrap_or(RawValue::NULL), field("resource"), field("extensions"))
        }
        // The document is a single payment requirements object, without `resource` and `extensions`.
        None => (requirement, None, None),
    };
    let with_id = extensions.and_then(|extensions| add_payment_identifier(extensions, nonce));
    let payload = PayloadV2 {
        version: offer.version().number(),
        payload: signed_payload,
        accepted,
        resource,
        extensions: with_id.as_deref().or(extensions),
    };
    // Serializing these fields to a `String` can't fail.
    serde_json::to_string(&payload).unwrap_or_default()
}

/// Removes white space between JSON tokens, because servers limit header lengths.
fn remove_json_white_space(json: &str) -> String {
    let (mut in_string, mut is_escaped) = (false, false);
    let is_kept = |letter: &char| {
        let is_quote = *letter == '"' && !is_escaped;
        is_escaped = in_string && *letter == '\\' && !is_escaped;
        in_string ^= is_quote;
        in_string || !letter.is_ascii_whitespace()
    };
    json.chars().filter(is_kept).collect()
}

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
    use crate::{parse_json, value::json::parse_provider_json};

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

    /// Returns the header for the text of a 402 document.
    fn header(requirement: &str) -> PaymentHeader {
        let raw: &RawValue = serde_json::from_str(requirement).unwrap();
        let offer = Offer::choose_cheapest(&parse_provider_json(raw).unwrap(), NETWORK).unwrap();
        PaymentHeader::new(&offer, raw, NETWORK, &authorization(), [0xab; 65])
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
    fn each_x402_version_has_its_own_header_and_payload() {
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
    fn payment_requirements_are_echoed_unaltered() {
        let entry = ENTRY_V2.replace(r#""unknown":true"#, r#""unknown": [0.10, 1E2, "\ud800 \" ]"]"#);
        let extensions = r#"{"a": {"info": {"at": 18446744073709551617.5, "of": 1e999}}, "b": []}"#;
        let echoed = |resource: &str, extensions: &str| {
            let requirement = format!(
                r#"{{"x402Version":2, "\udfff":[], "accepts":[{{"scheme":"upto"}}, {entry}], "resource":{resource}, "extensions":{extensions}}}"#
            );
            header(&requirement).payload.get().to_owned()
        };
        let payload = echoed("[]", extensions);
        for part in [
            r#""unknown":[0.10,1E2,"\ud800 \" ]"]"#,
            r#""extensions":{"a":{"info":{"at":18446744073709551617.5,"of":1e999}},"b":[]}"#,
            r#""resource":[]"#,
        ] {
            assert!(payload.contains(part), "{part} {payload}");
        }
        for (resource, extensions) in [("\"http://x\"", "[]"), ("7", "\"x\""), ("[ ]", "{ }")] {
            let payload: Value = serde_json::from_str(
                &echoed(resource, extensions)
                    .replace("\\ud800", "")
                    .replace("1e999", "1"),
            )
            .unwrap();
            let [resource, extensions] =
                [resource, extensions].map(|text| serde_json::from_str::<Value>(text).unwrap());
            assert_eq!((&payload["resource"], &payload["extensions"]), (&resource, &extensions));
        }
        let declared = echoed(
            "{}",
            r#"{"payment-identifier": {"info": {"required": 1.50}}, "x": 1e999}"#,
        );
        let id = format!(
            "pay_{}",
            "f3746613c2d920b5fdabc0856f2aeb2d4f88ee6037b8cc5d04a71a4462f13480"
        );
        assert!(declared.contains(&format!(
            r#"{{"payment-identifier":{{"info":{{"id":"{id}","required":1.50}}}},"x":1e999}}"#
        )));
    }

    #[test]
    fn debug_output_of_payments_contains_no_signature() {
        assert_eq!(format!("{:?}", header(V1)), "PaymentHeader { name: \"X-PAYMENT\", .. }");
    }
}
