//! Calls the function `payments` on one thread, so that callgrind can count the instructions of one call
//! (`tests/budget.rs`). The clock is stopped and randomness is seeded, so the counts are nearly the same in each run.

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use dynoxide::{Database, errors::DynoxideError};
use lambda_http::{Context, LambdaEvent};
use purser_api::{Background, Boot, Clock, Entropy, GatewayEvent, handle_gateway_event};
use purser_chain::WalletSeed;
use purser_domain::{
    BudgetLimit, CountLimit, DuplicateGuard, Duration, EnabledService, Endpoint, LimitAction, MinimumInterval, NewKey,
    OperationSlug, OperationUuid, PriceAboveUsual, Rule, RuleKind, Schedule, SchedulePeriod, SpendPolicy, UsualPrice,
    VerifiedService, ZoneName,
};
use purser_store::{CatalogTable, Ledger, UsageTable};
use purser_testkit::chain::{FINAL, NETWORK, ScriptedChain, payment_of, tx_hash};
use purser_testkit::{AUDIT, CATALOG, DECISIONS, LEDGER, THROTTLE, USAGE, sample};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::fmt;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use tokio::runtime::{Builder, Runtime};

const SEED: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const PAYEE: &str = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC";
/// The called URL of an operation.
const URL: &str = "https://lab-7.example/pay/3";
/// The number of services, and of operations of each service.
const SERVICES: u8 = 10;
const OPERATIONS: u8 = 40;
/// The number of calls before the counted call. These calls open connections and fill caches.
const WARM: u32 = 3;

fn main() -> ExitCode {
    purser_api::log_to("warn,purser=info", std::io::sink);
    let Some(operation) = std::env::args().nth(1) else {
        eprintln!("one-call: allow, limited, replay, block or complete");
        return ExitCode::FAILURE;
    };
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let place = runtime.block_on(Place::start(operation == "limited"));
    for call in 0..=WARM {
        let (event, status) = runtime.block_on(place.event(&operation, call));
        let answered = if call == WARM {
            place.wire.0.is_counted.store(true, SeqCst);
            measured(&runtime, &place, &event)
        } else {
            runtime.block_on(place.call(&event))
        };
        let expected = format!("{{\"statusCode\":{status},");
        assert!(
            answered.starts_with(expected.as_bytes()),
            "{}",
            String::from_utf8_lossy(&answered)
        );
    }
    ExitCode::SUCCESS
}

/// Callgrind counts only instructions in this function: from the bytes of the event to the bytes of the response.
#[inline(never)]
fn measured(runtime: &Runtime, place: &Place, event: &[u8]) -> Vec<u8> {
    runtime.block_on(place.call(event))
}

/// Callgrind does not count instructions in this function: the work of the database and the node.
#[inline(never)]
fn uncounted(world: &World, request: &HttpRequest) -> (u16, Vec<u8>) {
    world.answer(request)
}

/// The started function, and an agent's API key.
struct Place {
    function: axum::Router,
    wire: Wire,
    key: String,
}

impl Place {
    /// Starts the function. With `limits`, the agent has a rule of each kind that counts or remembers payments.
    async fn start(limits: bool) -> Self {
        let wire = Wire(Arc::new(World {
            clock: Arc::new(AtomicI64::new(sample::start().micros())),
            database: purser_testkit::database(),
            chain: Mutex::default(),
            is_counted: AtomicBool::new(false),
        }));
        let db = purser_store::dynamodb_client(&wire.boot().aws);
        let catalog = CatalogTable::new(db.clone(), CATALOG);
        let usage = UsageTable::new(db.clone(), USAGE);
        for n in 0..SERVICES {
            let mut service = sample::service(sample::service_id(n.into()), &format!("lab-{n}"));
            service.operations = (0..OPERATIONS)
                .map(|page| {
                    let mut operation = sample::operation();
                    let endpoint = format!("https://lab-{n}.example/pay/{page}");
                    operation.id =
                        OperationUuid::from_uuid(uuid::Uuid::from_u128((u128::from(n) << 8) + u128::from(page)));
                    operation.slug = OperationSlug::parse(&format!("lab.pay-{page}")).expect("a slug");
                    operation.endpoint = Endpoint::parse(&endpoint).expect("an address");
                    operation
                })
                .collect();
            catalog.put_service(&service, &sample::audit()).await.expect("stored");
            let attested = VerifiedService::from_service_without_delay(&service, None, sample::start());
            assert!(usage.try_put_verified_service(&attested).await.expect("stored"));
        }
        let ledger = Ledger::new(db, LEDGER, DECISIONS);
        let mut rules: Vec<Rule> = sample::rules().into_iter().take(1).collect();
        if limits {
            rules.extend(every_limit());
        }
        let mut agent = sample::agent(1, rules);
        let key = NewKey::from_random(agent.id, [7; 40], sample::start());
        agent.keys = vec![key.record];
        let seed = WalletSeed::from_hex(SEED).expect("a seed");
        let index = 7;
        agent.wallet.key = purser_domain::WalletKey::Seed { index };
        let wallet = seed.derive_wallet(index).expect("a wallet");
        agent.wallet.address = wallet.address();
        agent.wallet.attestation = wallet.attest(agent.id).expect("an attestation");
        ledger.create_agent(&agent, &sample::audit()).await.expect("stored");
        let enabled = EnabledService {
            service: sample::service_id(7),
            version: 1,
            enabled: true,
            policy: SpendPolicy {
                max_per_call: sample::units(100),
                ..SpendPolicy::permissive()
            },
        };
        ledger
            .put_policy(agent.id, &enabled, &sample::audit())
            .await
            .expect("stored");
        Self {
            function: purser_payments::routers(wire.boot()).await.expect("it starts").gateway,
            wire,
            key: key.text,
        }
    }

    /// Calls the function with an event in bytes.
    async fn call(&self, event: &[u8]) -> Vec<u8> {
        let event: GatewayEvent = serde_json::from_slice(event).expect("an event");
        let mut context = Context::default();
        context.request_id = "8f507cfc-xmpl-4697-b07a-ac58fc914c95".to_owned();
        context.deadline = Clock::system().now().micros().unsigned_abs() / 1_000 + 3_600_000;
        let answer = handle_gateway_event(self.function.clone(), LambdaEvent::new(event, context)).await;
        answer.to_json().get().as_bytes().to_vec()
    }

    /// Returns the event of an operation's call, and the expected status.
    async fn event(&self, operation: &str, call: u32) -> (Vec<u8>, u16) {
        match operation {
            "allow" => (self.authorize(1, call), 200),
            "limited" => {
                // The clock advances by more than the minimum interval, and each call has another URL, so no call is a
                // duplicate.
                self.wire.0.clock.fetch_add(2_000_000, SeqCst);
                (self.authorize_url(1, call, &format!("{URL}?number={call}")), 200)
            }
            "replay" => (self.authorize(1, 0), 200),
            "block" => (self.authorize(101, call), 402),
            "complete" => {
                let answer: Value = serde_json::from_slice(&self.call(&self.authorize(1, call)).await).expect("JSON");
                let allowed: Value = serde_json::from_str(answer["body"].as_str().expect("a body")).expect("JSON");
                let hash = tx_hash(call.into());
                let mut chain = self.wire.0.chain.lock().expect("not poisoned");
                chain.pay(&payment_of(&allowed), FINAL, hash);
                let path = format!(
                    "/x402/settlements/{}/complete",
                    allowed["settlement_id"].as_str().expect("an id")
                );
                let body = json!({"payment_response_header": "e30=", "tx_hash": hash.to_string()});
                (self.post(&path, &body), 200)
            }
            other => panic!("{other} is not among the operations"),
        }
    }

    fn authorize(&self, units: u64, call: u32) -> Vec<u8> {
        self.authorize_url(units, call, URL)
    }

    fn authorize_url(&self, units: u64, call: u32, url: &str) -> Vec<u8> {
        let token = NETWORK.token();
        let body = json!({
            "payment_requirement": {"x402Version": 2, "resource": {"url": url}, "accepts": [{
                "scheme": "exact",
                "network": NETWORK.caip2(),
                "amount": units.to_string(),
                "asset": token.address.to_string(),
                "payTo": PAYEE,
                "maxTimeoutSeconds": 60,
                "extra": {"name": token.name, "version": token.version},
            }]},
            "max_payment_units": 1_000,
            "original_request": {"method": "GET", "url": url},
            "service_id": "lab-7",
            "idempotency_key": format!("a payment with a name, number {call}"),
        });
        self.post("/x402/authorize", &body)
    }

    fn post(&self, path: &str, body: &Value) -> Vec<u8> {
        let recorded = include_str!("../../../events/payments/authorize.json");
        let mut event: Value = serde_json::from_str(recorded).expect("JSON");
        event["rawPath"] = path.into();
        event["requestContext"]["http"]["path"] = path.into();
        event["headers"]["authorization"] = format!("Bearer {}", self.key).into();
        event["body"] = body.to_string().into();
        event.to_string().into_bytes()
    }
}

/// Returns a rule of each kind that counts or remembers payments. The rules allow all calls.
fn every_limit() -> impl Iterator<Item = Rule> {
    let hour = Duration::from_secs_u32(3_600);
    let kinds = [
        RuleKind::BudgetLimit(BudgetLimit {
            limit: sample::units(1_000),
            window: hour.into(),
        }),
        RuleKind::CountLimit(CountLimit {
            count: 100,
            window: hour.into(),
        }),
        RuleKind::MinimumInterval(MinimumInterval {
            services: None,
            interval: Duration::from_secs_u32(1),
        }),
        RuleKind::DuplicateGuard(DuplicateGuard {
            services: None,
            within: hour,
            action: LimitAction::Block,
        }),
        RuleKind::PriceAboveUsual(PriceAboveUsual {
            services: None,
            percent: 10_000,
            over: UsualPrice::Median(3),
            action: LimitAction::Block,
        }),
        RuleKind::Schedule(Schedule {
            services: None,
            zone: ZoneName::parse("Europe/Berlin").expect("a zone"),
            periods: vec![SchedulePeriod::parse("monday-sunday 00:00-24:00").expect("a period")],
        }),
    ];
    (10..).zip(kinds).map(|(n, kind)| Rule {
        id: sample::rule_id(n),
        version: 1,
        kind,
    })
}

/// The database, the node and the clock.
struct World {
    database: Database,
    chain: Mutex<ScriptedChain>,
    is_counted: AtomicBool,
    /// The time in microseconds since 1970.
    clock: Arc<AtomicI64>,
}

impl World {
    fn answer(&self, request: &HttpRequest) -> (u16, Vec<u8>) {
        let body = request.body().bytes().expect("a body in memory");
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let (service, operation) = target.split_once('.').unwrap_or_default();
        let db = &self.database;
        match (service, operation) {
            ("", _) => (200, self.node(body)),
            ("secretsmanager", _) => (200, secrets()),
            (_, "BatchGetItem") => carried_out(body, |request| db.batch_get_item(request)),
            (_, "GetItem") => carried_out(body, |request| db.get_item(request)),
            (_, "PutItem") => carried_out(body, |request| db.put_item(request)),
            (_, "Query") => carried_out(body, |request| db.query(request)),
            (_, "Scan") => carried_out(body, |request| db.scan(request)),
            (_, "TransactWriteItems") => carried_out(body, |request| db.transact_write_items(request)),
            (_, "UpdateItem") => carried_out(body, |request| db.update_item(request)),
            (_, other) => panic!("payments makes no such call: {other}"),
        }
    }

    fn node(&self, body: &[u8]) -> Vec<u8> {
        let request: Value = serde_json::from_slice(body).expect("JSON");
        let method = request["method"].as_str().expect("a method");
        let result = self
            .chain
            .lock()
            .expect("not poisoned")
            .answer(method, &request["params"]);
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        answer.to_string().into_bytes()
    }
}

fn secrets() -> Vec<u8> {
    let values = [("seed", SEED), ("nonces", SEED), ("rpc", "http://127.0.0.1:1")];
    let values = values.map(|(name, value)| json!({"ARN": name, "Name": name, "SecretString": value}));
    json!({"SecretValues": values, "Errors": []}).to_string().into_bytes()
}

fn carried_out<Q: DeserializeOwned, R: Serialize>(
    body: &[u8],
    carry_out: impl FnOnce(Q) -> Result<R, DynoxideError>,
) -> (u16, Vec<u8>) {
    let request = serde_json::from_slice(body).expect("what the SDK writes");
    match carry_out(request) {
        Ok(answer) => (200, serde_json::to_vec(&answer).expect("an answer")),
        Err(error) => (error.status_code(), error.to_json().into_bytes()),
    }
}

#[derive(Clone)]
struct Wire(Arc<World>);

impl Wire {
    fn boot(&self) -> Boot {
        let variables = [
            ("AWS_REGION", "eu-west-1"),
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("DYNAMODB_ENDPOINT", "http://dynamodb.test"),
            ("SECRETS_ENDPOINT", "http://secrets.test"),
            ("LEDGER_TABLE", LEDGER),
            ("DECISIONS_TABLE", DECISIONS),
            ("AUDIT_TABLE", AUDIT),
            ("CATALOG_TABLE", CATALOG),
            ("USAGE_TABLE", USAGE),
            ("THROTTLE_TABLE", THROTTLE),
            ("NETWORK", NETWORK.name()),
            ("WALLET_SEED_SECRET_ARN", "seed"),
            ("NONCE_KEY_SECRET_ARN", "nonces"),
            ("RPC_URL_SECRET_ARN", "rpc"),
        ];
        let clock = Clock::at_fixed_time(Arc::clone(&self.0.clock));
        let boot = Boot::new(variables.into_iter().collect(), clock);
        let drawn = AtomicU8::new(0);
        Boot {
            aws: boot.aws.to_builder().http_client(self.clone()).build(),
            http: SharedHttpConnector::new(self.clone()),
            entropy: Entropy::from_fn(move |bytes| bytes.fill_with(|| drawn.fetch_add(37, SeqCst))),
            background: Background::Inline,
            ..boot
        }
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}

impl HttpClient for Wire {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Wire {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let world = &self.0;
        let (status, body) = if world.is_counted.load(SeqCst) {
            uncounted(world, &request)
        } else {
            world.answer(&request)
        };
        HttpConnectorFuture::new(async move {
            // A real response is never available immediately, so the simulated response isn't either.
            tokio::task::yield_now().await;
            let status = status.try_into().expect("a status");
            Ok(HttpResponse::new(status, SdkBody::from(body)))
        })
    }
}
