//! The internal API: operators update the catalog, request probes, request the reconciliation of a payment, freeze
//! agents, and offer agents to new owners.
//!
//! Each request through the API gateway needs an operator token. The Lambda function `people` sends direct requests for
//! operators in a browser, without a token, but only to the routes of `direct_routes`. The audit log records each
//! action with the operator's name.

mod accept;
mod audit;
mod audit_log;
mod browser;
mod curated;
mod edit;
mod entry;
mod freezes;
mod handover;
mod list;
mod pin;
mod probe;
mod reconcile;
mod service;
mod trust_status;
mod upsert;
mod view;
mod withdraw;

use axum::Router;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use browser::BrowserOperators;
use purser_api::{
    ApiSettings, Argument, Boot, BootError, Clock, DirectUser, Entropy, Failure, InternalTokens, OperationDescription,
    Operator, OperatorCredentials, RejectionLimit, Routers, Secrets,
};
use purser_domain::{Duration, Network};
use purser_store::{AuditLog, CatalogTable, Ledger, UsageTable};
use std::sync::Arc;
use utoipa::openapi::OpenApi;

pub(crate) type AppState = axum::extract::State<Arc<Operators>>;

struct Operators {
    catalog: CatalogTable,
    ledger: Ledger,
    audit: AuditLog,
    network: Network,
    /// How long a new payee or a higher price is delayed.
    payment_change_delay: Duration,
    /// The verified payees. The Lambda function `internal` only reads this table.
    usage: UsageTable,
    /// How long an accepted payee or price is delayed. The Lambda function `events` applies the same delay.
    accepted_payee_delay: Duration,
    tokens: InternalTokens,
    browser: BrowserOperators,
    refusals: RejectionLimit,
    clock: Clock,
    entropy: Entropy,
}

/// The authenticated operator. The extractor rejects a request with 401 `invalid_internal_token`, or with 429
/// if the address is throttled. A direct request has a user instead of a token, and is rejected with 403 `not_entitled`
/// unless the user is an operator (`browser.rs`).
struct Caller(Operator);

impl FromRequestParts<Arc<Operators>> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, operators: &Arc<Operators>) -> Result<Self, Failure> {
        // Only direct requests have a user.
        if let Some(user) = parts.extensions.get::<DirectUser>() {
            return Ok(Self(operators.require_browser_operator(user).await?));
        }
        let Ok(caller) = OperatorCredentials::from_request_parts(parts, operators).await;
        let operator = caller.authenticate(&operators.tokens, &operators.refusals, operators.clock.now());
        Ok(Self(operator.await?))
    }
}

impl Argument for Caller {
    fn describe(operation: &mut OperationDescription) {
        OperatorCredentials::describe(operation);
    }
}

purser_api::routes!(
    Arc<Operators>,
    tag = "internal",
    list::list_internal_services,
    service::read_internal_service,
    upsert::upsert_service,
    trust_status::set_trust_status,
    curated::set_curated,
    probe::handle_probe_request,
    pin::set_price_from_probe,
    accept::accept_change,
    withdraw::withdraw_change,
    reconcile::handle_reconcile_request,
    audit_log::list_internal_audit_log,
    freezes::list_freezes,
    freezes::freeze_agent,
    freezes::unfreeze_agent,
    freezes::freeze_owner,
    freezes::unfreeze_owner,
    freezes::freeze_deployment,
    freezes::unfreeze_deployment,
    handover::handle_ownership_offer,
    handover::handle_ownership_offer_withdrawal,
);

/// Returns the routes for direct requests of the Lambda function `people`. IAM lets no other function send direct
/// requests.
///
/// With these routes, an operator can select only payees that a probe has observed. No route creates a service, replaces
/// a whole service, or opens a service to agents, because a compromised `people` can act as any operator in a browser.
fn direct_routes() -> Router<Arc<Operators>> {
    purser_api::router!(
        Arc<Operators>,
        probe::handle_probe_request,
        pin::set_price_from_probe,
        accept::accept_change,
        withdraw::withdraw_change,
        reconcile::handle_reconcile_request,
        freezes::freeze_agent,
        freezes::unfreeze_agent,
        freezes::freeze_owner,
        freezes::unfreeze_owner,
        freezes::freeze_deployment,
        freezes::unfreeze_deployment,
        handover::handle_ownership_offer,
        handover::handle_ownership_offer_withdrawal,
    )
}

/// Returns this API's part of the OpenAPI document.
pub fn openapi() -> OpenApi {
    description()
}

const DELAY: &str = "PAYMENT_CHANGE_DELAY_SECONDS";
const DEFAULT_DELAY_SECONDS: u32 = 86_400;

/// Builds the routers, configured by environment variables.
pub async fn routers(boot: Boot) -> Result<Routers, BootError> {
    let mut env = boot.env;
    let api = ApiSettings::from_env(&mut env);
    let names = [
        "CATALOG_TABLE",
        "LEDGER_TABLE",
        "AUDIT_TABLE",
        "USAGE_TABLE",
        "OPERATORS_SECRET_ARN",
    ];
    let names = names.map(|name| env.require_text(name));
    let network = env.require_network();
    let delay = env.parse_number(DELAY, DEFAULT_DELAY_SECONDS, 0..=2_592_000);
    if delay == 0 && !network.is_testnet() {
        env.add_error(DELAY, "must not be 0 on a network whose payments have value");
    }
    let refusals_per_minute = env.parse_number("THROTTLE_PER_MINUTE", 120, 1..=1_000_000);
    let delays = (
        delay,
        env.parse_number("ACCEPTED_PAYEE_DELAY_SECONDS", 3_600, 0..=2_592_000),
    );
    let browser = BrowserOperators::from_env(&mut env);
    let settings = (api, names, network, delays, refusals_per_minute, browser);
    let (api, names, network, (delay, accepted_delay), refusals_per_minute, browser) = env.finish(settings)?;
    let [catalog, ledger, audit, usage, token_arn] = names;
    let db = purser_store::dynamodb_client(&boot.aws);
    let operators = Arc::new(Operators {
        catalog: CatalogTable::new(db.clone(), catalog),
        ledger: Ledger::without_decisions_table(db.clone(), ledger),
        audit: AuditLog::new(db.clone(), audit),
        usage: UsageTable::new(db, usage),
        network,
        payment_change_delay: Duration::from_secs_u32(delay),
        accepted_payee_delay: Duration::from_secs_u32(accepted_delay),
        refusals: RejectionLimit::new(refusals_per_minute),
        browser,
        tokens: InternalTokens::load(Secrets::new(&boot.aws), token_arn, boot.clock.now()).await?,
        clock: boot.clock,
        entropy: boot.entropy,
    });
    Ok(Routers {
        gateway: purser_api::with_middleware(routes().with_state(Arc::clone(&operators)), api),
        direct: purser_api::with_middleware(direct_routes().with_state(operators), api),
    })
}
