//! The whole service on one machine: every function behind one gateway, over an embedded DynamoDB, a local chain, and
//! paid providers on the official SDK. Everything listens on loopback and ends with the [`Stack`].

use crate::bridge;
use crate::chain::{DevChain, DevChainError};
use crate::children::{self, ChildError, ProviderPorts, Providers};
use crate::gateway::{self, Controls, Unrouted};
use crate::iam_recorder::IamRecorder;
use crate::issuer::{self, DemoUser, Issuer};
use crate::listener::{self, Listener};
use crate::seed::{self, DemoAgent, SeedError};
use aws_sdk_dynamodb::Client;
use axum::Router;
use axum::middleware::from_fn_with_state;
use purser_api::{Boot, Clock, Env};
use purser_chain::WalletSeed;
use purser_domain::Network;
use purser_probe::Probe;
use purser_reconcile::Reconcile;
use purser_store::{CatalogTable, Ledger};
use purser_testkit::{DynamoDb, SecretsManager, Template};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use tokio::net::TcpListener;
use tokio::process::Child;

/// What is put between the functions and the database or the node: from its address to the address that the functions are
/// given.
pub type Front = Box<dyn FnOnce(String) -> Pin<Box<dyn Future<Output = String> + Send>> + Send>;

/// How a stack is started.
pub struct Options {
    /// Where the gateway listens; zero picks a free port.
    pub gateway_port: u16,
    /// Where the chain, the database, the issuer and the providers listen; zeros pick free ports.
    pub ports: Ports,
    /// `THROTTLE_PER_MINUTE` of the functions.
    pub throttle_per_minute: u32,
    /// More environment variables of the functions, above the stack's own.
    pub environment: BTreeMap<String, String>,
    /// Something in front of the database, such as a proxy that injects conflicts.
    pub front: Option<Front>,
    /// Something in front of the chain's node, such as a proxy that counts.
    pub node_front: Option<Front>,
    /// More operations of the catalog's services: the slug of the service, and what an operator writes, in which `{pay_to}` is
    /// the providers' wallet.
    pub operations: Vec<(&'static str, Value)>,
    /// The functions' clock; the system's, moved by `/_local/clock`, unless given.
    pub clock: Option<Clock>,
    /// An address of this machine at which containers reach what functions call: the gateway of a Docker bridge.
    pub bridge: Option<IpAddr>,
    /// A file to which every call of AWS that a function makes is added, as the permission that it needs.
    pub record: Option<PathBuf>,
    /// Who is told what must not be logged.
    pub listener: Option<Listener>,
}

/// Ports of the processes around the functions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ports {
    /// The chain's RPC.
    pub rpc: u16,
    /// The database.
    pub dynamodb: u16,
    /// The issuer, where people sign in.
    pub issuer: u16,
    /// The providers.
    pub providers: ProviderPorts,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            gateway_port: 0,
            ports: Ports::default(),
            throttle_per_minute: 1_200,
            environment: BTreeMap::new(),
            front: None,
            node_front: None,
            operations: Vec::new(),
            clock: None,
            bridge: None,
            record: None,
            listener: None,
        }
    }
}

/// Why a stack did not come up.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// A port can't be listened on: most often another program has it.
    #[error("port {port} of 127.0.0.1: {source}")]
    Port {
        /// The port; zero where any would have done.
        port: u16,
        /// What the system says.
        source: io::Error,
    },
    /// The same for the bridge.
    #[error("{address}: {source}")]
    Bridge {
        /// The address and the port.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Anvil or the providers.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// The chain's controls.
    #[error(transparent)]
    Chain(#[from] DevChainError),
    /// A route without its function.
    #[error(transparent)]
    Unrouted(#[from] Unrouted),
    /// The file of the calls.
    #[error("{path} can't be written: {source}", path = .path.display())]
    Record {
        /// Where it should be.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The demo data.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// A function refused to start.
    #[error("the function {function} did not start: {source}")]
    Function {
        /// Its logical id.
        function: &'static str,
        /// What it said.
        source: purser_api::BootError,
    },
}

/// A running stack.
pub struct Stack {
    /// Where agents call.
    pub base_url: String,
    /// The chain's RPC.
    pub rpc_url: String,
    /// The embedded DynamoDB itself, whatever stands in front of it.
    pub dynamodb_url: String,
    /// Where the paid providers are.
    pub providers: Providers,
    /// The seeded agent.
    pub agent: DemoAgent,
    /// The chain's controls.
    pub chain: DevChain,
    /// A client of the database itself.
    pub db: Client,
    /// The ledger itself, for what a person would do.
    pub ledger: Ledger,
    /// The catalog itself.
    pub catalog: CatalogTable,
    /// The wallets, for making further agents.
    pub seed: WalletSeed,
    /// The clock that the functions are given.
    pub clock: Clock,
    /// Where people sign in; it also signs tokens for tests.
    pub issuer: Issuer,
    /// The demo agent's owner.
    pub owner: &'static DemoUser,
    /// The token of the internal group, as it was at the start: see [`Stack::rotate_internal_token`].
    pub internal_token: String,
    /// What a schedule starts every minute; here whoever holds the stack does.
    pub probe: Probe,
    /// The same.
    pub reconcile: Reconcile,
    /// The functions by logical id, as Lambda runs them; agents reach them through the gateway.
    pub functions: BTreeMap<&'static str, Router>,
    secrets: SecretsManager,
    listener: Option<Listener>,
    /// The functions' variables; where there is a bridge, with its addresses.
    pub environment: BTreeMap<String, String>,
    _children: [Child; 2],
    _database: DynamoDb,
}

/// The chain that the local chain poses as.
pub const NETWORK: Network = Network::BaseSepolia;

impl Stack {
    /// Starts everything and seeds it. `say` is told what is going on.
    pub async fn start(options: Options, say: impl Fn(&str)) -> Result<Self, StackError> {
        // What is taken is told before anything is started. The gateway's address is the dashboard's, which the issuer
        // and the functions have to know before there is a gateway.
        let gateway = Socket::bind(options.gateway_port).await?;
        let issuer = Socket::bind(options.ports.issuer).await?;
        say("starting the chain (Anvil, posing as Base Sepolia)");
        let rpc_port = free_port(options.ports.rpc).await?;
        let anvil = children::anvil(NETWORK.chain_id(), rpc_port)?;
        let rpc_url = format!("http://127.0.0.1:{rpc_port}");
        let chain = DevChain::new(rpc_url.clone());
        chain.ready().await?;

        say("starting the paid providers and the facilitator (official x402 SDK)");
        let (node, providers) = children::providers(&rpc_url, NETWORK.chain_id(), options.ports.providers).await?;

        say("starting DynamoDB (embedded) and creating the tables of template.yaml");
        let port = options.ports.dynamodb;
        let database = DynamoDb::start(port).map_err(|source| StackError::Port { port, source })?;
        // As the functions are configured, so that nothing but the stack is ever called.
        let env = surroundings(&database.url, &database.url).into_iter().collect::<Env>();
        let db = Client::new(&Boot::new(env, Clock::system()).aws);
        let recorder = match options.record {
            Some(path) => Some(IamRecorder::open(&path).map_err(|source| StackError::Record { path, source })?),
            None => None,
        };
        let functions_db = match options.front {
            Some(front) => front(database.url.clone()).await,
            None => database.url.clone(),
        };
        let functions_db = match &recorder {
            Some(recorder) => recorder.in_front_of(functions_db).await,
            None => functions_db,
        };

        say("making the secrets");
        let functions_rpc = match options.node_front {
            Some(front) => front(rpc_url.clone()).await,
            None => rpc_url.clone(),
        };
        // A secret is the same text in containers, so where there is a bridge, all functions reach the chain over it.
        let secret_values = seed::secrets(&match options.bridge {
            Some(bridge) => bridge::open(bridge, &functions_rpc).await?,
            None => functions_rpc,
        })?;
        let seed = secret_values.wallet_seed()?;
        let internal_token = secret_values.internal_token().to_owned();
        let secrets = SecretsManager::new(secret_values.by_arn()?);
        if let Some(listener) = &options.listener {
            for value in secrets.values() {
                listener.must_not_log("a value of Secrets Manager", &value);
            }
        }
        let secrets_url = secrets.serve().await;
        let secrets_url = match &recorder {
            Some(recorder) => recorder.in_front_of(secrets_url).await,
            None => secrets_url,
        };
        let clock_ahead = Arc::new(AtomicI64::new(0));
        let clock = options
            .clock
            .unwrap_or_else(|| Clock::shifted(Arc::clone(&clock_ahead)));
        let ledger = ledger(db.clone());
        let catalog = CatalogTable::new(db.clone(), "CatalogTable");
        say("starting the issuer, where people sign in");
        let issuer = {
            let known = Issuer::new(&issuer.url, &gateway.url, clock.clone());
            issuer.serve(known.router());
            known
        };

        say("starting the functions behind the gateway");
        let mut environment = environment(options.throttle_per_minute);
        environment.insert("OIDC_ISSUER".to_owned(), issuer.url().to_owned());
        environment.insert("DASHBOARD_URL".to_owned(), gateway.url.clone());
        // The providers of this machine are the only private addresses that a probe may call.
        let probed = [&providers.provider_url, &providers.provider_v1_url];
        let probed = probed.map(|url| url.trim_start_matches("http://")).join(",");
        environment.insert("PROBE_ALLOWED_HOSTS".to_owned(), probed);
        environment.extend(surroundings(&functions_db, &secrets_url));
        environment.extend(options.environment);
        if let Some(bridge) = options.bridge {
            environment.extend(surroundings(
                &bridge::open(bridge, &functions_db).await?,
                &bridge::open(bridge, &secrets_url).await?,
            ));
        }
        // Each signs with an access key that is its own name: so the recorder knows whose call it sees.
        let boot = |function: &str| {
            let mut environment = environment.clone();
            environment.insert("AWS_ACCESS_KEY_ID".to_owned(), function.to_owned());
            Boot::new(environment.into_iter().collect(), clock.clone())
        };
        let refused = |function| move |source| StackError::Function { function, source };

        say("filling the catalog");
        // First, so that the other functions find the catalog filled.
        let internal = purser_internal::router(boot("InternalFunction"))
            .await
            .map_err(refused("InternalFunction"))?;
        let operator = seed::Caller::operator(&internal, &internal_token);
        seed::catalog(&operator, &providers, &options.operations).await?;
        let probe = Probe::boot(boot("ProbeFunction")).map_err(refused("ProbeFunction"))?;
        let reconcile = Reconcile::boot(boot("ReconcileFunction"))
            .await
            .map_err(refused("ReconcileFunction"))?;

        let dashboard = purser_dashboard::router(boot("DashboardFunction"))
            .await
            .map_err(refused("DashboardFunction"))?;
        let functions: BTreeMap<&'static str, Router> = [
            (
                "CatalogFunction",
                purser_catalog::router(boot("CatalogFunction"))
                    .await
                    .map_err(refused("CatalogFunction"))?,
            ),
            (
                "PaymentsFunction",
                purser_payments::router(boot("PaymentsFunction"))
                    .await
                    .map_err(refused("PaymentsFunction"))?,
            ),
            (
                "AgentsFunction",
                purser_agents::router(boot("AgentsFunction"))
                    .await
                    .map_err(refused("AgentsFunction"))?,
            ),
            ("DashboardFunction", dashboard.clone()),
            ("InternalFunction", internal),
            (
                "FallbackFunction",
                purser_fallback::router(boot("FallbackFunction"))
                    .await
                    .map_err(refused("FallbackFunction"))?,
            ),
        ]
        .into();

        say("making the demo owner's agent");
        let owner = seed::Caller::person(&dashboard, &issuer.token(&issuer::DEMO_OWNER));
        let agent = seed::agent(&owner, &providers).await?;
        chain
            .mint(NETWORK.token().address, agent.wallet_address, seed::DEMO_FUNDS)
            .await?;

        let controls = Controls {
            clock_ahead,
            chain: chain.clone(),
            usdc: NETWORK.token().address,
        };
        let router = gateway::router(&Template::of_repository().routes(), &functions, controls)?;
        let base_url = gateway.serve(match &options.listener {
            Some(listener) => {
                listener.credential("an agent key", &agent.key);
                router.layer(from_fn_with_state(listener.clone(), listener::listen))
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
            db,
            ledger,
            catalog,
            seed,
            clock,
            issuer,
            owner: &issuer::DEMO_OWNER,
            internal_token,
            probe,
            reconcile,
            functions,
            secrets,
            listener: options.listener,
            environment,
            _children: [anvil, node],
            _database: database,
        })
    }

    /// Gives the internal group another token, as a rotation in Secrets Manager does: what was current is the previous one
    /// now, and what was previous is gone.
    pub fn rotate_internal_token(&self, token: &str) {
        if let Some(listener) = &self.listener {
            listener.must_not_log("an internal token", token);
        }
        self.secrets.rotate(seed::INTERNAL_TOKEN_ARN, token.to_owned());
    }

    /// Every value that Secrets Manager holds for the functions, for looking whether one of them got out.
    pub fn secret_values(&self) -> Vec<String> {
        self.secrets.values()
    }
}

/// The ledger in the tables of `template.yaml`.
fn ledger(db: Client) -> Ledger {
    Ledger::new(db, "LedgerTable", "DecisionsTable")
}

/// Where the AWS of this stack is, with credentials that open nothing else.
fn surroundings(dynamodb: &str, secrets: &str) -> BTreeMap<String, String> {
    [
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "local"),
        ("AWS_SECRET_ACCESS_KEY", "local"),
        ("DYNAMODB_ENDPOINT", dynamodb),
        ("SECRETS_ENDPOINT", secrets),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .collect()
}

/// The functions' variables, as `template.yaml` sets them in the cloud.
fn environment(throttle_per_minute: u32) -> BTreeMap<String, String> {
    let mut variables: BTreeMap<String, String> = [
        ("CATALOG_TABLE", "CatalogTable"),
        ("LEDGER_TABLE", "LedgerTable"),
        ("DECISIONS_TABLE", "DecisionsTable"),
        ("THROTTLE_TABLE", "ThrottleTable"),
        ("NETWORK", NETWORK.name()),
        ("WALLET_SEED_SECRET_ARN", seed::WALLET_SEED_ARN),
        ("NONCE_KEY_SECRET_ARN", seed::NONCE_KEY_ARN),
        ("RPC_URL_SECRET_ARN", seed::RPC_URL_ARN),
        ("WALLET_XPUB_SECRET_ARN", seed::WALLET_XPUB_ARN),
        ("INTERNAL_TOKEN_SECRET_ARN", seed::INTERNAL_TOKEN_ARN),
        ("OIDC_CLIENT_ID", issuer::CLIENT_ID),
        // The local chain does not reorganize by itself, and mines when there is something to mine.
        ("FINALITY_CONFIRMATIONS", "1"),
        ("WATCH_CONFIRMATIONS", "1"),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .collect();
    variables.insert("THROTTLE_PER_MINUTE".to_owned(), throttle_per_minute.to_string());
    variables
}

/// Listens on a loopback port; zero picks a free one.
async fn listen(port: u16) -> Result<TcpListener, StackError> {
    let loopback = SocketAddr::from(([127, 0, 0, 1], port));
    TcpListener::bind(loopback)
        .await
        .map_err(|source| StackError::Port { port, source })
}

/// A loopback port that is ours and has an address, before there is something to serve.
struct Socket {
    listener: TcpListener,
    url: String,
}

impl Socket {
    /// Takes a port; zero picks a free one.
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

    /// Serves a router in the background until the runtime ends, and answers its address.
    fn serve(self, router: Router) -> String {
        let Self { listener, url } = self;
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, service).await });
        url
    }
}

/// The port, or a free one for zero, for a process that will listen there. A port that somebody else listens on is an
/// error here, before it is taken for that process.
async fn free_port(port: u16) -> Result<u16, StackError> {
    let address = listen(port).await?.local_addr();
    address
        .map(|address| address.port())
        .map_err(|source| StackError::Port { port, source })
}
