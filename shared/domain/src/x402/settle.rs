//! The request to an x402 facilitator to settle a signed transfer, and the response (x402 v2, `POST /settle`). The
//! response does not prove a payment, because only the chain does.

use crate::{
    Network, PaymentTerms, TransferAuthorization,
    catalog::service::named,
    parse_json,
    x402::{proof::find_tx_hash_in_response, requirement::SCHEME},
};
use serde_json::{Value, json};

/// Returns the body of the request to settle this transfer. `signature` is (r, s, v).
///
/// The payment requirements are created here, because a withdrawal has no provider.
pub fn settle_request_body(
    terms: &PaymentTerms,
    network: Network,
    authorization: &TransferAuthorization,
    signature: [u8; 65],
) -> Value {
    let token = network.token();
    let timeout = terms.valid_before.since(terms.authorized_at).secs();
    let requirement = json!({
        "scheme": SCHEME,
        "network": network.caip2(),
        "amount": terms.amount.to_string(),
        "asset": token.address.to_checksum(None),
        "payTo": terms.pay_to.to_checksum(None),
        "maxTimeoutSeconds": timeout,
        "extra": {"name": token.name, "version": token.version},
    });
    json!({
        "x402Version": 2,
        "paymentPayload": {
            "x402Version": 2,
            "accepted": requirement,
            "payload": authorization.signed_payload(signature),
        },
        "paymentRequirements": requirement,
    })
}

named! {
    /// What a facilitator's response says about a transfer.
    Submission {
        /// The facilitator has submitted the transfer, according to the response.
        Accepted = "accepted",
        /// The facilitator rejected the transfer.
        Refused = "refused",
        /// The facilitator did not respond, or the response can't be parsed.
        Unanswered = "unanswered",
    }
}

impl Submission {
    /// Parses a facilitator's response and the reason that it gives, for the log. A transaction that is not in a block
    /// yet (`settlement_pending`) counts as accepted.
    pub fn parse_response(body: &[u8]) -> (Self, Option<String>) {
        let Ok(response) = parse_json(body) else {
            return (Self::Unanswered, None);
        };
        let text = |name| response.get(name).and_then(Value::as_str);
        let submission = match response.get("success").and_then(Value::as_bool) {
            None => Self::Unanswered,
            Some(_)
                if response
                    .as_object()
                    .is_some_and(|response| find_tx_hash_in_response(response).is_ok()) =>
            {
                Self::Accepted
            }
            Some(_) => Self::Refused,
        };
        (
            submission,
            text("errorReason")
                .filter(|reason| is_error_code(reason))
                .map(str::to_owned),
        )
    }
}

/// Returns whether the text looks like an error code. Only error codes are logged.
fn is_error_code(text: &str) -> bool {
    text.len() <= 64 && text.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facilitator_responses_map_to_a_submission_state() {
        let hash = format!("0x{}", "ab".repeat(32));
        let rows = [
            (json!({"success": true, "transaction": hash}), Submission::Accepted),
            (
                json!({"success": false, "errorReason": "settlement_pending", "transaction": hash}),
                Submission::Accepted,
            ),
            (json!({"success": false, "transaction": ""}), Submission::Refused),
            (json!({"success": true, "transaction": "0x1"}), Submission::Refused),
            (json!({"success": true, "txHash": hash}), Submission::Accepted),
            (json!({"success": "yes", "transaction": hash}), Submission::Unanswered),
            (json!(null), Submission::Unanswered),
        ];
        for (answer, expected) in rows {
            assert_eq!(
                Submission::parse_response(answer.to_string().as_bytes()).0,
                expected,
                "{answer}"
            );
        }
        assert_eq!(Submission::parse_response(b"<html>"), (Submission::Unanswered, None));
        let told = |reason: &str| {
            Submission::parse_response(json!({"success": false, "errorReason": reason}).to_string().as_bytes()).1
        };
        assert_eq!(told("insufficient_funds").as_deref(), Some("insufficient_funds"));
        assert_eq!(told("see http://x"), None);
    }
}
