//! `PUT /internal/services/{serviceId}/curated`: whether agents may use a service at all.

use crate::edit::{Condition, Edited, of_existing};
use crate::view::{CuratedBody, InternalService};
use crate::{Operators, id_in_path};
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::Response;
use purser_api::{Failure, IfMatch, InternalCaller, VersionTag};
use purser_domain::{Error, Fields, Result, Service};
use std::sync::Arc;

purser_api::error_responses! {
    /// What this endpoint may be refused with.
    pub(crate) CuratedErrors: 400, 401, 404, 412, 413, 428, 500;
}

/// Take a service into the curated set, or out of it.
#[utoipa::path(
    put,
    path = "/internal/services/{serviceId}/curated",
    tag = "internal",
    security(("internalToken" = [])),
    params(
        ("serviceId" = uuid::Uuid, Path, description = "The service's UUID."),
        ("If-Match" = inline(VersionTag), Header, description = "The `ETag` of what was read, or `*`."),
    ),
    request_body = CuratedBody,
    responses(
        (status = 200, body = InternalService, description = "The service as it is now. Agents that had it enabled keep \
            their policies; out of the set they are answered `service_not_found`."),
        CuratedErrors,
    )
)]
pub(crate) async fn curated(
    State(operators): State<Arc<Operators>>,
    caller: InternalCaller,
    Path(id): Path<String>,
    if_match: IfMatch,
    body: Bytes,
) -> Result<Response, Failure> {
    operators.enter(caller).await?;
    let id = id_in_path(&id)?;
    let curated = parse(&body)?;
    let condition = Condition::Existing(if_match.precondition()?);
    let change = of_existing(|stored| Service {
        curated,
        ..stored.clone()
    });
    let (Edited::Created(service) | Edited::Present(service)) = operators.edit(id, condition, change).await?;
    Ok(operators.show(&service).await?)
}

fn parse(body: &[u8]) -> Result<bool> {
    let body = purser_api::json_body(body)?;
    let mut fields = Fields::of(&body, "").map_err(|problem| Error::invalid(vec![problem]))?;
    fields.refuse_unknown(&["curated"]);
    let curated = fields.read("curated", |value| value.as_bool().ok_or("must be true or false"));
    fields.require("curated");
    fields.finish_body()?;
    // Unreachable: a member that is absent or wrong left a problem.
    curated.ok_or_else(|| Error::internal("reading the curated mark", "it is incomplete"))
}
