//! DynamoDB in the process, with our four tables, and clients of it.

use super::meter::Meter;
use aws_sdk_dynamodb::{
    Client,
    config::{BehaviorVersion, Credentials, Region, SharedCredentialsProvider},
    types::{
        AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection, ProjectionType,
        ScalarAttributeType,
    },
};
use aws_types::SdkConfig;
use dynoxide::Database;
use purser_proxy::{Manners, Proxy};
use purser_store::{CatalogTable, KeyUses, Ledger, Throttle};
use std::{net::TcpListener, thread};

pub const LEDGER: &str = "ledger";
pub const DECISIONS: &str = "decisions";
pub const CATALOG: &str = "catalog";
pub const THROTTLE: &str = "throttle";

/// An emulator of its own, empty but for the tables.
pub struct Emulator {
    pub url: String,
    /// What all clients of it consumed.
    pub meter: Meter,
    pub client: Client,
}

impl Emulator {
    /// The server gets a thread of its own: it runs its database on its runtime's workers and would starve ours.
    pub async fn start() -> Self {
        let database = Database::memory().unwrap();
        let url = serve(|listener| dynoxide::server::serve_on(listener, database));
        let meter = Meter::default();
        let client = client(&url, &meter);
        create_tables(&client).await;
        meter.take();
        Self { url, meter, client }
    }

    /// The ledger, straight.
    pub fn ledger(&self) -> Ledger {
        Ledger::new(self.client.clone(), LEDGER, DECISIONS)
    }

    /// The ledger behind a proxy that behaves like that.
    pub async fn ledger_behind(&self, manners: Manners) -> (Ledger, Proxy) {
        let proxy = Proxy::start(self.url.clone(), manners).await;
        (Ledger::new(client(&proxy.url, &self.meter), LEDGER, DECISIONS), proxy)
    }

    pub fn catalog(&self) -> CatalogTable {
        CatalogTable::new(self.client.clone(), CATALOG)
    }

    pub fn key_uses(&self) -> KeyUses {
        KeyUses::new(self.client.clone(), THROTTLE)
    }

    pub fn throttle(&self, limit_per_minute: u32) -> Throttle {
        Throttle::new(self.client.clone(), THROTTLE, limit_per_minute)
    }
}

/// Runs a server on a runtime of its own and tells where it listens.
pub fn serve<F, S>(server: F) -> String
where
    F: FnOnce(tokio::net::TcpListener) -> S + Send + 'static,
    S: Future<Output = ()>,
{
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async { server(tokio::net::TcpListener::from_std(listener).unwrap()).await });
    });
    url
}

/// The shipped client, metered.
pub fn client(url: &str, meter: &Meter) -> Client {
    let config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .endpoint_url(url)
        .credentials_provider(SharedCredentialsProvider::new(Credentials::new(
            "test", "test", None, None, "test",
        )))
        .build();
    let shipped = purser_store::client(&config);
    Client::from_conf(shipped.config().to_builder().interceptor(meter.clone()).build())
}

async fn create_tables(client: &Client) {
    let indexes = vec![index("hold", "hp", "hs"), index("owner", "owner", "os")];
    for (table, attributes, indexes) in [
        (LEDGER, &["pk", "sk", "hp", "hs", "owner", "os"][..], Some(indexes)),
        (DECISIONS, &["pk", "sk"][..], None),
        (CATALOG, &["pk"][..], None),
        (THROTTLE, &["pk"][..], None),
    ] {
        let mut create = client
            .create_table()
            .table_name(table)
            .billing_mode(BillingMode::PayPerRequest);
        for name in attributes {
            create = create.attribute_definitions(text_attribute(name));
        }
        create = create.key_schema(key("pk", KeyType::Hash));
        if attributes.contains(&"sk") {
            create = create.key_schema(key("sk", KeyType::Range));
        }
        create.set_global_secondary_indexes(indexes).send().await.unwrap();
    }
}

fn index(name: &str, hash: &str, range: &str) -> GlobalSecondaryIndex {
    GlobalSecondaryIndex::builder()
        .index_name(name)
        .key_schema(key(hash, KeyType::Hash))
        .key_schema(key(range, KeyType::Range))
        .projection(Projection::builder().projection_type(ProjectionType::KeysOnly).build())
        .build()
        .unwrap()
}

fn text_attribute(name: &str) -> AttributeDefinition {
    AttributeDefinition::builder()
        .attribute_name(name)
        .attribute_type(ScalarAttributeType::S)
        .build()
        .unwrap()
}

fn key(name: &str, kind: KeyType) -> KeySchemaElement {
    KeySchemaElement::builder()
        .attribute_name(name)
        .key_type(kind)
        .build()
        .unwrap()
}
