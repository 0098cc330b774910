//! Tests how the fields of payment bodies are parsed, with one wrong value at a time.

#![expect(clippy::unwrap_used, reason = "a test stops where its ground is missing")]

use purser_api::{AuthorizeRequest, CheckRequest, CompleteRequest, ProviderProof};
use purser_domain::{Address, Error, ErrorKind, Network};
use serde_json::{Value, json};

const NETWORK: Network = Network::BaseSepolia;
const ID: &str = "1aacbf6a-f7b9-58b3-a10f-370da97945f6";

fn authorize() -> Value {
    let token = NETWORK.token();
    json!({
        "payment_requirement": {
            "scheme": "exact", "network": NETWORK.name(), "maxAmountRequired": "1", "asset": token.address.to_string(),
            "payTo": Address::repeat_byte(1).to_string(), "maxTimeoutSeconds": 60, "unheard": {"approvalId": [1, null]},
        },
        "max_payment_units": 1,
        "original_request": {"method": "GET", "url": "https://lab.example/", "headers": {"x": "y"}},
        "service_id": "lab",
        "operation_id": "web.search",
        "approval_id": ID,
        "metadata": {"target_url": "https://pages.example/"},
        "idempotency_key": "k",
    })
}

fn check() -> Value {
    let mut body = authorize();
    let members = body.as_object_mut().unwrap();
    members.remove("approval_id");
    let key = members.remove("idempotency_key").unwrap();
    members.insert("replay_key".to_owned(), key);
    body
}

fn complete() -> Value {
    json!({"payment_response_header": "e30=", "tx_hash": format!("0x{}", "a".repeat(64))})
}

type Read = fn(&Value) -> purser_domain::Result<()>;

/// Returns a valid body of each payment route, with the parser of the route.
fn bodies() -> [(Value, Read); 3] {
    [
        (authorize(), |body| AuthorizeRequest::parse(body, NETWORK).map(drop)),
        (check(), |body| CheckRequest::parse(body, NETWORK).map(drop)),
        (complete(), |body| {
            CompleteRequest::parse(body, ProviderProof::Required).map(drop)
        }),
    ]
}

/// Returns the paths of all validation errors of a body.
fn wrong(read: Read, body: &Value) -> Vec<String> {
    match read(body).as_ref().map_err(Error::kind) {
        Ok(()) => vec![],
        Err(ErrorKind::InvalidRequest(problems) | ErrorKind::FieldRequired { problems, .. }) => {
            problems.iter().map(|problem| problem.path.clone()).collect()
        }
        Err(other) => vec![other.slug()],
    }
}

#[test]
fn each_payment_body_field_is_parsed_strictly() {
    let long = |length: usize| "x".repeat(length);
    let texts = |values: &[&str]| -> Vec<Value> { values.iter().map(|value| json!(value)).collect() };
    // Different notations of numbers in JSON.
    let numbers = [
        "-1",
        "0.5",
        "1e-3",
        "9007199254740992",
        "18446744073709551616",
        "1e308",
        "\"5000\"",
        "[5000]",
    ];
    let numbers = numbers.map(|text| serde_json::from_str(text).unwrap()).to_vec();
    let keys = || texts(&["", &long(256), "a\nb", "\u{0}", "\u{85}"]);
    let rows: Vec<(&str, Vec<Value>)> = vec![
        ("/payment_requirement", texts(&["", "x"])),
        ("/max_payment_units", numbers),
        ("/original_request", texts(&["", "x"])),
        (
            "/original_request/method",
            texts(&["", "G T", "GET/1", "G\u{c9}T", &long(17)]),
        ),
        (
            "/original_request/url",
            texts(&[
                "",
                "x",
                "provider.example",
                "//provider.example/x",
                "/x",
                "http://",
                "ftp://provider.example/x",
                "file:///etc/passwd",
                "javascript:alert(1)",
                "ws://provider.example",
                "https://[::1",
                "http://%",
                "http://a b/",
                "http://x:99999/",
                "https+unix://x",
                &format!("https://x/{}", long(8_192)),
            ]),
        ),
        ("/original_request/body_hash", keys()),
        ("/service_id", texts(&["", &long(129), "lab\u{0}", "a\tb"])),
        (
            "/operation_id",
            texts(&[
                "",
                "search",
                "web.",
                ".search",
                "web..search",
                "Web.search",
                "web.search ",
                "web/search",
                "../web.search",
                "web.s\u{e9}arch",
                &format!("web.{}", long(125)),
                "web.search\u{0}",
            ]),
        ),
        (
            "/approval_id",
            texts(&[
                "",
                "x",
                &ID.replace('-', ""),
                &format!("{{{ID}}}"),
                &format!("urn:uuid:{ID}"),
                &format!("{ID} "),
            ]),
        ),
        ("/idempotency_key", keys()),
        ("/replay_key", keys()),
        ("/metadata", texts(&["", "x"])),
        (
            "/metadata/target_url",
            texts(&["", "example.com", "https://exa mple.com/"]),
        ),
        (
            "/tx_hash",
            texts(&[
                "",
                "0x",
                &format!("0x{}", "a".repeat(63)),
                &format!("0X{}", "a".repeat(64)),
                &"a".repeat(64),
                &format!("0x{}", "g".repeat(64)),
            ]),
        ),
        ("/payment_response_header", texts(&[&long(16_385)])),
    ];
    for (body, read) in bodies() {
        assert_eq!(wrong(read, &body), Vec::<String>::new());
        for (pointer, values) in &rows {
            let mut own = vec![json!(7), json!(true), json!(1.5)];
            own.retain(|value| *pointer != "/max_payment_units" || !value.is_u64());
            for value in values.iter().chain(&own) {
                let mut wrong_one = body.clone();
                let (parent, name) = pointer.rsplit_once('/').unwrap();
                let Some(parent) = wrong_one.pointer_mut(parent) else {
                    continue;
                };
                // `body_hash` is optional and missing in the sample.
                if parent.get(name).is_none() && name != "body_hash" {
                    continue;
                }
                parent.as_object_mut().unwrap().insert(name.to_owned(), value.clone());
                assert_eq!(wrong(read, &wrong_one), [*pointer], "{pointer} {value}");
            }
        }
    }
}

#[test]
fn unknown_body_fields_are_rejected_by_name() {
    for (body, read) in bodies() {
        for (name, pointer) in [
            ("approvalId", "/approvalId"),
            ("Tx_hash", "/Tx_hash"),
            ("approval_id ", "/approval_id "),
            ("provider_ok", "/provider_ok"),
            ("__proto__", "/__proto__"),
            ("", "/"),
            ("a/b~c", "/a~1b~0c"),
        ] {
            let mut unknown = body.clone();
            unknown[name] = Value::Null;
            assert_eq!(wrong(read, &unknown), [pointer]);
        }
    }
}

#[test]
fn authorize_and_check_read_the_same_request() {
    let [(authorize, _), (check, _), _] = bodies();
    let mut both = authorize.clone();
    both["replay_key"] = check["replay_key"].clone();
    both["approval_id"] = json!(ID);
    let authorizing = |body: &Value| AuthorizeRequest::parse(body, NETWORK).unwrap();
    let checking = |body: &Value| CheckRequest::parse(body, NETWORK).unwrap();
    let (asked, foreseen) = (authorizing(&both), checking(&both));
    assert_eq!(asked.intent.fingerprint, foreseen.intent.fingerprint);
    assert_eq!(asked.intent.fingerprint, authorizing(&authorize).intent.fingerprint);
    assert!(asked.approval.is_some());
    assert_eq!(asked.approval, foreseen.approval);
    assert_eq!(foreseen.replay_key, checking(&check).replay_key);
}

#[test]
fn optional_body_fields_may_be_null() {
    let [(mut body, read), ..] = bodies();
    for name in ["service_id", "operation_id", "approval_id", "metadata"] {
        body[name] = Value::Null;
    }
    assert_eq!(wrong(read, &body), Vec::<String>::new());
    body["original_request"] = json!({});
    body["payment_requirement"] = json!({});
    body["max_payment_units"] = json!(-1);
    body["operation_id"] = json!("search");
    assert_eq!(
        wrong(read, &body),
        [
            "/max_payment_units",
            "/operation_id",
            "/original_request/method",
            "/original_request/url",
            "/payment_requirement/accepts"
        ]
    );
}
