//! `POST /oauth/token`: exchanges an authorization code, a refresh token or a device code for tokens.

use crate::{
    OAuth, Server,
    error::OAuthError,
    error::OAuthErrorView,
    form::{Form, TokenForm},
    metadata::DEVICE_CODE,
};
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use purser_domain::{
    AccessToken, Agent, AgentId, ClientId, CodeRedemption, DeviceCode, DevicePoll, GrantRecord, KeyId, Permission,
    RefreshDecision, RefreshToken, SecretDigest, Timestamp,
};
use serde::Serialize;
use std::sync::Arc;
use tracing::info;
use utoipa::ToSchema;

/// The number of attempts to rotate a refresh token while other requests rotate it too.
const ATTEMPTS: usize = 3;

/// The tokens of a grant.
#[derive(Serialize, ToSchema)]
pub(crate) struct TokensView {
    /// `pat_…`: the credential for `Authorization: Bearer`, on `/mcp` and on every route for agents.
    access_token: String,
    /// `Bearer`
    token_type: &'static str,
    /// Seconds, at most 600.
    expires_in: u64,
    /// `prt_…`: gets the next tokens, once. A lost response can be requested again for a minute.
    refresh_token: String,
    /// The permissions that the user gave, separated by spaces.
    scope: String,
}

/// A grant in an agent's record that has not ended.
struct ActiveGrant {
    permissions: Vec<Permission>,
    expires_at: Timestamp,
}

/// Issues tokens for an authorization code with PKCE, a refresh token, or a device code. Clients are public: `client_id`
/// is required, and there is no secret. A code or refresh token that is used twice ends the grant.
#[utoipa::path(
    post, path = "/oauth/token", operation_id = "oauth_token",
    request_body(content = TokenForm, description = "`grant_type` selects the other parameters.", content_type = "application/x-www-form-urlencoded"),
    responses(
        (status = 200, body = TokensView, description = "The tokens."),
        (status = 400, body = OAuthErrorView, description = "The request is rejected; `error_description` says what to do. `error` is `invalid_request`, `invalid_grant`, `invalid_target` or `unsupported_grant_type`; for device codes also `authorization_pending`, `slow_down`, `access_denied` or `expired_token`."),
        (status = 401, body = OAuthErrorView, description = "`invalid_client`: the client is unknown or its registration has expired. Register again."),
    )
)]
pub(crate) async fn issue_token(
    State(oauth): State<Arc<OAuth>>,
    server: Server,
    body: Bytes,
) -> Result<Response, OAuthError> {
    let now = oauth.clock.now();
    oauth.count_request(&server, now).await?;
    let form = Form::parse(&body)?;
    let grant_type = form.require("grant_type", "`grant_type` is required")?;
    let (client, _) = oauth.find_client(form.get("client_id"), now)?;
    form.check_resource(&server)?;
    let tokens = match grant_type {
        "authorization_code" => oauth.redeem_code(&server, &form, &client, now).await?,
        "refresh_token" => oauth.redeem_refresh_token(&server, &form, &client, now).await?,
        DEVICE_CODE => oauth.redeem_device_code(&server, &form, &client, now).await?,
        _ => return Err(OAuthError::UnsupportedGrantType),
    };
    Ok(([(header::PRAGMA, "no-cache")], Json(tokens)).into_response())
}

impl OAuth {
    async fn redeem_code(
        &self,
        server: &Server,
        form: &Form,
        client: &ClientId,
        now: Timestamp,
    ) -> Result<TokensView, OAuthError> {
        let text = form.require("code", "`code` is required")?;
        let fingerprint = client.fingerprint();
        let redemption = CodeRedemption {
            client: &fingerprint,
            redirect_uri: form.get("redirect_uri"),
            verifier: form.require("code_verifier", "`code_verifier` is required")?,
        };
        let code = self.ledger.read_grant_code(&SecretDigest::from_secret(text)).await?;
        let code = code.ok_or(OAuthError::InvalidGrant)?;
        // A third party with an intercepted code lacks the verifier, and can neither redeem the code nor end the grant.
        if !code.may_be_redeemed(redemption, now) {
            return Err(OAuthError::InvalidGrant);
        }
        let active = self.read_active_grant(code.agent, code.grant, now).await?;
        let record = GrantRecord::new(code.agent, code.grant, fingerprint, now, active.expires_at);
        let is_first_use = code.used_at.is_none() && self.ledger.redeem_grant_code(&code, &record, now).await?;
        self.issue_first_tokens(server, &record, &active, is_first_use).await
    }

    async fn redeem_device_code(
        &self,
        server: &Server,
        form: &Form,
        client: &ClientId,
        now: Timestamp,
    ) -> Result<TokensView, OAuthError> {
        let text = form.require("device_code", "`device_code` is required")?;
        let code = DeviceCode::parse(text).ok_or(OAuthError::InvalidGrant)?;
        let request = self.ledger.read_device_request(&code.user_code).await?;
        let request = request.ok_or(OAuthError::InvalidGrant)?;
        let fingerprint = client.fingerprint();
        let (agent, grant) = match request.poll(&code, &fingerprint, now) {
            DevicePoll::Invalid => return Err(OAuthError::InvalidGrant),
            DevicePoll::Expired => return Err(OAuthError::ExpiredToken),
            DevicePoll::TooFast => return Err(OAuthError::SlowDown),
            DevicePoll::Denied => return Err(OAuthError::AccessDenied),
            DevicePoll::Pending => {
                self.ledger.record_device_poll(&code.user_code, now).await?;
                return Err(OAuthError::AuthorizationPending);
            }
            DevicePoll::Reused { agent, grant } => {
                self.end_reused_grant(server, agent, grant).await?;
                return Err(OAuthError::InvalidGrant);
            }
            DevicePoll::Approved { agent, grant } => (agent, grant),
        };
        let active = self.read_active_grant(agent, grant, now).await?;
        let record = GrantRecord::new(agent, grant, fingerprint, now, active.expires_at);
        let is_first_use = self.ledger.redeem_device_request(&code.user_code, &record).await?;
        self.issue_first_tokens(server, &record, &active, is_first_use).await
    }

    /// Returns the first tokens of a grant. If the code was used before, it may be stolen, so the grant is ended.
    async fn issue_first_tokens(
        &self,
        server: &Server,
        record: &GrantRecord,
        active: &ActiveGrant,
        is_first_use: bool,
    ) -> Result<TokensView, OAuthError> {
        if !is_first_use {
            self.end_reused_grant(server, record.agent, record.grant).await?;
            return Err(OAuthError::InvalidGrant);
        }
        info!(agent.id = %record.agent, key.id = %record.grant, "grant.redeemed");
        Ok(self.tokens_for_grant(record, active, record.rotated_at))
    }

    async fn redeem_refresh_token(
        &self,
        server: &Server,
        form: &Form,
        client: &ClientId,
        now: Timestamp,
    ) -> Result<TokensView, OAuthError> {
        let text = form.require("refresh_token", "`refresh_token` is required")?;
        let token = self.key.parse_refresh_token(text).ok_or(OAuthError::InvalidGrant)?;
        let active = self.read_active_grant(token.agent, token.grant, now).await?;
        for _ in 0..ATTEMPTS {
            let record = self.ledger.read_grant(token.agent, token.grant).await?;
            let mut record = record.ok_or(OAuthError::InvalidGrant)?;
            match record.decide_refresh(token.generation, &client.fingerprint(), now) {
                RefreshDecision::Invalid => return Err(OAuthError::InvalidGrant),
                RefreshDecision::Reused => {
                    self.end_reused_grant(server, token.agent, token.grant).await?;
                    return Err(OAuthError::InvalidGrant);
                }
                RefreshDecision::Repeat => return Ok(self.tokens_for_grant(&record, &active, now)),
                RefreshDecision::Rotate => {
                    if self.ledger.rotate_grant(&record, now).await? {
                        record.generation = record.generation.saturating_add(1);
                        return Ok(self.tokens_for_grant(&record, &active, now));
                    }
                }
            }
        }
        Err(OAuthError::InvalidGrant)
    }

    /// Reads a grant in the agent's record. Returns `InvalidGrant` if it has ended or has another OAuth secret.
    async fn read_active_grant(&self, agent: AgentId, grant: KeyId, now: Timestamp) -> Result<ActiveGrant, OAuthError> {
        let agent = self.ledger.read_agent_by_id(agent).await?;
        let agent: Agent = agent.ok_or(OAuthError::InvalidGrant)?;
        let key = agent.find_key(grant).filter(|_| agent.accepts_key(grant, now));
        let verifiable = self.key.verification_key(agent.id, grant);
        let key = key.filter(|key| key.grant().is_some_and(|grant| grant.verification_key == verifiable));
        let key = key.ok_or(OAuthError::InvalidGrant)?;
        let max_end = key.created_at.after(GrantRecord::MAX_LIFETIME);
        Ok(ActiveGrant {
            permissions: key.scope.permissions().to_vec(),
            expires_at: key.scope.expires_at.map_or(max_end, |end| end.min(max_end)),
        })
    }

    fn tokens_for_grant(&self, record: &GrantRecord, active: &ActiveGrant, now: Timestamp) -> TokensView {
        let expires_at = now.after(AccessToken::LIFETIME).min(active.expires_at);
        let permissions: Vec<&str> = active.permissions.iter().map(|permission| permission.name()).collect();
        TokensView {
            access_token: self.key.sign_access_token(record.agent, record.grant, expires_at),
            token_type: "Bearer",
            expires_in: expires_at.secs().saturating_sub(now.secs()),
            refresh_token: self.key.write_refresh_token(RefreshToken {
                agent: record.agent,
                grant: record.grant,
                generation: record.generation,
            }),
            scope: permissions.join(" "),
        }
    }
}
