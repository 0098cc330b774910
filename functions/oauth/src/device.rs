//! `POST /oauth/device_authorization`: device codes (RFC 8628).

use crate::{
    OAuth, Server,
    error::OAuthError,
    error::OAuthErrorView,
    form::{DeviceForm, Form},
};
use axum::Json;
use axum::extract::State;
use bytes::Bytes;
use purser_domain::{ClientName, ClientReference, DeviceCode, DeviceRequest, DeviceState, Error};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// The client name that the consent page shows for Purser's command line.
const COMMAND_LINE: &str = "Purser command line";
/// The number of attempts to find a user code that is not in use.
const ATTEMPTS: usize = 3;

/// A device code.
#[derive(Serialize, ToSchema)]
pub(crate) struct DeviceCodeView {
    /// The secret with which the device asks for tokens.
    device_code: String,
    /// The code that the user enters, such as `BCDF-GHJK`.
    user_code: String,
    /// The page on which the user enters the code.
    verification_uri: String,
    /// The same page with the code, for a link or a QR code.
    verification_uri_complete: String,
    /// The seconds until both codes expire.
    expires_in: u64,
    /// The minimum number of seconds between two polls of the token endpoint.
    interval: u64,
}

/// Starts a device grant (RFC 8628 §3.1), for programs without a browser. The program shows `user_code` and
/// `verification_uri`, and polls `/oauth/token` until the user has decided.
#[utoipa::path(
    post, path = "/oauth/device_authorization", operation_id = "oauth_device",
    request_body(content = DeviceForm, content_type = "application/x-www-form-urlencoded"),
    responses(
        (status = 200, body = DeviceCodeView, description = "The code for the device and the code for the user."),
        (status = 400, body = OAuthErrorView, description = "The request is rejected; `error_description` says what to do. `error` is `invalid_request`, `invalid_target` or `unauthorized_client`."),
        (status = 401, body = OAuthErrorView, description = "`invalid_client`: the client is unknown or its registration has expired. Register again."),
    )
)]
pub(crate) async fn request_device_code(
    State(oauth): State<Arc<OAuth>>,
    server: Server,
    body: Bytes,
) -> Result<Json<DeviceCodeView>, OAuthError> {
    let now = oauth.clock.now();
    oauth.count_request(&server, now).await?;
    let form = Form::parse(&body)?;
    let (id, client) = oauth.find_client(form.get("client_id"), now)?;
    form.check_resource(&server)?;
    let client_name = match client {
        ClientReference::CommandLine => ClientName::parse(COMMAND_LINE),
        ClientReference::Registered(client) => Some(client.name),
        // A client with a metadata document can't use device codes, because only the dashboard reads such documents.
        ClientReference::Document(_) => None,
    };
    let client_name = client_name.ok_or(OAuthError::UnauthorizedClient)?;
    for _ in 0..ATTEMPTS {
        let (code, text) = DeviceCode::from_random(oauth.entropy.random_bytes()?, oauth.entropy.random_bytes()?);
        let request = DeviceRequest {
            user_code: code.user_code,
            digest: code.digest,
            client: id.fingerprint(),
            client_name: client_name.clone(),
            expires_at: now.after(DeviceRequest::LIFETIME),
            polled_at: None,
            state: DeviceState::Pending,
        };
        if oauth.ledger.add_device_request(&request).await? {
            let user_code = request.user_code.to_string();
            let verification_uri = format!("{}/dashboard/device", server.issuer);
            return Ok(Json(DeviceCodeView {
                device_code: text,
                verification_uri_complete: format!("{verification_uri}?user_code={user_code}"),
                user_code,
                verification_uri,
                expires_in: DeviceRequest::LIFETIME.secs(),
                interval: DeviceRequest::POLL_INTERVAL.secs(),
            }));
        }
    }
    Err(Error::internal("choosing a user code", "all chosen codes are in use").into())
}
