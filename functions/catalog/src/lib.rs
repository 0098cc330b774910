//! The public group: what agents can buy, and the description of the API.
//!
//! Every caller gets the same answer, so that it can be cached; nothing here knows who asks. The catalog is served
//! from a copy in memory that follows the table within seconds, and its lists are written once for each edition.

mod document;
mod list;
mod response_cache;
mod service;
mod view;

use axum::Router;
use purser_api::{ApiSettings, Boot, BootError, Clock};
use purser_store::{CatalogCache, CatalogTable};
use response_cache::ResponseCache;
use std::sync::Arc;
use utoipa::openapi::OpenApi;

/// How long a copy of the catalog's answers may be used without asking again.
const CACHE_CONTROL: &str = "public, max-age=30";

/// What the handlers work with; shared by all of them.
struct CatalogApi {
    catalog: CatalogCache,
    prepared: ResponseCache,
    clock: Clock,
}

purser_api::routes!(Arc<CatalogApi>, list::list, service::service, document::document,);

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
    let (api, table) = env.finish((api, table))?;
    let catalog_api = Arc::new(CatalogApi {
        catalog: CatalogCache::new(CatalogTable::new(purser_store::client(&aws), table)),
        prepared: ResponseCache::default(),
        clock,
    });
    // The first read opens the connection; a catalog that can't be read yet is asked for again by the first call.
    let _ = catalog_api.catalog.current(catalog_api.clock.now()).await;
    Ok(purser_api::with_middleware(routes().with_state(catalog_api), api))
}
