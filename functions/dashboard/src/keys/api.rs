//! JSON API for an agent's keys. Only the response that creates a key contains the secret.

use crate::agents::owned::OwnedAgent;
use crate::agents::owned::require_id;
use crate::keys::operations::{IssuedKey, ListedKey};
use crate::request::{body_with_version, created_response};
use crate::state::People;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use purser_api::{
    Body, BodyPath, Failure, Field, Id, IfMatch, Listed, Member as _, OptionalBody, Text, ValidationErrors, errors,
    parse_seconds, with_etag,
};
use purser_domain::{
    Agent, AgentId, AgentKey, Catalog, Duration, KeyId, KeyScope, KeyStatus, Permission, RequestedScope, SourceNetwork,
    Timestamp,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use utoipa::ToSchema;

/// A key, without its secret.
#[derive(Serialize, ToSchema)]
#[schema(as = AgentKey)]
pub(crate) struct KeyView {
    #[schema(example = "00c0ffee00c0ffee")]
    key_id: String,
    /// The part of the key before the colon, which is not secret.
    #[schema(example = "gak_pub_6f2f6e0c000040008000000000000001000c0ffee00c0ffee")]
    public_key: String,
    /// `active`, `ending` (rotated, but accepted until `ends_at`) or `ended`.
    #[schema(value_type = String, example = "active")]
    status: &'static str,
    #[schema(format = DateTime)]
    created_at: String,
    /// The time from which a rotated or revoked key is rejected. Null for all other keys.
    #[schema(format = DateTime, required)]
    ends_at: Option<String>,
    /// The key's permissions: `read` to read lists and policies, `pay` to make payments.
    permissions: Vec<&'static str>,
    /// The UUIDs of the services that the key may pay. Null for all services.
    #[schema(value_type = Option<Vec<uuid::Uuid>>, required)]
    services: Option<Vec<String>>,
    /// The CIDR blocks from which the key may be used. Null for any address.
    #[schema(required)]
    networks: Option<Vec<String>>,
    /// The time at which the key expires. Null if the key does not expire.
    #[schema(format = DateTime, required)]
    expires_at: Option<String>,
}

impl KeyView {
    fn new(agent: AgentId, key: &AgentKey, status: KeyStatus) -> Self {
        Self {
            key_id: key.id.to_string(),
            public_key: key.public_half(agent),
            status: status.name(),
            created_at: key.created_at.to_string(),
            ends_at: key.ends_at.map(|at| at.to_string()),
            permissions: key.scope.permissions().iter().map(|may| may.name()).collect(),
            services: key.scope.services.as_deref().map(to_strings),
            networks: key.scope.networks.as_deref().map(to_strings),
            expires_at: key.scope.expires_at.map(|at| at.to_string()),
        }
    }
}

/// A key with the time of its last use.
#[derive(Serialize, ToSchema)]
#[schema(as = ListedAgentKey)]
pub(crate) struct ListedKeyView {
    #[serde(flatten)]
    record: KeyView,
    /// The time of the key's last use, to the minute. Null if the key was never used, or not used recently.
    #[schema(format = DateTime, required)]
    last_used_at: Option<String>,
}

impl ListedKeyView {
    fn new(agent: AgentId, key: &ListedKey) -> Self {
        Self {
            record: KeyView::new(agent, &key.key, key.status),
            last_used_at: key.last_used_at.map(|at| at.to_string()),
        }
    }
}

/// The agent's keys, newest first, without keys that ended more than 30 days ago.
#[derive(Serialize, ToSchema)]
#[schema(as = AgentKeyList)]
pub(crate) struct KeyList {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    /// The agent's version. Send it as `If-Match`.
    version: u64,
    keys: Vec<ListedKeyView>,
    /// The number of keys in this response.
    count: usize,
}

/// The key that was created, with its secret. No other response contains the secret.
#[derive(Serialize, ToSchema)]
#[schema(as = NewAgentKey)]
pub(crate) struct NewKeyView {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    /// The agent's new version. Send it as `If-Match` with the next update.
    version: u64,
    /// The whole key, including its secret. Save it now: Purser does not store it, and no other response contains it.
    #[schema(example = "gak_pub_<id>:gak_sec_<secret>")]
    key: String,
    #[serde(flatten)]
    record: KeyView,
}

/// The new key that replaces a rotated key.
#[derive(Serialize, ToSchema)]
#[schema(as = RotatedAgentKey)]
pub(crate) struct RotationView {
    #[serde(flatten)]
    new: NewKeyView,
    /// The old key, with the time at which it ends.
    replaced: KeyView,
}

/// The key that was revoked, and the agent's new version.
#[derive(Serialize, ToSchema)]
#[schema(as = RevokedAgentKey)]
pub(crate) struct RevokedKeyView {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    /// The agent's new version. Send it as `If-Match` with the next update.
    version: u64,
    #[serde(flatten)]
    record: KeyView,
}

fn to_strings<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
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
        agent_id: agent.id.to_string(),
        version: agent.version,
        record: KeyView::new(agent.id, &key.key, key.key.status(now)),
        key: key.text,
    }
}

/// List an agent's keys.
#[utoipa::path(
    get, path = "/agents/{agentId}/keys", operation_id = "list_keys",
    responses(
        (status = 200, body = KeyList, description = "A page of the list, newest first.", headers(("ETag" = String, description = "The agent's version, for `If-Match`."))),
    )
)]
pub(crate) async fn list_keys(State(people): State<Arc<People>>, owned: OwnedAgent) -> Result<Response, Failure> {
    let keys = people.list_keys(&owned).await?;
    let Agent { id, version, .. } = *owned.agent();
    let keys: Vec<ListedKeyView> = keys.iter().map(|key| ListedKeyView::new(id, key)).collect();
    let list = KeyList {
        agent_id: id.to_string(),
        version,
        count: keys.len(),
        keys,
    };
    Ok(with_etag(version, Json(list)))
}

/// Create a key.
///
/// Only this response contains the secret. An agent has at most 20 active keys. A key without limits has all
/// permissions of the agent.
#[utoipa::path(
    post, path = "/agents/{agentId}/keys", operation_id = "create_key",
    responses(
        (status = 201, body = NewKeyView, description = "The key.", headers(("ETag" = String, description = "The agent's version, for `If-Match`.")),
            links(
                ("rotate" = (operation_id = "rotate_key", parameters(("agentId" = "$response.body#/agent_id"), ("keyId" = "$response.body#/key_id"), ("If-Match" = "$response.header.ETag")))),
                ("revoke" = (operation_id = "revoke_key", parameters(("agentId" = "$response.body#/agent_id"), ("keyId" = "$response.body#/key_id"), ("If-Match" = "$response.header.ETag")))),
            )),
        errors::RecentSignInRequired,
    )
)]
pub(crate) async fn create_key(
    State(people): State<Arc<People>>,
    owned: OwnedAgent,
    if_match: IfMatch,
    body: OptionalBody<NewKeyBody>,
) -> Result<Response, Failure> {
    let edition = people.current_catalog().await?;
    let scope = body
        .json()
        .and_then(|body| parse_scope(&body, &edition.catalog, people.now()));
    let (scope, if_match) = body_with_version(scope, if_match.into_precondition())?;
    let key = people.create_key(owned, if_match, scope).await?;
    let key = new_key_view(key, people.now());
    Ok(created_response(with_etag(key.version, Json(key))))
}

/// Rotate a key.
///
/// A new key with the same scope replaces the old key. The old key remains valid until the overlap ends.
#[utoipa::path(
    post, path = "/agents/{agentId}/keys/{keyId}/rotate", operation_id = "rotate_key",
    responses(
        (status = 201, body = RotationView, description = "The new key, and the old key with the time at which it ends.", headers(("ETag" = String, description = "The agent's version, for `If-Match`."))),
        errors::RecentSignInRequired,
    )
)]
pub(crate) async fn rotate_key(
    State(people): State<Arc<People>>,
    owned: OwnedAgent,
    Id(key): Id<KeyId>,
    if_match: IfMatch,
    body: Body<Rotate>,
) -> Result<Response, Failure> {
    let key = require_existing_key(owned.agent(), key)?;
    let rotate = body.parse();
    let (rotate, if_match) = body_with_version(rotate, if_match.into_precondition())?;
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

/// Revoke a key. The key is rejected at once.
#[utoipa::path(
    delete, path = "/agents/{agentId}/keys/{keyId}", operation_id = "revoke_key",
    responses(
        (status = 200, body = RevokedKeyView, description = "The revoked key.", headers(("ETag" = String, description = "The agent's version, for `If-Match`."))),
    )
)]
pub(crate) async fn revoke_key(
    State(people): State<Arc<People>>,
    owned: OwnedAgent,
    Id(key): Id<KeyId>,
    if_match: IfMatch,
) -> Result<Response, Failure> {
    let key = require_existing_key(owned.agent(), key)?;
    let (owned, key) = people.revoke_key(owned, if_match.into_precondition()?, key).await?;
    let Agent { id, version, .. } = *owned.agent();
    let view = RevokedKeyView {
        agent_id: id.to_string(),
        version,
        record: KeyView::new(id, &key, key.status(people.now())),
    };
    Ok(with_etag(version, Json(view)))
}

/// Handlers call this first, so that an unknown key is 404 regardless of other errors.
fn require_existing_key(agent: &Agent, id: KeyId) -> purser_domain::Result<KeyId> {
    require_id(Some(id).filter(|id| agent.find_key(*id).is_some()))
}
