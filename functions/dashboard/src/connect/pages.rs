//! The authorization endpoint `/dashboard/connect`, and the page for device codes.

use crate::caller::Caller;
use crate::connect::consent::{AskingClient, ConsentTarget, load_consent_page, parse_consent};
use crate::connect::request::{AuthorizationRequest, CONNECT, RequestRejection, device_path};
use crate::pages::page_security_policy;
use crate::sessions::destination::Destination;
use crate::sessions::session::{PageSession, VerifiedForm, request_origin};
use crate::sessions::sign_in::redirect_to_sign_in_again;
use crate::state::People;
use crate::ui::form::{Form, FormName};
use crate::ui::layout::{Layout, NavItem, centered_card, html_document};
use crate::ui::notice::{PageMessage, redirect_with_notice};
use axum::Router;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use maud::{Markup, html};
use purser_api::{CallerIds, Query, Reply};
use purser_domain::{DeviceRequest, DeviceState, Error, ErrorKind, Permission, RedirectUri, Result, UserCode};
use std::sync::Arc;
use url::Url;

pub(crate) fn routes() -> Router<Arc<People>> {
    Router::new()
        .route(CONNECT, get(show_consent_page).post(submit_consent))
        .route(&device_path(None), get(show_device_page).post(submit_device_consent))
}

/// The value of the button that allows the access.
const ALLOW: &str = "allow";

/// The authorization endpoint (RFC 6749 §3.1).
async fn show_consent_page(State(people): State<Arc<People>>, session: PageSession, parts: Parts) -> Reply {
    let request = match parse_authorization_request(&people, &parts).await? {
        Ok(request) => request,
        Err(response) => return Ok(response),
    };
    if let Some(response) = sign_in_redirect_if_not_recent(&people, &session.person, &parts) {
        return Ok(response);
    }
    let layout = Layout::new(&session, people.now());
    Ok(consent_page_response(&people, &session.person, &layout, &request, &parts).await?)
}

/// Redirects to the client with an authorization code, or with an error.
async fn submit_consent(
    State(people): State<Arc<People>>,
    caller: CallerIds,
    parts: Parts,
    verified_form: VerifiedForm,
) -> Reply {
    let request = match parse_authorization_request(&people, &parts).await? {
        Ok(request) => request,
        Err(response) => return Ok(response),
    };
    let user = &verified_form.session.person;
    let mut form = verified_form.parse_posted_form(FormName::Consent);
    if form.field_text("decision") != ALLOW {
        return Ok(request
            .redirect
            .redirect_with_error("access_denied", "the user denied the request"));
    }
    let edition = people.current_catalog().await?;
    let consent = parse_consent(&mut form, &request.permissions, &edition.catalog, people.now());
    if let Some(consent) = consent {
        match Box::pin(people.allow_request(user, &request, &consent, caller)).await {
            Ok(code) => return Ok(request.redirect.redirect_with_code(&code)),
            Err(error) => add_consent_error(&mut form, error)?,
        }
    }
    let layout = form_layout(&people, &verified_form, form);
    let page = consent_page_response(&people, user, &layout, &request, &parts).await?;
    Ok((StatusCode::BAD_REQUEST, page).into_response())
}

/// Asks for a device's code (RFC 8628 §3.3), or for the consent if the URL has the code.
async fn show_device_page(State(people): State<Arc<People>>, session: PageSession, parts: Parts) -> Reply {
    if let Some(response) = sign_in_redirect_if_not_recent(&people, &session.person, &parts) {
        return Ok(response);
    }
    let layout = Layout::new(&session, people.now()).with_message_in_url(&parts.uri);
    if !parts.uri.query().is_some_and(|query| query.contains("user_code")) {
        return Ok(device_code_page(&layout).into_response());
    }
    let page = match find_device_request_in_url(&people, &session.person, &parts).await? {
        Some(request) => device_consent_page(&people, &session.person, &layout, &request).await?,
        None => device_code_page(&Layout {
            notice: Some(PageMessage::DeviceCodeUnknown),
            ..layout
        }),
    };
    Ok(page.into_response())
}

async fn submit_device_consent(
    State(people): State<Arc<People>>,
    caller: CallerIds,
    parts: Parts,
    verified_form: VerifiedForm,
) -> Reply {
    let user = &verified_form.session.person;
    let Some(request) = find_device_request_in_url(&people, user, &parts).await? else {
        return Ok(redirect_with_notice(&device_path(None), PageMessage::DeviceCodeUnknown));
    };
    let mut form = verified_form.parse_posted_form(FormName::Consent);
    if form.field_text("decision") != ALLOW {
        let (code, now) = (&request.user_code, people.now());
        people
            .ledger
            .decide_device_request(code, DeviceState::Denied, now)
            .await?;
        return Ok(redirect_with_notice(&device_path(None), PageMessage::DeviceDenied));
    }
    let edition = people.current_catalog().await?;
    let consent = parse_consent(&mut form, Permission::ALL, &edition.catalog, people.now());
    if let Some(consent) = consent {
        let message = match Box::pin(people.allow_device(user, &request, &consent, caller)).await {
            Ok(true) => Some(PageMessage::DeviceAllowed),
            Ok(false) => Some(PageMessage::DeviceCodeUnknown),
            Err(error) => add_consent_error(&mut form, error).map(|()| None)?,
        };
        if let Some(message) = message {
            return Ok(redirect_with_notice(&device_path(None), message));
        }
    }
    let layout = form_layout(&people, &verified_form, form);
    let page = device_consent_page(&people, user, &layout, &request).await?;
    Ok((StatusCode::BAD_REQUEST, page).into_response())
}

async fn find_device_request_in_url(people: &People, user: &Caller, parts: &Parts) -> Result<Option<DeviceRequest>> {
    let code = Query::from_uri(&parts.uri).parse_text("user_code");
    match code.and_then(|code| UserCode::parse(&code)) {
        Some(code) => people.find_device_request(user, &code).await,
        None => Ok(None),
    }
}

async fn device_consent_page(
    people: &People,
    user: &Caller,
    layout: &Layout,
    request: &DeviceRequest,
) -> Result<Markup> {
    let client = AskingClient {
        name: &request.client_name,
        permissions: Permission::ALL,
        target: ConsentTarget::Device(&request.user_code),
    };
    let action = device_path(Some(request.user_code.as_str()));
    load_consent_page(people, user, layout, &client, &action).await
}

fn device_code_page(layout: &Layout) -> Markup {
    layout.html_page(
        "Connect a device",
        NavItem::Elsewhere,
        &html! {
            h1 { "Connect a device" }
            section.card {
                p { "Enter the code that your device or program shows. Never enter a code that somebody sent to you." }
                form method="get" action=(device_path(None)) {
                    div.field {
                        label for="user-code" { "Code" }
                        input id="user-code" type="text" name="user_code" maxlength="20" required autocomplete="off" spellcheck="false";
                    }
                    button.primary type="submit" { "Continue" }
                }
            }
        },
    )
}

/// The inner error is the response to an invalid request: an error page, or a redirect to the client.
async fn parse_authorization_request(people: &People, parts: &Parts) -> Result<Result<AuthorizationRequest, Response>> {
    let issuer = request_origin(people, parts)?;
    let rejection = match people.parse_authorization_request(&parts.uri, &issuer).await {
        Ok(request) => return Ok(Ok(request)),
        Err(rejection) => rejection,
    };
    Ok(Err(match rejection {
        RequestRejection::Redirect(redirect, error, description) => redirect.redirect_with_error(error, description),
        RequestRejection::Page(message) => {
            let content = html! {
                h1 { "No access was given" }
                p { (message) }
                a.primary.wide href="/dashboard" { "To the overview" }
            };
            let page = html_document("No access was given", None, &centered_card(&content));
            (StatusCode::BAD_REQUEST, page).into_response()
        }
    }))
}

/// Renders the consent page with a `Content-Security-Policy` that lets the form redirect to the client.
async fn consent_page_response(
    people: &People,
    user: &Caller,
    layout: &Layout,
    request: &AuthorizationRequest,
    parts: &Parts,
) -> Result<Response> {
    let uri = &request.redirect.uri;
    let client = AskingClient {
        name: &request.client.name,
        permissions: &request.permissions,
        target: ConsentTarget::Redirect(uri),
    };
    let action = parts.uri.path_and_query().map_or("", |address| address.as_str());
    let mut response = load_consent_page(people, user, layout, &client, action)
        .await?
        .into_response();
    let policy = page_security_policy(&csp_form_action_source(uri));
    let policy = HeaderValue::from_str(&policy)
        .map_err(|error| Error::internal("writing the header `Content-Security-Policy`", error))?;
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    Ok(response)
}

/// Returns the `form-action` source (CSP level 3 §2.3.1). For IPv6 hosts, the source is only the scheme.
fn csp_form_action_source(uri: &RedirectUri) -> String {
    let Ok(url) = Url::parse(uri.as_str()) else {
        return String::new();
    };
    let origin = url.origin().ascii_serialization();
    let is_source = |byte: u8| byte.is_ascii_alphanumeric() || b".-:/".contains(&byte);
    if url.origin().is_tuple() && origin.bytes().all(is_source) {
        origin
    } else {
        format!("{}:", url.scheme())
    }
}

/// Checks the sign-in before the form is filled in, because a redirect after the form would lose the values.
fn sign_in_redirect_if_not_recent(people: &People, user: &Caller, parts: &Parts) -> Option<Response> {
    people
        .limits
        .require_recent_sign_in(user.signed_in_at, people.now())
        .err()?;
    let here = parts.uri.path_and_query().map_or("", |address| address.as_str());
    Some(redirect_to_sign_in_again(&Destination::parse(here)))
}

fn form_layout(people: &People, verified_form: &VerifiedForm, form: Form) -> Layout {
    Layout::new(&verified_form.session, people.now()).with_form(form)
}

/// Shows the error of a rejected consent in the form. Returns errors that the user can't fix in the form.
fn add_consent_error(form: &mut Form, error: Error) -> Result<()> {
    match error.kind() {
        ErrorKind::InvalidRequest(errors) => form.add_body_errors(errors, &[]),
        // Another user's agent is treated like an unknown agent.
        ErrorKind::NotFound => form.add_error("agent", "Agent: choose one."),
        _ => return Err(error),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_a_consent_page_may_redirect_only_to_the_client() {
        for (uri, source) in [
            ("https://claude.ai/api/mcp/auth_callback", "https://claude.ai"),
            ("https://a.example:8443/cb", "https://a.example:8443"),
            ("http://127.0.0.1:33418/", "http://127.0.0.1:33418"),
            ("http://[::1]:7/", "http:"),
            ("https://a;sandbox.example/", "https:"),
            ("cursor://anysphere.cursor-retrieval/oauth", "cursor:"),
        ] {
            let uri = RedirectUri::parse(uri).unwrap();
            assert_eq!(csp_form_action_source(&uri), source, "{uri}");
        }
    }
}
