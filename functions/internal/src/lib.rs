//! The internal group: operators edit the catalog, and request probes and the reconciliation of a payment.
//!
//! Every caller must send the internal token, which is checked first. An edit is conditional on the version that its
//! operator saw (`If-Match`). Probe results are shown here and change nothing by themselves
//! (`shared/domain/src/catalog/probe.rs`): an operator accepts them by writing the entry.

mod curated;
mod edit;
mod entry;
mod list;
mod probe;
mod reconcile;
mod service;
mod trust_status;
mod upsert;
mod view;

use axum::Router;
use purser_api::{ApiSettings, Boot, BootError, Clock, InternalTokens, OperatorCredentials, Secrets};
use purser_domain::{ErrorKind, Network, Result, ServiceId};
use purser_store::{CatalogTable, Ledger};
use std::sync::Arc;
use utoipa::openapi::OpenApi;

/// The state that all handlers share.
struct Operators {
    catalog: CatalogTable,
    ledger: Ledger,
    /// The one network that payments use.
    network: Network,
    tokens: InternalTokens,
    clock: Clock,
}

impl Operators {
    /// 401 `invalid_internal_token` unless the caller is an operator.
    async fn authenticate(&self, caller: OperatorCredentials) -> Result<()> {
        caller.check(&self.tokens, self.clock.now()).await
    }
}

/// The service that a path names. Unlike public routes, these accept no slug: an edit may change it.
fn id_in_path(text: &str) -> Result<ServiceId> {
    Ok(ServiceId::parse(text).ok_or(ErrorKind::NotFound)?)
}

purser_api::routes!(
    Arc<Operators>,
    list::list,
    service::service,
    upsert::upsert,
    trust_status::trust_status,
    curated::curated,
    probe::probe,
    reconcile::reconcile,
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
    let names = ["CATALOG_TABLE", "LEDGER_TABLE", "INTERNAL_TOKEN_SECRET_ARN"].map(|name| env.text(name));
    let network = env.network();
    let (api, [catalog, ledger, token_arn], network) = env.finish((api, names, network))?;
    let db = purser_store::client(&aws);
    let operators = Arc::new(Operators {
        catalog: CatalogTable::new(db.clone(), catalog),
        ledger: Ledger::without_decisions(db, ledger),
        network,
        tokens: InternalTokens::load(Secrets::new(&aws), token_arn, clock.now()).await?,
        clock,
    });
    Ok(purser_api::with_middleware(routes().with_state(operators), api))
}
