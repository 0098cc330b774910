//! The whole service on one machine: every function behind one gateway, over an embedded DynamoDB, a local chain, and
//! paid providers on the official SDK. Everything listens on loopback and ends with the [`Stack`].

use crate::chain::{DevChain, DevChainError};
use crate::children::{self, ChildError, ProviderPorts, Providers};
use crate::database::EmbeddedDynamo;
use crate::gateway::{self, Controls, Unrouted};
use crate::seed::{self, DemoAgent, SeedError};
use crate::template::{Template, TemplateError};
use crate::{endpoints, secrets};
use aws_sdk_dynamodb::Client;
use axum::Router;
use purser_api::{Boot, Clock, Env};
use purser_chain::WalletSeed;
use purser_domain::Network;
use purser_store::{CatalogTable, Ledger};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use tokio::net::TcpListener;
use tokio::process::Child;

/// What is put between the functions and the database: from its address to the address that the functions are given.
pub type Front = Box<dyn FnOnce(String) -> Pin<Box<dyn Future<Output = String> + Send>> + Send>;

/// How a stack is started.
pub struct Options {
    /// Where the gateway listens; zero picks a free port.
    pub gateway_port: u16,
    /// Where the chain, the database and the providers listen; zeros pick free ports.
    pub ports: Ports,
    /// `THROTTLE_PER_MINUTE` of the functions.
    pub throttle_per_minute: u32,
    /// More environment variables of the functions, above the stack's own.
    pub environment: BTreeMap<String, String>,
    /// Something in front of the database, such as a proxy that injects conflicts.
    pub front: Option<Front>,
    /// The functions' clock; the system's, moved by `/_local/clock`, unless given.
    pub clock: Option<Clock>,
}

/// Ports of the processes around the functions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ports {
    /// The chain's RPC.
    pub rpc: u16,
    /// The database.
    pub dynamodb: u16,
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
            clock: None,
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
    /// Anvil or the providers.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// The chain's controls.
    #[error(transparent)]
    Chain(#[from] DevChainError),
    /// `template.yaml`.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A route without its function.
    #[error(transparent)]
    Unrouted(#[from] Unrouted),
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
    /// The functions by logical id, as Lambda runs them; agents reach them through the gateway.
    pub functions: BTreeMap<&'static str, Router>,
    _children: [Child; 2],
    _database: EmbeddedDynamo,
}

/// The chain that the local chain poses as.
pub const NETWORK: Network = Network::BaseSepolia;

impl Stack {
    /// Starts everything and seeds it. `say` is told what is going on.
    pub async fn start(options: Options, say: impl Fn(&str)) -> Result<Self, StackError> {
        // What is taken is told before anything is started.
        free_port(options.gateway_port).await?;
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
        let database = EmbeddedDynamo::start(port).map_err(|source| StackError::Port { port, source })?;
        let template = Template::of_repository()?;
        let db = Client::new(&endpoints::config(&database.url, &database.url).await);
        template.create_tables(&db).await?;
        let functions_db = match options.front {
            Some(front) => front(database.url.clone()).await,
            None => database.url.clone(),
        };

        say("making the secrets and the demo agent");
        let secret_values = seed::secrets(&rpc_url)?;
        let seed = secret_values.wallet_seed()?;
        let secrets_url = serve(0, secrets::endpoint(secret_values.by_arn())).await?;
        let clock_ahead = Arc::new(AtomicI64::new(0));
        let clock = options
            .clock
            .unwrap_or_else(|| Clock::shifted(Arc::clone(&clock_ahead)));
        let ledger = ledger(db.clone());
        let catalog = CatalogTable::new(db.clone(), "CatalogTable");
        seed::catalog(&catalog, &providers).await?;
        let agent = seed::agent(&ledger, &seed, clock.now()).await?;
        chain
            .mint(NETWORK.token().address, agent.wallet_address, seed::DEMO_FUNDS)
            .await?;

        say("starting the functions behind the gateway");
        let mut environment = environment(options.throttle_per_minute);
        environment.extend(options.environment);
        let aws = endpoints::config(&functions_db, &secrets_url).await;
        let boot = || Boot {
            env: environment.clone().into_iter().collect::<Env>(),
            aws: aws.clone(),
            clock: clock.clone(),
        };
        let refused = |function| move |source| StackError::Function { function, source };
        let functions: BTreeMap<&'static str, Router> = [
            (
                "CatalogFunction",
                purser_catalog::router(boot())
                    .await
                    .map_err(refused("CatalogFunction"))?,
            ),
            (
                "PaymentsFunction",
                purser_payments::router(boot())
                    .await
                    .map_err(refused("PaymentsFunction"))?,
            ),
            (
                "AgentsFunction",
                purser_agents::router(boot()).await.map_err(refused("AgentsFunction"))?,
            ),
            (
                "FallbackFunction",
                purser_fallback::router(boot())
                    .await
                    .map_err(refused("FallbackFunction"))?,
            ),
        ]
        .into();
        let controls = Controls {
            clock_ahead,
            chain: chain.clone(),
            usdc: NETWORK.token().address,
        };
        let gateway = gateway::router(&template.routes(), &functions, controls)?;
        let base_url = serve(options.gateway_port, gateway).await?;

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
            functions,
            _children: [anvil, node],
            _database: database,
        })
    }
}

/// The ledger of a running stack, by the address of its database.
pub async fn ledger_at(dynamodb_url: &str) -> Ledger {
    ledger(Client::new(&endpoints::config(dynamodb_url, dynamodb_url).await))
}

/// The ledger in the tables of `template.yaml`.
fn ledger(db: Client) -> Ledger {
    Ledger::new(db, "LedgerTable", "DecisionsTable")
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
        // The local chain does not reorganize by itself, and mines when there is something to mine.
        ("FINALITY_CONFIRMATIONS", "1"),
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

/// Serves a router in the background until the runtime ends, and answers its address.
async fn serve(port: u16, router: Router) -> Result<String, StackError> {
    let listener = listen(port).await?;
    let address = listener
        .local_addr()
        .map_err(|source| StackError::Port { port, source })?;
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    Ok(format!("http://{address}"))
}

/// The port, or a free one for zero, for a process that will listen there. A port that somebody else listens on is an
/// error here, before it is taken for that process.
async fn free_port(port: u16) -> Result<u16, StackError> {
    let address = listen(port).await?.local_addr();
    address
        .map(|address| address.port())
        .map_err(|source| StackError::Port { port, source })
}
