//! `/webhooks`: the URLs at which a person's programs receive events, the events, and the results of the calls.

use crate::agents::owned::parse_id;
use crate::cursor;
use crate::request::{created_response, slice, with_version};
use crate::state::People;
use crate::webhooks::operations::{IssuedWebhook, OwnWebhook};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use purser_api::{
    Failure, IfMatch, Listed, Member as _, Query, SessionToken, ShownText, VersionTag, WEB, json_body, with_etag,
};
use purser_domain::{
    AgentId, Delivery, DeliveryId, EventKind, SecretTerm, WebhookContentType, WebhookId, WebhookTerms, WebhookUrl,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use utoipa::ToSchema;

purser_api::error_responses! {
    /// The errors of listing webhooks.
    pub(crate) ListErrors: 401, 403, 429, 500;
    /// The errors of reading a webhook.
    pub(crate) ReadErrors: 401, 403, 404, 429, 500;
    /// The errors of listing a webhook's deliveries.
    pub(crate) DeliveriesErrors: 400, 401, 403, 404, 429, 500;
    /// The errors of creating a webhook.
    pub(crate) CreateErrors: 400, 401, 403, 413, 429, 500;
    /// The errors of replacing a webhook's settings.
    pub(crate) WriteErrors: 400, 401, 403, 404, 412, 413, 428, 429, 500;
    /// The errors of removing a webhook, and of rotating its secret.
    pub(crate) ChangeErrors: 400, 401, 403, 404, 412, 428, 429, 500;
    /// The errors of sending a test event or a delivery to a webhook.
    pub(crate) SendErrors: 401, 403, 404, 429, 500, 503;
}

/// One of the caller's webhooks, without its secrets.
#[derive(Serialize, ToSchema)]
#[schema(as = Webhook)]
pub(crate) struct WebhookView {
    #[schema(value_type = uuid::Uuid)]
    webhook_id: String,
    /// The number of edits.
    version: u64,
    #[schema(example = "https://hooks.example.com/purser")]
    url: String,
    #[schema(required)]
    description: Option<String>,
    /// The kinds of events that are delivered to it; null for all.
    #[schema(required)]
    kinds: Option<Vec<&'static str>>,
    /// The agents whose events are delivered to it; null for all.
    #[schema(value_type = Option<Vec<uuid::Uuid>>, required)]
    agents: Option<Vec<String>>,
    /// Whether events are delivered to it.
    enabled: bool,
    /// The `Content-Type` of its calls.
    #[schema(example = "application/json")]
    content_type: &'static str,
    /// The time since which it is not called: its program responded 410, or its calls have failed for five days. An
    /// update, also one to the same values with `enabled: true`, has it called again.
    #[schema(format = DateTime, required)]
    gone_at: Option<String>,
    /// The time of the first failed call since the last successful one; null if the last call was successful.
    #[schema(format = DateTime, required)]
    failing_since: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
    /// Its secrets, the oldest first. Each signs until its end.
    secrets: Vec<SecretView>,
}

/// The period in which a secret signs.
#[derive(Serialize, ToSchema)]
#[schema(as = WebhookSecret)]
pub(crate) struct SecretView {
    #[schema(format = DateTime)]
    created_at: String,
    /// The end of the period; null for the newest.
    #[schema(format = DateTime, required)]
    ends_at: Option<String>,
}

impl From<&SecretTerm> for SecretView {
    fn from(term: &SecretTerm) -> Self {
        Self {
            created_at: term.created_at.to_string(),
            ends_at: term.ends_at.map(|at| at.to_string()),
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

/// The caller's webhooks, the oldest first.
#[derive(Serialize, ToSchema)]
#[schema(as = WebhookList)]
pub(crate) struct WebhookList {
    webhooks: Vec<WebhookView>,
    /// The number of webhooks in this answer.
    count: usize,
}

/// A webhook with its new secret.
#[derive(Serialize, ToSchema)]
#[schema(as = NewWebhook)]
pub(crate) struct NewWebhookView {
    /// The secret with which the program verifies calls, by any library of Standard Webhooks. It is shown once, here.
    #[schema(example = "whsec_<secret>")]
    secret: String,
    #[serde(flatten)]
    webhook: WebhookView,
}

impl From<IssuedWebhook> for NewWebhookView {
    fn from(issued: IssuedWebhook) -> Self {
        Self {
            secret: issued.secret,
            webhook: (&issued.own).into(),
        }
    }
}

/// A webhook that was removed.
#[derive(Serialize, ToSchema)]
#[schema(as = RemovedWebhook)]
pub(crate) struct RemovedWebhook {
    #[schema(value_type = uuid::Uuid)]
    webhook_id: String,
}

/// The delivery of one event to one webhook.
#[derive(Serialize, ToSchema)]
#[schema(as = WebhookDelivery)]
pub(crate) struct DeliveryView {
    #[schema(value_type = uuid::Uuid)]
    delivery_id: String,
    /// The `webhook-id` of its calls.
    #[schema(value_type = uuid::Uuid)]
    event_id: String,
    #[schema(example = "purser.approval.asked.v1")]
    kind: &'static str,
    /// `waiting`, `delivered`, or `failed`: given up.
    #[schema(value_type = String, example = "delivered")]
    status: &'static str,
    /// The number of calls since the delivery was last requested.
    attempts: u32,
    /// The time of the last call; null if there was none.
    #[schema(format = DateTime, required)]
    last_attempt_at: Option<String>,
    /// `status_<number>`, `timeout`, `unreachable`, `unknown_host` or `blocked_address`.
    #[schema(required, example = "status_200")]
    last_result: Option<String>,
    /// The duration of the last call.
    #[schema(required)]
    last_latency_ms: Option<u64>,
    /// The time of the next call; null if there is none.
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

/// Deliveries of a webhook, the latest event first. They are kept for 30 days.
#[derive(Serialize, ToSchema)]
#[schema(as = WebhookDeliveryList)]
pub(crate) struct DeliveryList {
    deliveries: Vec<DeliveryView>,
    /// The number of deliveries in this answer.
    count: usize,
    /// Send it as `cursor` to read the next page; null at the end.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// A queued delivery.
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
    /// A kind of event that belongs to an owner.
    pub(crate) struct HookKind(EventKind):
    |value| {
        let kind = value.as_str().and_then(EventKind::from_name).filter(|kind| kind.is_for_webhooks());
        kind.ok_or_else(|| format!("must be one of: {}", kinds().collect::<Vec<_>>().join(", ")))
    },
    json!({"type": "string", "pattern": format!("^({})$", kinds().map(|kind| kind.replace('.', "\\.")).collect::<Vec<_>>().join("|"))})
}

impl Listed for HookKind {
    const NAME: &'static str = "WebhookEventKind";

    fn entry() -> Value {
        json!({"description": "An event type; docs/events.md lists them.", "example": "purser.approval.asked.v1"})
    }
}

purser_api::field! {
    /// An agent, by its id.
    pub(crate) struct HookAgent(AgentId):
    |value| value.as_str().and_then(AgentId::parse).ok_or_else(|| "must be a UUID".to_owned()),
    json!({"type": "string", "format": "uuid"})
}

impl Listed for HookAgent {
    const NAME: &'static str = "WebhookAgent";

    fn entry() -> Value {
        json!({"description": "The ID of an agent. Events of agents that you don't own are not sent."})
    }
}

purser_api::field! {
    /// The `Content-Type` of a webhook's calls.
    pub(crate) struct HookContentType(WebhookContentType):
    |value| value.as_str().and_then(WebhookContentType::from_name).ok_or_else(WebhookContentType::choices),
    json!({
        "type": "string",
        // Not an `enum`, which would exclude null.
        "pattern": "^application/(cloudevents\\+)?json$",
        "default": WebhookContentType::CloudEvents.name(),
    })
}

/// The event kinds that a webhook can receive.
fn kinds() -> impl Iterator<Item = &'static str> {
    let kinds = EventKind::ALL.iter().filter(|kind| kind.is_for_webhooks());
    kinds.map(|kind| kind.name())
}

purser_api::body! {
    /// A webhook's URL and events. An absent member sets no limit.
    pub(crate) struct WebhookBody {
        /// An https URL on the public internet, without user, password and fragment.
        url: HookUrl,
        /// A description for people.
        description: Option<ShownText<200>>,
        /// The kinds of events that are delivered to it.
        kinds: Option<Vec<HookKind>> = {"minItems": 1},
        /// The agents whose events are delivered to it.
        agents: Option<Vec<HookAgent>> = {"minItems": 1, "maxItems": WebhookTerms::MAX_AGENTS},
        /// `false`: it is not called. True by default.
        enabled: Option<bool>,
        /// The `Content-Type` of its calls. The body is the same.
        content_type: Option<HookContentType>,
    }
}

/// Parses the terms of a webhook. The operation checks whether its URL may be called.
pub(crate) fn parse_terms(body: &Value) -> purser_domain::Result<WebhookTerms> {
    let body = WebhookBody::parse(body)?;
    let terms = WebhookTerms {
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
    let problems = terms.problems();
    if problems.is_empty() {
        Ok(terms)
    } else {
        Err(purser_domain::Error::invalid(problems))
    }
}

/// List your webhooks.
#[utoipa::path(
    get,
    path = "/webhooks",
    operation_id = "list_webhooks",
    tag = "dashboard",
    security(("session" = [])),
    responses((status = 200, body = WebhookList, description = "The oldest first."), ListErrors)
)]
pub(crate) async fn list(State(people): State<Arc<People>>, token: SessionToken) -> Result<Json<WebhookList>, Failure> {
    let person = people.authenticate(token).await?;
    let webhooks: Vec<WebhookView> = people.webhooks(&person).await?.iter().map(Into::into).collect();
    Ok(Json(WebhookList {
        count: webhooks.len(),
        webhooks,
    }))
}

/// Create a webhook.
///
/// Its secret is in this answer only. Calls are signed according to Standard Webhooks 1.0.0.
#[utoipa::path(
    post,
    path = "/webhooks",
    operation_id = "create_webhook",
    tag = "dashboard",
    security(("session" = [])),
    request_body = WebhookBody,
    responses(
        (status = 201, body = NewWebhookView, description = "The webhook.", headers(("ETag" = String, description = "Its version.")),
            links(
                ("read" = (operation_id = "read_webhook", parameters(("webhookId" = "$response.body#/webhook_id")))),
                ("replace" = (operation_id = "replace_webhook", parameters(("webhookId" = "$response.body#/webhook_id"), ("If-Match" = "$response.header.ETag")))),
                ("rotate" = (operation_id = "rotate_webhook_secret", parameters(("webhookId" = "$response.body#/webhook_id"), ("If-Match" = "$response.header.ETag")))),
                ("test" = (operation_id = "test_webhook", parameters(("webhookId" = "$response.body#/webhook_id")))),
                ("deliveries" = (operation_id = "list_webhook_deliveries", parameters(("webhookId" = "$response.body#/webhook_id")))),
                ("remove" = (operation_id = "remove_webhook", parameters(("webhookId" = "$response.body#/webhook_id"), ("If-Match" = "$response.header.ETag")))),
            )),
        CreateErrors,
    )
)]
pub(crate) async fn create(
    State(people): State<Arc<People>>,
    token: SessionToken,
    body: Bytes,
) -> Result<Response, Failure> {
    let person = people.authenticate(token).await?;
    let terms = parse_terms(&json_body(&body)?)?;
    let issued = people.create_webhook(&person, terms, None).await?;
    Ok(created_response(secret_response(issued)))
}

/// Read a webhook.
#[utoipa::path(
    get,
    path = "/webhooks/{webhookId}",
    operation_id = "read_webhook",
    tag = "dashboard",
    security(("session" = [])),
    params(("webhookId" = String, Path, description = "One of your webhooks.")),
    responses(
        (status = 200, body = WebhookView, description = "The webhook.", headers(("ETag" = String, description = "Its version."))),
        ReadErrors,
    )
)]
pub(crate) async fn read(
    State(people): State<Arc<People>>,
    token: SessionToken,
    Path(webhook): Path<String>,
) -> Result<Response, Failure> {
    let person = people.authenticate(token).await?;
    let own = people
        .own_webhook(&person, parse_id(WebhookId::parse(&webhook))?)
        .await?;
    Ok(webhook_response(&own))
}

/// Replace a webhook's URL, events and agents.
///
/// This also enables a webhook that was disabled by a 410 response, or because its calls failed for five days. If
/// nothing else changes, the body must contain `enabled: true` for that.
#[utoipa::path(
    put,
    path = "/webhooks/{webhookId}",
    operation_id = "replace_webhook",
    tag = "dashboard",
    security(("session" = [])),
    params(
        ("webhookId" = String, Path, description = "One of your webhooks."),
        ("If-Match" = inline(VersionTag), Header, description = "The webhook's version in quotation marks, or `*`."),
    ),
    request_body = WebhookBody,
    responses(
        (status = 200, body = WebhookView, description = "The updated webhook.", headers(("ETag" = String, description = "Its version."))),
        WriteErrors,
    )
)]
pub(crate) async fn replace(
    State(people): State<Arc<People>>,
    token: SessionToken,
    if_match: IfMatch,
    Path(webhook): Path<String>,
    body: Bytes,
) -> Result<Response, Failure> {
    let person = people.authenticate(token).await?;
    let own = people
        .own_webhook(&person, parse_id(WebhookId::parse(&webhook))?)
        .await?;
    let resumes = |body: &Value| body.get("enabled").and_then(Value::as_bool) == Some(true);
    let terms = json_body(&body).and_then(|body| Ok((parse_terms(&body)?, resumes(&body))));
    let ((terms, resumes), if_match) = with_version(terms, if_match.precondition())?;
    let own = people.edit_webhook(&person, own, if_match, &terms, resumes).await?;
    Ok(webhook_response(&own))
}

/// Remove a webhook at once. Its pending deliveries are dropped.
#[utoipa::path(
    delete,
    path = "/webhooks/{webhookId}",
    operation_id = "remove_webhook",
    tag = "dashboard",
    security(("session" = [])),
    params(
        ("webhookId" = String, Path, description = "One of your webhooks."),
        ("If-Match" = inline(VersionTag), Header, description = "The webhook's version in quotation marks, or `*`."),
    ),
    responses((status = 200, body = RemovedWebhook, description = "The webhook is removed."), ChangeErrors)
)]
pub(crate) async fn remove(
    State(people): State<Arc<People>>,
    token: SessionToken,
    if_match: IfMatch,
    Path(webhook): Path<String>,
) -> Result<Json<RemovedWebhook>, Failure> {
    let person = people.authenticate(token).await?;
    let own = people
        .own_webhook(&person, parse_id(WebhookId::parse(&webhook))?)
        .await?;
    let webhook_id = own.webhook.id.to_string();
    people.remove_webhook(&person, own, if_match.precondition()?).await?;
    Ok(Json(RemovedWebhook { webhook_id }))
}

/// Give a webhook a new secret.
///
/// The new secret is in this answer only. For one day each call is also signed with the old secret, so that your
/// program can switch without losing a call.
#[utoipa::path(
    post,
    path = "/webhooks/{webhookId}/rotate",
    operation_id = "rotate_webhook_secret",
    tag = "dashboard",
    security(("session" = [])),
    params(
        ("webhookId" = String, Path, description = "One of your webhooks."),
        ("If-Match" = inline(VersionTag), Header, description = "The webhook's version in quotation marks, or `*`."),
    ),
    responses(
        (status = 200, body = NewWebhookView, description = "The webhook, and its new secret.", headers(("ETag" = String, description = "Its version."))),
        ChangeErrors,
    )
)]
pub(crate) async fn rotate(
    State(people): State<Arc<People>>,
    token: SessionToken,
    if_match: IfMatch,
    Path(webhook): Path<String>,
) -> Result<Response, Failure> {
    let person = people.authenticate(token).await?;
    let own = people
        .own_webhook(&person, parse_id(WebhookId::parse(&webhook))?)
        .await?;
    let issued = people
        .rotate_webhook_secret(&person, own, if_match.precondition()?)
        .await?;
    Ok(secret_response(issued))
}

/// Send a test event to a webhook, whatever its events are.
#[utoipa::path(
    post,
    path = "/webhooks/{webhookId}/test",
    operation_id = "test_webhook",
    tag = "dashboard",
    security(("session" = [])),
    params(("webhookId" = String, Path, description = "One of your webhooks.")),
    responses((status = 202, body = SentDelivery, description = "The delivery is queued."), SendErrors)
)]
pub(crate) async fn test(
    State(people): State<Arc<People>>,
    token: SessionToken,
    Path(webhook): Path<String>,
) -> Result<Response, Failure> {
    let person = people.authenticate(token).await?;
    let own = people
        .own_webhook(&person, parse_id(WebhookId::parse(&webhook))?)
        .await?;
    let delivery = people.test_webhook(&person, &own).await?;
    Ok(delivery_response(delivery))
}

/// List a webhook's deliveries.
#[utoipa::path(
    get,
    path = "/webhooks/{webhookId}/deliveries",
    operation_id = "list_webhook_deliveries",
    tag = "dashboard",
    security(("session" = [])),
    params(
        ("webhookId" = String, Path, description = "One of your webhooks."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "Default 25."),
        ("cursor" = Option<String>, Query, pattern = "^[0-9a-f]{32}$", description = "The `next_cursor` of an earlier answer."),
    ),
    responses((status = 200, body = DeliveryList, description = "The deliveries, newest event first."), DeliveriesErrors)
)]
pub(crate) async fn deliveries(
    State(people): State<Arc<People>>,
    token: SessionToken,
    Path(webhook): Path<String>,
    uri: Uri,
) -> Result<Json<DeliveryList>, Failure> {
    let person = people.authenticate(token).await?;
    let own = people
        .own_webhook(&person, parse_id(WebhookId::parse(&webhook))?)
        .await?;
    let mut query = Query::from_uri(&uri);
    let slice = slice(&mut query, cursor::read_place);
    query.finish()?;
    let page = people.deliveries(&own, slice).await?;
    let deliveries: Vec<DeliveryView> = page.items.iter().map(Into::into).collect();
    Ok(Json(DeliveryList {
        count: deliveries.len(),
        deliveries,
        next_cursor: page.next.map(cursor::write_place),
    }))
}

/// Send a delivery again, with the same `webhook-id`, whatever its result was.
#[utoipa::path(
    post,
    path = "/webhooks/{webhookId}/deliveries/{deliveryId}/redeliver",
    operation_id = "redeliver_webhook_delivery",
    tag = "dashboard",
    security(("session" = [])),
    params(
        ("webhookId" = String, Path, description = "One of your webhooks."),
        ("deliveryId" = String, Path, description = "The `delivery_id` of one of its deliveries."),
    ),
    responses((status = 202, body = SentDelivery, description = "The delivery is queued."), SendErrors)
)]
pub(crate) async fn redeliver(
    State(people): State<Arc<People>>,
    token: SessionToken,
    Path((webhook, delivery)): Path<(String, String)>,
) -> Result<Response, Failure> {
    let person = people.authenticate(token).await?;
    let own = people
        .own_webhook(&person, parse_id(WebhookId::parse(&webhook))?)
        .await?;
    let delivery = parse_id(DeliveryId::parse(&delivery))?;
    people.send_again(&person, &own, delivery).await?;
    Ok(delivery_response(delivery))
}

fn webhook_response(own: &OwnWebhook) -> Response {
    with_etag(own.webhook.version, Json(WebhookView::from(own)))
}

fn secret_response(issued: IssuedWebhook) -> Response {
    with_etag(issued.own.webhook.version, Json(NewWebhookView::from(issued)))
}

fn delivery_response(delivery: DeliveryId) -> Response {
    let delivery_id = delivery.to_string();
    (StatusCode::ACCEPTED, Json(SentDelivery { delivery_id })).into_response()
}
