//! The whole service on one machine: the functions behind a gateway, with an embedded DynamoDB, a local chain, and paid
//! providers. All servers listen on loopback.

use crate::bridge;
use crate::chain::{DevChain, NETWORK};
use crate::error::StackError;
use crate::gateway::{self, Controls};
use crate::iam_recorder::{IamRecorder, recorder_url};
use crate::issuer::{self, DemoUser, Issuer};
use crate::log_audit::{self, LogAudit};
use crate::mail::{Mail, MailService};
use crate::processes::{self, ProviderPorts, Providers};
use crate::seed::{self, DemoAgent, SeedError};
use crate::sqs_mapping;
use aws_sdk_dynamodb::Client;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use lambda_http::{Context, LambdaEvent};
use purser_api::{Boot, Clock, CustodyKind, Env, Routers, handle_gateway_or_direct_event};
use purser_chain::{Custody, CustodyError, KmsKeys, NewKey};
use purser_domain::{AgentId, UserId, Wallet};
use purser_notices::Notifications;
use purser_probe::Probe;
use purser_reconcile::Reconcile;
use purser_store::{CatalogTable, Ledger};
use purser_stream::{Events, History};
use purser_testkit::{DynamoDb, EventBus, Kms, Lambda, SecretsManager, Sqs, Streams, Template, written_at};
use purser_webhooks::Webhooks;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::process::Child;

/// Starts a proxy in front of the database or the node. Maps the URL of the database or node to the URL of the proxy.
pub type Front = Box<dyn FnOnce(String) -> Pin<Box<dyn Future<Output = String> + Send>> + Send>;

/// Options of a stack.
pub struct Options {
    /// The gateway's port; zero selects a free port.
    pub gateway_port: u16,
    /// The ports of the services that the functions call; zeros select free ports.
    pub ports: Ports,
    /// The value of the variable `THROTTLE_PER_MINUTE`.
    pub throttle_per_minute: u32,
    /// The custody of the wallet keys.
    pub custody: CustodyKind,
    /// Environment variables of the functions, which override the stack's.
    pub environment: BTreeMap<String, String>,
    /// A proxy in front of the database, for example for conflicts.
    pub front: Option<Front>,
    /// A proxy in front of the chain's node, for example for counting calls.
    pub node_front: Option<Front>,
    /// Further operations of the catalog's services: the service's slug, and the operation, with `{pay_to}` for the
    /// providers' wallet.
    pub operations: Vec<(&'static str, Value)>,
    /// The functions' clock. The default is the system's clock plus the time by which `/_local/clock` advanced it.
    pub clock: Option<Clock>,
    /// An address at which containers reach the stack, such as the gateway of a Docker bridge.
    pub bridge: Option<IpAddr>,
    /// A file to which the permissions that AWS calls need are appended.
    pub record: Option<PathBuf>,
    /// The recorder of texts that no log may contain.
    pub log_audit: Option<LogAudit>,
    /// Whether the tables have streams.
    pub streams: Streaming,
    /// The mail service to use.
    pub mail: MailService,
}

/// Whether the tables have streams. The embedded database becomes slower with long streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Streaming {
    /// The tables have streams. [`Stack::publish_changes`] passes the records to the functions.
    On,
    /// The tables have streams. [`Stack::aggregate_history`] passes the records to `history`, and nothing is published.
    #[default]
    Journal,
    /// The tables have no streams, so nothing is published and the decision history is empty.
    Off,
}

/// The ports of the services that the functions call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ports {
    /// The port of the chain's node.
    pub rpc: u16,
    /// The port of the database.
    pub dynamodb: u16,
    /// The port of the issuer.
    pub issuer: u16,
    /// The ports of the providers.
    pub providers: ProviderPorts,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            gateway_port: 0,
            ports: Ports::default(),
            throttle_per_minute: 1_200,
            custody: CustodyKind::Seed,
            environment: BTreeMap::new(),
            front: None,
            node_front: None,
            operations: Vec::new(),
            clock: None,
            bridge: None,
            record: None,
            log_audit: None,
            streams: Streaming::default(),
            mail: MailService::default(),
        }
    }
}

/// The variable with the number of seconds for which a sign-in counts as recent.
pub(crate) const RECENT_SIGN_IN: &str = "RECENT_SIGN_IN_SECONDS";

/// A running stack.
pub struct Stack {
    /// The gateway's URL.
    pub base_url: String,
    /// The URL of the chain's node.
    pub rpc_url: String,
    /// The URL of the embedded database, without a proxy.
    pub dynamodb_url: String,
    /// The addresses of the facilitator and the providers.
    pub providers: Providers,
    /// The demo agent.
    pub agent: DemoAgent,
    /// Controls the chain.
    pub chain: DevChain,
    /// A client of the database, without a proxy.
    pub db: Client,
    /// The ledger, for direct writes in tests.
    pub ledger: Ledger,
    /// The catalog table, for direct writes in tests.
    pub catalog: CatalogTable,
    /// The custody of the wallet keys. [`Stack::new_wallet`] creates a wallet.
    pub custody: Custody,
    /// KMS, which has the wallet keys with KMS custody.
    pub kms: Kms,
    /// The functions' clock.
    pub clock: Clock,
    /// The issuer, which also signs tokens for tests.
    pub issuer: Issuer,
    /// The demo agent's owner.
    pub owner: &'static DemoUser,
    /// The operator token until [`Stack::set_operators`].
    pub internal_token: String,
    /// The function `probe`, which no schedule runs here.
    pub probe: Probe,
    /// The function `reconcile`, which no schedule runs here.
    pub reconcile: Reconcile,
    /// The queues for webhooks and notifications.
    pub sqs: Sqs,
    /// The mail service.
    pub mail: Mail,
    /// The function `events`. [`Stack::publish_changes`] calls it.
    pub events: Events,
    /// The function `history`. [`Stack::publish_changes`] calls it.
    pub history: History,
    /// The event bus.
    pub bus: EventBus,
    streams: Option<Streams>,
    is_publishing: bool,
    /// Another instance of `history` without a proxy, for [`Stack::aggregate_history`].
    folding: History,
    /// The functions by logical id.
    pub functions: BTreeMap<&'static str, Router>,
    secrets: SecretsManager,
    log_audit: Option<LogAudit>,
    /// The functions' environment variables. If there is a bridge, they contain its address.
    pub environment: BTreeMap<String, String>,
    /// The folder with the statement log.
    pub log: LogFolder,
    _children: [Child; 2],
    _database: DynamoDb,
}

/// The folder with a stack's statement log, which is removed with the stack.
#[derive(Debug)]
pub struct LogFolder(pub PathBuf);

impl LogFolder {
    /// The name of the archive's folder in the log's folder.
    pub const ARCHIVE: &str = "archive";

    /// Chooses a folder, and adds it to the functions' environment.
    fn new(environment: &mut BTreeMap<String, String>) -> Self {
        let path = std::env::temp_dir().join(format!("purser-log-{}", uuid::Uuid::new_v4()));
        environment.insert("LOG_BUCKET".to_owned(), format!("folder:{}", path.display()));
        let archive = path.join(Self::ARCHIVE);
        environment.insert("ARCHIVE_BUCKET".to_owned(), format!("folder:{}", archive.display()));
        let origin = format!("local.example/{}/log", uuid::Uuid::new_v4());
        environment.insert("LOG_ORIGIN".to_owned(), origin);
        Self(path)
    }
}

impl Drop for LogFolder {
    fn drop(&mut self) {
        // Without statements, the folder does not exist.
        let _missing = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns a function's configuration. The access key id is the function's name, so that the recorder can identify the
/// function.
fn boot_for(function: &str, mut environment: BTreeMap<String, String>, clock: Clock) -> Boot {
    environment.insert("AWS_ACCESS_KEY_ID".to_owned(), function.to_owned());
    let keys = seed::CLIENT_IP_KEY_ARNS.into_iter();
    for (_, arn) in keys.filter(|(verifier, _)| *verifier == function) {
        environment.insert("CLIENT_IP_KEY_SECRET_ARN".to_owned(), arn.to_owned());
    }
    Boot::new(environment.into_iter().collect(), clock)
}

impl Stack {
    /// Starts all services and creates the demo data. `report_progress` gets progress messages.
    #[expect(clippy::too_many_lines, reason = "it starts each part in order")]
    pub async fn start(options: Options, report_progress: impl Fn(&str)) -> Result<Self, StackError> {
        // The ports are bound first, so that a used port is reported immediately and all URLs are known.
        let gateway = Socket::bind(options.gateway_port).await?;
        let issuer = Socket::bind(options.ports.issuer).await?;
        report_progress("starting DynamoDB (embedded) with the tables of template.yaml");
        let (database, streams) = database(options.streams, options.ports.dynamodb)?;
        let env = aws_environment([&database.url; 5]).into_iter().collect::<Env>();
        let db = Client::new(&Boot::new(env, Clock::system()).aws);
        report_progress("starting the chain (Anvil, posing as Base Sepolia)");
        let rpc_port = free_port(options.ports.rpc).await?;
        let anvil = processes::anvil(NETWORK.chain_id(), rpc_port)?;
        let rpc_url = format!("http://127.0.0.1:{rpc_port}");
        let chain = DevChain::new(rpc_url.clone());
        report_progress("starting the paid providers and the facilitator (official x402 SDK)");
        // The calls are concurrent, because loading the SDK takes longest.
        let ((), (node, providers)) =
            tokio::try_join!(async { chain.ready().await.map_err(StackError::from) }, async {
                processes::providers(&rpc_url, NETWORK.chain_id(), options.ports.providers)
                    .await
                    .map_err(StackError::from)
            },)?;
        let recorder = match options.record {
            Some(path) => Some(IamRecorder::open(&path).map_err(|source| StackError::Record { path, source })?),
            None => None,
        };
        let functions_db = match options.front {
            Some(front) => front(database.url.clone()).await,
            None => database.url.clone(),
        };
        let functions_db = recorder_url(recorder.as_ref(), functions_db).await;

        report_progress("making the secrets");
        let functions_rpc = match options.node_front {
            Some(front) => front(rpc_url.clone()).await,
            None => rpc_url.clone(),
        };
        // The node's URL is in a secret that functions in containers also read, so all functions use the bridge's URL.
        let functions_rpc = match options.bridge {
            Some(bridge) => bridge::open(bridge, &functions_rpc).await?,
            None => functions_rpc,
        };
        let secret_values = seed::secrets(&functions_rpc, options.custody)?;
        let kms = Kms::default();
        let kms_url = kms.serve().await;
        let custody = match secret_values.wallet_seed()? {
            Some(seed) => Custody::from_seed(seed),
            None => Custody::from_kms(keys_at(&kms_url)),
        };
        let kms_url = recorder_url(recorder.as_ref(), kms_url).await;
        let internal_token = secret_values.internal_token().to_owned();
        let secrets = SecretsManager::new(secret_values.by_arn());
        if let Some(audit) = &options.log_audit {
            for value in secrets.values() {
                audit.must_not_log("a value of Secrets Manager", &value);
            }
            audit.must_not_log("an operator's token", &internal_token);
        }
        let secrets_url = recorder_url(recorder.as_ref(), secrets.serve().await).await;
        let lambda = Lambda::default();
        let lambda_url = recorder_url(recorder.as_ref(), lambda.serve().await).await;
        let bus = EventBus::new(BUS);
        let bus_url = recorder_url(recorder.as_ref(), bus.serve().await).await;
        let clock_ahead = Arc::new(AtomicI64::new(0));
        let clock = options
            .clock
            .unwrap_or_else(|| Clock::with_shift(Arc::clone(&clock_ahead)));
        report_progress("starting the issuer, where people sign in");
        let issuer = {
            let known = Issuer::new(&issuer.url, &gateway.url, clock.clone());
            issuer.serve(known.router());
            known
        };

        report_progress("starting the functions behind the gateway");
        let mut environment = environment(options.throttle_per_minute);
        let log = LogFolder::new(&mut environment);
        environment.extend(addresses(issuer.url(), &gateway.url, &providers));
        environment.insert("BROWSER_OPERATORS".to_owned(), browser_operators(issuer.url()));
        environment.insert("FACILITATOR_URL".to_owned(), providers.facilitator_url.clone());
        let aws = [&functions_db, &secrets_url, &lambda_url, &kms_url, &bus_url].map(String::as_str);
        environment.extend(aws_environment(aws));
        let sqs = sqs_mapping::queues(clock.clone());
        let sqs_url = recorder_url(recorder.as_ref(), sqs.serve().await).await;
        environment.extend(sqs_mapping::variables(&sqs_url));
        let mail = Mail::start(options.mail, recorder.as_ref(), &report_progress).await?;
        environment.extend(mail.variables(options.bridge).await?);
        environment.insert("CUSTODY".to_owned(), custody_name(options.custody).to_owned());
        environment.extend(options.environment);
        if let Some(bridge) = options.bridge {
            let mut opened = Vec::new();
            for url in aws {
                opened.push(bridge::open(bridge, url).await?);
            }
            if let [dynamodb, secrets, lambda, kms, bus] = opened.as_slice() {
                environment.extend(aws_environment([dynamodb, secrets, lambda, kms, bus]));
            }
            environment.extend(sqs_mapping::variables(&bridge::open(bridge, &sqs_url).await?));
        }
        let boot = |function: &str| boot_for(function, environment.clone(), clock.clone());

        report_progress("filling the catalog");
        // The other functions must find the catalog, which `internal` creates.
        let internal = purser_internal::routers(boot("InternalFunction"))
            .await
            .map_err(start_error("InternalFunction"))?;
        let operator = seed::Caller::operator(&internal.gateway, &internal_token);
        seed::catalog(&operator, &providers, &options.operations).await?;
        let direct = recorder_url(recorder.as_ref(), database.url.clone()).await;
        let beside = |function: &str| {
            let mut environment = environment.clone();
            environment.insert("DYNAMODB_ENDPOINT".to_owned(), direct.clone());
            boot_for(function, environment, clock.clone())
        };
        let folding = History::boot(beside("HistoryFunction")).map_err(start_error("HistoryFunction"))?;
        let attesters = Events::boot(beside("EventsFunction")).map_err(start_error("EventsFunction"))?;
        let internal = with_payee_verification(internal, &attesters, options.streams).await?;
        lambda.set("InternalFunction", {
            let internal = internal.clone();
            move |event| invoke_internal(internal.clone(), event)
        });
        let probe = Probe::boot(boot("ProbeFunction")).map_err(start_error("ProbeFunction"))?;
        let reconcile = Reconcile::boot(boot("ReconcileFunction"))
            .await
            .map_err(start_error("ReconcileFunction"))?;
        let events = Events::boot(boot("EventsFunction")).map_err(start_error("EventsFunction"))?;
        let history = History::boot(boot("HistoryFunction")).map_err(start_error("HistoryFunction"))?;

        follow_queues(&bus, &sqs, options.streams, boot)?;

        let payments = purser_payments::routers(boot("PaymentsFunction"))
            .await
            .map_err(start_error("PaymentsFunction"))?;
        lambda.set("PaymentsFunction", {
            let payments = payments.clone();
            move |event| invoke_internal(payments.clone(), event)
        });
        let people = purser_dashboard::router(boot("PeopleFunction"))
            .await
            .map_err(start_error("PeopleFunction"))?;
        let functions: BTreeMap<&'static str, Router> = [
            (
                "CatalogFunction",
                purser_catalog::router(boot("CatalogFunction"))
                    .await
                    .map_err(start_error("CatalogFunction"))?,
            ),
            ("PaymentsFunction", payments.gateway),
            (
                "AgentsFunction",
                purser_agents::router(boot("AgentsFunction"))
                    .await
                    .map_err(start_error("AgentsFunction"))?,
            ),
            (
                "McpFunction",
                purser_mcp_function::router(boot("McpFunction"))
                    .await
                    .map_err(start_error("McpFunction"))?,
            ),
            (
                "OauthFunction",
                purser_oauth::router(boot("OauthFunction"))
                    .await
                    .map_err(start_error("OauthFunction"))?,
            ),
            ("PeopleFunction", people.clone()),
            ("InternalFunction", internal.gateway),
        ]
        .into();

        report_progress("making the demo owner's agent");
        let owner = seed::Caller::person(&people, &issuer.token(&issuer::DEMO_OWNER));
        let agent = seed::agent(&owner, &providers).await?;
        chain
            .mint(NETWORK.token().address, agent.wallet_address, seed::DEMO_FUNDS)
            .await?;

        let controls = Controls {
            clock_ahead,
            chain: chain.clone(),
            issuer: issuer.clone(),
        };
        let router = gateway::router(&Template::of_repository().routes(), &functions, controls)?;
        let base_url = gateway.serve(match &options.log_audit {
            Some(audit) => {
                audit.record_credential("an agent key", &agent.key);
                router.layer(from_fn_with_state(audit.clone(), log_audit::audit))
            }
            None => router,
        });

        Ok(Self {
            base_url,
            rpc_url,
            dynamodb_url: database.url.clone(),
            providers,
            agent,
            chain,
            ledger: ledger(db.clone()),
            catalog: CatalogTable::new(db.clone(), "CatalogTable"),
            db,
            custody,
            kms,
            clock,
            issuer,
            owner: &issuer::DEMO_OWNER,
            internal_token,
            probe,
            reconcile,
            sqs,
            mail,
            events,
            history,
            bus,
            streams,
            is_publishing: options.streams == Streaming::On,
            folding,
            functions,
            secrets,
            log_audit: options.log_audit,
            environment,
            log,
            _children: [anvil, node],
            _database: database,
        })
    }

    /// Replaces the operators' names and tokens.
    pub fn set_operators(&self, operators: &[(&str, &str)]) {
        if let Some(audit) = &self.log_audit {
            for (_, token) in operators {
                audit.must_not_log("an operator's token", token);
            }
        }
        self.secrets.store(seed::OPERATORS_ARN, &seed::operators(operators));
    }

    /// Passes all remaining stream records to `history` and `events`. Returns the number of records that were given up.
    pub async fn publish_changes(&self) -> usize {
        match &self.streams {
            Some(streams) if self.is_publishing => {
                publish_stream_records(streams, (&self.events, &self.history), &self.clock).await
            }
            _ => self.aggregate_history().await,
        }
    }

    /// Passes all remaining stream records to `history`. Returns the number of records that were given up.
    pub async fn aggregate_history(&self) -> usize {
        let Some(streams) = &self.streams else { return 0 };
        let call = async |event: Value| call_stream_functions((&self.events, &self.folding), &self.clock, event).await;
        // Without the box, the types of the tests' futures would become too large.
        let folding: Pin<Box<dyn Future<Output = usize> + Send + '_>> = Box::pin(streams.fold(TRIES, call));
        folding.await
    }

    /// Passes new stream records to `history` and `events`, as long as the returned future runs.
    pub fn publish_continuously(&self) -> impl Future<Output = ()> + Send + 'static {
        let streams = self.streams.clone().filter(|_| self.is_publishing);
        let (events, history, clock) = (self.events.clone(), self.history.clone(), self.clock.clone());
        async move {
            let Some(streams) = streams else { return };
            loop {
                let _given_up = publish_stream_records(&streams, (&events, &history), &clock).await;
                tokio::time::sleep(POLL).await;
            }
        }
    }

    /// Creates a wallet for an agent, as `people` and `payments` do together.
    pub async fn new_wallet(&self, agent: AgentId) -> Result<Wallet, CustodyError> {
        let key = match self.custody.kms_keys() {
            // The embedded database always responds, so the fallback is never used.
            None => NewKey::Seed(self.ledger.assign_wallet_index().await.unwrap_or(u32::MAX)),
            Some(keys) => NewKey::Kms(keys.create_key(agent, KEYS_STACK, None).await?),
        };
        self.custody.wallet_for_new_key(key).await?.attest(agent).await
    }

    /// Returns all values in Secrets Manager, so that a test can check that none leaks.
    pub fn secret_values(&self) -> Vec<String> {
        self.secrets.values()
    }
}

/// Starts the database. Returns the streams if the tables have streams.
fn database(streams: Streaming, port: u16) -> Result<(DynamoDb, Option<Streams>), StackError> {
    let started = match streams {
        Streaming::On | Streaming::Journal => {
            DynamoDb::with_streams(port).map(|(database, streams)| (database, Some(streams)))
        }
        Streaming::Off => DynamoDb::start(port).map(|database| (database, None)),
    };
    started.map_err(|source| StackError::Port { port, source })
}

/// The interval at which a stream is read, as in Lambda.
const POLL: Duration = Duration::from_millis(250);
/// The maximum number of attempts for a record.
const TRIES: u32 = 10;
/// The timeout of a call, as in `template.yaml`.
const CALL: Duration = Duration::from_secs(55);

async fn publish_stream_records(streams: &Streams, functions: (&Events, &History), clock: &Clock) -> usize {
    let call = async |event: Value| call_stream_functions(functions, clock, event).await;
    streams.deliver(TRIES, call).await
}

/// Calls the function to which the mapping delivers the event. `history` gets the stack's time, which may be ahead of
/// the database's.
async fn call_stream_functions((events, history): (&Events, &History), clock: &Clock, event: Value) -> Option<Value> {
    match event.get("shardId") {
        Some(_) => history.handle_event(&written_at(event, clock.now().secs())).await.ok(),
        None => events.handle_event(&event, CALL).await.ok(),
    }
}

/// Verifies the catalog's payees and publishes the log's keys. If nothing is published, the returned function verifies
/// payees after each update.
async fn with_payee_verification(
    internal: Routers,
    events: &Events,
    streams: Streaming,
) -> Result<Routers, StackError> {
    events.publish_due_events(CALL).await.map_err(SeedError::from)?;
    events.sign_pending_statements(CALL).await.map_err(SeedError::from)?;
    Ok(match streams {
        Streaming::On => internal,
        Streaming::Journal | Streaming::Off => Routers {
            gateway: internal
                .gateway
                .layer(from_fn_with_state(events.clone(), verify_payees_after)),
            direct: internal
                .direct
                .layer(from_fn_with_state(events.clone(), verify_payees_after)),
        },
    })
}

/// Verifies the catalog's payees after each update, because `events` gets no stream records.
async fn verify_payees_after(State(events): State<Events>, request: Request, next: Next) -> Response {
    let updates = !request.method().is_safe();
    let response = next.run(request).await;
    if updates && response.status().is_success() {
        let by_rule = json!({"attest_catalog": "by_rule"});
        if let Err(error) = events.handle_event(&by_rule, CALL).await {
            tracing::warn!(%error, "payees.not_attested");
        }
    }
    response
}

/// Calls a function as another function does, and returns its response.
async fn invoke_internal(routers: Routers, event: String) -> String {
    let event = RawValue::from_string(event).unwrap_or_default();
    let response = handle_gateway_or_direct_event(routers, LambdaEvent::new(event, Context::default())).await;
    response.get().to_owned()
}

const BUS: &str = "local";

/// The stack's name in the tags of KMS keys.
const KEYS_STACK: &str = "local";

/// Returns the value of the functions' variable for the custody.
const fn custody_name(custody: CustodyKind) -> &'static str {
    match custody {
        CustodyKind::Seed => "seed",
        CustodyKind::Kms => "kms",
    }
}

fn keys_at(url: &str) -> KmsKeys {
    let env = aws_environment([url; 5]).into_iter().collect::<Env>();
    KmsKeys::new(Boot::new(env, Clock::system()).aws)
}

fn start_error(function: &'static str) -> impl FnOnce(purser_api::BootError) -> StackError {
    move |source| StackError::Function { function, source }
}

/// Starts the functions that the queues call.
fn follow_queues(bus: &EventBus, sqs: &Sqs, streams: Streaming, boot: impl Fn(&str) -> Boot) -> Result<(), StackError> {
    let webhooks = Webhooks::boot(boot("WebhooksFunction")).map_err(start_error("WebhooksFunction"))?;
    let notices = Notifications::boot(boot("NoticesFunction")).map_err(start_error("NoticesFunction"))?;
    sqs_mapping::follow(bus, sqs, KEYS_STACK, &webhooks, &notices);
    // Without events, `webhooks` has no deliveries to pause.
    if let Streaming::On = streams {
        sqs_mapping::sweep(webhooks);
    }
    Ok(())
}

/// Returns the ledger in the tables of `template.yaml`.
fn ledger(db: Client) -> Ledger {
    Ledger::new(db, "LedgerTable", "DecisionsTable")
}

/// Returns the AWS endpoints, with credentials that are valid nowhere else.
fn aws_environment([dynamodb, secrets, lambda, kms, bus]: [&str; 5]) -> BTreeMap<String, String> {
    [
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "local"),
        ("AWS_SECRET_ACCESS_KEY", "local"),
        ("DYNAMODB_ENDPOINT", dynamodb),
        ("SECRETS_ENDPOINT", secrets),
        ("LAMBDA_ENDPOINT", lambda),
        ("KMS_ENDPOINT", kms),
        ("EVENTBRIDGE_ENDPOINT", bus),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .collect()
}

/// Returns the functions' environment variables as in `template.yaml`.
fn environment(throttle_per_minute: u32) -> BTreeMap<String, String> {
    let mut variables: BTreeMap<String, String> = [
        ("CATALOG_TABLE", "CatalogTable"),
        ("LEDGER_TABLE", "LedgerTable"),
        ("DECISIONS_TABLE", "DecisionsTable"),
        ("AUDIT_TABLE", "AuditTable"),
        ("THROTTLE_TABLE", "ThrottleTable"),
        ("WEBHOOKS_TABLE", "WebhooksTable"),
        ("STACK", KEYS_STACK),
        ("WEBHOOK_SECRETS_KEY_ARN", Kms::SECRETS_KEY),
        // The address on which `infra/local/webhooks` listens.
        ("WEBHOOK_ALLOWED_HOSTS", "127.0.0.1:4030"),
        // The demo owner can also use the operators' pages.
        ("OPERATOR_CLAIM", "email"),
        ("OPERATOR_VALUE", issuer::DEMO_OWNER.email),
        ("USAGE_TABLE", "UsageTable"),
        ("EVENT_BUS", BUS),
        ("NETWORK", NETWORK.name()),
        ("WALLET_SEED_SECRET_ARN", seed::WALLET_SEED_ARN),
        ("NONCE_KEY_SECRET_ARN", seed::NONCE_KEY_ARN),
        ("STATEMENTS_KEY_SECRET_ARN", seed::STATEMENTS_KEY_ARN),
        ("RPC_URL_SECRET_ARN", seed::RPC_URL_ARN),
        ("SIGN_IN_KEY_SECRET_ARN", seed::SIGN_IN_KEY_ARN),
        ("OAUTH_KEY_SECRET_ARN", seed::OAUTH_KEY_ARN),
        ("OPERATORS_SECRET_ARN", seed::OPERATORS_ARN),
        ("PAYMENTS_FUNCTION", "PaymentsFunction"),
        ("INTERNAL_FUNCTION", "InternalFunction"),
        ("WALLET_KEYS_STACK", KEYS_STACK),
        ("OIDC_CLIENT_ID", issuer::CLIENT_ID),
        // Local callers share one address, so their limit per address applies first.
        ("KEY_REQUESTS_PER_MINUTE", "1000000"),
        ("MAX_HOLDS_PER_AGENT", "1000000"),
        // A new payee can be paid immediately.
        ("ACCEPTED_PAYEE_DELAY_SECONDS", "0"),
        // The local chain reorganizes only in tests, and mines only with transactions.
        ("FINALITY_CONFIRMATIONS", "1"),
        ("WATCH_CONFIRMATIONS", "1"),
        (RECENT_SIGN_IN, "600"),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .collect();
    variables.insert("THROTTLE_PER_MINUTE".to_owned(), throttle_per_minute.to_string());
    let client_ip_keys = seed::CLIENT_IP_KEY_ARNS.map(|(_, arn)| arn);
    variables.insert("CLIENT_IP_KEY_SECRET_ARNS".to_owned(), client_ip_keys.join(","));
    variables
}

/// Maps the operator names for the browser to the demo users.
fn browser_operators(issuer: &str) -> String {
    let people = [issuer::DEMO_OWNER, issuer::DEMO_STRANGER];
    let pairs = seed::BROWSER_OPERATORS.into_iter().zip(people);
    let pairs = pairs.map(|(name, user)| format!("{name}={}", UserId::derive(issuer, user.sub)));
    pairs.collect::<Vec<_>>().join(",")
}

/// Returns the URLs of issuer, dashboard and API, and the providers' loopback hosts, which probes and tools may call.
fn addresses(issuer: &str, gateway: &str, providers: &Providers) -> [(String, String); 5] {
    let called = [&providers.provider_url, &providers.provider_v1_url];
    let called = called.map(|url| url.trim_start_matches("http://")).join(",");
    [
        ("OIDC_ISSUER", issuer),
        ("DASHBOARD_URL", gateway),
        ("API_URL", gateway),
        ("PROBE_ALLOWED_HOSTS", &called),
        ("MCP_ALLOWED_HOSTS", &called),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
}

/// Listens on a loopback port; zero selects a free port.
async fn listen(port: u16) -> Result<TcpListener, StackError> {
    let loopback = SocketAddr::from(([127, 0, 0, 1], port));
    TcpListener::bind(loopback)
        .await
        .map_err(|source| StackError::Port { port, source })
}

/// A bound loopback port that accepts no requests yet.
struct Socket {
    listener: TcpListener,
    url: String,
}

impl Socket {
    /// Binds a port; zero selects a free port.
    async fn bind(port: u16) -> Result<Self, StackError> {
        let listener = listen(port).await?;
        let address = listener
            .local_addr()
            .map_err(|source| StackError::Port { port, source })?;
        Ok(Self {
            listener,
            url: format!("http://{address}"),
        })
    }

    /// Serves a router until the runtime ends. Returns the URL.
    fn serve(self, router: Router) -> String {
        let Self { listener, url } = self;
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, service).await });
        url
    }
}

/// Returns `port`, or a free port if it is zero. Returns an error if another program uses the port.
async fn free_port(port: u16) -> Result<u16, StackError> {
    let address = listen(port).await?.local_addr();
    address
        .map(|address| address.port())
        .map_err(|source| StackError::Port { port, source })
}
