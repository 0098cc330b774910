//! The agent-key group that moves money: preflight, authorize, complete and receipts.
//!
//! One file per endpoint, each with its contract in its header. `authenticate.rs` identifies the caller, and
//! `decide.rs` decides whether it may pay, with an `early_balance.rs`: preflight and authorize share both.
//! `idempotency.rs` and `refuse.rs` are authorize's other answers, and `view.rs` has the wire shapes. Every handler has
//! the order parse, decide, commit, reply. Only this function holds the wallet seed and the nonce key.

mod authenticate;
mod authorize;
mod check;
mod complete;
mod decide;
mod early_balance;
mod idempotency;
mod receipt;
mod receipts;
mod refuse;
mod settings;
mod view;

use axum::Router;
use early_balance::SeenAgents;
use purser_api::{ApiSettings, Boot, BootError, Clock, Entropy, ProviderProof, Secrets};
use purser_chain::{Chain, ChainError, Finality, NonceKey, WalletSeed};
use purser_domain::{Duration, Network};
use purser_store::{Authenticator, CatalogCache, CatalogTable, KeyUses, Ledger, Throttle};
use settings::Settings;
use std::sync::Arc;
use utoipa::openapi::OpenApi;

/// The state that all handlers share.
struct Payments {
    ledger: Ledger,
    catalog: CatalogCache,
    authenticator: Authenticator,
    chain: Arc<Chain>,
    seen: SeenAgents,
    seed: WalletSeed,
    nonce_key: NonceKey,
    clock: Clock,
    entropy: Entropy,
    network: Network,
    /// The longest validity of a signed payment, whatever the provider asks for.
    max_authorization: Duration,
    approval_ttl: Duration,
    /// How many of an agent's approvals may be open.
    most_open_approvals: u32,
    /// How long complete waits for a transaction to become final before it answers "not yet".
    backoff: std::time::Duration,
    provider_proof: ProviderProof,
}

purser_api::routes!(
    Arc<Payments>,
    check::check,
    authorize::authorize,
    complete::complete,
    receipt::receipt,
    receipts::receipts,
);

/// The group's part of the OpenAPI document.
pub fn openapi() -> OpenApi {
    description()
}

/// The group, ready to serve: configuration and secrets are read, and the first connections opened, before the first
/// request.
pub async fn router(boot: Boot) -> Result<Router, BootError> {
    let http = boot.http.clone();
    router_over(boot, |network, rpc_url, finality| {
        Chain::new(http, network, rpc_url, finality)
    })
    .await
}

/// As [`router`], over the chain that `chain` makes from the network, the node's address and the finality: the
/// simulation has its own.
pub async fn router_over(
    boot: Boot,
    chain: impl FnOnce(Network, &str, Finality) -> Result<Chain, ChainError>,
) -> Result<Router, BootError> {
    let Boot {
        mut env,
        aws,
        clock,
        entropy,
        background,
        ..
    } = boot;
    let api = ApiSettings::from_env(&mut env);
    let settings = Settings::from_env(&mut env);
    let (api, settings) = env.finish((api, settings))?;

    // Concurrently with reading the catalog, which takes two calls in sequence.
    let arns = [
        settings.wallet_seed_secret,
        settings.nonce_key_secret,
        settings.rpc_url_secret,
    ];
    let keys = background.spawn({
        let aws = aws.clone();
        async move {
            let arns = arns.each_ref().map(String::as_str);
            let [seed, nonce_key, rpc_url] = Secrets::new(&aws).texts(arns).await?;
            Ok((WalletSeed::from_hex(&seed)?, NonceKey::from_text(&nonce_key)?, rpc_url))
        }
    });
    let db = purser_store::client(&aws);
    let catalog = CatalogCache::new(CatalogTable::new(db.clone(), settings.catalog_table));
    let (_warm, (seed, nonce_key, chain)) = tokio::try_join!(
        biased;
        // The first read opens the connection; if the catalog can't be read yet, the first call reads it again.
        async { Ok::<_, BootError>(catalog.current(clock.now()).await.ok()) },
        async {
            let (seed, nonce_key, rpc_url) = keys.await?;
            let chain = Arc::new(chain(settings.network, &rpc_url, settings.finality)?);
            // Not awaited: not every call needs the node, and it may be down.
            let warmed = Arc::clone(&chain);
            tokio::spawn(async move { warmed.warm_up().await });
            Ok((seed, nonce_key, chain))
        },
    )?;
    if settings.provider_proof == ProviderProof::OrAssertion && !chain.is_development_node().await? {
        return Err("`ACCEPT_PROVIDER_OK` is for local chains alone".into());
    }
    let payments = Arc::new(Payments {
        ledger: Ledger::new(db.clone(), settings.ledger_table, settings.decisions_table),
        catalog,
        authenticator: Authenticator {
            key_uses: KeyUses::new(db.clone(), settings.throttle_table.as_str()),
            throttle: Throttle::new(db, settings.throttle_table, settings.throttle_per_minute),
        },
        chain,
        seen: SeenAgents::default(),
        seed,
        nonce_key,
        clock,
        entropy,
        network: settings.network,
        max_authorization: settings.max_authorization,
        approval_ttl: settings.approval_ttl,
        most_open_approvals: settings.most_open_approvals,
        backoff: settings.backoff,
        provider_proof: settings.provider_proof,
    });
    Ok(purser_api::with_middleware(routes().with_state(payments), api))
}
