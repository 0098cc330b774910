//! A client for the internal API that uses an operator's token.

use crate::api::{Api, Call, require_list};
use crate::credentials::{
    CredentialError, OPERATOR_TOKEN, credential_header, read_credential, read_standard_input, read_variable,
    store_credential,
};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use reqwest::Method;
use reqwest::header::HeaderName;
use serde_json::Value;
use zeroize::Zeroizing;

/// The maximum length of a token, in bytes.
const MAX_TOKEN_BYTES: usize = 256;

/// A client for Purser's internal API.
#[derive(Debug)]
pub(crate) struct Operator(Api);

impl Operator {
    /// Creates a client with the operator token from the environment. If the environment has no operator token, the
    /// client uses the stored operator token.
    pub(crate) fn new(url: &str) -> Result<Self, Failure> {
        let text = match read_variable("PURSER_OPERATOR_TOKEN") {
            Some(text) => Zeroizing::new(text),
            None => read_credential(OPERATOR_TOKEN)?.ok_or(CredentialError::NoToken)?,
        };
        Self::with_token(url, &text)
    }

    fn with_token(url: &str, token: &str) -> Result<Self, Failure> {
        let token = credential_header(token, "", MAX_TOKEN_BYTES).ok_or(CredentialError::Token)?;
        let api = Api::new(url, HeaderName::from_static("x-internal-token"), token)?;
        Ok(Self(api.sign_requests(read_variable)?))
    }

    /// Returns all services (`GET /internal/services`).
    pub(crate) async fn services(&self) -> Result<Vec<Value>, Failure> {
        let response = self.0.call(Call::get(&["internal", "services"])).await?;
        require_list(response, "services", "its list of services")
    }

    pub(crate) async fn service(&self, id: &str) -> Result<Value, Failure> {
        self.0.call(Call::get(&["internal", "services", id])).await
    }

    /// Writes a service. `over` is the version that is replaced, or `None` for a new service.
    pub(crate) async fn put_service(&self, id: &str, over: Option<u64>, entry: &Value) -> Result<Value, Failure> {
        let path = ["internal", "services", id];
        let call = Call {
            method: Method::PUT,
            over,
            body: Some(entry),
            ..Call::get(&path)
        };
        self.0.call(call).await
    }

    pub(crate) async fn request_probe(&self, id: &str) -> Result<Value, Failure> {
        let path = ["internal", "services", id, "probe"];
        let call = Call {
            method: Method::POST,
            ..Call::get(&path)
        };
        self.0.call(call).await
    }
}

/// Reads an operator's token from standard input, checks that Purser accepts it, and stores it.
pub(crate) async fn login(url: &str, output: &Output) -> Result<Exit, Failure> {
    let text = read_standard_input()?;
    Operator::with_token(url, &text)?.services().await?;
    let place = store_credential(OPERATOR_TOKEN, text.trim())?;
    output.print_text(&format!("The token is stored in {place}."));
    Ok(Exit::Done)
}
