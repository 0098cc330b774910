//! JSON API for an agent's keys. Only the response that creates a key contains the secret.

use crate::agents::owned::OwnedAgent;
use crate::agents::owned::require_id;
use crate::keys::operations::{IssuedKey, ListedKey};
use crate::request::{combine_results_and_errors, created_response};
use crate::state::PeopleState;
use axum::Json;
use axum::response::Response;
use purser_api::{
    Body, BodyPath, Field, Id, IfMatch, Listed, Member as _, OptionalBody, Reply, Text, ValidationErrors, endpoint,
    parse_seconds, view, with_etag,
};
use purser_domain::{
    Agent, AgentId, AgentKey, Catalog, Duration, KeyId, KeyScope, KeyStatus, Permission, RequestedScope, ServiceId,
    SourceNetwork, Timestamp,
};
use serde_json::{Value, json};

purser_api::views! {
    /// A key, without its secret.
    pub(crate) struct KeyView as AgentKey {
        fn new(agent: AgentId, key: &AgentKey, status: KeyStatus);

        #[schema(example = "00c0ffee00c0ffee")]
        key_id: String = key.id.to_string(),
        /// The part of the key before the colon, which is not secret.
        #[schema(example = "gak_pub_6f2f6e0c000040008000000000000001000c0ffee00c0ffee")]
        public_key: String = key.public_half(agent),
        /// `active`, `ending` (rotated, but accepted until `ends_at`) or `ended`.
        #[schema(value_type = String, example = "active")]
        status: &'static str = status.name(),
        created_at: Timestamp = key.created_at,
        /// The time from which a rotated or revoked key is rejected. Null for all other keys.
        ends_at: Option<Timestamp> = key.ends_at,
        /// The key's permissions: `read` to read lists and policies, `pay` to make payments.
        permissions: Vec<&'static str> = key.scope.permissions().iter().map(|may| may.name()).collect(),
        /// The UUIDs of the services that the key may pay. Null for all services.
        services: Option<Vec<ServiceId>> = key.scope.services.clone(),
        /// The CIDR blocks from which the key may be used. Null for any address.
        #[schema(value_type = Option<Vec<String>>)]
        networks: Option<Vec<SourceNetwork>> = key.scope.networks.clone(),
        /// The time at which the key expires. Null if the key does not expire.
        expires_at: Option<Timestamp> = key.scope.expires_at,
        /// The name by which an OAuth client calls itself. Nobody has verified the name. Null unless the key is a
        /// grant, for which the client has tokens instead of a secret.
        client_name: Option<String> = key.grant().map(|grant| grant.client.to_string()),
        /// Where the client's authorization code was sent: a host, a private-use scheme such as `app:`, or `device` for a
        /// device code. Null unless the key is a grant.
        redirect_host: Option<String> = key.grant().map(|grant| grant.origin.to_string()),
        /// The ID of the key with which the agent opened this key's run. Null for all other keys.
        opened_by: Option<String> = key.opened_by.map(|opener| opener.to_string()),
    }

    /// A key with the time of its last use.
    pub(crate) struct ListedKeyView as ListedAgentKey {
        fn new(agent: AgentId, key: &ListedKey);

        #[serde(flatten)]
        record: KeyView = KeyView::new(agent, &key.key, key.status),
        /// The time of the key's last use, to the minute. Null if the key was never used, or not used recently.
        last_used_at: Option<Timestamp> = key.last_used_at,
    }
}

/// The agent's keys, newest first, without keys that ended more than 30 days ago.
#[view(AgentKeyList)]
pub(crate) struct KeyList {
    agent_id: AgentId,
    /// The agent's version. Send it as `If-Match`.
    version: u64,
    keys: Vec<ListedKeyView>,
    /// The number of keys in this response.
    count: usize,
}

/// The key that was created, with its secret. No other response contains the secret.
#[view(NewAgentKey)]
pub(crate) struct NewKeyView {
    agent_id: AgentId,
    /// The agent's new version. Send it as `If-Match` with the next update.
    version: u64,
    /// The whole key, including its secret. Save it now: Purser does not store it, and no other response contains it.
    #[schema(example = "gak_pub_<id>:gak_sec_<secret>")]
    key: String,
    #[serde(flatten)]
    record: KeyView,
}

/// The new key that replaces a rotated key.
#[view(RotatedAgentKey)]
pub(crate) struct RotationView {
    #[serde(flatten)]
    new: NewKeyView,
    /// The old key, with the time at which it ends.
    replaced: KeyView,
}

/// The key that was revoked, and the agent's new version.
#[view(RevokedAgentKey)]
pub(crate) struct RevokedKeyView {
    agent_id: AgentId,
    /// The agent's new version. Send it as `If-Match` with the next update.
    version: u64,
    #[serde(flatten)]
    record: KeyView,
}

purser_api::body! {
    /// The scope of a new key. A rotation keeps the scope. An absent field sets no limit. The whole body may be absent.
    pub(crate) struct NewKeyBody {
        /// The key's permissions, at least one. `read` allows reading lists and policies. `pay` allows checks, payments
        /// and their completion. Each permission also allows reading a single receipt, a single approval, and the agent
        /// of the key.
        permissions: Option<Vec<Permission>> = {"minItems": 1, "maxItems": 2, "uniqueItems": true},
        /// The slugs or UUIDs of the services that the key may pay and list.
        services: Option<Vec<Reference>> = {"minItems": 1, "maxItems": 20, "uniqueItems": true},
        /// The CIDR blocks from which the key may be used. The IP address of a call is the address that API Gateway
        /// reports.
        networks: Option<Vec<SourceNetwork>> = {"minItems": 1, "maxItems": 10, "uniqueItems": true},
        /// The time at which the key expires, in the future.
        expires_at: Option<Timestamp>,
    }
}

purser_api::field! {
    /// A service's slug or UUID.
    pub(crate) struct Reference(String):
    |value| <Text<128> as Field>::read(value).map(|text| text.0),
    <Text<128> as Field>::schema()
}

impl Listed for Reference {
    const NAME: &'static str = "ServiceReference";

    fn item_schema() -> Value {
        json!({"description": "The slug or the UUID of a service in the catalog.", "example": "lab-search"})
    }
}

/// Parses and validates a scope. A field that can't be parsed has no further validation errors.
pub(crate) fn parse_scope(body: &Value, catalog: &Catalog, now: Timestamp) -> purser_domain::Result<KeyScope> {
    let mut errors = ValidationErrors::default();
    let request = NewKeyBody::read(body, BodyPath::Body, &mut errors).map(|body| RequestedScope {
        permissions: body.permissions,
        services: body
            .services
            .map(|services| services.into_iter().map(|service| service.0).collect()),
        networks: body.networks,
        expires_at: body.expires_at,
    });
    let scope = request.and_then(|request| {
        let judged = request.validate(catalog, now);
        judged.map_err(|found| errors.extend(found)).ok()
    });
    errors.finish(scope)
}

purser_api::body! {
    /// How long the old key remains valid after a rotation.
    pub(crate) struct Rotate as "RotateBody" {
        /// The number of seconds for which the old key remains valid. With 0, the old key ends at once. If the old key
        /// expires earlier, its expiry time stays.
        overlap_seconds: Overlap,
    }
}

purser_api::field! {
    /// The duration for which the old key remains valid.
    pub(crate) struct Overlap(Duration):
    |value| {
        let longest = Agent::MAX_KEY_OVERLAP;
        let overlap = parse_seconds(value).filter(|overlap| *overlap <= longest);
        overlap.ok_or_else(|| format!("must be a whole number of seconds from 0 to {}", longest.secs()))
    },
    json!({"type": "integer", "format": "int32", "minimum": 0, "maximum": Agent::MAX_KEY_OVERLAP.secs()})
}

fn new_key_view(key: IssuedKey, now: Timestamp) -> NewKeyView {
    let agent = key.agent.agent();
    NewKeyView {
        agent_id: agent.id,
        version: agent.version,
        record: KeyView::new(agent.id, &key.key, key.key.status(now)),
        key: key.text,
    }
}

/// List an agent's keys.
#[endpoint(
    get "/agents/{agentId}/keys", body = KeyList, returns = "A page of the list, newest first.",
    headers(("ETag" = String, description = "The agent's version, for `If-Match`."))
)]
pub(crate) async fn list_keys(people: PeopleState, owned: OwnedAgent) -> Reply {
    let keys = people.list_keys(&owned).await?;
    let Agent { id, version, .. } = *owned.agent();
    let keys = keys.iter().map(|key| ListedKeyView::new(id, key));
    Ok(with_etag(version, Json(KeyList::from_items(id, version, keys))))
}

/// Create a key.
///
/// Only this response contains the secret. An agent has at most 20 active keys. A key without limits has all
/// permissions of the agent.
#[endpoint(
    post "/agents/{agentId}/keys", status = 201, body = NewKeyView, returns = "The key.",
    headers(("ETag" = String, description = "The agent's version, for `If-Match`.")),
    links(
                ("rotate" = (operation_id = "rotate_key", parameters(("agentId" = "$response.body#/agent_id"), ("keyId" = "$response.body#/key_id"), ("If-Match" = "$response.header.ETag")))),
                ("revoke" = (operation_id = "revoke_key", parameters(("agentId" = "$response.body#/agent_id"), ("keyId" = "$response.body#/key_id"), ("If-Match" = "$response.header.ETag")))),
            ),
    errors(RecentSignInRequired)
)]
pub(crate) async fn create_key(
    people: PeopleState,
    owned: OwnedAgent,
    if_match: IfMatch,
    body: OptionalBody<NewKeyBody>,
) -> Reply {
    let edition = people.current_catalog().await?;
    let scope = body
        .json()
        .and_then(|body| parse_scope(&body, &edition.catalog, people.now()));
    let (scope, if_match) = combine_results_and_errors(scope, if_match.into_precondition())?;
    let key = people.create_key(owned, if_match, scope).await?;
    let key = new_key_view(key, people.now());
    Ok(created_response(with_etag(key.version, Json(key))))
}

/// Rotate a key.
///
/// A new key with the same scope replaces the old key. The old key and its runs remain valid until the overlap ends. A
/// grant can't be rotated, because the client renews its tokens itself, and neither can a run's key.
#[endpoint(
    post "/agents/{agentId}/keys/{keyId}/rotate", status = 201, body = RotationView,
    returns = "The new key, and the old key with the time at which it ends.",
    headers(("ETag" = String, description = "The agent's version, for `If-Match`.")), errors(RecentSignInRequired)
)]
pub(crate) async fn rotate_key(
    people: PeopleState,
    owned: OwnedAgent,
    Id(key): Id<KeyId>,
    if_match: IfMatch,
    body: Body<Rotate>,
) -> Reply {
    let key = require_existing_key(owned.agent(), key)?;
    let rotate = body.parse();
    let (rotate, if_match) = combine_results_and_errors(rotate, if_match.into_precondition())?;
    let rotation = people
        .rotate_key(owned, if_match, key, rotate.overlap_seconds.0)
        .await?;
    let now = people.now();
    let (agent, replaced) = (rotation.issued.agent.agent().id, rotation.replaced);
    let view = RotationView {
        replaced: KeyView::new(agent, &replaced, replaced.status(now)),
        new: new_key_view(rotation.issued, now),
    };
    Ok(created_response(with_etag(view.new.version, Json(view))))
}

/// Revoke a key. The key is rejected at once, and the keys of the runs that it opened.
#[endpoint(
    delete "/agents/{agentId}/keys/{keyId}", body = RevokedKeyView, returns = "The revoked key.",
    headers(("ETag" = String, description = "The agent's version, for `If-Match`."))
)]
pub(crate) async fn revoke_key(people: PeopleState, owned: OwnedAgent, Id(key): Id<KeyId>, if_match: IfMatch) -> Reply {
    let key = require_existing_key(owned.agent(), key)?;
    let (owned, key) = people.revoke_key(owned, if_match.into_precondition()?, key).await?;
    Ok(revoked_key_response(owned.agent(), &key, people.now()))
}

pub(crate) fn revoked_key_response(agent: &Agent, key: &AgentKey, now: Timestamp) -> Response {
    let Agent { id, version, .. } = *agent;
    let record = KeyView::new(id, key, key.status(now));
    let view = RevokedKeyView {
        agent_id: id,
        version,
        record,
    };
    with_etag(version, Json(view))
}

/// Handlers call this first, so that an unknown key is 404 regardless of other errors.
fn require_existing_key(agent: &Agent, id: KeyId) -> purser_domain::Result<KeyId> {
    require_id(Some(id).filter(|id| agent.find_key(*id).is_some()))
}
