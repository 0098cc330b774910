//! Tests what clients and attackers get from the authorization server (docs/threat-model.md).

#![expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test stops where its ground is missing"
)]

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Request, header},
    routing::post,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use http_body_util::BodyExt as _;
use purser_api::{Boot, Clock};
use purser_domain::{
    AgentKey, ClientGrant, ClientId, ClientName, DeviceState, GrantCode, GrantOrigin, GrantRecord, KeyCredential,
    KeyId, KeyScope, NewGrantCode, OAuthKey, Permission, PkceChallenge, PresentedKey, RedirectUri, RefreshToken,
    Timestamp, UserCode,
};
use purser_store::Ledger;
use purser_testkit::{Emulator, SecretsManager, environment, sample, serve};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicI64, Ordering::SeqCst},
};
use tower::ServiceExt as _;
use url::form_urlencoded;

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const CALLBACK: &str = "https://claude.ai/api/mcp/auth_callback";
const VERIFIER: &str = "a-verifier-of-at-least-forty-three-characters";
const GRANT: KeyId = KeyId(77);
const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// The authorization server with one agent, whose owner gave a grant.
struct World {
    router: Router,
    ledger: Ledger,
    key: OAuthKey,
    issuer: String,
    /// The tokens that were sent to the route that revokes grants.
    revoked: Arc<Mutex<Vec<String>>>,
    micros: Arc<AtomicI64>,
}

struct Reply {
    status: u16,
    headers: HeaderMap,
    body: Value,
}

impl Reply {
    #[track_caller]
    fn fails(&self, status: u16, error: &str) {
        assert_eq!(
            (self.status, &self.body["error"]),
            (status, &json!(error)),
            "{}",
            self.body
        );
        assert!(self.body["error_description"].is_string(), "{}", self.body);
        assert_eq!(self.headers[header::CACHE_CONTROL], "no-store");
    }

    #[track_caller]
    fn token(&self, name: &str) -> String {
        assert_eq!(self.status, 200, "{}", self.body);
        self.body[name].as_str().unwrap().to_owned()
    }
}

impl World {
    async fn start() -> Self {
        Self::with_limit(100_000).await
    }

    async fn with_limit(per_minute: u32) -> Self {
        let emulator = Emulator::start().await;
        let secrets = SecretsManager::new([("arn:oauth", SECRET)]).serve().await;
        let revoked: Arc<Mutex<Vec<String>>> = Arc::default();
        let api = Router::new().route(
            "/oauth/revoke",
            post({
                let revoked = Arc::clone(&revoked);
                async move |body: String| revoked.lock().unwrap().push(body)
            }),
        );
        let issuer = serve(api).await;
        let env = environment(&emulator.url, &secrets).chain([
            ("OAUTH_KEY_SECRET_ARN", "arn:oauth".to_owned()),
            ("API_URL", format!("{issuer}/")),
            ("THROTTLE_PER_MINUTE", per_minute.to_string()),
        ]);
        let micros = Arc::new(AtomicI64::new(sample::start().micros()));
        let boot = Boot::new(env.collect(), Clock::at_fixed_time(Arc::clone(&micros)));
        let world = Self {
            router: purser_oauth::router(boot).await.unwrap(),
            ledger: emulator.ledger(),
            key: OAuthKey::from_secret(SECRET).unwrap(),
            issuer,
            revoked,
            micros,
        };
        let mut agent = sample::agent(1, Vec::new());
        agent.keys.push(AgentKey {
            id: GRANT,
            credential: KeyCredential::Grant(ClientGrant {
                verification_key: world.key.verification_key(agent.id, GRANT),
                client: ClientName::parse("Claude").unwrap(),
                origin: GrantOrigin::parse("claude.ai").unwrap(),
            }),
            created_at: sample::start(),
            ends_at: None,
            scope: KeyScope {
                permissions: Some(vec![Permission::Read]),
                expires_at: Some(sample::start().after(sample::secs(60 * 86_400))),
                ..KeyScope::default()
            },
            opened_by: None,
        });
        world.ledger.create_agent(&agent, &sample::audit()).await.unwrap();
        world
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(SeqCst)).unwrap()
    }

    fn pass(&self, secs: i64) {
        self.micros.fetch_add(secs * 1_000_000, SeqCst);
    }

    async fn send(&self, request: Request<Body>) -> Reply {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        assert!(parts.headers.contains_key("x-request-id"));
        Reply {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        }
    }

    async fn get(&self, path: &str) -> Reply {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    async fn post_form(&self, path: &str, fields: &[(&str, &str)]) -> Reply {
        let body = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(fields)
            .finish();
        let request = Request::post(path).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.send(request.body(Body::from(body)).unwrap()).await
    }

    async fn token(&self, fields: &[(&str, &str)]) -> Reply {
        self.post_form("/oauth/token", fields).await
    }

    async fn register(&self, document: &Value) -> Reply {
        let request = Request::post("/oauth/register").header(header::CONTENT_TYPE, "application/json");
        self.send(request.body(Body::from(document.to_string())).unwrap()).await
    }

    /// Registers a client, and returns the id.
    async fn client(&self) -> String {
        let reply = self
            .register(&json!({"client_name": "Claude", "redirect_uris": [CALLBACK]}))
            .await;
        assert_eq!(reply.status, 201, "{}", reply.body);
        reply.body["client_id"].as_str().unwrap().to_owned()
    }

    /// Issues a code, as the dashboard does after consent.
    async fn code(&self, client: &str) -> String {
        let new = NewGrantCode::from_random(purser_api::random_bytes().unwrap());
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(VERIFIER));
        let code = GrantCode {
            digest: new.digest,
            agent: sample::agent_id(1),
            grant: GRANT,
            client: ClientId::parse(client).unwrap().fingerprint(),
            redirect_uri: RedirectUri::parse(CALLBACK).unwrap(),
            challenge: PkceChallenge::parse(&challenge).unwrap(),
            expires_at: self.now().after(GrantCode::LIFETIME),
            used_at: None,
        };
        self.ledger.add_grant_code(&code).await.unwrap();
        new.text
    }

    async fn redeem(&self, client: &str, code: &str) -> Reply {
        self.token(&redemption(client, code)).await
    }

    async fn refresh(&self, client: &str, token: &str) -> Reply {
        let fields = [
            ("grant_type", "refresh_token"),
            ("client_id", client),
            ("refresh_token", token),
        ];
        self.token(&fields).await
    }

    async fn accepts(&self, token: &str) -> bool {
        let presented = PresentedKey::from_header(&format!("Bearer {token}")).ok().unwrap();
        let agent = self.ledger.read_agent_by_id(presented.agent).await.unwrap();
        presented.is_valid_for(agent.as_ref(), self.now())
    }

    fn revocations(&self) -> Vec<String> {
        self.revoked.lock().unwrap().clone()
    }
}

fn redemption<'a>(client: &'a str, code: &'a str) -> [(&'a str, &'a str); 5] {
    [
        ("grant_type", "authorization_code"),
        ("client_id", client),
        ("code", code),
        ("redirect_uri", CALLBACK),
        ("code_verifier", VERIFIER),
    ]
}

#[tokio::test]
async fn metadata_names_the_resource_and_the_endpoints_of_this_deployment() {
    let world = World::start().await;
    let issuer = &world.issuer;
    for path in [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
    ] {
        let reply = world.get(path).await;
        assert_eq!(reply.body["resource"], format!("{issuer}/mcp"));
        assert_eq!(reply.body["authorization_servers"], json!([issuer]));
        assert_eq!(reply.body["scopes_supported"], json!(["read", "pay"]));
        assert_eq!(reply.headers[header::ACCESS_CONTROL_ALLOW_ORIGIN], "*");
    }
    let reply = world.get("/.well-known/oauth-authorization-server").await;
    assert_eq!(reply.body["issuer"], json!(issuer));
    assert_eq!(
        reply.body["authorization_endpoint"],
        format!("{issuer}/dashboard/connect")
    );
    assert_eq!(reply.body["token_endpoint"], format!("{issuer}/oauth/token"));
    assert_eq!(reply.body["code_challenge_methods_supported"], json!(["S256"]));
    assert_eq!(reply.body["token_endpoint_auth_methods_supported"], json!(["none"]));
    assert_eq!(reply.body["client_id_metadata_document_supported"], json!(true));
    assert_eq!(
        reply.body["authorization_response_iss_parameter_supported"],
        json!(true)
    );
    let preflight = Request::options("/oauth/token").header(header::ORIGIN, "http://localhost:6274");
    let reply = world.send(preflight.body(Body::empty()).unwrap()).await;
    assert_eq!(reply.status, 204);
    assert_eq!(reply.headers[header::ACCESS_CONTROL_ALLOW_ORIGIN], "*");
    assert!(!reply.headers.contains_key(header::ACCESS_CONTROL_ALLOW_CREDENTIALS));
    assert_eq!(world.get("/oauth/token").await.status, 404);
}

#[tokio::test]
async fn a_client_registers_without_being_stored() {
    let world = World::start().await;
    let document = json!({
        "client_name": "Claude", "redirect_uris": [CALLBACK, "http://localhost/callback"], "software_id": "x",
        "token_endpoint_auth_method": "client_secret_post", "grant_types": ["authorization_code"],
    });
    let reply = world.register(&document).await;
    assert_eq!(reply.status, 201, "{}", reply.body);
    assert_eq!(reply.body["token_endpoint_auth_method"], "none");
    assert_eq!(reply.body["redirect_uris"], document["redirect_uris"]);
    assert_eq!(reply.body.get("client_secret"), None);
    for (document, error) in [
        (
            json!({"redirect_uris": ["javascript:alert(1)"]}),
            "invalid_redirect_uri",
        ),
        (
            json!({"redirect_uris": ["http://evil.example/"]}),
            "invalid_redirect_uri",
        ),
        (
            json!({"redirect_uris": ["https://evil.example/#x"]}),
            "invalid_redirect_uri",
        ),
        (json!({"client_name": "x"}), "invalid_client_metadata"),
        (json!([]), "invalid_client_metadata"),
        (
            json!({"redirect_uris": vec![format!("{CALLBACK}?{}", "x".repeat(300)); 3]}),
            "invalid_client_metadata",
        ),
    ] {
        world.register(&document).await.fails(400, error);
    }
}

#[tokio::test]
async fn a_flood_of_registrations_is_throttled() {
    let world = World::with_limit(3).await;
    for _ in 0..3 {
        world.client().await;
    }
    let reply = world.register(&json!({"redirect_uris": [CALLBACK]})).await;
    assert_eq!((reply.status, &reply.body["error"]), (429, &json!("too_many_requests")));
    assert!(reply.headers.contains_key(header::RETRY_AFTER));
}

#[tokio::test]
async fn a_code_gets_tokens_that_the_api_accepts_for_ten_minutes() {
    let world = World::start().await;
    let client = world.client().await;
    let code = world.code(&client).await;
    let reply = world.redeem(&client, &code).await;
    let access = reply.token("access_token");
    assert_eq!(reply.body["token_type"], "Bearer");
    assert_eq!(reply.body["expires_in"], 600);
    assert_eq!(reply.body["scope"], "read");
    assert_eq!(reply.headers[header::CACHE_CONTROL], "no-store");
    assert!(world.accepts(&access).await);
    world.pass(600);
    assert!(!world.accepts(&access).await);
    let again = world
        .refresh(&client, &reply.token("refresh_token"))
        .await
        .token("access_token");
    assert!(world.accepts(&again).await);
    assert!(world.revocations().is_empty());
}

/// No attack uses up the intercepted code, so the client still gets its tokens.
#[tokio::test]
async fn an_intercepted_code_gets_no_token() {
    let world = World::start().await;
    let (client, other) = (world.client().await, "purser-cli");
    let code = world.code(&client).await;
    let without = |name: &str| -> Vec<(&str, &str)> {
        redemption(&client, &code)
            .into_iter()
            .filter(|(field, _)| *field != name)
            .collect()
    };
    let with = |name: &'static str, value: &'static str| -> Vec<(&str, &str)> {
        without(name).into_iter().chain([(name, value)]).collect()
    };
    let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(VERIFIER));
    let mut downgraded = without("code_verifier");
    downgraded.extend([
        ("code_verifier", challenge.as_str()),
        ("code_challenge_method", "plain"),
    ]);
    let rows = [
        (without("code_verifier"), "invalid_request"),
        (
            with("code_verifier", "another-verifier-of-at-least-forty-three-chars"),
            "invalid_grant",
        ),
        (downgraded, "invalid_grant"),
        (with("redirect_uri", "https://evil.example/"), "invalid_grant"),
        (with("client_id", other), "invalid_grant"),
        (with("code", "pac_00"), "invalid_grant"),
        (with("resource", "https://other.example/mcp"), "invalid_target"),
        (with("grant_type", "password"), "unsupported_grant_type"),
        (without("grant_type"), "invalid_request"),
        (without("client_id"), "invalid_request"),
        (
            [redemption(&client, &code).as_slice(), &[("code", "x")]].concat(),
            "invalid_request",
        ),
    ];
    for (fields, error) in rows {
        world.token(&fields).await.fails(400, error);
    }
    world
        .token(&with("client_id", "prc_unknown.client"))
        .await
        .fails(401, "invalid_client");
    assert!(world.revocations().is_empty());
    let resource = format!("{}/mcp", world.issuer);
    let (slash, other) = (format!("{resource}/"), "https://other.example/mcp");
    let with_resources = |last| {
        let resources = [
            ("resource", resource.as_str()),
            ("resource", slash.as_str()),
            ("resource", last),
        ];
        [redemption(&client, &code).as_slice(), &resources].concat()
    };
    world.token(&with_resources(other)).await.fails(400, "invalid_target");
    let fields = with_resources(&world.issuer);
    world.token(&fields).await.token("access_token");

    let late = world.code(&client).await;
    world.pass(60);
    world.redeem(&client, &late).await.fails(400, "invalid_grant");
}

#[tokio::test]
async fn a_second_use_of_a_code_ends_the_grant() {
    let world = World::start().await;
    let client = world.client().await;
    let code = world.code(&client).await;
    let refresh = world.redeem(&client, &code).await.token("refresh_token");
    world.redeem(&client, &code).await.fails(400, "invalid_grant");
    let [revoked] = world.revocations().try_into().unwrap();
    let token = revoked.strip_prefix("token=").unwrap();
    let token = world.key.parse_refresh_token(token).unwrap();
    assert_eq!((token.grant, token.generation), (GRANT, RefreshToken::REUSED));
    world.refresh(&client, &refresh).await.fails(400, "invalid_grant");
}

#[tokio::test]
async fn a_replaced_refresh_token_returns_the_same_successor_and_later_ends_the_grant() {
    let world = World::start().await;
    let client = world.client().await;
    let code = world.code(&client).await;
    let first = world.redeem(&client, &code).await.token("refresh_token");
    world.pass(300);
    let second = world.refresh(&client, &first).await.token("refresh_token");
    assert_ne!(first, second);
    // The response was lost: the client sends the old token again and gets the same successor.
    world.pass(59);
    assert_eq!(world.refresh(&client, &first).await.token("refresh_token"), second);
    world.refresh("purser-cli", &second).await.fails(400, "invalid_grant");
    let third = world.refresh(&client, &second).await.token("refresh_token");
    assert!(world.revocations().is_empty());
    // A thief uses the first refresh token after the successor was used, which ends the grant.
    world.refresh(&client, &first).await.fails(400, "invalid_grant");
    assert_eq!(world.revocations().len(), 1);
    world.refresh(&client, &third).await.fails(400, "invalid_grant");
    let record = world
        .ledger
        .read_grant(sample::agent_id(1), GRANT)
        .await
        .unwrap()
        .unwrap();
    assert!(record.ended_at.is_some());
}

#[tokio::test]
async fn concurrent_uses_of_one_refresh_token_return_the_same_successor_token() {
    let world = World::start().await;
    let client = world.client().await;
    let code = world.code(&client).await;
    let first = world.redeem(&client, &code).await.token("refresh_token");
    let (one, two) = tokio::join!(world.refresh(&client, &first), world.refresh(&client, &first));
    assert_eq!(one.token("refresh_token"), two.token("refresh_token"));
    assert!(world.revocations().is_empty());
}

#[tokio::test]
async fn a_revoked_or_expired_grant_gets_no_tokens() {
    let world = World::start().await;
    let client = world.client().await;
    let code = world.code(&client).await;
    let reply = world.redeem(&client, &code).await;
    let (access, refresh) = (reply.token("access_token"), reply.token("refresh_token"));
    let unused = world.code(&client).await;
    let agent = world
        .ledger
        .read_agent_by_id(sample::agent_id(1))
        .await
        .unwrap()
        .unwrap();
    let mut revoked = agent.with_revoked_key(GRANT, world.now()).unwrap();
    revoked.version += 1;
    world.ledger.put_agent(&revoked, &sample::audit()).await.unwrap();
    assert!(!world.accepts(&access).await);
    world.refresh(&client, &refresh).await.fails(400, "invalid_grant");
    world.redeem(&client, &unused).await.fails(400, "invalid_grant");

    let world = World::start().await;
    let code = world.code(&client).await;
    let refresh = world.redeem(&client, &code).await.token("refresh_token");
    world.pass(30 * 86_400);
    world.refresh(&client, &refresh).await.fails(400, "invalid_grant");
}

#[tokio::test]
async fn oauth_tokens_expire_with_their_grant() {
    let world = World::start().await;
    let client = world.client().await;
    world.pass(60 * 86_400 - 90);
    let code = world.code(&client).await;
    let reply = world.redeem(&client, &code).await;
    assert_eq!(reply.body["expires_in"], 90);
    let refresh = reply.token("refresh_token");
    world.pass(90);
    assert!(!world.accepts(&reply.token("access_token")).await);
    world.refresh(&client, &refresh).await.fails(400, "invalid_grant");
}

#[tokio::test]
async fn a_device_polls_until_the_user_decides() {
    let world = World::start().await;
    let cli = "purser-cli";
    let start = world
        .post_form("/oauth/device_authorization", &[("client_id", cli)])
        .await;
    let device = start.token("device_code");
    assert_eq!(start.body["interval"], 5);
    assert_eq!(
        start.body["verification_uri"],
        format!("{}/dashboard/device", world.issuer)
    );
    let user_code = UserCode::parse(start.body["user_code"].as_str().unwrap()).unwrap();
    let poll = async || {
        let fields = [
            ("grant_type", DEVICE_GRANT),
            ("client_id", cli),
            ("device_code", &device),
        ];
        world.token(&fields).await
    };
    poll().await.fails(400, "authorization_pending");
    poll().await.fails(400, "slow_down");
    world.pass(5);
    poll().await.fails(400, "authorization_pending");
    let fields = [
        ("grant_type", DEVICE_GRANT),
        ("client_id", cli),
        ("device_code", "pdc_BCDFGHJK_00"),
    ];
    world.token(&fields).await.fails(400, "invalid_grant");
    let (agent, grant) = (sample::agent_id(1), GRANT);
    let approved = DeviceState::Approved { agent, grant };
    assert!(
        world
            .ledger
            .decide_device_request(&user_code, approved, world.now())
            .await
            .unwrap()
    );
    world.pass(5);
    let reply = poll().await;
    assert!(world.accepts(&reply.token("access_token")).await);
    reply.token("refresh_token");
    // A second use of the device code ends the grant.
    poll().await.fails(400, "invalid_grant");
    assert_eq!(world.revocations().len(), 1);

    let start = world
        .post_form("/oauth/device_authorization", &[("client_id", cli)])
        .await;
    let denied = start.token("device_code");
    let user_code = UserCode::parse(start.body["user_code"].as_str().unwrap()).unwrap();
    assert!(
        world
            .ledger
            .decide_device_request(&user_code, DeviceState::Denied, world.now())
            .await
            .unwrap()
    );
    let fields = [
        ("grant_type", DEVICE_GRANT),
        ("client_id", cli),
        ("device_code", &denied),
    ];
    world.token(&fields).await.fails(400, "access_denied");
    let expired = world
        .post_form("/oauth/device_authorization", &[("client_id", cli)])
        .await
        .token("device_code");
    world.pass(600);
    let fields = [
        ("grant_type", DEVICE_GRANT),
        ("client_id", cli),
        ("device_code", &expired),
    ];
    world.token(&fields).await.fails(400, "expired_token");
    let url = "https://client.example/metadata.json";
    let reply = world
        .post_form("/oauth/device_authorization", &[("client_id", url)])
        .await;
    reply.fails(400, "unauthorized_client");
}

/// An attacker who reads the table can neither compute tokens nor use the stored digests as codes.
#[tokio::test]
async fn stored_rows_contain_no_token_and_no_code() {
    let world = World::start().await;
    let client = world.client().await;
    let code = world.code(&client).await;
    let reply = world.redeem(&client, &code).await;
    let stored = world
        .ledger
        .read_grant(sample::agent_id(1), GRANT)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(stored.generation, 1);
    assert_eq!(stored.expires_at, sample::start().after(sample::secs(60 * 86_400)));
    assert!(stored.rotated_at.after(GrantRecord::MAX_IDLE) < stored.expires_at);
    let text = format!("{stored:?}");
    for secret in ["access_token", "refresh_token"] {
        assert!(!text.contains(&reply.token(secret)));
    }
}
