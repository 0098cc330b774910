//! A client's authorization request, which is the query of the consent page (OAuth 2.1 §4.1.1, RFC 7636, RFC 8707).
//!
//! An invalid client or redirect URI gets an error page and no redirect, because the URI may be an attacker's.

use crate::address::path_with_query;
use crate::redirect::see_other;
use crate::sessions::destination::Destination;
use crate::sessions::origin::Origin;
use crate::state::People;
use axum::http::Uri;
use axum::response::Response;
use purser_api::Query;
use purser_domain::{
    ClientId, ClientMetadata, ClientReference, Permission, PkceChallenge, RedirectUri, are_resources_of_issuer,
};

/// The authorization endpoint.
pub(crate) const CONNECT: &str = "/dashboard/connect";

/// The maximum length of `state`, in bytes.
const MAX_STATE_BYTES: usize = 512;
/// The maximum length of a client's metadata document, in bytes.
const MAX_DOCUMENT_BYTES: usize = 5 * 1024;

pub(crate) struct AuthorizationRequest {
    pub(crate) client_id: ClientId,
    pub(crate) client: ClientMetadata,
    pub(crate) permissions: Vec<Permission>,
    pub(crate) challenge: PkceChallenge,
    pub(crate) redirect: ClientRedirect,
}

/// The redirect URI of a request, with the parameters that every response has.
#[derive(Clone)]
pub(crate) struct ClientRedirect {
    pub(crate) uri: RedirectUri,
    state: Option<String>,
    /// The issuer (RFC 9207), by which the client detects a response from a different server.
    issuer: String,
}

pub(crate) enum RequestRejection {
    /// An error page with this message.
    Page(&'static str),
    /// A redirect to the client with this error code and description.
    Redirect(ClientRedirect, &'static str, &'static str),
}

impl ClientRedirect {
    pub(crate) fn redirect_with_code(&self, code: &str) -> Response {
        self.respond(&[("code", code)])
    }

    /// Redirects to the client with an error (RFC 6749 §4.1.2.1).
    pub(crate) fn redirect_with_error(&self, error: &str, description: &str) -> Response {
        self.respond(&[("error", error), ("error_description", description)])
    }

    fn respond(&self, parameters: &[(&str, &str)]) -> Response {
        let state = self.state.as_deref().map(|state| ("state", state));
        let parameters = parameters.iter().copied().chain(state).chain([("iss", &*self.issuer)]);
        see_other(&self.uri.with_parameters(&parameters.collect::<Vec<_>>()))
    }
}

impl People {
    /// Parses an authorization request of an OAuth client. `issuer` is the origin of this deployment.
    pub(crate) async fn parse_authorization_request(
        &self,
        uri: &Uri,
        issuer: &Origin,
    ) -> Result<AuthorizationRequest, RequestRejection> {
        const UNKNOWN: &str = "Purser does not know this application, or knew it too long ago. Remove the connection in the application, and add it again.";
        const REDIRECT: &str =
            "The application asks to send you to an address that it has not registered. Nothing was sent there.";
        let mut query = Query::from_uri(uri);
        let id = query.parse_text("client_id").and_then(|id| ClientId::parse(&id));
        let client_id = id.ok_or(RequestRejection::Page(UNKNOWN))?;
        let client = match self.oauth_key.find_client(&client_id, self.now()) {
            Some(ClientReference::Registered(client)) => Some(client),
            Some(ClientReference::Document(url)) => {
                let document = self.client_documents.get_object(&url, MAX_DOCUMENT_BYTES).await;
                document.and_then(|document| ClientMetadata::from_url_document(&url, &document).ok())
            }
            Some(ClientReference::CommandLine) | None => None,
        };
        let client = client.ok_or(RequestRejection::Page(UNKNOWN))?;
        let redirect_uri = query
            .parse_text("redirect_uri")
            .and_then(|uri| RedirectUri::parse(&uri).ok());
        let state = query.parse_text("state");
        let redirect = ClientRedirect {
            uri: redirect_uri
                .filter(|uri| client.allows_redirect(uri))
                .ok_or(RequestRejection::Page(REDIRECT))?,
            state: state.clone().filter(|state| state.len() <= MAX_STATE_BYTES),
            issuer: issuer.to_string(),
        };
        #[expect(clippy::result_large_err, reason = "a request is rejected at most once")]
        let reject = |error, description| Err(RequestRejection::Redirect(redirect.clone(), error, description));
        if redirect.state != state {
            return reject("invalid_request", "`state` must have at most 512 bytes");
        }
        let address = uri.path_and_query().map_or("", |address| address.as_str());
        if Destination::parse(address).as_str() != address {
            return reject("invalid_request", "the request is too long");
        }
        let is_own = are_resources_of_issuer(issuer.as_str(), query.texts("resource"));
        let mut parameter = |name| query.parse_text(name);
        let [response_type, method, challenge] =
            ["response_type", "code_challenge_method", "code_challenge"].map(&mut parameter);
        let [mode, scope] = ["response_mode", "scope"].map(&mut parameter);
        if query.finish().is_err() {
            return reject("invalid_request", "each parameter may be given once");
        }
        if response_type.as_deref() != Some("code") {
            return reject("unsupported_response_type", "`response_type` must be `code`");
        }
        if mode.is_some_and(|mode| mode != "query") {
            return reject("invalid_request", "`response_mode` must be `query`");
        }
        let challenge = challenge.and_then(|challenge| PkceChallenge::parse(&challenge));
        let Some(challenge) = challenge.filter(|_| method.as_deref() == Some("S256")) else {
            return reject("invalid_request", "`code_challenge` with the method `S256` is required");
        };
        if !is_own {
            return reject("invalid_target", "`resource` must be this server's `/mcp`");
        }
        let Some(permissions) = parse_scope(scope.as_deref()) else {
            return reject("invalid_scope", "`scope` must contain `read` or `pay`");
        };
        Ok(AuthorizationRequest {
            client_id,
            client,
            permissions,
            challenge,
            redirect,
        })
    }
}

/// Ignores unknown values (RFC 6749 §3.3). Returns `None` if no value is known. Without a scope, the client requests
/// all permissions.
fn parse_scope(scope: Option<&str>) -> Option<Vec<Permission>> {
    let scope = scope.map(str::trim).filter(|scope| !scope.is_empty());
    let is_requested =
        |permission: &&Permission| scope.is_none_or(|scope| scope.split(' ').any(|value| value == permission.name()));
    let permissions: Vec<_> = Permission::ALL.iter().filter(is_requested).copied().collect();
    (!permissions.is_empty()).then_some(permissions)
}

/// Returns the path of the page on which a user enters or confirms a device's code.
pub(crate) fn device_path(code: Option<&str>) -> String {
    path_with_query("/dashboard/device", [("user_code", code.map(str::to_owned))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_scopes_are_ignored_unless_no_scope_is_known() {
        let (read, pay) = (Permission::Read, Permission::Pay);
        for (scope, expected) in [
            (None, Some(vec![read, pay])),
            (Some(""), Some(vec![read, pay])),
            (Some("pay"), Some(vec![pay])),
            (Some("pay read offline_access"), Some(vec![read, pay])),
            (Some("offline_access"), None),
            (Some("READ"), None),
        ] {
            assert_eq!(parse_scope(scope), expected, "{scope:?}");
        }
    }
}
