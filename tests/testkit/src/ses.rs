//! SES v2, which stores the mail that it accepts.

use crate::serve;
use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// SES v2 with the accepted mail. Clones share the mail.
#[derive(Clone, Default)]
pub struct Ses(Arc<State>);

#[derive(Default)]
struct State {
    mails: Mutex<Vec<Value>>,
    refusal: Mutex<Option<(u16, &'static str, &'static str)>>,
}

impl Ses {
    /// Serves SES until the runtime ends, and returns its URL.
    pub async fn serve(&self) -> String {
        let ses = self.clone();
        let answer = async move |body: String| ses.answer(&body);
        serve(Router::new().route("/v2/email/outbound-emails", post(answer))).await
    }

    /// Rejects all later mail with this status, exception and message.
    pub fn refuse(&self, status: u16, exception: &'static str, message: &'static str) {
        *self.0.refusal.lock().expect("not poisoned") = Some((status, exception, message));
    }

    /// Accepts mail again.
    pub fn behave(&self) {
        *self.0.refusal.lock().expect("not poisoned") = None;
    }

    /// Returns the accepted mail, as `SendEmail` requests.
    pub fn mails(&self) -> Vec<Value> {
        self.0.mails.lock().expect("not poisoned").clone()
    }

    fn answer(&self, body: &str) -> Response {
        if let Some((status, exception, message)) = *self.0.refusal.lock().expect("not poisoned") {
            let status = StatusCode::from_u16(status).expect("a status");
            let body = json!({"message": message}).to_string();
            return (status, [("x-amzn-errortype", exception)], body).into_response();
        }
        let mail = serde_json::from_str(body).expect("the SDK writes JSON");
        let mut mails = self.0.mails.lock().expect("not poisoned");
        mails.push(mail);
        json!({"MessageId": format!("mail-{}", mails.len())})
            .to_string()
            .into_response()
    }
}
