//! `GET /internal/services`: the whole catalog for operators, with the changes that probes observed.

use crate::AppState;
use crate::Caller;
use crate::view::{InternalServiceItem, InternalServiceList};
use axum::Json;
use axum::http::Uri;
use purser_api::{Query, Reply, endpoint};

/// List all services, with price and payee changes that probes observed.
#[endpoint(
    get "/internal/services",
    params(
        ("changed" = Option<bool>, Query, description = "If true, only services whose provider asks for a different payment than the catalog has. If false, only the other services."),
    ),
    returns = "All services, sorted by slug, including disabled and uncurated services."
)]
pub(crate) async fn list_internal_services(
    operators: AppState,
    Caller(_operator): Caller,
    uri: Uri,
) -> Reply<Json<InternalServiceList>> {
    let mut query = Query::from_uri(&uri);
    let changed = query.parse_with("changed", |text| text.parse::<bool>().ok(), "must be true or false");
    query.finish()?;

    let services = operators.catalog.read_probed_services().await?;
    // Writes the catalog object if the last update could not write it.
    operators.refresh_catalog_object().await;
    let now = operators.clock.now();
    Ok(Json(InternalServiceList::from_items(
        services
            .iter()
            .map(|(service, record)| InternalServiceItem::new(service, record, operators.network, now))
            .filter(|item| changed.is_none_or(|changed| item.has_delayed_changes() == changed)),
    )))
}
