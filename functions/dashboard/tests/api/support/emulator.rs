//! DynamoDB in the process, with the tables that the group works on.

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::{
    Client,
    config::{Credentials, SharedCredentialsProvider},
    types::{
        AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection, ProjectionType,
        ScalarAttributeType,
    },
};
use aws_types::service_config::{LoadServiceConfig, ServiceConfigKey};
use dynoxide::Database;
use std::{net::TcpListener, thread};

pub const LEDGER: &str = "ledger";
pub const DECISIONS: &str = "decisions";
pub const CATALOG: &str = "catalog";
pub const THROTTLE: &str = "throttle";

/// Starts it and tells its address. It gets a thread of its own: it runs its database on its runtime's workers.
pub async fn start() -> String {
    let database = Database::memory().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            dynoxide::server::serve_on(listener, database).await;
        });
    });
    create_tables(&purser_store::client(&config(&url, &url))).await;
    url
}

#[derive(Debug)]
struct Endpoints([(&'static str, String); 2]);

impl LoadServiceConfig for Endpoints {
    fn load_config(&self, key: ServiceConfigKey<'_>) -> Option<String> {
        let endpoint = self.0.iter().find(|(service, _)| *service == key.service_id());
        endpoint
            .filter(|_| key.env() == "AWS_ENDPOINT_URL")
            .map(|(_, url)| url.clone())
    }
}

/// An AWS configuration that reaches these two services alone.
pub fn config(dynamodb: &str, secrets: &str) -> SdkConfig {
    let credentials = Credentials::new("test", "test", None, None, "test");
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(Region::from_static("eu-west-1"))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .service_config(Endpoints([
            ("DynamoDB", dynamodb.to_owned()),
            ("Secrets Manager", secrets.to_owned()),
        ]))
        .build()
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
            let attribute = AttributeDefinition::builder().attribute_name(*name);
            let attribute = attribute.attribute_type(ScalarAttributeType::S).build().unwrap();
            create = create.attribute_definitions(attribute);
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

fn key(name: &str, kind: KeyType) -> KeySchemaElement {
    KeySchemaElement::builder()
        .attribute_name(name)
        .key_type(kind)
        .build()
        .unwrap()
}
