//! Sends a submitted form of an operator act to the Lambda function `internal`. The response is a redirect, or the page
//! with the reason for the rejection.

use crate::agents::owned::require_id;
use crate::caller::Caller;
use crate::operators::acts::{ACTS, ActObject, FREEZE, OperatorAct};
use crate::operators::layout::{FREEZES, agent_path, service_path};
use crate::operators::{agents_page, freezes_page, service_page};
use crate::redirect::see_other;
use crate::sessions::session::VerifiedForm;
use crate::state::People;
use crate::ui::form::{Form, FormName};
use crate::ui::layout::Layout;
use crate::ui::notice::redirect_with_notice;
use axum::{
    extract::{FromRequest, FromRequestParts as _, Path, Request},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use maud::Markup;
use purser_api::{Attempts, CallerIds, DirectRequest, Failure, Precondition, Reply};
use purser_domain::{
    Act, AgentId, ErrorKind, FreezeTarget, OperationUuid, Result, ServiceId, SettlementId, Timestamp, UserId,
};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// The page that contains a form.
enum OperatorPage {
    Service(ServiceId),
    Agent(AgentId),
    Freezes,
}

/// The object of a submitted act.
struct Target {
    /// The path of the object's routes.
    route: String,
    /// The act on the object, for the audit log.
    audited: Act,
    /// The id of the operation, the frozen agent or the frozen owner, which the response repeats; empty for other
    /// objects.
    id: String,
}

impl OperatorPage {
    fn from_path(path: &HashMap<String, String>) -> Result<Self> {
        Ok(match (path.get("service"), path.get("agent")) {
            (Some(service), _) => Self::Service(require_id(ServiceId::parse(service))?),
            (None, Some(agent)) => Self::Agent(require_id(AgentId::parse(agent))?),
            (None, None) => Self::Freezes,
        })
    }

    fn path(&self) -> String {
        match self {
            Self::Service(service) => service_path(*service),
            Self::Agent(agent) => agent_path(*agent),
            Self::Freezes => FREEZES.to_owned(),
        }
    }

    async fn render(&self, people: &People, layout: &Layout) -> Result<Markup> {
        match self {
            Self::Service(service) => service_page::render_service_page(people, layout, *service).await,
            Self::Agent(agent) => agents_page::render_agents_page(people, layout, &agent.to_string()).await,
            Self::Freezes => freezes_page::render_freezes_page(people, layout).await,
        }
    }

    /// Returns the object of an act, or `None` if an input is invalid. Returns `not_found` if the page has no act on
    /// this kind of object.
    fn parse_target(
        &self,
        act: &OperatorAct,
        operation: Option<OperationUuid>,
        form: &mut Form,
    ) -> Result<Option<Target>> {
        let audited = Act::new(act.kind);
        let (route, audited, id) = match (self, act.object, operation) {
            (Self::Service(service), ActObject::Service, None) => {
                let route = format!("/internal/services/{service}");
                (route, audited.about_service(*service), String::new())
            }
            (Self::Service(service), ActObject::Operation, Some(operation)) => {
                let route = format!("/internal/services/{service}/operations/{operation}");
                (route, audited.about_service(*service), operation.to_string())
            }
            (Self::Agent(agent), ActObject::Agent, None) => {
                let route = format!("/internal/agents/{agent}");
                (route, audited.on_agent(*agent), String::new())
            }
            (Self::Agent(agent), ActObject::Settlement, None) => {
                let Some(settlement) = SettlementId::parse(form.field_text("settlement")) else {
                    return Ok(None);
                };
                let route = format!("/internal/agents/{agent}/settlements/{settlement}");
                (route, audited.on_agent(*agent).with_object(&settlement), String::new())
            }
            (Self::Freezes, ActObject::Freeze, None) => match parse_freeze_target(act, form) {
                None => return Ok(None),
                Some(FreezeTarget::Agent(agent)) => {
                    let route = format!("/internal/freezes/agents/{agent}");
                    (route, audited.on_agent(agent), agent.to_string())
                }
                Some(FreezeTarget::Owner(owner)) => {
                    let route = format!("/internal/freezes/owners/{owner}");
                    (route, audited.with_object(&owner), owner.to_string())
                }
                Some(FreezeTarget::Deployment) => {
                    let route = "/internal/freezes/deployment".to_owned();
                    (route, audited.with_object(&"deployment"), String::new())
                }
            },
            _ => return Err(ErrorKind::NotFound.into()),
        };
        Ok(Some(Target { route, audited, id }))
    }
}

fn parse_freeze_target(act: &OperatorAct, form: &mut Form) -> Option<FreezeTarget> {
    let id = form.field_text("id");
    let (target, message) = match form.field_text("scope") {
        "agent" => (
            AgentId::parse(id).map(FreezeTarget::Agent),
            "ID: enter the agent’s ID, a UUID.",
        ),
        "owner" => (
            UserId::parse(id).map(FreezeTarget::Owner),
            "ID: enter the owner’s ID, 64 hexadecimal digits.",
        ),
        "deployment" => (
            Some(FreezeTarget::Deployment).filter(|_| id.is_empty()),
            "ID: leave it empty to freeze all payments.",
        ),
        _ => (None, "Scope: choose one."),
    };
    if target.is_none() {
        // Only the form that sets a freeze shows the ID as an input.
        form.add_error(if act.name == FREEZE.name { "id" } else { "" }, message);
    }
    target
}

/// An operator's form. The response is 404 if the user is not an operator or `INTERNAL_FUNCTION` is not set.
pub(crate) struct OperatorForm {
    people: Arc<People>,
    posted: VerifiedForm,
    caller: CallerIds,
    path: HashMap<String, String>,
}

impl FromRequest<Arc<People>> for OperatorForm {
    type Rejection = Response;

    async fn from_request(request: Request, people: &Arc<People>) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let path = Path::<HashMap<String, String>>::from_request_parts(&mut parts, people).await;
        let Path(path) = path.map_err(IntoResponse::into_response)?;
        let Ok(caller) = CallerIds::from_request_parts(&mut parts, people).await;
        let form = VerifiedForm::from_request(Request::from_parts(parts, body), people).await?;
        if !form.session.is_operator || people.internal.is_none() {
            return Err(Failure::from(ErrorKind::NotFound).into_response());
        }
        Ok(Self {
            people: Arc::clone(people),
            posted: form,
            caller,
            path,
        })
    }
}

/// Redirects a `GET` of a form's path to the page with the form.
pub(crate) async fn redirect_to_page(Path(path): Path<HashMap<String, String>>) -> Reply {
    find_act(&path)?;
    Ok(see_other(&OperatorPage::from_path(&path)?.path()))
}

fn find_act(path: &HashMap<String, String>) -> Result<&'static OperatorAct> {
    let name = path.get("act").map_or(FREEZE.name, String::as_str);
    require_id(ACTS.into_iter().find(|act| act.name == name))
}

/// Requests the act of a form and redirects to the form's page, or shows the page with the reason for the rejection.
pub(crate) async fn submit_act(request: OperatorForm) -> Reply {
    let OperatorForm {
        people,
        posted,
        caller,
        path,
    } = request;
    let (act, page) = (find_act(&path)?, OperatorPage::from_path(&path)?);
    let operation = path.get("operation").map(|text| require_id(OperationUuid::parse(text)));
    let operation = operation.transpose()?;
    let mut form = posted.parse_posted_form(FormName::Plain);
    let row = form.field_text("row").parse().unwrap_or_default();
    let key = operation.map_or(row, |operation| operation.uuid().as_u128());
    form.name = FormName::Operator(act.name, key);
    let target = page.parse_target(act, operation, &mut form)?;
    let version = operation.and_then(|_| match form.parse_version()? {
        Precondition::Version(version) => Some(version),
        Precondition::Any => None,
    });
    for field in act.fields {
        if !(field.is_valid)(form.field_text(field.name)) {
            form.add_error(field.name, format!("{}: {}.", field.title, field.requirement));
        }
    }
    let (confirms, unconfirmed) = act.confirmation;
    if !confirms.is_empty() {
        form.require_checked("confirmed", unconfirmed);
    }
    let (status, message) = match target.filter(|_| !form.has_errors()) {
        None => (StatusCode::BAD_REQUEST, None),
        Some(Target { route, audited, id }) => {
            let (method, step) = act.request;
            let direct = DirectRequest::new(method, format!("{route}{step}"))
                .with_version(version)
                .with_body((act.body)(&form));
            match people.send_act(&posted.session.person, caller, &audited, direct).await {
                Ok(response) => {
                    let (done, awaits_second) = act.messages;
                    let message = if awaits_second_operator(&response, &id) {
                        awaits_second
                    } else {
                        done
                    };
                    return Ok(redirect_with_notice(&page.path(), message));
                }
                Err(error) => show_rejection(act, &mut form, error.into())?,
            }
        }
    };
    let layout = Layout::new(&posted.session, people.now())
        .with_error_message(message)
        .with_form(form);
    Ok((status, page.render(&people, &layout).await?).into_response())
}

impl People {
    /// Requires a recent sign-in. The rejection of an old sign-in is in the user's audit log. A completed act is in the
    /// operators' audit log.
    async fn send_act(&self, user: &Caller, ids: CallerIds, audited: &Act, request: DirectRequest) -> Result<Value> {
        let internal = self.internal.as_ref().ok_or(ErrorKind::NotFound)?;
        let recent = async { self.limits.require_recent_sign_in(user.signed_in_at, self.now()) };
        self.audit_rejection(&user.acting, audited, recent).await?;
        // One attempt, because a second attempt would see the changes of the first attempt.
        internal.send(ids, request.for_user(&user.acting), Attempts::One).await
    }
}

/// Returns whether a second operator must confirm the act on the object with this `id`, according to the response.
fn awaits_second_operator(response: &Value, id: &str) -> bool {
    fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
        value.pointer(pointer).and_then(Value::as_str)
    }
    let items = |pointer: &str| {
        response
            .pointer(pointer)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    let never = Timestamp::MAX.to_string();
    let is_delayed =
        |operation: &Value| text(operation, "/id") == Some(id) && text(operation, "/next/from") == Some(&never);
    let is_ending = |freeze: &Value| {
        let target = text(freeze, "/agent_id").or(text(freeze, "/owner"));
        target.unwrap_or_default() == id && text(freeze, "/end_requested_by").is_some()
    };
    let offered_at = text(response, "/offered_at");
    items("/operations").any(is_delayed)
        || items("/freezes").any(is_ending)
        || (offered_at.is_some() && offered_at == text(response, "/ends_at"))
}

/// Returns the status and the message of the page after a rejection. Adds validation errors to the form.
fn show_rejection(act: &OperatorAct, form: &mut Form, failure: Failure) -> Reply<(StatusCode, Option<String>)> {
    let message = match failure.error().kind() {
        ErrorKind::NotEntitled { .. } => NOT_AN_OPERATOR.to_owned(),
        ErrorKind::NotFound => NOT_FOUND.to_owned(),
        ErrorKind::VersionConflict { .. } => CONFLICT.to_owned(),
        ErrorKind::SecondOperatorRequired => SECOND_OPERATOR.to_owned(),
        ErrorKind::InvalidInternalToken => return Ok((StatusCode::FORBIDDEN, Some(TOKEN_REQUIRED.to_owned()))),
        ErrorKind::TooManyFreezes { limit } => {
            format!("Nothing was frozen: {limit} are frozen already, which is the maximum.")
        }
        ErrorKind::InvalidRequest(errors) if errors.iter().any(|error| error.path.starts_with("/payment")) => {
            return Ok((StatusCode::PRECONDITION_FAILED, Some(CONFLICT.to_owned())));
        }
        ErrorKind::InvalidRequest(errors) => {
            let fields = act.fields.iter().map(|field| (field.name, field.name, field.title));
            form.add_body_errors(errors, &fields.collect::<Vec<_>>());
            return Ok((StatusCode::BAD_REQUEST, None));
        }
        _ => return Err(failure),
    };
    Ok((failure.status(), Some(message)))
}

const NOT_AN_OPERATOR: &str = "Nothing was changed: the deployment does not list your account as an operator who acts in the browser. Give your ID, which is on your sessions page, to whoever deploys it.";
const NOT_FOUND: &str = "Nothing was changed: it does not exist, or no longer.";
const CONFLICT: &str = "Nothing was changed: the service or the provider’s answer has changed since you opened the page. The page shows the current state. Compare it again.";
const SECOND_OPERATOR: &str = "Nothing was changed: you requested this change yourself, here or with your token. Another operator has to accept it.";
const TOKEN_REQUIRED: &str = "Nothing was changed: this freeze was set with an operator’s token, so it can only be changed or ended with a token.";
