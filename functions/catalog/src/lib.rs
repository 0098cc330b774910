//! The public group: the catalog, the OpenAPI document, the guides to both for agents, and the keys and the checkpoint
//! with which statements are verified.
//!
//! Every caller gets the same answer, so that it can be cached; there is no authentication here. The catalog is served
//! from a copy in memory that follows the table within seconds, and each list is built once per edition.

mod document;
mod guide;
mod list;
mod log;
mod response_cache;
mod service;
mod view;

use axum::Router;
use axum::middleware::from_fn;
use axum::routing::get;
use purser_api::{ApiSettings, Boot, BootError, Clock};
use purser_log::{LogReader, ObjectStore};
use purser_store::{CatalogCache, CatalogTable};
use response_cache::ResponseCache;
use std::sync::Arc;
use utoipa::openapi::OpenApi;

/// How long a cached catalog answer may be used without revalidation.
const CACHE_CONTROL: &str = "public, max-age=30";

/// The state that all handlers share.
struct CatalogApi {
    catalog: CatalogCache,
    prepared: ResponseCache,
    /// The log of statements; `None` if the deployment keeps none.
    log: Option<LogReader>,
    clock: Clock,
}

purser_api::routes!(
    Arc<CatalogApi>,
    list::list,
    service::service,
    document::document,
    guide::llms_txt,
    guide::skill,
    log::jwks,
    log::trust,
    log::checkpoint,
);

/// The group's part of the OpenAPI document.
pub fn openapi() -> OpenApi {
    description()
}

/// The group, ready to serve.
pub async fn router(boot: Boot) -> Result<Router, BootError> {
    let Boot {
        mut env, aws, clock, ..
    } = boot;
    let api = ApiSettings::from_env(&mut env);
    let table = env.text("CATALOG_TABLE");
    let log = env.get("LOG_BUCKET").map(str::to_owned);
    let (api, table, log) = env.finish((api, table, log))?;
    let catalog_api = Arc::new(CatalogApi {
        catalog: CatalogCache::new(CatalogTable::new(purser_store::client(&aws), table)),
        prepared: ResponseCache::default(),
        log: log.map(|bucket| LogReader::new(ObjectStore::named(&aws, &bucket))),
        clock,
    });
    // The first read opens the connection; if the catalog can't be read yet, the first call reads it again.
    let _ = catalog_api.catalog.current(catalog_api.clock.now()).await;
    let routes = routes()
        .route("/log/tile/{*path}", get(log::tile))
        .layer(from_fn(log::allow_origins))
        .with_state(catalog_api);
    Ok(purser_api::with_middleware(routes, api))
}
