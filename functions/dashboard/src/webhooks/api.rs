//! JSON API for the webhooks that receive a user's events.

use crate::caller::Caller;
use crate::cursor;
use crate::request::{combine_results_and_errors, created_response, parse_page_request};
use crate::state::PeopleState;
use crate::webhooks::operations::{IssuedWebhook, OwnWebhook};
use axum::Json;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use purser_api::{Body, Id, IfMatch, Listed, Member as _, Query, Reply, ShownText, WEB, endpoint, view, with_etag};
use purser_domain::{
    AgentId, Delivery, DeliveryId, EventId, EventKind, SecretValidity, Timestamp, WebhookContentType, WebhookId,
    WebhookSettings, WebhookUrl,
};
use serde_json::{Value, json};

purser_api::views! {
    /// A webhook, without its secrets.
    pub(crate) struct WebhookView {
        fn from(OwnWebhook {
            webhook,
            gone_at,
            failed,
        }: &OwnWebhook);
        let terms = &webhook.terms;
        let kinds = terms.kinds.as_ref();
        let agents = terms.agents.as_ref();

        webhook_id: WebhookId = webhook.id,
        /// The webhook's version. Each update increases the version. Send it in `If-Match`.
        version: u64 = webhook.version,
        #[schema(example = "https://hooks.example.com/purser")]
        url: String = terms.url.to_string(),
        description: Option<String> = terms.description.clone(),
        /// The event kinds that the webhook receives. Null for all kinds.
        kinds: Option<Vec<&'static str>> = kinds.map(|kinds| kinds.iter().map(|kind| kind.name()).collect()),
        /// The agents whose events the webhook receives. Null for all agents.
        agents: Option<Vec<AgentId>> = agents.map(|agents| agents.iter().copied().collect()),
        /// Whether the webhook receives events.
        enabled: bool = terms.enabled,
        /// The `Content-Type` header of each delivery.
        #[schema(example = "application/json")]
        content_type: &'static str = terms.content_type.name(),
        /// When deliveries were stopped, because the webhook receiver responded 410 or all calls failed for five days.
        /// An update with `enabled: true` resumes deliveries, even if nothing else changes. Null while deliveries are
        /// made.
        gone_at: Option<Timestamp> = *gone_at,
        /// The time of the first failed call since the last successful call. Null if the last call succeeded.
        failing_since: Option<Timestamp> = failed.as_ref().map(|calls| calls.since),
        created_at: Timestamp = webhook.created_at,
        /// The webhook's secrets, oldest first. Each call is signed with all secrets that have not ended.
        secrets: Vec<SecretView> = webhook.secrets.iter().map(Into::into).collect(),
    }

    /// The period in which a webhook secret signs calls. The secret itself is not shown.
    pub(crate) struct SecretView as WebhookSecret {
        fn from(validity: &SecretValidity);

        created_at: Timestamp = validity.created_at,
        /// When the secret stops signing calls. Null for the newest secret.
        ends_at: Option<Timestamp> = validity.ends_at,
    }
}

/// The user's webhooks, oldest first.
#[view]
pub(crate) struct WebhookList {
    webhooks: Vec<WebhookView>,
    /// The number of webhooks in this response.
    count: usize,
}

purser_api::views! {
    /// A webhook with a new secret.
    pub(crate) struct NewWebhookView {
        fn from(webhook: IssuedWebhook);

        /// The secret with which the webhook receiver verifies calls, with any Standard Webhooks library. The secret is
        /// shown only in this response.
        #[schema(example = "whsec_<secret>")]
        secret: String = webhook.secret,
        #[serde(flatten)]
        webhook: WebhookView = (&webhook.own).into(),
    }
}

/// The ID of the webhook that was removed.
#[view]
pub(crate) struct RemovedWebhook {
    webhook_id: WebhookId,
}

purser_api::views! {
    /// The delivery of an event to a webhook.
    pub(crate) struct DeliveryView as WebhookDelivery {
        fn from(delivery: &Delivery);
        let last = delivery.last.as_ref();

        delivery_id: DeliveryId = delivery.id,
        /// The event's id, sent in each call's `webhook-id` header.
        event_id: EventId = delivery.event_id,
        #[schema(example = "purser.approval.asked.v1")]
        kind: &'static str = delivery.kind.name(),
        /// `waiting`, `delivered`, or `failed` if no further call will be made.
        #[schema(value_type = String, example = "delivered")]
        status: &'static str = delivery.state.name(),
        /// The number of calls since the delivery was created, or since you last requested the delivery again.
        attempts: u32 = delivery.attempts,
        /// The time of the last call. Null before the first call.
        last_attempt_at: Option<Timestamp> = last.map(|last| last.at),
        /// The last call's result: `status_<number>`, `timeout`, `unreachable`, `unknown_host` or `blocked_address`.
        /// Null before the first call.
        #[schema(example = "status_200")]
        last_result: Option<String> = last.map(|last| last.result.to_string()),
        /// The last call's duration in milliseconds. Null before the first call.
        last_latency_ms: Option<u64> = last.map(|last| last.took.millis()),
        /// The time of the next call. Null if no further call will be made.
        next_attempt_at: Option<Timestamp> = delivery.next_at,
    }
}

/// A webhook's deliveries, newest event first. Deliveries are kept for 30 days.
#[view(WebhookDeliveryList)]
pub(crate) struct DeliveryList {
    deliveries: Vec<DeliveryView>,
    /// The number of deliveries in this response.
    count: usize,
    /// The `cursor` of the next page. Null on the last page.
    next_cursor: Option<String>,
}

/// The ID of a delivery that was queued. Purser sends queued deliveries in the background.
#[view(SentWebhookDelivery)]
pub(crate) struct SentDelivery {
    delivery_id: DeliveryId,
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
    |value| value.as_str().and_then(WebhookContentType::from_name).ok_or_else(WebhookContentType::allowed_names_message),
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
#[endpoint(get "/webhooks", returns = "Your webhooks, oldest first.")]
pub(crate) async fn list_webhooks(people: PeopleState, user: Caller) -> Reply<Json<WebhookList>> {
    Ok(Json(WebhookList::from_items(
        people.list_webhooks(&user).await?.iter().map(Into::into),
    )))
}

/// Create a webhook.
///
/// The secret is only in this response. Calls are signed according to Standard Webhooks 1.0.0.
#[endpoint(
    post "/webhooks", status = 201, body = NewWebhookView, returns = "The webhook.", etag = "webhook",
    links(
                ("read" = (operation_id = "read_webhook", parameters(("webhookId" = "$response.body#/webhook_id")))),
                ("replace" = (operation_id = "replace_webhook", parameters(("webhookId" = "$response.body#/webhook_id"), ("If-Match" = "$response.header.ETag")))),
                ("rotate" = (operation_id = "rotate_webhook_secret", parameters(("webhookId" = "$response.body#/webhook_id"), ("If-Match" = "$response.header.ETag")))),
                ("test" = (operation_id = "test_webhook", parameters(("webhookId" = "$response.body#/webhook_id")))),
                ("deliveries" = (operation_id = "list_webhook_deliveries", parameters(("webhookId" = "$response.body#/webhook_id")))),
                ("remove" = (operation_id = "remove_webhook", parameters(("webhookId" = "$response.body#/webhook_id"), ("If-Match" = "$response.header.ETag")))),
            ),
    errors(RecentSignInRequired)
)]
pub(crate) async fn create_webhook(people: PeopleState, user: Caller, body: Body<WebhookBody>) -> Reply {
    let terms = parse_webhook_settings(&body.json()?)?;
    let issued = people.create_webhook(&user, terms, None).await?;
    Ok(created_response(secret_response(issued)))
}

/// Read a webhook.
#[endpoint(get "/webhooks/{webhookId}", body = WebhookView, returns = "The webhook.", etag = "webhook")]
pub(crate) async fn read_webhook(people: PeopleState, user: Caller, Id(webhook): Id<WebhookId>) -> Reply {
    let own = people.read_own_webhook(&user, webhook).await?;
    Ok(webhook_response(&own))
}

/// Replace a webhook's URL, event kinds and agents.
///
/// A change of the settings also resumes deliveries that were stopped because the webhook receiver responded 410 or all
/// calls failed for five days. To resume deliveries without a change, send `enabled: true`.
#[endpoint(
    put "/webhooks/{webhookId}", body = WebhookView, returns = "The updated webhook.", etag = "webhook",
    errors(RecentSignInRequired)
)]
pub(crate) async fn replace_webhook(
    people: PeopleState,
    user: Caller,
    Id(webhook): Id<WebhookId>,
    if_match: IfMatch,
    body: Body<WebhookBody>,
) -> Reply {
    let own = people.read_own_webhook(&user, webhook).await?;
    let resumes = |body: &Value| body.get("enabled").and_then(Value::as_bool) == Some(true);
    let terms = body
        .json()
        .and_then(|body| Ok((parse_webhook_settings(&body)?, resumes(&body))));
    let ((terms, resumes), if_match) = combine_results_and_errors(terms, if_match.into_precondition())?;
    let own = people.update_webhook(&user, own, if_match, &terms, resumes).await?;
    Ok(webhook_response(&own))
}

/// Remove a webhook immediately.
///
/// Pending deliveries are not made.
#[endpoint(delete "/webhooks/{webhookId}", returns = "The webhook was removed.")]
pub(crate) async fn remove_webhook(
    people: PeopleState,
    user: Caller,
    Id(webhook): Id<WebhookId>,
    if_match: IfMatch,
) -> Reply<Json<RemovedWebhook>> {
    let own = people.read_own_webhook(&user, webhook).await?;
    let webhook_id = own.webhook.id;
    people.remove_webhook(&user, own, if_match.into_precondition()?).await?;
    Ok(Json(RemovedWebhook { webhook_id }))
}

/// Replace a webhook's secret.
///
/// The new secret is only in this response. For one day, each call is also signed with the old secret, so that your
/// webhook receiver can switch to the new secret without losing events.
#[endpoint(
    post "/webhooks/{webhookId}/rotate", body = NewWebhookView, returns = "The webhook and the new secret.",
    etag = "webhook", errors(RecentSignInRequired)
)]
pub(crate) async fn rotate_webhook_secret(
    people: PeopleState,
    user: Caller,
    Id(webhook): Id<WebhookId>,
    if_match: IfMatch,
) -> Reply {
    let own = people.read_own_webhook(&user, webhook).await?;
    let issued = people
        .rotate_webhook_secret(&user, own, if_match.into_precondition()?)
        .await?;
    Ok(secret_response(issued))
}

/// Send a test event to a webhook, regardless of its event kinds.
#[endpoint(post "/webhooks/{webhookId}/test", status = 202, body = SentDelivery, returns = "The delivery is queued.")]
pub(crate) async fn test_webhook(people: PeopleState, user: Caller, Id(webhook): Id<WebhookId>) -> Reply {
    let own = people.read_own_webhook(&user, webhook).await?;
    let delivery = people.test_webhook(&user, &own).await?;
    Ok(accepted_delivery_response(delivery))
}

/// List a webhook's deliveries.
#[endpoint(
    get "/webhooks/{webhookId}/deliveries",
    params(
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "The maximum number of items. The default is 25."),
        ("cursor" = Option<String>, Query, pattern = "^[0-9a-f]{32}$", description = "The `next_cursor` of an earlier response."),
    ),
    returns = "The webhook's deliveries, newest event first."
)]
pub(crate) async fn list_webhook_deliveries(
    people: PeopleState,
    user: Caller,
    Id(webhook): Id<WebhookId>,
    uri: Uri,
) -> Reply<Json<DeliveryList>> {
    let own = people.read_own_webhook(&user, webhook).await?;
    let mut query = Query::from_uri(&uri);
    let page_request = parse_page_request(&mut query, cursor::parse_uuid_cursor);
    query.finish()?;
    let page = people.list_deliveries(&own, page_request).await?;
    Ok(Json(DeliveryList::from_items(
        page.items.iter().map(Into::into),
        page.next.map(cursor::format_uuid_cursor),
    )))
}

/// Send a delivery again with the same `webhook-id`, even if it succeeded.
#[endpoint(
    post "/webhooks/{webhookId}/deliveries/{deliveryId}/redeliver", status = 202, body = SentDelivery,
    returns = "The delivery is queued."
)]
pub(crate) async fn redeliver_webhook_delivery(
    people: PeopleState,
    user: Caller,
    Id(webhook): Id<WebhookId>,
    Id(delivery): Id<DeliveryId>,
) -> Reply {
    let own = people.read_own_webhook(&user, webhook).await?;
    people.redeliver(&user, &own, delivery).await?;
    Ok(accepted_delivery_response(delivery))
}

fn webhook_response(owned_webhook: &OwnWebhook) -> Response {
    with_etag(owned_webhook.webhook.version, Json(WebhookView::from(owned_webhook)))
}

fn secret_response(webhook: IssuedWebhook) -> Response {
    with_etag(webhook.own.webhook.version, Json(NewWebhookView::from(webhook)))
}

fn accepted_delivery_response(delivery: DeliveryId) -> Response {
    (StatusCode::ACCEPTED, Json(SentDelivery { delivery_id: delivery })).into_response()
}
