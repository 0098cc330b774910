//! Tests that no secret leaks: after a scenario with many failures, logs, tables and responses are searched for
//! secrets.

use aws_sdk_dynamodb::types::AttributeValue;
use coins_bip32::xkeys::{Parent as _, XPriv};
use k256::ecdsa::SigningKey;
use purser_domain::{AgentId, Duration as Length, SecretDigest};
use purser_local::DEMO_OWNER;
use purser_tests::{Log, TestAgent, World, as_repeated, body_of, dollars, fresh_key, operation_entry, service_entry};
use reqwest::header::{HeaderMap, LOCATION, SET_COOKIE};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::time::Duration;

const TABLES: [&str; 5] = [
    "LedgerTable",
    "DecisionsTable",
    "AuditTable",
    "CatalogTable",
    "ThrottleTable",
];

/// A secret, its name in failure messages, and the number of responses that must contain it.
struct Secret {
    name: &'static str,
    text: String,
    /// The number of responses that must contain the secret; `None` for any number.
    told: Option<usize>,
}

/// A recorded response.
struct Response {
    asked: String,
    status: u16,
    text: String,
}

/// The scenario's state and actors.
struct Story {
    world: World,
    /// The client follows no redirects, so that every response is recorded.
    http: reqwest::Client,
    told: RefCell<Vec<Response>>,
    secrets: RefCell<Vec<Secret>>,
}

impl Story {
    async fn begin() -> Self {
        let world = World::start().await;
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
        let story = Self {
            http: http.timeout(Duration::from_secs(60)).build().unwrap(),
            world,
            told: RefCell::default(),
            secrets: RefCell::default(),
        };
        for value in story.world.stack.secret_values() {
            story.is_secret("a value of Secrets Manager", &value, Some(0));
        }
        let token = story.world.stack.internal_token.clone();
        story.is_secret("an operator's token", &token, Some(0));
        story.is_secret_key(&story.world.demo().key, 0);
        story
    }

    fn is_secret(&self, name: &'static str, text: &str, told: Option<usize>) {
        assert!(
            text.len() >= 20,
            "{name}: {} letters may be anywhere by chance",
            text.len()
        );
        let mut secrets = self.secrets.borrow_mut();
        // Tokens of the same second are equal.
        if let Some(known) = secrets.iter_mut().find(|known| known.text == text) {
            known.told = known.told.zip(told).map(|(known, told)| known + told);
            return;
        }
        let text = text.to_owned();
        secrets.push(Secret { name, text, told });
    }

    /// Registers the secret half of an API key.
    fn is_secret_key(&self, key: &str, told: usize) {
        let (_, digits) = key.split_once(":gak_sec_").unwrap();
        self.is_secret("an agent key", digits, Some(told));
    }

    /// Registers the signature of a token, without which the token is useless.
    fn is_secret_token(&self, token: &str) {
        let (_, signature) = token.rsplit_once('.').unwrap();
        self.is_secret("a session", signature, Some(0));
    }

    fn is_secret_payment(&self, authorized: &Value) {
        let payload = &authorized["payment"]["payload"]["payload"];
        let signature = payload["signature"].as_str().unwrap().trim_start_matches("0x");
        self.is_secret("a payment's signature", signature, None);
        self.is_secret(
            "a payment",
            authorized["payment"]["header_value"].as_str().unwrap(),
            None,
        );
        let nonce = payload["authorization"]["nonce"]
            .as_str()
            .unwrap()
            .trim_start_matches("0x");
        self.is_secret("a payment's nonce", nonce, None);
    }

    /// Registers the secret parts of a grant's tokens.
    fn are_secret_tokens(&self, tokens: &Value) {
        for name in ["access_token", "refresh_token"] {
            let secret = tokens[name].as_str().unwrap().splitn(4, '_').last().unwrap();
            self.is_secret("a client's token", secret, Some(1));
        }
    }

    /// Returns a form request to one of the OAuth routes.
    fn client_form(&self, path: &str, fields: &[(&str, &str)]) -> RequestBuilder {
        let request = self.request(Method::POST, path);
        request
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form_text(fields))
    }

    /// Grants a client access to the agent, and returns the authorization code.
    async fn consent(&self, session: &str, agent: &TestAgent, client: &str, state: &str) -> String {
        let path = form_text(&[
            ("client_id", client),
            ("redirect_uri", CALLBACK),
            ("response_type", "code"),
            ("code_challenge", CHALLENGE),
            ("code_challenge_method", "S256"),
            ("state", state),
        ]);
        let path = format!("/dashboard/connect?{path}");
        let page = self.page(session, &path).await;
        let (status, headers, text) = self.send(self.form(session, &page, &path, &allow_form(agent))).await;
        assert_eq!(status, 303, "{text}");
        let back = reqwest::Url::parse(headers[LOCATION].to_str().unwrap()).unwrap();
        let (_, code) = back.query_pairs().find(|(name, _)| name == "code").unwrap();
        self.is_secret("an authorization code", &code, Some(0));
        self.is_secret("a client's state", state, Some(1));
        code.into_owned()
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http
            .request(method, format!("{}{path}", self.world.stack.base_url))
    }

    async fn send(&self, request: RequestBuilder) -> (u16, HeaderMap, String) {
        let asked = request.try_clone().unwrap().build().unwrap();
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.unwrap();
        self.told.borrow_mut().push(Response {
            asked: format!("{} {}", asked.method(), asked.url().path()),
            status,
            text: text.clone(),
        });
        (status, headers, text)
    }

    /// Sends a request. Asserts that the response is JSON with this status.
    async fn json(&self, status: u16, request: RequestBuilder) -> Value {
        let (answered, _, text) = self.send(request).await;
        assert_eq!(answered, status, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    async fn sign_in(&self) -> String {
        let cookie = |headers: &HeaderMap| {
            let set = headers.get_all(SET_COOKIE).iter().map(|value| value.to_str().unwrap());
            set.filter_map(|set| set.split(';').next())
                .find(|pair| !pair.ends_with('='))
                .unwrap()
                .to_owned()
        };
        let (_, headers, _) = self.send(self.request(Method::GET, "/dashboard/sign-in/start")).await;
        let attempt = cookie(&headers);
        for part in attempt
            .split_once('=')
            .unwrap()
            .1
            .split('.')
            .filter(|part| part.len() >= 20)
        {
            self.is_secret("a sign-in under way", part, Some(0));
        }
        let form = format!("email={}", DEMO_OWNER.email.replace('@', "%40"));
        let issuer = self.http.post(headers[LOCATION].to_str().unwrap());
        let issuer = issuer
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form);
        let (_, headers, _) = self.send(issuer).await;
        let back = headers[LOCATION].to_str().unwrap().to_owned();
        let (_, code) = back.split_once("code=").unwrap();
        self.is_secret("an authorization code", code.split('&').next().unwrap(), Some(0));
        let (status, headers, text) = self.send(self.http.get(&back).header("cookie", &attempt)).await;
        assert_eq!(status, 303, "{text}");
        let session = cookie(&headers);
        self.is_secret_token(&session);
        // The code was used, and the second request has no cookie of a pending sign-in.
        self.send(self.http.get(&back).header("cookie", &attempt)).await;
        self.send(self.http.get(&back)).await;
        session
    }

    async fn page(&self, session: &str, path: &str) -> String {
        let (status, _, text) = self
            .send(self.request(Method::GET, path).header("cookie", session))
            .await;
        assert_eq!(status, 200, "{path}");
        text
    }

    /// Returns a request that submits a page's form.
    fn form(&self, session: &str, page: &str, path: &str, more: &str) -> RequestBuilder {
        let (_, token) = page.split_once("name=\"form_token\" value=\"").unwrap();
        let token = token.split('"').next().unwrap();
        self.request(Method::POST, path)
            .header("cookie", session)
            .header("origin", &self.world.stack.base_url)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(format!("form_token={token}&{more}"))
    }
}

/// A user manages an agent, which pays, requests an approval, and is denied.
async fn people_and_their_agent(story: &Story) -> TestAgent {
    let world = &story.world;
    let session = story.sign_in().await;
    let owner = world.person(&DEMO_OWNER);
    story.is_secret_token(&owner.token);
    let as_owner = |method, path: &str| {
        story
            .request(method, path)
            .bearer_auth(&owner.token)
            .header("if-match", "*")
    };
    let made = story
        .json(
            201,
            as_owner(Method::POST, "/agents").json(&json!({"name": "errand runner"})),
        )
        .await;
    let id = made["agent_id"].as_str().unwrap().to_owned();
    let path = |below: &str| format!("/agents/{id}{below}");

    let first = story.json(201, as_owner(Method::POST, &path("/keys"))).await;
    let rotate = path(&format!("/keys/{}/rotate", first["key_id"].as_str().unwrap()));
    let second = story
        .json(
            201,
            as_owner(Method::POST, &rotate).json(&json!({"overlap_seconds": 60})),
        )
        .await;
    let revoke = path(&format!("/keys/{}", first["key_id"].as_str().unwrap()));
    story.json(200, as_owner(Method::DELETE, &revoke)).await;
    for made in [&first, &second] {
        story.is_secret_key(made["key"].as_str().unwrap(), 1);
    }
    let agent = TestAgent {
        id: AgentId::parse(&id).unwrap(),
        key: second["key"].as_str().unwrap().to_owned(),
        wallet: made["wallet_address"].as_str().unwrap().to_owned(),
    };
    world.fund(&agent, dollars(100)).await;
    let tight = json!({"require_approval_above_units": dollars(5), "max_per_call_units": dollars(50)});
    story
        .json(200, as_owner(Method::PATCH, &path("/services/lab-search")).json(&tight))
        .await;
    let rule = json!({"kind": "category_block", "categories": ["finance"]});
    story
        .json(201, as_owner(Method::POST, &path("/rules")).json(&rule))
        .await;

    let as_agent = |method, path: &str| story.request(method, path).bearer_auth(&agent.key);
    let authorize = |body: &Value| as_agent(Method::POST, "/x402/authorize").json(body);
    let small = body_of(world.offer(dollars(1)));
    let paid = story.json(200, authorize(&small)).await;
    let again = story.json(200, authorize(&small)).await;
    assert_eq!(as_repeated(&again), as_repeated(&paid), "a replay");
    story.is_secret_payment(&paid);
    let hash = world.settle(&paid).await;
    let receipt = format!("/x402/settlements/{}", paid["settlement_id"].as_str().unwrap());
    let proof = json!({"payment_response_header": {"payment-response": {"transaction": hash}}, "tx_hash": hash});
    let misplaced = json!({"payment_response_header": paid["payment"]["header_value"]});
    story
        .json(
            422,
            as_agent(Method::POST, &format!("{receipt}/complete")).json(&misplaced),
        )
        .await;
    story
        .json(200, as_agent(Method::POST, &format!("{receipt}/complete")).json(&proof))
        .await;
    story.json(200, as_agent(Method::GET, &receipt)).await;
    let mut large = body_of(world.offer(dollars(6)));
    let asked = story.json(402, authorize(&large)).await;
    let approval = asked["approval_id"].as_str().unwrap();
    let approve = path(&format!("/approvals/{approval}/approve"));
    story
        .json(200, as_owner(Method::POST, &approve).json(&json!({"note": "fine"})))
        .await;
    story.json(409, as_owner(Method::POST, &approve)).await;
    large["approval_id"] = approval.into();
    let executed = story.json(200, authorize(&large)).await;
    story.is_secret_payment(&executed);
    story.json(409, authorize(&large)).await;
    story.json(402, authorize(&body_of(world.offer(dollars(51))))).await;
    let mut reports = body_of(world.offer(1_000));
    reports["service_id"] = json!("lab-reports");
    story.json(403, authorize(&reports)).await;

    for path in [
        "/agents",
        &path("/keys"),
        &path("/services"),
        "/approvals",
        "/decisions",
        "/settlements",
    ] {
        story.json(200, as_owner(Method::GET, path)).await;
    }
    let settlement = paid["settlement_id"].as_str().unwrap();
    for page in [
        "/dashboard",
        "/dashboard/approvals",
        "/dashboard/decisions",
        &format!("/dashboard/receipts/{id}/{settlement}"),
    ] {
        story.page(&session, page).await;
    }
    let page = format!("/dashboard{}", path(""));
    let html = story.page(&session, &page).await;
    let version = story.json(200, as_owner(Method::GET, &path(""))).await["version"].clone();
    let (status, _, shown) = story
        .send(story.form(&session, &html, &format!("{page}/keys"), &format!("version={version}")))
        .await;
    assert_eq!(status, 200, "{shown}");
    let (_, third) = shown.split_once("gak_sec_").unwrap();
    story.is_secret("an agent key", &third[..64], Some(1));
    // The form is sent from another site, without the form token, and without a session.
    let form = || story.form(&session, &html, &format!("{page}/keys"), "version=1");
    story.send(form().header("sec-fetch-site", "cross-site")).await;
    story.send(form().body("version=1")).await;
    story
        .send(story.form("purser-session=x.y.z", &html, &format!("{page}/keys"), "version=1"))
        .await;
    story.page(&session, &page).await;
    agent
}

const CALLBACK: &str = "https://errands.example/callback";
/// The example of RFC 7636, appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

fn form_text(fields: &[(&str, &str)]) -> String {
    let url = reqwest::Url::parse_with_params("https://unused.example", fields).unwrap();
    url.query().unwrap().to_owned()
}

/// Returns the fields of a consent without the form token.
fn allow_form(agent: &TestAgent) -> String {
    let agent = agent.id.to_string();
    form_text(&[
        ("agent", &agent),
        ("may", "read"),
        ("per_day", "1"),
        ("expires_days", "1"),
        ("decision", "allow"),
    ])
}

/// OAuth clients use and misuse tokens. Returns a device's user code.
async fn clients(story: &Story, agent: &TestAgent) -> String {
    let session = story.sign_in().await;
    story.is_secret("a code verifier", VERIFIER, Some(0));
    let registration = json!({"client_name": "Errands", "redirect_uris": [CALLBACK]});
    let registered = story
        .json(201, story.request(Method::POST, "/oauth/register").json(&registration))
        .await;
    let client = registered["client_id"].as_str().unwrap();
    let text = |tokens: &Value, name: &str| tokens[name].as_str().unwrap().to_owned();
    let token = async |status, grant_type: &str, fields: &[(&str, &str)]| {
        let client = (
            "client_id",
            fields
                .iter()
                .find(|field| field.0 == "device_code")
                .map_or(client, |_| "purser-cli"),
        );
        let fields = [fields, &[("grant_type", grant_type), client]].concat();
        let tokens = story.json(status, story.client_form("/oauth/token", &fields)).await;
        if status == 200 {
            story.are_secret_tokens(&tokens);
        }
        tokens
    };
    let redeem = async |status, code: &str| {
        let fields = [("code", code), ("code_verifier", VERIFIER)];
        token(status, "authorization_code", &fields).await
    };
    let refresh = async |status, tokens: &Value| {
        let fields = [("refresh_token", tokens["refresh_token"].as_str().unwrap())];
        token(status, "refresh_token", &fields).await
    };
    let revoke = async |token: &str| {
        story
            .json(200, story.client_form("/oauth/revoke", &[("token", token)]))
            .await;
    };

    let code = story
        .consent(&session, agent, client, "the-first-state-of-a-client")
        .await;
    let first = redeem(200, &code).await;
    let second = refresh(200, &first).await;
    let third = refresh(200, &second).await;
    let me = |bearer: &str| story.request(Method::GET, "/mcp/agents/me").bearer_auth(bearer);
    story.json(200, me(&text(&third, "access_token"))).await;
    for wrong in [&code, &text(&third, "refresh_token")] {
        story.json(401, me(wrong)).await;
    }
    let query = form_text(&[("access_token", &text(&third, "access_token"))]);
    story
        .json(401, story.request(Method::POST, &format!("/mcp?{query}")))
        .await;
    // A stolen refresh token is used.
    refresh(400, &first).await;
    refresh(400, &third).await;

    let code = story
        .consent(&session, agent, client, "another-state-of-a-client")
        .await;
    let given_back = redeem(200, &code).await;

    let device = story
        .json(
            200,
            story.client_form("/oauth/device_authorization", &[("client_id", "purser-cli")]),
        )
        .await;
    let (user_code, device_code) = (text(&device, "user_code"), text(&device, "device_code"));
    story.is_secret("a device code", device_code.rsplit('_').next().unwrap(), Some(1));
    let path = format!("/dashboard/device?user_code={user_code}");
    let page = story.page(&session, &path).await;
    let (status, _, text_of_page) = story.send(story.form(&session, &page, &path, &allow_form(agent))).await;
    assert_eq!(status, 303, "{text_of_page}");
    let fields = [("device_code", device_code.as_str())];
    let kind = "urn:ietf:params:oauth:grant-type:device_code";
    let tokens = token(200, kind, &fields).await;
    token(400, kind, &fields).await;
    for token in [text(&given_back, "access_token"), text(&tokens, "refresh_token")] {
        revoke(&token).await;
    }
    user_code
}

async fn operators(story: &Story) {
    let world = &story.world;
    let as_operator = |method, path: &str| {
        let request = story
            .request(method, path)
            .header("x-internal-token", &world.stack.internal_token);
        request.header("if-match", "*")
    };
    let id = fresh_key();
    let path = format!("/internal/services/{id}");
    let entry = service_entry(
        "newcomer",
        &[operation_entry("news.read", "https://newcomer.example/read")],
    );
    let new = story
        .request(Method::PUT, &path)
        .header("x-internal-token", &world.stack.internal_token);
    story.json(201, new.json(&entry)).await;
    let trusted = json!({"trust_status": "platform_verified"});
    story
        .json(
            200,
            as_operator(Method::PUT, &format!("{path}/trust-status")).json(&trusted),
        )
        .await;
    story
        .json(202, as_operator(Method::POST, &format!("{path}/probe")))
        .await;
    world.stack.probe.run_probes(Duration::from_mins(1)).await.unwrap();
    world.stack.chain.advance(1_000).await.unwrap();
    let run = world
        .stack
        .reconcile
        .reconcile_all(Duration::from_mins(1))
        .await
        .unwrap();
    assert!(!run.outcomes().is_empty(), "nothing was held");
    let mut misplaced = entry;
    misplaced["token"] = json!(world.stack.internal_token);
    misplaced["source"] = json!(world.stack.internal_token);
    story.json(400, as_operator(Method::PUT, &path).json(&misplaced)).await;
    for wrong in [
        format!("{}x", world.stack.internal_token),
        world.stack.internal_token[..63].to_owned(),
    ] {
        let request = story
            .request(Method::GET, "/internal/services")
            .header("x-internal-token", wrong);
        story.json(401, request).await;
    }
    story
        .json(200, as_operator(Method::GET, "/internal/services?changed=true"))
        .await;
    let tokens = [
        ("local", world.stack.internal_token.as_str()),
        ("other", &"r".repeat(64)),
    ];
    world.stack.set_operators(&tokens);
    story.json(200, as_operator(Method::GET, &path)).await;
}

/// Sends secrets in wrong places, and incomplete secrets.
async fn mistakes(story: &Story, agent: &TestAgent) {
    let world = &story.world;
    let owner = world.person(&DEMO_OWNER);
    story.is_secret_token(&owner.token);
    let (key, token) = (agent.key.as_str(), owner.token.as_str());
    let (public, secret) = key.split_once(':').unwrap();
    let get = |path: &str| story.request(Method::GET, path);
    let swapped = format!("{secret}:{public}");
    let forged = format!("{}AAAA", &token[..token.len() - 4]);
    let mut expired = world.stack.issuer.claims(&DEMO_OWNER, Length::DAY);
    expired["exp"] = json!(world.now().secs() - 3_600);
    let expired = world.stack.issuer.sign(&expired);
    story.is_secret_token(&expired);
    for (path, bearer) in [
        ("/mcp/agents/me", secret),
        ("/mcp/agents/me", &swapped),
        ("/mcp/agents/me", token),
        ("/agents", key),
        ("/agents", secret),
        ("/agents", &forged),
        ("/agents", &expired),
        ("/internal/services", token),
        ("/internal/services", key),
    ] {
        story.json(401, get(path).bearer_auth(bearer)).await;
    }
    story
        .json(401, get("/mcp/agents/me").basic_auth(public, Some(secret)))
        .await;
    story
        .json(400, get(&format!("/mcp/agents/me?key={key}&token={token}")))
        .await;
    story
        .json(401, get("/agents").header("cookie", format!("purser-session={token}")))
        .await;
    story
        .json(
            401,
            get("/agents").header("x-internal-token", &world.stack.internal_token),
        )
        .await;
    story
        .json(404, get(&format!("/approvals/{key}")).bearer_auth(key))
        .await;
    story.json(404, get(&format!("/agents/{key}")).bearer_auth(token)).await;
    story
        .json(
            404,
            get(&format!("/agents/{}/keys/{secret}", agent.id)).bearer_auth(token),
        )
        .await;
    story.json(404, get(&format!("/nowhere/{token}/{key}"))).await;
    story.json(404, get(&format!("/services/{secret}"))).await;
    story
        .send(get(&format!("/dashboard/callback?code={secret}&state={secret}")))
        .await;
    for query in ["limit", "cursor", "agent_id", "status"] {
        story
            .json(400, get(&format!("/approvals?{query}={key}")).bearer_auth(token))
            .await;
    }

    let mut body = body_of(world.offer(1_000));
    body["api_key"] = json!(key);
    body["payment_requirement"] = json!(token);
    body["idempotency_key"] = json!([secret]);
    let authorize = || story.request(Method::POST, "/x402/authorize").bearer_auth(key);
    story.json(400, authorize().json(&body)).await;
    story
        .json(400, authorize().body(format!("{{\"key\": \"{key}\", ")))
        .await;
    story.json(400, authorize().body(format!("{key} {token}"))).await;
    let path = agent.path("");
    let edit = |method, below: &str| story.request(method, &format!("{path}{below}")).bearer_auth(token);
    let named = json!({"name": {"key": key}, "status": token, "key": key});
    story
        .json(400, edit(Method::PATCH, "").header("if-match", key).json(&named))
        .await;
    story
        .json(428, edit(Method::PATCH, "").json(&json!({"name": "x"})))
        .await;
    story
        .json(
            412,
            edit(Method::PATCH, "")
                .header("if-match", "\"0\"")
                .json(&json!({"name": "x"})),
        )
        .await;
    let listed = json!({"kind": "vendor_allowlist", "services": [secret], "wallets": [token]});
    story
        .json(400, edit(Method::POST, "/rules").header("if-match", "*").json(&listed))
        .await;

    let key_of_record = |sk: &str| [("pk", format!("A#{}", agent.id)), ("sk", sk.to_owned())];
    let record = key_of_record("#").map(|(name, text)| (name.to_owned(), AttributeValue::S(text)));
    let broken = world
        .stack
        .db
        .update_item()
        .table_name("LedgerTable")
        .set_key(Some(record.into()));
    let broken = broken
        .update_expression("SET #keys = :key")
        .expression_attribute_names("#keys", "keys");
    let read = world.stack.db.get_item().table_name("LedgerTable");
    let before = key_of_record("#").map(|(name, text)| (name.to_owned(), AttributeValue::S(text)));
    let before = read.set_key(Some(before.into())).send().await.unwrap().item.unwrap()["keys"].clone();
    let keys = |value| broken.clone().expression_attribute_values(":key", value).send();
    keys(AttributeValue::S("no list".to_owned())).await.unwrap();
    story.json(500, authorize().json(&body_of(world.offer(1_000)))).await;
    story.json(500, get(&agent.path("/keys")).bearer_auth(token)).await;
    keys(before).await.unwrap();
    story.json(200, get("/mcp/agents/me").bearer_auth(key)).await;
}

/// Formats a value as text. Bytes appear unchanged and in hexadecimal.
fn text_of(value: &AttributeValue) -> String {
    match value {
        AttributeValue::B(bytes) => {
            let bytes = bytes.as_ref();
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{digits} {}", String::from_utf8_lossy(bytes))
        }
        AttributeValue::L(values) => values.iter().map(text_of).collect::<Vec<_>>().join(" "),
        AttributeValue::M(members) => members
            .iter()
            .map(|(name, value)| format!("{name} {}", text_of(value)))
            .collect::<Vec<_>>()
            .join(" "),
        AttributeValue::S(text) | AttributeValue::N(text) => text.clone(),
        other => format!("{other:?}"),
    }
}

/// Returns the private keys of a seed's first wallets, in hexadecimal.
fn wallets_of(seed: &str) -> Vec<String> {
    let bytes: Vec<u8> = alloy::hex::decode(seed).unwrap();
    let root = XPriv::root_from_seed(&bytes, None).unwrap();
    let key = |index| {
        let path = [44, 60, 0, 0, index].map(|step: u32| step + (1 << 31));
        let key = path
            .into_iter()
            .fold(root.clone(), |key, step| key.derive_child(step).unwrap());
        alloy::hex::encode(AsRef::<SigningKey>::as_ref(&key).to_bytes())
    };
    (0..8).map(key).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_never_appear_in_logs_tables_or_errors() {
    let log = Log::start("warn,purser=trace");
    let story = Story::begin().await;
    let agent = people_and_their_agent(&story).await;
    let user_code = clients(&story, &agent).await;
    operators(&story).await;
    mistakes(&story, &agent).await;

    let log = log.text();
    for event in [
        "payment.decided",
        "payment.completed",
        "approval.staged",
        "catalog.edited",
        "probe.call",
        "reconcile.run",
        "request.failed",
        "grant.created",
        "grant.redeemed",
        "grant.reused",
        "grant.ended",
    ] {
        assert!(
            log.contains(event),
            "nobody logged {event}: is this test still listening?"
        );
    }
    for code in [&user_code, &user_code.replace('-', "")] {
        assert!(!log.contains(code), "a user code was logged");
    }
    let mut tables = String::new();
    for table in TABLES {
        let items = story.world.scan(table).await;
        assert!(!items.is_empty(), "{table} is empty: is this test still looking?");
        tables.extend(items.into_iter().map(|item| text_of(&AttributeValue::M(item)) + "\n"));
    }
    let (_, secret) = agent.key.split_once(':').unwrap();
    let digest: String = SecretDigest::from_secret(secret)
        .as_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert!(tables.contains(&digest), "bytes are not looked at");

    let stack = &story.world.stack;
    let values = stack.secret_values();
    let derived = values
        .iter()
        .filter(|value| value.len() == 128)
        .flat_map(|seed| wallets_of(seed));
    let keys: Vec<String> = derived.chain(stack.kms.private_keys()).collect();
    assert!(keys.len() > 1, "no wallet's key is looked for");
    for key in keys {
        story.is_secret("a wallet's private key", &key, Some(0));
    }
    let (secrets, told) = (story.secrets.take(), story.told.take());
    assert!(secrets.len() > 20 && told.iter().filter(|told| told.status >= 400).count() > 40);
    let holds = |text: &str, secret: &Secret| text.to_lowercase().contains(&secret.text.to_lowercase());
    let line = |text: &str, secret: &Secret| text.lines().find(|line| holds(line, secret)).map(str::to_owned);
    for secret in &secrets {
        let name = secret.name;
        assert_eq!(line(&log, secret), None, "{name} was logged");
        assert_eq!(line(&tables, secret), None, "{name} was stored");
        let told: Vec<&Response> = told.iter().filter(|told| holds(&told.text, secret)).collect();
        for told in &told {
            assert!(
                told.status < 400,
                "{name} is in the error {} of {}: {}",
                told.status,
                told.asked,
                told.text
            );
        }
        match secret.told {
            Some(times) => assert_eq!(
                told.len(),
                times,
                "{name}, told by {:?}",
                told.iter().map(|told| &told.asked).collect::<Vec<_>>()
            ),
            None => assert!(told.iter().all(|told| told.asked == "POST /x402/authorize"), "{name}"),
        }
    }
}
