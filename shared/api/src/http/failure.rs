//! Maps each kind of error to an HTTP status. All status codes of errors are in this file.
//!
//! The response's extensions contain the error, so that `router.rs` logs the cause once, at the end of the request.

use crate::http::envelope::ErrorBody;
use axum::{
    Json,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use purser_domain::{Error, ErrorKind, KeyLack, Reason};
use std::sync::Arc;

/// The result of a handler.
pub type Reply<T = Response> = Result<T, Failure>;

/// An error that becomes an HTTP response.
#[derive(Clone, Debug)]
pub struct Failure(Arc<Error>);

impl Failure {
    /// Returns the error that determines the status and the body of the response.
    pub fn error(&self) -> &Error {
        &self.0
    }

    /// Returns the HTTP status for the error's kind.
    pub fn status(&self) -> StatusCode {
        error_status(self.0.kind())
    }

    /// Builds a response with `page` instead of the JSON envelope. The status, the headers and the log line stay the
    /// same.
    pub fn into_page_response(self, page: impl IntoResponse) -> Response {
        let mut response = page.into_response();
        *response.status_mut() = self.status();
        self.add_headers(response.headers_mut());
        response.extensions_mut().insert(self);
        response
    }

    fn add_headers(&self, headers: &mut HeaderMap) {
        if let Some(scheme) = authentication_scheme(self.0.kind()) {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
        }
        if let Some(seconds) = retry_after_secs(self.0.kind()) {
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

/// Returns the `WWW-Authenticate` challenge (RFC 9110 §11.6.1): for a 401, or a key without `read` or `pay`.
fn authentication_scheme(kind: &ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::InvalidAgentKey | ErrorKind::InvalidAuthorizationHeader | ErrorKind::InvalidSession => {
            Some("Bearer")
        }
        // `scope` names the missing permission, so that the agent's host can ask the user for it (RFC 6750 §3.1).
        ErrorKind::KeyNotAllowed { missing: KeyLack::Read } => {
            Some(r#"Bearer error="insufficient_scope", scope="read""#)
        }
        ErrorKind::KeyNotAllowed { missing: KeyLack::Pay } => Some(r#"Bearer error="insufficient_scope", scope="pay""#),
        // Not a registered scheme, because operators send the token in a separate header.
        ErrorKind::InvalidInternalToken => Some("InternalToken"),
        _ => None,
    }
}

fn retry_after_secs(kind: &ErrorKind) -> Option<u64> {
    match kind {
        ErrorKind::TooManyRequests { retry_after }
        | ErrorKind::TemporarilyUnavailable { retry_after }
        | ErrorKind::SettlementNotYetVerified { retry_after, .. }
        | ErrorKind::ChainUnavailable { retry_after } => Some(*retry_after),
        _ => None,
    }
}

fn error_status(kind: &ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::InvalidRequest(_) | ErrorKind::FieldRequired { .. } => StatusCode::BAD_REQUEST,
        ErrorKind::InvalidAgentKey
        | ErrorKind::InvalidAuthorizationHeader
        | ErrorKind::InvalidSession
        | ErrorKind::InvalidInternalToken => StatusCode::UNAUTHORIZED,
        ErrorKind::NotEntitled { .. }
        | ErrorKind::RecentSignInRequired { .. }
        | ErrorKind::SecondOperatorRequired
        | ErrorKind::CrossSiteRequest
        | ErrorKind::KeyNotAllowed { .. } => StatusCode::FORBIDDEN,
        ErrorKind::Refused(rejection) => rejection_status(&rejection.reason),
        ErrorKind::UnpaidRefused(rejection) => rejection_status(&rejection.reason),
        ErrorKind::ServiceNotFound | ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::IdempotencyKeyReused { .. }
        | ErrorKind::IdempotentReplay { .. }
        | ErrorKind::SettlementTransactionAlreadyUsed
        | ErrorKind::ApprovalNotPending { .. }
        | ErrorKind::PayoutRefused(_)
        | ErrorKind::SlugTaken { .. }
        | ErrorKind::TooManyFreezes { .. } => StatusCode::CONFLICT,
        ErrorKind::VersionConflict { .. } => StatusCode::PRECONDITION_FAILED,
        ErrorKind::VersionRequired => StatusCode::PRECONDITION_REQUIRED,
        ErrorKind::RequestTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorKind::ProviderProofRequired
        | ErrorKind::SettlementTransactionHashRequired(_)
        | ErrorKind::SettlementNotVerified { .. }
        | ErrorKind::SettlementNotYetVerified { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorKind::TooManyRequests { .. } => StatusCode::TOO_MANY_REQUESTS,
        ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        ErrorKind::ChainUnavailable { .. } | ErrorKind::TemporarilyUnavailable { .. } => {
            StatusCode::SERVICE_UNAVAILABLE
        }
    }
}

fn rejection_status(reason: &Reason) -> StatusCode {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errors;
    use axum::http::HeaderName;
    use axum::response::Html;
    use http_body_util::BodyExt as _;
    use purser_domain::{
        Amount, ApprovalId, ApprovalStatus, AskingKind, AskingLimit, Block, Category, Check, CheckName, CheckOutcome,
        DomainPattern, Duration, Freeze, KeyLack, NoTransaction, OperationSlug, Refusal, RetryAt, RuleId, ServiceId,
        ServiceSlug, SettlementId, Timestamp, TransactionId, UnlistedCall, Unpayable, ValidationError,
        WithdrawalRejection,
    };
    use serde_json::{Value, json};
    use uuid::Uuid;

    const ONE: Uuid = Uuid::from_u128(1);
    const TWO: Uuid = Uuid::from_u128(2);

    async fn answer(kind: ErrorKind) -> (u16, HeaderMap, Value) {
        let response = Failure::from(kind).into_response();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, headers, serde_json::from_slice(&body).unwrap())
    }

    fn units(units: u64) -> Amount {
        Amount::from_units(units).unwrap()
    }

    fn problem(path: &str) -> ValidationError {
        ValidationError::at_path(path, "must be so")
    }

    fn kinds() -> Vec<ErrorKind> {
        let field = "payment_requirement";
        let missing = |path: &str| ErrorKind::FieldRequired {
            field,
            problems: vec![ValidationError::at_path(path, "is required")],
        };
        let approval = ApprovalId::from_uuid(ONE);
        let settlement = SettlementId::from_uuid(TWO);
        let at = Timestamp::from_micros(1_795_223_340_000_001).unwrap();
        let not_pending = |status| ErrorKind::ApprovalNotPending { approval, status };
        vec![
            ErrorKind::InvalidRequest(vec![problem("/a"), problem("")]),
            missing("/payment_requirement"),
            // The missing field is nested, so the error slug can't contain the field's name.
            missing("/a/payment_requirement"),
            ErrorKind::InvalidAgentKey,
            ErrorKind::InvalidAuthorizationHeader,
            ErrorKind::InvalidSession,
            ErrorKind::InvalidInternalToken,
            ErrorKind::NotEntitled {
                claim: "groups".to_owned(),
            },
            ErrorKind::RecentSignInRequired { max_age_seconds: 600 },
            ErrorKind::SecondOperatorRequired,
            ErrorKind::CrossSiteRequest,
            KeyLack::Read.into(),
            KeyLack::Pay.into(),
            KeyLack::Service.into(),
            KeyLack::Network.into(),
            KeyLack::Run.into(),
            ErrorKind::ServiceNotFound,
            ErrorKind::NotFound,
            ErrorKind::IdempotencyKeyReused { settlement: None },
            ErrorKind::IdempotencyKeyReused {
                settlement: Some(settlement),
            },
            ErrorKind::IdempotentReplay { approval, settlement },
            ErrorKind::SettlementTransactionAlreadyUsed,
            not_pending(ApprovalStatus::Executed),
            not_pending(ApprovalStatus::Expired),
            ErrorKind::PayoutRefused(WithdrawalRejection::NotSetUp),
            ErrorKind::PayoutRefused(WithdrawalRejection::NoAddress),
            ErrorKind::PayoutRefused(WithdrawalRejection::AddressWaits { good_from: at }),
            ErrorKind::PayoutRefused(WithdrawalRejection::PayoutOpen { settlement, until: at }),
            ErrorKind::PayoutRefused(WithdrawalRejection::InsufficientBalance {
                balance: units(250_000),
            }),
            ErrorKind::SlugTaken {
                service: ServiceId::from_uuid(ONE),
            },
            ErrorKind::TooManyFreezes { limit: 40 },
            ErrorKind::VersionConflict { version: 7 },
            ErrorKind::VersionConflict { version: 0 },
            ErrorKind::RequestTooLarge { limit: 65_536 },
            ErrorKind::ProviderProofRequired,
            ErrorKind::SettlementTransactionHashRequired(NoTransaction::Unnamed),
            ErrorKind::SettlementTransactionHashRequired(NoTransaction::Undecodable),
            ErrorKind::SettlementNotVerified {
                reason: "usdc_transfer_mismatch",
            },
            ErrorKind::VersionRequired,
            ErrorKind::TooManyRequests { retry_after: 7 },
            ErrorKind::Internal,
            ErrorKind::TemporarilyUnavailable { retry_after: 1 },
            ErrorKind::SettlementNotYetVerified {
                reason: "not_mined",
                retry_after: 2,
            },
            ErrorKind::ChainUnavailable { retry_after: 2 },
        ]
    }

    fn reasons() -> Vec<Reason> {
        let at = Timestamp::from_micros(1_795_223_340_000_001).unwrap();
        let operation = |slug| OperationSlug::parse(slug).unwrap();
        let service = || ServiceSlug::parse("lab-weather").unwrap();
        let daily = |retry_at| Reason::DailyLimit {
            spend_today: units(40),
            amount: units(11),
            max_per_day: units(50),
            retry_at,
        };
        let escalation = |limit: Option<AskingLimit>| Reason::ApprovalRequired {
            approval: Some(ApprovalId::from_uuid(ONE)),
            amount: units(11),
            threshold: units(10),
            asking: limit.into_iter().collect(),
        };
        let budget = |retry_at| Block::Budget {
            rule: RuleId::from_uuid(ONE),
            limit: units(50),
            used: units(40),
            retry_at,
        };
        let blocks = [
            Block::AgentFrozen(Freeze::Own),
            Block::AgentFrozen(Freeze::Agent),
            Block::AgentFrozen(Freeze::Owner),
            Block::AgentFrozen(Freeze::Deployment),
            Block::Category(Category::Finance),
            Block::Vendor(service()),
            Block::PayeeNotInCatalog,
            Block::PayeeTooYoung { retry_at: at },
            Block::Unpayable(Unpayable::NoPayment),
            Block::Unpayable(Unpayable::OtherNetwork),
            Block::Unpayable(Unpayable::NoMaximum),
            Block::Unpayable(Unpayable::PlainHttp),
            Block::PayeeIsPayer,
            Block::PriceAboveCatalog { max: units(10) },
            budget(RetryAt::At(at)),
            budget(RetryAt::Never),
            Block::Schedule {
                rule: RuleId::from_uuid(ONE),
                retry_at: RetryAt::At(at),
            },
            Block::Count {
                rule: RuleId::from_uuid(ONE),
                count: units(5),
                used: units(5),
                retry_at: RetryAt::At(at),
            },
            Block::Interval {
                rule: RuleId::from_uuid(ONE),
                interval: Duration::from_secs_u32(60),
                retry_at: RetryAt::At(at),
            },
            Block::Duplicate {
                rule: RuleId::from_uuid(ONE),
                within: Duration::from_secs_u32(60),
                retry_at: at,
            },
            Block::PriceAboveUsual {
                rule: RuleId::from_uuid(ONE),
                most: units(10),
            },
            Block::TooManyApprovals { limit: 20 },
            Block::ApprovalRejected,
            Block::ApprovalExpired,
            Block::ApprovalMismatch,
        ];
        let reasons = [
            Reason::ServiceNotEnabled { service: service() },
            Reason::OperationNotEnabled {
                operation: Some(operation("weather.history")),
                enabled: Some(vec![operation("weather.current")]),
                unlisted: None,
            },
            Reason::OperationNotEnabled {
                operation: None,
                enabled: None,
                unlisted: Some(Box::new(UnlistedCall {
                    service: service(),
                    called: "POST https://lab.test/weather".to_owned(),
                    listed: ["GET https://lab.test/weather", "GET https://lab.test/tides"]
                        .map(str::to_owned)
                        .to_vec(),
                })),
            },
            Reason::DomainNotAllowed {
                hostname: "evil.test".to_owned(),
                allowed: vec![DomainPattern::parse("*.example.com").unwrap()],
            },
            Reason::AmountExceedsMax {
                amount: units(11),
                max_payment: units(10),
            },
            Reason::PerCallLimit {
                amount: units(11),
                max_per_call: units(10),
            },
            daily(RetryAt::At(at)),
            daily(RetryAt::Never),
            escalation(None),
            escalation(Some(AskingLimit {
                rule: Some(RuleId::from_uuid(ONE)),
                above: units(7),
                kind: AskingKind::ApprovalRequired,
            })),
            escalation(Some(AskingLimit {
                rule: Some(RuleId::from_uuid(ONE)),
                above: Amount::ZERO,
                kind: AskingKind::NewPayee,
            })),
            Reason::InsufficientBalance {
                balance: units(250_000),
                required: units(1_500_000),
                wallet: "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC".parse().unwrap(),
            },
        ];
        reasons.into_iter().chain(blocks.map(Reason::PolicyBlocked)).collect()
    }

    /// `failure.jsonl` contains one response per line.
    #[tokio::test]
    async fn every_error_kind_has_its_documented_response() {
        let refusals = reasons().into_iter().map(refused);
        let mut lines = include_str!("failure.jsonl").lines();
        for kind in kinds().into_iter().chain(refusals) {
            let slug = kind.slug();
            let (status, headers, mut body) = answer(kind).await;
            if let Some(decision) = body.get_mut("decision").and_then(Value::as_object_mut) {
                assert_eq!(decision.remove("checks"), Some(checks()));
            }
            let header = |name| headers.get(name).map(|value| value.to_str().unwrap());
            let told = json!({
                "status": status,
                "challenge": header(header::WWW_AUTHENTICATE),
                "retry_after": header(header::RETRY_AFTER),
                "body": body,
            });
            let line = lines.next().unwrap_or_default();
            assert_eq!(serde_json::from_str::<Value>(line).ok(), Some(told.clone()), "{told}");
            let slug = slug.replace("payment_requirement_required", "<field>_required");
            let described = errors::ALL
                .iter()
                .any(|error| (error.status, error.slug) == (status, slug.as_str()));
            assert!(described, "{slug} at {status}");
        }
        assert_eq!(lines.next(), None);
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
                outcome: CheckOutcome::Waived,
                ..none
            },
            none,
        ];
        let transaction = TransactionId::from_uuid(TWO);
        ErrorKind::Refused(Box::new(Refusal {
            transaction,
            reason,
            checks,
            hash: None,
            latency_ms: 3,
        }))
    }

    /// Returns the checks of the rejected payments in these tests.
    fn checks() -> Value {
        json!([
            {"name": "service_enabled", "outcome": "passed", "passed": true, "limit": null, "used": null, "remaining": null},
            {"name": "max_per_day_units", "outcome": "failed", "passed": false, "limit": 50, "used": 40, "remaining": 10},
            {"name": "approval", "outcome": "lifted", "passed": true, "limit": null, "used": null, "remaining": null},
            {"name": "usdc_balance", "outcome": "unknown", "passed": null, "limit": null, "used": null, "remaining": null},
        ])
    }

    #[tokio::test]
    async fn failure_pages_keep_their_html_status_and_headers() {
        let kinds = [
            (ErrorKind::InvalidSession, 401, Some("Bearer"), None),
            (ErrorKind::TooManyRequests { retry_after: 7 }, 429, None, Some("7")),
        ];
        for (kind, status, scheme, wait) in kinds {
            let slug = kind.slug();
            let response = Failure::from(kind).into_page_response(Html("<p>no</p>"));
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
    async fn internal_error_causes_never_reach_the_caller() {
        let error = Error::internal("reading the policy", "table `ledger` is on fire");
        let (status, _, body) = answer(ErrorKind::Internal).await;
        let response = Failure::from(error).into_response();
        assert_eq!(response.status().as_u16(), status);
        let told = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(serde_json::from_slice::<Value>(&told).unwrap(), body);
    }
}
