//! The group over a database of its own, an issuer that signs what it is asked for, and a chain that can't be reached.

mod emulator;
mod issuer;
pub mod payment;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, header};
use emulator::{CATALOG, DECISIONS, LEDGER, THROTTLE};
use http_body_util::BodyExt as _;
use issuer::Issuer;
use purser_api::{Boot, Clock, Env};
use purser_chain::WalletSeed;
use purser_domain::{
    Amount, Availability, Category, Operation, OperationSlug, OperationUuid, Service, ServiceId, ServiceSlug,
    Timestamp, TrustStatus, Url,
};
use purser_store::{CatalogTable, KeyUses, Ledger, Listed};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tower::ServiceExt as _;
use uuid::Uuid;

/// The instant at which tests begin: 2026-11-21T01:09:00Z.
pub const START: i64 = 1_795_223_340_000_000;

/// The seed of all wallets here.
const SEED: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

pub struct World {
    pub router: Router,
    pub ledger: Ledger,
    pub catalog: CatalogTable,
    pub key_uses: KeyUses,
    pub seed: WalletSeed,
    issuer: Issuer,
    micros: Arc<AtomicI64>,
}

/// What was answered.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Answer {
    #[track_caller]
    pub fn ok(self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        self.body
    }

    #[track_caller]
    pub fn created(self) -> Value {
        assert_eq!(self.status, 201, "{}", self.body);
        self.body
    }

    #[track_caller]
    pub fn refused(self, status: u16, slug: &str) -> Value {
        assert_eq!(
            (self.status, self.body["error"].as_str()),
            (status, Some(slug)),
            "{}",
            self.body
        );
        self.body
    }

    /// The paths of all problems.
    #[track_caller]
    pub fn problems(self) -> Vec<String> {
        let body = self.refused(400, "invalid_request");
        let details = body["details"].as_array().unwrap().iter();
        details
            .map(|problem| problem["path"].as_str().unwrap().to_owned())
            .collect()
    }

    /// The version that the answer's tag tells, which is also in its body.
    #[track_caller]
    pub fn version(&self) -> u64 {
        let version = self.body["version"].as_u64().unwrap();
        assert_eq!(self.headers[header::ETAG], format!("\"{version}\""));
        version
    }
}

impl World {
    /// Three services: `lab` and `maps` in the curated set, `shed` not.
    pub async fn start() -> Self {
        let emulator = emulator::start().await;
        let issuer = Issuer::start().await;
        let seed = WalletSeed::from_hex(SEED).unwrap();
        let secrets = issuer::secrets([
            ("xpub", seed.xpub().unwrap().to_text().unwrap()),
            ("rpc", "http://127.0.0.1:9".to_owned()),
        ]);
        let aws = emulator::config(&emulator, &secrets.await);
        let db = purser_store::client(&aws);
        let catalog = CatalogTable::new(db.clone(), CATALOG);
        for (n, slug, curated) in [(1, "lab", true), (2, "maps", true), (3, "shed", false)] {
            assert_eq!(catalog.put(&service(n, slug, curated)).await.unwrap(), Listed::Stored);
        }
        let micros = Arc::new(AtomicI64::new(START));
        let env = [
            ("CATALOG_TABLE", CATALOG),
            ("LEDGER_TABLE", LEDGER),
            ("DECISIONS_TABLE", DECISIONS),
            ("THROTTLE_TABLE", THROTTLE),
            ("NETWORK", "base-sepolia"),
            ("OIDC_ISSUER", &issuer.url),
            ("OIDC_CLIENT_ID", "dashboard"),
            ("DASHBOARD_URL", "http://127.0.0.1:3000"),
            ("WALLET_XPUB_SECRET_ARN", "xpub"),
            ("RPC_URL_SECRET_ARN", "rpc"),
        ];
        let boot = Boot {
            env: env.into_iter().collect::<Env>(),
            aws,
            clock: Clock::still(Arc::clone(&micros)),
        };
        Self {
            router: purser_dashboard::router(boot).await.unwrap(),
            ledger: Ledger::new(db.clone(), LEDGER, DECISIONS),
            catalog,
            key_uses: KeyUses::new(db, THROTTLE),
            seed,
            issuer,
            micros,
        }
    }

    pub fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(Ordering::SeqCst)).unwrap()
    }

    pub fn advance(&self, seconds: i64) {
        self.micros.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
    }

    /// A call as that person, with the version that is meant.
    pub async fn call(
        &self,
        who: &str,
        method: &str,
        path: &str,
        if_match: Option<&str>,
        body: Option<Value>,
    ) -> Answer {
        let token = self.issuer.token(who, self.now());
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::AUTHORIZATION, format!("Bearer {token}"));
        let request = match if_match {
            Some(version) => request.header(header::IF_MATCH, version),
            None => request,
        };
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let response = self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Answer { status, headers, body }
    }

    pub async fn get(&self, who: &str, path: &str) -> Answer {
        self.call(who, "GET", path, None, None).await
    }

    /// A write on whatever is there.
    pub async fn edit(&self, who: &str, method: &str, path: &str, body: Value) -> Answer {
        self.call(who, method, path, Some("*"), Some(body)).await
    }

    /// A new agent of that person.
    pub async fn agent(&self, who: &str) -> String {
        let agent = self
            .call(who, "POST", "/agents", None, Some(json!({"name": "buyer"})))
            .await;
        agent.created()["agent_id"].as_str().unwrap().to_owned()
    }
}

pub fn service_id(n: u128) -> ServiceId {
    ServiceId::from_uuid(Uuid::from_u128(0x5000_0000_0000_4000_8000_0000_0000_0000 + n))
}

pub fn service(n: u128, slug: &str, curated: bool) -> Service {
    let operation = |action: &str| Operation {
        id: OperationUuid::from_uuid(Uuid::from_u128(n)),
        slug: OperationSlug::parse(&format!("{slug}.{action}")).unwrap(),
        availability: Availability::PaidX402,
        label: action.to_owned(),
        method: "GET".to_owned(),
        endpoint: Url::parse(&format!("https://{slug}.example/{action}")).unwrap(),
        category: Category::Data,
        execution: "sync".to_owned(),
        price_model: "fixed".to_owned(),
        estimated_price: Amount::ZERO,
        max_price: None,
        params: json!({}),
        payment: None,
    };
    Service {
        id: service_id(n),
        version: 1,
        curated,
        slug: ServiceSlug::parse(slug).unwrap(),
        name: slug.to_uppercase(),
        description: String::new(),
        website: Url::parse("https://lab.example/").unwrap(),
        logo_url: None,
        category: Category::Data,
        source: "test".to_owned(),
        trust_status: TrustStatus::Listed,
        operations: vec![operation("current"), operation("history")],
    }
}
