//! The only status numbers: what each kind of error answers over HTTP.
//!
//! A handler returns [`Failure`] by `?` on a [`purser_domain::Error`]. The error itself stays with the response, so that
//! the end of the request can log its cause, once (`router.rs`).

use crate::envelope::ErrorBody;
use axum::{
    Json,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use purser_domain::{Error, ErrorKind, Reason};
use std::sync::Arc;

/// What a handler answers.
pub type Reply<T = Response> = Result<T, Failure>;

/// An error on its way to the caller.
#[derive(Clone, Debug)]
pub struct Failure(Arc<Error>);

/// Whole seconds after which a payment that the chain can't confirm yet is worth asking for again: one block of Base.
const BLOCK_SECONDS: u64 = 2;

impl Failure {
    /// The error.
    pub fn error(&self) -> &Error {
        &self.0
    }

    /// The status it answers with.
    pub fn status(&self) -> StatusCode {
        status(self.0.kind())
    }

    /// The same for a person in a browser: `page` in the envelope's place. Status, headers and the log stay as they are.
    ///
    /// A router of pages maps every failure at once: an answer that is one carries its [`Failure`] in its extensions.
    pub fn page(self, page: impl IntoResponse) -> Response {
        let mut response = page.into_response();
        *response.status_mut() = self.status();
        self.add_headers(response.headers_mut());
        response.extensions_mut().insert(self);
        response
    }

    fn add_headers(&self, headers: &mut HeaderMap) {
        if let Some(scheme) = challenge(self.0.kind()) {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
        }
        if let Some(seconds) = seconds_to_wait(self.0.kind()) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(Arc::new(error))
    }
}

impl From<ErrorKind> for Failure {
    fn from(kind: ErrorKind) -> Self {
        Error::from(kind).into()
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let kind = self.0.kind();
        let mut response = (self.status(), Json(ErrorBody::from(kind))).into_response();
        self.add_headers(response.headers_mut());
        response.extensions_mut().insert(self);
        response
    }
}

/// The scheme that a 401 asks for (RFC 9110 §11.6.1).
fn challenge(kind: &ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::InvalidAgentKey | ErrorKind::InvalidAuthorizationHeader | ErrorKind::InvalidSession => {
            Some("Bearer")
        }
        // No scheme of the `Authorization` header: the token travels in a header of its own.
        ErrorKind::InvalidInternalToken => Some("InternalToken"),
        _ => None,
    }
}

fn seconds_to_wait(kind: &ErrorKind) -> Option<u64> {
    match kind {
        ErrorKind::TooManyRequests { retry_after } | ErrorKind::TemporarilyUnavailable { retry_after } => {
            Some(*retry_after)
        }
        ErrorKind::SettlementNotYetVerified { .. } => Some(BLOCK_SECONDS),
        _ => None,
    }
}

fn status(kind: &ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::InvalidRequest(_) | ErrorKind::FieldRequired { .. } => StatusCode::BAD_REQUEST,
        ErrorKind::InvalidAgentKey
        | ErrorKind::InvalidAuthorizationHeader
        | ErrorKind::InvalidSession
        | ErrorKind::InvalidInternalToken => StatusCode::UNAUTHORIZED,
        ErrorKind::CrossSiteRequest => StatusCode::FORBIDDEN,
        ErrorKind::Refused(refusal) => refusal_status(&refusal.reason),
        ErrorKind::ServiceNotFound | ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::IdempotencyKeyReused { .. }
        | ErrorKind::IdempotentReplay { .. }
        | ErrorKind::SettlementTransactionAlreadyUsed
        | ErrorKind::ApprovalNotPending { .. }
        | ErrorKind::SlugTaken { .. } => StatusCode::CONFLICT,
        ErrorKind::VersionConflict { .. } => StatusCode::PRECONDITION_FAILED,
        ErrorKind::VersionRequired => StatusCode::PRECONDITION_REQUIRED,
        ErrorKind::RequestTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorKind::ProviderProofRequired
        | ErrorKind::SettlementTransactionHashRequired
        | ErrorKind::SettlementNotVerified { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorKind::TooManyRequests { .. } => StatusCode::TOO_MANY_REQUESTS,
        ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        ErrorKind::SettlementNotYetVerified { .. } | ErrorKind::TemporarilyUnavailable { .. } => {
            StatusCode::SERVICE_UNAVAILABLE
        }
    }
}

fn refusal_status(reason: &Reason) -> StatusCode {
    match reason {
        Reason::ServiceNotEnabled { .. }
        | Reason::OperationNotEnabled { .. }
        | Reason::DomainNotAllowed { .. }
        | Reason::PolicyBlocked(_) => StatusCode::FORBIDDEN,
        Reason::AmountExceedsMax { .. }
        | Reason::PerCallLimit { .. }
        | Reason::DailyLimit { .. }
        | Reason::ApprovalRequired { .. }
        | Reason::InsufficientBalance { .. } => StatusCode::PAYMENT_REQUIRED,
    }
}

/// What each status means here, for the API's description.
pub(crate) const STATUSES: &[(u16, &str)] = &[
    (
        400,
        "`invalid_request`, or `<field>_required` for a required field that is missing.",
    ),
    (
        401,
        "`invalid_agent_key` or `invalid_authorization_header`; `invalid_session`; `invalid_internal_token`: whichever \
         the route asks for.",
    ),
    (
        402,
        "`amount_exceeds_max`, `amount_exceeds_per_call_limit`, `daily_spend_limit_exceeded`, `approval_required` or \
         `insufficient_usdc_balance`.",
    ),
    (
        403,
        "`service_not_enabled`, `operation_not_enabled_for_agent`, `domain_not_allowed` or `policy_blocked`; \
         `cross_site_request` on a form.",
    ),
    (404, "`not_found` or `service_not_found`."),
    (
        409,
        "`idempotency_key_reused_for_different_request`, `idempotent_replay` or `settlement_transaction_already_used`; \
         `approval_not_pending`; `slug_taken`.",
    ),
    (412, "`version_conflict`: `version` is the present one."),
    (413, "`request_too_large`."),
    (
        422,
        "`provider_proof_required`, `settlement_transaction_hash_required`, or `onchain_settlement_not_verified` that \
         no retry will change.",
    ),
    (428, "`version_required`: send `If-Match`."),
    (429, "`too_many_requests`: wait `retry_after` seconds."),
    (500, "`internal_error`."),
    (
        503,
        "`temporarily_unavailable`, or `onchain_settlement_not_verified` that can be retried: wait `Retry-After` seconds.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderName;
    use axum::response::Html;
    use http_body_util::BodyExt as _;
    use purser_domain::{
        Address, Amount, ApprovalId, ApprovalStatus, AskingRule, Block, Category, Check, CheckName, CheckOutcome,
        DomainPattern, Fits, OperationSlug, Problem, Refusal, RuleId, ServiceId, ServiceSlug, SettlementId, Timestamp,
        TransactionId, Unpayable,
    };
    use serde_json::{Value, json};
    use uuid::Uuid;

    const ONE: Uuid = Uuid::from_u128(1);
    const ONE_TEXT: &str = "00000000-0000-0000-0000-000000000001";
    const TWO_TEXT: &str = "00000000-0000-0000-0000-000000000002";

    async fn answer(kind: ErrorKind) -> (u16, HeaderMap, Value) {
        let response = Failure::from(kind).into_response();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, headers, serde_json::from_slice(&body).unwrap())
    }

    fn units(units: u64) -> Amount {
        Amount::from_units(units).unwrap()
    }

    fn operation(slug: &str) -> OperationSlug {
        OperationSlug::parse(slug).unwrap()
    }

    #[tokio::test]
    async fn every_kind_of_error_of_agents_has_its_status_and_envelope() {
        let settlement = SettlementId::from_uuid(Uuid::from_u128(2));
        let approval = ApprovalId::from_uuid(ONE);
        let problems = vec![Problem::at("/a", "must be b"), Problem::at("", "must be c")];
        let rows = [
            (
                ErrorKind::InvalidRequest(problems),
                400,
                json!({
                    "error": "invalid_request",
                    "message": "the request is not valid; `details` names every problem",
                    "details": [{"path": "/a", "message": "must be b"}, {"path": "", "message": "must be c"}],
                }),
            ),
            (
                ErrorKind::FieldRequired {
                    field: "payment_requirement",
                    problems: vec![Problem::at("/payment_requirement", "is required")],
                },
                400,
                json!({
                    "error": "payment_requirement_required",
                    "message": "`payment_requirement` is required",
                }),
            ),
            (
                // Of a nested member, the slug does not say where.
                ErrorKind::FieldRequired {
                    field: "payment_requirement",
                    problems: vec![Problem::at("/a/payment_requirement", "is required")],
                },
                400,
                json!({
                    "error": "payment_requirement_required",
                    "message": "`payment_requirement` is required",
                    "details": [{"path": "/a/payment_requirement", "message": "is required"}],
                }),
            ),
            (
                ErrorKind::InvalidAgentKey,
                401,
                json!({
                    "error": "invalid_agent_key",
                    "message": "the agent key is missing, malformed, unknown or revoked",
                }),
            ),
            (
                ErrorKind::InvalidAuthorizationHeader,
                401,
                json!({
                    "error": "invalid_authorization_header",
                    "message": "the `Authorization` header must be of the form `Bearer <public>:<secret>`",
                }),
            ),
            (
                ErrorKind::ServiceNotFound,
                404,
                json!({
                    "error": "service_not_found",
                    "message": "no service of the catalog answers to this request",
                }),
            ),
            (
                ErrorKind::NotFound,
                404,
                json!({
                    "error": "not_found",
                    "message": "nothing here, or nothing that this caller may see",
                }),
            ),
            (
                ErrorKind::IdempotencyKeyReused { settlement: None },
                409,
                json!({
                    "error": "idempotency_key_reused_for_different_request",
                    "message": "this key belongs to a different request; send that request unchanged, or use a new key",
                    "settlement_id": null,
                }),
            ),
            (
                ErrorKind::IdempotencyKeyReused {
                    settlement: Some(settlement),
                },
                409,
                json!({
                    "error": "idempotency_key_reused_for_different_request",
                    "message": "this key belongs to a different request; send that request unchanged, or use a new key",
                    "settlement_id": TWO_TEXT,
                }),
            ),
            (
                ErrorKind::IdempotentReplay { approval, settlement },
                409,
                json!({
                    "error": "idempotent_replay",
                    "message": "this approval has already been used; fetch the settlement that it authorized",
                    "approval_id": ONE_TEXT,
                    "settlement_id": TWO_TEXT,
                }),
            ),
            (
                ErrorKind::SettlementTransactionAlreadyUsed,
                409,
                json!({
                    "error": "settlement_transaction_already_used",
                    "message": "this transaction has already confirmed another settlement",
                }),
            ),
            (
                ErrorKind::RequestTooLarge { limit: 65_536 },
                413,
                json!({
                    "error": "request_too_large",
                    "message": "the request body is over 65536 bytes",
                    "limit_bytes": 65536,
                }),
            ),
            (
                ErrorKind::ProviderProofRequired,
                422,
                json!({
                    "error": "provider_proof_required",
                    "message": "`payment_response_header` is required: the provider's payment response, as it was received",
                }),
            ),
            (
                ErrorKind::SettlementTransactionHashRequired,
                422,
                json!({
                    "error": "settlement_transaction_hash_required",
                    "message": "the provider's payment response names no transaction; send its hash as `tx_hash`",
                }),
            ),
            (
                ErrorKind::SettlementNotVerified {
                    reason: "usdc_transfer_mismatch",
                },
                422,
                json!({
                    "error": "onchain_settlement_not_verified",
                    "message":
                        "this transaction did not make the payment that was authorized; asking again won't change that",
                    "reason": "usdc_transfer_mismatch",
                    "retryable": false,
                }),
            ),
            (
                ErrorKind::TooManyRequests { retry_after: 7 },
                429,
                json!({
                    "error": "too_many_requests",
                    "message": "too many requests in this minute; wait 7 s",
                    "retry_after": 7,
                }),
            ),
            (
                ErrorKind::Internal,
                500,
                json!({
                    "error": "internal_error",
                    "message": "an unexpected error on our side; the same request can be sent again",
                }),
            ),
            (
                ErrorKind::TemporarilyUnavailable { retry_after: 1 },
                503,
                json!({
                    "error": "temporarily_unavailable",
                    "message": "there is too much to do for this right now; send the same request again in 1 s",
                    "retry_after": 1,
                }),
            ),
            (
                ErrorKind::SettlementNotYetVerified { reason: "not_mined" },
                503,
                json!({
                    "error": "onchain_settlement_not_verified",
                    "message":
                        "the payment can't be verified on chain yet; send the same request again, and pay nothing twice",
                    "reason": "not_mined",
                    "retryable": true,
                }),
            ),
        ];
        check(rows).await;
    }

    #[tokio::test]
    async fn every_kind_of_error_of_people_and_operators_has_its_status_and_envelope() {
        let approval = ApprovalId::from_uuid(ONE);
        let rows = [
            (
                ErrorKind::InvalidSession,
                401,
                json!({
                    "error": "invalid_session",
                    "message": "the session is missing, malformed, expired or from another issuer; sign in",
                }),
            ),
            (
                ErrorKind::InvalidInternalToken,
                401,
                json!({
                    "error": "invalid_internal_token",
                    "message": "the `X-Internal-Token` header is missing or wrong",
                }),
            ),
            (
                ErrorKind::CrossSiteRequest,
                403,
                json!({
                    "error": "cross_site_request",
                    "message": "the request does not come from our own pages; reload the page and try again",
                }),
            ),
            (
                ErrorKind::ApprovalNotPending {
                    approval,
                    status: ApprovalStatus::Executed,
                },
                409,
                json!({
                    "error": "approval_not_pending",
                    "message": "this approval is executed already",
                    "approval_id": ONE_TEXT,
                    "status": "executed",
                }),
            ),
            (
                ErrorKind::ApprovalNotPending {
                    approval,
                    status: ApprovalStatus::Expired,
                },
                409,
                json!({
                    "error": "approval_not_pending",
                    "message": "this approval has expired; the agent has to ask again",
                    "approval_id": ONE_TEXT,
                    "status": "expired",
                }),
            ),
            (
                ErrorKind::SlugTaken {
                    service: ServiceId::from_uuid(ONE),
                },
                409,
                json!({
                    "error": "slug_taken",
                    "message": format!("this slug is the name of service `{ONE_TEXT}`; take another one"),
                    "service_id": ONE_TEXT,
                }),
            ),
            (
                ErrorKind::VersionConflict { version: 7 },
                412,
                json!({
                    "error": "version_conflict",
                    "message":
                        "this is at version 7 by now; read it again, then send the change with that version",
                    "version": 7,
                }),
            ),
            (
                ErrorKind::VersionRequired,
                428,
                json!({
                    "error": "version_required",
                    "message":
                        "`If-Match` is required: the `ETag` of what you read, or `*` for whatever is there now",
                }),
            ),
        ];
        check(rows).await;
    }

    async fn check(rows: impl IntoIterator<Item = (ErrorKind, u16, Value)>) {
        for (kind, expected_status, expected) in rows {
            let slug = kind.slug();
            let (status, headers, body) = answer(kind).await;
            assert_eq!((status, body), (expected_status, expected));
            let scheme = headers
                .get(header::WWW_AUTHENTICATE)
                .map(|scheme| scheme.to_str().unwrap());
            let expected_scheme = match (status, slug.as_str()) {
                (401, "invalid_internal_token") => Some("InternalToken"),
                (401, _) => Some("Bearer"),
                _ => None,
            };
            assert_eq!(scheme, expected_scheme, "{slug}");
            let wait = headers
                .get(header::RETRY_AFTER)
                .map(|seconds| seconds.to_str().unwrap());
            assert_eq!(
                wait,
                match (status, slug.as_str()) {
                    (429, _) => Some("7"),
                    (503, "temporarily_unavailable") => Some("1"),
                    (503, _) => Some("2"),
                    _ => None,
                }
            );
            assert_described(status, &slug);
        }
    }

    fn assert_described(status: u16, slug: &str) {
        let slug = if slug == "payment_requirement_required" {
            "<field>_required"
        } else {
            slug
        };
        let (_, text) = STATUSES.iter().find(|(known, _)| *known == status).unwrap();
        assert!(
            text.contains(&format!("`{slug}`")),
            "{slug} is not described at {status}"
        );
    }

    #[tokio::test]
    async fn every_refusal_has_its_status_context_and_decision() {
        let wallet: Address = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC".parse().unwrap();
        let at = Timestamp::from_micros(1_795_223_340_000_001).unwrap();
        let service = || ServiceSlug::parse("lab-weather").unwrap();
        let daily = |retry_at| Reason::DailyLimit {
            spend_today: units(40),
            amount: units(11),
            max_per_day: units(50),
            retry_at,
        };
        let daily_text = "40 units count in the last 24 hours; 11 more would exceed the limit of 50";
        let escalation = |rule| Reason::ApprovalRequired {
            approval: Some(ApprovalId::from_uuid(ONE)),
            amount: units(11),
            threshold: units(10),
            rule,
        };
        let approve_text =
            "a person has to approve this payment; poll the approval, then repeat the request with `approval_id`";
        let rows = [
            (
                Reason::ServiceNotEnabled { service: service() },
                403,
                ["block", "service_not_enabled", "service_enabled"],
                json!({
                    "message": "`lab-weather` is not enabled for this agent; its owner can enable it in the dashboard",
                    "code": "SERVICE_NOT_ENABLED",
                    "service_id": "lab-weather",
                }),
            ),
            (
                Reason::OperationNotEnabled {
                    operation: Some(operation("weather.history")),
                    enabled: Some(vec![operation("weather.current")]),
                },
                403,
                ["block", "operation_not_enabled_for_agent", "enabled_operations"],
                json!({
                    "message": "`weather.history` is not among the operations that are enabled for this agent",
                    "operation_id": "weather.history",
                    "enabled_operations": ["weather.current"],
                }),
            ),
            (
                Reason::OperationNotEnabled {
                    operation: None,
                    enabled: None,
                },
                403,
                ["block", "operation_not_enabled_for_agent", "enabled_operations"],
                json!({
                    "message":
                        "the request names no operation that is enabled for this agent; name one as `operation_id`",
                    "operation_id": null,
                    "enabled_operations": null,
                }),
            ),
            (
                Reason::DomainNotAllowed {
                    hostname: "evil.test".to_owned(),
                    allowed: vec![DomainPattern::parse("*.example.com").unwrap()],
                },
                403,
                ["block", "domain_not_allowed", "allowed_domains"],
                json!({
                    "message": "`evil.test` matches no entry of the allowed domains",
                    "hostname": "evil.test",
                    "allowed_domains": ["*.example.com"],
                }),
            ),
            (
                Reason::AmountExceedsMax {
                    amount: units(11),
                    max_payment: units(10),
                },
                402,
                ["block", "amount_exceeds_max", "max_payment_units"],
                json!({
                    "message": "the price of 11 units is above the request's `max_payment_units` of 10",
                    "amount_units": 11,
                    "max_payment_units": 10,
                }),
            ),
            (
                Reason::PerCallLimit {
                    amount: units(11),
                    max_per_call: units(10),
                },
                402,
                ["block", "amount_exceeds_per_call_limit", "max_per_call_units"],
                json!({
                    "message": "the price of 11 units is above the limit of 10 per call",
                    "amount_units": 11,
                    "max_per_call_units": 10,
                }),
            ),
            (
                daily(Fits::At(at)),
                402,
                ["block", "daily_spend_limit_exceeded", "max_per_day_units"],
                json!({
                    "message": daily_text,
                    "spend_today": 40,
                    "amount_units": 11,
                    "max_per_day_units": 50,
                    "retry_at": "2026-11-21T01:09:00.000001Z",
                }),
            ),
            (
                daily(Fits::Never),
                402,
                ["block", "daily_spend_limit_exceeded", "max_per_day_units"],
                json!({
                    "message": daily_text,
                    "spend_today": 40,
                    "amount_units": 11,
                    "max_per_day_units": 50,
                    "retry_at": null,
                }),
            ),
            (
                escalation(None),
                402,
                ["escalate", "approval_required", "require_approval_above_units"],
                json!({
                    "message": approve_text,
                    "approval_id": ONE_TEXT,
                    "amount_units": 11,
                    "require_approval_above_units": 10,
                }),
            ),
            (
                escalation(Some(AskingRule {
                    id: RuleId::from_uuid(ONE),
                    above: units(7),
                })),
                402,
                ["escalate", "approval_required", "approval_required"],
                json!({
                    "message": approve_text,
                    "approval_id": ONE_TEXT,
                    "amount_units": 11,
                    "require_approval_above_units": 10,
                    "rule_id": ONE_TEXT,
                    "rule_above_units": 7,
                }),
            ),
            (
                Reason::InsufficientBalance {
                    balance: units(250_000),
                    required: units(1_500_000),
                    wallet,
                },
                402,
                ["block", "insufficient_usdc_balance", "usdc_balance"],
                json!({
                    "message": "the wallet holds 0.25 USDC and the call costs 1.5; \
                        fund 0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC",
                    "balance_usdc": "0.25",
                    "required_usdc": "1.5",
                    "wallet_address": "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC",
                }),
            ),
        ];
        for (reason, expected_status, [result, text, rule], context) in rows {
            let slug = reason.slug();
            let (status, _, body) = answer(refused(reason)).await;
            let decision = json!({"result": result, "reason": text, "rule_triggered": rule});
            assert_eq!(
                (status, body),
                (expected_status, refusal_body(slug, &context, &decision))
            );
            assert_described(status, slug);
        }
    }

    #[tokio::test]
    async fn every_block_says_which_rule_and_why() {
        let at = Timestamp::from_micros(1_795_223_340_000_001).unwrap();
        let budget = |retry_at| Block::Budget {
            rule: RuleId::from_uuid(ONE),
            limit: units(50),
            used: units(40),
            retry_at,
        };
        let budget_text = "40 units of a budget of 50 are used; this call would exceed it";
        let over_budget = format!("budget_limit:{ONE_TEXT}");
        let rows = [
            (
                Block::AgentFrozen,
                "this agent is frozen; its owner can unfreeze it in the dashboard",
                json!({"reason": "agent_frozen", "rule_triggered": "agent_frozen"}),
            ),
            (
                Block::Category(Category::Finance),
                "a rule blocks the category `finance`",
                json!({"reason": "category_block:finance", "rule_triggered": "category_block"}),
            ),
            (
                Block::Vendor(ServiceSlug::parse("lab-weather").unwrap()),
                "`lab-weather` is not among the vendors that a rule allows",
                json!({"reason": "vendor_allowlist:lab-weather", "rule_triggered": "vendor_allowlist"}),
            ),
            (
                Block::PayeeNotInCatalog,
                "the offer pays another wallet than the operation's in the catalog",
                json!({"reason": "vendor_allowlist:pay_to_not_in_catalog", "rule_triggered": "vendor_allowlist"}),
            ),
            (
                Block::Unpayable(Unpayable::NoPayment),
                "the catalog lists no payment for this operation, so no call of it is paid",
                json!({"reason": "vendor_allowlist:operation_has_no_payment", "rule_triggered": "vendor_allowlist"}),
            ),
            (
                Block::Unpayable(Unpayable::OtherNetwork),
                "the catalog lists a payment on another network for this operation",
                json!({
                    "reason": "vendor_allowlist:operation_is_paid_on_another_network",
                    "rule_triggered": "vendor_allowlist",
                }),
            ),
            (
                Block::Unpayable(Unpayable::NoMaximum),
                "this operation has no fixed price, and the catalog no maximum for it",
                json!({"reason": "vendor_allowlist:operation_has_no_maximum_price", "rule_triggered": "vendor_allowlist"}),
            ),
            (
                Block::PayeeIsPayer,
                "the offer pays the agent's own wallet",
                json!({"reason": "vendor_allowlist:pay_to_is_own_wallet", "rule_triggered": "vendor_allowlist"}),
            ),
            (
                Block::PriceAboveCatalog { max: units(10) },
                "the offer asks more than the 10 units that the catalog lets it cost",
                json!({"reason": "vendor_allowlist:price_above_catalog_maximum", "rule_triggered": "vendor_allowlist"}),
            ),
            (
                budget(Fits::At(at)),
                budget_text,
                json!({
                    "reason": over_budget,
                    "rule_triggered": "budget_limit",
                    "retry_at": "2026-11-21T01:09:00.000001Z",
                }),
            ),
            (
                budget(Fits::Never),
                budget_text,
                json!({
                    "reason": over_budget,
                    "rule_triggered": "budget_limit",
                    "retry_at": null,
                }),
            ),
            (
                Block::TooManyApprovals { limit: 20 },
                "20 questions of this agent's wait for a person already; wait until some are answered",
                json!({"reason": "too_many_open_approvals", "rule_triggered": "approval_required"}),
            ),
            (
                Block::ApprovalRejected,
                "the approval was rejected",
                json!({"reason": "approval_rejected", "rule_triggered": "approval_required"}),
            ),
            (
                Block::ApprovalExpired,
                "the approval has expired; ask again with a new `idempotency_key` and without `approval_id`",
                json!({"reason": "approval_expired", "rule_triggered": "approval_required"}),
            ),
            (
                Block::ApprovalMismatch,
                "the approval is for another request; repeat the approved one unchanged",
                json!({"reason": "approval_request_mismatch", "rule_triggered": "approval_required"}),
            ),
        ];
        for (block, message, mut decision) in rows {
            decision["result"] = json!("block");
            let (status, _, body) = answer(refused(Reason::PolicyBlocked(block))).await;
            let expected = refusal_body("policy_blocked", &json!({"message": message}), &decision);
            assert_eq!((status, body), (403, expected));
        }
    }

    fn refused(reason: Reason) -> ErrorKind {
        let none = Check {
            name: CheckName::Balance,
            outcome: CheckOutcome::Unknown,
            limit: None,
            used: None,
            remaining: None,
        };
        let checks = vec![
            Check {
                name: CheckName::ServiceEnabled,
                outcome: CheckOutcome::Passed,
                ..none
            },
            Check {
                name: CheckName::Day,
                outcome: CheckOutcome::Failed,
                limit: Some(units(50)),
                used: Some(units(40)),
                remaining: Some(units(10)),
            },
            Check {
                name: CheckName::Approval,
                outcome: CheckOutcome::Lifted,
                ..none
            },
            none,
        ];
        let transaction = TransactionId::from_uuid(Uuid::from_u128(2));
        ErrorKind::Refused(Box::new(Refusal {
            transaction,
            reason,
            checks,
            latency_ms: 3,
        }))
    }

    /// What all refusals have in common, with what one has on top of it.
    fn refusal_body(slug: &str, context: &Value, decision: &Value) -> Value {
        let mut body = json!({
            "error": slug,
            "transaction_id": TWO_TEXT,
            "decision": {
                "latency_ms": 3,
                "checks": [
                    {"name": "service_enabled", "outcome": "passed", "passed": true, "limit": null, "used": null,
                        "remaining": null},
                    {"name": "max_per_day_units", "outcome": "failed", "passed": false, "limit": 50, "used": 40,
                        "remaining": 10},
                    {"name": "approval", "outcome": "lifted", "passed": true, "limit": null, "used": null,
                        "remaining": null},
                    {"name": "usdc_balance", "outcome": "unknown", "passed": null, "limit": null, "used": null,
                        "remaining": null},
                ],
            },
        });
        for (name, value) in decision.as_object().unwrap() {
            body["decision"][name] = value.clone();
        }
        for (name, value) in context.as_object().unwrap() {
            body[name] = value.clone();
        }
        body
    }

    #[tokio::test]
    async fn a_page_tells_of_a_failure_in_its_own_words() {
        let kinds = [
            (ErrorKind::InvalidSession, 401, Some("Bearer"), None),
            (ErrorKind::TooManyRequests { retry_after: 7 }, 429, None, Some("7")),
        ];
        for (kind, status, scheme, wait) in kinds {
            let slug = kind.slug();
            let response = Failure::from(kind).page(Html("<p>no</p>"));
            let headers = response.headers().clone();
            let header = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap());
            assert_eq!(response.status().as_u16(), status);
            assert_eq!(header(header::CONTENT_TYPE), Some("text/html; charset=utf-8"));
            assert_eq!(header(header::WWW_AUTHENTICATE), scheme);
            assert_eq!(header(header::RETRY_AFTER), wait);
            let failure = response.extensions().get::<Failure>().unwrap();
            assert_eq!(failure.error().kind().slug(), slug);
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(&body[..], b"<p>no</p>");
        }
    }

    #[tokio::test]
    async fn the_cause_of_an_error_never_reaches_the_caller() {
        let error = Error::internal("reading the policy", "table `ledger` is on fire");
        let (status, _, body) = answer(ErrorKind::Internal).await;
        let response = Failure::from(error).into_response();
        assert_eq!(response.status().as_u16(), status);
        let told = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(serde_json::from_slice::<Value>(&told).unwrap(), body);
    }
}
