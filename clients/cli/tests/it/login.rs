//! Tests signing in by a device code, against a server that follows RFC 8628 and RFC 6749.

use crate::home::Home;
use axum::extract::{Form, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};

type Requests = Arc<Mutex<Vec<HashMap<String, String>>>>;

const IDS: &str = "000000000000000000000000000000070000000000000008";

/// Returns an access token of this generation. The command does not verify signatures.
fn access_token(generation: usize) -> String {
    format!("pat_{IDS}_{generation:x}_{}", "A".repeat(86))
}

/// The token endpoint. Each refresh token works once, and access tokens are already expired.
async fn token(
    State(requests): State<Requests>,
    Form(form): Form<HashMap<String, String>>,
) -> (StatusCode, Json<Value>) {
    let mut requests = requests.lock().unwrap();
    let refreshes = requests
        .iter()
        .filter(|form| form["grant_type"] == "refresh_token")
        .count();
    let polls = requests.len() - refreshes;
    requests.push(form.clone());
    let refused = |error| {
        (
            StatusCode::BAD_REQUEST,
            Json(json!({"error": error, "error_description": "no"})),
        )
    };
    match &*form["grant_type"] {
        "refresh_token" if form["refresh_token"] != format!("prt_{refreshes}") => refused("invalid_grant"),
        "refresh_token" => (StatusCode::OK, tokens(refreshes + 1)),
        _ if polls == 0 => refused("authorization_pending"),
        _ => (StatusCode::OK, tokens(0)),
    }
}

fn tokens(generation: usize) -> Json<Value> {
    let (access, refresh) = (access_token(generation), format!("prt_{generation}"));
    Json(json!({"access_token": access, "token_type": "Bearer", "expires_in": 0, "refresh_token": refresh}))
}

/// Starts the server. Returns the URL, and the forms that the token endpoint received.
async fn start() -> (String, Requests) {
    let requests = Requests::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let page = format!("{url}/dashboard/device");
    let device = json!({
        "device_code": "pdc_secret",
        "user_code": "BCDF-GHJK",
        "verification_uri": page,
        "verification_uri_complete": format!("{page}?user_code=BCDFGHJK"),
        "expires_in": 600,
        "interval": 0,
    });
    let agent = async |headers: HeaderMap| {
        let is_token = headers[header::AUTHORIZATION]
            .to_str()
            .unwrap()
            .starts_with("Bearer pat_");
        let body = json!({"agent_id": "00000000-0000-0000-0000-000000000007", "name": "helper", "created_at": "2026-11-23T00:00:00Z"});
        if is_token {
            (StatusCode::OK, Json(body))
        } else {
            (StatusCode::UNAUTHORIZED, Json(json!({"error": "invalid_agent_key"})))
        }
    };
    let router = Router::new()
        .route("/oauth/device_authorization", post(async move || Json(device)))
        .route("/oauth/token", post(token))
        .route("/oauth/revoke", post(async || Json(json!({}))))
        .route("/mcp/agents/me", get(agent))
        .with_state(Arc::clone(&requests));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, requests)
}

#[tokio::test(flavor = "multi_thread")]
async fn signing_in_stores_tokens_that_are_refreshed_until_the_user_signs_out() {
    let (url, requests) = start().await;
    let home = Home::at(&url);
    let file = home.folder().join(".config/purser/agent-key");
    let said = home.run(&["login"]).await;
    assert!(
        said.err.contains("BCDF-GHJK") && said.err.contains("/dashboard/device"),
        "{said:?}"
    );
    assert!(
        said.err.contains("act for helper") && said.err.contains("agent-key"),
        "{said:?}"
    );
    assert!(!said.err.contains("pat_") && !said.err.contains("pdc_"), "{said:?}");
    said.done();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // Each access token is already expired, so each command refreshes the tokens.
    home.run(&["whoami"]).await.done();
    assert!(home.run(&["whoami"]).await.done().contains("helper"));
    let refreshed = requests
        .lock()
        .unwrap()
        .iter()
        .filter(|form| form["grant_type"] == "refresh_token")
        .count();
    assert_eq!(refreshed, 3);
    assert!(
        requests
            .lock()
            .unwrap()
            .iter()
            .all(|form| form["client_id"] == "purser-cli")
    );

    // The tokens are sent only to the server that issued them.
    let elsewhere = home.run(&["--url", "http://127.0.0.1:9", "whoami"]).await;
    assert!(elsewhere.code == 1 && elsewhere.err.contains(&url), "{elsewhere:?}");
    assert!(home.run(&["logout"]).await.err.contains("no longer"));
    assert!(!file.exists());
    assert!(home.run(&["whoami"]).await.err.contains("purser login"));
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_stored_in_the_keyring_of_a_desktop() {
    let (url, _) = start().await;
    let home = Home::at(&url);
    let programs = home.folder().join("bin");
    std::fs::create_dir(&programs).unwrap();
    let keyring = "#!/bin/sh\ncase $1 in\nstore) /bin/cat > \"$HOME/keyring\" ;;\nlookup) /bin/cat \"$HOME/keyring\" ;;\nclear) /bin/rm \"$HOME/keyring\" ;;\nesac\n";
    for (name, script) in [
        ("secret-tool", keyring),
        ("xdg-open", "#!/bin/sh\necho \"$1\" > \"$HOME/opened\"\n"),
    ] {
        let path = programs.join(name);
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let home = home.with("PATH", programs.to_str().unwrap()).with("DISPLAY", ":0");
    let said = home.run(&["login"]).await;
    assert!(
        said.err.contains("browser opens") && said.err.contains("in the keyring"),
        "{said:?}"
    );
    let kept = home.folder().join("keyring");
    assert!(std::fs::read_to_string(&kept).unwrap().contains("prt_"));
    assert!(!home.folder().join(".config/purser/agent-key").exists());
    home.run(&["whoami"]).await.done();
    home.run(&["logout"]).await.done();
    assert!(!kept.exists());
    let opened = std::fs::read_to_string(home.folder().join("opened")).unwrap();
    assert!(opened.ends_with("?user_code=BCDFGHJK\n"), "{opened}");
}
