//! Whole bodies of authorize, preflight and complete.
//!
//! The input is a body. An accepted body has all required members, no unknown ones, and whole amounts. A refused body
//! is refused with the contract's error and a pointer into the body.

use purser_api::{AuthorizeRequest, CheckRequest, CompleteRequest, ProviderProof};
use purser_domain::{Error, ErrorKind, Intent, Network, Url, is_no_proof, parse_json};
use serde_json::Value;

const NETWORK: Network = Network::BaseSepolia;

/// See the module's documentation.
pub fn request_body(bytes: &[u8]) {
    let Ok(body) = parse_json(bytes) else { return };
    match AuthorizeRequest::parse(&body, NETWORK) {
        Ok(request) => {
            members_are(
                &body,
                &[
                    "payment_requirement",
                    "max_payment_units",
                    "original_request",
                    "idempotency_key",
                ],
                &["service_id", "operation_id", "approval_id", "metadata", "replay_key"],
            );
            is_what_was_asked(&body, &request.intent);
            let approval = body["approval_id"].as_str().map(str::to_ascii_lowercase);
            assert_eq!(request.approval.map(|id| id.to_string()), approval);
        }
        Err(error) => is_told(&body, &error),
    }
    match CheckRequest::parse(&body, NETWORK) {
        Ok(request) => {
            members_are(
                &body,
                &[
                    "payment_requirement",
                    "max_payment_units",
                    "original_request",
                    "replay_key",
                ],
                &[
                    "service_id",
                    "operation_id",
                    "approval_id",
                    "metadata",
                    "idempotency_key",
                ],
            );
            is_what_was_asked(&body, &request.intent);
        }
        Err(error) => is_told(&body, &error),
    }
    match CompleteRequest::parse(&body, ProviderProof::Required) {
        Ok(_) => members_are(&body, &["payment_response_header"], &["tx_hash"]),
        Err(error) => is_told(&body, &error),
    }
}

fn members_are(body: &Value, required: &[&str], optional: &[&str]) {
    let members = body.as_object().expect("a request is an object");
    for name in required {
        assert!(
            members.get(*name).is_some_and(|value| !value.is_null()),
            "{name}: {body}"
        );
    }
    for name in members.keys() {
        let known = required.contains(&name.as_str()) || optional.contains(&name.as_str());
        assert!(known, "{name} is no member of this request");
    }
}

fn is_what_was_asked(body: &Value, intent: &Intent) {
    // Only whole numbers are accepted, however they are written, and exactly the number that was sent is used.
    let (sent, used) = (&body["max_payment_units"], intent.max_payment.units());
    let is_used = sent.as_u64() == Some(used)
        || sent.as_f64().map(|sent| format!("{:.1}", sent.abs())) == Some(format!("{used}.0"));
    assert!(is_used, "{body}");
    assert_eq!(body["service_id"].as_str(), intent.service.as_deref());
    assert_eq!(
        body["operation_id"].as_str(),
        intent.operation.as_ref().map(purser_domain::OperationSlug::as_str)
    );
    let request = &body["original_request"];
    assert!(
        request["method"]
            .as_str()
            .unwrap()
            .eq_ignore_ascii_case(&intent.request.method)
    );
    assert_eq!(
        Url::parse(request["url"].as_str().unwrap()).as_ref(),
        Ok(&intent.request.url)
    );
    assert_eq!(body["metadata"]["target_url"].is_string(), intent.target.is_some());
}

fn is_told(body: &Value, error: &Error) {
    match error.kind() {
        ErrorKind::InvalidRequest(problems) => {
            assert!(!problems.is_empty(), "{body}");
            assert!(problems.is_sorted(), "{problems:?}");
            for problem in problems {
                assert!(problem.path.is_empty() || problem.path.starts_with('/'), "{problem:?}");
                assert!(!problem.message.is_empty());
            }
        }
        ErrorKind::FieldRequired { field, problems } => {
            let missing = problems
                .iter()
                .find(|problem| problem.path.rsplit_once('/').is_some_and(|(_, name)| name == *field));
            let missing = missing.unwrap_or_else(|| panic!("{field}: {problems:?}"));
            assert!(
                body.pointer(&missing.path).is_none_or(Value::is_null),
                "{field} is there: {body}"
            );
            assert!(problems.is_sorted(), "{problems:?}");
        }
        ErrorKind::ProviderProofRequired => {
            assert!(body.get("payment_response_header").is_none_or(is_no_proof), "{body}");
        }
        ErrorKind::SettlementTransactionHashRequired(_) => assert!(body.get("tx_hash").is_none_or(Value::is_null)),
        other => panic!("{body}: {other:?}"),
    }
}
