//! `GET /internal/services`: the whole catalog for operators, with the changes that probes observed.

use crate::Caller;
use crate::Operators;
use crate::view::{InternalServiceItem, InternalServiceList};
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use purser_api::{Failure, Query};
use std::sync::Arc;

/// List all services, with price and payee changes that probes observed.
#[utoipa::path(
    get, path = "/internal/services", operation_id = "list_internal_services",
    params(
        ("changed" = Option<bool>, Query, description = "If true, only services whose provider asks for a different payment than the catalog has. If false, only the other services."),
    ),
    responses(
        (status = 200, body = InternalServiceList, description = "All services, sorted by slug, including disabled and uncurated services."),
    )
)]
pub(crate) async fn list_internal_services(
    State(operators): State<Arc<Operators>>,
    Caller(_operator): Caller,
    uri: Uri,
) -> Result<Json<InternalServiceList>, Failure> {
    let mut query = Query::from_uri(&uri);
    let changed = query.parse_with("changed", |text| text.parse::<bool>().ok(), "must be true or false");
    query.finish()?;

    let services = operators.catalog.read_probed_services().await?;
    // Writes the catalog object if the last update could not write it.
    operators.refresh_catalog_object().await;
    let now = operators.clock.now();
    let services: Vec<InternalServiceItem> = services
        .iter()
        .map(|(service, record)| InternalServiceItem::new(service, record, operators.network, now))
        .filter(|item| changed.is_none_or(|changed| item.has_delayed_changes() == changed))
        .collect();
    Ok(Json(InternalServiceList {
        count: services.len(),
        services,
    }))
}
