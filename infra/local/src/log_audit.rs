//! Records the functions' log lines, and separately the texts that no log may contain, for `tests/logs/check.py`.
//!
//! The secret texts come from the stack and from the requests and responses at the gateway.

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::{BodyExt as _, Collected};
use purser_api::{Env, log_to};
use purser_domain::{EventKind, KeyId, UserCode, UserId};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use url::form_urlencoded;

/// Purser's crates log at the lowest level, and all others only warnings.
const EVERYTHING: &str = "warn,purser=trace";

/// Shorter texts are not recorded, because they may occur in a log by coincidence.
const LONG_ENOUGH: usize = 16;

/// The recorder of this process. Clones share the files.
#[derive(Clone)]
pub struct LogAudit(Arc<Heard>);

struct Heard {
    lines: Arc<File>,
    secrets: Mutex<(File, HashSet<String>)>,
}

impl LogAudit {
    /// Returns the recorder if `PURSER_LOGS` names a folder.
    pub fn from_environment() -> Option<Self> {
        static OF_PROCESS: OnceLock<Option<LogAudit>> = OnceLock::new();
        let open = || {
            let folder = Env::from_process().get("PURSER_LOGS").map(str::to_owned)?;
            match Self::open(Path::new(&folder)) {
                Ok(audit) => Some(audit),
                // The later check of the logs fails, because the file of this process is missing.
                Err(error) => {
                    tracing::error!(cause = %error, "audit.not_opened");
                    None
                }
            }
        };
        OF_PROCESS.get_or_init(open).clone()
    }

    fn open(folder: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let process = uuid::Uuid::new_v4();
        let open = |kind| {
            let path = folder.join(format!("{process}.{kind}"));
            OpenOptions::new().create_new(true).append(true).open(path)
        };
        Ok(Self(Arc::new(Heard {
            lines: Arc::new(open("log")?),
            secrets: Mutex::new((open("secrets")?, HashSet::new())),
        })))
    }

    /// Records all later log lines, unless the process already has a log subscriber.
    pub fn listen(&self) {
        log_to(EVERYTHING, self.lines());
    }

    /// Returns the file for log lines. Several processes may write to it, because each line is a single write.
    pub fn lines(&self) -> Arc<File> {
        Arc::clone(&self.0.lines)
    }

    /// Adds a text that no log may contain. Short texts are ignored.
    pub fn must_not_log(&self, description: &str, text: &str) {
        if text.len() >= LONG_ENOUGH {
            self.record(description, text);
        }
    }

    fn record(&self, description: &str, text: &str) {
        let mut secrets = self.0.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, known) = &mut *secrets;
        if known.insert(text.to_owned()) {
            let line = format!("{}\n", json!({"what": description, "text": text}));
            if let Err(error) = file.write_all(line.as_bytes()) {
                tracing::error!(cause = %error, "audit.not_written");
            }
        }
    }

    /// Records the secret parts of a credential: of an agent's key, a token, or a cookie.
    pub(crate) fn record_credential(&self, description: &str, text: &str) {
        for part in text.split([':', '.', ' ', '=', ';']) {
            if description != COOKIE || UserId::parse(part).is_none() {
                self.must_not_log(description, part.trim_start_matches("gak_sec_"));
            }
        }
    }

    fn record_body(&self, operation: &str, body: &[u8]) {
        let Ok(text) = std::str::from_utf8(body) else { return };
        let what = format!("the body of {operation}");
        match serde_json::from_slice::<Value>(body) {
            Ok(value) => self.record_texts(&what, &value),
            Err(_) => {
                for pair in text.split('&') {
                    let (name, value) = pair.split_once('=').unwrap_or(("", pair));
                    self.record_text(&what, name);
                    if !is_user(name, value) {
                        self.record_text(&what, value);
                    }
                }
            }
        }
    }

    /// Records the secret part of an OAuth token or a device code.
    fn record_token(&self, text: &str) {
        self.must_not_log("a token", text);
        self.must_not_log("a token", text.splitn(4, '_').last().unwrap_or_default());
    }

    /// Records both spellings of a device's user code. The codes have only consonants, so no other text contains one.
    fn record_user_code(&self, text: &str) {
        if let Some(code) = UserCode::parse(text) {
            self.record("a user code", code.as_str());
            self.record("a user code", &code.to_string());
        }
    }

    /// Records the secrets in a request's URL: a client's `state`, and a device's user code.
    fn record_query(&self, uri: &Uri) {
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            match &*name {
                "state" => self.must_not_log("a state", &value),
                "user_code" => self.record_user_code(&value),
                _ => {}
            }
        }
    }

    fn record_text(&self, description: &str, text: &str) {
        // The kinds of events that a webhook selects are not secret.
        if !is_name(text) && EventKind::from_name(text).is_none() {
            self.must_not_log(description, text);
        }
    }

    fn record_texts(&self, description: &str, value: &Value) {
        match value {
            Value::String(text) => self.record_text(description, text),
            Value::Array(values) => values.iter().for_each(|value| self.record_texts(description, value)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    if value.as_str().is_some_and(|text| is_user(name, text)) {
                        continue;
                    }
                    self.record_texts(&format!("{description}, {name}"), value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn record_response(&self, headers: &HeaderMap, body: &[u8]) {
        for cookie in texts(headers, &header::SET_COOKIE) {
            let pair = cookie.split(';').next().unwrap_or_default();
            self.record_credential(COOKIE, pair);
        }
        for address in texts(headers, &header::LOCATION) {
            for pair in address.split(['?', '&']) {
                let (name, value) = pair.split_once('=').unwrap_or_default();
                // The text of a notification and object ids are not secret.
                if !matches!(name, "notice" | "iss") && uuid::Uuid::try_parse(value).is_err() {
                    self.must_not_log("a sign-in", value);
                }
            }
        }
        let text = String::from_utf8_lossy(body);
        for rest in text.split("gak_sec_").skip(1) {
            self.must_not_log("an agent key", &hexadecimal(rest));
        }
        for rest in text.split("whsec_").skip(1) {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !['+', '/', '='].contains(&c));
            self.must_not_log(
                "a webhook's secret",
                rest.get(..end.unwrap_or(rest.len())).unwrap_or_default(),
            );
        }
        for rest in text.split("name=\"form_token\" value=\"").skip(1) {
            self.must_not_log("a form's token", rest.split('"').next().unwrap_or_default());
        }
        let Ok(response) = serde_json::from_slice::<Value>(body) else {
            return;
        };
        for name in ["access_token", "refresh_token", "device_code"] {
            self.record_token(response.get(name).and_then(Value::as_str).unwrap_or_default());
        }
        self.record_user_code(response.get("user_code").and_then(Value::as_str).unwrap_or_default());
        let Some(payment) = response.get("payment") else { return };
        let text_at = |pointer| payment.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        self.must_not_log("a signed payment", text_at("/header_value"));
        for part in ["/payload/payload/signature", "/payload/payload/authorization/nonce"] {
            self.must_not_log("a payment's signature or nonce", text_at(part).trim_start_matches("0x"));
        }
    }
}

const COOKIE: &str = "a cookie";

/// Forwards a request, and records the secrets in the request and its response.
pub(crate) async fn audit(State(audit): State<LogAudit>, mut request: Request, next: Next) -> Response {
    // A compressed response could not be searched.
    request.headers_mut().remove(header::ACCEPT_ENCODING);
    let headers = request.headers();
    for (what, name) in [
        ("an authorization", header::AUTHORIZATION),
        (COOKIE, header::COOKIE),
        ("an operator's token", HeaderName::from_static("x-internal-token")),
    ] {
        for text in texts(headers, &name) {
            audit.record_credential(what, text);
        }
    }
    audit.record_query(request.uri());
    let requested = format!("{} {}", request.method(), request.uri().path());
    // The body is forwarded in frames, because the function itself must limit a body that never ends.
    let read = Arc::new(Mutex::new(Vec::new()));
    let request = request.map(|body| {
        let read = Arc::clone(&read);
        Body::new(body.map_frame(move |frame| {
            if let Some(bytes) = frame.data_ref() {
                read.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .extend_from_slice(bytes);
            }
            frame
        }))
    });
    let (parts, body) = next.run(request).await.into_parts();
    audit.record_body(&requested, &read.lock().unwrap_or_else(PoisonError::into_inner));
    // The body is in memory, so reading it can't fail.
    let body = body.collect().await.map_or_else(|_| Bytes::new(), Collected::to_bytes);
    audit.record_response(&parts.headers, &body);
    Response::from_parts(parts, Body::from(body))
}

fn texts<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers.get_all(name).iter().filter_map(|value| value.to_str().ok())
}

/// Returns whether a field contains a user's id, which is not secret.
fn is_user(name: &str, value: &str) -> bool {
    matches!(name, "id" | "to") && UserId::parse(value).is_some()
}

/// Returns whether a text is an identifier that log lines may contain, such as an id, an address or a hash.
fn is_name(text: &str) -> bool {
    let is_word = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let is_hash = text
        .strip_prefix("0x")
        .is_some_and(|digits| hexadecimal(digits).len() == digits.len());
    is_word || is_hash || uuid::Uuid::try_parse(text).is_ok() || KeyId::parse(text).is_some()
}

fn hexadecimal(text: &str) -> String {
    text.chars().take_while(char::is_ascii_hexdigit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts which texts were recorded as secret.
    fn check(tell: impl FnOnce(&LogAudit), expected: &[&str]) {
        let folder = std::env::temp_dir().join(format!("purser-audit-{}", uuid::Uuid::new_v4()));
        let audit = LogAudit::open(&folder).unwrap();
        tell(&audit);
        let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
        let secrets = files.filter(|path| path.extension().is_some_and(|kind| kind == "secrets"));
        let secrets: String = secrets.map(|path| std::fs::read_to_string(path).unwrap()).collect();
        std::fs::remove_dir_all(&folder).unwrap();
        let texts = secrets.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let texts: Vec<String> = texts.map(|line| line["text"].as_str().unwrap().to_owned()).collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn each_part_of_a_credential_is_recorded_as_a_secret_once() {
        let (public, secret) = (format!("gak_pub_{}", "1".repeat(48)), "2".repeat(64));
        let key = format!("Bearer {public}:gak_sec_{secret}");
        let told = |audit: &LogAudit| {
            audit.record_credential("an authorization", &key);
            audit.record_credential("an authorization", &key);
        };
        check(told, &[&public, &secret]);
        let (payload, signature) = ("p".repeat(30), "s".repeat(30));
        let cookie = format!("purser-session={}.{payload}; other={signature}", "0".repeat(64));
        check(
            |audit| audit.record_credential(COOKIE, &cookie),
            &[&payload, &signature],
        );
    }

    #[test]
    fn the_log_audit_treats_free_text_as_secret() {
        let body = json!({
            "url": "https://provider.example/x",
            "list": [{"note": "please pay this soon"}],
            "approval_id": "816a3780-09c3-8db1-b2d4-de3900000001",
            "keys": ["d4e247fbe873ff1b"],
            "to": "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC",
            "kind": "vendor_allowlist_of_all",
            "number": 12,
            "offered": {"to": "5e".repeat(32)},
        });
        let told = |audit: &LogAudit| audit.record_body("POST /", body.to_string().as_bytes());
        check(told, &["please pay this soon", "https://provider.example/x"]);
        let form = b"form_token=0123456789abcdefABCD&note=x";
        check(|audit| audit.record_body("POST /", form), &["0123456789abcdefABCD"]);
    }

    #[test]
    fn secrets_in_responses_are_recorded_for_the_check_of_log_lines() {
        let (cookie, state, key) = ("c".repeat(20), "s".repeat(20), "3".repeat(64));
        let headers: HeaderMap = [
            (header::SET_COOKIE, format!("attempt={cookie}; Path=/")),
            (header::LOCATION, format!("/authorize?state={state}&x=y")),
        ]
        .into_iter()
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect();
        let page =
            format!(r#"<code>gak_pub_1:gak_sec_{key}</code><input name="form_token" value="0123456789abcdefABCD">"#);
        let told = |audit: &LogAudit| audit.record_response(&headers, page.as_bytes());
        check(told, &[&cookie, &state, &key, "0123456789abcdefABCD"]);
        let authorization = json!({"nonce": format!("0x{}", "4".repeat(64))});
        let payload =
            json!({"payload": {"signature": format!("0x{}", "5".repeat(130)), "authorization": authorization}});
        let paid = json!({"payment": {"header_value": "e30=e30=e30=e30=", "payload": payload}}).to_string();
        let told = |audit: &LogAudit| audit.record_response(&HeaderMap::new(), paid.as_bytes());
        check(told, &["e30=e30=e30=e30=", &"5".repeat(130), &"4".repeat(64)]);
    }

    #[test]
    fn oauth_tokens_codes_and_states_are_recorded_for_the_check_of_log_lines() {
        let (ids, signature) = ("0".repeat(48), format!("a_b{}", "C".repeat(30)));
        let tokens = json!({"access_token": format!("pat_{ids}_6b0d7377_{signature}"), "device_code": "pdc_BCDFGHJK_0123456789abcdef", "user_code": "BCDF-GHJK"});
        let told = |audit: &LogAudit| audit.record_response(&HeaderMap::new(), tokens.to_string().as_bytes());
        let [access, device] = ["access_token", "device_code"].map(|name| tokens[name].as_str().unwrap());
        check(
            told,
            &[access, &signature, device, "0123456789abcdef", "BCDFGHJK", "BCDF-GHJK"],
        );
        let uri =
            "/dashboard/connect?client_id=prc_0123456789abcdef&state=a%20state%20of%20a%20client&user_code=bcdfghjk";
        check(
            |audit| audit.record_query(&uri.parse().unwrap()),
            &["a state of a client", "BCDFGHJK", "BCDF-GHJK"],
        );
    }
}
