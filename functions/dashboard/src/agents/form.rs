//! A form on an agent's page, and the response: a redirect, or the page with the form's validation errors.

use crate::agents::owned::{OwnedAgent, require_id};
use crate::agents::page;
use crate::backtests::operations::{NewBacktest, TestedAgents};
use crate::preview::operations::PreviewDays;
use crate::preview::section;
use crate::preview::trial::Trial;
use crate::sessions::session::VerifiedForm;
use crate::state::People;
use crate::ui::form::{Form, FormName};
use crate::ui::layout::Layout;
use crate::ui::notice::{PageMessage, redirect_with_notice};
use crate::ui::paths;
use crate::ui::phrases;
use axum::{
    extract::{FromRequest, FromRequestParts as _, Path, Request},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use purser_api::{CallerIds, Failure, Precondition, Query, Reply};
use purser_domain::{AgentId, Duration, Error, ErrorKind, LimitUpdate, Result};
use std::collections::HashMap;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;

/// Boxing keeps futures off the stack, which overflowed in unoptimized builds.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A form that the agent's owner sent from the agent's page.
pub(crate) struct AgentForm {
    pub(crate) people: Arc<People>,
    pub(crate) owned: OwnedAgent,
    pub(crate) posted: VerifiedForm,
    /// The request id and the trace id, which the Lambda function `payments` writes to the log of a call.
    pub(crate) caller: CallerIds,
    path: HashMap<String, String>,
    /// The backtest or preview button that was pressed; `None` if the user saved the form.
    pub(crate) trial: Option<Trial>,
}

impl FromRequest<Arc<People>> for AgentForm {
    type Rejection = Response;

    async fn from_request(request: Request, people: &Arc<People>) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let mut query = Query::from_uri(&parts.uri);
        let mut trials = [Trial::Preview, Trial::Shadow, Trial::Backtest].into_iter();
        let trial = trials.find(|trial| query.parse_text(trial.name()).is_some());
        let path = Path::<HashMap<String, String>>::from_request_parts(&mut parts, people).await;
        let Path(path) = path.map_err(IntoResponse::into_response)?;
        let Ok(caller) = CallerIds::from_request_parts(&mut parts, people).await;
        let form = VerifiedForm::from_request(Request::from_parts(parts, body), people).await?;
        let owned = async {
            let agent = require_id(path.get("agent").and_then(|agent| AgentId::parse(agent)))?;
            people.read_own_agent(&form.session.person, agent).await
        };
        Ok(Self {
            people: Arc::clone(people),
            owned: owned.await.map_err(|error| Failure::from(error).into_response())?,
            posted: form,
            caller,
            path,
            trial,
        })
    }
}

impl AgentForm {
    /// Parses the id in the path's `parameter`. An invalid id is `not_found`.
    pub(crate) fn parse_path_parameter<T>(&self, parameter: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T> {
        require_id(self.path.get(parameter).and_then(|text| parse(text)))
    }

    pub(crate) fn parse_posted_form(&self, name: FormName) -> Form {
        self.posted.parse_posted_form(name)
    }

    /// Returns the agent with the reason for the update. An invalid reason is a validation error of the form.
    pub(crate) fn agent_with_update_reason(&self, form: &mut Form) -> Option<OwnedAgent> {
        let reason = form.parse_update_reason().ok()?;
        Some(self.owned.clone().with_reason(reason))
    }

    /// Redirects to the agent's page with `message`, or shows the page again with the form and the error.
    pub(crate) fn respond_to_form<T>(&self, form: Form, result: Result<T>, message: PageMessage) -> Boxed<'_, Reply> {
        match result {
            Ok(_) => Box::pin(ready(Ok(redirect_with_notice(
                &paths::agent_path(self.owned.agent().id),
                message,
            )))),
            Err(error) => Box::pin(self.show_rejected_form(form, error)),
        }
    }

    pub(crate) async fn show_new_key(&self, owned: &OwnedAgent, key: String) -> Reply {
        Ok(page::agent_page_response(&self.people, &self.page_layout(), owned, Some(key)).await?)
    }

    /// Shows the page again with the form and the validation errors (status 400).
    pub(crate) fn show_form_again(&self, form: Form) -> Boxed<'_, Reply> {
        Box::pin(self.render_agent_page(StatusCode::BAD_REQUEST, form, None))
    }

    /// Saves, previews or tests an update of the agent's limits, depending on the pressed button. `update` is
    /// `Ok(None)` if the form has validation errors.
    pub(crate) fn submit_update(
        &self,
        mut form: Form,
        update: Result<Option<LimitUpdate>>,
        message: PageMessage,
    ) -> Boxed<'_, Reply> {
        Box::pin(async move {
            let owned = self.agent_with_update_reason(&mut form);
            let Some((owned, if_match)) = owned.zip(form.parse_version()) else {
                return self.show_form_again(form).await;
            };
            let update = match update {
                Ok(Some(update)) => update,
                Ok(None) => return self.show_form_again(form).await,
                Err(error) => return self.show_rejected_form(form, error).await,
            };
            let (people, agent) = (&self.people, self.owned.agent());
            let result = match self.trial {
                None => {
                    let saved = people.save_update(owned, if_match, &update).await;
                    saved.map(|()| (paths::agent_path(agent.id), message))
                }
                Some(Trial::Preview) => return self.show_update_preview(form, if_match, &update).await,
                Some(Trial::Shadow) => self.attach_shadow_policy(&update).await,
                Some(Trial::Backtest) => self.start_backtest(&update).await,
            };
            match result {
                Ok((path, message)) => Ok(redirect_with_notice(&path, message)),
                Err(error) => self.show_rejected_form(form, error).await,
            }
        })
    }

    async fn attach_shadow_policy(&self, update: &LimitUpdate) -> Result<(String, PageMessage)> {
        let tested = update.tested_limits(self.owned.agent(), self.people.now())?;
        let shadow = self.people.attach_shadow(&self.owned, tested).await?;
        Ok((paths::shadow_path(shadow.agent), PageMessage::ShadowAttached))
    }

    async fn start_backtest(&self, update: &LimitUpdate) -> Result<(String, PageMessage)> {
        let (agent, to) = (self.owned.agent(), self.people.now());
        let new = NewBacktest {
            agents: TestedAgents::Ids(vec![agent.id]),
            from: to.before(BACKTEST_DURATION),
            to,
            terms: update.tested_limits(agent, to)?,
        };
        let run = self.people.start_backtest(&self.posted.session.person, new).await?;
        Ok((paths::backtest_path(run.id), PageMessage::BacktestStarted))
    }

    /// Shows the page again with the form and the preview, or with the preview's error.
    async fn show_update_preview(&self, form: Form, if_match: Precondition, update: &LimitUpdate) -> Reply {
        let preview = self
            .people
            .preview_update(&self.owned, if_match, update, PreviewDays::DEFAULT);
        let preview = match preview.await {
            Ok(preview) => section::preview_content(&preview, &self.people.current_catalog().await?.catalog),
            Err(error) => return self.show_rejected_form(form, error).await,
        };
        let layout = Layout {
            typed: Some(form),
            preview: Some(preview),
            ..self.page_layout()
        };
        Ok(page::agent_page_response(&self.people, &layout, &self.owned, None).await?)
    }

    /// Shows the current page with the form that was rejected with `error`.
    pub(crate) async fn show_rejected_form(&self, mut form: Form, error: Error) -> Reply {
        let failure = Failure::from(error);
        let message = match failure.error().kind() {
            ErrorKind::InvalidRequest(errors) => {
                form.add_body_errors(errors, &[]);
                None
            }
            ErrorKind::VersionConflict { .. } => Some(CONFLICT.to_owned()),
            ErrorKind::ServiceNotFound => Some(SERVICE_CLOSED_MESSAGE.to_owned()),
            ErrorKind::IdempotencyKeyReused { .. } => Some(OTHER_AMOUNT_MESSAGE.to_owned()),
            ErrorKind::PayoutRefused(rejection) => Some(phrases::withdrawal_rejection_sentence(rejection)),
            _ => return Err(failure),
        };
        self.render_agent_page(failure.status(), form, message).await
    }

    /// Shows a separate message for a version conflict, because a reload of the page with a new key repeats
    /// the request with the old version.
    pub(crate) async fn show_rejected_key_form(&self, form: Form, error: Error) -> Reply {
        if let ErrorKind::VersionConflict { .. } = error.kind() {
            let status = Failure::from(error).status();
            return self
                .render_agent_page(status, form, Some(KEY_CONFLICT.to_owned()))
                .await;
        }
        self.show_rejected_form(form, error).await
    }

    async fn render_agent_page(&self, status: StatusCode, form: Form, message: Option<String>) -> Reply {
        let layout = self.page_layout().with_error_message(message).with_form(form);
        let (user, agent) = (&self.posted.session.person, self.owned.agent().id);
        let owned = self.people.read_own_agent(user, agent).await?;
        let page = page::agent_page_response(&self.people, &layout, &owned, None).await?;
        Ok((status, page).into_response())
    }

    pub(crate) fn page_layout(&self) -> Layout {
        Layout::new(&self.posted.session, self.people.now())
    }
}

/// How far back the form's Test button runs the backtest.
const BACKTEST_DURATION: Duration = Duration::from_secs_u32(30 * 86_400);

const CONFLICT: &str = "These settings were changed elsewhere after you opened the page, so nothing was saved. The page shows the current settings. Your input is kept in the form: review it and save again.";
const KEY_CONFLICT: &str = "No key was created, because the agent has changed since you opened this form. If you reloaded the page that showed a new key, that key exists and can’t be shown again. If you did not copy it, revoke it and create another.";
const OTHER_AMOUNT_MESSAGE: &str =
    "This form was already used for a payout of another amount. The page shows the current state.";
const SERVICE_CLOSED_MESSAGE: &str = "This service is no longer offered, so it can’t be enabled.";
