//! The dashboard with its own database, a test identity provider, and an unreachable chain.

pub(crate) mod browser;
mod issuer;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, header};
use http_body_util::BodyExt as _;
pub(crate) use issuer::Issuer;
use purser_api::{AttestedWallet, Boot, Clock, Env, GatewayResponse};
use purser_chain::WalletSeed;
use purser_domain::{
    AgentId, Duration, Endpoint, FIXED_PRICE, NextPricing, Operation, OperationSlug, OperationUuid, OperatorName,
    Service, Timestamp, Wallet, WalletKey,
};
use purser_store::{CallLeases, CatalogTable, Ledger, StoreServiceResult, UsageTable, WebhooksTable};
use purser_stream::History;
use purser_testkit::authorize::{Answer as Told, Request as Payment, authorize};
use purser_testkit::{
    Emulator, Kms, Lambda, Proxy, ProxyConfig, SecretsManager, Streams, THROTTLE, USAGE, WEBHOOKS, environment, sample,
    written_at,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tower::ServiceExt as _;
use uuid::Uuid;

/// The seed of all wallets in these tests.
const SEED: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// The secret from which the credentials of grants are derived.
pub(crate) const OAUTH_SECRET: &str = "0123456789abcdef0123456789abcdef";

pub(crate) struct World {
    pub(crate) router: Router,
    pub(crate) ledger: Ledger,
    pub(crate) usage: UsageTable,
    pub(crate) catalog: CatalogTable,
    pub(crate) webhooks: WebhooksTable,
    /// The leases that limit a user's concurrent long operations.
    pub(crate) slots: CallLeases,
    pub(crate) proxy: Proxy,
    pub(crate) issuer: Issuer,
    journal: Journal,
    env: Vec<(&'static str, String)>,
    micros: Arc<AtomicI64>,
}

/// The streams of the database's tables, and the function that maintains the decision history.
#[derive(Clone)]
struct Journal {
    streams: Streams,
    history: History,
}

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Answer {
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        self.body
    }

    #[track_caller]
    pub(crate) fn created(self) -> Value {
        assert_eq!(self.status, 201, "{}", self.body);
        self.body
    }
}

/// Responds like `payments`. With `is_lie`, the attestation is for a different agent.
fn attested(seed: &WalletSeed, event: &str, is_lie: bool) -> String {
    let event: Value = serde_json::from_str(event).unwrap();
    let asked = &event["request"]["body"];
    let index = asked["wallet"]["seed"]["index"].as_u64().unwrap();
    let wallet = seed.derive_wallet(index.try_into().unwrap()).unwrap();
    let agent = AgentId::parse(asked["agent_id"].as_str().unwrap()).unwrap();
    let agent = if is_lie { AgentId::from_uuid(Uuid::nil()) } else { agent };
    let wallet = Wallet {
        key: WalletKey::Seed { index: 0 },
        address: wallet.address(),
        attestation: wallet.attest(agent).unwrap(),
    };
    let response = GatewayResponse {
        status_code: 200,
        headers: BTreeMap::new(),
        cookies: Vec::new(),
        body: serde_json::to_string(&AttestedWallet::new(&wallet)).unwrap(),
        is_base64_encoded: false,
    };
    response.to_json().get().to_owned()
}

impl World {
    /// Starts a world with the curated services `lab` and `maps`. The payee of `maps.current` changes tomorrow.
    pub(crate) async fn start() -> Self {
        Self::behind(ProxyConfig::default()).await
    }

    /// Like [`Self::start`], with additional environment variables.
    pub(crate) async fn with(more: &[(&'static str, &str)]) -> Self {
        Self::made(ProxyConfig::default(), more).await
    }

    /// Like [`Self::start`], with this proxy configuration.
    pub(crate) async fn behind(config: ProxyConfig) -> Self {
        Self::made(config, &[]).await
    }

    async fn made(config: ProxyConfig, more: &[(&'static str, &str)]) -> Self {
        let (emulator, streams) = Emulator::with_streams().await;
        let proxy = Proxy::start(emulator.url.clone(), config).await;
        let micros = Arc::new(AtomicI64::new(sample::start().micros()));
        let issuer = Issuer::start(Arc::clone(&micros)).await;
        let seed = WalletSeed::from_hex(SEED).unwrap();
        let secrets = SecretsManager::new([
            ("rpc", "http://127.0.0.1:9".to_owned()),
            ("sign-in", "s".repeat(32)),
            ("oauth", OAUTH_SECRET.to_owned()),
        ]);
        let secrets = secrets.serve().await;
        let lambda = Lambda::default();
        let seed = Arc::new(seed);
        let liars = Arc::clone(&seed);
        lambda.set("payments", move |event| {
            std::future::ready(attested(&seed, &event, false))
        });
        lambda.set("liar", move |event| std::future::ready(attested(&liars, &event, true)));
        let lambda = lambda.serve().await;
        let kms = Kms::default().serve().await;
        let catalog = emulator.catalog();
        for (n, slug, curated) in [(1, "lab", true), (2, "maps", true), (3, "shed", false)] {
            let mut service = service(n, slug, curated);
            if slug == "maps" {
                service.operations[0].next = Some(NextPricing {
                    price_model: FIXED_PRICE.to_owned(),
                    max_price: None,
                    payment: sample::operation().payment.unwrap(),
                    from: sample::start().after(Duration::DAY),
                    by: OperatorName::parse("ada").unwrap(),
                });
            }
            assert_eq!(
                catalog.put_service(&service, &sample::audit()).await.unwrap(),
                StoreServiceResult::Stored
            );
        }
        let env = [
            // The clock does not advance, so all requests of a test are in the same minute.
            ("THROTTLE_PER_MINUTE", "100000"),
            ("NETWORK", "base-sepolia"),
            ("OIDC_ISSUER", &issuer.url),
            ("OIDC_CLIENT_ID", "dashboard"),
            ("DASHBOARD_URL", "http://127.0.0.1:3000"),
            ("PAYMENTS_FUNCTION", "payments"),
            ("LAMBDA_ENDPOINT", &lambda),
            ("RPC_URL_SECRET_ARN", "rpc"),
            ("SIGN_IN_KEY_SECRET_ARN", "sign-in"),
            ("OAUTH_KEY_SECRET_ARN", "oauth"),
            ("KMS_ENDPOINT", &kms),
        ];
        let env = env.iter().chain(more).map(|(name, value)| (*name, (*value).to_owned()));
        let env: Vec<_> = environment(&proxy.url, &secrets).chain(env).collect();
        let of_history = environment(&emulator.url, &secrets).collect::<Env>();
        let history = History::boot(Boot::new(of_history, Clock::at_fixed_time(Arc::clone(&micros)))).unwrap();
        Self {
            router: router(&env, &micros).await,
            ledger: emulator.ledger(),
            usage: UsageTable::new(emulator.client.clone(), USAGE),
            catalog,
            webhooks: WebhooksTable::new(emulator.client.clone(), WEBHOOKS),
            slots: CallLeases::new(&emulator.client, THROTTLE, Duration::from_secs_u32(30)),
            proxy,
            issuer,
            journal: Journal { streams, history },
            env,
            micros,
        }
    }

    /// Returns another instance of the function, which shares only the database.
    pub(crate) async fn elsewhere(&self, more: &[(&'static str, &str)]) -> Self {
        let more = more.iter().map(|(name, value)| (*name, (*value).to_owned()));
        let env: Vec<_> = self.env.iter().cloned().chain(more).collect();
        Self {
            router: router(&env, &self.micros).await,
            ledger: self.ledger.clone(),
            usage: self.usage.clone(),
            catalog: self.catalog.clone(),
            webhooks: self.webhooks.clone(),
            slots: self.slots.clone(),
            proxy: self.proxy.clone(),
            issuer: self.issuer.clone(),
            journal: self.journal.clone(),
            env,
            micros: Arc::clone(&self.micros),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(Ordering::SeqCst)).unwrap()
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.micros.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
    }

    /// Adds all changes so far to the decision history, as `history` does within seconds.
    pub(crate) async fn catch_up(&self) {
        let Journal { streams, history } = &self.journal;
        let call = async |event: Value| history.handle_event(&written_at(event, self.now().secs())).await.ok();
        assert_eq!(streams.fold(1, call).await, 0);
    }

    /// Calls a route as this user, with this `If-Match` value.
    pub(crate) async fn call(
        &self,
        who: &str,
        method: &str,
        path: &str,
        if_match: Option<&str>,
        body: Option<Value>,
    ) -> Answer {
        let token = self.issuer.token(who, self.now());
        self.call_with(&token, method, path, if_match, body).await
    }

    /// Calls a route with this ID token.
    pub(crate) async fn call_with(
        &self,
        token: &str,
        method: &str,
        path: &str,
        if_match: Option<&str>,
        body: Option<Value>,
    ) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::AUTHORIZATION, format!("Bearer {token}"));
        let request = match if_match {
            Some(version) => request.header(header::IF_MATCH, version),
            None => request,
        };
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        self.catch_up().await;
        let response = self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let (path, _) = path.split_once('?').unwrap_or((path, ""));
        purser_testkit::assert_promised(method, path, status, &body);
        Answer { status, body }
    }

    pub(crate) async fn get(&self, who: &str, path: &str) -> Answer {
        self.call(who, "GET", path, None, None).await
    }

    /// Writes with `If-Match: *`, regardless of the version.
    pub(crate) async fn edit(&self, who: &str, method: &str, path: &str, body: Value) -> Answer {
        self.call(who, method, path, Some("*"), Some(body)).await
    }

    /// Requests a payment to `lab` with the agent's newest key.
    pub(crate) async fn pay(&self, agent: &str, amount: u64, key: &str) -> Told {
        let agent = AgentId::parse(agent).unwrap();
        let keys = self.ledger.read_agent_by_id(agent).await.unwrap().unwrap().keys;
        let payment = Payment {
            body: key.to_owned(),
            agent_key: keys.last().map_or(sample::KEY, |key| key.id),
            ..Payment::new(agent, sample::service_id(1), amount, key)
        };
        authorize(&self.ledger, &payment, self.now()).await.unwrap()
    }

    pub(crate) async fn agent(&self, who: &str) -> String {
        let agent = self
            .call(who, "POST", "/agents", None, Some(json!({"name": "buyer"})))
            .await;
        agent.created()["agent_id"].as_str().unwrap().to_owned()
    }
}

async fn router(env: &[(&'static str, String)], micros: &Arc<AtomicI64>) -> Router {
    let env: Env = env.iter().cloned().collect();
    let boot = Boot::new(env, Clock::at_fixed_time(Arc::clone(micros)));
    purser_dashboard::router(boot).await.unwrap()
}

/// Returns a service with two operations and an id that is derived from `n`.
pub(crate) fn service(n: u128, slug: &str, curated: bool) -> Service {
    let operation = |action: &str| Operation {
        id: OperationUuid::from_uuid(Uuid::from_u128(n)),
        slug: OperationSlug::parse(&format!("{slug}.{action}")).unwrap(),
        label: action.to_owned(),
        endpoint: Endpoint::parse(&format!("https://{slug}.example/{action}")).unwrap(),
        max_price: None,
        payment: None,
        ..sample::operation()
    };
    Service {
        curated,
        name: slug.to_uppercase(),
        operations: vec![operation("current"), operation("history")],
        ..sample::service(sample::service_id(n), slug)
    }
}
