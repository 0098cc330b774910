//! Form-encoded requests (RFC 6749, appendix B).

use crate::{Server, error::OAuthError};
use purser_domain::are_resources_of_issuer;
use std::collections::HashSet;
use url::form_urlencoded;
use utoipa::ToSchema;

/// The form of a token request.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `Form` reads")]
pub(crate) struct TokenForm {
    #[schema(pattern = "^(authorization_code|refresh_token|urn:ietf:params:oauth:grant-type:device_code)$")]
    grant_type: String,
    /// The client's id from the registration, or the URL of the client's metadata document.
    #[schema(pattern = "^[!-~]{1,1024}$")]
    client_id: String,
    /// The authorization code from the redirect. Required for `authorization_code`.
    #[schema(pattern = "^[!-~]+$")]
    code: Option<String>,
    /// The PKCE verifier (RFC 7636). Required for `authorization_code`.
    #[schema(pattern = "^[A-Za-z0-9._~-]{43,128}$")]
    code_verifier: Option<String>,
    /// The redirect URI of the authorization request. Optional for `authorization_code`.
    #[schema(format = Uri)]
    redirect_uri: Option<String>,
    /// The latest refresh token. Required for `refresh_token`.
    #[schema(pattern = "^prt_[!-~]+$")]
    refresh_token: Option<String>,
    /// The device code. Required for the grant type `…:device_code`.
    #[schema(pattern = "^[!-~]+$")]
    device_code: Option<String>,
    /// This deployment's `/mcp` or origin (RFC 8707). May be repeated.
    #[schema(format = Uri)]
    resource: Option<String>,
}

/// The form of a device authorization request.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `Form` reads")]
pub(crate) struct DeviceForm {
    /// The client's id from the registration, or `purser-cli`.
    #[schema(pattern = "^[!-~]{1,1024}$")]
    client_id: String,
    /// Ignored: the user chooses the permissions.
    #[schema(pattern = r"^[\s\S]*$")]
    scope: Option<String>,
    /// This deployment's `/mcp` or origin (RFC 8707). May be repeated.
    #[schema(format = Uri)]
    resource: Option<String>,
}

pub(crate) struct Form(Vec<(String, String)>);

impl Form {
    /// Parses a body. Only `resource` may occur more than once (RFC 6749 §3.2, RFC 8707 §2).
    pub(crate) fn parse(body: &[u8]) -> Result<Self, OAuthError> {
        let pairs: Vec<(String, String)> = form_urlencoded::parse(body).into_owned().collect();
        let mut names = HashSet::new();
        if pairs.iter().any(|(name, _)| name != RESOURCE && !names.insert(name)) {
            return Err(OAuthError::InvalidRequest("a parameter occurs more than once"));
        }
        Ok(Self(pairs))
    }

    /// Returns a parameter, or `None` if it is absent or empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut values = self
            .0
            .iter()
            .filter(|(other, value)| other == name && !value.is_empty());
        values.next().map(|(_, value)| value.as_str())
    }

    pub(crate) fn require(&self, name: &str, error: &'static str) -> Result<&str, OAuthError> {
        self.get(name).ok_or(OAuthError::InvalidRequest(error))
    }

    pub(crate) fn check_resource(&self, server: &Server) -> Result<(), OAuthError> {
        let resources = self.0.iter().filter(|(name, _)| name == RESOURCE);
        if are_resources_of_issuer(&server.issuer, resources.map(|(_, url)| url.as_str())) {
            Ok(())
        } else {
            Err(OAuthError::InvalidTarget)
        }
    }
}

const RESOURCE: &str = "resource";
