//! The payment API for agents: check, authorize, complete, receipts, and requests for temporary limit increases.
//!
//! Each endpoint has its own file. The dashboard function sends direct requests to the routes in `attest.rs` and
//! `payouts.rs`, without the API gateway. Only the Lambda function `payments` signs payments.

mod attest;
mod authenticate;
mod authorize;
mod call;
mod check;
mod check_unpaid;
mod complete;
mod decide;
mod early_balance;
mod idempotency;
mod payees;
mod payouts;
mod raise;
mod receipt;
mod receipts;
mod refuse;
mod settings;
mod view;

use axum::Router;
use axum::routing::{post, put};
use early_balance::SeenAgents;
use payees::Payees;
use purser_api::{
    ApiSettings, AssertionKeys, Boot, BootError, Clock, Entropy, ProviderProof, Routers, Secrets,
    with_asserted_ip_layer,
};
use purser_chain::{Chain, ChainError, Custody, Facilitator, Finality, KmsKeys, NonceKey, WalletSeed};
use purser_domain::{Duration, Network};
use purser_store::{
    AuditLog, Authenticator, CatalogCache, CatalogTable, HoldLimit, KeyLimit, KeyUses, Ledger, Throttle, UsageTable,
};
use settings::Settings;
use std::sync::Arc;
use utoipa::openapi::OpenApi;

/// The extractor with which a handler receives the shared state.
pub(crate) type AppState = axum::extract::State<Arc<Payments>>;

struct Payments {
    ledger: Ledger,
    /// The audit log, whose rows are written in the same transactions as the recorded actions.
    audit: AuditLog,
    catalog: CatalogCache,
    payees: Payees,
    authenticator: Authenticator,
    hold_limit: HoldLimit,
    chain: Arc<Chain>,
    seen: SeenAgents,
    custody: Custody,
    nonce_key: NonceKey,
    clock: Clock,
    entropy: Entropy,
    network: Network,
    /// The maximum validity of a signed payment, even if the provider asks for a longer validity.
    max_authorization: Duration,
    approval_ttl: Duration,
    /// The maximum number of open approvals per agent.
    most_open_approvals: u32,
    provider_proof: ProviderProof,
    /// The facilitator for withdrawals. `None` if the deployment does not support withdrawals.
    facilitator: Option<Facilitator>,
    payout_delay: Duration,
}

purser_api::routes!(
    Arc<Payments>,
    tag = "payments",
    check::preflight_payment,
    check_unpaid::check_unpaid_call,
    authorize::authorize_payment,
    complete::complete_settlement,
    raise::request_limit_increase,
    receipt::read_receipt,
    receipts::list_receipts,
);

/// Returns the routes for direct requests. IAM restricts which functions may send direct requests.
fn direct_routes() -> Router<Arc<Payments>> {
    Router::new()
        .route("/wallets", post(attest::attest_wallet))
        .route(
            "/agents/{agentId}/payout-address",
            put(payouts::set_withdrawal_address).delete(payouts::remove_withdrawal_address),
        )
        .route("/agents/{agentId}/payouts", post(payouts::withdraw_to_owner))
}

/// Returns the payment API's part of the OpenAPI document.
pub fn openapi() -> OpenApi {
    description()
}

/// Builds the routers for agents and for other Lambda functions.
pub async fn routers(boot: Boot) -> Result<Routers, BootError> {
    let http = boot.http.clone();
    routers_with_chain(boot, |network, rpc_url, finality| {
        Chain::new(http, network, rpc_url, finality)
    })
    .await
}

/// Builds the routers like [`routers`], with the chain client that `chain` builds.
pub async fn routers_with_chain(
    boot: Boot,
    chain: impl FnOnce(Network, &str, Finality) -> Result<Chain, ChainError>,
) -> Result<Routers, BootError> {
    let Boot {
        mut env,
        aws,
        clock,
        entropy,
        background,
        http,
    } = boot;
    let api = ApiSettings::from_env(&mut env);
    let settings = Settings::from_env(&mut env);
    let facilitator = settings.facilitator_url.as_deref().map(|address| {
        let outward = purser_api::public_address_http_client();
        Facilitator::new(settings.network, address, &http, outward, purser_api::may_be_public)
    });
    let facilitator = facilitator.transpose().unwrap_or_else(|error| {
        env.add_error("FACILITATOR_URL", &error.to_string());
        None
    });
    let (api, settings) = env.finish((api, settings))?;

    let client_ip_keys = AssertionKeys::from_secret_arns(settings.client_ip_key_secret, &aws, &clock);
    let (seed, others) = (
        settings.wallet_seed_secret,
        [settings.nonce_key_secret, settings.rpc_url_secret],
    );
    let keys = background.spawn({
        let aws = aws.clone();
        async move {
            let secrets = Secrets::new(&aws);
            let [nonce_key, rpc_url] = others.each_ref().map(String::as_str);
            let (custody, nonce_key, rpc_url) = if let Some(seed) = &seed {
                let [seed, nonce_key, rpc_url] = secrets.read_all([seed, nonce_key, rpc_url]).await?;
                (Custody::from_seed(WalletSeed::from_hex(&seed)?), nonce_key, rpc_url)
            } else {
                let [nonce_key, rpc_url] = secrets.read_all([nonce_key, rpc_url]).await?;
                (Custody::from_kms(KmsKeys::new(aws)), nonce_key, rpc_url)
            };
            Ok((custody, NonceKey::from_text(&nonce_key)?, rpc_url))
        }
    });
    let db = purser_store::dynamodb_client(&aws);
    let catalog = CatalogCache::without_probe_results(CatalogTable::new(db.clone(), settings.catalog_table));
    let (_warm, (custody, nonce_key, chain)) = tokio::try_join!(
        biased;
        // Opens the connection to DynamoDB before the first request. An error is ignored, because each
        // request that needs the catalog loads the catalog itself.
        async { Ok::<_, BootError>(catalog.current(clock.now()).await.ok()) },
        async {
            let (custody, nonce_key, rpc_url) = keys.await?;
            let chain = Arc::new(chain(settings.network, &rpc_url, settings.finality)?);
            // The warm-up is not awaited, because the node may be down and not every call needs it.
            let warmed = Arc::clone(&chain);
            tokio::spawn(async move { warmed.warm_up().await });
            Ok((custody, nonce_key, chain))
        },
    )?;
    if settings.provider_proof == ProviderProof::OrAssertion && !chain.is_development_node().await? {
        return Err("`ACCEPT_PROVIDER_OK` is for local chains alone".into());
    }
    let (table, longest) = (settings.throttle_table.as_str(), settings.max_authorization);
    let payments = Arc::new(Payments {
        ledger: Ledger::new(db.clone(), settings.ledger_table, settings.decisions_table),
        audit: AuditLog::new(db.clone(), settings.audit_table),
        catalog,
        payees: Payees::new(UsageTable::new(db.clone(), settings.usage_table)),
        hold_limit: HoldLimit::new(db.clone(), table, settings.most_holds, longest),
        authenticator: Authenticator {
            key_uses: KeyUses::new(db.clone(), settings.throttle_table.as_str()),
            throttle: Throttle::new(&db, settings.throttle_table.as_str(), settings.throttle_per_minute),
            key_limit: KeyLimit::new(db, settings.throttle_table, settings.key_requests_per_minute),
        },
        chain,
        seen: SeenAgents::default(),
        custody,
        nonce_key,
        clock,
        entropy,
        network: settings.network,
        max_authorization: settings.max_authorization,
        approval_ttl: settings.approval_ttl,
        most_open_approvals: settings.most_open_approvals,
        provider_proof: settings.provider_proof,
        facilitator,
        payout_delay: settings.payout_delay,
    });
    let gateway = with_asserted_ip_layer(routes().with_state(Arc::clone(&payments)), client_ip_keys);
    Ok(Routers {
        gateway: purser_api::with_middleware(gateway, api),
        direct: purser_api::with_middleware(direct_routes().with_state(payments), api),
    })
}
