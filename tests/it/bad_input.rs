//! Tests that invalid requests get an error and change nothing. `bodies.rs` tests the fields of bodies.

use purser_domain::SpendPolicy;
use purser_testkit::Rng;
use purser_tests::{Answer, OfferedTerms, Rows, TestAgent, World, body_of, fresh_key, offer_v1, paths};
use reqwest::Method;
use reqwest::header::HeaderValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};

const NOTHING: [String; 0] = [];

struct Ground {
    world: World,
    agent: TestAgent,
    before: Rows,
}

impl Ground {
    async fn new() -> Self {
        let world = World::start().await;
        let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
        let before = world.rows().await;
        Self { world, agent, before }
    }

    /// Returns the routes that evaluate a payment, each with a valid body.
    fn payments(&self) -> [(&'static str, Value); 2] {
        let authorize = body_of(self.world.offer(5_000));
        let mut check = authorize.clone();
        check.as_object_mut().unwrap().remove("idempotency_key");
        check["replay_key"] = json!(fresh_key());
        [("/x402/authorize", authorize), ("/x402/check", check)]
    }

    /// Posts a body of these bytes.
    async fn post_bytes(&self, path: &str, body: impl Into<Vec<u8>>) -> Answer {
        let request = self.world.http.post(format!("{}{path}", self.world.stack.base_url));
        World::send(request.bearer_auth(&self.agent.key).body(body.into())).await
    }

    /// Asserts that no row has changed and no decision was stored.
    async fn untouched(&self) {
        assert_eq!(self.world.rows().await.changes_since(&self.before), NOTHING);
        assert_eq!(self.world.decisions(&self.agent).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn request_bodies_are_limited_to_65536_bytes() {
    const LIMIT: usize = 65_536;
    let ground = Ground::new().await;
    for (path, valid) in ground.payments().into_iter().rev() {
        let valid = if path == "/x402/check" {
            valid.to_string()
        } else {
            "{}".to_owned()
        };
        let padded = |length: usize| format!("{valid}{}", " ".repeat(length - valid.len()));
        let at_limit = ground.post_bytes(path, padded(LIMIT)).await;
        let expected = if path == "/x402/check" { 200 } else { 400 };
        assert_eq!(at_limit.status, expected, "{}", at_limit.body);
        for length in [LIMIT + 1, LIMIT + 4_096] {
            let over = ground
                .post_bytes(path, padded(length))
                .await
                .refused(413, "request_too_large");
            assert_eq!(over["limit_bytes"], LIMIT);
            // The same body is sent chunked, without `Content-Length`.
            let (status, body) = raw(&ground, "POST", path, Framing::Chunked, padded(length).as_bytes()).await;
            assert_eq!((status, &body["error"]), (413, &json!("request_too_large")));
        }
        let (status, body) = raw(&ground, "POST", path, Framing::Chunked, padded(LIMIT).as_bytes()).await;
        assert_eq!(status, expected, "{body}");
        // The function rejects a body by its `Content-Length`, before the body is sent.
        let announced = raw(&ground, "POST", path, Framing::Announced(LIMIT + 1), b"");
        let announced = tokio::time::timeout(std::time::Duration::from_secs(60), announced).await;
        let (status, body) = announced.expect("an answer without the body");
        assert_eq!((status, &body["error"]), (413, &json!("request_too_large")));
    }
    // Bodies are parsed as JSON, whatever the `Content-Type` header is.
    let (path, valid) = &ground.payments()[1];
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json; charset=latin1",
        "x",
    ] {
        let request = ground
            .world
            .http
            .post(format!("{}{path}", ground.world.stack.base_url))
            .bearer_auth(&ground.agent.key);
        World::send(request.header("content-type", kind).body(valid.to_string()))
            .await
            .ok();
    }
    ground.untouched().await;
}

/// How a raw request transfers its body.
#[derive(Clone, Copy)]
enum Framing {
    Length,
    Chunked,
    /// Announces a length in `Content-Length` and sends no body.
    Announced(usize),
}

/// Sends a request without an HTTP library, which would normalize it. Returns the status and the body.
async fn raw(ground: &Ground, method: &str, target: &str, framing: Framing, body: &[u8]) -> (u16, Value) {
    let address = ground.world.stack.base_url.trim_start_matches("http://").to_owned();
    let framed = match framing {
        Framing::Length => format!("content-length: {}", body.len()),
        Framing::Chunked => "transfer-encoding: chunked".to_owned(),
        Framing::Announced(length) => format!("content-length: {length}"),
    };
    let key = &ground.agent.key;
    let head = format!(
        "{method} {target} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\nconnection: close\r\n{framed}\r\n\r\n"
    );
    let mut bytes = head.into_bytes();
    match framing {
        Framing::Length => bytes.extend(body),
        Framing::Announced(_) => {}
        Framing::Chunked => {
            for chunk in body.chunks(10_000) {
                bytes.extend(
                    format!("{:x}\r\n", chunk.len())
                        .bytes()
                        .chain(chunk.iter().copied())
                        .chain(*b"\r\n"),
                );
            }
            bytes.extend(b"0\r\n\r\n");
        }
    }
    let exchange = move || {
        let mut stream = std::net::TcpStream::connect(address)?;
        stream.write_all(&bytes)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = tokio::task::spawn_blocking(exchange).await.unwrap().expect("an answer");
    let answer = String::from_utf8(answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .expect("a status");
    (
        status,
        if body.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(body).expect("a JSON body")
        },
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_paths_return_not_found() {
    let ground = Ground::new().await;
    let own = ground.agent.id.to_string();
    let service = ground.world.service("lab-search").await.id.to_string();
    let long = "a".repeat(4_000);
    let names = [
        "%00",
        "%ff",
        "%c0%ae",
        "..",
        "%2e%2e",
        "..%2f..%2fetc%2fpasswd",
        "a%5cb",
        "%zz",
        "'%20OR%201=1--",
        "*",
        "{id}",
        "null",
        "\u{e9}",
        "lab-search%00",
        "LAB-SEARCH",
        "S%23",
        "00000000-0000-0000-0000-000000000000",
        &service.replace('-', ""),
        &format!("%7B{service}%7D"),
        &format!("{own}%20"),
        &long,
    ];
    for name in names {
        let catalog = if ["%ff", "%c0%ae"].contains(&name) {
            "not_found"
        } else {
            "service_not_found"
        };
        for (method, target, slug) in [
            ("GET", format!("/services/{name}"), catalog),
            ("GET", format!("/x402/settlements/{name}"), "not_found"),
            ("GET", format!("/approvals/{name}"), "not_found"),
            ("GET", format!("/agents/{name}/settlements"), "not_found"),
            ("GET", format!("/mcp/agents/{name}/services"), "not_found"),
            ("GET", format!("/agents/{own}/services/{name}/policy"), "not_found"),
            ("GET", format!("/agents/{name}/services/lab-search/policy"), "not_found"),
            ("POST", format!("/x402/settlements/{name}/complete"), "not_found"),
            ("GET", format!("/{name}"), "not_found"),
        ] {
            let body =
                json!({"payment_response_header": "e30=", "tx_hash": format!("0x{}", "1".repeat(64))}).to_string();
            let (status, answer) = raw(
                &ground,
                method,
                &target,
                Framing::Length,
                if method == "POST" { body.as_bytes() } else { b"" },
            )
            .await;
            assert_eq!(
                (status, &answer["error"]),
                (404, &json!(slug)),
                "{method} {target}: {answer}"
            );
        }
    }
    // An id in a path may be percent-encoded, and a UUID may be in upper case.
    for target in [
        "//services",
        "/services/",
        "/services//",
        "/./services",
        "/services/../services",
        "/services/lab-search/",
        "/SERVICES",
        "/x402//check",
        "/services;x=1",
        "/services%2flab-search",
        "/_local/../services",
        "/openapi.json/",
        "/.env",
        "/",
    ] {
        let (status, answer) = raw(&ground, "GET", target, Framing::Length, b"").await;
        assert_eq!(
            (status, &answer["error"]),
            (404, &json!("not_found")),
            "{target}: {answer}"
        );
    }
    for target in [
        "/services/l%61b-search".to_owned(),
        format!("/services/{}", service.to_uppercase()),
        format!("/agents/{}/settlements", own.to_uppercase()),
    ] {
        let (status, answer) = raw(&ground, "GET", &target, Framing::Length, b"").await;
        assert_eq!(status, 200, "{target}: {answer}");
    }
    for (method, target) in [
        ("BREW", "/services"),
        ("get", "/services"),
        ("TRACE", "/x402/authorize"),
        ("CONNECT", "/x402/authorize"),
        ("PROPFIND", "/mcp/agents/me"),
        ("DELETE", "/x402/authorize"),
    ] {
        let (status, answer) = raw(&ground, method, target, Framing::Length, b"").await;
        assert_eq!(
            (status, &answer["error"]),
            (404, &json!("not_found")),
            "{method} {target}: {answer}"
        );
    }
    ground.untouched().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_cannot_change_the_method_or_path_of_a_request() {
    let ground = Ground::new().await;
    let base = &ground.world.stack.base_url;
    let me = || {
        ground
            .world
            .http
            .get(format!("{base}/mcp/agents/me"))
            .bearer_auth(&ground.agent.key)
    };
    let expected = World::send(me()).await.ok();
    let long = "x".repeat(16_000);
    for (name, value) in [
        ("x-http-method-override", "DELETE"),
        ("x-method-override", "POST"),
        ("x-original-url", "/internal/services"),
        ("x-rewrite-url", "/agents"),
        ("x-forwarded-host", "evil.example"),
        ("x-forwarded-for", "203.0.113.1, 127.0.0.1"),
        ("forwarded", "for=203.0.113.1;host=evil.example;proto=http"),
        (
            "x-amzn-trace-id",
            "Root=1-68a8f5c0-000000000000000000000087\tx;{\"level\":\"ERROR\"}",
        ),
        ("x-request-id", "00000000-0000-0000-0000-000000000000"),
        ("x-amzn-request-context", "{\"http\":{\"sourceIp\":\"203.0.113.1\"}}"),
        ("accept", "text/html;q=1, application/xml"),
        ("accept-encoding", "gzip, br, identity;q=0"),
        ("accept-language", "*;q=\u{e9}"),
        ("range", "bytes=0-0"),
        ("expect", "100-continue"),
        ("if-match", "\"1\", W/\"2\""),
        ("if-none-match", "*"),
        ("cookie", "session=x; __Host-session=\u{e9}"),
        ("origin", "null"),
        ("x-internal-token", "x"),
        ("content-type", "application/json; charset=utf-7"),
        ("content-encoding", "gzip"),
        ("x-long", &long),
    ] {
        let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
        let answer = World::send(me().header(name, value)).await;
        assert_ne!(answer.headers["x-request-id"], "00000000-0000-0000-0000-000000000000");
        assert_eq!(
            answer.headers["content-type"], "application/json; charset=utf-8",
            "{name}"
        );
        assert!(!answer.headers.contains_key("content-encoding"), "{name}");
        assert_eq!(answer.ok(), expected, "{name}");
    }
    // A body is parsed without decompression, whatever the `Content-Encoding` header is.
    let authorize = ground.world.http.post(format!("{base}/x402/authorize"));
    let gzip = [
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xab, 0xae, 5, 0, 0x43, 0xbf, 0xa6, 0xa3, 2, 0, 0, 0,
    ];
    let zipped = authorize
        .bearer_auth(&ground.agent.key)
        .header("content-encoding", "gzip")
        .body(gzip.to_vec());
    assert_eq!(paths(World::send(zipped).await, "gzip"), [""]);
    ground.untouched().await;
}

/// No route accepts the method `OPTIONS`, so no CORS preflight request of a browser succeeds.
#[tokio::test(flavor = "multi_thread")]
async fn unsupported_methods_return_not_found_and_no_cors_headers() {
    let ground = Ground::new().await;
    let agent = ground.agent.id;
    for path in [
        "/services".to_owned(),
        "/openapi.json".to_owned(),
        "/x402/authorize".to_owned(),
        "/mcp/agents/me".to_owned(),
        "/agents".to_owned(),
        format!("/agents/{agent}/keys"),
        "/internal/services".to_owned(),
        "/nowhere".to_owned(),
    ] {
        for method in ["HEAD", "OPTIONS", "TRACE", "PATCHY"] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let request = ground
                .world
                .http
                .request(method.clone(), format!("{}{path}", ground.world.stack.base_url));
            let request = request
                .bearer_auth(&ground.agent.key)
                .header("origin", "https://evil.example")
                .header("access-control-request-method", "POST");
            let answer = World::send(request).await;
            let is_read = method == Method::HEAD && matches!(path.as_str(), "/services" | "/openapi.json");
            assert_eq!(answer.status, if is_read { 200 } else { 404 }, "{method} {path}");
            for header in ["access-control-allow-origin", "access-control-allow-methods"] {
                assert!(!answer.headers.contains_key(header), "{method} {path}: {header}");
            }
            if method != Method::HEAD {
                answer.refused(404, "not_found");
            }
        }
    }
    ground.untouched().await;
}

/// `shared/domain/src/policy/agent.rs` tests the parsing of keys.
#[tokio::test(flavor = "multi_thread")]
async fn malformed_agent_keys_are_rejected() {
    let ground = Ground::new().await;
    let key = ground.agent.key.clone();
    let (public, _) = key.split_once(':').unwrap();
    let url = format!("{}/mcp/agents/me", ground.world.stack.base_url);
    let get = || ground.world.http.get(&url);
    for (header, slug) in [
        (format!("Basic {key}"), "invalid_authorization_header"),
        (format!("Bearer {public}"), "invalid_authorization_header"),
        (format!("B\u{e9}arer {key}"), "invalid_authorization_header"),
        (format!("Bearer {key}0"), "invalid_agent_key"),
        (
            format!("Bearer {}:{}", "a".repeat(8_000), "b".repeat(8_000)),
            "invalid_agent_key",
        ),
    ] {
        let header = HeaderValue::from_bytes(header.as_bytes()).unwrap();
        let told = World::send(get().header("authorization", header))
            .await
            .refused(401, slug);
        assert!(!told.to_string().contains("gak_"), "no part of a key is told back");
    }
    // Two headers are ambiguous, even if they are equal.
    let twice = get().bearer_auth(&key).bearer_auth(&key);
    World::send(twice).await.refused(401, "invalid_authorization_header");
    let cookie = format!("authorization={key}");
    let elsewhere = get().header("x-api-key", &key).header("cookie", cookie);
    World::send(elsewhere).await.refused(401, "invalid_agent_key");
    World::send(get().header("authorization", format!("BEARER   {key}")))
        .await
        .ok();
    ground.untouched().await;
}

/// `shared/api/src/http/query.rs` tests the parsing of parameters.
#[tokio::test(flavor = "multi_thread")]
async fn query_strings_are_parsed_strictly() {
    let ground = Ground::new().await;
    let settlements = format!("/agents/{}/settlements", ground.agent.id);
    let everything = ["/category", "/limit", "/slug", "/trust_status"];
    for (path, query, wrong) in [
        ("/services", "limit=501", &["/limit"][..]),
        ("/services", "limit=1&%6cimit=2", &["/limit"]),
        ("/services", "category=search%00", &["/category"]),
        ("/services", "trust_status=Listed", &["/trust_status"]),
        (
            "/services",
            "category=x&limit=0&trust_status=x&slug=a&slug=a",
            &everything,
        ),
        (&settlements, "limit=101", &["/limit"]),
        (&settlements, "limit", &["/limit"]),
        (
            "/services",
            "Limit=0&cursor=x&cursor=y&&=&x&%ff=%zz",
            &["/", "/Limit", "/cursor", "/x", "/\u{fffd}"],
        ),
    ] {
        let answer = ground.world.get(&ground.agent, &format!("{path}?{query}")).await;
        assert_eq!(paths(answer, query), wrong, "{path}?{query}");
    }
    for (path, query) in [("/services", "limit=500"), (&settlements, "limit=100")] {
        ground.world.get(&ground.agent, &format!("{path}?{query}")).await.ok();
    }
    for slug in ["", "%00", "%ff", "LAB-SEARCH", "'%20OR%20''='"] {
        let list = ground
            .world
            .get(&ground.agent, &format!("/services?slug={slug}"))
            .await
            .ok();
        assert_eq!(list, json!({"services": [], "count": 0}), "{slug}");
    }
    ground.untouched().await;
}

/// Texts that are valid in some field.
const PLAUSIBLE: [&str; 16] = [
    "1",
    "20000",
    "19999",
    "999999999",
    "GET",
    "POST",
    "lab-search",
    "lab-scrape",
    "lab-weather",
    "web.search",
    "web.scrape",
    "https://example.com/",
    "https://evil.test/",
    "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
    "0x3c44cdddb6a900fa2b585dd299e03d12fa4293bc",
    "0x2b8c4f4e-0000-0000-0000-000000000000",
];

/// Changes JSON documents at random, and in the same way in every run.
struct Mutator(Rng);

impl Mutator {
    fn value(&mut self) -> Value {
        let numbers = [
            json!(0),
            json!(-1),
            json!(1),
            json!(1.5),
            json!(u64::MAX),
            json!(i64::MIN),
            json!(1e308),
            json!(5_000),
        ];
        let texts = [
            "",
            "0",
            "5000",
            "exact",
            "\u{0}",
            "\u{202e}",
            "lab-search",
            "https://example.com/",
            "0x",
            "\u{1f4a5}",
            "../..",
            "{}",
            "null",
        ];
        match self.0.index(7) {
            0 => Value::Null,
            1 => json!(self.0.index(2) == 0),
            2 | 3 => self.0.pick(&numbers).clone(),
            4 => json!(self.0.pick(&texts)),
            5 => json!([self.0.pick(&numbers), self.0.pick(&texts), []]),
            _ => json!({"x": self.0.pick(&texts), "amount": self.0.pick(&numbers), "accepts": []}),
        }
    }

    fn mutate(&mut self, body: &mut Value) {
        for _ in 0..=self.0.index(4) / 2 {
            let mut at = &mut *body;
            // Selects a value at a random depth.
            for _ in 0..=self.0.index(5) {
                let inner = match at {
                    Value::Object(members) => members.len(),
                    Value::Array(items) => items.len(),
                    _ => 0,
                };
                if inner == 0 {
                    break;
                }
                let index = self.0.index(inner);
                at = match at {
                    Value::Object(members) => members.values_mut().nth(index).unwrap(),
                    Value::Array(items) => &mut items[index],
                    _ => unreachable!("only containers have members"),
                };
            }
            self.change(at);
        }
    }

    fn change(&mut self, at: &mut Value) {
        let (some, choice) = (self.value(), self.0.index(6));
        match at {
            Value::Object(members) if choice < 3 && !members.is_empty() => {
                let name = members.keys().nth(self.0.index(members.len())).unwrap().clone();
                match choice {
                    0 => drop(members.remove(&name)),
                    1 => drop(members.insert(name.to_uppercase(), some)),
                    _ => drop(members.insert(name, some)),
                }
            }
            Value::Array(items) if choice < 4 => match (choice, items.first().cloned()) {
                (0, _) => items.clear(),
                (1 | 2, Some(first)) => items.push(first),
                _ => items.push(some),
            },
            Value::String(text) if choice < 2 => {
                let places: Vec<usize> = text.char_indices().map(|(place, _)| place).collect();
                let place = if places.is_empty() { 0 } else { *self.0.pick(&places) };
                match choice {
                    0 => text.truncate(place),
                    _ => text.insert(
                        place,
                        *self.0.pick(&['0', 'a', ' ', '\\', '\u{0}', '.', '/', '@', '\u{e9}']),
                    ),
                }
            }
            // Most of the new texts are valid in some field.
            Value::String(text) if choice < 5 => *text = (*self.0.pick(&PLAUSIBLE)).to_owned(),
            Value::Number(number) if choice < 5 => {
                *number = self.0.pick(&[0, 1, 60, 19_999, 20_000, 1_000_000]).to_owned().into()
            }
            at => *at = some,
        }
    }

    fn scramble(&mut self, text: String) -> Vec<u8> {
        let mut bytes = text.into_bytes();
        for _ in 0..=self.0.index(3) {
            let place = self.0.index(bytes.len());
            match self.0.index(4) {
                0 => bytes[place] = self.0.draw().to_le_bytes()[0],
                1 => drop(bytes.remove(place)),
                2 => bytes.insert(place, *self.0.pick(b"{}[]\",:0e-\\\xff")),
                _ => bytes.truncate(place + 1),
            }
        }
        bytes
    }
}

/// No response has a status of 500 or above, and only authorizations write to the tables.
#[tokio::test(flavor = "multi_thread")]
async fn mutated_requests_never_fail_internally_or_spend_unrecorded() {
    const SEED: u64 = 0x5EED_0402;
    let ground = Ground::new().await;
    let (world, agent) = (&ground.world, &ground.agent);
    world.enable(agent, "lab-scrape", SpendPolicy::permissive()).await;
    let paid = world.authorize(agent, &body_of(world.offer(5_000))).await.ok();
    let complete = format!("/x402/settlements/{}/complete", paid["settlement_id"].as_str().unwrap());
    let scrape = world.service("lab-scrape").await.operations[0].endpoint.to_string();
    let mut mutator = Mutator(Rng::from_seed(SEED));
    let mut statuses: BTreeMap<(u16, String), usize> = BTreeMap::new();
    let mut before = (world.rows().await, world.decisions(agent).await);
    let mut footprint = world.footprint().await;
    for round in 0..360 {
        let mut body = body_of(world.offer(20_000));
        body["service_id"] = json!("lab-scrape");
        body["operation_id"] = json!("web.scrape");
        body["approval_id"] = Value::Null;
        body["metadata"] = json!({"target_url": "https://example.com/"});
        body["original_request"] = json!({"method": "GET", "url": scrape, "body_hash": "sha256:00"});
        if round % 3 == 0 {
            body["payment_requirement"] = offer_v1(&OfferedTerms {
                units: 20_000,
                pay_to: world.stack.providers.pay_to.clone(),
                timeout: 60,
            });
        }
        let path = match round % 5 {
            0 => {
                let key = body.as_object_mut().unwrap().remove("idempotency_key");
                body["replay_key"] = key.unwrap();
                "/x402/check"
            }
            1 if round % 4 == 0 => {
                body = json!({"payment_response_header": {"X-PAYMENT-RESPONSE": "e30="}, "tx_hash": format!("0x{}", "zz".repeat(32))});
                complete.as_str()
            }
            _ => "/x402/authorize",
        };
        mutator.mutate(&mut body);
        let bytes = if round % 7 == 0 {
            mutator.scramble(body.to_string())
        } else {
            body.to_string().into_bytes()
        };
        let shown = format!(
            "seed {SEED:#x}, round {round}, {path} {}",
            String::from_utf8_lossy(&bytes)
        );

        let answer = ground.post_bytes(path, bytes).await;
        let after = (world.rows().await, world.decisions(agent).await);
        *statuses.entry((answer.status, answer.slug().to_owned())).or_default() += 1;
        assert!((200..500).contains(&answer.status), "{shown}: {}", answer.body);
        assert!(answer.headers.contains_key("x-request-id"), "{shown}");
        if answer.status >= 400 {
            for member in ["error", "message", "request_id"] {
                assert!(
                    answer.body[member].as_str().is_some_and(|text| !text.is_empty()),
                    "{shown}: {}",
                    answer.body
                );
            }
        }
        let decided = usize::from([402, 403].contains(&answer.status));
        assert_eq!(after.1, before.1 + decided, "{shown}: {}", answer.body);
        let replayed = answer.headers.contains_key("idempotent-replayed");
        if answer.status == 200 && path == "/x402/authorize" && !replayed {
            // The request may contain the price as a text, so the response's amount is used.
            let amount = answer.body["amount_units"].as_u64().unwrap();
            assert!(shown.contains(&format!("\"{amount}\"")), "{shown}: {}", answer.body);
            footprint.settlements += 1;
            footprint.entries += 1;
            footprint.keys += 1;
            footprint.total += amount;
            assert_eq!(world.footprint().await, footprint, "{shown}");
        } else {
            assert_eq!(after.0.changes_since(&before.0), NOTHING, "{shown}: {}", answer.body);
        }
        before = after;
    }
    // Some of the changed requests are valid, and each of these statuses occurs.
    for status in [200, 400, 402, 403, 404, 409] {
        assert!(statuses.keys().any(|(found, _)| *found == status), "{statuses:?}");
    }
}
