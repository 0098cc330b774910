//! The token that binds a form to its session. It is the third protection against CSRF, besides `SameSite` and the
//! `Origin` header.

use crate::digest::digest;
use maud::{Markup, html};
use subtle::ConstantTimeEq as _;
use url::form_urlencoded;

/// The form token of a session, which the forms on its pages send.
#[derive(Clone)]
pub(crate) struct FormToken(String);

impl FormToken {
    /// The name of the form field.
    pub(crate) const FIELD: &str = "form_token";

    /// The form token of a session: a hash that does not reveal the session's secret.
    pub(crate) fn of(session: &str) -> Self {
        Self(digest(&[b"purser/dashboard/form/v1\0", session.as_bytes()]))
    }

    /// Whether the body of a form contains this token exactly once. The comparison takes constant time.
    pub(crate) fn is_in(&self, body: &[u8]) -> bool {
        let fields = form_urlencoded::parse(body);
        let mut tokens = fields.filter(|(name, _)| name == Self::FIELD).map(|(_, value)| value);
        let (token, again) = (tokens.next().unwrap_or_default(), tokens.next());
        let is_ours: bool = self.0.as_bytes().ct_eq(token.as_bytes()).into();
        is_ours && again.is_none()
    }

    pub(crate) fn input(&self) -> Markup {
        html! { input type="hidden" name=(Self::FIELD) value=(self.0); }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static_assertions::assert_not_impl_any!(FormToken: PartialEq, std::fmt::Debug);

    #[test]
    fn a_form_token_belongs_to_one_session() {
        let token = FormToken::of("session");
        let carrying = |token: &FormToken| format!("a=1&form_token={}", token.0);
        let ours = carrying(&token);
        assert!(token.is_in(ours.as_bytes()));
        let others = [
            carrying(&FormToken::of("another")),
            format!("{ours}&form_token=x"),
            ours.to_uppercase(),
            "form_token=".to_owned(),
            String::new(),
        ];
        for body in others {
            assert!(!token.is_in(body.as_bytes()), "{body}");
        }
        assert_eq!(token.0.len(), 64);
        assert!(!token.0.contains("session"));
    }
}
