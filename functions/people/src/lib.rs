//! The user-session group: what people do with their agents, as JSON and as pages; and the agents' poll of an approval,
//! which their owner may make too.
//!
//! ```text
//! api/                ─parse─▶ ops/ ─▶ shared/store, shared/chain
//! pages/ ─▶ session/  ─parse─▶
//! ```
//!
//! Files depend on each other from left to right only. The operations are shared by both: one file per resource, each
//! an `impl People`. They take an agent only as [`ops::owned::Owned`], which only the ownership check creates, and
//! every write takes the version that it expects. The session is who is signed in to a page, and what a form must
//! carry.
//!
//! Nothing here signs: addresses come from the wallets' extended public key, and the balance from the chain.

mod address;
mod api;
mod cursor;
mod digest;
mod ops;
mod page;
mod pages;
mod redirect;
mod session;
mod settings;
mod state;

use axum::Router;
use purser_api::{ApiSettings, Boot, BootError, Secrets, Sessions};
use purser_chain::{Chain, Finality, WalletXpub};
use purser_store::{Authenticator, CatalogCache, CatalogTable, KeyUses, Ledger, Throttle};
use settings::Settings;
use state::People;
use std::sync::Arc;
use utoipa::openapi::OpenApi;

/// The group's part of the OpenAPI document: the API, without the pages.
pub fn openapi() -> OpenApi {
    api::description()
}

/// The group's router. Configuration and secrets are read, the issuer's keys fetched, and the first connections opened
/// before the first request.
pub async fn router(boot: Boot) -> Result<Router, BootError> {
    let Boot {
        mut env,
        aws,
        http,
        clock,
        entropy,
        background,
    } = boot;
    let api = ApiSettings::from_env(&mut env);
    let settings = Settings::from_env(&mut env);
    let (api, settings) = env.finish((api, settings))?;

    let arns = [settings.wallet_xpub_secret, settings.rpc_url_secret];
    let secrets = background.spawn({
        let aws = aws.clone();
        async move { Ok(Secrets::new(&aws).texts(arns.each_ref().map(String::as_str)).await?) }
    });
    let db = purser_store::client(&aws);
    let catalog = CatalogCache::new(CatalogTable::new(db.clone(), settings.catalog_table));
    let now = clock.now();
    let ([xpub, rpc_url], sessions, _warm) = tokio::try_join!(
        secrets,
        Sessions::new(settings.sessions, now),
        // The first read opens the connection; a catalog that can't be read yet is read again by the first call.
        async { Ok(catalog.current(now).await.ok()) },
    )?;
    // A balance is read from the newest block, so no depth matters.
    let finality = Finality { confirmations: 1 };
    let people = Arc::new(People {
        ledger: Ledger::new(db.clone(), settings.ledger_table, settings.decisions_table),
        catalog,
        authenticator: Authenticator {
            key_uses: KeyUses::new(db.clone(), settings.throttle_table.as_str()),
            throttle: Throttle::new(db, settings.throttle_table, settings.throttle_per_minute),
        },
        chain: Chain::new(http, settings.network, &rpc_url, finality)?,
        xpub: WalletXpub::from_text(xpub.trim())?,
        sessions,
        clock,
        entropy,
        network: settings.network,
        dashboard_url: settings.dashboard_url,
    });
    let router = api::routes().merge(pages::routes());
    Ok(purser_api::with_middleware(router.with_state(people), api))
}
