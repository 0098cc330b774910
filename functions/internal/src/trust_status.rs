//! `PUT /internal/services/{serviceId}/trust-status`: how far a service has been checked, as an operator says.

use crate::edit::{Condition, Edited, of_existing};
use crate::view::InternalService;
use crate::view::TrustStatusBody;
use crate::{Operators, id_in_path};
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::Response;
use purser_api::{Failure, IfMatch, InternalCaller, VersionTag};
use purser_domain::{Error, Fields, Result, Service, TrustStatus};
use std::sync::Arc;

purser_api::error_responses! {
    /// What this endpoint may be refused with.
    pub(crate) TrustStatusErrors: 400, 401, 404, 412, 413, 428, 500;
}

/// Set how far a service has been checked.
#[utoipa::path(
    put,
    path = "/internal/services/{serviceId}/trust-status",
    tag = "internal",
    security(("internalToken" = [])),
    params(
        ("serviceId" = uuid::Uuid, Path, description = "The service's UUID."),
        ("If-Match" = inline(VersionTag), Header, description = "The `ETag` of what was read, or `*`."),
    ),
    request_body = TrustStatusBody,
    responses((status = 200, body = InternalService, description = "The service as it is now."), TrustStatusErrors)
)]
pub(crate) async fn trust_status(
    State(operators): State<Arc<Operators>>,
    caller: InternalCaller,
    Path(id): Path<String>,
    if_match: IfMatch,
    body: Bytes,
) -> Result<Response, Failure> {
    operators.enter(caller).await?;
    let id = id_in_path(&id)?;
    let trust_status = parse(&body)?;
    let condition = Condition::Existing(if_match.precondition()?);
    let change = of_existing(|stored| Service {
        trust_status,
        ..stored.clone()
    });
    let (Edited::Created(service) | Edited::Present(service)) = operators.edit(id, condition, change).await?;
    Ok(operators.show(&service).await?)
}

fn parse(body: &[u8]) -> Result<TrustStatus> {
    let body = purser_api::json_body(body)?;
    let mut fields = Fields::of(&body, "").map_err(|problem| Error::invalid(vec![problem]))?;
    fields.refuse_unknown(&["trust_status"]);
    let status = fields.read("trust_status", |value| {
        let named = value.as_str().and_then(TrustStatus::from_name);
        named.ok_or_else(TrustStatus::choices)
    });
    fields.require("trust_status");
    fields.finish_body()?;
    // Unreachable: a member that is absent or wrong left a problem.
    status.ok_or_else(|| Error::internal("reading a trust status", "it is incomplete"))
}
