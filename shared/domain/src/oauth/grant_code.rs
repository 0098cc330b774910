//! Authorization codes (RFC 6749 §4.1), with PKCE (RFC 7636).

use crate::{AgentId, Duration, Fingerprint, KeyId, RedirectUri, SecretDigest, Timestamp};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// The row of an authorization code. The row's key contains the digest of the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantCode {
    /// The digest of the code.
    pub digest: SecretDigest,
    /// The agent to which the user gave access.
    pub agent: AgentId,
    /// The id of the grant. The agent's record stores each grant as an agent key, so the id is the id of an agent key.
    pub grant: KeyId,
    /// The fingerprint of the id of the client to which the code was issued.
    pub client: Fingerprint,
    /// The URI to which the code was sent.
    pub redirect_uri: RedirectUri,
    /// The challenge that the client's verifier must match.
    pub challenge: PkceChallenge,
    /// The time from which the code is rejected.
    pub expires_at: Timestamp,
    /// The time at which the code was used. A code can be used once.
    pub used_at: Option<Timestamp>,
}

/// A new authorization code for the client. Without `Debug`, because the code is secret.
pub struct NewGrantCode {
    /// The code `pac_…`, which is added to the redirect URI.
    pub text: String,
    /// The digest of the code, which is stored instead of the code.
    pub digest: SecretDigest,
}

impl NewGrantCode {
    /// Creates an authorization code and the digest from random bytes.
    pub fn from_random(random: [u8; 32]) -> Self {
        let text = format!("pac_{}", alloy_primitives::hex::encode(random));
        let digest = SecretDigest::from_secret(&text);
        Self { text, digest }
    }
}

/// A client's request for tokens in exchange for a code.
#[derive(Clone, Copy)]
pub struct CodeRedemption<'a> {
    /// The fingerprint of the client's id.
    pub client: &'a Fingerprint,
    /// The `redirect_uri` of the token request; `None` if an OAuth 2.1 client sends none.
    pub redirect_uri: Option<&'a str>,
    /// The `code_verifier` of the request.
    pub verifier: &'a str,
}

impl GrantCode {
    /// How long a client can redeem a code.
    pub const LIFETIME: Duration = Duration::from_secs_u32(60);

    /// Returns whether this client may redeem the code at `now`. The caller checks that the code is unused.
    pub fn may_be_redeemed(&self, request: CodeRedemption<'_>, now: Timestamp) -> bool {
        let same_uri = request.redirect_uri.is_none_or(|uri| uri == self.redirect_uri.as_str());
        self.challenge.matches_verifier(request.verifier)
            && self.client == *request.client
            && same_uri
            && now < self.expires_at
    }
}

/// A PKCE challenge with the method S256, the only supported method: the SHA-256 of the code verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PkceChallenge([u8; 32]);

impl PkceChallenge {
    /// Parses `code_challenge`: 43 characters of base64url. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        Some(Self(BASE64_URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()?))
    }

    /// Creates a challenge from the stored bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes to store.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns whether the verifier is valid (RFC 7636 §4.1) and matches the challenge. Compares in constant time.
    pub fn matches_verifier(&self, verifier: &str) -> bool {
        let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        let has_form = (43..=128).contains(&verifier.len()) && verifier.bytes().all(is_unreserved);
        let digest: [u8; 32] = Sha256::digest(verifier).into();
        bool::from(digest.ct_eq(&self.0)) && has_form
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    static_assertions::assert_not_impl_any!(NewGrantCode: PartialEq, std::fmt::Debug);

    /// The code verifier of the example in RFC 7636, appendix B.
    const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

    #[test]
    fn only_the_pkce_verifier_of_a_challenge_matches_it() {
        let challenge = PkceChallenge::parse(CHALLENGE).unwrap();
        assert!(challenge.matches_verifier(VERIFIER));
        for other in [
            "",
            CHALLENGE,
            VERIFIER.trim_start_matches(VERIFIER.chars().next().unwrap()),
            &format!("{VERIFIER}="),
            &"a".repeat(43),
        ] {
            assert!(!challenge.matches_verifier(other), "{other}");
        }
        // The digest matches, but the verifier is shorter than RFC 7636 allows.
        let short = PkceChallenge::from_bytes(Sha256::digest("short").into());
        assert!(!short.matches_verifier("short"));
        for text in [
            "",
            "abc",
            &format!("{CHALLENGE}="),
            &CHALLENGE.replace('-', "+"),
            VERIFIER.get(1..).unwrap(),
        ] {
            assert_eq!(PkceChallenge::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_code_belongs_to_its_client_redirect_uri_verifier_and_minute() {
        let at = |secs| Timestamp::from_secs(secs).unwrap();
        let client = Fingerprint::for_text("client");
        let code = GrantCode {
            digest: NewGrantCode::from_random([7; 32]).digest,
            agent: AgentId::from_uuid(Uuid::nil()),
            grant: KeyId(1),
            client,
            redirect_uri: RedirectUri::parse("https://a.example/cb").unwrap(),
            challenge: PkceChallenge::parse(CHALLENGE).unwrap(),
            expires_at: at(1_060),
            used_at: None,
        };
        let good = CodeRedemption {
            client: &client,
            redirect_uri: Some("https://a.example/cb"),
            verifier: VERIFIER,
        };
        assert!(code.may_be_redeemed(good, at(1_059)));
        assert!(code.may_be_redeemed(
            CodeRedemption {
                redirect_uri: None,
                ..good
            },
            at(1_059)
        ));
        assert!(!code.may_be_redeemed(good, at(1_060)));
        let other = Fingerprint::for_text("other");
        for bad in [
            CodeRedemption { client: &other, ..good },
            CodeRedemption {
                redirect_uri: Some("https://a.example/cb/"),
                ..good
            },
            CodeRedemption { verifier: "", ..good },
            CodeRedemption {
                verifier: CHALLENGE,
                ..good
            },
        ] {
            assert!(!code.may_be_redeemed(bad, at(1_000)));
        }
    }
}
