//! Wrong, hostile and half-finished input, over HTTP: each gets the error that says what is wrong with it, in the
//! envelope, and nothing moves.

use purser_domain::{DomainPattern, SpendPolicy};
use purser_tests::{Answer, Offered, Rows, TestAgent, World, bare_offer, body_of, dollars, fresh_key, offer_v1, paths};
use reqwest::Method;
use reqwest::header::HeaderValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};

const NOTHING: [String; 0] = [];

/// A stack with an agent that could pay, and what was there before.
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

    /// The two routes that judge a payment, and for each a body that would be allowed.
    fn payments(&self) -> [(&'static str, Value); 2] {
        let authorize = body_of(self.world.offer(5_000));
        let mut check = authorize.clone();
        check.as_object_mut().unwrap().remove("idempotency_key");
        check["replay_key"] = json!(fresh_key());
        [("/x402/authorize", authorize), ("/x402/check", check)]
    }

    /// Posts these bytes as they are.
    async fn post_bytes(&self, path: &str, body: impl Into<Vec<u8>>) -> Answer {
        let request = self.world.http.post(format!("{}{path}", self.world.stack.base_url));
        World::send(request.bearer_auth(&self.agent.key).body(body.into())).await
    }

    /// Nothing moved, and nothing was decided.
    async fn untouched(&self) {
        assert_eq!(self.world.rows().await.changes_since(&self.before), NOTHING);
        assert_eq!(self.world.decisions(&self.agent).await, 0);
    }
}

/// Puts a value where a JSON Pointer points, making the objects on the way.
fn put(body: &mut Value, pointer: &str, value: Value) {
    let mut at = body;
    for part in pointer.split('/').skip(1) {
        at = match part.parse::<usize>() {
            Ok(index) if at.is_array() => &mut at[index],
            _ => &mut at[part.replace("~1", "/").replace("~0", "~")],
        };
    }
    *at = value;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_field_of_the_wrong_type_or_form_is_named_by_its_path() {
    let ground = Ground::new().await;
    let long = |length: usize| json!("x".repeat(length));
    let (seven, text, list, object) = (json!(7), json!("x"), json!([]), json!({}));
    let no_string = [seven.clone(), json!(true), list.clone(), object.clone(), json!(1.5)];
    let no_object = [seven.clone(), json!(true), list.clone(), text.clone(), json!("")];
    let with = |common: &[Value], own: Vec<Value>| [common.to_vec(), own].concat();
    let keys = with(
        &no_string,
        vec![json!(""), long(256), json!("a\nb"), json!("\u{0}"), json!("\u{85}")],
    );
    let rows = [
        ("/payment_requirement", no_object.to_vec()),
        (
            "/max_payment_units",
            vec![
                json!("1"),
                json!(true),
                json!(1.5),
                json!(-1),
                list.clone(),
                object,
                json!(u64::MAX),
                json!(9_007_199_254_740_992_u64),
            ],
        ),
        ("/original_request", no_object.to_vec()),
        (
            "/original_request/method",
            with(
                &no_string,
                vec![json!(""), json!("G T"), json!("GET/1"), json!("G\u{c9}T"), long(17)],
            ),
        ),
        (
            "/original_request/url",
            with(
                &no_string,
                vec![
                    json!(""),
                    text,
                    json!("provider.example"),
                    json!("//provider.example/x"),
                    json!("/x"),
                    json!("http://"),
                    json!("ftp://provider.example/x"),
                    json!("file:///etc/passwd"),
                    json!("javascript:alert(1)"),
                    json!("data:application/json,{}"),
                    json!("ws://provider.example"),
                    json!("https://[::1"),
                    json!("http://%"),
                    json!("http://a b/"),
                    json!("http://x:99999/"),
                    json!("urn:uuid:x"),
                    json!("https+unix://x"),
                    json!(format!("https://x/{}", "y".repeat(8_192))),
                ],
            ),
        ),
        ("/original_request/body_hash", keys.clone()),
        (
            "/service_id",
            with(
                &no_string,
                vec![json!(""), long(129), json!("lab-search\u{0}"), json!("a\tb")],
            ),
        ),
        (
            "/operation_id",
            with(
                &no_string,
                vec![
                    json!(""),
                    json!("search"),
                    json!("web."),
                    json!(".search"),
                    json!("web..search"),
                    json!("Web.search"),
                    json!("web.search "),
                    json!("web/search"),
                    json!("../web.search"),
                    json!("web.s\u{e9}arch"),
                    json!(format!("web.{}", "s".repeat(125))),
                    json!("web.search\u{0}"),
                ],
            ),
        ),
        (
            "/approval_id",
            with(
                &no_string,
                vec![
                    json!(""),
                    json!("x"),
                    json!(fresh_key().replace('-', "")),
                    json!(format!("{{{}}}", fresh_key())),
                    json!(format!("urn:uuid:{}", fresh_key())),
                    json!(format!("{} ", fresh_key())),
                ],
            ),
        ),
        ("/metadata", no_object.to_vec()),
        ("/metadata/target_url", no_string.to_vec()),
    ];
    for (path, valid) in ground.payments() {
        for (pointer, values) in &rows {
            for value in values {
                let mut body = valid.clone();
                put(&mut body, pointer, value.clone());
                let answer = ground.world.post(&ground.agent, path, &body).await;
                assert_eq!(paths(answer, &format!("{pointer} = {value}")), [*pointer], "{value}");
            }
        }
        let key = if path == "/x402/check" {
            "replay_key"
        } else {
            "idempotency_key"
        };
        for value in &keys {
            let mut body = valid.clone();
            body[key] = value.clone();
            let answer = ground.world.post(&ground.agent, path, &body).await;
            assert_eq!(paths(answer, &format!("{key} = {value}")), [format!("/{key}")]);
        }
        // All problems at once, in the order of their paths.
        let mut body = valid.clone();
        for (pointer, values) in &rows {
            if *pointer != "/metadata" && *pointer != "/original_request" {
                put(&mut body, pointer, values[0].clone());
            }
        }
        let mut expected: Vec<&str> = rows.iter().map(|(pointer, _)| *pointer).collect();
        expected.retain(|pointer| *pointer != "/metadata" && *pointer != "/original_request");
        expected.sort_unstable();
        assert_eq!(
            paths(ground.world.post(&ground.agent, path, &body).await, "all of them"),
            expected
        );
        let empty = json!({"payment_requirement": {}, "max_payment_units": 1, "original_request": {}, key: "x"});
        let expected = [
            "/original_request/method",
            "/original_request/url",
            "/payment_requirement/accepts",
        ];
        assert_eq!(
            paths(ground.world.post(&ground.agent, path, &empty).await, "empty objects"),
            expected
        );
    }

    let hash = |digits: usize| json!(format!("0x{}", "a".repeat(digits)));
    let upper = json!(format!("0X{}", "a".repeat(64)));
    let rows = [
        (
            "/tx_hash",
            with(
                &no_string,
                vec![
                    json!(""),
                    json!("0x"),
                    hash(63),
                    hash(65),
                    upper,
                    json!("a".repeat(64)),
                    json!(format!("0x{}", "g".repeat(64))),
                ],
            ),
        ),
        (
            "/payment_response_header",
            vec![seven.clone(), json!(true), list, long(16_385)],
        ),
        (
            "/payment_response_header/X-PAYMENT-RESPONSE",
            vec![
                seven.clone(),
                json!(true),
                json!([]),
                json!([7]),
                json!(["e30=", "e30="]),
                long(16_385),
            ],
        ),
        ("/txHash", vec![hash(64)]),
        ("/provider_ok", vec![json!(true)]),
    ];
    for (pointer, values) in &rows {
        for value in values {
            let mut body = json!({"payment_response_header": {"PAYMENT-RESPONSE": "e30="}, "tx_hash": hash(64)});
            put(&mut body, pointer, value.clone());
            let answer = ground.world.complete(&ground.agent, &fresh_key(), &body).await;
            assert_eq!(paths(answer, &format!("{pointer} = {value}")), [*pointer]);
        }
    }
    ground.untouched().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_field_is_refused_by_name_and_a_providers_is_left_alone() {
    let ground = Ground::new().await;
    for (path, valid) in ground.payments() {
        for (name, pointer) in [
            ("approvalId", "/approvalId"),
            ("idempotencyKey", "/idempotencyKey"),
            ("maxPaymentUnits", "/maxPaymentUnits"),
            ("Approval_id", "/Approval_id"),
            ("approval_id ", "/approval_id "),
            ("target_url", "/target_url"),
            ("amount_units", "/amount_units"),
            ("__proto__", "/__proto__"),
            ("", "/"),
            ("a/b~c", "/a~1b~0c"),
            ("\u{202e}key", "/\u{202e}key"),
        ] {
            for value in [json!(fresh_key()), Value::Null] {
                let mut body = valid.clone();
                body[name] = value;
                assert_eq!(
                    paths(ground.world.post(&ground.agent, path, &body).await, name),
                    [pointer]
                );
                let mut body = valid.clone();
                body["metadata"] = json!({name: ["x"]});
                if name != "target_url" {
                    let expected = [format!("/metadata{pointer}")];
                    assert_eq!(
                        paths(ground.world.post(&ground.agent, path, &body).await, name),
                        expected
                    );
                }
            }
        }
        // Each route has a key of its own, and the other's is unknown to it.
        let other = if path == "/x402/check" {
            "idempotency_key"
        } else {
            "replay_key"
        };
        let mut body = valid.clone();
        body[other] = json!("x");
        assert_eq!(
            paths(ground.world.post(&ground.agent, path, &body).await, other),
            [format!("/{other}")]
        );
    }
    let mut body = body_of(ground.world.offer(5_000));
    for pointer in [
        "/original_request/headers",
        "/payment_requirement/unheard",
        "/payment_requirement/resource/unheard",
        "/payment_requirement/accepts/0/unheard",
        "/payment_requirement/accepts/0/extra/unheard",
    ] {
        put(&mut body, pointer, json!({"approvalId": [1, null]}));
    }
    for optional in ["service_id", "operation_id", "metadata"] {
        let mut null = body.clone();
        null["service_id"] = json!("lab-search");
        null[optional] = Value::Null;
        null["metadata"] = json!({"target_url": null});
        let answer = ground.world.check(&ground.agent, &null).await;
        assert_eq!(answer.status, 200, "{optional}: {}", answer.body);
    }
    ground.untouched().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_not_one_json_object_is_refused() {
    let ground = Ground::new().await;
    let complete = format!("/x402/settlements/{}/complete", fresh_key());
    let valid = body_of(ground.world.offer(5_000)).to_string();
    let after_brace = |more: &str| format!("{{{more},{}", &valid[1..]);
    let nested = |open: &str, close: &str, depth: usize| format!("{}1{}", open.repeat(depth), close.repeat(depth));
    let bodies: Vec<Vec<u8>> = vec![
        b"".into(),
        b" \r\n\t".into(),
        b"{".into(),
        b"}".into(),
        b"nul".into(),
        b"{'a':1}".into(),
        b"{a:1}".into(),
        b"{\"a\":1,}".into(),
        b"{\"a\" 1}".into(),
        b"{\"a\":1}{}".into(),
        b"{\"a\":1} x".into(),
        b"// comment\n{}".into(),
        b"{\"a\":NaN}".into(),
        b"{\"a\":Infinity}".into(),
        b"{\"a\":01}".into(),
        b"{\"a\":+1}".into(),
        b"{\"a\":.5}".into(),
        b"{\"a\":1.}".into(),
        b"{\"a\":1e}".into(),
        b"{\"a\":0x10}".into(),
        b"{\"a\":1_000}".into(),
        b"{\"a\":1e400}".into(),
        b"{\"a\":\"\\ud800\"}".into(),
        b"{\"a\":\"\\x41\"}".into(),
        b"{\"a\":\"\n\"}".into(),
        b"{\"a\":\"\x00\"}".into(),
        b"\xff".into(),
        b"{\"a\":\"\xc3\x28\"}".into(),
        b"{\"a\":\"\xed\xa0\x80\"}".into(),
        b"{\"\xc0\xae\":1}".into(),
        b"\xef\xbb\xbf{}".into(),
        "{\"a\":1}".encode_utf16().flat_map(u16::to_le_bytes).collect(),
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03".into(),
        b"a=1&b=2".into(),
        b"<xml/>".into(),
        valid[..valid.len() - 1].into(),
        format!("{valid}{valid}").into(),
        after_brace(r#""idempotency_key":"x""#).into(),
        after_brace("\"idempotency_\\u006bey\":\"x\"").into(),
        after_brace(r#""approval_id":null,"approval_id":null"#).into(),
        valid
            .replacen(
                r#""payTo""#,
                &format!(r#""payTo":"{}","payTo""#, ground.agent.wallet),
                1,
            )
            .into(),
        valid.replacen(r#""amount""#, r#""amount":"1","amount""#, 1).into(),
        "[".repeat(60_000).into(),
        "{\"a\":".repeat(10_000).into(),
        nested("[", "]", 20_000).into(),
        nested("{\"a\":", "}", 9_000).into(),
        after_brace(&format!("\"metadata\":{}", nested("[", "]", 1_000))).into(),
        // No object at all.
        b"null".into(),
        b"true".into(),
        b"7".into(),
        b"\"x\"".into(),
        b"[]".into(),
        format!("[{valid}]").into(),
        serde_json::to_vec(&valid).unwrap(),
    ];
    for body in bodies {
        for path in ["/x402/authorize", "/x402/check", &complete] {
            let shown = format!("{path} {:?}", String::from_utf8_lossy(&body[..body.len().min(80)]));
            let answer = ground.post_bytes(path, body.clone()).await;
            let text = answer.body.to_string();
            assert!(
                !["serde", "EOF", "expected", "recursion", "surrogate"]
                    .iter()
                    .any(|word| text.contains(word)),
                "{text}"
            );
            assert_eq!(paths(answer, &shown), [""], "{shown}");
        }
    }
    // What is deep and still read is judged like anything else.
    let mut deep = body_of(ground.world.offer(5_000));
    deep["original_request"]["tree"] = serde_json::from_str(&nested("[", "]", 100)).unwrap();
    ground.world.check(&ground.agent, &deep).await.ok();
    ground.untouched().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_read_up_to_its_limit_and_not_a_byte_further() {
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
            // Without a length in front, chunk by chunk, it is the same.
            let (status, body) = raw(&ground, "POST", path, Framing::Chunked, padded(length).as_bytes()).await;
            assert_eq!((status, &body["error"]), (413, &json!("request_too_large")));
        }
        let (status, body) = raw(&ground, "POST", path, Framing::Chunked, padded(LIMIT).as_bytes()).await;
        assert_eq!(status, expected, "{body}");
    }
    // There is only JSON, whatever the header calls it.
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

#[tokio::test(flavor = "multi_thread")]
async fn an_amount_is_a_whole_number_of_units_and_nothing_else() {
    let ground = Ground::new().await;
    // As text, so that the spelling arrives as it is: a mistake is the field's, unless it is no JSON at all.
    let ceilings = [
        ("-0", "/max_payment_units"),
        ("-1", "/max_payment_units"),
        ("0.0", "/max_payment_units"),
        ("5000.0", "/max_payment_units"),
        ("0.5", "/max_payment_units"),
        ("5e3", "/max_payment_units"),
        ("5E+3", "/max_payment_units"),
        ("1e-3", "/max_payment_units"),
        ("9007199254740992", "/max_payment_units"),
        ("18446744073709551615", "/max_payment_units"),
        ("18446744073709551616", "/max_payment_units"),
        ("-9223372036854775809", "/max_payment_units"),
        ("1e308", "/max_payment_units"),
        ("\"5000\"", "/max_payment_units"),
        ("\"\"", "/max_payment_units"),
        ("[5000]", "/max_payment_units"),
        ("1e309", ""),
        ("05000", ""),
        ("+5000", ""),
        ("5_000", ""),
        ("0x1388", ""),
        ("5,000", ""),
    ];
    let prices = [
        r#"5000"#,
        r#""""#,
        r#""0""#,
        r#""-1""#,
        r#""+5000""#,
        r#""5000.0""#,
        r#""5e3""#,
        r#""5_000""#,
        r#""5,000""#,
        r#""05000""#,
        r#"" 5000""#,
        r#""5000 ""#,
        r#""5000\n""#,
        r#""0x1388""#,
        "\"\u{665}\u{660}\u{660}\u{660}\"",
        "\"\u{ff15}000\"",
        r#""9007199254740992""#,
        r#""18446744073709551617""#,
        r#""115792089237316195423570985008687907853269984665640564039457584007913129639935""#,
        "null",
        "true",
        "[]",
        r#"{"units":5000}"#,
    ];
    let spelled = |body: &Value, member: &str, old: &str, new: &str| {
        let text = body.to_string();
        let (from, to) = (format!("\"{member}\":{old}"), format!("\"{member}\":{new}"));
        assert_eq!(text.matches(&from).count(), 1, "{text}");
        text.replace(&from, &to)
    };
    let payable = Offered {
        units: 5_000,
        pay_to: ground.world.stack.providers.pay_to.clone(),
        timeout: 300,
    };
    for (path, v2) in ground.payments() {
        let mut v1 = v2.clone();
        v1["payment_requirement"] = offer_v1(&payable);
        let mut bare = v2.clone();
        bare["payment_requirement"] = bare_offer(&payable);
        let ceiling = dollars(1_000).to_string();
        for (text, pointer) in ceilings {
            let answer = ground
                .post_bytes(path, spelled(&v2, "max_payment_units", &ceiling, text))
                .await;
            let expected = if text == "5,000" { "" } else { pointer };
            assert_eq!(paths(answer, text), [expected], "{text}");
        }
        for text in prices {
            for (body, member, at) in [
                (&v2, "amount", "/payment_requirement/accepts/0/amount"),
                (
                    &v1,
                    "maxAmountRequired",
                    "/payment_requirement/accepts/0/maxAmountRequired",
                ),
                (&bare, "amount", "/payment_requirement/amount"),
            ] {
                let answer = ground.post_bytes(path, spelled(body, member, "\"5000\"", text)).await;
                // A bare entry without a price is no entry.
                let no_entry = member == "amount" && at == "/payment_requirement/amount" && text == "null";
                let at = if no_entry { "/payment_requirement/accepts" } else { at };
                assert_eq!(paths(answer, &format!("{member} {text}")), [at], "{text}");
            }
        }
        if path == "/x402/check" {
            for (text, result) in [
                ("0", "block"),
                ("4999", "block"),
                ("5000", "allow"),
                ("9007199254740991", "allow"),
            ] {
                let mut body = v2.clone();
                body["replay_key"] = json!(fresh_key());
                let answer = ground
                    .post_bytes(path, spelled(&body, "max_payment_units", &ceiling, text))
                    .await;
                assert_eq!(answer.ok()["result"], result, "{text}");
            }
        }
    }
    ground.untouched().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offer_that_can_not_be_paid_says_why_for_each_entry() {
    let ground = Ground::new().await;
    let pay_to = ground.world.stack.providers.pay_to.clone();
    let good = bare_offer(&Offered {
        units: 5_000,
        pay_to: pay_to.clone(),
        timeout: 300,
    });
    let usdc = good["asset"].as_str().unwrap().to_owned();
    let flip = |text: &str| {
        // The first letter of the address in its other case: the checksum can't be right any more.
        let at = text
            .bytes()
            .skip(2)
            .position(|byte| byte.is_ascii_alphabetic())
            .unwrap()
            + 2;
        let flipped = if text.as_bytes()[at].is_ascii_lowercase() {
            text[at..=at].to_uppercase()
        } else {
            text[at..=at].to_lowercase()
        };
        format!("{}{flipped}{}", &text[..at], &text[at + 1..])
    };
    let checksum = "its letter case does not match its EIP-55 checksum";
    let form = "must be `0x` and forty hexadecimal digits";
    let token = format!("must be {usdc}, the USDC of `base-sepolia`");
    let seconds = "must be a whole number from 1 to 4294967295";
    let rows = [
        ("scheme", json!("upto"), "must be `exact`"),
        ("scheme", json!("Exact"), "must be `exact`"),
        ("scheme", Value::Null, "must be `exact`"),
        ("network", json!("eip155:8453"), "must be `eip155:84532`"),
        ("network", json!("base-sepolia"), "must be `eip155:84532`"),
        ("network", json!("eip155:084532"), "must be `eip155:84532`"),
        ("network", json!("EIP155:84532"), "must be `eip155:84532`"),
        (
            "network",
            json!("solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"),
            "must be `eip155:84532`",
        ),
        ("network", json!(84_532), "must be `eip155:84532`"),
        // Mainnet's USDC, EURC, one digit off, the right digits with a wrong checksum, a name, a look-alike letter.
        ("asset", json!("0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"), &token),
        ("asset", json!("0x808456652fdb597867f38412077A9182bf77359F"), &token),
        ("asset", json!(format!("{}f", &usdc[..41]).to_lowercase()), &token),
        ("asset", json!(flip(&usdc)), checksum),
        ("asset", json!("USDC"), form),
        ("asset", json!(usdc.replacen("0x", "0X", 1)), form),
        ("asset", json!(usdc.replacen("0x", "0\u{445}", 1)), form),
        ("asset", json!(format!("{usdc} ")), form),
        ("asset", json!(format!("{usdc}00")), form),
        (
            "asset",
            json!("0x0000000000000000000000000000000000000000"),
            "must not be the zero address",
        ),
        ("asset", json!(7), "must be a string"),
        ("asset", Value::Null, "is required"),
        ("payTo", json!(flip(&pay_to)), checksum),
        ("payTo", json!("merchant"), form),
        ("payTo", json!("vitalik.eth"), form),
        ("payTo", json!(pay_to.trim_start_matches("0x")), form),
        (
            "payTo",
            json!("0x0000000000000000000000000000000000000000"),
            "must not be the zero address",
        ),
        ("payTo", json!(usdc), "must not be the token's own address"),
        ("payTo", json!([pay_to]), "must be a string"),
        ("payTo", Value::Null, "is required"),
        ("maxTimeoutSeconds", json!(0), seconds),
        ("maxTimeoutSeconds", json!(-60), seconds),
        ("maxTimeoutSeconds", json!(60.5), seconds),
        ("maxTimeoutSeconds", json!("60"), seconds),
        ("maxTimeoutSeconds", json!(4_294_967_296_u64), seconds),
        ("maxTimeoutSeconds", Value::Null, "is required"),
        (
            "extra",
            Value::Null,
            "is required, with the token's EIP-712 `name` and `version`",
        ),
        ("extra", json!("USDC"), "must be an object"),
        ("extra/name", json!("USD Coin"), "must be `USDC`"),
        ("extra/name", Value::Null, "must be `USDC`"),
        ("extra/version", json!("1"), "must be `2`"),
        ("extra/version", json!(2), "must be `2`"),
        ("extra/assetTransferMethod", json!("permit2"), "must be `eip3009`"),
        ("extra/assetTransferMethod", json!("erc7710"), "must be `eip3009`"),
        ("extra/assetTransferMethod", json!(""), "must be `eip3009`"),
        ("extra/assetTransferMethod", json!(3_009), "must be `eip3009`"),
        ("extra/paymentFlow", json!("upfront"), "must be `authorization`"),
        ("extra/paymentFlow", json!("escrow"), "must be `authorization`"),
    ];
    let entries: Vec<Value> = rows
        .iter()
        .map(|(member, value, _)| {
            let mut entry = good.clone();
            put(&mut entry, &format!("/{member}"), value.clone());
            entry
        })
        .chain([json!(7), json!({})])
        .collect();
    let count = entries.len();
    let mut expected: Vec<(String, &str)> = rows
        .iter()
        .enumerate()
        .map(|(index, (member, _, message))| (format!("/payment_requirement/accepts/{index}/{member}"), *message))
        .collect();
    expected.push((
        format!("/payment_requirement/accepts/{}", count - 2),
        "must be an object",
    ));
    expected.push((
        format!("/payment_requirement/accepts/{}/network", count - 1),
        "must be `eip155:84532`",
    ));
    expected.push((
        format!("/payment_requirement/accepts/{}/scheme", count - 1),
        "must be `exact`",
    ));
    expected.sort();

    let offer =
        |entries: &[Value]| json!({"x402Version": 2, "resource": {"url": "https://x.test/"}, "accepts": entries});
    for (path, mut body) in ground.payments() {
        body["payment_requirement"] = offer(&entries);
        let refused = ground
            .world
            .post(&ground.agent, path, &body)
            .await
            .refused(400, "invalid_request");
        let details: Vec<(String, &str)> = refused["details"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| {
                (
                    entry["path"].as_str().unwrap().to_owned(),
                    entry["message"].as_str().unwrap(),
                )
            })
            .collect();
        assert_eq!(details, expected);

        // The object around the entries.
        let v1 = offer_v1(&Offered {
            units: 5_000,
            pay_to: pay_to.clone(),
            timeout: 300,
        });
        let around: Vec<(&str, Value, Vec<&str>)> = vec![
            ("/x402Version", Value::Null, vec!["/x402Version"]),
            ("/x402Version", json!(0), vec!["/x402Version"]),
            ("/x402Version", json!(3), vec!["/x402Version"]),
            ("/x402Version", json!("2"), vec!["/x402Version"]),
            ("/x402Version", json!(2.5), vec!["/x402Version"]),
            ("/x402Version", json!(true), vec!["/x402Version"]),
            ("/x402Version", json!(1), vec!["/accepts/0/network"]),
            ("/accepts", json!([]), vec!["/accepts"]),
            ("/accepts", json!({"0": good}), vec!["/accepts"]),
            ("/accepts", json!(vec![good.clone(); 65]), vec!["/accepts"]),
            ("/accepts", Value::Null, vec!["/accepts"]),
            ("/accepts", v1["accepts"].clone(), vec!["/accepts/0/network"]),
            ("/resource", json!("https://x.test/"), vec!["/resource"]),
            ("/extensions", json!([]), vec!["/extensions"]),
            ("", json!({"scheme": "exact"}), vec!["/accepts"]),
        ];
        for (pointer, value, wrong) in around {
            body["payment_requirement"] = offer(std::slice::from_ref(&good));
            put(&mut body, &format!("/payment_requirement{pointer}"), value.clone());
            let wrong: Vec<String> = wrong
                .iter()
                .map(|wrong| format!("/payment_requirement{wrong}"))
                .collect();
            assert_eq!(
                paths(
                    ground.world.post(&ground.agent, path, &body).await,
                    &format!("{pointer} {value}")
                ),
                wrong
            );
        }
        let mut both = good.clone();
        both["maxAmountRequired"] = json!("1");
        body["payment_requirement"] = both;
        let answer = ground.world.post(&ground.agent, path, &body).await;
        assert_eq!(paths(answer, "two prices"), ["/payment_requirement/amount"]);
    }

    // One entry that can be paid among those that can't is the one that is judged; of two, the cheaper.
    let mut mixed: Vec<Value> = entries.iter().take(60).cloned().collect();
    for (units, pay_to) in [
        (7_000, pay_to.to_lowercase()),
        (6_000, format!("0x{}", pay_to[2..].to_uppercase())),
        (9_000, pay_to.clone()),
    ] {
        mixed.push(bare_offer(&Offered {
            units,
            pay_to,
            timeout: 60,
        }));
    }
    let mut body = body_of(offer(&mixed));
    body["payment_requirement"]["accepts"][count + 1]["asset"] = json!(usdc.to_lowercase());
    let foreseen = ground.world.check(&ground.agent, &body).await.ok();
    assert_eq!(
        (&foreseen["result"], &foreseen["amount_units"]),
        (&json!("allow"), &json!(6_000))
    );
    ground.untouched().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_spelling_of_a_target_slips_past_the_allowlist() {
    let ground = Ground::new().await;
    let allowed = [
        "example.com",
        "*.docs.example.org",
        "api-*.example.net",
        "b\u{fc}cher.example",
        "203.0.113.7",
        "[2001:db8::1]",
    ];
    let scrape = SpendPolicy {
        allowed_domains: allowed
            .iter()
            .map(|entry| DomainPattern::parse(entry).unwrap())
            .collect(),
        ..SpendPolicy::permissive()
    };
    ground.world.enable(&ground.agent, "lab-scrape", scrape).await;
    let pointed_at = |target: &str| {
        let mut body = body_of(ground.world.offer(20_000));
        body["service_id"] = json!("lab-scrape");
        body["metadata"] = json!({"target_url": target});
        body
    };
    let footprint = ground.world.footprint().await;

    for target in [
        "https://example.com",
        "HTTPS://EXAMPLE.COM./x",
        "http://a.b.c.example.com/?q=https://evil.test/",
        "https://example.com:8443/",
        "https://user:secret@example.com/",
        "https://ex%61mple.com/",
        "https://example\u{3002}com/",
        "https://v1.docs.example.org/",
        "https://api-eu.example.net/",
        "https://xn--bcher-kva.example/",
        "https://B\u{dc}CHER.example/",
        "http://203.0.113.7/",
        "http://3405803783/",
        "http://0xcb.0x0.0x71.0x7/",
        "http://[2001:DB8:0:0:0:0:0:1]:80/",
    ] {
        let foreseen = ground.world.check(&ground.agent, &pointed_at(target)).await.ok();
        assert_eq!(foreseen["result"], "allow", "{target}: {foreseen}");
    }

    for (target, hostname) in [
        ("https://evil-example.com/", "evil-example.com"),
        ("https://example.com.evil.test/", "example.com.evil.test"),
        ("https://notexample.com/", "notexample.com"),
        ("https://example.co/", "example.co"),
        ("https://com/", "com"),
        ("https://example.com@evil.test/", "evil.test"),
        ("https://example.com:443@evil.test/", "evil.test"),
        ("https://a@example.com@evil.test/", "evil.test"),
        ("https://example.com%2eevil.test/", "example.com.evil.test"),
        ("https://evil.test/example.com", "evil.test"),
        ("https://evil.test?@example.com", "evil.test"),
        ("https://evil.test#@example.com", "evil.test"),
        ("https://docs.example.org/", "docs.example.org"),
        ("https://a.v1.docs.example.org/", "a.v1.docs.example.org"),
        ("https://xdocs.example.org/", "xdocs.example.org"),
        ("https://api.example.net/", "api.example.net"),
        ("https://api-eu.x.example.net/", "api-eu.x.example.net"),
        ("https://\u{435}xample.com/", "xn--xample-2of.com"),
        ("https://bucher.example/", "bucher.example"),
        ("http://127.0.0.1/", "127.0.0.1"),
        ("http://0x7f.1/", "127.0.0.1"),
        ("http://203.0.113.8/", "203.0.113.8"),
        ("http://169.254.169.254/latest/meta-data", "169.254.169.254"),
        ("http://localhost/", "localhost"),
        ("http://[::1]/", "[::1]"),
        ("http://[::ffff:203.0.113.7]/", "[::ffff:cb00:7107]"),
        ("http://7.113.0.203.in-addr.arpa/", "7.113.0.203.in-addr.arpa"),
    ] {
        let foreseen = ground.world.check(&ground.agent, &pointed_at(target)).await.ok();
        assert_eq!(foreseen["reason"], "domain_not_allowed", "{target}: {foreseen}");
        let refused = ground
            .world
            .authorize(&ground.agent, &pointed_at(target))
            .await
            .refused(403, "domain_not_allowed");
        assert_eq!(refused["hostname"], hostname, "{target}");
    }

    // What is no web address of a host, and what URL readers disagree about, is nobody's target, whatever is allowed.
    let everything = ground.world.agent(SpendPolicy::permissive(), vec![]).await;
    for target in [
        "",
        "example.com",
        "//example.com/",
        "/x",
        "http://",
        "http:///",
        "http://?x",
        "ftp://example.com/",
        "file:///example.com",
        "file://example.com/etc/passwd",
        "gopher://example.com/",
        "ws://example.com/",
        "javascript:alert(1)//example.com",
        "data:text/html,example.com",
        "blob:https://example.com/x",
        "view-source:https://example.com/",
        "https://exa mple.com/",
        "https://example.com:99999/",
        "https://example.com:x/",
        "https://[::1/",
        "https://[example.com]/",
        "https://[fe80::1%25eth0]/",
        "https://a..example.com/",
        "https://.example.com/",
        "https://example.com../",
        "https://%00.example.com/",
        "https://example.com%00.evil.test/",
        "https://example.com%2f.evil.test/",
        "https://example.com%40evil.test/",
        "https://*.example.com/",
        "https://xn--a.example.com/",
        "http://256.256.256.256/",
        "https://example.com\\@evil.test/",
        "https://evil.test\\@example.com/",
        "https:\\\\example.com\\",
        "https://exam\tple.com/",
        "https://example.com\n.evil.test/",
        " https://example.com/",
        "https://example.com/ ",
        &format!("https://{}.example.com/", "a".repeat(64)),
        &format!("https://{}example.com/", "a.".repeat(130)),
        &format!("https://example.com/{}", "a".repeat(8_192)),
    ] {
        for agent in [&ground.agent, &everything] {
            let mut body = pointed_at(target);
            if agent.id == everything.id {
                body["service_id"] = json!("lab-search");
            }
            for answer in [
                ground.world.authorize(agent, &body).await,
                ground.world.check(agent, &body).await,
            ] {
                assert_eq!(paths(answer, target), ["/metadata/target_url"], "{target:?}");
            }
        }
    }
    assert_eq!(ground.world.footprint().await, footprint);
}

/// How a raw request says where its body ends.
#[derive(Clone, Copy)]
enum Framing {
    Length,
    Chunked,
}

/// Sends a request that an HTTP library would tidy up first, with the agent's key; its status and body.
async fn raw(ground: &Ground, method: &str, target: &str, framing: Framing, body: &[u8]) -> (u16, Value) {
    let address = ground.world.stack.base_url.trim_start_matches("http://").to_owned();
    let framed = match framing {
        Framing::Length => format!("content-length: {}", body.len()),
        Framing::Chunked => "transfer-encoding: chunked".to_owned(),
    };
    let key = &ground.agent.key;
    let head = format!(
        "{method} {target} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\nconnection: close\r\n{framed}\r\n\r\n"
    );
    let mut bytes = head.into_bytes();
    match framing {
        Framing::Length => bytes.extend(body),
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
async fn a_hostile_path_names_nothing() {
    let ground = Ground::new().await;
    let own = ground.agent.id.to_string();
    let service = ground.world.service("lab-search").await.id.to_string();
    let long = "a".repeat(4_000);
    let names = [
        "%00",
        "%ff",
        "%c0%ae",
        "%ed%a0%80",
        "..",
        "%2e%2e",
        "..%2f..%2fetc%2fpasswd",
        "a%2fb",
        "a%5cb",
        "%",
        "%zz",
        "%25",
        "'%20OR%201=1--",
        "1;DROP%20TABLE%20agents",
        "%22%3E%3Cscript%3E",
        "$%7Bjndi:ldap:x%7D",
        "%7B%22$gt%22:%22%22%7D",
        "*",
        "{id}",
        "null",
        "-1",
        "0",
        "%C3%A9",
        "%F0%9F%92%A5",
        "%E2%80%AE",
        "\u{e9}",
        "lab-search%00",
        "lab-search%20",
        "lab-search%23x",
        "LAB-SEARCH",
        "l%61b-searc",
        "S%23",
        "A%23",
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        &service.replace('-', ""),
        &format!("%7B{service}%7D"),
        &format!("urn:uuid:{service}"),
        &own.replace('-', ""),
        &format!("{own}%00"),
        &format!("{own}%20"),
        &format!("{own}{own}"),
        &long,
    ];
    for name in names {
        let catalog = if ["%ff", "%c0%ae", "%ed%a0%80"].contains(&name) {
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
    // Paths are compared as they are written; a name may be percent-encoded, and a UUID written in capitals.
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
        "/services/l%61b-search?x=%00&%ff=%zz".to_owned(),
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
async fn no_header_makes_another_request_of_a_request() {
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
    // A body is what its bytes are, whatever is said of them.
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

/// `HEAD` and `OPTIONS` are methods like any other: no route has them, and no preflight of another site is granted.
#[tokio::test(flavor = "multi_thread")]
async fn a_method_that_no_route_has_is_not_found_and_invites_no_other_site() {
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
            assert_eq!(answer.status, 404, "{method} {path}");
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

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_key_is_no_key() {
    let ground = Ground::new().await;
    let key = ground.agent.key.clone();
    let (public, secret) = key.split_once(':').unwrap();
    let (form, invalid) = ("invalid_authorization_header", "invalid_agent_key");
    let rows: Vec<(Vec<u8>, &str)> = [
        ("".to_owned(), form),
        ("Bearer".to_owned(), form),
        ("Bearer ".to_owned(), form),
        (format!("Bearer{key}"), form),
        (format!("Bearer\t{key}"), form),
        (format!("Bearer:{key}"), form),
        (key.clone(), form),
        (format!("Basic {key}"), form),
        (format!("Bearer Bearer {key}"), form),
        (format!("Bearer {public}"), form),
        (format!("Bearer {public}:"), form),
        (format!("Bearer :{secret}"), form),
        ("Bearer :".to_owned(), form),
        (format!("Bearer {public} {secret}"), form),
        (format!("Bearer {public}: {secret}"), form),
        (format!("Bearer {public} :{secret}"), form),
        (format!("Bearer {key}, Bearer {key}"), form),
        (format!("Bearer {public}%3A{secret}"), form),
        (format!("Bearer {public};{secret}"), form),
        ("Bearer eyJhbGciOiJub25lIn0.e30.".to_owned(), form),
        (format!("Bearer {public}\u{ff1a}{secret}"), form),
        (format!("B\u{e9}arer {key}"), form),
        ("Bearer a:b".to_owned(), invalid),
        ("Bearer gak_pub_:gak_sec_".to_owned(), invalid),
        (format!("Bearer {secret}:{public}"), invalid),
        (format!("Bearer {public}:{public}"), invalid),
        (format!("Bearer {key}:"), invalid),
        (format!("Bearer {key}:x"), invalid),
        (format!("Bearer {key}0"), invalid),
        (format!("Bearer {}", &key[..key.len() - 1]), invalid),
        (format!("Bearer {}", key.to_uppercase()), invalid),
        (format!("Bearer {}", key.replace("gak_", "GAK_")), invalid),
        (format!("Bearer {}", key.replace("gak_pub_", "")), invalid),
        (format!("Bearer {}", key.replace("gak_sec_", "")), invalid),
        (format!("Bearer {}", key.replace("gak_pub_", "gak_pub_0")), invalid),
        (format!("Bearer {public}:gak_sec_{}", "0".repeat(64)), invalid),
        (format!("Bearer {public}:gak_sec_{}", "z".repeat(64)), invalid),
        (
            format!("Bearer {public}:gak_sec_' OR '1'='1")
                .replace(' ', "_")
                .replacen('_', " ", 1),
            invalid,
        ),
        (format!("Bearer gak_pub_{}:{secret}", "0".repeat(48)), invalid),
        (format!("Bearer gak_pub_{}:{secret}", "-".repeat(48)), invalid),
        (format!("Bearer gak_pub_{}:{secret}", "\"".repeat(48)), invalid),
        (format!("Bearer {}:{}", "a".repeat(8_000), "b".repeat(8_000)), invalid),
    ]
    .map(|(header, slug)| (header.into_bytes(), slug))
    .into();
    let (path, valid) = &ground.payments()[0];
    let bodies = [
        ("/mcp/agents/me", None),
        (*path, Some(valid.clone())),
        (*path, Some(json!("nonsense"))),
    ];
    for (header, slug) in &rows {
        for (path, body) in &bodies {
            let url = format!("{}{path}", ground.world.stack.base_url);
            let request = if body.is_some() {
                ground.world.http.post(url)
            } else {
                ground.world.http.get(url)
            };
            let request = request.header("authorization", HeaderValue::from_bytes(header).unwrap());
            let answer = World::send(match body {
                Some(body) => request.json(body),
                None => request,
            })
            .await;
            let shown = String::from_utf8_lossy(header).into_owned();
            assert_eq!(
                (answer.status, answer.slug()),
                (401, *slug),
                "{shown} {path}: {}",
                answer.body
            );
            assert!(
                !answer.refused(401, slug).to_string().contains("gak_"),
                "no part of a key is told back"
            );
        }
    }
    // Two headers have no agreed meaning, even when they are equal; a key elsewhere is no key.
    let request = ground
        .world
        .http
        .get(format!("{}/mcp/agents/me", ground.world.stack.base_url));
    let twice = request.try_clone().unwrap().bearer_auth(&key).bearer_auth(&key);
    World::send(twice).await.refused(401, "invalid_authorization_header");
    let elsewhere = request
        .try_clone()
        .unwrap()
        .header("x-api-key", &key)
        .header("cookie", format!("authorization={key}"));
    World::send(elsewhere).await.refused(401, "invalid_agent_key");
    ground
        .world
        .call(
            Method::GET,
            &format!("/mcp/agents/me?authorization=Bearer%20{key}"),
            None,
            None,
        )
        .await
        .refused(401, invalid);
    // The scheme's letter case and more than one space are no matter.
    for header in [format!("bearer {key}"), format!("BEARER   {key}")] {
        World::send(request.try_clone().unwrap().header("authorization", header))
            .await
            .ok();
    }
    ground.untouched().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_is_read_strictly() {
    let ground = Ground::new().await;
    let settlements = format!("/agents/{}/settlements", ground.agent.id);
    for (path, max) in [("/services", 500), (settlements.as_str(), 100)] {
        for limit in [
            "0",
            "-1",
            "+1",
            "-0",
            "1.5",
            "1.0",
            "abc",
            "",
            "%20",
            "1%20",
            "%201",
            "1e2",
            "0x10",
            "1_0",
            "1,0",
            "%ff",
            "%00",
            "1%00",
            "%D9%A1",
            "NaN",
            "Infinity",
            "null",
            "4294967297",
            "99999999999999999999",
            &(max + 1).to_string(),
        ] {
            let answer = ground.world.get(&ground.agent, &format!("{path}?limit={limit}")).await;
            assert_eq!(paths(answer, limit), ["/limit"], "{path} {limit}");
        }
        for query in [
            "limit=1&limit=1",
            "limit=1&limit=x",
            "limit&limit=5",
            "limit=1&%6cimit=2",
        ] {
            assert_eq!(
                paths(ground.world.get(&ground.agent, &format!("{path}?{query}")).await, query),
                ["/limit"]
            );
        }
        assert_eq!(
            paths(ground.world.get(&ground.agent, &format!("{path}?limit")).await, "limit"),
            ["/limit"]
        );
        for query in [
            "",
            "limit=1",
            "limit=001",
            &format!("limit={max}"),
            "Limit=0",
            "limit[]=0",
            "cursor=x&cursor=y",
            "&&=&x",
            "%ff=%zz",
        ] {
            ground.world.get(&ground.agent, &format!("{path}?{query}")).await.ok();
        }
    }
    for (query, wrong) in [
        ("category=AI", vec!["/category"]),
        ("category=", vec!["/category"]),
        ("category=search,data", vec!["/category"]),
        ("category=search%00", vec!["/category"]),
        ("category=search&category=search", vec!["/category"]),
        ("trust_status=verified", vec!["/trust_status"]),
        ("trust_status=Listed", vec!["/trust_status"]),
        ("trust_status=*", vec!["/trust_status"]),
        ("slug=a&slug=b", vec!["/slug"]),
        (
            "category=x&limit=0&trust_status=x&slug=a&slug=a",
            vec!["/category", "/limit", "/slug", "/trust_status"],
        ),
    ] {
        let answer = ground
            .world
            .call(Method::GET, &format!("/services?{query}"), None, None)
            .await;
        assert_eq!(paths(answer, query), wrong, "{query}");
    }
    for slug in [
        "",
        "no-such-service",
        "%00",
        "%ff",
        "..%2f",
        "LAB-SEARCH",
        "lab-search%20",
        "'%20OR%20''='",
    ] {
        let list = ground
            .world
            .call(Method::GET, &format!("/services?slug={slug}"), None, None)
            .await
            .ok();
        assert_eq!(list, json!({"services": [], "count": 0}), "{slug}");
    }
    ground.untouched().await;
}

/// Texts that are right in one place or another.
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

/// Marsaglia's xorshift64*: the same numbers on every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.roll() >> 33).unwrap() % limit
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// Some value, plain or awkward.
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
        match self.below(7) {
            0 => Value::Null,
            1 => json!(self.below(2) == 0),
            2 | 3 => self.one(&numbers).clone(),
            4 => json!(self.one(&texts)),
            5 => json!([self.one(&numbers), self.one(&texts), []]),
            _ => json!({"x": self.one(&texts), "amount": self.one(&numbers), "accepts": []}),
        }
    }

    /// Changes one place of a document, or several.
    fn mutate(&mut self, body: &mut Value) {
        for _ in 0..=self.below(4) / 2 {
            let mut at = &mut *body;
            // Down to some depth, then a change there.
            for _ in 0..=self.below(5) {
                let inner = match at {
                    Value::Object(members) => members.len(),
                    Value::Array(items) => items.len(),
                    _ => 0,
                };
                if inner == 0 {
                    break;
                }
                let index = self.below(inner);
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
        let (some, choice) = (self.value(), self.below(6));
        match at {
            Value::Object(members) if choice < 3 && !members.is_empty() => {
                let name = members.keys().nth(self.below(members.len())).unwrap().clone();
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
                let place = if places.is_empty() { 0 } else { *self.one(&places) };
                match choice {
                    0 => text.truncate(place),
                    _ => text.insert(
                        place,
                        *self.one(&['0', 'a', ' ', '\\', '\u{0}', '.', '/', '@', '\u{e9}']),
                    ),
                }
            }
            // Often something that could stand there.
            Value::String(text) if choice < 5 => *text = (*self.one(&PLAUSIBLE)).to_owned(),
            Value::Number(number) if choice < 5 => {
                *number = self.one(&[0, 1, 60, 19_999, 20_000, 1_000_000]).to_owned().into()
            }
            at => *at = some,
        }
    }

    /// Changes some bytes of a text, without regard to what they mean.
    fn scramble(&mut self, text: String) -> Vec<u8> {
        let mut bytes = text.into_bytes();
        for _ in 0..=self.below(3) {
            let place = self.below(bytes.len());
            match self.below(4) {
                0 => bytes[place] = self.roll().to_le_bytes()[0],
                1 => drop(bytes.remove(place)),
                2 => bytes.insert(place, *self.one(b"{}[]\",:0e-\\\xff")),
                _ => bytes.truncate(place + 1),
            }
        }
        bytes
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_mutation_of_a_request_breaks_the_service_or_moves_money_unseen() {
    const SEED: u64 = 0x5EED_0402;
    let ground = Ground::new().await;
    let (world, agent) = (&ground.world, &ground.agent);
    world.enable(agent, "lab-scrape", SpendPolicy::permissive()).await;
    let paid = world.authorize(agent, &body_of(world.offer(5_000))).await.ok();
    let complete = format!("/x402/settlements/{}/complete", paid["settlement_id"].as_str().unwrap());
    let scrape = world.service("lab-scrape").await.operations[0].endpoint.to_string();
    let mut dice = Dice(SEED);
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
            body["payment_requirement"] = offer_v1(&Offered {
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
        dice.mutate(&mut body);
        let bytes = if round % 7 == 0 {
            dice.scramble(body.to_string())
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
            // The price is a text of the request's; everything else about it was allowed.
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
    // The dice reach past the parser, in every direction.
    for status in [200, 400, 402, 403, 404, 409] {
        assert!(statuses.keys().any(|(found, _)| *found == status), "{statuses:?}");
    }
}
