//! A private DynamoDB emulator for the tests of one crate.

use crate::{DynamoDb, Proxy, ProxyConfig, Streams, Units};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region, SharedCredentialsProvider};
use aws_types::SdkConfig;
use purser_store::{CatalogTable, KeyUses, Ledger, Throttle};

/// The name of the table of agents and payments.
pub const LEDGER: &str = "LedgerTable";
/// The name of the table of decisions.
pub const DECISIONS: &str = "DecisionsTable";
/// The name of the table of audit entries.
pub const AUDIT: &str = "AuditTable";
/// The name of the table of services.
pub const CATALOG: &str = "CatalogTable";
/// The name of the table of usage sums.
pub const USAGE: &str = "UsageTable";
/// The name of the table of throttle counters and key uses.
pub const THROTTLE: &str = "ThrottleTable";

/// The name of the table of webhooks.
pub const WEBHOOKS: &str = "WebhooksTable";

/// A private emulator with empty tables. It runs until the process ends.
pub struct Emulator {
    /// The URL of the emulator.
    pub url: String,
    /// A client with the functions' configuration.
    pub client: Client,
}

/// Measures the capacity that calls through a proxy consume.
pub struct Meter(Proxy);

/// The capacity that was consumed since the last [`Meter::take`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Consumed {
    /// The consumed capacity.
    pub units: Units,
    /// The number of calls that consumed capacity.
    pub calls: u32,
}

impl Meter {
    /// Returns the consumption since the last call of this method.
    pub fn take(&self) -> Consumed {
        let mut calls = self.0.calls().take();
        calls.retain(|call| call.units != Units::default());
        Consumed {
            units: Units::sum(&calls),
            calls: calls.len().try_into().expect("few"),
        }
    }
}

impl Consumed {
    /// Returns the read units and the write units, both rounded up, and the number of calls.
    pub fn units(self) -> (u32, u32, u32) {
        let [read, write] = [self.units.read, self.units.write].map(|tenths| tenths.div_ceil(10).try_into());
        (read.expect("few"), write.expect("few"), self.calls)
    }
}

impl Emulator {
    /// Starts an emulator.
    pub async fn start() -> Self {
        let database = Box::leak(Box::new(DynamoDb::start(0).expect("a database")));
        Self::at(database.url.clone())
    }

    /// Starts an emulator whose tables have streams.
    pub async fn with_streams() -> (Self, Streams) {
        let (database, streams) = DynamoDb::with_streams(0).expect("a database");
        let database = Box::leak(Box::new(database));
        (Self::at(database.url.clone()), streams)
    }

    fn at(url: String) -> Self {
        Self {
            client: client(&url),
            url,
        }
    }

    /// Returns the same database behind a proxy, and a meter of the proxy's calls.
    pub async fn metered(&self) -> (Self, Meter) {
        let proxy = Proxy::start(self.url.clone(), ProxyConfig::default()).await;
        (Self::at(proxy.url.clone()), Meter(proxy))
    }

    /// Returns the ledger, without a proxy.
    pub fn ledger(&self) -> Ledger {
        Ledger::new(self.client.clone(), LEDGER, DECISIONS)
    }

    /// Returns the ledger behind a proxy with this configuration.
    pub async fn ledger_behind(&self, config: ProxyConfig) -> (Ledger, Proxy) {
        let proxy = Proxy::start(self.url.clone(), config).await;
        (Ledger::new(client(&proxy.url), LEDGER, DECISIONS), proxy)
    }

    /// Returns the catalog table.
    pub fn catalog(&self) -> CatalogTable {
        CatalogTable::new(self.client.clone(), CATALOG)
    }

    /// Returns the catalog table behind a proxy.
    pub fn catalog_behind(&self, proxy: &Proxy) -> CatalogTable {
        CatalogTable::new(client(&proxy.url), CATALOG)
    }

    /// Returns the store of the agent keys' last uses.
    pub fn key_uses(&self) -> KeyUses {
        KeyUses::new(self.client.clone(), THROTTLE)
    }

    /// Returns the throttle.
    pub fn throttle(&self, limit_per_minute: u32) -> Throttle {
        Throttle::new(&self.client, THROTTLE, limit_per_minute)
    }

    /// Returns the throttle behind a proxy.
    pub fn throttle_behind(&self, proxy: &Proxy, limit_per_minute: u32) -> Throttle {
        Throttle::new(&client(&proxy.url), THROTTLE, limit_per_minute)
    }
}

/// Returns a function's environment variables with the URLs of the database and of Secrets Manager.
pub fn environment(dynamodb: &str, secrets: &str) -> impl Iterator<Item = (&'static str, String)> {
    [
        ("AWS_REGION", "eu-west-1"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("DYNAMODB_ENDPOINT", dynamodb),
        ("SECRETS_ENDPOINT", secrets),
        ("CATALOG_TABLE", CATALOG),
        ("DECISIONS_TABLE", DECISIONS),
        ("AUDIT_TABLE", AUDIT),
        ("LEDGER_TABLE", LEDGER),
        ("THROTTLE_TABLE", THROTTLE),
        ("WEBHOOKS_TABLE", WEBHOOKS),
        ("STACK", "tests"),
        // No server listens at these URLs.
        (
            "WEBHOOK_REQUESTS_QUEUE_URL",
            "http://127.0.0.1:9/000000000000/webhook-requests",
        ),
        (
            "NOTICE_REQUESTS_QUEUE_URL",
            "http://127.0.0.1:9/000000000000/notice-requests",
        ),
        ("WEBHOOK_SECRETS_KEY_ARN", crate::Kms::SECRETS_KEY),
        ("USAGE_TABLE", USAGE),
    ]
    .map(|(name, value)| (name, value.to_owned()))
    .into_iter()
}

/// Returns a client with the functions' configuration for the database at `url`.
pub fn client(url: &str) -> Client {
    let credentials = Credentials::new("test", "test", None, None, "test");
    let config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(Region::new("eu-west-1"))
        .endpoint_url(url)
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .build();
    purser_store::dynamodb_client(&config)
}
