//! Shared HTTP and Lambda code of all functions: the error envelope with its status codes, middleware, authentication,
//! client addresses, the clock and entropy of handlers, configuration, and startup.
//!
//! A function's crate builds an axum router and passes it to [`with_middleware`]. Lambda serves this router
//! ([`serve`]), and the local stack mounts the same router, so both run the same code. This crate does not depend on
//! DynamoDB or the chain, and makes no decisions about money.

#![cfg_attr(
    test,
    expect(clippy::arithmetic_side_effects, reason = "tests calculate what they expect")
)]

mod auth;
mod http;
mod lambda;
mod telemetry;
#[cfg(test)]
mod test_clients;
mod view;

pub use auth::agent_credentials::{AgentCredentials, read_key};
pub use auth::issuer::OidcMetadata;
pub use auth::operator::{InternalTokens, Operator, OperatorCredentials};
pub use auth::refusals::RefusalLimit;
pub use auth::session::{
    AuthorizationCode, EntitlementCheck, IdToken, MailClaim, Person, SessionSettings, SessionToken, Sessions,
};
pub use http::arguments::{Body, FromQuery, Id, OptionalBody, Parameters, PathId, QueryOf, path_parameter};
pub use http::asserted_ip::{ASSERTED_IP, AssertionKeySet, AssertionKeys, with_asserted_ip};
pub use http::body;
pub use http::body::{Member, Nullable, Place, Problems, Schemas, json_body, json_body_around};
pub use http::client::{http, outward_http};
pub use http::client_ip::{GatewayContext, ThrottleScope, client_ip, domain_name};
pub use http::envelope::{ErrorBody, ProblemView};
pub use http::errors;
pub use http::etag::{Cacheable, holds_tag};
pub use http::failure::{Failure, Reply};
pub use http::field::{CalledUrl, Field, HttpMethod, Listed, Price, ShownText, Text, WEB, seconds};
pub use http::openapi::{AGENT_KEY, INTERNAL_TOKEN, SESSION, document};
pub use http::operation::{Argument, Arguments, OperationDescription, describe_route};
pub use http::outward::{AllowedHosts, client_for_any, client_for_public};
pub use http::payment_body::{
    AuthorizeBody, AuthorizeRequest, CheckBody, CheckRequest, CompleteBody, CompleteRequest, PAYMENT_RESPONSE,
    ProviderProof, REQUIREMENT, RaiseBody, RaiseCall, UnpaidCheckBody, UnpaidCheckRequest, as_first_made,
};
pub use http::precondition::{IfMatch, OptionalIfMatch, Precondition, VersionTag, with_etag};
pub use http::public_address::{NameRefused, may_be_public};
pub use http::query::Query;
pub use http::request_id::RequestId;
pub use http::router::{ApiSettings, with_middleware};
pub use http::routes::add_route;
pub use http::same_origin::same_origin;
pub use http::source::{audit_refusal, request_source};
pub use http::untrusted_http_client::{UntrustedHttpClient, WebhookCallResult};
pub use lambda::at_most::at_most;
pub use lambda::background::Background;
pub use lambda::boot::{
    Boot, BootError, log_stop, log_to, serve, serve_both, serve_with_stage, start_logging, start_logging_to,
};
pub use lambda::clock::Clock;
pub use lambda::deliveries::{DeliveriesQueue, DeliveryMessage, DeliveryOf, WebhookRequest, WebhookRequestsQueue};
pub use lambda::direct::{
    AskedWallet, AttestWallet, AttestedWallet, CallerIds, DIRECT_PATH, Direct, PaymentsRequest, Routers, answer_either,
};
pub use lambda::env::{CustodyKind, Env, EnvError};
pub use lambda::gateway::{GatewayAnswer, GatewayEvent, answer, answer_any};
pub use lambda::invoke::{InternalFunction, PaymentsFunction};
pub use lambda::notices::{NoticeOf, NoticeRequest, NoticeRequestsQueue, NoticeWork, NoticesQueue};
pub use lambda::operators::{BrowserAct, FreezeOf, OperationAt, OperatorAct, OperatorAnswer, PinnedPayment};
pub use lambda::payouts::{AskedPayout, NamedPayoutAddress, PayoutAnswer, PayoutOwner, ReservedPayout};
pub use lambda::random::{Entropy, random};
pub use lambda::schedule::serve_schedule;
pub use lambda::secrets::Secrets;
pub use lambda::secrets_key::SecretsKey;
pub use lambda::sqs::{MessageResult, SqsBatch, SqsRecord};
pub use telemetry::trace_id::TraceId;
pub use view::approval::{ApprovalView, RaiseView};
pub use view::audit::{AuditList, AuditParameters, AuditView, DateOrTime, audit_filter, from_to};
pub use view::call::CallView;
pub use view::decision::{CheckView, DecisionView};
pub use view::labels::labels_by_key;
pub use view::policy::PolicyView;
pub use view::rule::RuleView;
pub use view::settlement::SettlementRow;
pub use view::spend::{BudgetView, SpendView};
