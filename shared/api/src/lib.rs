//! HTTP and Lambda code of all functions: errors, middleware, authentication, configuration and startup.
//!
//! A function's crate builds an axum router and passes it to [`with_middleware`]. Lambda serves this router
//! ([`serve`]), and the local stack mounts the same router. This crate does not depend on DynamoDB or the chain, and
//! makes no decisions about money.

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
pub use auth::refusals::RejectionLimit;
pub use auth::session::{
    AuthorizationCode, EntitlementCheck, IdToken, MailClaim, Person, SessionSettings, SessionToken, Sessions,
};
pub use http::arguments::{Body, FromQuery, Id, OptionalBody, Parameters, PathId, QueryOf, path_parameter};
pub use http::asserted_ip::{ASSERTED_IP, AssertionKeySet, AssertionKeys, with_asserted_ip_layer};
pub use http::body;
pub use http::body::{
    BodyPath, Member, Nullable, Schemas, ValidationErrors, parse_json_body, parse_json_body_with_raw_field,
};
pub use http::client::{pooled_http_client, public_address_http_client};
pub use http::client_ip::{GatewayContext, ThrottleScope, client_ip, domain_name};
pub use http::envelope::{ErrorBody, ProblemView};
pub use http::errors;
pub use http::etag::{Cacheable, matches_if_none_match};
pub use http::failure::{Failure, Reply};
pub use http::field::{
    CalledUrl, Field, HttpMethod, Listed, Number, Price, RuleSeconds, ShownText, Text, WEB, parse_seconds,
};
pub use http::openapi::{AGENT_KEY, INTERNAL_TOKEN, SESSION, merge_documents};
pub use http::operation::{Argument, Arguments, OperationDescription, describe_route};
pub use http::outward::{AllowedHosts, any_address_client_builder, public_address_client_builder};
pub use http::payment_body::{
    AuthorizeBody, AuthorizeRequest, CheckBody, CheckRequest, CompleteBody, CompleteRequest, LimitIncreaseCall,
    PAYMENT_RESPONSE, ProviderProof, REQUIREMENT, RaiseBody, UnpaidCheckBody, UnpaidCheckRequest,
    intent_with_earlier_requirements,
};
pub use http::precondition::{IfMatch, OptionalIfMatch, Precondition, VersionTag, with_etag};
pub use http::public_address::{RejectedHostName, may_be_public};
pub use http::query::Query;
pub use http::request_id::RequestId;
pub use http::router::{ApiSettings, has_access_token, with_middleware};
pub use http::routes::add_route;
pub use http::same_origin::require_same_origin;
pub use http::source::{rejection_for_audit, request_source};
pub use http::untrusted_http_client::{UntrustedHttpClient, WebhookCallResult};
pub use lambda::at_most::run_with_concurrency_limit;
pub use lambda::background::Background;
pub use lambda::boot::{
    Boot, BootError, log_fatal_error, log_to, serve, serve_all_events, serve_with_stage_variable, start_logging,
    start_logging_to,
};
pub use lambda::clock::Clock;
pub use lambda::deliveries::{DeliveriesQueue, DeliveryMessage, DeliveryOf, WebhookRequest, WebhookRequestsQueue};
pub use lambda::direct::{
    AttestWallet, AttestedWallet, CallerIds, DirectRequest, DirectUser, RequestedWallet, ReservedWithdrawal, Routers,
    handle_gateway_or_direct_event,
};
pub use lambda::env::{CustodyKind, Env, EnvError};
pub use lambda::gateway::{GatewayEvent, GatewayResponse, handle_any_event, handle_gateway_event};
pub use lambda::invoke::{Attempts, InvokedFunction};
pub use lambda::notices::{
    NotificationRequest, NotificationRequestsQueue, NotificationSource, NotificationWork, NotificationsQueue,
};
pub use lambda::random::{Entropy, random_bytes};
pub use lambda::schedule::serve_schedule;
pub use lambda::secrets::Secrets;
pub use lambda::secrets_key::SecretsKey;
pub use lambda::sqs::{MessageResult, SqsBatch, SqsRecord};
pub use purser_macros::{endpoint, settings, view, views};
pub use telemetry::trace_id::TraceId;
pub use view::approval::{ApprovalView, RaiseView};
pub use view::audit::{AuditList, AuditParameters, AuditView, DateOrTime, parse_audit_filter, parse_time_range};
pub use view::call::CallView;
pub use view::decision::{CheckView, DecisionView};
pub use view::labels::labels_by_key;
pub use view::policy::PolicyView;
pub use view::rule::RuleView;
pub use view::settlement::SettlementRow;
pub use view::spend::{BudgetView, SpendView};
