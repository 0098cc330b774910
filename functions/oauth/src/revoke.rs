//! Ends a grant whose code or refresh token was used twice.

use crate::{OAuth, Server};
use aws_smithy_runtime_api::client::http::HttpConnector as _;
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use purser_domain::{AgentId, KeyId, RefreshToken, Result};
use std::time::Duration;
use tracing::warn;

/// The timeout of the call that revokes the grant.
const TIMEOUT: Duration = Duration::from_secs(5);

impl OAuth {
    /// Ends the grant's refresh tokens, and revokes the grant (an agent key) through the API. If the call
    /// fails, access tokens stay valid until they expire.
    pub(crate) async fn end_reused_grant(&self, server: &Server, agent: AgentId, grant: KeyId) -> Result<()> {
        warn!(agent.id = %agent, key.id = %grant, "grant.reused");
        self.ledger.end_grant(agent, grant, self.clock.now()).await?;
        let token = self.key.write_refresh_token(RefreshToken {
            agent,
            grant,
            generation: RefreshToken::REUSED,
        });
        if let Err(cause) = self.revoke_token(server, &token).await {
            warn!(agent.id = %agent, key.id = %grant, cause, "grant.key_not_revoked");
        }
        Ok(())
    }

    async fn revoke_token(&self, server: &Server, token: &str) -> std::result::Result<(), String> {
        let mut request = HttpRequest::new(format!("token={token}").into());
        request.set_method("POST").map_err(|error| error.to_string())?;
        let uri = format!("{}/oauth/revoke", server.issuer);
        request.set_uri(uri).map_err(|error| error.to_string())?;
        let form = "application/x-www-form-urlencoded";
        request.headers_mut().insert("content-type", form);
        let response = tokio::time::timeout(TIMEOUT, self.http.call(request)).await;
        let response = response.map_err(|_| "timeout".to_owned())?;
        let status = response.map_err(|error| error.to_string())?.status();
        if status.is_success() {
            Ok(())
        } else {
            Err(format!("status {status}"))
        }
    }
}
