//! Operations that add and end grants of OAuth clients.

use crate::agents::operations::NewAgentLimits;
use crate::agents::owned::OwnedAgent;
use crate::caller::Caller;
use crate::connect::request::AuthorizationRequest;
use crate::keys::operations::key_rejection_error;
use crate::state::People;
use purser_api::{CallerIds, Precondition, ThrottleScope};
use purser_domain::{
    AccessToken, Act, Actor, Agent, AgentId, AgentKey, AgentName, Amount, AuditKind, BudgetLimit, ClientGrant,
    ClientName, DeviceRequest, DeviceState, Duration, EditReason, ErrorKind, GrantCode, GrantOrigin, KeyCredential,
    KeyId, KeyScope, KeyStatus, NewGrantCode, Permission, RefreshToken, RequestSource, Result, RuleKind, RuleWindow,
    StartingLimits, Timestamp, UserCode,
};
use tracing::info;

/// The number of device codes that a user may enter per minute. With 20⁸ codes, guessing is hopeless.
pub(crate) const DEVICE_CODES_PER_MINUTE: u32 = 10;

const REUSED: &str = "a code or token of the application was used twice, so somebody may have stolen it";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConsentAgent {
    Existing(AgentId),
    /// A new agent with safe limits.
    New(AgentName),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Consent {
    pub(crate) agent: ConsentAgent,
    pub(crate) scope: KeyScope,
    /// The maximum amount of the client's payments in 24 hours.
    pub(crate) per_day: Amount,
}

impl People {
    /// Adds a grant to the agent: a key with the scope of the consent, and a budget for this key.
    async fn add_grant(
        &self,
        user: &Caller,
        consent: &Consent,
        (client, origin): (ClientName, GrantOrigin),
        ids: CallerIds,
    ) -> Result<(OwnedAgent, KeyId)> {
        let now = self.now();
        // Check the sign-in before creating an agent. Otherwise a rejected grant would leave a new agent behind.
        self.limits.require_recent_sign_in(user.signed_in_at, now)?;
        let owned = match &consent.agent {
            ConsentAgent::Existing(agent) => self.read_own_agent(user, *agent).await?,
            ConsentAgent::New(name) => {
                let limits = NewAgentLimits::Starting(StartingLimits::Safe);
                self.create_agent(user, name, limits, ids).await?
            }
        };
        let agent = owned.agent().id;
        let id = KeyId(u64::from_be_bytes(self.entropy.random_bytes()?));
        let rule = self.new_rule_id()?;
        let key = AgentKey {
            id,
            credential: KeyCredential::Grant(ClientGrant {
                verification_key: self.oauth_key.verification_key(agent, id),
                client,
                origin,
            }),
            created_at: now,
            ends_at: None,
            scope: consent.scope.clone(),
            opened_by: None,
        };
        let unused = self.list_unused_grants(owned.agent(), now).await?;
        let add = |agent: Agent| {
            let revoke = |agent: Agent, grant: &KeyId| agent.with_revoked_key(*grant, now);
            let agent = unused.iter().try_fold(agent, revoke).map_err(key_rejection_error)?;
            let agent = agent.without_budgets_of_ended_keys(now);
            let agent = agent.with_key(key.clone(), now).map_err(key_rejection_error)?;
            if !key.scope.permissions().contains(&Permission::Pay) {
                return Ok(agent);
            }
            let window = RuleWindow {
                keys: Some(vec![id]),
                ..RuleWindow::from(Duration::DAY)
            };
            let budget = RuleKind::BudgetLimit(BudgetLimit {
                limit: consent.per_day,
                window,
            });
            Ok(agent.with_rule(rule, budget)?)
        };
        let action = Act::new(AuditKind::GrantCreated).with_object(&id);
        let owned = self.update_agent_record(owned, Precondition::Any, action, add).await?;
        info!(agent.id = %agent, key.id = %id, "grant.created");
        Ok((owned, id))
    }

    /// Returns the grants that have ended, or whose code or refresh token has expired. The caller revokes these
    /// grants, so that only grants in use count towards [`Agent::MAX_GRANTS`].
    async fn list_unused_grants(&self, agent: &Agent, now: Timestamp) -> Result<Vec<KeyId>> {
        let mut unused = Vec::new();
        for key in agent.keys.iter().filter(|key| key.grant().is_some()) {
            if agent.accepts_key(key.id, now) {
                let record = self.ledger.read_grant(agent.id, key.id).await?;
                // A device's code is valid for longer than an authorization code, so this check covers both.
                let code_has_expired = now >= key.created_at.after(DeviceRequest::LIFETIME);
                if record.map_or(code_has_expired, |record| record.has_ended(now)) {
                    unused.push(key.id);
                }
            }
        }
        Ok(unused)
    }

    /// Adds a grant for an authorization request, and returns the code for the client.
    pub(crate) async fn allow_request(
        &self,
        user: &Caller,
        request: &AuthorizationRequest,
        consent: &Consent,
        ids: CallerIds,
    ) -> Result<String> {
        let uri = &request.redirect.uri;
        let client = (request.client.name.clone(), uri.origin().clone());
        let (owned, grant) = self.add_grant(user, consent, client, ids).await?;
        let code = NewGrantCode::from_random(self.entropy.random_bytes()?);
        let row = GrantCode {
            digest: code.digest,
            agent: owned.agent().id,
            grant,
            client: request.client_id.fingerprint(),
            redirect_uri: uri.clone(),
            challenge: request.challenge,
            expires_at: self.now().after(GrantCode::LIFETIME),
            used_at: None,
        };
        self.ledger.add_grant_code(&row).await?;
        Ok(code.text)
    }

    /// Finds a device's pending request. The throttle limits how many codes a user can try.
    pub(crate) async fn find_device_request(&self, user: &Caller, code: &UserCode) -> Result<Option<DeviceRequest>> {
        let scope = format!("device {}", ThrottleScope::for_user(&user.id));
        let read = self.ledger.read_device_request(code);
        let request = self.code_guesses.run_limited_by(scope, self.now(), read).await?;
        Ok(request.filter(|request| request.is_pending(self.now())))
    }

    /// Returns `false` if the device's request has expired or was decided meanwhile.
    pub(crate) async fn allow_device(
        &self,
        user: &Caller,
        request: &DeviceRequest,
        consent: &Consent,
        ids: CallerIds,
    ) -> Result<bool> {
        let client = (request.client_name.clone(), GrantOrigin::device());
        let (owned, grant) = self.add_grant(user, consent, client, ids).await?;
        let agent = owned.agent().id;
        let decision = DeviceState::Approved { agent, grant };
        let is_decided = self
            .ledger
            .decide_device_request(&request.user_code, decision, self.now());
        let is_decided = is_decided.await?;
        if !is_decided {
            self.revoke_key(owned, Precondition::Any, grant).await?;
        }
        Ok(is_decided)
    }

    /// Ends the grant of an access token or a refresh token, even if the token has expired. Ignores other texts.
    pub(crate) async fn end_grant_of_token(&self, token: &str, source: RequestSource) -> Result<()> {
        let access = AccessToken::parse(token);
        let refresh = self.oauth_key.parse_refresh_token(token);
        let Some((id, grant)) = refresh
            .map(|token| (token.agent, token.grant))
            .or_else(|| access.as_ref().map(|token| (token.agent, token.grant)))
        else {
            return Ok(());
        };
        let is_signed = access.is_none_or(|token| token.is_signed_by(&self.oauth_key.verification_key(id, grant)));
        let agent = self.ledger.read_agent_by_id(id).await?.filter(|_| is_signed);
        let now = self.now();
        let is_open = |agent: &Agent| {
            let key = agent.find_key(grant).filter(|key| key.grant().is_some());
            key.is_some_and(|key| !matches!(key.status(now), KeyStatus::Ended { .. }))
        };
        let Some(agent) = agent.filter(is_open) else {
            return Ok(());
        };
        let caller = Caller::for_actor_of_owner(&agent.owner, |owner| Actor::Client { owner }, source)?;
        let is_reused = refresh.is_some_and(|token| token.generation == RefreshToken::REUSED);
        let reason = EditReason::parse(REUSED).filter(|_| is_reused);
        let owned = OwnedAgent::new(&caller, agent)
            .ok_or(ErrorKind::NotFound)?
            .with_reason(reason);
        let end = |agent: Agent| agent.with_revoked_key(grant, now).map_err(key_rejection_error);
        let action = Act::new(AuditKind::GrantEnded).with_object(&grant);
        self.update_agent_record(owned, Precondition::Any, action, end).await?;
        self.ledger.end_grant(id, grant, now).await?;
        info!(agent.id = %id, key.id = %grant, "grant.ended");
        Ok(())
    }
}
