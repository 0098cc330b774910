//! A pending sign-in: the `state` (RFC 6749 §10.12), `nonce` and PKCE verifier (RFC 7636) that the issuer's response
//! must match.
//!
//! A signed, short-lived cookie contains them. Each browser tab has its own cookie.

use crate::sessions::destination::Destination;
use crate::sessions::sign_in_key::SignInKey;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use purser_api::random_bytes;
use purser_domain::{Duration, Result, Timestamp, Url};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// The content of a pending sign-in cookie.
pub(crate) struct PendingSignIn {
    state: String,
    nonce: String,
    verifier: String,
    destination: Destination,
    /// Whether the issuer must ask the user to authenticate again.
    is_again: bool,
    ends_at: Timestamp,
}

/// The maximum time that a sign-in at the issuer may take.
pub(crate) const SIGN_IN_TIMEOUT: Duration = Duration::from_secs_u32(600);

/// In characters. 48 bits are enough to distinguish a browser's pending sign-ins.
const TAG: usize = 8;

const AGAIN: &str = "again";
const FIRST: &str = "first";

impl PendingSignIn {
    pub(crate) fn new(destination: Destination, is_reauthentication: bool, now: Timestamp) -> Result<Self> {
        let secret = || random_bytes::<32>().map(|bytes| BASE64_URL_SAFE_NO_PAD.encode(bytes));
        Ok(Self {
            state: secret()?,
            nonce: secret()?,
            verifier: secret()?,
            destination,
            is_again: is_reauthentication,
            ends_at: now.after(SIGN_IN_TIMEOUT),
        })
    }

    /// Returns the first eight characters of `state`; `None` if [`PendingSignIn::new`] can't have created `state`.
    pub(crate) fn sign_in_tag_from_state(state: &str) -> Option<&str> {
        let is_ours = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        state.get(..TAG).filter(|tag| tag.bytes().all(is_ours))
    }

    pub(crate) fn tag(&self) -> &str {
        Self::sign_in_tag_from_state(&self.state).unwrap_or_default()
    }

    pub(crate) const fn ends_at(&self) -> Timestamp {
        self.ends_at
    }

    pub(crate) fn to_cookie(&self, key: &SignInKey) -> String {
        let Self {
            state,
            nonce,
            verifier,
            destination,
            is_again,
            ends_at,
        } = self;
        let destination = BASE64_URL_SAFE_NO_PAD.encode(destination.as_str());
        let kind = if *is_again { AGAIN } else { FIRST };
        key.sign(&format!(
            "{state}.{nonce}.{verifier}.{destination}.{kind}.{}",
            ends_at.secs()
        ))
    }

    /// Returns `None` if `key` did not sign the value or the pending sign-in has expired.
    pub(crate) fn from_cookie(value: &str, key: &SignInKey, now: Timestamp) -> Option<Self> {
        let mut parts = key.verify(value)?.split('.');
        let mut secret = || parts.next().filter(|part| part.len() == 43).map(str::to_owned);
        let (state, nonce, verifier) = (secret()?, secret()?, secret()?);
        let destination = BASE64_URL_SAFE_NO_PAD.decode(parts.next()?).ok()?;
        let destination = Destination::parse(std::str::from_utf8(&destination).ok()?);
        let is_again = match parts.next()? {
            AGAIN => true,
            FIRST => false,
            _ => return None,
        };
        let ends_at = Timestamp::from_secs(parts.next()?.parse().ok()?)?;
        let is_whole = parts.next().is_none();
        (is_whole && now < ends_at).then_some(Self {
            state,
            nonce,
            verifier,
            destination,
            is_again,
            ends_at,
        })
    }

    /// Sends both `prompt` and `max_age`, because issuers support different parameters (OpenID Connect Core §3.1.2.1).
    pub(crate) fn authorization_url(
        &self,
        endpoint: &Url,
        client_id: &str,
        redirect_uri: &str,
        max_age: Duration,
    ) -> Url {
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
        if self.is_again {
            url.query_pairs_mut()
                .append_pair("prompt", "login")
                .append_pair("max_age", &max_age.secs().to_string());
        }
        url
    }

    pub(crate) fn matches_state(&self, state: &str) -> bool {
        self.state.as_bytes().ct_eq(state.as_bytes()).into()
    }

    pub(crate) fn matches_nonce(&self, nonce: Option<&str>) -> bool {
        nonce.is_some_and(|nonce| self.nonce.as_bytes().ct_eq(nonce.as_bytes()).into())
    }

    pub(crate) fn pkce_verifier(&self) -> &str {
        &self.verifier
    }

    pub(crate) const fn is_reauthentication_required(&self) -> bool {
        self.is_again
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

    fn now() -> Timestamp {
        Timestamp::from_secs(1_795_223_340).unwrap()
    }

    fn pending(destination: &str, is_again: bool) -> PendingSignIn {
        PendingSignIn::new(Destination::parse(destination), is_again, now()).unwrap()
    }

    /// Expired cookies and malformed cookies with a valid signature are rejected too.
    #[test]
    fn pending_sign_in_cookies_require_a_valid_signature() {
        let [key, another] = ["a", "b"].map(|letter| SignInKey::from_text(&letter.repeat(32)).unwrap());
        for is_again in [true, false] {
            let cookie = pending("/dashboard/approvals?x=1", is_again).to_cookie(&key);
            let read = PendingSignIn::from_cookie(&cookie, &key, now()).unwrap();
            assert_eq!(
                (read.to_cookie(&key), read.is_reauthentication_required()),
                (cookie, is_again)
            );
        }
        let signed = pending("/dashboard/approvals?x=1", false).to_cookie(&key);
        let (unsigned, _) = signed.rsplit_once('.').unwrap();
        for text in [
            String::new(),
            unsigned.to_owned(),
            another.sign(unsigned),
            key.sign("a.b.c.d"),
            key.sign(&format!("{unsigned}.x")),
            key.sign(unsigned.rsplit_once('.').unwrap().0),
        ] {
            assert!(PendingSignIn::from_cookie(&text, &key, now()).is_none(), "{text}");
        }
        let late = now().after(SIGN_IN_TIMEOUT);
        assert!(PendingSignIn::from_cookie(&signed, &key, late).is_none());
    }

    /// The URL does not contain the PKCE verifier.
    #[test]
    fn authorization_urls_contain_only_the_pkce_challenge() {
        let pending = pending("", false);
        let endpoint = Url::parse("https://issuer.example/authorize?tenant=1").unwrap();
        let back = "https://purser.example/dashboard/callback";
        let url = pending.authorization_url(&endpoint, "client", back, Duration::DAY);
        let pairs: HashMap<_, _> = url.query_pairs().into_owned().collect();
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(pending.pkce_verifier()));
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
        assert!(!url.as_str().contains(pending.pkce_verifier()));
        let again = self::pending("", true).authorization_url(&endpoint, "client", back, Duration::from_secs_u32(600));
        assert!(again.as_str().ends_with("&prompt=login&max_age=600"), "{again}");
    }

    /// A response must contain the state of the sign-in, and the ID token the nonce.
    #[test]
    fn sign_in_responses_require_matching_state_and_nonce() {
        let [ours, another] = [(); 2].map(|()| pending("", false));
        assert!(ours.matches_state(&ours.state));
        assert!(ours.matches_nonce(Some(&ours.nonce)));
        for state in [another.state.as_str(), "", &ours.nonce] {
            assert!(!ours.matches_state(state));
        }
        for nonce in [None, Some(""), Some(another.nonce.as_str()), Some(ours.state.as_str())] {
            assert!(!ours.matches_nonce(nonce));
        }
    }
}
