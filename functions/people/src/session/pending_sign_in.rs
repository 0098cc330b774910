//! A pending sign-in: what is sent to the issuer, and what its answer must match.
//!
//! The answer is bound to the browser by `state` (RFC 6749 §10.12), to the token by `nonce` (OpenID Connect Core
//! §3.1.2.1) and to us by PKCE (RFC 7636). All three are in one short-lived cookie, so no table keeps sign-ins that
//! were never finished.

use super::destination::Destination;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use purser_api::random;
use purser_domain::{Result, Url};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// The content of the cookie.
pub(crate) struct PendingSignIn {
    state: String,
    nonce: String,
    verifier: String,
    destination: Destination,
}

impl PendingSignIn {
    pub(crate) fn new(destination: Destination) -> Result<Self> {
        let secret = || random::<32>().map(|bytes| BASE64_URL_SAFE_NO_PAD.encode(bytes));
        Ok(Self {
            state: secret()?,
            nonce: secret()?,
            verifier: secret()?,
            destination,
        })
    }

    /// The cookie's value.
    pub(crate) fn to_cookie(&self) -> String {
        let Self {
            state,
            nonce,
            verifier,
            destination,
        } = self;
        let destination = BASE64_URL_SAFE_NO_PAD.encode(destination.as_str());
        format!("{state}.{nonce}.{verifier}.{destination}")
    }

    pub(crate) fn from_cookie(value: &str) -> Option<Self> {
        let mut parts = value.split('.');
        let mut secret = || parts.next().filter(|part| part.len() == 43).map(str::to_owned);
        let (state, nonce, verifier) = (secret()?, secret()?, secret()?);
        let destination = BASE64_URL_SAFE_NO_PAD.decode(parts.next()?).ok()?;
        let destination = Destination::parse(std::str::from_utf8(&destination).ok()?);
        parts.next().is_none().then_some(Self {
            state,
            nonce,
            verifier,
            destination,
        })
    }

    /// The authorization URL at the issuer.
    pub(crate) fn question(&self, endpoint: &Url, client_id: &str, redirect_uri: &str) -> Url {
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&self.verifier));
        let mut url = endpoint.clone();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", client_id)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("scope", "openid profile email")
            .append_pair("state", &self.state)
            .append_pair("nonce", &self.nonce)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        url
    }

    /// Whether the answer's `state` is this browser's.
    pub(crate) fn is_answered_by(&self, state: &str) -> bool {
        self.state.as_bytes().ct_eq(state.as_bytes()).into()
    }

    /// Whether the token's `nonce` is this sign-in's.
    pub(crate) fn is_meant_by(&self, nonce: Option<&str>) -> bool {
        nonce.is_some_and(|nonce| self.nonce.as_bytes().ct_eq(nonce.as_bytes()).into())
    }

    /// The PKCE code verifier.
    pub(crate) fn verifier(&self) -> &str {
        &self.verifier
    }

    pub(crate) const fn destination(&self) -> &Destination {
        &self.destination
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    static_assertions::assert_not_impl_any!(PendingSignIn: PartialEq, std::fmt::Debug);

    #[test]
    fn a_pending_sign_in_survives_its_cookie_and_no_other_text_is_one() {
        let pending = PendingSignIn::new(Destination::parse("/dashboard/approvals?x=1")).unwrap();
        let cookie = pending.to_cookie();
        assert_eq!(PendingSignIn::from_cookie(&cookie).unwrap().to_cookie(), cookie);
        for text in [
            "",
            "a.b.c.d",
            &format!("{cookie}.x"),
            cookie.rsplit_once('.').unwrap().0,
        ] {
            assert!(PendingSignIn::from_cookie(text).is_none(), "{text}");
        }
        // A planted cookie can't redirect to another site.
        let (secrets, _) = cookie.rsplit_once('.').unwrap();
        let planted = format!("{secrets}.{}", BASE64_URL_SAFE_NO_PAD.encode("https://evil.example"));
        assert_eq!(
            *PendingSignIn::from_cookie(&planted).unwrap().destination(),
            Destination::overview()
        );
    }

    #[test]
    fn the_question_carries_the_hash_of_the_verifier_and_never_the_verifier() {
        let pending = PendingSignIn::new(Destination::overview()).unwrap();
        let endpoint = Url::parse("https://issuer.example/authorize?tenant=1").unwrap();
        let url = pending.question(&endpoint, "client", "https://purser.example/dashboard/callback");
        let pairs: HashMap<_, _> = url.query_pairs().into_owned().collect();
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(pending.verifier()));
        let expected = [
            ("tenant", "1"),
            ("response_type", "code"),
            ("client_id", "client"),
            ("redirect_uri", "https://purser.example/dashboard/callback"),
            ("scope", "openid profile email"),
            ("state", &pending.state),
            ("nonce", &pending.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ];
        assert_eq!(pairs.len(), expected.len());
        for (name, value) in expected {
            assert_eq!(pairs[name], value, "{name}");
        }
        assert!(!url.as_str().contains(pending.verifier()));
    }

    #[test]
    fn an_answer_has_to_show_the_state_and_the_token_the_nonce() {
        let [ours, another] = [(); 2].map(|()| PendingSignIn::new(Destination::overview()).unwrap());
        assert!(ours.is_answered_by(&ours.state));
        assert!(ours.is_meant_by(Some(&ours.nonce)));
        for state in [another.state.as_str(), "", &ours.nonce] {
            assert!(!ours.is_answered_by(state));
        }
        for nonce in [None, Some(""), Some(another.nonce.as_str()), Some(ours.state.as_str())] {
            assert!(!ours.is_meant_by(nonce));
        }
    }
}
