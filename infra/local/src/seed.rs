//! What a stack starts with: fresh secrets, the catalog of `catalog.json`, and one agent with a key and a funded
//! wallet. Everything secret is made anew at every start.

use crate::Providers;
use purser_api::random;
use purser_chain::{KeyError, WalletSeed};
use purser_domain::{
    Address, Agent, AgentId, AgentStatus, Amount, Availability, CatalogPayment, Category, DomainPattern,
    EnabledService, Error, NewKey, Operation, OperationSlug, OperationUuid, Service, ServiceId, ServiceSlug,
    SpendPolicy, Timestamp, TrustStatus, Url, Wallet, parse_address,
};
use purser_store::{CatalogTable, Ledger};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// What the demo agent's wallet is given: 1,000 dollars.
pub(crate) const DEMO_FUNDS: u64 = 1_000_000_000;

pub(crate) const WALLET_SEED_ARN: &str = "arn:aws:secretsmanager:us-east-1:000000000000:secret:purser/wallet-seed";
pub(crate) const NONCE_KEY_ARN: &str = "arn:aws:secretsmanager:us-east-1:000000000000:secret:purser/nonce-key";
pub(crate) const RPC_URL_ARN: &str = "arn:aws:secretsmanager:us-east-1:000000000000:secret:purser/rpc-url";

/// Why the demo data could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// `catalog.json` is not a catalog.
    #[error("catalog.json: {0}")]
    Catalog(String),
    /// The store or the system's chance.
    #[error(transparent)]
    Service(#[from] Error),
    /// The wallet.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// The stack's secrets, as hexadecimal text.
pub(crate) struct SecretValues {
    wallet_seed: String,
    nonce_key: String,
    rpc_url: String,
}

pub(crate) fn secrets(rpc_url: &str) -> Result<SecretValues, SeedError> {
    Ok(SecretValues {
        wallet_seed: hex(&random::<64>()?),
        nonce_key: hex(&random::<32>()?),
        rpc_url: rpc_url.to_owned(),
    })
}

fn hex(bytes: &[u8]) -> String {
    alloy::hex::encode(bytes)
}

impl SecretValues {
    pub(crate) fn wallet_seed(&self) -> Result<WalletSeed, SeedError> {
        Ok(WalletSeed::from_hex(&self.wallet_seed)?)
    }

    pub(crate) fn by_arn(self) -> BTreeMap<String, String> {
        [
            (WALLET_SEED_ARN, self.wallet_seed),
            (NONCE_KEY_ARN, self.nonce_key),
            (RPC_URL_ARN, self.rpc_url),
        ]
        .into_iter()
        .map(|(arn, value)| (arn.to_owned(), value))
        .collect()
    }
}

/// The seeded agent.
#[derive(Clone, Debug)]
pub struct DemoAgent {
    /// Its id.
    pub id: AgentId,
    /// Its key, whole.
    pub key: String,
    /// Its wallet.
    pub wallet_address: Address,
}

const CATALOG: &str = include_str!("../catalog.json");

#[derive(Deserialize)]
struct SeededService {
    id: String,
    slug: String,
    name: String,
    description: String,
    website: String,
    logo_url: Option<String>,
    category: String,
    source: String,
    trust_status: String,
    /// Which policy the demo agent starts with.
    demo_policy: DemoPolicy,
    operations: Vec<SeededOperation>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DemoPolicy {
    /// As the curated catalog is pre-enabled: in effect no limit.
    Permissive,
    /// The column defaults.
    Defaults,
    /// The column defaults, and only two hosts.
    Scrape,
    /// Room for the premium report, which then needs an approval.
    Reports,
}

#[derive(Deserialize)]
struct SeededOperation {
    id: String,
    operation_id: String,
    availability: String,
    label: String,
    method: String,
    endpoint: String,
    category: String,
    execution: String,
    price_model: String,
    estimated_price_units: u64,
    max_price_units: Option<u64>,
    params: Value,
    paid: bool,
}

/// Fills the catalog. Providers of this machine take the place of `{provider}` and `{provider_v1}`.
pub(crate) async fn catalog(table: &CatalogTable, providers: &Providers) -> Result<(), SeedError> {
    for seeded in seeded()? {
        let slug = seeded.slug.clone();
        let service = service(seeded, providers).ok_or(SeedError::Catalog(slug))?;
        table.put(&service).await?;
    }
    Ok(())
}

fn seeded() -> Result<Vec<SeededService>, SeedError> {
    serde_json::from_str(CATALOG).map_err(|error| SeedError::Catalog(error.to_string()))
}

fn service(seeded: SeededService, providers: &Providers) -> Option<Service> {
    let place = |text: &str| {
        let text = text
            .replace("{provider}", &providers.provider_url)
            .replace("{provider_v1}", &providers.provider_v1_url);
        Url::parse(&text).ok()
    };
    let pay_to = parse_address(&providers.pay_to).ok()?;
    let operations: Option<Vec<Operation>> = seeded
        .operations
        .into_iter()
        .map(|operation| self::operation(operation, pay_to, place))
        .collect();
    Some(Service {
        id: ServiceId::parse(&seeded.id)?,
        slug: ServiceSlug::parse(&seeded.slug)?,
        name: seeded.name,
        description: seeded.description,
        website: place(&seeded.website)?,
        logo_url: match seeded.logo_url {
            Some(url) => Some(place(&url)?),
            None => None,
        },
        category: Category::from_name(&seeded.category)?,
        source: seeded.source,
        trust_status: TrustStatus::from_name(&seeded.trust_status)?,
        operations: operations?,
    })
}

fn operation(seeded: SeededOperation, pay_to: Address, place: impl Fn(&str) -> Option<Url>) -> Option<Operation> {
    let price = Amount::from_units(seeded.estimated_price_units)?;
    let payment = CatalogPayment {
        scheme: "exact".to_owned(),
        network: crate::NETWORK,
        amount: price,
        pay_to,
    };
    Some(Operation {
        id: OperationUuid::parse(&seeded.id)?,
        slug: OperationSlug::parse(&seeded.operation_id)?,
        availability: Availability::from_name(&seeded.availability)?,
        label: seeded.label,
        method: seeded.method,
        endpoint: place(&seeded.endpoint)?,
        category: Category::from_name(&seeded.category)?,
        execution: seeded.execution,
        price_model: seeded.price_model,
        estimated_price: price,
        max_price: match seeded.max_price_units {
            Some(units) => Some(Amount::from_units(units)?),
            None => None,
        },
        params: seeded.params,
        payment: seeded.paid.then_some(payment),
    })
}

/// Makes the demo agent: the first wallet of the seed, one key, and every service enabled.
pub(crate) async fn agent(ledger: &Ledger, seed: &WalletSeed, now: Timestamp) -> Result<DemoAgent, SeedError> {
    let id = AgentId::from_uuid(uuid::Builder::from_random_bytes(random()?).into_uuid());
    let key = NewKey::from_random(id, random()?, now);
    let wallet = Wallet {
        index: 0,
        address: seed.wallet(0)?.address(),
    };
    let agent = Agent {
        id,
        name: "Demo agent".to_owned(),
        owner: "demo-owner".to_owned(),
        created_at: now,
        status: AgentStatus::Active,
        wallet,
        keys: vec![key.record],
        rules: Vec::new(),
        version: 1,
    };
    ledger.create_agent(&agent).await?;
    for seeded in seeded()? {
        let service = ServiceId::parse(&seeded.id).ok_or_else(|| SeedError::Catalog(seeded.slug.clone()))?;
        let policy = policy(seeded.demo_policy).ok_or_else(|| SeedError::Catalog(seeded.slug))?;
        ledger
            .put_policy(
                id,
                &EnabledService {
                    service,
                    version: 1,
                    enabled: true,
                    policy,
                },
            )
            .await?;
    }
    Ok(DemoAgent {
        id,
        key: key.text,
        wallet_address: wallet.address,
    })
}

fn policy(kind: DemoPolicy) -> Option<SpendPolicy> {
    let defaults = SpendPolicy::column_defaults();
    Some(match kind {
        DemoPolicy::Permissive => SpendPolicy::permissive(),
        DemoPolicy::Defaults => defaults,
        DemoPolicy::Scrape => {
            let allowed = ["example.com", "*.docs.example.org"].map(DomainPattern::parse);
            let [Ok(first), Ok(second)] = allowed else { return None };
            SpendPolicy {
                allowed_domains: vec![first, second],
                ..defaults
            }
        }
        DemoPolicy::Reports => SpendPolicy {
            max_per_call: Amount::from_units(20_000_000)?,
            ..defaults
        },
    })
}
