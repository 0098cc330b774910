//! The routes for an agent's own data. A path with another agent's id returns `not_found`.

mod me;
mod policy;
mod services;
mod statement;
mod view;

use axum::Router;
use purser_api::{AgentCredentials, ApiSettings, AssertionKeys, Boot, BootError, Clock, with_asserted_ip_layer};
use purser_domain::{Agent, AgentId, ErrorKind, Permission, Result, ServiceId};
use purser_log::{LogReader, ObjectStore};
use purser_store::{
    AuthenticatedCaller, Authenticator, CatalogCache, CatalogTable, DecisionInputs, DecisionKeys, KeyLimit, KeyUses,
    Ledger, Reader, Throttle,
};
use std::sync::Arc;
use utoipa::openapi::OpenApi;

/// The extractor with which a handler receives the shared state.
pub(crate) type AppState = axum::extract::State<Arc<Agents>>;

struct Agents {
    ledger: Ledger,
    catalog: CatalogCache,
    authenticator: Authenticator,
    /// The log of statements; `None` if the deployment has no log.
    log: Option<LogReader>,
    clock: Clock,
}

impl Agents {
    /// Authenticates the agent, and checks the key's `permission` if given.
    async fn authenticate(
        &self,
        caller: AgentCredentials,
        permission: Option<Permission>,
    ) -> Result<AuthenticatedCaller<()>> {
        let (now, key_use) = (self.clock.now(), caller.key_use(permission));
        let call = self
            .authenticator
            .begin_call(caller.scope, caller.key, key_use, now)
            .await?;
        let read = self.ledger.read_agent_by_id(call.key.agent);
        let agent = self.authenticator.run_throttled(&call, read).await?;
        self.authenticator.verify_call(call, agent, (), self.clock.now())
    }

    /// Authenticates the agent for a read. If `service` is given, also reads the service's policy and spending.
    async fn authenticate_with_service_state(
        &self,
        caller: AgentCredentials,
        service: Option<ServiceId>,
    ) -> Result<AuthenticatedCaller<DecisionInputs>> {
        let (now, key_use) = (self.clock.now(), caller.key_use(Permission::Read));
        let ask = DecisionKeys {
            service,
            ..DecisionKeys::default()
        };
        let call = self
            .authenticator
            .begin_call(caller.scope, caller.key, key_use, now)
            .await?;
        let read = self
            .ledger
            .read_decision_inputs(Reader::Unverified(&call.key, now), &ask);
        let (agent, inputs) = self.authenticator.run_throttled(&call, read).await?;
        self.authenticator.verify_call(call, agent, inputs, self.clock.now())
    }
}

/// Returns `not_found` unless the path names the calling agent.
fn require_caller_in_path(agent: &Agent, agent_in_path: &str) -> Result<()> {
    if AgentId::parse(agent_in_path) == Some(agent.id) {
        Ok(())
    } else {
        Err(ErrorKind::NotFound.into())
    }
}

purser_api::routes!(
    Arc<Agents>,
    tag = "agents",
    me::read_calling_agent,
    services::list_enabled_services,
    policy::read_policy,
    statement::read_settlement_statement,
    statement::read_decision_statement,
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
    let tables = ["CATALOG_TABLE", "LEDGER_TABLE", "THROTTLE_TABLE"].map(|name| env.require_text(name));
    let throttle_per_minute = env.parse_number("THROTTLE_PER_MINUTE", 120, 1..=1_000_000);
    let key_requests_per_minute = env.parse_number("KEY_REQUESTS_PER_MINUTE", 600, 1..=1_000_000);
    let client_ip_key = env.get("CLIENT_IP_KEY_SECRET_ARN").map(str::to_owned);
    let log = env.get("LOG_BUCKET").map(str::to_owned);
    let settings = (api, tables, throttle_per_minute, key_requests_per_minute);
    let (api, [catalog, ledger, throttle], throttle_per_minute, key_requests_per_minute) = env.finish(settings)?;
    let client_ip_keys = AssertionKeys::from_secret_arns(client_ip_key, &aws, &clock);

    let db = purser_store::dynamodb_client(&aws);
    let agents = Arc::new(Agents {
        ledger: Ledger::without_decisions_table(db.clone(), ledger),
        catalog: CatalogCache::new(CatalogTable::new(db.clone(), catalog)),
        authenticator: Authenticator {
            key_uses: KeyUses::new(db.clone(), throttle.as_str()),
            throttle: Throttle::new(&db, throttle.as_str(), throttle_per_minute),
            key_limit: KeyLimit::new(db, throttle, key_requests_per_minute),
        },
        log: log.map(|bucket| LogReader::new(ObjectStore::open(&aws, &bucket))),
        clock,
    });
    // Opens the connection to DynamoDB before the first request. An error is ignored, because that request tries again.
    let _ = agents.catalog.current(agents.clock.now()).await;
    let routes = with_asserted_ip_layer(routes().with_state(agents), client_ip_keys);
    Ok(purser_api::with_middleware(routes, api))
}
