//! A form on an operators' page, and the response: a redirect, or the page with the reason for the rejection.

use crate::agents::owned::require_id;
use crate::operators::form_name::OperatorFormName;
use crate::sessions::session::VerifiedForm;
use crate::state::People;
use crate::ui::form::{Form, FormName};
use crate::ui::layout::Layout;
use crate::ui::notice::{PageMessage, redirect_with_notice};
use axum::{
    extract::{FromRequest, FromRequestParts as _, Path, Request},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use maud::Markup;
use purser_api::{CallerIds, Failure, OperatorAct, OperatorResponse, Reply};
use purser_domain::{ErrorKind, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// An operator's form. The response is 404 if the user is not an operator or `INTERNAL_FUNCTION` is not set.
pub(crate) struct OperatorForm {
    pub(crate) people: Arc<People>,
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

/// The messages for a completed action, and for an action that a second operator must confirm.
pub(crate) struct ActMessages {
    pub(crate) done: PageMessage,
    pub(crate) awaits_second_operator: PageMessage,
}

impl ActMessages {
    pub(crate) const fn for_single_operator(success_message: PageMessage) -> Self {
        let awaits_second_operator = success_message;
        Self {
            done: success_message,
            awaits_second_operator,
        }
    }
}

impl OperatorForm {
    pub(crate) fn parse_path_parameter<T>(&self, parameter: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T> {
        require_id(self.path.get(parameter).and_then(|text| parse(text)))
    }

    pub(crate) fn parse_posted_form(&self, name: OperatorFormName) -> Form {
        self.posted.parse_posted_form(FormName::Operator(name))
    }

    /// Performs the action and redirects to `path`, or shows `page` with the reason for the rejection.
    pub(crate) async fn submit_operator_action(
        self,
        mut form: Form,
        action: OperatorAct,
        messages: ActMessages,
        path: &str,
        page: impl AsyncFnOnce(&People, Layout) -> Result<Markup>,
    ) -> Reply {
        let user = &self.posted.session.person;
        let response = self
            .people
            .send_operator_action(user, self.caller.clone(), action)
            .await?;
        let (status, error) = match response {
            OperatorResponse::Done {} => return Ok(redirect_with_notice(path, messages.done)),
            OperatorResponse::AwaitsSecond {} => {
                return Ok(redirect_with_notice(path, messages.awaits_second_operator));
            }
            OperatorResponse::NotAnOperator {} => (StatusCode::FORBIDDEN, Some(NOT_AN_OPERATOR.to_owned())),
            OperatorResponse::NotFound {} => (StatusCode::NOT_FOUND, Some(NOT_FOUND.to_owned())),
            OperatorResponse::VersionConflict {} => (StatusCode::PRECONDITION_FAILED, Some(CONFLICT.to_owned())),
            OperatorResponse::SecondOperatorRequired {} => (StatusCode::FORBIDDEN, Some(SECOND_OPERATOR.to_owned())),
            OperatorResponse::TokenRequired {} => (StatusCode::FORBIDDEN, Some(TOKEN_REQUIRED.to_owned())),
            OperatorResponse::TooManyFreezes { limit } => {
                let error = format!("Nothing was frozen: {limit} are frozen already, which is the maximum.");
                (StatusCode::CONFLICT, Some(error))
            }
            OperatorResponse::Invalid { path, message } => {
                if path == "/payment" {
                    (StatusCode::PRECONDITION_FAILED, Some(CONFLICT.to_owned()))
                } else {
                    form.add_error(path.trim_start_matches('/'), format!("{}.", message.replace('`', "")));
                    (StatusCode::BAD_REQUEST, None)
                }
            }
        };
        self.render_operator_page(status, form, error, page).await
    }

    pub(crate) async fn show_form_again(
        self,
        form: Form,
        page: impl AsyncFnOnce(&People, Layout) -> Result<Markup>,
    ) -> Reply {
        self.render_operator_page(StatusCode::BAD_REQUEST, form, None, page)
            .await
    }

    async fn render_operator_page(
        &self,
        status: StatusCode,
        form: Form,
        message: Option<String>,
        page: impl AsyncFnOnce(&People, Layout) -> Result<Markup>,
    ) -> Reply {
        let layout = Layout::new(&self.posted.session, self.people.now())
            .with_error_message(message)
            .with_form(form);
        Ok((status, page(&self.people, layout).await?).into_response())
    }
}

const NOT_AN_OPERATOR: &str = "Nothing was changed: the deployment does not list your account as an operator who acts in the browser. Give your ID, which is on your sessions page, to whoever deploys it.";
const NOT_FOUND: &str = "Nothing was changed: it does not exist, or no longer.";
const CONFLICT: &str = "Nothing was changed: the service or the provider’s answer has changed since you opened the page. The page shows the current state. Compare it again.";
const SECOND_OPERATOR: &str = "Nothing was changed: you requested this change yourself, here or with your token. Another operator has to accept it.";
const TOKEN_REQUIRED: &str = "Nothing was changed: this freeze was set with an operator’s token, so it can only be changed or ended with a token.";
