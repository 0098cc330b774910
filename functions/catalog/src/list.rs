//! `GET /services`: the catalog's services with the number of operations and the lowest price.
//!
//! Without a `trust_status` filter, disabled services are omitted. With `slug`, a disabled service is included, as in
//! `GET /services/{serviceId}`.

use crate::response_cache::Listing;
use crate::view::{CategoryName, ServiceItem, ServiceList, TrustStatusName};
use crate::{AppState, CACHE_CONTROL};
use axum::http::{HeaderMap, Uri};
use purser_api::{Cacheable, Query, Reply, endpoint};
use purser_domain::{Catalog, Category, Error, Result, Service, Timestamp, TrustStatus};

/// The default and the maximum number of services in a list (`docs/spec.md` §8).
const DEFAULT_LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 500;

/// List services.
#[endpoint(
    get "/services",
    params(
        ("category" = inline(Option<CategoryName>), Query, description = "Only services in this category."),
        ("trust_status" = inline(Option<TrustStatusName>), Query, description = "Only services with this trust status. By default, all services except disabled services. `slug` also finds a disabled service."),
        ("slug" = Option<String>, Query, description = "Only the service with this slug."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 500, description = "The maximum number of items. The default is 100."),
    ),
    body = ServiceList<'static>, returns = "The services, sorted by slug.", cached(), errors(TemporarilyUnavailable)
)]
pub(crate) async fn list_services(catalog_api: AppState, headers: HeaderMap, uri: Uri) -> Reply {
    let mut query = Query::from_uri(&uri);
    let category = query.parse_with("category", Category::from_name, Category::allowed_names_message());
    let trust_status = query.parse_with(
        "trust_status",
        TrustStatus::from_name,
        TrustStatus::allowed_names_message(),
    );
    let slug = query.parse_text("slug");
    let limit = query.parse_limit("limit", DEFAULT_LIMIT, MAX_LIMIT);
    query.finish()?;

    let now = catalog_api.clock.now();
    let catalog_version = catalog_api.catalog.current(now).await?;
    let listing = Listing {
        category,
        trust_status,
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
    };
    let list = match slug {
        // Lists with `slug` are not cached, because there are many and each is short.
        Some(slug) => render_service_list(&catalog_version.catalog, listing, now, |service| {
            service.slug.as_str() == slug
        })?,
        None => catalog_api
            .prepared
            .get_or_render_list(&catalog_version, listing, now, || {
                let is_shown =
                    |service: &Service| listing.trust_status.is_some() || service.trust_status != TrustStatus::Disabled;
                render_service_list(&catalog_version.catalog, listing, now, is_shown)
            })?,
    };
    Ok(list.respond(&headers, CACHE_CONTROL))
}

fn render_service_list(
    catalog: &Catalog,
    listing: Listing,
    now: Timestamp,
    is_listed: impl Fn(&Service) -> bool,
) -> Result<Cacheable> {
    let listed = |service: &&Service| {
        listing.category.is_none_or(|category| service.category == category)
            && is_listed(service)
            && listing.trust_status.is_none_or(|status| service.trust_status == status)
    };
    let services: Vec<ServiceItem<'_>> = catalog
        .services()
        .iter()
        .filter(listed)
        .take(listing.limit)
        .map(|service| ServiceItem::new(service, now))
        .collect();
    let list = ServiceList::from_items(services);
    let body = serde_json::to_vec(&list).map_err(|error| Error::internal("serializing the catalog", error))?;
    Ok(Cacheable::new(body))
}
