//! The errors in the OpenAPI document and in `docs/errors.md`. A route lists errors in `errors(…)` of
//! [`endpoint`](crate::endpoint), and each argument of the handler adds further errors (`operation.rs`).

use std::collections::BTreeMap;
use utoipa::IntoResponses;
use utoipa::openapi::{RefOr, Response};

/// The description of one error response in the OpenAPI document.
pub struct ErrorDescription {
    /// The name of the type that represents the error in `responses(…)`.
    pub(crate) name: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// The error slug, which is the field `error` of the response.
    pub slug: &'static str,
    /// When the error occurs, and what the caller should do.
    pub text: &'static str,
}

macro_rules! errors {
    ($($name:ident = $status:literal $slug:literal: $text:literal;)+) => {
        /// All errors, in the order of the HTTP status codes.
        pub const ALL: &[ErrorDescription] = &[
            $(ErrorDescription { name: stringify!($name), status: $status, slug: $slug, text: $text },)+
        ];

        $(
            #[doc = $text]
            pub struct $name;

            /// The code in `operation.rs` replaces this placeholder by the status and the text.
            impl IntoResponses for $name {
                fn responses() -> BTreeMap<String, RefOr<Response>> {
                    BTreeMap::from([(stringify!($name).to_owned(), RefOr::T(Response::default()))])
                }
            }
        )+
    };
}

errors! {
    InvalidRequest = 400 "invalid_request": "The JSON is malformed, or a field or query parameter is wrong or unknown. `details[]` lists every error with `path` (a JSON Pointer) and `message`.";
    FieldRequired = 400 "<field>_required": "A required field is missing or null. The error's slug starts with the name of the first missing field, for example `max_payment_units_required`.";
    InvalidAuthorizationHeader = 401 "invalid_authorization_header": "The `Authorization` header is repeated, or does not have the form `Bearer <public>:<secret>`.";
    InvalidAgentKey = 401 "invalid_agent_key": "The key is missing, malformed, unknown, revoked or expired. `GET /mcp/agents/me` tests a key.";
    InvalidSession = 401 "invalid_session": "The ID token is missing, repeated, malformed, expired, from another issuer or client, or from a sign-in before all your sessions were ended. Sign in again.";
    InvalidInternalToken = 401 "invalid_internal_token": "`X-Internal-Token` is missing, repeated or unknown.";
    AmountExceedsMax = 402 "amount_exceeds_max": "The price exceeds the request's `max_payment_units`.";
    AmountExceedsPerCallLimit = 402 "amount_exceeds_per_call_limit": "The price exceeds the cap per call.";
    DailySpendLimitExceeded = 402 "daily_spend_limit_exceeded": "The payment would exceed the cap on the amount authorized in the last 24 hours. Wait until `retry_at`; null means that the payment never fits.";
    ApprovalRequired = 402 "approval_required": "The policy or a rule requires the owner's approval, and nothing is reserved. Call `GET /approvals/{id}?wait_seconds=20` until `approved`, then repeat the request with `approval_id`.";
    InsufficientUsdcBalance = 402 "insufficient_usdc_balance": "The wallet has less than the price. Fund `wallet_address`.";
    KeyNotAllowed = 403 "key_not_allowed": "The key does not permit the call. `missing` names the missing permission: `network`, `read`, `pay`, `service` or `run` (to open a run). Use another key, or ask the owner for a key with this permission.";
    NotEntitled = 403 "not_entitled": "The ID token lacks the required value of `claim`. Ask the administrator of your account for access.";
    RecentSignInRequired = 403 "recent_sign_in_required": "The change requires a sign-in within the last `max_age_seconds` seconds. Sign in again with `max_age`, and repeat the request with the new ID token.";
    SecondOperatorRequired = 403 "second_operator_required": "You requested this change, so another operator must accept it. Without a second operator, the change takes effect at `from`.";
    CrossSiteRequest = 403 "cross_site_request": "The form was not sent from a page of Purser. Reload the page.";
    ServiceNotEnabled = 403 "service_not_enabled": "The service is not enabled for the agent. Ask the owner to enable the service.";
    OperationNotEnabledForAgent = 403 "operation_not_enabled_for_agent": "The policy does not enable the operation, or the catalog does not list it. `message` names similar operations.";
    DomainNotAllowed = 403 "domain_not_allowed": "The target's host is not in `allowed_domains`.";
    PolicyBlocked = 403 "policy_blocked": "A freeze, a rule, the catalog or the approval blocks the payment. `decision.reason` contains the reason. If waiting helps, the response contains `retry_at`.";
    NotFound = 404 "not_found": "The route or method is unknown, or the named object does not exist or belongs to another user.";
    ServiceNotFound = 404 "service_not_found": "The slug or UUID belongs to no available service. If the request has no slug and no UUID, no available service has an operation at the call's host.";
    IdempotentReplay = 409 "idempotent_replay": "A payment already used the approval. Read the receipt, or repeat the approved call with the same `idempotency_key` and **without** `approval_id` to get the same payment.";
    IdempotencyKeyReused = 409 "idempotency_key_reused_for_different_request": "The `idempotency_key` was already used for another request, or the `replay_key` was used for another request within the last day. Use a new key, or repeat the first request with the same price and payee.";
    SettlementTransactionAlreadyUsed = 409 "settlement_transaction_already_used": "The transaction already confirmed another settlement. Send the hash of the transaction that paid your settlement. If one transaction paid both settlements, Purser confirms your settlement after your settlement's `expires_at`.";
    ApprovalNotPending = 409 "approval_not_pending": "The approval is already `approved`, `rejected`, `expired` or `executed`.";
    PayoutRefused = 409 "payout_refused": "The withdrawal is not possible. `reason` contains the reason. If `retry_at` is present, repeat the request at that time.";
    SlugTaken = 409 "slug_taken": "Service `service_id` has the slug. Choose another slug.";
    TooManyFreezes = 409 "too_many_freezes": "At most 40 agents and 40 owners can be frozen. End a freeze, or freeze the owner or the deployment.";
    VersionConflict = 412 "version_conflict": "The object changed after you read it. `version` is the current version. Read the object again before you repeat the change.";
    RequestTooLarge = 413 "request_too_large": "The body exceeds `limit_bytes`.";
    ProviderProofRequired = 422 "provider_proof_required": "Send the provider's payment response as `payment_response_header`.";
    SettlementTransactionHashRequired = 422 "settlement_transaction_hash_required": "The payment response contains no transaction hash. Send the hash as `tx_hash`. If the provider has no hash, the provider did not settle the payment.";
    OnchainSettlementNotVerified = 422 "onchain_settlement_not_verified": "The chain does not confirm the payment. Don't pay again. If `retryable` is true, repeat the request after `retry_after` seconds. If `retryable` is false, send the hash of the right transaction.";
    VersionRequired = 428 "version_required": "`If-Match` is missing. Send the `ETag` of the object that you read, or `*`.";
    TooManyRequests = 429 "too_many_requests": "The address, key or user made too many requests in this minute. Repeat the request after `retry_after` seconds.";
    InternalError = 500 "internal_error": "Purser failed or did not finish in time. Repeat the request. If the error persists, report `request_id`.";
    TemporarilyUnavailable = 503 "temporarily_unavailable": "Concurrent calls conflict, or the database is throttled. Repeat the request after `retry_after` seconds, with the same `idempotency_key` if the request has one.";
    ChainUnavailable = 503 "onchain_settlement_not_verified": "The node does not respond, or serves another chain. Repeat the request after `retry_after` seconds. Don't pay again.";
}
