//! Reads a form that was submitted on a webhook's page. Responds with a redirect, or with the page that shows
//! the form and the errors.

use crate::agents::owned::require_id;
use crate::sessions::session::VerifiedForm;
use crate::state::People;
use crate::ui::form::{Form, FormName};
use crate::ui::layout::Layout;
use crate::ui::notice::{PageMessage, redirect_with_notice};
use crate::webhooks::operations::{IssuedWebhook, OwnWebhook};
use crate::webhooks::page;
use crate::webhooks::paths::webhook_path;
use crate::webhooks::terms::FIELDS;
use axum::{
    extract::{FromRequest, FromRequestParts as _, Path, Request},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use purser_api::{Failure, Reply};
use purser_domain::{Error, Result, WebhookId};
use std::collections::HashMap;
use std::sync::Arc;

pub(crate) struct WebhookForm {
    pub(crate) people: Arc<People>,
    pub(crate) own: OwnWebhook,
    pub(crate) posted: VerifiedForm,
    path: HashMap<String, String>,
}

impl FromRequest<Arc<People>> for WebhookForm {
    type Rejection = Response;

    async fn from_request(request: Request, people: &Arc<People>) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let path = Path::<HashMap<String, String>>::from_request_parts(&mut parts, people).await;
        let Path(path) = path.map_err(IntoResponse::into_response)?;
        let form = VerifiedForm::from_request(Request::from_parts(parts, body), people).await?;
        let own = async {
            let webhook = require_id(path.get("webhook").and_then(|webhook| WebhookId::parse(webhook)))?;
            people.read_own_webhook(&form.session.person, webhook).await
        };
        Ok(Self {
            people: Arc::clone(people),
            own: own.await.map_err(|error| Failure::from(error).into_response())?,
            posted: form,
            path,
        })
    }
}

impl WebhookForm {
    pub(crate) fn parse_path_parameter<T>(&self, parameter: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T> {
        require_id(self.path.get(parameter).and_then(|text| parse(text)))
    }

    pub(crate) fn parse_posted_form(&self, name: FormName) -> Form {
        self.posted.parse_posted_form(name)
    }

    /// Redirects to the webhook's page with `message`, or shows the page again with the form and the error.
    pub(crate) async fn respond_to_form<T>(&self, form: Form, result: Result<T>, message: PageMessage) -> Reply {
        match result {
            Ok(_) => Ok(redirect_with_notice(&webhook_path(self.own.webhook.id), message)),
            Err(error) => self.show_rejected_form(form, error).await,
        }
    }

    pub(crate) async fn show_form_again(&self, form: Form) -> Reply {
        let layout = self.page_layout();
        self.render_webhook_page(StatusCode::BAD_REQUEST, layout.with_form(form))
            .await
    }

    pub(crate) async fn show_rejected_form(&self, form: Form, error: Error) -> Reply {
        let (status, layout) = self.page_layout().with_rejected_form(form, error, &FIELDS, CONFLICT)?;
        self.render_webhook_page(status, layout).await
    }

    pub(crate) async fn show_new_secret(&self, webhook: IssuedWebhook) -> Reply {
        let user = &self.posted.session.person;
        let IssuedWebhook { own, secret } = webhook;
        Ok(page::webhook_page_response(&self.people, &self.page_layout(), user, &own, None, Some(secret)).await?)
    }

    async fn render_webhook_page(&self, status: StatusCode, layout: Layout) -> Reply {
        let user = &self.posted.session.person;
        let own = self.people.read_own_webhook(user, self.own.webhook.id).await?;
        let page = page::webhook_page_response(&self.people, &layout, user, &own, None, None).await?;
        Ok((status, page).into_response())
    }

    fn page_layout(&self) -> Layout {
        Layout::new(&self.posted.session, self.people.now())
    }
}

pub(crate) const CONFLICT: &str = "These settings were changed after you opened the page, or the form was sent twice, so nothing was saved now. The page shows the current settings. Your input is kept in the form.";
