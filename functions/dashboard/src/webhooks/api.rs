//! JSON API for the webhooks that receive a user's events.

use crate::caller::Caller;
use crate::cursor;
use crate::request::{body_with_version, created_response, parse_page_request};
use crate::state::People;
use crate::webhooks::operations::{IssuedWebhook, OwnWebhook};
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use purser_api::{Body, Failure, Id, IfMatch, Listed, Member as _, Query, ShownText, WEB, errors, with_etag};
use purser_domain::{
    AgentId, Delivery, DeliveryId, EventKind, SecretValidity, WebhookContentType, WebhookId, WebhookSettings,
    WebhookUrl,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use utoipa::ToSchema;

/// A webhook, without its secrets.
#[derive(Serialize, ToSchema)]
#[schema(as = Webhook)]
pub(crate) struct WebhookView {
    #[schema(value_type = uuid::Uuid)]
    webhook_id: String,
    /// The webhook's version. Each update increases the version. Send it in `If-Match`.
    version: u64,
    #[schema(example = "https://hooks.example.com/purser")]
    url: String,
    #[schema(required)]
    description: Option<String>,
    /// The event kinds that the webhook receives. Null for all kinds.
    #[schema(required)]
    kinds: Option<Vec<&'static str>>,
    /// The agents whose events the webhook receives. Null for all agents.
    #[schema(value_type = Option<Vec<uuid::Uuid>>, required)]
    agents: Option<Vec<String>>,
    /// Whether the webhook receives events.
    enabled: bool,
    /// The `Content-Type` header of each delivery.
    #[schema(example = "application/json")]
    content_type: &'static str,
    /// When deliveries were stopped, because the webhook receiver responded 410 or all calls failed for five days. An
    /// update with `enabled: true` resumes deliveries, even if nothing else changes. Null while deliveries are made.
    #[schema(format = DateTime, required)]
    gone_at: Option<String>,
    /// The time of the first failed call since the last successful call. Null if the last call succeeded.
    #[schema(format = DateTime, required)]
    failing_since: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
    /// The webhook's secrets, oldest first. Each call is signed with all secrets that have not ended.
    secrets: Vec<SecretView>,
}

/// The period in which a webhook secret signs calls. The secret itself is not shown.
#[derive(Serialize, ToSchema)]
#[schema(as = WebhookSecret)]
pub(crate) struct SecretView {
    #[schema(format = DateTime)]
    created_at: String,
    /// When the secret stops signing calls. Null for the newest secret.
    #[schema(format = DateTime, required)]
    ends_at: Option<String>,
}

impl From<&SecretValidity> for SecretView {
    fn from(validity: &SecretValidity) -> Self {
        Self {
            created_at: validity.created_at.to_string(),
            ends_at: validity.ends_at.map(|at| at.to_string()),
        }
    }
}

impl From<&OwnWebhook> for WebhookView {
    fn from(
        OwnWebhook {
            webhook,
            gone_at,
            failed,
        }: &OwnWebhook,
    ) -> Self {
        let terms = &webhook.terms;
        let kinds = terms.kinds.as_ref();
        let agents = terms.agents.as_ref();
        Self {
            webhook_id: webhook.id.to_string(),
            version: webhook.version,
            url: terms.url.to_string(),
            description: terms.description.clone(),
            kinds: kinds.map(|kinds| kinds.iter().map(|kind| kind.name()).collect()),
            agents: agents.map(|agents| agents.iter().map(ToString::to_string).collect()),
            enabled: terms.enabled,
            content_type: terms.content_type.name(),
            gone_at: gone_at.map(|at| at.to_string()),
            failing_since: failed.as_ref().map(|calls| calls.since.to_string()),
            created_at: webhook.created_at.to_string(),
            secrets: webhook.secrets.iter().map(Into::into).collect(),
        }
    }
}

/// The user's webhooks, oldest first.
#[derive(Serialize, ToSchema)]
#[schema(as = WebhookList)]
pub(crate) struct WebhookList {
    webhooks: Vec<WebhookView>,
    /// The number of webhooks in this response.
    count: usize,
}

/// A webhook with a new secret.
#[derive(Serialize, ToSchema)]
#[schema(as = NewWebhook)]
pub(crate) struct NewWebhookView {
    /// The secret with which the webhook receiver verifies calls, with any Standard Webhooks library. The secret is
    /// shown only in this response.
    #[schema(example = "whsec_<secret>")]
    secret: String,
    #[serde(flatten)]
    webhook: WebhookView,
}

impl From<IssuedWebhook> for NewWebhookView {
    fn from(webhook: IssuedWebhook) -> Self {
        Self {
            secret: webhook.secret,
            webhook: (&webhook.own).into(),
        }
    }
}

/// The ID of the webhook that was removed.
#[derive(Serialize, ToSchema)]
#[schema(as = RemovedWebhook)]
pub(crate) struct RemovedWebhook {
    #[schema(value_type = uuid::Uuid)]
    webhook_id: String,
}

/// The delivery of an event to a webhook.
#[derive(Serialize, ToSchema)]
#[schema(as = WebhookDelivery)]
pub(crate) struct DeliveryView {
    #[schema(value_type = uuid::Uuid)]
    delivery_id: String,
    /// The event's id, sent in each call's `webhook-id` header.
    #[schema(value_type = uuid::Uuid)]
    event_id: String,
    #[schema(example = "purser.approval.asked.v1")]
    kind: &'static str,
    /// `waiting`, `delivered`, or `failed` if no further call will be made.
    #[schema(value_type = String, example = "delivered")]
    status: &'static str,
    /// The number of calls since the delivery was created, or since you last requested the delivery again.
    attempts: u32,
    /// The time of the last call. Null before the first call.
    #[schema(format = DateTime, required)]
    last_attempt_at: Option<String>,
    /// The last call's result: `status_<number>`, `timeout`, `unreachable`, `unknown_host` or `blocked_address`. Null
    /// before the first call.
    #[schema(required, example = "status_200")]
    last_result: Option<String>,
    /// The last call's duration in milliseconds. Null before the first call.
    #[schema(required)]
    last_latency_ms: Option<u64>,
    /// The time of the next call. Null if no further call will be made.
    #[schema(format = DateTime, required)]
    next_attempt_at: Option<String>,
}

impl From<&Delivery> for DeliveryView {
    fn from(delivery: &Delivery) -> Self {
        let last = delivery.last.as_ref();
        Self {
            delivery_id: delivery.id.to_string(),
            event_id: delivery.event_id.to_string(),
            kind: delivery.kind.name(),
            status: delivery.state.name(),
            attempts: delivery.attempts,
            last_attempt_at: last.map(|last| last.at.to_string()),
            last_result: last.map(|last| last.result.to_string()),
            last_latency_ms: last.map(|last| last.took.millis()),
            next_attempt_at: delivery.next_at.map(|at| at.to_string()),
        }
    }
}

/// A webhook's deliveries, newest event first. Deliveries are kept for 30 days.
#[derive(Serialize, ToSchema)]
#[schema(as = WebhookDeliveryList)]
pub(crate) struct DeliveryList {
    deliveries: Vec<DeliveryView>,
    /// The number of deliveries in this response.
    count: usize,
    /// The `cursor` of the next page. Null on the last page.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// The ID of a delivery that was queued. Purser sends queued deliveries in the background.
#[derive(Serialize, ToSchema)]
#[schema(as = SentWebhookDelivery)]
pub(crate) struct SentDelivery {
    #[schema(value_type = uuid::Uuid)]
    delivery_id: String,
}

purser_api::field! {
    /// The URL that a webhook calls.
    pub(crate) struct HookUrl(WebhookUrl):
    |value| value.as_str().and_then(WebhookUrl::parse).ok_or_else(|| WebhookUrl::FORM.to_owned()),
    json!({
        "type": "string",
        "format": "uri",
        "pattern": WEB,
        "maxLength": WebhookUrl::MAX,
        "example": "https://hooks.example.com/purser",
    })
}

purser_api::field! {
    /// An event kind that a webhook can receive.
    pub(crate) struct HookKind(EventKind):
    |value| {
        let kind = value.as_str().and_then(EventKind::from_name).filter(|kind| kind.is_for_webhooks());
        kind.ok_or_else(|| format!("must be one of: {}", webhook_event_kinds().collect::<Vec<_>>().join(", ")))
    },
    json!({"type": "string", "pattern": format!("^({})$", webhook_event_kinds().map(|kind| kind.replace('.', "\\.")).collect::<Vec<_>>().join("|"))})
}

impl Listed for HookKind {
    const NAME: &'static str = "WebhookEventKind";

    fn item_schema() -> Value {
        json!({"description": "An event type; docs/events.md lists them.", "example": "purser.approval.asked.v1"})
    }
}

purser_api::field! {
    /// The id of an agent whose events the webhook receives.
    pub(crate) struct HookAgent(AgentId):
    |value| value.as_str().and_then(AgentId::parse).ok_or_else(|| "must be a UUID".to_owned()),
    json!({"type": "string", "format": "uuid"})
}

impl Listed for HookAgent {
    const NAME: &'static str = "WebhookAgent";

    fn item_schema() -> Value {
        json!({"description": "The ID of an agent. Events of agents that you don't own are not sent."})
    }
}

purser_api::field! {
    /// The `Content-Type` header of a webhook's deliveries.
    pub(crate) struct HookContentType(WebhookContentType):
    |value| value.as_str().and_then(WebhookContentType::from_name).ok_or_else(WebhookContentType::choices_message),
    json!({
        "type": "string",
        // An `enum` would exclude null.
        "pattern": "^application/(cloudevents\\+)?json$",
        "default": WebhookContentType::CloudEvents.name(),
    })
}

fn webhook_event_kinds() -> impl Iterator<Item = &'static str> {
    let kinds = EventKind::ALL.iter().filter(|kind| kind.is_for_webhooks());
    kinds.map(|kind| kind.name())
}

purser_api::body! {
    /// A webhook's settings. A webhook without `kinds` and `agents` receives all events of all agents.
    pub(crate) struct WebhookBody {
        /// An https URL on the public internet, without user name, password or fragment.
        url: HookUrl,
        /// A description that the dashboard shows.
        description: Option<ShownText<200>>,
        /// The event kinds that the webhook receives. If absent, all kinds.
        kinds: Option<Vec<HookKind>> = {"minItems": 1},
        /// The agents whose events the webhook receives. If absent, all agents.
        agents: Option<Vec<HookAgent>> = {"minItems": 1, "maxItems": WebhookSettings::MAX_AGENTS},
        /// Whether the webhook receives events. The default is true.
        enabled: Option<bool>,
        /// The `Content-Type` header of each delivery. The body is the same for all values.
        content_type: Option<HookContentType>,
    }
}

/// The caller must check whether the URL may be called.
pub(crate) fn parse_webhook_settings(body: &Value) -> purser_domain::Result<WebhookSettings> {
    let body = WebhookBody::parse(body)?;
    let terms = WebhookSettings {
        url: body.url.0,
        description: body.description.map(|text| text.0),
        kinds: body.kinds.map(|kinds| kinds.into_iter().map(|kind| kind.0).collect()),
        agents: body
            .agents
            .map(|agents| agents.into_iter().map(|agent| agent.0).collect()),
        enabled: body.enabled.unwrap_or(true),
        content_type: body
            .content_type
            .map_or(WebhookContentType::CloudEvents, |value| value.0),
    };
    let errors = terms.validation_errors();
    if errors.is_empty() {
        Ok(terms)
    } else {
        Err(purser_domain::Error::invalid(errors))
    }
}

/// List your webhooks.
#[utoipa::path(
    get, path = "/webhooks", operation_id = "list_webhooks",
    responses((status = 200, body = WebhookList, description = "Your webhooks, oldest first."))
)]
pub(crate) async fn list_webhooks(
    State(people): State<Arc<People>>,
    user: Caller,
) -> Result<Json<WebhookList>, Failure> {
    let webhooks: Vec<WebhookView> = people.list_webhooks(&user).await?.iter().map(Into::into).collect();
    Ok(Json(WebhookList {
        count: webhooks.len(),
        webhooks,
    }))
}

/// Create a webhook.
///
/// The secret is only in this response. Calls are signed according to Standard Webhooks 1.0.0.
#[utoipa::path(
    post, path = "/webhooks", operation_id = "create_webhook",
    responses(
        (status = 201, body = NewWebhookView, description = "The webhook.", headers(("ETag" = String, description = "The webhook's version. Send it in `If-Match` with the next update.")),
            links(
                ("read" = (operation_id = "read_webhook", parameters(("webhookId" = "$response.body#/webhook_id")))),
                ("replace" = (operation_id = "replace_webhook", parameters(("webhookId" = "$response.body#/webhook_id"), ("If-Match" = "$response.header.ETag")))),
                ("rotate" = (operation_id = "rotate_webhook_secret", parameters(("webhookId" = "$response.body#/webhook_id"), ("If-Match" = "$response.header.ETag")))),
                ("test" = (operation_id = "test_webhook", parameters(("webhookId" = "$response.body#/webhook_id")))),
                ("deliveries" = (operation_id = "list_webhook_deliveries", parameters(("webhookId" = "$response.body#/webhook_id")))),
                ("remove" = (operation_id = "remove_webhook", parameters(("webhookId" = "$response.body#/webhook_id"), ("If-Match" = "$response.header.ETag")))),
            )),
        errors::RecentSignInRequired,
    )
)]
pub(crate) async fn create_webhook(
    State(people): State<Arc<People>>,
    user: Caller,
    body: Body<WebhookBody>,
) -> Result<Response, Failure> {
    let terms = parse_webhook_settings(&body.json()?)?;
    let issued = people.create_webhook(&user, terms, None).await?;
    Ok(created_response(secret_response(issued)))
}

/// Read a webhook.
#[utoipa::path(
    get, path = "/webhooks/{webhookId}", operation_id = "read_webhook",
    responses(
        (status = 200, body = WebhookView, description = "The webhook.", headers(("ETag" = String, description = "The webhook's version. Send it in `If-Match` with the next update."))),
    )
)]
pub(crate) async fn read_webhook(
    State(people): State<Arc<People>>,
    user: Caller,
    Id(webhook): Id<WebhookId>,
) -> Result<Response, Failure> {
    let own = people.read_own_webhook(&user, webhook).await?;
    Ok(webhook_response(&own))
}

/// Replace a webhook's URL, event kinds and agents.
///
/// A change of the settings also resumes deliveries that were stopped because the webhook receiver responded 410 or all
/// calls failed for five days. To resume deliveries without a change, send `enabled: true`.
#[utoipa::path(
    put, path = "/webhooks/{webhookId}", operation_id = "replace_webhook",
    responses(
        (status = 200, body = WebhookView, description = "The updated webhook.", headers(("ETag" = String, description = "The webhook's version. Send it in `If-Match` with the next update."))),
        errors::RecentSignInRequired,
    )
)]
pub(crate) async fn replace_webhook(
    State(people): State<Arc<People>>,
    user: Caller,
    Id(webhook): Id<WebhookId>,
    if_match: IfMatch,
    body: Body<WebhookBody>,
) -> Result<Response, Failure> {
    let own = people.read_own_webhook(&user, webhook).await?;
    let resumes = |body: &Value| body.get("enabled").and_then(Value::as_bool) == Some(true);
    let terms = body
        .json()
        .and_then(|body| Ok((parse_webhook_settings(&body)?, resumes(&body))));
    let ((terms, resumes), if_match) = body_with_version(terms, if_match.into_precondition())?;
    let own = people.update_webhook(&user, own, if_match, &terms, resumes).await?;
    Ok(webhook_response(&own))
}

/// Remove a webhook immediately.
///
/// Pending deliveries are not made.
#[utoipa::path(
    delete, path = "/webhooks/{webhookId}", operation_id = "remove_webhook",
    responses((status = 200, body = RemovedWebhook, description = "The webhook was removed."))
)]
pub(crate) async fn remove_webhook(
    State(people): State<Arc<People>>,
    user: Caller,
    Id(webhook): Id<WebhookId>,
    if_match: IfMatch,
) -> Result<Json<RemovedWebhook>, Failure> {
    let own = people.read_own_webhook(&user, webhook).await?;
    let webhook_id = own.webhook.id.to_string();
    people.remove_webhook(&user, own, if_match.into_precondition()?).await?;
    Ok(Json(RemovedWebhook { webhook_id }))
}

/// Replace a webhook's secret.
///
/// The new secret is only in this response. For one day, each call is also signed with the old secret, so that your
/// webhook receiver can switch to the new secret without losing events.
#[utoipa::path(
    post, path = "/webhooks/{webhookId}/rotate", operation_id = "rotate_webhook_secret",
    responses(
        (status = 200, body = NewWebhookView, description = "The webhook and the new secret.", headers(("ETag" = String, description = "The webhook's version. Send it in `If-Match` with the next update."))),
        errors::RecentSignInRequired,
    )
)]
pub(crate) async fn rotate_webhook_secret(
    State(people): State<Arc<People>>,
    user: Caller,
    Id(webhook): Id<WebhookId>,
    if_match: IfMatch,
) -> Result<Response, Failure> {
    let own = people.read_own_webhook(&user, webhook).await?;
    let issued = people
        .rotate_webhook_secret(&user, own, if_match.into_precondition()?)
        .await?;
    Ok(secret_response(issued))
}

/// Send a test event to a webhook, regardless of its event kinds.
#[utoipa::path(
    post, path = "/webhooks/{webhookId}/test", operation_id = "test_webhook",
    responses((status = 202, body = SentDelivery, description = "The delivery is queued."))
)]
pub(crate) async fn test_webhook(
    State(people): State<Arc<People>>,
    user: Caller,
    Id(webhook): Id<WebhookId>,
) -> Result<Response, Failure> {
    let own = people.read_own_webhook(&user, webhook).await?;
    let delivery = people.test_webhook(&user, &own).await?;
    Ok(delivery_response(delivery))
}

/// List a webhook's deliveries.
#[utoipa::path(
    get, path = "/webhooks/{webhookId}/deliveries", operation_id = "list_webhook_deliveries",
    params(
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "The maximum number of items. The default is 25."),
        ("cursor" = Option<String>, Query, pattern = "^[0-9a-f]{32}$", description = "The `next_cursor` of an earlier response."),
    ),
    responses((status = 200, body = DeliveryList, description = "The webhook's deliveries, newest event first."))
)]
pub(crate) async fn list_webhook_deliveries(
    State(people): State<Arc<People>>,
    user: Caller,
    Id(webhook): Id<WebhookId>,
    uri: Uri,
) -> Result<Json<DeliveryList>, Failure> {
    let own = people.read_own_webhook(&user, webhook).await?;
    let mut query = Query::from_uri(&uri);
    let page_request = parse_page_request(&mut query, cursor::parse_uuid_cursor);
    query.finish()?;
    let page = people.list_deliveries(&own, page_request).await?;
    let deliveries: Vec<DeliveryView> = page.items.iter().map(Into::into).collect();
    Ok(Json(DeliveryList {
        count: deliveries.len(),
        deliveries,
        next_cursor: page.next.map(cursor::format_uuid_cursor),
    }))
}

/// Send a delivery again with the same `webhook-id`, even if it succeeded.
#[utoipa::path(
    post, path = "/webhooks/{webhookId}/deliveries/{deliveryId}/redeliver",
    operation_id = "redeliver_webhook_delivery",
    responses((status = 202, body = SentDelivery, description = "The delivery is queued."))
)]
pub(crate) async fn redeliver_webhook_delivery(
    State(people): State<Arc<People>>,
    user: Caller,
    Id(webhook): Id<WebhookId>,
    Id(delivery): Id<DeliveryId>,
) -> Result<Response, Failure> {
    let own = people.read_own_webhook(&user, webhook).await?;
    people.redeliver(&user, &own, delivery).await?;
    Ok(delivery_response(delivery))
}

fn webhook_response(owned_webhook: &OwnWebhook) -> Response {
    with_etag(owned_webhook.webhook.version, Json(WebhookView::from(owned_webhook)))
}

fn secret_response(webhook: IssuedWebhook) -> Response {
    with_etag(webhook.own.webhook.version, Json(NewWebhookView::from(webhook)))
}

fn delivery_response(delivery: DeliveryId) -> Response {
    let delivery_id = delivery.to_string();
    (StatusCode::ACCEPTED, Json(SentDelivery { delivery_id })).into_response()
}
