//! A running stack, and agents in it.

use crate::{OfferedTerms, offer_v2, payment_entry, transfer_of};
use aws_sdk_dynamodb::types::AttributeValue;
use purser_api::{Clock, CustodyKind, Env};
use purser_domain::{
    Agent, AgentId, AgentStatus, Amount, ApprovalId, ApprovalResolution, Duration as Length, EnabledService, NewKey,
    Rule, Service, SpendPolicy, Timestamp,
};
use purser_local::{Front, LogAudit, NETWORK, Options, Stack};
use purser_store::{ApprovalDecision, CreateAgentResult, ResolveResult, UpdateResult};
use purser_testkit::{Proxy, ProxyConfig};
use reqwest::header::HeaderMap;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// The owner of the agents that tests create.
pub const OWNER: &str = "tests";

/// How long a transaction locks its items in a proxy that simulates conflicts.
const HOLD: Duration = Duration::from_millis(4);

/// The latency of calls through a metering proxy. The latency is long, so that concurrent calls overlap.
const LATENCY: Duration = Duration::from_millis(40);

/// A stack for one test.
pub struct World {
    /// The stack.
    pub stack: Stack,
    /// An HTTP client without cookies.
    pub http: reqwest::Client,
    /// The time of a stopped clock, in microseconds since 1970.
    still: Arc<AtomicI64>,
    /// The proxy in front of the database, if any.
    pub proxy: Option<Proxy>,
    /// The proxy in front of the chain's node, if any.
    pub node_proxy: Option<Proxy>,
}

/// An HTTP response.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; null if there is none.
    pub body: Value,
}

impl Answer {
    /// Returns the `error` field.
    pub fn slug(&self) -> &str {
        self.body["error"].as_str().unwrap_or_default()
    }

    /// Asserts that the status is 200 and returns the body.
    #[track_caller]
    pub fn ok(self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        self.body
    }

    /// Asserts that the status is 201 and returns the body.
    #[track_caller]
    pub fn created(self) -> Value {
        assert_eq!(self.status, 201, "{}", self.body);
        self.body
    }

    /// Returns the `If-Match` value for an update of this version.
    #[track_caller]
    pub fn etag(&self) -> &str {
        self.headers["etag"].to_str().expect("a text")
    }

    /// Asserts that the response is the error `slug` with this status, and returns the body.
    #[track_caller]
    pub fn refused(self, status: u16, slug: &str) -> Value {
        assert_eq!((self.status, self.slug()), (status, slug), "{}", self.body);
        assert!(
            self.headers.contains_key("x-request-id"),
            "every answer has a request id"
        );
        assert_eq!(self.headers["content-type"], "application/json; charset=utf-8");
        self.body
    }
}

/// Counts of the ledger's rows, which show whether a rejected request wrote a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Settlement rows.
    pub settlements: usize,
    /// The number of counted payments in all windows.
    pub entries: usize,
    /// The sum of all windows' totals.
    pub total: u64,
    /// Approval rows, by status.
    pub approvals: BTreeMap<String, usize>,
    /// The number of idempotency rows.
    pub keys: usize,
}

/// All rows of a table by key.
#[derive(Clone)]
pub struct Rows(BTreeMap<[String; 2], String>);

impl Rows {
    /// Returns one line for each row that was added, removed or changed since `before`.
    pub fn changes_since(&self, before: &Self) -> Vec<String> {
        let keys: BTreeSet<&[String; 2]> = before.0.keys().chain(self.0.keys()).collect();
        let pairs = keys.into_iter().map(|key| (key, before.0.get(key), self.0.get(key)));
        pairs
            .filter(|(_, was, is)| was != is)
            .map(|(key, was, is)| format!("{key:?} was {was:?} and is {is:?}"))
            .collect()
    }
}

/// Formats a value as text. Equal values have equal texts.
pub fn plain(value: &AttributeValue) -> String {
    match value {
        AttributeValue::M(members) => {
            let members: BTreeMap<&String, String> = members.iter().map(|(name, value)| (name, plain(value))).collect();
            format!("{members:?}")
        }
        AttributeValue::L(items) => format!("{:?}", items.iter().map(plain).collect::<Vec<_>>()),
        other => format!("{other:?}"),
    }
}

/// An agent that a test created.
#[derive(Clone)]
pub struct TestAgent {
    /// The id of the agent.
    pub id: AgentId,
    /// The whole API key.
    pub key: String,
    /// The address of the agent's wallet.
    pub wallet: String,
}

impl TestAgent {
    /// Returns a path below the agent's path.
    pub fn path(&self, below: &str) -> String {
        format!("/agents/{}{below}", self.id)
    }

    /// Returns the id of the agent's API key.
    pub fn key_id(&self) -> &str {
        key_id_of(&self.key)
    }

    /// Returns the same agent with another API key.
    pub fn with_key(&self, key: &Value) -> Self {
        Self {
            key: key.as_str().expect("a key").to_owned(),
            ..self.clone()
        }
    }
}

/// Returns the id in an API key: the last sixteen digits of its public half.
pub fn key_id_of(key: &str) -> &str {
    let (public, _) = key.split_once(':').expect("two halves");
    public.get(public.len() - 16..).expect("sixteen digits")
}

/// Converts dollars into micro-USDC.
pub const fn dollars(dollars: u64) -> u64 {
    dollars * 1_000_000
}

/// Returns an amount of `units` micro-USDC.
pub fn units(units: u64) -> Amount {
    Amount::from_units(units).expect("an amount")
}

/// Returns a random idempotency key.
pub fn fresh_key() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// Returns an authorize body with a new idempotency key.
pub fn body_of(requirement: Value) -> Value {
    json!({
        "payment_requirement": requirement,
        "max_payment_units": dollars(1_000),
        "original_request": {"method": "GET", "url": "https://provider.example/x"},
        "service_id": "lab-search",
        "idempotency_key": fresh_key(),
    })
}

/// Returns the body of a preflight check for the call in an authorize body.
pub fn unpaid(body: &Value) -> Value {
    let members = body.as_object().expect("an object");
    let is_of_the_call = |name: &str| ["original_request", "service_id", "operation_id", "metadata"].contains(&name);
    let kept = members.iter().filter(|(name, _)| is_of_the_call(name));
    Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// The services with the operation that [`body_of`] calls: slug, category, and operation id.
const ANYTHING: [(&str, &str, &str); 4] = [
    ("lab-reports", "finance", "6f0f5d4c-5d0c-4d57-9d7a-0c6b7d8f3a11"),
    ("lab-scrape", "scrape", "6f0f5d4c-5d0c-4d57-9d7a-0c6b7d8f3a12"),
    ("lab-search", "search", "6f0f5d4c-5d0c-4d57-9d7a-0c6b7d8f3a13"),
    ("lab-weather", "data", "6f0f5d4c-5d0c-4d57-9d7a-0c6b7d8f3a14"),
];

/// Returns an operation with the same URL in several services. The operation allows any price.
fn anything(category: &str, id: &str) -> Value {
    json!({
        "id": id,
        "operation_id": "test.anything",
        "label": "Anything",
        "method": "GET",
        "endpoint": "https://provider.example/{page}",
        "category": category,
        "execution": "sync",
        "price_model": "metered",
        "estimated_price_units": 5_000,
        "max_price_units": Amount::MAX.units(),
        "params": {},
        "payment": payment_entry(5_000, "{pay_to}"),
    })
}

/// Returns a database proxy for [`Options`], and a receiver for its handle.
fn front(config: ProxyConfig) -> (Front, oneshot::Receiver<Proxy>) {
    let (sender, receiver) = oneshot::channel();
    let front = move |upstream: String| -> Pin<Box<dyn Future<Output = String> + Send>> {
        Box::pin(async move {
            let proxy = Proxy::start(upstream, config).await;
            let url = proxy.url.clone();
            let _ = sender.send(proxy);
            url
        })
    };
    (Box::new(front), receiver)
}

impl World {
    /// Starts a stack with a running clock.
    pub async fn start() -> Self {
        Self::with(Options::default()).await
    }

    /// Starts a stack with a stopped clock.
    pub async fn still() -> Self {
        Self::still_with(Options::default()).await
    }

    /// Starts a stack with these options and a stopped clock.
    pub async fn still_with(options: Options) -> Self {
        let (still, clock) = Self::still_clock();
        Self {
            still,
            ..Self::with(Options { clock, ..options }).await
        }
    }

    fn still_clock() -> (Arc<AtomicI64>, Option<Clock>) {
        let still = Arc::new(AtomicI64::new(Clock::system().now().micros()));
        let clock = Clock::at_fixed_time(Arc::clone(&still));
        (still, Some(clock))
    }

    /// Starts a stack whose database rejects conflicting transactions as DynamoDB does.
    pub async fn conflicted() -> Self {
        Self::proxied(ProxyConfig {
            hold: Some(HOLD),
            ..ProxyConfig::default()
        })
        .await
    }

    /// Starts a stack that records the calls to the database and the node for [`crate::measure`]. The clock is stopped.
    pub async fn metered() -> Self {
        let config = ProxyConfig {
            latency: LATENCY,
            ..ProxyConfig::default()
        };
        let (database, proxy) = front(config);
        let (still, clock) = Self::still_clock();
        let options = Options {
            front: Some(database),
            clock,
            ..Options::default()
        };
        let world = Self::node_proxied(config, options).await;
        Self {
            proxy: proxy.await.ok(),
            still,
            ..world
        }
    }

    /// Starts a stack with a proxy in front of the node.
    pub async fn node_proxied(config: ProxyConfig, options: Options) -> Self {
        let (node_front, node_proxy) = front(config);
        let world = Self::with(Options {
            node_front: Some(node_front),
            ..options
        })
        .await;
        Self {
            node_proxy: node_proxy.await.ok(),
            ..world
        }
    }

    /// Starts a stack with a proxy in front of the database.
    pub async fn proxied(config: ProxyConfig) -> Self {
        Self::proxied_with(config, Options::default()).await
    }

    /// Starts a stack with a stopped clock that records the calls to the database.
    pub async fn watched() -> Self {
        Self::watched_with(Options::default()).await
    }

    /// Starts a stack like [`World::watched`], with these options.
    pub async fn watched_with(options: Options) -> Self {
        let (still, clock) = Self::still_clock();
        Self {
            still,
            ..Self::proxied_with(ProxyConfig::default(), Options { clock, ..options }).await
        }
    }

    async fn proxied_with(config: ProxyConfig, options: Options) -> Self {
        let (front, proxy) = front(config);
        let world = Self::with(Options {
            front: Some(front),
            ..options
        })
        .await;
        Self {
            proxy: proxy.await.ok(),
            ..world
        }
    }

    /// Starts a stack with these options. `PURSER_RECORD` and `PURSER_LOGS` name the files that record AWS calls and
    /// logs.
    pub async fn with(options: Options) -> Self {
        let tables_differ = options.environment.keys().any(|name| name.ends_with("_TABLE"));
        let record = Env::from_process()
            .get("PURSER_RECORD")
            .filter(|_| !tables_differ)
            .map(PathBuf::from);
        let log_audit = LogAudit::from_environment();
        if let Some(audit) = &log_audit {
            audit.listen();
        }
        let custody = custody();
        let mut operations = options.operations;
        operations.extend(ANYTHING.map(|(slug, category, id)| (slug, anything(category, id))));
        let options = Options {
            record,
            log_audit,
            operations,
            custody: if custody == CustodyKind::Kms {
                custody
            } else {
                options.custody
            },
            ..options
        };
        let stack = Stack::start(options, |_| {})
            .await
            .expect("the stack starts; `make setup` installs what it needs");
        let http = reqwest::Client::builder()
            .timeout(Duration::from_secs(60))
            .build()
            .expect("a client");
        // The demo agent has the wallet with index 0.
        Self {
            stack,
            http,
            still: Arc::default(),
            proxy: None,
            node_proxy: None,
        }
    }

    /// Sets the time of the stopped clock.
    pub fn set_clock(&self, at: Timestamp) {
        self.still.store(at.micros(), Ordering::SeqCst);
    }

    /// Advances the stopped clock by `seconds`.
    pub fn pass(&self, seconds: u32) {
        self.set_clock(self.now().after(Length::from_secs_u32(seconds)));
    }

    /// Returns the stack's time.
    pub fn now(&self) -> Timestamp {
        self.stack.clock.now()
    }

    /// Returns the catalog's service with this slug.
    pub async fn service(&self, slug: &str) -> Service {
        let catalog = self.stack.catalog.read_catalog().await.expect("the catalog");
        catalog.find_by_reference(slug).expect("a seeded service").clone()
    }

    /// Creates an agent with a balance, these rules, and the service `lab-search` enabled with `policy`.
    pub async fn agent(&self, policy: SpendPolicy, rules: Vec<Rule>) -> TestAgent {
        let agent = self.poor_agent(rules).await;
        self.enable(&agent, "lab-search", policy).await;
        self.fund(&agent, dollars(10_000)).await;
        agent
    }

    /// Creates an agent without a balance or services.
    pub async fn poor_agent(&self, rules: Vec<Rule>) -> TestAgent {
        let id = AgentId::from_uuid(uuid::Uuid::new_v4());
        let now = self.now();
        let key = NewKey::from_random(id, purser_api::random_bytes().expect("chance"), now);
        let wallet = self.stack.new_wallet(id).await.expect("a wallet");
        let agent = Agent {
            id,
            name: "test agent".to_owned(),
            owner: OWNER.to_owned(),
            created_at: now,
            status: AgentStatus::Active,
            wallet,
            keys: vec![key.record],
            rules,
            archived: false,
            labels: purser_domain::Labels::default(),
            starting_set: None,
            template: None,
            max_increase_factor: Agent::DEFAULT_INCREASE_FACTOR,
            former_owners: Vec::new(),
            version: 1,
        };
        assert_eq!(
            self.stack
                .ledger
                .create_agent(&agent, &purser_testkit::sample::audit())
                .await
                .expect("stored"),
            CreateAgentResult::Stored
        );
        TestAgent {
            id,
            key: key.text,
            wallet: wallet.address.to_string(),
        }
    }

    /// Changes the agent's stored record.
    pub async fn edit(&self, agent: &TestAgent, edit: impl FnOnce(&mut Agent)) {
        let mut record = self
            .stack
            .ledger
            .read_agent_by_id(agent.id)
            .await
            .expect("read")
            .expect("there");
        edit(&mut record);
        record.version += 1;
        assert_eq!(
            self.stack
                .ledger
                .put_agent(&record, &purser_testkit::sample::audit())
                .await
                .expect("stored"),
            UpdateResult::Stored
        );
    }

    /// Enables a service for the agent with a policy.
    pub async fn enable(&self, agent: &TestAgent, slug: &str, policy: SpendPolicy) {
        self.put_policy(agent, slug, true, policy).await;
    }

    /// Writes the agent's policy for a service.
    pub async fn put_policy(&self, agent: &TestAgent, slug: &str, enabled: bool, policy: SpendPolicy) {
        let service = self.service(slug).await.id;
        let before = self
            .stack
            .ledger
            .find_enabled_service(agent.id, service)
            .await
            .expect("read");
        let version = before.map_or(1, |before| before.version + 1);
        let record = EnabledService {
            service,
            version,
            enabled,
            policy,
        };
        assert_eq!(
            self.stack
                .ledger
                .put_policy(agent.id, &record, &purser_testkit::sample::audit())
                .await
                .expect("stored"),
            UpdateResult::Stored
        );
    }

    /// Mints `units` of the token to the agent's wallet.
    pub async fn fund(&self, agent: &TestAgent, units: u64) {
        let wallet = agent.wallet.parse().expect("an address");
        self.stack
            .chain
            .mint(NETWORK.token().address, wallet, units)
            .await
            .expect("minted");
    }

    /// Returns the demo agent of the stack.
    pub fn demo(&self) -> TestAgent {
        let demo = &self.stack.agent;
        TestAgent {
            id: demo.id,
            key: demo.key.clone(),
            wallet: demo.wallet_address.to_string(),
        }
    }

    /// Returns v2 payment requirements whose payee is the local providers' wallet.
    pub fn offer(&self, units: u64) -> Value {
        offer_v2(&OfferedTerms {
            units,
            pay_to: self.stack.providers.pay_to.clone(),
            timeout: 300,
        })
    }

    /// Sends a request. Before a GET request, processes the streams so that the decision history is up to date.
    pub async fn call(&self, method: Method, path: &str, key: Option<&str>, body: Option<&Value>) -> Answer {
        if method == Method::GET {
            assert_eq!(self.stack.aggregate_history().await, 0);
        }
        let mut request = self.http.request(method, format!("{}{path}", self.stack.base_url));
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        Self::send(request).await
    }

    /// Sends a request and reads the response. Asserts that the operation's description lists an error response.
    pub async fn send(request: reqwest::RequestBuilder) -> Answer {
        let (client, request) = request.build_split();
        let request = request.expect("a request");
        let (method, path) = (request.method().to_string(), request.url().path().to_owned());
        let response = client.execute(request).await.expect("an answer");
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = response.bytes().await.expect("a body");
        let is_text = ["text/plain", "text/markdown"].iter().any(|kind| {
            let given = headers.get("content-type").map(|value| value.as_bytes());
            given.is_some_and(|given| given.starts_with(kind.as_bytes()))
        });
        let body = if bytes.is_empty() {
            Value::Null
        } else if is_text {
            String::from_utf8(bytes.into()).expect("UTF-8").into()
        } else {
            serde_json::from_slice(&bytes).expect("a JSON body")
        };
        purser_testkit::assert_promised(&method, &path, status.as_u16(), &body);
        Answer {
            status: StatusCode::as_u16(&status),
            headers,
            body,
        }
    }

    /// Sends a GET request with the agent's key.
    pub async fn get(&self, agent: &TestAgent, path: &str) -> Answer {
        self.call(Method::GET, path, Some(&agent.key), None).await
    }

    /// Sends a POST request with the agent's key.
    pub async fn post(&self, agent: &TestAgent, path: &str, body: &Value) -> Answer {
        self.call(Method::POST, path, Some(&agent.key), Some(body)).await
    }

    /// Calls POST /x402/authorize.
    pub async fn authorize(&self, agent: &TestAgent, body: &Value) -> Answer {
        self.post(agent, "/x402/authorize", body).await
    }

    /// Calls POST /x402/check for the payment of an authorize body, with a new replay key.
    pub async fn check(&self, agent: &TestAgent, body: &Value) -> Answer {
        let mut body = body.clone();
        let fields = body.as_object_mut().expect("an object");
        fields.remove("idempotency_key");
        fields.remove("approval_id");
        fields.insert("replay_key".to_owned(), fresh_key().into());
        self.post(agent, "/x402/check", &body).await
    }

    /// Calls POST /x402/settlements/{id}/complete.
    pub async fn complete(&self, agent: &TestAgent, settlement: &str, body: &Value) -> Answer {
        self.post(agent, &format!("/x402/settlements/{settlement}/complete"), body)
            .await
    }

    /// Returns an approval decision of the owner at the current time.
    pub fn ruling(&self) -> ApprovalResolution {
        ApprovalResolution {
            at: self.now(),
            by: OWNER.to_owned(),
            note: None,
        }
    }

    /// Stores a user's decision about an approval.
    pub async fn resolve(&self, approval: &str, verdict: ApprovalDecision) {
        let id = ApprovalId::parse(approval).expect("an approval's id");
        let resolved = self
            .stack
            .ledger
            .resolve_approval(id, verdict, &self.ruling(), &purser_testkit::sample::audit())
            .await
            .expect("stored");
        assert!(matches!(resolved, ResolveResult::Done(_)), "{resolved:?}");
    }

    /// Makes an authorized payment on the chain, and returns the transaction's hash.
    pub async fn settle(&self, authorized: &Value) -> String {
        let transfer = transfer_of(authorized).to_vec();
        self.stack
            .chain
            .send(NETWORK.token().address, transfer)
            .await
            .expect("a transaction")
    }

    /// Counts the ledger's rows.
    pub async fn footprint(&self) -> Footprint {
        let mut footprint = Footprint::default();
        for item in self.scan("LedgerTable").await {
            let text = |name: &str| {
                item.get(name)
                    .and_then(|value| value.as_s().ok())
                    .cloned()
                    .unwrap_or_default()
            };
            let (pk, sk) = (text("pk"), text("sk"));
            if pk.starts_with("AP#") {
                *footprint.approvals.entry(text("st")).or_default() += 1;
            } else if pk.starts_with("S#") {
                footprint.settlements += 1;
            } else if sk.starts_with("E#") {
                footprint.entries += 1;
            } else if pk.starts_with("I#") {
                footprint.keys += 1;
            } else if sk == "#W" {
                let total = item.get("total").map(|total| total.as_n().expect("a number"));
                footprint.total += total.map_or(0, |total| total.parse::<u64>().expect("a total"));
            }
        }
        footprint
    }

    /// Returns every item of a table.
    pub async fn scan(&self, table: &str) -> Vec<std::collections::HashMap<String, AttributeValue>> {
        purser_testkit::invariants::scan(&self.stack.db, table, None).await
    }

    /// Returns the ledger's rows without replay keys of preflights and counts of failed proofs.
    pub async fn rows(&self) -> Rows {
        let Rows(mut rows) = self.rows_of("LedgerTable").await;
        rows.retain(|[pk, _], _| !pk.starts_with("R#"));
        Rows(rows)
    }

    /// Returns every row of a table, without the counts of failed proofs.
    pub async fn rows_of(&self, table: &str) -> Rows {
        let text = |value: &AttributeValue| value.as_s().expect("a text").clone();
        let items = self.scan(table).await.into_iter().map(|mut item| {
            let key = ["pk", "sk"].map(|name| item.get(name).map(text).unwrap_or_default());
            item.retain(|name, _| !["fp", "fph"].contains(&name.as_str()));
            (key, plain(&AttributeValue::M(item)))
        });
        Rows(items.collect())
    }

    /// Returns the number of an agent's recorded decisions.
    pub async fn decisions(&self, agent: &TestAgent) -> usize {
        let pk = format!("A#{}", agent.id);
        let items = self.scan("DecisionsTable").await;
        items
            .iter()
            .filter(|item| item.get("pk").and_then(|value| value.as_s().ok()) == Some(&pk))
            .count()
    }
}

/// Returns the custody of the wallet keys in these tests, from the variable `CUSTODY`.
pub fn custody() -> CustodyKind {
    Env::from_process().parse_custody()
}

/// Returns the part of a payment response that a replay repeats exactly: with KMS custody, everything except the
/// signature.
pub fn as_repeated(answer: &Value) -> Value {
    let mut answer = answer.clone();
    if custody() == CustodyKind::Kms {
        for pointer in ["/payment/header_value", "/payment/payload/payload/signature"] {
            if let Some(signed) = answer.pointer_mut(pointer) {
                *signed = Value::Null;
            }
        }
    }
    answer
}
