//! Tests what the programs' HTTP clients send and accept: their name, encodings, charsets, redirects and proxies.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use flate2::{Compression, read::GzEncoder};
use purser_api::{
    AllowedHosts, Clock, Env, SessionSettings, Sessions, UntrustedHttpClient, any_address_client_builder,
};
use purser_chain::{HttpNode, Node as _};
use purser_client::{PayError, Payer, Purser, Request, TermsError, Usdc, http_client};
use purser_domain::WebhookUrl;
use purser_tests::{BOMB_BYTES, RecordedRequest, Recorder, TEXT};
use reqwest::{Client, Method};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the only request that a client sent.
#[track_caller]
fn only(recorder: &Recorder) -> RecordedRequest {
    let mut requests = recorder.take();
    assert_eq!(requests.len(), 1, "{requests:?}");
    requests.pop().unwrap()
}

fn accepted(request: &RecordedRequest) -> BTreeSet<&str> {
    request.header("accept-encoding").split(',').map(str::trim).collect()
}

/// A proxy would resolve names itself and bypass the functions' address checks. The child process has a proxy in its
/// environment.
#[tokio::test(flavor = "multi_thread")]
async fn functions_send_a_user_agent_and_use_no_proxy() {
    if std::env::var_os("HTTP_PROXY").is_none() {
        let mut again = tokio::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "wire::functions_send_a_user_agent_and_use_no_proxy"]);
        for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"] {
            again.env(name, "http://127.0.0.1:9");
        }
        let output = again
            .env_remove("NO_PROXY")
            .env_remove("no_proxy")
            .output()
            .await
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let recorder = Recorder::start(|_| None).await;
    let all = BTreeSet::from(["br", "deflate", "gzip"]);

    let names = [("OIDC_ISSUER", recorder.url.as_str()), ("OIDC_CLIENT_ID", "client")];
    let mut env: Env = names
        .into_iter()
        .map(|(name, value)| (name, value.to_owned()))
        .collect();
    let settings = SessionSettings::from_env(&mut env);
    Sessions::new(settings, Clock::system().now()).await.unwrap();
    let request = only(&recorder);
    assert_eq!(request.target, "/.well-known/openid-configuration");
    assert_eq!(
        (request.header("user-agent"), accepted(&request)),
        (&*format!("Purser/{VERSION}"), all.clone())
    );

    let node = HttpNode::new(
        purser_api::pooled_http_client(),
        &format!("{}/gzip", recorder.url),
        TIMEOUT,
    )
    .unwrap();
    assert_eq!(
        node.send_rpc_request("eth_chainId", &json!({})).await.unwrap(),
        TEXT.as_bytes()
    );
    let request = only(&recorder);
    assert_eq!(
        (request.header("user-agent"), request.header("accept-encoding")),
        (&*format!("Purser/{VERSION}"), "gzip")
    );

    let url = WebhookUrl::parse(&format!("{}/redirect", recorder.url)).unwrap();
    let allowed = AllowedHosts::parse(recorder.url.trim_start_matches("http://")).unwrap();
    let webhooks = UntrustedHttpClient::new("Purser-Webhooks", allowed, TIMEOUT).unwrap();
    webhooks
        .post(&url, HeaderMap::new(), "{}".to_owned(), Clock::system().now())
        .await;
    let request = only(&recorder);
    assert_eq!(
        (request.target.as_str(), request.header("user-agent")),
        ("/redirect", &*format!("Purser-Webhooks/{VERSION}"))
    );

    reads_encodings(
        &recorder,
        &any_address_client_builder("Purser-Probe").build().unwrap(),
        "Purser-Probe",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_programs_verify_tls_certificates() {
    let folder = std::env::temp_dir().join(format!("purser-wire-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&folder).unwrap();
    let recorder = Recorder::start_tls(&folder.join("certificate.pem")).await;
    let trusting = any_address_client_builder("Trusting")
        .tls_danger_accept_invalid_certs(true)
        .build()
        .unwrap();
    assert_eq!(
        trusting.get(&recorder.url).send().await.unwrap().text().await.unwrap(),
        TEXT
    );
    assert_eq!(recorder.take().len(), 1);

    for client in [any_address_client_builder("Purser-Probe"), http_client("a-program/1")] {
        let error = client.build().unwrap().get(&recorder.url).send().await.unwrap_err();
        assert!(error.is_connect(), "{error:?}");
    }
    let node = HttpNode::new(purser_api::pooled_http_client(), &recorder.url, TIMEOUT).unwrap();
    assert!(node.send_rpc_request("eth_chainId", &json!({})).await.is_err());
    let payer = Payer::new(Purser::without_key(&recorder.url).unwrap(), "run", Usdc::from_units(1)).unwrap();
    let paid = payer.send(Request::new(Method::GET, &recorder.url)).await;
    assert!(matches!(paid, Err(PayError::Provider(_))), "{paid:?}");
    assert_eq!(recorder.take().len(), 0);
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn outgoing_calls_end_within_their_timeout() {
    let short = Duration::from_millis(300);
    let recorder = Recorder::start(|_| None).await;
    let url = format!("{}/hangs", recorder.url);
    let node = HttpNode::new(purser_api::pooled_http_client(), &url, short).unwrap();
    assert!(node.send_rpc_request("eth_chainId", &json!({})).await.is_err());
    let payer = Payer::new(Purser::without_key(&recorder.url).unwrap(), "run", Usdc::from_units(1)).unwrap();
    let payer = payer.until(tokio::time::Instant::now() + short);
    assert!(payer.send(Request::new(Method::GET, &url)).await.is_err());
    let purser = Purser::without_key(&url)
        .unwrap()
        .until(tokio::time::Instant::now() + short);
    assert!(purser.agent().await.is_err());
    assert!(!recorder.take().is_empty());
}

const PROPERTIES: [&str; 7] = [
    "User-Agent",
    "encodings",
    "charsets",
    "proxies",
    "redirects",
    "TLS",
    "timeouts",
];

/// The name of the test of each client property (`<file>::<test>`), in the order of `PROPERTIES`, or why there is none.
const TESTS: [(&str, [&str; 7]); 10] = {
    const FUNCTIONS: &str = "tests/it/wire.rs::functions_send_a_user_agent_and_use_no_proxy";
    const TLS: &str = "tests/it/wire.rs::all_programs_verify_tls_certificates";
    const RUST: &str = "tests/it/wire.rs::the_rust_client_decodes_every_encoding_it_accepts";
    const COMMANDS: &str = "clients/cli/tests/it/wire.rs::commands_send_a_user_agent_and_use_the_configured_proxy";
    const COMMANDS_TLS: &str =
        "clients/cli/tests/it/wire.rs::commands_trust_the_certificate_authorities_of_the_environment";
    const ENDS: &str = "tests/it/wire.rs::outgoing_calls_end_within_their_timeout";
    const TERMS: &str = "tests/it/wire.rs::payment_requirements_are_parsed_in_every_encoding";
    const BUILDERS: &str = "tests/it/wire.rs::http_clients_are_created_only_by_their_builders";
    const SHOWN: &str = "clients/rust/src/charset.rs::text_is_decoded_by_its_charset";
    const STDIO: &str = "clients/cli/tests/it/import.rs::imported_operations_can_be_called_with_their_parameters";
    const SLOW: &str = "tests/it/mcp.rs::slow_providers_lose_no_payment";
    const ISSUER: &str = "shared/api/src/auth/issuer.rs::issuer_requests_follow_no_redirects_and_time_out";
    const PROBE: &str = "functions/probe/src/call.rs::probe_results_match_the_providers_response";
    const PROBE_ENDS: &str = "functions/probe/src/call.rs::a_probe_call_ends_even_if_the_provider_stalls";
    const HANGING: &str = "functions/webhooks/tests/webhooks.rs::hanging_webhooks_do_not_delay_other_webhooks";
    const JSON: &str = "no other charset than UTF-8 is JSON's (RFC 8259)";
    const UNREAD: &str = "no body is read";
    const PYTHON: [&str; 5] = [
        "clients/python/tests/test_wire.py::test_calls_of_purser_have_a_name",
        "clients/python/tests/test_wire.py::test_bodies_are_decoded",
        "clients/python/tests/test_wire.py::test_terms_reach_purser_as_they_were_meant",
        "clients/python/tests/test_wire.py::test_the_proxies_of_the_environment_are_used",
        "clients/python/tests/test_wire.py::test_the_callers_tls_settings_hold",
    ];
    const PYTHON_REDIRECT: &str =
        "clients/python/tests/test_hostile.py::test_a_redirect_of_the_paid_call_is_not_followed";
    const PYTHON_SLOW: &str = "clients/python/tests/test_hostile.py::test_a_slow_answer_is_given_up_and_not_paid_again";
    const PLATFORM: &str = "no own setting: those of the platform's fetch";
    [
        ("Rust client", [RUST, RUST, TERMS, COMMANDS, RUST, TLS, ENDS]),
        (
            "command line",
            [COMMANDS, RUST, TERMS, COMMANDS, RUST, COMMANDS_TLS, ENDS],
        ),
        ("MCP over stdio", [STDIO, RUST, SHOWN, BUILDERS, RUST, TLS, SLOW]),
        (
            "MCP over HTTP",
            [BUILDERS, FUNCTIONS, SHOWN, FUNCTIONS, FUNCTIONS, TLS, SLOW],
        ),
        (
            "webhooks",
            [FUNCTIONS, UNREAD, UNREAD, FUNCTIONS, FUNCTIONS, TLS, HANGING],
        ),
        (
            "probes",
            [FUNCTIONS, FUNCTIONS, PROBE, FUNCTIONS, PROBE, TLS, PROBE_ENDS],
        ),
        (
            "issuer's client",
            [FUNCTIONS, FUNCTIONS, JSON, FUNCTIONS, ISSUER, TLS, ISSUER],
        ),
        (
            "node's client",
            [FUNCTIONS, FUNCTIONS, JSON, FUNCTIONS, BUILDERS, TLS, ENDS],
        ),
        (
            "Python client",
            [
                PYTHON[0],
                PYTHON[1],
                PYTHON[2],
                PYTHON[3],
                PYTHON_REDIRECT,
                PYTHON[4],
                PYTHON_SLOW,
            ],
        ),
        (
            "TypeScript client",
            [
                "clients/typescript/test/wire.test.mjs::calls of Purser have the name and version of the package",
                "clients/typescript/test/wire.test.mjs::is decoded",
                "clients/typescript/test/wire.test.mjs::reach Purser as they were meant",
                PLATFORM,
                "clients/typescript/test/hostile.test.mjs::a redirect of the paid call is not followed",
                PLATFORM,
                "clients/typescript/test/hostile.test.mjs::terms that never end cost the time that was set",
            ],
        ),
    ]
};

#[test]
fn every_property_of_every_http_client_is_tested() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (client, tests) in TESTS {
        for (property, test) in PROPERTIES.iter().zip(tests) {
            let Some((file, name)) = test.split_once("::") else {
                assert!(test.starts_with("no "), "{client}, {property}: {test}");
                continue;
            };
            let text = std::fs::read_to_string(root.join(file)).unwrap();
            assert!(text.contains(name), "{client}, {property}: {test}");
        }
    }
}

/// Asserts that the client decodes each encoding that it accepts, and follows no redirect.
async fn reads_encodings(recorder: &Recorder, client: &Client, program: &str) {
    for encoding in ["gzip", "deflate", "br", "plain"] {
        let response = client.get(format!("{}/{encoding}", recorder.url)).send().await.unwrap();
        assert_eq!(response.bytes().await.unwrap(), TEXT, "{encoding}");
        let request = only(recorder);
        assert_eq!(request.header("user-agent"), format!("{program}/{VERSION}"));
        assert_eq!(accepted(&request), BTreeSet::from(["br", "deflate", "gzip"]));
    }
    // A HEAD response describes the body of GET.
    let empty = client.head(format!("{}/empty", recorder.url)).send().await.unwrap();
    assert_eq!(empty.bytes().await.unwrap(), "");
    let redirected = client.get(format!("{}/redirect", recorder.url)).send().await.unwrap();
    assert_eq!(redirected.status(), StatusCode::TEMPORARY_REDIRECT);
    assert_eq!(recorder.take().len(), 2);
    let broken = client.get(format!("{}/broken", recorder.url)).send().await.unwrap();
    assert!(broken.bytes().await.is_err());
    recorder.take();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rust_client_decodes_every_encoding_it_accepts() {
    let recorder = Recorder::start(|_| None).await;
    let name = format!("a-program/{VERSION}");
    reads_encodings(&recorder, &http_client(&name).build().unwrap(), "a-program").await;

    let purser = Purser::without_key(&recorder.url).unwrap();
    let _ = purser.services(&purser_client::CatalogFilter::default()).await;
    let requests = recorder.take();
    assert!(
        requests
            .iter()
            .all(|request| request.header("user-agent") == format!("purser-client-rust/{VERSION}")),
        "{requests:?}"
    );

    let payer = Payer::new(purser, "run", Usdc::from_units(1)).unwrap();
    let request = Request::new(Method::GET, format!("{}/gzip", recorder.url));
    let request = request.header(header::USER_AGENT, "caller/1".parse().unwrap());
    let paid = payer.send(request).await.unwrap();
    assert_eq!(paid.response.text().await.unwrap(), TEXT);
    assert_eq!(only(&recorder).header("user-agent"), "caller/1");
}

/// Returns a 402 response in the encoding that the path names.
fn payment_required(path: &str) -> Option<Response> {
    let form = path.strip_prefix("/402/")?;
    let terms = json!({"x402Version": 1, "accepts": [{"scheme": "exact", "description": "Grüße"}]}).to_string();
    let gzip = |source: &mut dyn std::io::Read| {
        let mut body = Vec::new();
        GzEncoder::new(source, Compression::fast())
            .read_to_end(&mut body)
            .unwrap();
        body
    };
    let (charset, encoding, body) = match form {
        "gzip" => ("utf-8", Some("gzip"), gzip(&mut terms.as_bytes())),
        "bomb" => ("utf-8", Some("gzip"), gzip(&mut std::io::repeat(b' ').take(BOMB_BYTES))),
        "latin1" => (
            "ISO-8859-1",
            None,
            terms.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect(),
        ),
        "utf-16" => (
            "utf-16le",
            None,
            terms.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        ),
        _ => return None,
    };
    let mut response = (StatusCode::PAYMENT_REQUIRED, Body::from(body)).into_response();
    let kind = format!("application/json; charset={charset}");
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, kind.parse().unwrap());
    if let Some(encoding) = encoding {
        response
            .headers_mut()
            .insert(header::CONTENT_ENCODING, encoding.parse().unwrap());
    }
    Some(response)
}

/// The size limit applies to the decoded bytes.
#[tokio::test(flavor = "multi_thread")]
async fn payment_requirements_are_parsed_in_every_encoding() {
    let recorder = Recorder::start(payment_required).await;
    let payer = Payer::new(Purser::without_key(&recorder.url).unwrap(), "run", Usdc::from_units(1)).unwrap();
    let check = async |form: &str| {
        payer
            .check(&Request::new(Method::GET, format!("{}/402/{form}", recorder.url)))
            .await
    };
    for form in ["gzip", "latin1", "utf-16"] {
        // The recorder's response is no valid response of Purser.
        assert!(matches!(check(form).await, Err(PayError::Purser(_))), "{form}");
        assert!(
            recorder.take().iter().any(|request| request.target == "/x402/check"),
            "{form}"
        );
    }
    assert!(matches!(check("bomb").await, Err(PayError::Terms(TermsError::TooLong))));
}

/// Other HTTP clients would have no `User-Agent` and other settings.
#[test]
fn http_clients_are_created_only_by_their_builders() {
    const BUILDERS: [&str; 3] = [
        "clients/rust/src/http_client.rs",
        "shared/api/src/http/client.rs",
        "shared/api/src/http/outward.rs",
    ];
    let mut found = BTreeSet::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders: Vec<_> = ["clients", "functions", "shared"]
        .map(|folder| root.join(folder))
        .into();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name());
            if path.is_dir()
                && !["node_modules", "tests", "examples", "test", "target"]
                    .iter()
                    .any(|skipped| name == *skipped)
            {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let product = text.split("#[cfg(test)]").next().unwrap();
                let makes_one = [
                    "Client::builder(",
                    "Client::new()",
                    "ClientBuilder::new(",
                    "Connector::builder(",
                    "reqwest::get(",
                ];
                if makes_one.iter().any(|maker| product.contains(maker)) {
                    found.insert(path.strip_prefix(&root).unwrap().display().to_string());
                }
            }
        }
    }
    assert_eq!(found, BUILDERS.map(str::to_owned).into());
}
