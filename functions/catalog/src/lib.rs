//! The public routes: the catalog, the OpenAPI document, the guides for agents, and the keys and checkpoint that verify
//! statements.
//!
//! Every caller gets the same response without authentication, so responses can be cached. The catalog is served from
//! memory and follows the table within seconds.

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

const CACHE_CONTROL: &str = "public, max-age=30";

/// The extractor with which a handler receives the shared state.
pub(crate) type AppState = axum::extract::State<Arc<CatalogApi>>;

struct CatalogApi {
    catalog: CatalogCache,
    prepared: ResponseCache,
    /// The log of statements; `None` if the deployment has no log.
    log: Option<LogReader>,
    clock: Clock,
}

purser_api::routes!(
    Arc<CatalogApi>,
    tag = "catalog",
    list::list_services,
    service::read_service,
    document::read_openapi_document,
    guide::read_llms_txt,
    guide::read_agent_guide,
    log::read_statement_keys,
    log::read_trust_document,
    log::read_log_checkpoint,
);

/// Returns the part of the OpenAPI document that describes this crate's routes.
pub fn openapi() -> OpenApi {
    description()
}

/// Builds the router, configured by environment variables.
pub async fn router(boot: Boot) -> Result<Router, BootError> {
    let Boot {
        mut env, aws, clock, ..
    } = boot;
    let api = ApiSettings::from_env(&mut env);
    let table = env.require_text("CATALOG_TABLE");
    let log = env.get("LOG_BUCKET").map(str::to_owned);
    let (api, table, log) = env.finish((api, table, log))?;
    let catalog_api = Arc::new(CatalogApi {
        catalog: CatalogCache::new(CatalogTable::new(purser_store::dynamodb_client(&aws), table)),
        prepared: ResponseCache::default(),
        log: log.map(|bucket| LogReader::new(ObjectStore::open(&aws, &bucket))),
        clock,
    });
    // Opens the connection to DynamoDB before the first request. An error is ignored, because that request tries again.
    let _ = catalog_api.catalog.current(catalog_api.clock.now()).await;
    let routes = routes()
        .route("/log/tile/{*path}", get(log::read_hash_tile))
        .layer(from_fn(log::allow_origins))
        .with_state(catalog_api);
    Ok(purser_api::with_middleware(routes, api))
}
