//! Arguments of handlers that describe themselves in the OpenAPI document: the body, an id in the path, and the query.

use crate::http::operation::{Argument, OperationDescription};
use crate::{Failure, Member, Query, parse_json_body};
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request, rejection::BytesRejection};
use axum::http::request::Parts;
use bytes::Bytes;
use purser_domain::{
    AgentId, ApprovalId, BacktestId, DeliveryId, ErrorKind, KeyId, OperationUuid, Result, RuleId, ServiceId,
    SettlementId, TemplateName, TransactionId, UserId, WebhookId,
};
use serde_json::{Map, Value};
use std::convert::Infallible;
use std::marker::PhantomData;
use utoipa::openapi::path::ParameterIn;
use utoipa::{IntoParams, ToSchema};

/// A JSON body. The handler parses it after authentication, so that an unauthenticated caller gets 401.
pub struct Body<T>(Bytes, PhantomData<fn() -> T>);

impl<T> Body<T> {
    /// Returns the body as the caller sent it, before parsing.
    pub const fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// Parses the JSON without validating the fields.
    pub fn json(&self) -> Result<Value> {
        parse_json_body(&self.0)
    }
}

impl<T: Member> Body<T> {
    /// Parses and validates the body.
    pub fn parse(&self) -> Result<T> {
        T::parse(&self.json()?)
    }
}

impl<T, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = BytesRejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, BytesRejection> {
        Ok(Self(Bytes::from_request(request, state).await?, PhantomData))
    }
}

impl<T: ToSchema> Argument for Body<T> {
    fn describe(operation: &mut OperationDescription) {
        operation.set_body::<T>(true);
    }
}

/// A JSON body that the client may omit. An absent body counts as `{}`.
pub struct OptionalBody<T>(Body<T>);

impl<T> OptionalBody<T> {
    /// Parses the JSON without validating the fields.
    pub fn json(&self) -> Result<Value> {
        if self.0.bytes().is_empty() {
            return Ok(Value::Object(Map::new()));
        }
        self.0.json()
    }
}

impl<T: Member> OptionalBody<T> {
    /// Parses and validates the body.
    pub fn parse(&self) -> Result<T> {
        T::parse(&self.json()?)
    }
}

impl<T, S: Send + Sync> FromRequest<S> for OptionalBody<T> {
    type Rejection = BytesRejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, BytesRejection> {
        Body::from_request(request, state).await.map(Self)
    }
}

impl<T: ToSchema> Argument for OptionalBody<T> {
    fn describe(operation: &mut OperationDescription) {
        operation.set_body::<T>(false);
    }
}

/// An id in a route's path.
pub trait PathId: Sized {
    /// The name of the parameter in the path.
    const PARAMETER: &'static str;
    /// The parameter's description in the OpenAPI document.
    const DESCRIPTION: &'static str;
    /// Whether the OpenAPI schema of the parameter has the format `uuid`.
    const IS_UUID: bool;

    /// Parses the id. Returns `None` if the text is not an id.
    fn parse_id(text: &str) -> Option<Self>;
}

macro_rules! path_ids {
    ($($id:ident = $parameter:literal $(as $format:ident)?: $description:literal;)+) => {$(
        impl PathId for $id {
            const PARAMETER: &'static str = $parameter;
            const DESCRIPTION: &'static str = $description;
            const IS_UUID: bool = path_ids!(@is_uuid $($format)?);

            fn parse_id(text: &str) -> Option<Self> {
                Self::parse(text)
            }
        }
    )+};
    (@is_uuid Uuid) => { true };
    (@is_uuid) => { false };
}

path_ids! {
    AgentId = "agentId" as Uuid: "The agent.";
    ApprovalId = "approvalId": "The approval's `approval_id`.";
    BacktestId = "backtestId": "The `backtest_id` of a backtest that you started.";
    DeliveryId = "deliveryId": "The `delivery_id` of one of the webhook's deliveries.";
    KeyId = "keyId": "The `key_id` of a key.";
    OperationUuid = "operationId" as Uuid: "The operation's `id`. A slug is not accepted, because an update may change the slug.";
    UserId = "person": "The owner's ID, as shown on their sessions page.";
    RuleId = "ruleId": "The rule's `rule_id`, from `GET /agents/{agentId}/rules` or from an earlier version of the agent.";
    ServiceId = "serviceId" as Uuid: "The service's UUID. A slug is not accepted, because an update may change the slug.";
    SettlementId = "settlementId" as Uuid: "The settlement's `settlement_id`.";
    TemplateName = "templateName": "The name of one of your templates.";
    TransactionId = "transactionId": "The `transaction_id` of a decision about an agent that you owned at the time.";
    WebhookId = "webhookId": "The `webhook_id` of one of your webhooks.";
}

/// An id in the path, or 404 `not_found`. Must come after the caller's credentials, so that an unauthenticated caller
/// gets 401.
pub struct Id<T>(pub T);

impl<T: PathId, S: Send + Sync> FromRequestParts<S> for Id<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let id = path_parameter(parts, T::PARAMETER).await;
        let id = id.and_then(|text| T::parse_id(&text));
        Ok(Self(id.ok_or(ErrorKind::NotFound)?))
    }
}

impl<T: PathId> Argument for Id<T> {
    fn describe(operation: &mut OperationDescription) {
        operation.add_path_parameter(T::PARAMETER, T::DESCRIPTION, T::IS_UUID);
    }
}

/// Returns a parameter of the path; `None` if the path has no such parameter.
pub async fn path_parameter(parts: &mut Parts, name: &str) -> Option<String> {
    let parameters = RawPathParams::from_request_parts(parts, &()).await.ok()?;
    let mut parameters = parameters.iter().filter(|(known, _)| *known == name);
    parameters.next().map(|(_, text)| text.to_owned())
}

/// A type whose fields are the query parameters of a route.
pub trait FromQuery: IntoParams + Sized {
    /// Parses the parameters. `query` collects the validation errors.
    fn from_query(query: &mut Query) -> Self;
}

/// The parsed query, or the validation errors, which the handler reports after authentication.
pub struct Parameters<T>(pub Result<T>);

impl<T: FromQuery, S: Sync> FromRequestParts<S> for Parameters<T> {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let mut query = Query::from_uri(&parts.uri);
        let parameters = T::from_query(&mut query);
        Ok(Self(query.finish().map(|()| parameters)))
    }
}

impl<T: IntoParams> Argument for Parameters<T> {
    fn describe(operation: &mut OperationDescription) {
        QueryOf::<T>::describe(operation);
    }
}

/// The unparsed query of a list. `T` describes the parameters in the OpenAPI document.
pub struct QueryOf<T>(pub Query, pub PhantomData<fn() -> T>);

impl<T, S: Sync> FromRequestParts<S> for QueryOf<T> {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(Query::from_uri(&parts.uri), PhantomData))
    }
}

impl<T: IntoParams> Argument for QueryOf<T> {
    fn describe(operation: &mut OperationDescription) {
        for parameter in T::into_params(|| Some(ParameterIn::Query)) {
            operation.add_parameter(parameter);
        }
    }
}
