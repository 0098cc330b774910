//! Clients of the test doubles in `tests/testkit`, and a captured log, for the tests of this crate.

use crate::{
    Boot, Clock, Env, Secrets, SessionSettings, Sessions, lambda::boot::json_subscriber, telemetry::metrics::NAMESPACE,
};
use purser_domain::Timestamp;
use purser_testkit::{SecretsManager, TestIssuer};
use std::{
    io,
    sync::{Arc, Mutex},
};
use tracing::subscriber::DefaultGuard;

pub(crate) async fn secrets(manager: &SecretsManager) -> Secrets {
    let endpoint = manager.serve().await;
    let env = [
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "key"),
        ("SECRETS_ENDPOINT", &endpoint),
    ];
    Secrets::new(&Boot::new(env.into_iter().collect(), Clock::system()).aws)
}

pub(crate) async fn sessions(issuer: &TestIssuer, now: Timestamp) -> Sessions {
    Sessions::new(settings(&issuer.address).unwrap(), now).await.unwrap()
}

pub(crate) fn settings(issuer: &str) -> Result<SessionSettings, String> {
    let variables = [("OIDC_ISSUER", issuer), ("OIDC_CLIENT_ID", TestIssuer::CLIENT)];
    let mut env: Env = variables.into_iter().collect();
    let settings = SessionSettings::from_env(&mut env);
    env.finish(settings).map_err(|error| error.to_string())
}

/// Captures the log of one test until this value is dropped.
pub(crate) struct TestLog {
    bytes: Bytes,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Bytes(Arc<Mutex<Vec<u8>>>);

impl io::Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TestLog {
    pub(crate) fn start() -> Self {
        Self::start_in(NAMESPACE)
    }

    /// Starts capturing with this metrics namespace.
    pub(crate) fn start_in(namespace: &str) -> Self {
        let bytes = Bytes::default();
        let writer = bytes.clone();
        let lines = json_subscriber("trace,hyper=off,h2=off", namespace, move || writer.clone());
        let guard = tracing::subscriber::set_default(lines);
        Self { bytes, _guard: guard }
    }

    /// Returns the log text since the last call.
    pub(crate) fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.bytes.0.lock().unwrap())).unwrap()
    }
}
