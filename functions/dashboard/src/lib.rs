//! The JSON API and the pages with which users manage their agents.
//!
//! Each feature has a folder with these files:
//!
//! ```text
//! api.rs                    ─parse─▶ operations.rs ─▶ shared/store, shared/chain
//! page.rs ─▶ actions.rs     ─parse─▶
//! ```
//!
//! `operations.rs` is an `impl People`, which the JSON endpoints and the forms share. `section.rs` renders a feature's
//! section of the agent's page. `api.rs` and `pages.rs` in this folder list all routes.
//!
//! Invariants: only the ownership check creates an [`agents::owned::OwnedAgent`], every write takes the expected
//! version, and the Lambda function `people` signs nothing.

mod address;
mod agents;
mod api;
mod approvals;
mod audit;
mod backtests;
#[cfg(test)]
mod bodies;
mod caller;
mod connect;
mod csv;
mod cursor;
mod decisions;
mod digest;
mod handovers;
mod history;
mod journal;
mod keys;
mod long_operations;
mod notices;
mod operators;
mod pages;
mod payouts;
mod preview;
mod redirect;
mod request;
mod rules;
mod runs;
mod search;
mod services;
mod sessions;
mod settings;
mod settlements;
mod several;
mod shadow;
mod span;
mod state;
mod templates;
mod ui;
mod usage;
mod webhooks;

use agents::new_keys::NewKeys;
use axum::{Router, middleware::from_fn_with_state};
use purser_api::{
    ApiSettings, AssertionKeys, Boot, BootError, InvokedFunction, NotificationRequestsQueue, Secrets, SecretsKey,
    Sessions, UntrustedHttpClient, WebhookRequestsQueue, with_asserted_ip_layer,
};
use purser_chain::{Chain, Finality, KmsKeys};
use purser_domain::{Error, OAuthKey};
use purser_log::{LogReader, ObjectStore};
use purser_store::{
    AuditLog, Authenticator, CallLeases, CatalogCache, CatalogTable, KeyLimit, KeyUses, Ledger, Throttle, UsageTable,
    WebhooksTable,
};
use sessions::sign_in_key::SignInKey;
use settings::Settings;
use state::People;
use std::sync::Arc;
use utoipa::openapi::OpenApi;

/// Returns the OpenAPI description of this crate's JSON routes.
pub fn openapi() -> OpenApi {
    api::description()
}

/// Creates the router of the Lambda function `people`, after reading the configuration and the secrets.
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

    let client_ip_keys = AssertionKeys::from_secret_arns(settings.client_ip_key_secret, &aws, &clock);
    let arns = [
        settings.rpc_url_secret,
        settings.sign_in_key_secret,
        settings.oauth_key_secret,
    ];
    let secrets = background.spawn({
        let aws = aws.clone();
        async move { Ok(Secrets::new(&aws).read_all(arns.each_ref().map(String::as_str)).await?) }
    });
    let db = purser_store::dynamodb_client(&aws);
    let catalog_table = CatalogTable::new(db.clone(), settings.catalog_table);
    let catalog = CatalogCache::new(catalog_table.clone());
    let now = clock.now();
    let ([rpc_url, sign_in_key, oauth_key], sessions, _warm) = tokio::try_join!(
        secrets,
        Sessions::new(settings.sessions, now),
        // Opens the connection to DynamoDB. An error is ignored, because the first request reads the catalog again.
        async { Ok(catalog.current(now).await.ok()) },
    )?;
    // Balances are read from the newest block, so the number of confirmations does not matter.
    let finality = Finality { confirmations: 1 };
    let throttle_table: Arc<str> = settings.throttle_table.into();
    let people = Arc::new(People {
        ledger: Ledger::new(db.clone(), settings.ledger_table, settings.decisions_table),
        catalog,
        catalog_table,
        audit: AuditLog::new(db.clone(), settings.audit_table),
        usage: UsageTable::new(db.clone(), settings.usage_table),
        log: settings
            .log_bucket
            .map(|bucket| LogReader::new(ObjectStore::open(&aws, &bucket))),
        authenticator: Authenticator {
            key_uses: KeyUses::new(db.clone(), Arc::clone(&throttle_table)),
            throttle: Throttle::new(&db, Arc::clone(&throttle_table), settings.throttle_per_minute),
            key_limit: KeyLimit::new(
                db.clone(),
                Arc::clone(&throttle_table),
                settings.key_requests_per_minute,
            ),
        },
        agent_waits: Throttle::new(
            &db,
            Arc::clone(&throttle_table),
            approvals::operations::AGENT_WAITS_PER_MINUTE,
        ),
        owner_waits: Throttle::new(
            &db,
            Arc::clone(&throttle_table),
            approvals::operations::OWNER_WAITS_PER_MINUTE,
        ),
        waits: Throttle::new(
            &db,
            Arc::clone(&throttle_table),
            approvals::operations::WAITS_PER_MINUTE,
        ),
        code_guesses: Throttle::new(&db, Arc::clone(&throttle_table), connect::DEVICE_CODES_PER_MINUTE),
        run_openings: Throttle::new(&db, Arc::clone(&throttle_table), runs::RUNS_PER_MINUTE),
        stops: Throttle::new(
            &db,
            Arc::clone(&throttle_table),
            settings
                .throttle_per_minute
                .saturating_add(sessions::authenticate::STOPS_PER_MINUTE),
        ),
        long_operations: CallLeases::new(&db, throttle_table, long_operations::LEASE),
        chain: Chain::new(http, settings.network, &rpc_url, finality)?,
        new_keys: match settings.new_keys {
            None => NewKeys::Seed,
            Some((stack, policy)) => NewKeys::Kms {
                keys: Box::new(KmsKeys::new(aws.clone())),
                stack,
                policy,
            },
        },
        webhooks: WebhooksTable::new(db.clone(), settings.webhooks_table),
        webhook_requests: WebhookRequestsQueue::new(&aws, settings.webhook_requests_queue_url),
        notice_requests: NotificationRequestsQueue::new(&aws, settings.notice_requests_queue_url),
        secrets_key: SecretsKey::new(aws.clone(), settings.webhook_secrets_key),
        mails: settings.mails,
        client_documents: UntrustedHttpClient::new(
            "Purser",
            settings.webhook_hosts.clone(),
            connect::DOCUMENT_TIMEOUT,
        )?,
        webhook_hosts: settings.webhook_hosts,
        event_source: settings.event_source,
        internal: settings
            .internal_function
            .map(|name| InvokedFunction::new(aws.clone(), name, "calling `internal`")),
        payments: InvokedFunction::new(aws, settings.payments_function, "calling `payments`"),
        sessions,
        limits: settings.session_limits,
        approval_ttl: settings.approval_ttl,
        starting_limits: settings.starting_limits,
        sign_in_key: SignInKey::from_text(&sign_in_key)?,
        oauth_key: OAuthKey::from_secret(oauth_key.trim())
            .ok_or_else(|| Error::internal("reading a secret", "the OAuth key must have at least 32 characters"))?,
        clock,
        entropy,
        network: settings.network,
        pays_out: settings.pays_out,
        dashboard_url: settings.dashboard_url,
    });
    let reports = from_fn_with_state(Arc::clone(&people), ui::report::sign_and_verify_form_results);
    let router = api::routes().merge(pages::routes().layer(reports)).with_state(people);
    Ok(purser_api::with_middleware(
        with_asserted_ip_layer(router, client_ip_keys),
        api,
    ))
}
